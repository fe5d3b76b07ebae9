"""Tasks by which partitions are judged and spectra found."""

from __future__ import annotations

import dataclasses

from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.initial_graph import PreparedHandles
from mscam_dask.engine.tasks import graph as graph_tasks
from mscam_dask.engine.tasks import partition_scores as score_tasks
from mscam_dask.solvers.partition_score import PartitionScore
from mscam_dask.types.parameters import Parameters

__all__ = [
    "MAX_SCORE_TASKS",
    "BestPartition",
    "n_samples_cut",
    "score_cuts",
    "score_partitions_by_views",
    "spectrum_of",
]

# Enough rows of an embedding with c columns to place c centers.
_CUT_SAMPLES = 20_000

MAX_SCORE_TASKS = 16
"""Hundreds of views are judged several by a task."""


@dataclasses.dataclass(frozen=True)
class BestPartition:
    """The best partition seen.

    Attributes
    ----------
    labels : handle
    partition_score : PartitionScore
    iteration : int
        Outer iteration that found it.
    """

    labels: Handle
    partition_score: PartitionScore
    iteration: int

    @property
    def score(self) -> float:
        """Its cross-view information, in nats."""
        return self.partition_score.score


def score_cuts(
    prepared: PreparedHandles, partitions: Handle, executor: Executor, *, key: str
) -> list[PartitionScore]:
    """What there is to say of each partition of a list, computed where the graphs are."""
    told = score_partitions_by_views(prepared, partitions, executor, key=key)
    (found,) = executor.gather([told])
    executor.release([told])
    return [PartitionScore(*one) for one in found]


def score_partitions_by_views(
    prepared: PreparedHandles, partitions: Handle, executor: Executor, *, key: str
) -> Handle:
    """The same before it is gathered: of each partition the fields of its `PartitionScore`."""
    reference_graphs = prepared.reference_graphs.handles(executor, prepared.validation_views)
    together = -(-len(reference_graphs) // MAX_SCORE_TASKS)
    handles = [
        executor.submit(
            score_tasks.score_partitions,
            list(reference_graphs[first : first + together]),
            partitions,
            prepared.n_validation_samples,
            key=f"score/{key}/{prepared.validation_views[first]}",
        )
        for first in range(0, len(reference_graphs), together)
    ]
    told = executor.submit(
        score_tasks.partition_scores,
        partitions,
        handles,
        prepared.n_validation_samples,
        key=f"partition_scores/{key}",
    )
    executor.release(handles)
    return told


def n_samples_cut(prepared: PreparedHandles, parameters: Parameters) -> int:
    """Samples of large data on which an embedding is cut; 0 for all."""
    return _CUT_SAMPLES if parameters.is_large(prepared.n_samples) else 0


def spectrum_of(
    graph: Handle,
    previous: Handle | None,
    prepared: PreparedHandles,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
    graph_from_partition: bool = False,
) -> Handle:
    """Bottom eigenpairs of a graph; the c null vectors of one with c components (`graph_from_partition`)."""
    n_pairs = (
        parameters.n_clusters if graph_from_partition else parameters.n_pairs(prepared.n_samples)
    )
    return executor.submit(
        graph_tasks.graph_spectrum,
        graph,
        previous,
        n_pairs,
        parameters.seed,
        parameters.n_clusters if parameters.is_large(prepared.n_samples) else None,
        key=f"graph_spectrum/{key}",
    )
