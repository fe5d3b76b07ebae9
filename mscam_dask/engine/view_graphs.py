"""Another first graph: neighbors by the mean distance, and as many in each view.

Neighbors by the mean distance of all views are right where the views are weak one by one; where a
view is right about its own neighbors and the others blur them, its own graph keeps what the mean
distance loses. Most data have a little of both, hence a mean of the two graphs. Whether it is taken,
the judge of partitions says: docs/decisions/0058.
"""

from __future__ import annotations

import dataclasses

from mscam_dask.engine.candidate_neighbors import candidate_blocks
from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.initial_graph import InitialGraph, PreparedHandles, build_graph
from mscam_dask.engine.tasks import graph as graph_tasks
from mscam_dask.engine.tasks import neighbors as neighbor_tasks
from mscam_dask.solvers.graph_update import mean_graph
from mscam_dask.types.parameters import Parameters

__all__ = ["have_view_graphs", "view_graphs", "with_view_graphs"]

# The mean has the edges of all views: with hundreds of them it would be a dense matrix, and of many
# samples more than all else that a fit holds. Lists of neighbors: a sample has one in each view and
# one by the mean distance.
_MOST_VIEWS = 16
_MOST_LISTS = 2**19

# Of the graph of the mean distance and of the mean of the views' own: docs/decisions/0058.
_WEIGHTS = (2.0, 1.0)


def have_view_graphs(n_views: int, n_samples: int) -> bool:
    """Whether views have graphs of their own to take a mean of, and these are small enough."""
    return 1 < n_views <= _MOST_VIEWS and (n_views + 1) * n_samples <= _MOST_LISTS


def view_graphs(
    prepared: PreparedHandles, parameters: Parameters, executor: Executor, *, key: str
) -> Handle:
    """The mean of the graphs that each view has by itself."""
    own_graph = _from_cells if parameters.is_large(prepared.n_samples) else _exact
    graphs = [
        own_graph(view, prepared.n_samples, parameters, executor, key=f"{key}/{name}")
        for view, name in zip(prepared.views, prepared.names, strict=True)
    ]
    mean = executor.submit(mean_graph, graphs, key=f"mean_graph/{key}/views")
    executor.release(graphs)
    return mean


def with_view_graphs(
    first: InitialGraph, own: Handle, executor: Executor, *, key: str
) -> InitialGraph:
    """A graph by distances with the mean of the views' own in it, for a third of a row.

    It has no more components than `first`. Neither of the two is released.
    """
    graph = executor.submit(mean_graph, [first.graph, own], _WEIGHTS, key=f"mean_graph/{key}")
    count = executor.submit(graph_tasks.component_count, graph, key=f"component_count/{key}")
    (n_components,) = executor.gather([count])
    executor.release([count])
    return dataclasses.replace(
        first, graph=graph, n_components=int(n_components), kind="distances and views"
    )


def _exact(
    view: Handle, n_samples: int, parameters: Parameters, executor: Executor, *, key: str
) -> Handle:
    """The graph of one view, with the neighbors that tie."""
    n_neighbors = min(parameters.n_neighbors, n_samples - 1)
    return executor.submit(neighbor_tasks.own_graph, view, n_neighbors, key=f"view_graph/{key}")


def _from_cells(
    view: Handle, n_samples: int, parameters: Parameters, executor: Executor, *, key: str
) -> Handle:
    """The graph of one view of large data, from candidates as of all views together."""
    blocks = candidate_blocks([view], n_samples, parameters, executor, key=key)
    graph, _ = build_graph(
        executor,
        blocks,
        None,
        n_neighbors=parameters.n_neighbors,
        data_weight=1.0,
        projected_weight=0.0,
        key=f"view/{key}",
    )
    executor.release(blocks)
    return graph
