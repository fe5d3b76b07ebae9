"""Tasks that judge partitions without labels, by each view's neutral graphs."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.as_multi_view import RowSource
from mscam_dask.data.views.chunk_cache import cache_chunks
from mscam_dask.engine.tasks.views import view_shape
from mscam_dask.linalg.neighbor_information import entropy, joint_information
from mscam_dask.solvers.reference_graphs import ReferenceGraphs, reference_graphs, view_evidence
from mscam_dask.solvers.spectral_cut import sampled_rows

__all__ = [
    "MAX_EVIDENCE_ENTRIES",
    "JudgedByViews",
    "partition_scores",
    "reference_graphs_of_view",
    "score_partitions",
]

MAX_EVIDENCE_ENTRIES = 2**20
"""Entries of what views say of one partition, a row for each sample and a column for each cluster."""


def reference_graphs_of_view(source: RowSource, n_neighbors: int) -> ReferenceGraphs:
    """Read one view and build its neutral graphs."""
    source = cache_chunks(source)
    return reference_graphs(source.read, view_shape(source), n_neighbors, dtype=np.float32)


@dataclasses.dataclass(frozen=True)
class JudgedByViews:
    """What some views say of some partitions, of which equal ones are looked at once.

    Attributes
    ----------
    scores : list of list of float
        By view, then by partition.
    evidence : list of (m, c) float32
        Of each distinct partition, the sum over these views.
    """

    scores: list[list[float]]
    evidence: list[NDArray[np.float32]]


def score_partitions(
    views: list[ReferenceGraphs],
    partitions: list[NDArray[np.int64]],
    n_validation_samples: int = 0,
    *,
    most_told: int = MAX_EVIDENCE_ENTRIES,
) -> JudgedByViews:
    """Scores and evidence of each partition, on neutral graphs of `n_validation_samples` samples if not all."""
    distinct, which = _distinct(partitions, n_validation_samples)
    rows = _rows_told(distinct, most_told)
    scores: list[list[float]] = []
    evidence: list[NDArray[np.float32]] = []
    for view in views:
        found = view_evidence(view, distinct, rows)
        scores.append([found[i][0] for i in which])
        for i, (_, told) in enumerate(found):
            if len(scores) == 1:
                evidence.append(told)
            else:
                evidence[i] += told
    return JudgedByViews(scores, evidence)


def partition_scores(
    partitions: list[NDArray[np.int64]],
    judged: list[JudgedByViews],
    n_validation_samples: int = 0,
    *,
    most_told: int = MAX_EVIDENCE_ENTRIES,
) -> list[tuple[tuple[float, ...], float, float]]:
    """Of each partition: its scores by view, its entropy, and what all views tell of it together."""
    distinct, which = _distinct(partitions, n_validation_samples)
    rows = _rows_told(distinct, most_told)
    joint = []
    for labels, *by_group in zip(distinct, *(one.evidence for one in judged), strict=True):
        told = by_group[0].copy()
        for other in by_group[1:]:
            told += other
        joint.append(joint_information(labels[rows], told))
    view_scores = zip(*(scores for one in judged for scores in one.scores), strict=True)
    return [
        (scores, entropy(labels), joint[i])
        for scores, labels, i in zip(view_scores, partitions, which, strict=True)
    ]


def _distinct(
    partitions: list[NDArray[np.int64]], n_validation_samples: int
) -> tuple[list[NDArray[np.int64]], list[int]]:
    """Different partitions, of the judged samples; and which of them each one is."""
    if n_validation_samples:
        rows = sampled_rows(len(partitions[0]), n_validation_samples)
        partitions = [np.unique(one[rows], return_inverse=True)[1] for one in partitions]
    positions: dict[bytes, int] = {}
    which = [positions.setdefault(labels.tobytes(), len(positions)) for labels in partitions]
    return [partitions[which.index(i)] for i in range(len(positions))], which


def _rows_told(partitions: list[NDArray[np.int64]], most_told: int) -> slice | NDArray[np.int64]:
    """Samples of whose clusters it is asked what all views say; not all where clusters are many."""
    n, n_clusters = len(partitions[0]), max(int(labels.max()) for labels in partitions) + 1
    if n * n_clusters <= most_told:
        return slice(None)
    return sampled_rows(n, max(1, most_told // n_clusters))
