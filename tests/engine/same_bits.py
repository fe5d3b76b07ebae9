"""Everything of a solution that must not depend on who computed it."""

from __future__ import annotations

import dataclasses
from typing import Any

from mscam_dask.types.result import Solution


def bits(solution: Solution) -> Any:
    """Arrays as bytes, and all records without their times."""

    def untimed(record: Any) -> Any:
        return dataclasses.replace(record, seconds=0.0)

    graph = solution.consensus_graph
    arrays: list[Any] = [solution.labels, graph.data, graph.indices, graph.indptr]
    arrays += [solution.view_embeddings[name] for name in sorted(solution.view_embeddings)]
    arrays += [getattr(encoder, "loadings") for encoder in solution.encoders.values()]  # noqa: B009
    refinement = solution.refinement
    return (
        [(array.dtype.str, array.shape, array.tobytes()) for array in arrays],
        [
            dataclasses.replace(untimed(record), views=tuple(map(untimed, record.views)))
            for record in solution.history
        ],
        list(map(untimed, solution.prepared)),
        solution.settings,
        solution.parameters,
        solution.score,
        solution.view_contributions,
        solution.status,
        solution.n_neighbors,
        solution.n_connected_components,
        refinement and (refinement.scores, refinement.taken),
    )
