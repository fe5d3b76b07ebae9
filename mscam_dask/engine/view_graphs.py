"""Another first graph: the mean of the views' own graphs, each view's neighbours counting the same.

Neighbours by the mean distance of all views are right where the views are weak one by one; where a
view is right about its own neighbours and the others blur them, its own graph keeps what the mean
distance loses. Which of the two it is, the judge of partitions says: docs/decisions/0051.
"""

from __future__ import annotations

from mscam_dask.engine.executor import Executor
from mscam_dask.engine.setup import FirstGraph, Prepared
from mscam_dask.engine.tasks import graph as graph_tasks
from mscam_dask.engine.tasks import views as view_tasks
from mscam_dask.model.parameters import Parameters
from mscam_dask.solvers.graph import mean_graph

__all__ = ["have_view_graphs", "mean_of_view_graphs"]

# The mean has the edges of all views: with hundreds of them it would be a dense matrix.
_MOST_VIEWS = 16


def have_view_graphs(n_views: int, n_samples: int, parameters: Parameters) -> bool:
    """Whether views have graphs of their own to take a mean of, and few enough.

    Large data have none: the neighbours of each view by itself would cost as much, view by view,
    as those of all together.
    """
    return 1 < n_views <= _MOST_VIEWS and not parameters.is_large(n_samples)


def mean_of_view_graphs(
    prepared: Prepared, parameters: Parameters, executor: Executor, *, key: str
) -> FirstGraph:
    """The first graph made of the views' own graphs, with k neighbours in each."""
    n_neighbors = min(parameters.n_neighbors, prepared.n_samples - 1)
    graphs = [
        executor.submit(view_tasks.own_graph, view, n_neighbors, key=f"view_graph/{key}/{name}")
        for view, name in zip(prepared.views, prepared.names, strict=True)
    ]
    graph = executor.submit(mean_graph, graphs, key=f"mean_graph/{key}")
    count = executor.submit(graph_tasks.component_count, graph, key=f"component_count/{key}")
    (n_components,) = executor.gather([count])
    executor.release([*graphs, count])
    return FirstGraph(graph, int(n_components), n_neighbors, "graphs")
