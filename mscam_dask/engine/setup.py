"""From the foundation to the first graph: prepared views, candidates, the A-step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from mscam_dask.data.views import MultiViewData
from mscam_dask.engine.anchor_blocks import anchor_blocks
from mscam_dask.engine.executor import Executor, Handle
from mscam_dask.engine.foundation import LARGE_RANK, Foundation, Neutral
from mscam_dask.engine.tasks import graph as graph_tasks
from mscam_dask.engine.tasks import views as view_tasks
from mscam_dask.model.parameters import Parameters, Scale
from mscam_dask.model.records import GraphKind
from mscam_dask.solvers.graph import assemble_graph

__all__ = [
    "FirstGraph",
    "Prepared",
    "build_graph",
    "first_graph",
    "prepare",
]


@dataclasses.dataclass(frozen=True)
class Prepared:
    """Handles of one setting of scaling, α and k.

    Attributes
    ----------
    names : tuple of str
        Of the views that count.
    n_samples : int
    views : tuple of handles, one per view
    judges : tuple of str
        Views whose neutral graphs judge partitions.
    neutral : Neutral
    blocks : tuple of handles
        Anchor candidates, one per block of rows.
    n_judged : int
        Samples of the neutral graphs, where these are not all.
    """

    names: tuple[str, ...]
    n_samples: int
    views: tuple[Handle, ...]
    judges: tuple[str, ...]
    neutral: Neutral
    blocks: tuple[Handle, ...]
    n_judged: int = 0


@dataclasses.dataclass(frozen=True)
class FirstGraph:
    """The graph of the data alone, before anything is learned.

    Attributes
    ----------
    graph : handle
    n_components : int
    n_neighbors : int
        k that made it.
    kind : {"distances", "distances and views"}
        Neighbours by the views' mean distance, or by that and in each view.
    """

    graph: Handle
    n_components: int
    n_neighbors: int
    kind: GraphKind = "distances"


def prepare(
    foundation: Foundation,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
    later: Iterable[tuple[Scale, ...]] = (),
    all_judge: bool = False,
) -> Prepared:
    """The prepared views and the anchor candidates of one setting, without the views it leaves out.

    These are no judges either, unless `all_judge`. Factored views that none of the `later` scalings
    needs are given up: they are as large as the data.
    """
    if foundation.data is not None:
        return _prepare_large(foundation, foundation.data, parameters, executor, key=key)
    n_views = len(foundation.names)
    factored = foundation.factored[parameters.scales(n_views)]
    views = [
        executor.submit(
            view_tasks.prepare,
            factored[index],
            parameters.preparation(index).alpha,
            key=f"prepare/{key}/{foundation.names[index]}",
        )
        for index in parameters.counted(n_views)
    ]
    kept = {id(handle) for scales in later for handle in foundation.factored[scales]}
    executor.release([handle for handle in factored if id(handle) not in kept])
    prepared = _prepared(foundation, views, parameters, executor, key=key)
    return dataclasses.replace(prepared, judges=foundation.names) if all_judge else prepared


def _prepare_large(
    foundation: Foundation,
    data: MultiViewData,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
) -> Prepared:
    """The same for large data: truncated bases, and candidates from cells."""
    views = []
    for index in parameters.counted(len(data.views)):
        source = data.views[index]
        preparation = parameters.preparation(index)
        factored = executor.submit(
            view_tasks.factor,
            source,
            preparation.scale,
            LARGE_RANK,
            key=f"factor/{key}/{source.name}",
        )
        views.append(
            executor.submit(
                view_tasks.prepare,
                factored,
                preparation.alpha,
                key=f"prepare/{key}/{source.name}",
            )
        )
        executor.release([factored])
    return _prepared(foundation, views, parameters, executor, key=key)


def _prepared(
    foundation: Foundation,
    views: list[Handle],
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
) -> Prepared:
    """Prepared views with the anchor candidates by these."""
    n = foundation.n_samples
    names = tuple(foundation.names[view] for view in parameters.counted(len(foundation.names)))
    return Prepared(
        names=names,
        n_samples=n,
        views=tuple(views),
        judges=names,
        neutral=foundation.neutral,
        blocks=anchor_blocks(views, n, parameters, executor, key=key),
        n_judged=foundation.n_judged,
    )


def build_graph(
    executor: Executor,
    blocks: Sequence[Handle],
    summed: list[Handle] | None,
    *,
    n_neighbors: int,
    data_weight: float,
    projected_weight: float,
    key: str,
) -> tuple[Handle, int]:
    """The A-step over all blocks of rows; the graph and its number of components."""
    rows = [
        executor.submit(
            graph_tasks.block_rows,
            block,
            None if summed is None else summed[index],
            n_neighbors,
            data_weight,
            projected_weight,
            key=f"graph_rows/{key}/{index}",
        )
        for index, block in enumerate(blocks)
    ]
    graph = executor.submit(assemble_graph, rows, key=f"assemble_graph/{key}")
    count = executor.submit(graph_tasks.component_count, graph, key=f"component_count/{key}")
    (n_components,) = executor.gather([count])
    executor.release([*rows, count])
    return graph, int(n_components)


def first_graph(
    prepared: Prepared, parameters: Parameters, executor: Executor, *, key: str
) -> FirstGraph:
    """The graph of the data distances; k grows until it has at most c components.

    With k neighbours the data may already fall into more than c pieces, and no graph weight
    can join them. k is doubled, at most to one less than the number of candidates.
    """
    most = parameters.candidates(prepared.n_samples) - 1
    n_neighbors = min(parameters.n_neighbors, prepared.n_samples - 1)
    while True:
        graph, n_components = build_graph(
            executor,
            prepared.blocks,
            None,
            n_neighbors=n_neighbors,
            data_weight=parameters.metric_floor,
            projected_weight=0.0,
            key=f"{key}/{n_neighbors}",
        )
        if n_components <= parameters.n_clusters or n_neighbors >= most:
            return FirstGraph(graph, n_components, n_neighbors)
        executor.release([graph])
        n_neighbors = min(2 * n_neighbors, most)
