"""Tasks that propose partitions and judge them without labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.passes import read_once
from mscam_dask.data.views import RowSource
from mscam_dask.engine.tasks.graph import GraphSpectrum
from mscam_dask.engine.tasks.views import view_shape
from mscam_dask.kernels.label_information import entropy, joint_information
from mscam_dask.solvers.assign import extend_labels
from mscam_dask.solvers.embedding import SpectralEmbedding, walk_embeddings
from mscam_dask.solvers.graph import Graph
from mscam_dask.solvers.neutral import NeutralView, neutral_graphs, view_evidence
from mscam_dask.solvers.partition import (
    cut_embedding,
    extend_cut,
    good_minima,
    sampled_rows,
    spread_rows,
)

__all__ = [
    "MOST_TOLD",
    "JudgedByViews",
    "all_cuts",
    "cut_spectrum",
    "extended",
    "first_cuts",
    "handed_down_or_cut",
    "minima",
    "neutral_view",
    "next_cuts",
    "pick",
    "score_partitions",
    "single",
    "verdicts",
]

MOST_TOLD = 2**20
"""Entries of what views say of one partition, a row for each sample and a column for each cluster."""


def neutral_view(source: RowSource, n_neighbors: int) -> NeutralView:
    """Read one view and build its neutral graphs."""
    source = read_once(source)
    return neutral_graphs(source.read, view_shape(source), n_neighbors, dtype=np.float32)


def cut_spectrum(
    spectrum: GraphSpectrum,
    n_clusters: int,
    n_cut: int,
    cut: Callable[[SpectralEmbedding, slice | NDArray[np.int64]], list[NDArray[np.int64]]],
) -> list[NDArray[np.int64]]:
    """What `cut` makes of each embedding of a spectrum, given the samples it gets.

    All of them or, with `n_cut`, so many evenly spaced ones, from which the cuts are extended.
    """
    cuts: list[NDArray[np.int64]] = []
    for embedding in walk_embeddings(spectrum.spectrum.values, spectrum.vectors, n_clusters):
        if not n_cut:
            cuts += cut(embedding, slice(None))
            continue
        samples = spread_rows(len(embedding.rows), n_cut)
        of_some = cut(embedding.of(samples), samples)
        cuts += [extend_cut(embedding, samples, labels) for labels in of_some]
    return cuts


def first_cuts(
    spectrum: GraphSpectrum, n_clusters: int, seed: int, n_cut: int = 0
) -> list[NDArray[np.int64]]:
    """Partitions cut from the bottom spectrum of a graph that nothing is known of yet.

    With `n_cut` the cut is made on so many evenly spaced samples, and extended to all.
    """
    rng = np.random.default_rng(seed)
    return cut_spectrum(spectrum, n_clusters, n_cut, lambda some, _: cut_embedding(some, rng=rng))


def minima(
    spectrum: GraphSpectrum, n_clusters: int, seed: int, n_cut: int = 0
) -> list[NDArray[np.int64]]:
    """Partitions into which the bottom spectrum of a graph may well be cut."""
    rng = np.random.default_rng(seed)
    return cut_spectrum(spectrum, n_clusters, n_cut, lambda some, _: good_minima(some, rng=rng))


def all_cuts(
    spectrum: GraphSpectrum, n_clusters: int, seed: int, n_cut: int, known: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """The minima, and partitions that start from a known one and from the vectors themselves."""
    return [
        *minima(spectrum, n_clusters, seed, n_cut),
        *next_cuts(spectrum, n_clusters, known, n_cut),
    ]


def next_cuts(
    spectrum: GraphSpectrum, n_clusters: int, best: NDArray[np.int64], n_cut: int = 0
) -> list[NDArray[np.int64]]:
    """Partitions cut from a graph's bottom spectrum, also starting from the best so far."""
    return cut_spectrum(
        spectrum, n_clusters, n_cut, lambda some, samples: cut_embedding(some, known=best[samples])
    )


def extended(graph: Graph, known: NDArray[np.int64], n_clusters: int) -> NDArray[np.int64]:
    """An earlier partition, with a cluster for each sample that is new (−1)."""
    return extend_labels(graph.affinity, known, n_clusters)


def handed_down_or_cut(
    spectrum: GraphSpectrum,
    n_clusters: int,
    known: NDArray[np.int64],
    is_whole: bool,  # noqa: FBT001 - tasks take positions
    n_cut: int = 0,
) -> list[NDArray[np.int64]]:
    """An earlier partition, where it has all its clusters, and cuts of the graph at hand."""
    cuts = next_cuts(spectrum, n_clusters, known, n_cut)
    return [known, *cuts] if is_whole else cuts


def pick(partitions: list[NDArray[np.int64]], index: int) -> NDArray[np.int64]:
    """One of several partitions."""
    return partitions[index]


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
    views: list[NeutralView], partitions: list[NDArray[np.int64]], n_judged: int = 0
) -> JudgedByViews:
    """Scores and evidence of each partition, on neutral graphs of `n_judged` samples if not all."""
    distinct, which = _distinct(partitions, n_judged)
    rows = _rows_told(distinct)
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


def verdicts(
    partitions: list[NDArray[np.int64]], judged: list[JudgedByViews], n_judged: int = 0
) -> list[tuple[tuple[float, ...], float, float]]:
    """Of each partition: its scores by view, its entropy, and what all views tell of it together."""
    distinct, which = _distinct(partitions, n_judged)
    rows = _rows_told(distinct)
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
    partitions: list[NDArray[np.int64]], n_judged: int
) -> tuple[list[NDArray[np.int64]], list[int]]:
    """Different partitions, of the judged samples; and which of them each one is."""
    if n_judged:
        rows = sampled_rows(len(partitions[0]), n_judged)
        partitions = [np.unique(one[rows], return_inverse=True)[1] for one in partitions]
    positions: dict[bytes, int] = {}
    which = [positions.setdefault(labels.tobytes(), len(positions)) for labels in partitions]
    return [partitions[which.index(i)] for i in range(len(positions))], which


def _rows_told(partitions: list[NDArray[np.int64]]) -> slice | NDArray[np.int64]:
    """Samples of whose clusters it is asked what all views say; not all where clusters are many."""
    n, n_clusters = len(partitions[0]), max(int(labels.max()) for labels in partitions) + 1
    if n * n_clusters <= MOST_TOLD:
        return slice(None)
    return sampled_rows(n, max(1, MOST_TOLD // n_clusters))


def single(labels: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """A list of one partition."""
    return [labels]
