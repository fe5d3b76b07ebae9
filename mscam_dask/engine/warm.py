"""Starting from what an earlier fit of mostly the same samples found.

The setting is taken over instead of chosen, clusters of known samples are the first candidate, new
samples get the cluster of their neighbours in the new first graph, and the path begins at the graph weight at
which the earlier one ended. The judge is the same as ever: cuts of the new first graph compete with
the clusters handed down.
"""

from __future__ import annotations

import dataclasses
import time

import numpy as np
from numpy.typing import NDArray

from mscam_dask.engine.executor import Executor
from mscam_dask.engine.foundation import Foundation
from mscam_dask.engine.judging import Best, judge, n_cut, spectrum_of
from mscam_dask.engine.selection import setting_record
from mscam_dask.engine.setup import FirstGraph, Prepared, first_graph, prepare
from mscam_dask.engine.starts import Start, judged
from mscam_dask.engine.tasks import cuts as cut_tasks
from mscam_dask.model.parameters import Parameters
from mscam_dask.model.records import SelectionEnded
from mscam_dask.solvers.verdict import Verdict, best_of, is_ahead

__all__ = ["UNKNOWN", "warm_start"]

UNKNOWN = -1
"""Stands for the cluster of a sample that the earlier fit did not see."""

_PATIENCE = 1
"""Outer iterations without a better partition before the path ends: it began near its end."""

_BEFORE = -1
"""Where the partition handed down was found: the first iteration without a better one is enough."""


def warm_start(
    foundation: Foundation,
    parameters: Parameters,
    known: NDArray[np.int64],
    executor: Executor,
) -> tuple[Start, SelectionEnded]:
    """The start that an earlier fit's clusters give.

    Parameters
    ----------
    foundation : Foundation
    parameters : Parameters
        The setting of the earlier fit, with the graph weight at which its path ended.
    known : (n,) int64
        Cluster of each sample in the earlier fit; `UNKNOWN` where it was not there.
    executor : Executor

    Returns
    -------
    Start, SelectionEnded
        As from `mscam_dask.engine.selection.choose_setting`, with the one setting.

    Notes
    -----
    A cluster of which no sample is left cannot be handed down: then only cuts of the new graph
    are candidates, with c clusters each, or its components merged to c where it has more.
    """
    began = time.perf_counter()
    parameters = dataclasses.replace(parameters, patience=min(parameters.patience, _PATIENCE))
    prepared = prepare(foundation, parameters, executor, key="warm")
    first = first_graph(prepared, parameters, executor, key="warm")
    is_whole = len(np.unique(known[known != UNKNOWN])) == parameters.n_clusters
    if is_whole or first.n_components <= parameters.n_clusters:
        start = _handed_down(prepared, parameters, first, executor, known=known, is_whole=is_whole)
    else:
        start = judged(prepared, parameters, first, executor, key="warm")
    ended = SelectionEnded(
        settings=(setting_record(start, foundation.names),),
        chosen=0,
        seconds=time.perf_counter() - began,
    )
    return start, ended


def _handed_down(
    prepared: Prepared,
    parameters: Parameters,
    first: FirstGraph,
    executor: Executor,
    *,
    known: NDArray[np.int64],
    is_whole: bool,
) -> Start:
    """The start with the clusters handed down, where these are whole, or a cut that is ahead."""
    extended = executor.submit(
        cut_tasks.extended, first.graph, known, parameters.n_clusters, key="extend_labels/warm"
    )
    spectrum = None
    if first.n_components > parameters.n_clusters:
        partitions = executor.submit(cut_tasks.single, extended, key="partitions/warm")
    else:
        spectrum = spectrum_of(first.graph, None, prepared, parameters, executor, key="warm")
        partitions = executor.submit(
            cut_tasks.handed_down_or_cut,
            spectrum,
            parameters.n_clusters,
            extended,
            is_whole,
            n_cut(prepared, parameters),
            key="cut_embedding/warm",
        )
    verdicts = judge(prepared, partitions, executor, key="warm")
    index = _best(verdicts, parameters)
    best = Best(
        executor.submit(cut_tasks.pick, partitions, index, key="best_cut/warm"),
        verdicts[index],
        iteration=_BEFORE,
    )
    return Start(parameters, prepared, first, spectrum, best)


def _best(verdicts: list[Verdict], parameters: Parameters) -> int:
    """The first partition, unless another is ahead of it."""
    index = best_of(verdicts)
    return index if is_ahead(verdicts[index], verdicts[0], parameters) else 0
