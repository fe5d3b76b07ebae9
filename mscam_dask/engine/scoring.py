"""Submission of the tasks that score partitions and compute eigenvectors."""

from __future__ import annotations

import dataclasses

from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.initial_graph import PreparedHandles
from mscam_dask.engine.tasks import graph as graph_tasks
from mscam_dask.engine.tasks import partition_scores as score_tasks
from mscam_dask.solvers.partition_score import PartitionScore
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.rules import SIZES

__all__ = [
    "MAX_SCORE_TASKS",
    "BestPartition",
    "n_samples_cut",
    "score_cuts",
    "score_partitions_by_views",
    "spectrum_of",
]

MAX_SCORE_TASKS = 16
"""Maximum number of tasks that score partitions; with more views, each task has several."""


@dataclasses.dataclass(frozen=True)
class BestPartition:
    """Best partition so far.

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
        """Cross-view information of the partition, in nats."""
        return self.partition_score.score


def score_cuts(
    prepared: PreparedHandles, partitions: Handle, executor: Executor, *, key: str
) -> list[PartitionScore]:
    """Gather the score of each partition of a list."""
    handle = score_partitions_by_views(prepared, partitions, executor, key=key)
    (scores,) = executor.gather([handle])
    executor.release([handle])
    return [PartitionScore(*fields) for fields in scores]


def score_partitions_by_views(
    prepared: PreparedHandles, partitions: Handle, executor: Executor, *, key: str
) -> Handle:
    """Submit the scores of each partition of a list, as fields of `PartitionScore`."""
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
    scores = executor.submit(
        score_tasks.partition_scores,
        partitions,
        handles,
        prepared.n_validation_samples,
        key=f"partition_scores/{key}",
    )
    executor.release(handles)
    return scores


def n_samples_cut(prepared: PreparedHandles, parameters: Parameters) -> int:
    """Number of samples of large data for the k-means of spectral cuts; 0 for all."""
    return SIZES.n_cut if parameters.is_large(prepared.n_samples) else 0


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
    """Submit the bottom eigenpairs of a graph; with `graph_from_partition` only its c null vectors."""
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
