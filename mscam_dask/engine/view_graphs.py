"""Another first graph: neighbours by the mean distance, and as many in each view.

Neighbours by the mean distance of all views are right where the views are weak one by one; where a
view is right about its own neighbours and the others blur them, its own graph keeps what the mean
distance loses. Most data have a little of both, hence a mean of the two graphs. Whether it is taken,
the judge of partitions says: docs/decisions/0058.
"""

from __future__ import annotations

import dataclasses

from mscam_dask.engine.executor import Executor
from mscam_dask.engine.setup import FirstGraph, Prepared
from mscam_dask.engine.tasks import graph as graph_tasks
from mscam_dask.engine.tasks import views as view_tasks
from mscam_dask.model.parameters import Parameters
from mscam_dask.solvers.graph import mean_graph

__all__ = ["have_view_graphs", "with_view_graphs"]

# The mean has the edges of all views: with hundreds of them it would be a dense matrix.
_MOST_VIEWS = 16

# Of the graph of the mean distance and of the mean of the views' own: docs/decisions/0058.
_WEIGHTS = (2.0, 1.0)


def have_view_graphs(n_views: int, n_samples: int, parameters: Parameters) -> bool:
    """Whether views have graphs of their own to take a mean of, and few enough.

    Large data have none: the neighbours of each view by itself would cost as much, view by view,
    as those of all together.
    """
    return 1 < n_views <= _MOST_VIEWS and not parameters.is_large(n_samples)


def with_view_graphs(
    first: FirstGraph, prepared: Prepared, parameters: Parameters, executor: Executor, *, key: str
) -> FirstGraph:
    """A first graph with the views' own in it: k neighbours in each view, for a third of a row.

    It has no more components than `first`, which is not released.
    """
    n_neighbors = min(parameters.n_neighbors, prepared.n_samples - 1)
    graphs = [
        executor.submit(view_tasks.own_graph, view, n_neighbors, key=f"view_graph/{key}/{name}")
        for view, name in zip(prepared.views, prepared.names, strict=True)
    ]
    own = executor.submit(mean_graph, graphs, key=f"mean_graph/{key}/views")
    graph = executor.submit(mean_graph, [first.graph, own], _WEIGHTS, key=f"mean_graph/{key}")
    count = executor.submit(graph_tasks.component_count, graph, key=f"component_count/{key}")
    (n_components,) = executor.gather([count])
    executor.release([*graphs, own, count])
    return dataclasses.replace(
        first, graph=graph, n_components=int(n_components), kind="distances and views"
    )
