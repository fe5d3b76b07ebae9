"""The stages before the first outer iteration: prepared views, candidates, the first graph."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from mscam_dask.data.sampling import sampled_view
from mscam_dask.data.views import MultiViewData
from mscam_dask.engine.anchor_blocks import anchor_blocks
from mscam_dask.engine.executor import Executor, Handle
from mscam_dask.engine.tasks import graph as graph_tasks
from mscam_dask.engine.tasks import judge as judge_tasks
from mscam_dask.engine.tasks import views as view_tasks
from mscam_dask.errors import DataError, StoreCorruptError
from mscam_dask.model.parameters import Parameters, Scale
from mscam_dask.model.records import GraphKind, PreparedRecord
from mscam_dask.solvers.graph import assemble_graph
from mscam_dask.solvers.partition import sampled_rows

__all__ = [
    "LARGE_RANK",
    "SAMPLE",
    "FirstGraph",
    "Foundation",
    "Prepared",
    "build_graph",
    "first_graph",
    "lay_foundation",
    "prepare",
]

# k of the neutral graphs: the same whatever k is tried, so that no setting is favoured.
NEUTRAL_NEIGHBORS = 9


# Samples of large data on which settings are tried and partitions judged.
SAMPLE = 4000

# Directions of a view of large data that are kept: see docs/decisions/0038.
LARGE_RANK = 64


@dataclasses.dataclass(frozen=True)
class Foundation:
    """What does not depend on α or k: handles that live as long as the fit.

    Attributes
    ----------
    names : tuple of str
    n_samples : int
    factored : dict of tuple of str to tuple of handles
        The factored views, by the scalings of the views; usable ones only.
    neutral : tuple of handles, one per view
        Neutral graphs.
    records : tuple of PreparedRecord
        Of the views under the first usable scaling (of the sample, of large data).
    data : MultiViewData or None
        Large data: factored when the setting is known, by `prepare`.
    sample : Foundation or None
        Of a sample of large data, on which the setting is chosen.
    n_judged : int
        Samples of the neutral graphs, where these are not all.
    """

    names: tuple[str, ...]
    n_samples: int
    factored: dict[tuple[Scale, ...], tuple[Handle, ...]]
    neutral: tuple[Handle, ...]
    records: tuple[PreparedRecord, ...]
    data: MultiViewData | None = None
    sample: Foundation | None = None
    n_judged: int = 0


@dataclasses.dataclass(frozen=True)
class Prepared:
    """Handles of one setting of scaling, α and k.

    Attributes
    ----------
    names : tuple of str
    n_samples : int
    views, neutral : tuple of handles, one per view
        Prepared views and neutral graphs.
    blocks : tuple of handles
        Anchor candidates, one per block of rows.
    n_judged : int
        Samples of the neutral graphs, where these are not all.
    """

    names: tuple[str, ...]
    n_samples: int
    views: tuple[Handle, ...]
    neutral: tuple[Handle, ...]
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


def lay_foundation(
    data: MultiViewData,
    scales: Sequence[tuple[Scale, ...]],
    executor: Executor,
    *,
    exact_samples: int | None = None,
) -> Foundation:
    """Read every view, factor it under each scaling asked for and build its neutral graphs.

    `scales` holds the scalings of all views, once for each setting. Scalings that make all rows
    of a view equal (unit length, of a positive column) are left out, unless they are the only
    ones. With more than `exact_samples` samples all this is done for
    a seeded sample of them.
    """
    if exact_samples is not None and data.n_samples > exact_samples:
        rows = sampled_rows(data.n_samples, SAMPLE)
        drawn = MultiViewData(tuple(sampled_view(view, rows) for view in data.views))
        sample = _foundation(drawn, scales, executor, max_rank=LARGE_RANK)
        return dataclasses.replace(
            sample,
            n_samples=data.n_samples,
            data=data,
            sample=sample,
            n_judged=sample.n_samples,
        )
    return _foundation(data, scales, executor)


def _foundation(
    data: MultiViewData,
    scales: Sequence[tuple[Scale, ...]],
    executor: Executor,
    *,
    max_rank: int | None = None,
) -> Foundation:
    names = data.view_names
    single: dict[tuple[int, Scale], Handle] = {}
    factored: dict[tuple[Scale, ...], tuple[Handle, ...]] = {}
    refusals: list[DataError] = []
    for by_view in dict.fromkeys(scales):
        with _collected(refusals):  # an executor may raise here or when gathering
            for view in enumerate(by_view):
                if view not in single:
                    index, scale = view
                    source = data.views[index]
                    single[view] = executor.submit(
                        view_tasks.factor,
                        source,
                        scale,
                        max_rank,
                        key=f"factor/{scale}/{source.name}",
                    )
            factored[by_view] = tuple(single[view] for view in enumerate(by_view))
    records: dict[tuple[Scale, ...], tuple[PreparedRecord, ...]] = {}
    for setting, (by_view, views) in enumerate(factored.items()):
        handles = [
            executor.submit(
                view_tasks.prepared_record,
                view,
                source.name,
                source.shape[1],
                key=f"prepared_record/{setting}/{source.name}",
            )
            for view, source in zip(views, data.views, strict=True)
        ]
        with _collected(refusals):
            records[by_view] = tuple(executor.gather(handles))
    if not records:
        raise refusals[0]
    # last, so that what the driver waits for above is not behind them
    k = min(NEUTRAL_NEIGHBORS, data.n_samples - 1)
    neutral = [
        executor.submit(judge_tasks.neutral_view, source, k, key=f"neutral_graphs/{source.name}")
        for source in data.views
    ]
    usable = {by_view: views for by_view, views in factored.items() if by_view in records}
    return Foundation(names, data.n_samples, usable, tuple(neutral), records[next(iter(records))])


@contextlib.contextmanager
def _collected(refusals: list[DataError]) -> Iterator[None]:
    try:
        yield
    except StoreCorruptError:
        raise
    except DataError as error:
        refusals.append(error)


def prepare(
    foundation: Foundation,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
    later: Iterable[tuple[Scale, ...]] = (),
) -> Prepared:
    """The prepared views and the anchor candidates of one setting.

    Factored views that none of the `later` scalings needs are given up: they are as large as
    the data.
    """
    n = foundation.n_samples
    if foundation.data is not None:
        return _prepare_large(foundation, foundation.data, parameters, executor, key=key)
    factored = foundation.factored[parameters.scales(len(foundation.names))]
    views = [
        executor.submit(
            view_tasks.prepare,
            view,
            parameters.preparation(index).alpha,
            key=f"prepare/{key}/{name}",
        )
        for index, (view, name) in enumerate(zip(factored, foundation.names, strict=True))
    ]
    kept = {id(handle) for scales in later for handle in foundation.factored[scales]}
    executor.release([handle for handle in factored if id(handle) not in kept])
    blocks = anchor_blocks(views, n, parameters, executor, key=key)
    return Prepared(foundation.names, n, tuple(views), foundation.neutral, blocks)


def _prepare_large(
    foundation: Foundation,
    data: MultiViewData,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
) -> Prepared:
    """The same for large data: truncated bases, and candidates from cells."""
    n = data.n_samples
    views = []
    for index, source in enumerate(data.views):
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
    return Prepared(
        foundation.names,
        n,
        tuple(views),
        foundation.neutral,
        anchor_blocks(views, n, parameters, executor, key=key),
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
