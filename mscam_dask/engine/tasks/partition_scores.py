"""Tasks that score partitions without labels, by the reference graphs of each view."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.as_multi_view import RowSource
from mscam_dask.data.views.chunk_cache import cache_chunks
from mscam_dask.data.views.presence import present_samples
from mscam_dask.engine.tasks.views import view_shape
from mscam_dask.linalg.neighbor_information import entropy, joint_information
from mscam_dask.solvers.reference_graphs import ReferenceGraphs, reference_graphs, view_evidence
from mscam_dask.solvers.spectral_cut import sampled_rows

__all__ = [
    "MAX_EVIDENCE_ENTRIES",
    "ViewScores",
    "partition_scores",
    "reference_graphs_of_view",
    "score_partitions",
]

MAX_EVIDENCE_ENTRIES = 2**20
"""Maximum number of log-likelihoods of one partition, a row per sample and a column per cluster."""


def reference_graphs_of_view(
    source: RowSource, n_neighbors: int, weight: float = 1.0
) -> ReferenceGraphs:
    """Read one view and build its reference graphs; `weight` is that of the view in mean scores."""
    source = cache_chunks(source)
    graphs = reference_graphs(source.read, view_shape(source), n_neighbors, dtype=np.float32)
    present = present_samples(source)
    if present is None and weight == 1.0:
        return graphs
    return dataclasses.replace(graphs, present=present, weight=weight)


@dataclasses.dataclass(frozen=True)
class ViewScores:
    """Scores and log-likelihoods of some partitions by some views; equal partitions are scored once.

    Attributes
    ----------
    scores : list of list of float
        Scores by view, then by partition.
    evidence : list of (m, c) float32
        For each distinct partition, the sum of the log-likelihoods of these views.
    """

    scores: list[list[float]]
    evidence: list[NDArray[np.float32]]


def score_partitions(
    views: list[ReferenceGraphs],
    partitions: list[NDArray[np.int64]],
    n_validation_samples: int = 0,
    *,
    most_told: int = MAX_EVIDENCE_ENTRIES,
) -> ViewScores:
    """Score each partition by the reference graphs of some views.

    With `n_validation_samples` these graphs are of a sample of that size.
    """
    distinct, which = _distinct(partitions, n_validation_samples)
    rows = _evidence_rows(distinct, most_told)
    scores: list[list[float]] = []
    evidence: list[NDArray[np.float32]] = []
    for view in views:
        scored = view_evidence(view, distinct, rows)
        scores.append([scored[i][0] for i in which])
        for i, (_, log_likelihood) in enumerate(scored):
            if len(scores) == 1:
                evidence.append(log_likelihood)
            else:
                evidence[i] += log_likelihood
    return ViewScores(scores, evidence)


def partition_scores(
    partitions: list[NDArray[np.int64]],
    groups: list[ViewScores],
    n_validation_samples: int = 0,
    *,
    most_told: int = MAX_EVIDENCE_ENTRIES,
) -> list[tuple[tuple[float, ...], float, float]]:
    """For each partition: its scores by view, its entropy, and the joint information of all views."""
    distinct, which = _distinct(partitions, n_validation_samples)
    rows = _evidence_rows(distinct, most_told)
    joint = []
    for labels, *by_group in zip(distinct, *(group.evidence for group in groups), strict=True):
        total = by_group[0].copy()
        for evidence in by_group[1:]:
            total += evidence
        joint.append(joint_information(labels[rows], total))
    view_scores = zip(*(scores for group in groups for scores in group.scores), strict=True)
    return [
        (scores, entropy(labels), joint[i])
        for scores, labels, i in zip(view_scores, partitions, which, strict=True)
    ]


def _distinct(
    partitions: list[NDArray[np.int64]], n_validation_samples: int
) -> tuple[list[NDArray[np.int64]], list[int]]:
    """Distinct partitions of the scored samples, and the position of each partition among them."""
    if n_validation_samples:
        rows = sampled_rows(len(partitions[0]), n_validation_samples)
        partitions = [np.unique(labels[rows], return_inverse=True)[1] for labels in partitions]
    positions: dict[bytes, int] = {}
    which = [positions.setdefault(labels.tobytes(), len(positions)) for labels in partitions]
    return [partitions[which.index(i)] for i in range(len(positions))], which


def _evidence_rows(
    partitions: list[NDArray[np.int64]], most_told: int
) -> slice | NDArray[np.int64]:
    """Samples for the joint information of all views; not all of them if there are many clusters."""
    n, n_clusters = len(partitions[0]), max(int(labels.max()) for labels in partitions) + 1
    if n * n_clusters <= most_told:
        return slice(None)
    return sampled_rows(n, max(1, most_told // n_clusters))
