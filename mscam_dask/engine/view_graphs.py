"""Mixed initial graph: neighbors by the mean distance over views, and as many in each view.

The mean distance is better if each single view is weak. The graph of a single view is better if this
view has the right neighbors and the others do not. Most data have some of both, hence the mean of the
two graphs. Partition scores decide whether it is used: docs/decisions/0058.
"""

from __future__ import annotations

import dataclasses
import operator

from mscam_dask.engine.candidate_neighbors import candidate_blocks, release_candidates
from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.initial_graph import InitialGraph, PreparedHandles, build_graph
from mscam_dask.engine.initialize import Initialization
from mscam_dask.engine.row_blocks import graph as block_graph
from mscam_dask.engine.row_blocks.handles import BlockedCandidates, BlockedGraph, RowOrder
from mscam_dask.engine.tasks import neighbors as neighbor_tasks
from mscam_dask.solvers.graph_update import mean_graph
from mscam_dask.solvers.partition_score import is_nearly_perfect
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.rules import CONSTANTS, SIZES

__all__ = ["can_use_view_graphs", "have_view_graphs", "view_graphs", "with_view_graphs"]


def have_view_graphs(n_views: int, n_samples: int) -> bool:
    """Return whether the mixed initial graph is possible: two views or more, and not too large."""
    n_lists = (n_views + 1) * n_samples
    return 1 < n_views <= SIZES.max_view_graphs and n_lists <= SIZES.max_view_lists


def can_use_view_graphs(start: Initialization) -> bool:
    """Return whether the mixed initial graph is tried and a fit has a refinement.

    Not if the initial graph has too many components, if its cut is nearly perfect (then a growing
    graph weight leads to exactly c components), or if the graphs of the views are too large.
    """
    return (
        start.spectrum is not None
        and not is_nearly_perfect(start.best.score, start.parameters)
        and have_view_graphs(len(start.prepared.names), start.prepared.n_samples)
    )


def view_graphs(
    prepared: PreparedHandles, parameters: Parameters, executor: Executor, *, key: str
) -> Handle:
    """Submit the mean of the graphs of the single views."""
    if isinstance(prepared.blocks, BlockedCandidates):
        return _from_cells(prepared, prepared.blocks.order, parameters, executor, key=key)
    n_neighbors = min(parameters.n_neighbors, prepared.n_samples - 1)
    graphs = [
        executor.submit(neighbor_tasks.own_graph, view, n_neighbors, key=f"view_graph/{key}/{name}")
        for view, name in zip(prepared.views, prepared.names, strict=True)
    ]
    mean = executor.submit(mean_graph, graphs, key=f"mean_graph/{key}/views")
    executor.release(graphs)
    return mean


def with_view_graphs(
    first: InitialGraph, own: Handle, executor: Executor, *, key: str
) -> InitialGraph:
    """Return the mixed graph: two thirds `first` and one third the mean of the view graphs.

    It has no more components than `first`. Neither of these two graphs is released.
    """
    if isinstance(first.graph, BlockedGraph):
        mixed = block_graph.mean_graph(
            [first.graph, own], CONSTANTS.graph_weights, executor, key=key
        )
        return dataclasses.replace(
            first, graph=mixed, n_components=mixed.n_components, kind="mixed"
        )
    graph = executor.submit(
        mean_graph, [first.graph, own], CONSTANTS.graph_weights, key=f"mean_graph/{key}"
    )
    count = executor.submit(
        operator.attrgetter("n_components"), graph, key=f"component_count/{key}"
    )
    (n_components,) = executor.gather([count])
    executor.release([count])
    return dataclasses.replace(first, graph=graph, n_components=int(n_components), kind="mixed")


def _from_cells(
    prepared: PreparedHandles,
    order: RowOrder,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
) -> BlockedGraph:
    """Submit the mean of the view graphs of large data, from approximate candidate neighbors."""
    graphs = []
    for view, name in zip(prepared.views, prepared.names, strict=True):
        blocks = candidate_blocks(
            [view],
            prepared.n_samples,
            parameters,
            executor,
            key=f"{key}/{name}",
            order=order,
        )
        graph, _ = build_graph(
            executor,
            blocks,
            None,
            n_neighbors=parameters.n_neighbors,
            data_weight=1.0,
            projected_weight=0.0,
            key=f"view/{key}/{name}",
        )
        release_candidates(blocks, executor)
        graphs.append(graph)
    equal = (1.0,) * len(graphs)
    mean = block_graph.mean_graph(graphs, equal, executor, key=f"{key}/views")
    executor.release(graphs)
    return mean
