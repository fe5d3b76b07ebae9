"""Starting from what an earlier fit of mostly the same samples found.

The setting is taken over instead of chosen, clusters of known samples are the first candidate, new
samples get the cluster of their neighbors in the new first graph, and the path begins at the graph weight at
which the earlier one ended. The judge is the same as ever: cuts of the new first graph compete with
the clusters handed down.
"""

from __future__ import annotations

import dataclasses
import time

import numpy as np
from numpy.typing import NDArray

from mscam_dask.engine.executors.base import Executor
from mscam_dask.engine.initial_graph import (
    InitialGraph,
    PreparedHandles,
    initial_graph,
    prepare_views,
)
from mscam_dask.engine.initialize import Initialization, evaluate_graph
from mscam_dask.engine.precompute import PrecomputedViews
from mscam_dask.engine.scoring import BestPartition, n_samples_cut, score_cuts, spectrum_of
from mscam_dask.engine.select import setting_record
from mscam_dask.engine.tasks import spectral_cut as cut_tasks
from mscam_dask.solvers.partition_score import PartitionScore, argbest, is_better
from mscam_dask.types.events import SettingsSelected
from mscam_dask.types.parameters import Parameters

__all__ = ["UNKNOWN", "warm_start"]

UNKNOWN = -1
"""Stands for the cluster of a sample that the earlier fit did not see."""

_PATIENCE = 1
"""Outer iterations without a better partition before the path ends: it began near its end."""

_BEFORE = -1
"""Where the partition handed down was found: the first iteration without a better one is enough."""


def warm_start(
    precomputed: PrecomputedViews,
    parameters: Parameters,
    known: NDArray[np.int64],
    executor: Executor,
) -> tuple[Initialization, SettingsSelected]:
    """The start that an earlier fit's clusters give.

    Parameters
    ----------
    precomputed : PrecomputedViews
    parameters : Parameters
        The setting of the earlier fit, with the graph weight at which its path ended.
    known : (n,) int64
        Cluster of each sample in the earlier fit; `UNKNOWN` where it was not there.
    executor : Executor

    Returns
    -------
    Start, SettingsSelected
        As from `mscam_dask.engine.select.choose_settings`, with the one setting.

    Notes
    -----
    A cluster of which no sample is left cannot be handed down: then only cuts of the new graph
    are candidates, with c clusters each, or its components merged to c where it has more.
    """
    began = time.perf_counter()
    parameters = dataclasses.replace(parameters, patience=min(parameters.patience, _PATIENCE))
    prepared = prepare_views(precomputed, parameters, executor, key="warm")
    first = initial_graph(prepared, parameters, executor, key="warm")
    is_whole = len(np.unique(known[known != UNKNOWN])) == parameters.n_clusters
    if is_whole or first.n_components <= parameters.n_clusters:
        start = _handed_down(prepared, parameters, first, executor, known=known, is_whole=is_whole)
    else:
        start = evaluate_graph(prepared, parameters, first, executor, key="warm")
    finalize = SettingsSelected(
        settings=(setting_record(start, precomputed.names),),
        chosen=0,
        seconds=time.perf_counter() - began,
    )
    return start, finalize


def _handed_down(
    prepared: PreparedHandles,
    parameters: Parameters,
    first: InitialGraph,
    executor: Executor,
    *,
    known: NDArray[np.int64],
    is_whole: bool,
) -> Initialization:
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
            n_samples_cut(prepared, parameters),
            key="spectral_cut/warm",
        )
    partition_scores = score_cuts(prepared, partitions, executor, key="warm")
    index = _best(partition_scores, parameters)
    best = BestPartition(
        executor.submit(cut_tasks.pick, partitions, index, key="best_cut/warm"),
        partition_scores[index],
        iteration=_BEFORE,
    )
    return Initialization(parameters, prepared, first, spectrum, best)


def _best(partition_scores: list[PartitionScore], parameters: Parameters) -> int:
    """The first partition, unless another is ahead of it."""
    index = argbest(partition_scores)
    return index if is_better(partition_scores[index], partition_scores[0], parameters) else 0
