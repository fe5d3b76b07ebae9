"""Where a fit may begin: a setting with its first graph, the spectrum of it and the best cut."""

from __future__ import annotations

import dataclasses

from mscam_dask.engine.executor import Executor, Handle
from mscam_dask.engine.judging import Best, judge, n_cut, spectrum_of
from mscam_dask.engine.setup import FirstGraph, Prepared, first_graph
from mscam_dask.engine.tasks import anchors as anchor_tasks
from mscam_dask.engine.tasks import cuts as cut_tasks
from mscam_dask.engine.tasks import graph as graph_tasks
from mscam_dask.model.parameters import Parameters
from mscam_dask.solvers.verdict import best_of, is_ahead, is_clear

__all__ = [
    "Start",
    "among_minima",
    "begin",
    "forget",
    "forget_beside",
    "judged",
]


@dataclasses.dataclass(frozen=True)
class Start:
    """A setting with the graph and the partition it starts from.

    Attributes
    ----------
    parameters : Parameters
    prepared : Prepared
    first : FirstGraph
    spectrum : handle or None
        Of the first graph; None when that has more components than clusters.
    best : Best
    """

    parameters: Parameters
    prepared: Prepared
    first: FirstGraph
    spectrum: Handle | None
    best: Best


def begin(prepared: Prepared, parameters: Parameters, executor: Executor, *, key: str) -> Start:
    """The start that the graph of the data distances gives."""
    first = first_graph(prepared, parameters, executor, key=key)
    return judged(prepared, parameters, first, executor, key=key)


def judged(
    prepared: Prepared,
    parameters: Parameters,
    first: FirstGraph,
    executor: Executor,
    *,
    key: str,
    known: Handle | None = None,
) -> Start:
    """The start that a first graph gives: its best cut or, in too many pieces, these merged.

    With a `known` partition, all good cuts are judged, and those that start from it.
    """
    spectrum: Handle | None = None
    if first.n_components > parameters.n_clusters:
        components = executor.submit(
            graph_tasks.components_of, first.graph, key=f"components/{key}"
        )
        labels = executor.submit(
            anchor_tasks.merged_components,
            list(prepared.views),
            components,
            parameters.n_clusters,
            key=f"merge_components/{key}",
        )
        partitions = executor.submit(cut_tasks.single, labels, key=f"partitions/{key}")
    else:
        spectrum = spectrum_of(first.graph, None, prepared, parameters, executor, key=key)
        given = (spectrum, parameters.n_clusters, parameters.seed, n_cut(prepared, parameters))
        key_of_cuts = f"cut_embedding/{key}"
        if known is None:
            partitions = executor.submit(cut_tasks.first_cuts, *given, key=key_of_cuts)
        else:
            partitions = executor.submit(cut_tasks.all_cuts, *given, known, key=key_of_cuts)
    best = _best_of(partitions, prepared, executor, key=key)
    return Start(parameters, prepared, first, spectrum, best)


def among_minima(start: Start, executor: Executor) -> Start:
    """The same start with the best of all good cuts of its graph.

    Settings are compared by few cuts of each: the more cuts, the more a setting gains that is near
    the judge's own graphs. Of one graph the judge may tell many (docs/decisions/0055).
    """
    prepared, parameters = start.prepared, start.parameters
    if start.spectrum is None or is_clear(start.best.score, parameters):
        return start
    partitions = executor.submit(
        cut_tasks.minima,
        start.spectrum,
        parameters.n_clusters,
        parameters.seed,
        n_cut(prepared, parameters),
        key="cut_embedding/minima",
    )
    found = _best_of(partitions, prepared, executor, key="minima")
    if not is_ahead(found.verdict, start.best.verdict, parameters):
        executor.release([found.labels])
        return start
    executor.release([start.best.labels])
    return dataclasses.replace(start, best=found)


def _best_of(partitions: Handle, prepared: Prepared, executor: Executor, *, key: str) -> Best:
    verdicts = judge(prepared, partitions, executor, key=key)
    index = best_of(verdicts)
    labels = executor.submit(cut_tasks.pick, partitions, index, key=f"best_cut/{key}")
    executor.release([partitions])
    return Best(labels, verdicts[index], iteration=0)


def forget(start: Start, executor: Executor) -> None:
    """Give up a start with its prepared views."""
    _forget_graph(start, executor)
    executor.release([*start.prepared.blocks, *start.prepared.views])


def forget_beside(start: Start, other: Start, executor: Executor) -> None:
    """Give up what a start does not share with another of the same prepared views."""
    _forget_graph(start, executor)
    if start.prepared.blocks is not other.prepared.blocks:
        executor.release(start.prepared.blocks)


def _forget_graph(start: Start, executor: Executor) -> None:
    """Give up the graph of a start, its spectrum and its partition."""
    handles = [start.first.graph, start.best.labels]
    executor.release(handles if start.spectrum is None else [*handles, start.spectrum])
