"""Initialization from an earlier fit of mostly the same samples.

The settings of the earlier fit are kept. Its labels are the first candidate partition; new samples
get the cluster of their neighbors in the new initial graph. The graph weight starts at the last one of
the earlier fit. Spectral cuts of the new initial graph compete with the initial labels by their scores.
"""

from __future__ import annotations

import dataclasses
import operator

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
from mscam_dask.engine.row_blocks import graph as block_graph
from mscam_dask.engine.row_blocks.handles import BlockedCandidates, BlockedGraph
from mscam_dask.engine.scoring import BestPartition, next_cuts, score_cuts, spectrum_of
from mscam_dask.engine.tasks import spectral_cut as cut_tasks
from mscam_dask.solvers.partition_score import PartitionScore, argbest, is_better
from mscam_dask.types.parameters import Parameters

__all__ = ["UNKNOWN", "warm_start"]

UNKNOWN = -1
"""Label of a sample that the earlier fit did not have."""

_PATIENCE = 1
"""Outer iterations without a better partition before the fit stops: it starts near its end."""

_BEFORE = -1
"""Iteration of the initial labels: the fit stops after the first iteration without a better one."""


def warm_start(
    precomputed: PrecomputedViews,
    parameters: Parameters,
    known: NDArray[np.int64],
    executor: Executor,
) -> Initialization:
    """Return the initialization from the labels of an earlier fit.

    Parameters
    ----------
    precomputed : PrecomputedViews
    parameters : Parameters
        Setting of the earlier fit, with its last graph weight.
    known : (n,) int64
        Cluster of each sample in the earlier fit; `UNKNOWN` for a new sample.
    executor : Executor

    Returns
    -------
    Initialization

    Notes
    -----
    If no sample of some cluster is left, the initial labels are no candidate: then only spectral cuts
    of the new graph into c clusters are, or its components merged to c if it has more.
    """
    parameters = dataclasses.replace(parameters, patience=min(parameters.patience, _PATIENCE))
    prepared = prepare_views(precomputed, parameters, executor, key="warm")
    first = initial_graph(prepared, parameters, executor, key="warm")
    is_whole = len(np.unique(known[known != UNKNOWN])) == parameters.n_clusters
    if is_whole or first.n_components <= parameters.n_clusters:
        return _initialize_from_labels(
            prepared, parameters, first, executor, known=known, is_whole=is_whole
        )
    return evaluate_graph(prepared, parameters, first, executor, key="warm")


def _initialize_from_labels(
    prepared: PreparedHandles,
    parameters: Parameters,
    first: InitialGraph,
    executor: Executor,
    *,
    known: NDArray[np.int64],
    is_whole: bool,
) -> Initialization:
    """Return the initialization with the initial labels if they are whole, or with a better cut."""
    blocked = first.graph if isinstance(first.graph, BlockedGraph) else None
    if blocked is not None:
        assert isinstance(prepared.blocks, BlockedCandidates), "large data has blocks"
        extended = block_graph.extend_labels(
            blocked, prepared.blocks.order, known, parameters.n_clusters, executor
        )
    else:
        extended = executor.submit(
            cut_tasks.extended, first.graph, known, parameters.n_clusters, key="extend_labels/warm"
        )
    spectrum = None
    if first.n_components > parameters.n_clusters:
        partitions = executor.submit(list, [extended], key="partitions/warm")
    else:
        spectrum = spectrum_of(first.graph, None, prepared, parameters, executor, key="warm")
        partitions = next_cuts(spectrum, extended, prepared, parameters, executor, key="warm")
        if is_whole:
            partitions = executor.submit(
                operator.add, [extended], partitions, key="partitions/warm"
            )
    partition_scores = score_cuts(prepared, partitions, executor, key="warm")
    index = _best(partition_scores, parameters)
    best = BestPartition(
        executor.submit(operator.getitem, partitions, index, key="best_cut/warm"),
        partition_scores[index],
        iteration=_BEFORE,
    )
    return Initialization(parameters, prepared, first, spectrum, best)


def _best(partition_scores: list[PartitionScore], parameters: Parameters) -> int:
    """Position of the first partition, or of another one that scores higher."""
    index = argbest(partition_scores)
    return index if is_better(partition_scores[index], partition_scores[0], parameters) else 0
