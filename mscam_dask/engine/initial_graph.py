"""Initial graph of one setting: ridge views, candidate neighbors and the A-step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.engine import tasks as iteration_tasks
from mscam_dask.engine.candidate_neighbors import candidate_blocks
from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.iteration_steps import LazyReferenceGraphs, build_graph
from mscam_dask.engine.precompute import PrecomputedViews
from mscam_dask.engine.row_blocks import candidates as block_candidates
from mscam_dask.engine.row_blocks.candidates import BlockedCandidates, BlockedView
from mscam_dask.solvers.spectral_cut import spread_rows
from mscam_dask.types.events import GraphKind
from mscam_dask.types.parameters import Parameters, Scale
from mscam_dask.types.rules import SIZES

__all__ = [
    "InitialGraph",
    "PreparedHandles",
    "compared_views",
    "initial_graph",
    "prepare_views",
]


@dataclasses.dataclass(frozen=True)
class PreparedHandles:
    """Handles of one setting of scale, α and k.

    Attributes
    ----------
    names : tuple of str
        Names of the views that are not excluded.
    n_samples : int
    views : tuple of handles, one per view
        Ridge views; those of large data in blocks of rows (`mscam_dask.engine.row_blocks`).
    validation_views : tuple of str
        Views whose reference graphs score partitions.
    reference_graphs : LazyReferenceGraphs
    blocks : tuple of handles or BlockedCandidates
        Candidate neighbors, one handle per block of rows; those of large data with the order of rows.
    n_validation_samples : int
        Number of samples of the reference graphs if these are not all, otherwise 0.
    """

    names: tuple[str, ...]
    n_samples: int
    views: tuple[Handle, ...]
    validation_views: tuple[str, ...]
    reference_graphs: LazyReferenceGraphs
    blocks: tuple[Handle, ...] | BlockedCandidates
    n_validation_samples: int = 0


_MAX_VIEWS = 16
"""Views whose reference graphs are compared; of more views, evenly spaced ones."""


def compared_views(names: Sequence[str]) -> tuple[str, ...]:
    """Views whose reference graphs are compared."""
    return tuple(names[index] for index in spread_rows(len(names), _MAX_VIEWS))


@dataclasses.dataclass(frozen=True)
class InitialGraph:
    """Consensus graph before the first outer iteration.

    Attributes
    ----------
    graph : handle
    n_components : int
    n_neighbors : int
        Number of neighbors k of each sample in it.
    kind : {"mean", "mixed"}
        Neighbors by the mean distance over views, or these and those in each view.
    """

    graph: Handle
    n_components: int
    n_neighbors: int
    kind: GraphKind = "mean"


def prepare_views(
    precomputed: PrecomputedViews,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
    later: Iterable[tuple[Scale, ...]] = (),
    all_score: bool = False,
) -> PreparedHandles:
    """Ridge views and candidate neighbors of one setting, without its excluded views.

    Excluded views do not score partitions either, unless `all_score`. SVDs of views that none of the
    `later` scalings needs are released: they are as large as the data.
    """
    if precomputed.data is not None:
        return _prepare_large(precomputed, precomputed.data, parameters, executor, key=key)
    n_views = len(precomputed.names)
    factored = precomputed.factored[parameters.scales(n_views)]
    views = [
        executor.submit(
            iteration_tasks.ridge_view_of,
            factored[index],
            parameters.settings_of_view(index).alpha,
            key=f"prepare/{key}/{precomputed.names[index]}",
        )
        for index in parameters.active_views(n_views)
    ]
    kept = {id(handle) for scales in later for handle in precomputed.factored[scales]}
    executor.release([handle for handle in factored if id(handle) not in kept])
    prepared = _prepared(precomputed, views, parameters, executor, key=key)
    return (
        dataclasses.replace(prepared, validation_views=precomputed.names) if all_score else prepared
    )


def _prepare_large(
    precomputed: PrecomputedViews,
    data: MultiViewData,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
) -> PreparedHandles:
    """Ridge views with truncated bases and approximate candidate neighbors of large data."""
    # no partition is scored before the eigenvectors are there: until then workers have time for these
    names = [data.views[index].name for index in parameters.active_views(len(data.views))]
    precomputed.reference_graphs.handles(executor, names)
    if 1 < parameters.n_clusters < data.n_samples:
        precomputed.reference_graphs.perturbed_cuts(
            executor,
            compared_views(names),
            parameters.n_clusters,
            parameters.n_pairs(precomputed.n_validation_samples),
        )
    for of_sample in precomputed.factored.values():
        executor.release(of_sample)  # the settings are selected
    ranges = block_candidates.block_ranges(data.n_samples)
    views = [
        block_candidates.ridge_view_blocks(
            data.views[index],
            parameters.settings_of_view(index),
            ranges,
            SIZES.max_rank,
            executor,
            key=f"{key}/{data.views[index].name}",
        )
        for index in parameters.active_views(len(data.views))
    ]
    n_candidates = parameters.candidates(data.n_samples)
    ordered, candidates = block_candidates.ordered_by_cells(
        views, ranges, n_candidates, parameters.seed, executor, key=key
    )
    return _with_candidates(precomputed, ordered, candidates, parameters)


def _prepared(
    precomputed: PrecomputedViews,
    views: list[Handle],
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
) -> PreparedHandles:
    """Handles of ridge views with their candidate neighbors."""
    blocks = candidate_blocks(views, precomputed.n_samples, parameters, executor, key=key)
    return _with_candidates(precomputed, views, blocks, parameters)


def _with_candidates(
    precomputed: PrecomputedViews,
    views: Sequence[Handle | BlockedView],
    blocks: tuple[Handle, ...] | BlockedCandidates,
    parameters: Parameters,
) -> PreparedHandles:
    names = tuple(
        precomputed.names[view] for view in parameters.active_views(len(precomputed.names))
    )
    return PreparedHandles(
        names=names,
        n_samples=precomputed.n_samples,
        views=tuple(views),
        validation_views=names,
        reference_graphs=precomputed.reference_graphs,
        blocks=blocks,
        n_validation_samples=precomputed.n_validation_samples,
    )


def initial_graph(
    prepared: PreparedHandles, parameters: Parameters, executor: Executor, *, key: str
) -> InitialGraph:
    """Graph of the data distances; k grows until it has at most c connected components.

    With k neighbors it may have more than c components, which no graph weight can join. Then k is
    doubled, at most to one less than the number of candidates.
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
