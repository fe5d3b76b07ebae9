"""From the foundation to the first graph: prepared views, candidates, the A-step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.engine.candidate_neighbors import candidate_blocks
from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.precompute import LARGE_RANK, LazyReferenceGraphs, PrecomputedViews
from mscam_dask.engine.tasks import graph as graph_tasks
from mscam_dask.engine.tasks import views as view_tasks
from mscam_dask.solvers.graph_update import assemble_graph
from mscam_dask.types.events import GraphKind
from mscam_dask.types.parameters import Parameters, Scale

__all__ = [
    "InitialGraph",
    "PreparedHandles",
    "build_graph",
    "initial_graph",
    "prepare_views",
]


@dataclasses.dataclass(frozen=True)
class PreparedHandles:
    """Handles of one setting of scaling, α and k.

    Attributes
    ----------
    names : tuple of str
        Of the views that count.
    n_samples : int
    views : tuple of handles, one per view
    validation_views : tuple of str
        Views whose neutral graphs judge partitions.
    reference_graphs : Neutral
    blocks : tuple of handles
        Anchor candidates, one per block of rows.
    n_validation_samples : int
        Samples of the neutral graphs, where these are not all.
    """

    names: tuple[str, ...]
    n_samples: int
    views: tuple[Handle, ...]
    validation_views: tuple[str, ...]
    reference_graphs: LazyReferenceGraphs
    blocks: tuple[Handle, ...]
    n_validation_samples: int = 0


@dataclasses.dataclass(frozen=True)
class InitialGraph:
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


def prepare_views(
    precomputed: PrecomputedViews,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
    later: Iterable[tuple[Scale, ...]] = (),
    all_judge: bool = False,
) -> PreparedHandles:
    """The prepared views and the anchor candidates of one setting, without the views it leaves out.

    These are no judges either, unless `all_judge`. Factored views that none of the `later` scalings
    needs are given up: they are as large as the data.
    """
    if precomputed.data is not None:
        return _prepare_large(precomputed, precomputed.data, parameters, executor, key=key)
    n_views = len(precomputed.names)
    factored = precomputed.factored[parameters.scales(n_views)]
    views = [
        executor.submit(
            view_tasks.ridge_view_of,
            factored[index],
            parameters.settings_of_view(index).alpha,
            key=f"prepare/{key}/{precomputed.names[index]}",
        )
        for index in parameters.counted(n_views)
    ]
    kept = {id(handle) for scales in later for handle in precomputed.factored[scales]}
    executor.release([handle for handle in factored if id(handle) not in kept])
    prepared = _prepared(precomputed, views, parameters, executor, key=key)
    return (
        dataclasses.replace(prepared, validation_views=precomputed.names) if all_judge else prepared
    )


def _prepare_large(
    precomputed: PrecomputedViews,
    data: MultiViewData,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
) -> PreparedHandles:
    """The same for large data: truncated bases, and candidates from cells."""
    views = []
    for index in parameters.counted(len(data.views)):
        source = data.views[index]
        preparation = parameters.settings_of_view(index)
        factored = executor.submit(
            view_tasks.svd_view,
            source,
            preparation.scale,
            LARGE_RANK,
            key=f"factor/{key}/{source.name}",
        )
        views.append(
            executor.submit(
                view_tasks.ridge_view_of,
                factored,
                preparation.alpha,
                key=f"prepare/{key}/{source.name}",
            )
        )
        executor.release([factored])
    return _prepared(precomputed, views, parameters, executor, key=key)


def _prepared(
    precomputed: PrecomputedViews,
    views: list[Handle],
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
) -> PreparedHandles:
    """Prepared views with the anchor candidates by these."""
    n = precomputed.n_samples
    names = tuple(precomputed.names[view] for view in parameters.counted(len(precomputed.names)))
    return PreparedHandles(
        names=names,
        n_samples=n,
        views=tuple(views),
        validation_views=names,
        reference_graphs=precomputed.reference_graphs,
        blocks=candidate_blocks(views, n, parameters, executor, key=key),
        n_validation_samples=precomputed.n_validation_samples,
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


def initial_graph(
    prepared: PreparedHandles, parameters: Parameters, executor: Executor, *, key: str
) -> InitialGraph:
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
            data_weight=parameters.identity_weight,
            projected_weight=0.0,
            key=f"{key}/{n_neighbors}",
        )
        if n_components <= parameters.n_clusters or n_neighbors >= most:
            return InitialGraph(graph, n_components, n_neighbors)
        executor.release([graph])
        n_neighbors = min(2 * n_neighbors, most)
