"""The stages before the first outer iteration: prepared views, candidates, the first graph."""

from __future__ import annotations

import dataclasses

from mscam_dask.data.views import MultiViewData
from mscam_dask.engine.executor import Executor, Handle
from mscam_dask.engine.tasks import graph as graph_tasks
from mscam_dask.engine.tasks import judge as judge_tasks
from mscam_dask.engine.tasks import views as view_tasks
from mscam_dask.model.parameters import Parameters
from mscam_dask.model.records import PreparedRecord
from mscam_dask.solvers.graph import anchor_candidates, assemble_graph

__all__ = ["FirstGraph", "Prepared", "build_graph", "first_graph", "prepare", "row_ranges"]

_SMALLEST_BLOCK = 512
_LARGEST_BLOCK = 8192
_BLOCKS = 8


@dataclasses.dataclass(frozen=True)
class Prepared:
    """Handles that live as long as the fit.

    Attributes
    ----------
    names : tuple of str
    n_samples : int
    views, neutral : tuple of handles, one per view
        Prepared views and neutral graphs.
    anchors : handle
        Anchor space of all views, (n, Σr).
    blocks : tuple of handles
        Anchor candidates, one per block of rows.
    records : tuple of PreparedRecord
    """

    names: tuple[str, ...]
    n_samples: int
    views: tuple[Handle, ...]
    neutral: tuple[Handle, ...]
    anchors: Handle
    blocks: tuple[Handle, ...]
    records: tuple[PreparedRecord, ...]


@dataclasses.dataclass(frozen=True)
class FirstGraph:
    """The graph of the data distances alone.

    Attributes
    ----------
    graph : handle
    n_components : int
    n_neighbors : int
        k that made it.
    """

    graph: Handle
    n_components: int
    n_neighbors: int


def row_ranges(n_samples: int) -> list[tuple[int, int]]:
    """Blocks of rows for the A-step: a function of n alone, never of the number of workers."""
    size = min(_LARGEST_BLOCK, max(_SMALLEST_BLOCK, -(-n_samples // _BLOCKS)))
    return [(start, min(start + size, n_samples)) for start in range(0, n_samples, size)]


def prepare(data: MultiViewData, parameters: Parameters, executor: Executor) -> Prepared:
    """Read and factor every view, build its neutral graphs and the anchor candidates."""
    names = data.view_names
    k = min(parameters.n_neighbors, data.n_samples - 1)
    views = [
        executor.submit(view_tasks.prepare, source, parameters, key=f"prepare/{source.name}")
        for source in data.views
    ]
    neutral = [
        executor.submit(judge_tasks.neutral_view, source, k, key=f"neutral_graphs/{source.name}")
        for source in data.views
    ]
    anchors = executor.submit(
        view_tasks.stack_anchors, views, parameters.alpha, key="stack_anchors"
    )
    n_candidates = parameters.candidates(data.n_samples)
    blocks = [
        executor.submit(
            anchor_candidates,
            anchors,
            n_candidates,
            start,
            stop,
            key=f"anchor_candidates/{start}",
        )
        for start, stop in row_ranges(data.n_samples)
    ]
    records = [
        executor.submit(
            view_tasks.prepared_record, view, name, source.shape[1], key=f"prepared_record/{name}"
        )
        for view, name, source in zip(views, names, data.views, strict=True)
    ]
    return Prepared(
        names=names,
        n_samples=data.n_samples,
        views=tuple(views),
        neutral=tuple(neutral),
        anchors=anchors,
        blocks=tuple(blocks),
        records=tuple(executor.gather(records)),
    )


def build_graph(
    executor: Executor,
    blocks: list[Handle],
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


def first_graph(prepared: Prepared, parameters: Parameters, executor: Executor) -> FirstGraph:
    """The graph of the data distances; k grows until it has at most c components.

    With k neighbours the data may already fall into more than c pieces, and no graph weight
    can join them. k is doubled, at most to one less than the number of candidates.
    """
    most = parameters.candidates(prepared.n_samples) - 1
    n_neighbors = min(parameters.n_neighbors, prepared.n_samples - 1)
    while True:
        graph, n_components = build_graph(
            executor,
            list(prepared.blocks),
            None,
            n_neighbors=n_neighbors,
            data_weight=parameters.metric_floor,
            projected_weight=0.0,
            key=f"first/{n_neighbors}",
        )
        if n_components <= parameters.n_clusters or n_neighbors >= most:
            return FirstGraph(graph, n_components, n_neighbors)
        executor.release([graph])
        n_neighbors = min(2 * n_neighbors, most)
