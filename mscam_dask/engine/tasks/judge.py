"""Tasks that propose partitions and judge them without labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.sampling import read_once
from mscam_dask.data.views import RowSource
from mscam_dask.engine.tasks.graph import GraphSpectrum
from mscam_dask.engine.tasks.views import view_shape
from mscam_dask.solvers.assign import extend_labels
from mscam_dask.solvers.graph import Graph
from mscam_dask.solvers.neutral import NeutralView, neutral_graphs, view_scores
from mscam_dask.solvers.partition import (
    cut_embedding,
    extend_cut,
    good_minima,
    sampled_rows,
    spread_rows,
)

__all__ = [
    "cuts_by_rows",
    "extended",
    "first_cuts",
    "handed_down_or_cut",
    "minima",
    "neutral_view",
    "next_cuts",
    "pick",
    "score_partitions",
    "single",
]


def neutral_view(source: RowSource, n_neighbors: int) -> NeutralView:
    """Read one view and build its neutral graphs."""
    source = read_once(source)
    return neutral_graphs(source.read, view_shape(source), n_neighbors, dtype=np.float32)


def cuts_by_rows(
    vectors: NDArray[Any],
    n_cut: int,
    cut: Callable[[slice | NDArray[np.int64]], list[NDArray[np.int64]]],
) -> list[NDArray[np.int64]]:
    """What `cut` makes of all rows or, with `n_cut`, of so many evenly spaced ones, for all."""
    if not n_cut:
        return cut(slice(None))
    rows = spread_rows(len(vectors), n_cut)
    return [extend_cut(vectors, rows, labels) for labels in cut(rows)]


def first_cuts(
    spectrum: GraphSpectrum, n_clusters: int, seed: int, n_cut: int = 0
) -> list[NDArray[np.int64]]:
    """Partitions cut from the bottom eigenvectors of a graph that nothing is known of yet.

    With `n_cut` the cut is made on so many evenly spaced samples, and extended to all.
    """
    rng = np.random.default_rng(seed)
    vectors = spectrum.vectors[:, :n_clusters]
    return cuts_by_rows(vectors, n_cut, lambda rows: cut_embedding(vectors[rows], rng=rng))


def minima(
    spectrum: GraphSpectrum, n_clusters: int, seed: int, n_cut: int = 0
) -> list[NDArray[np.int64]]:
    """Partitions into which the bottom eigenvectors of a graph may well be cut."""
    rng = np.random.default_rng(seed)
    vectors = spectrum.vectors[:, :n_clusters]
    return cuts_by_rows(vectors, n_cut, lambda rows: good_minima(vectors[rows], rng=rng))


def next_cuts(
    spectrum: GraphSpectrum, n_clusters: int, best: NDArray[np.int64], n_cut: int = 0
) -> list[NDArray[np.int64]]:
    """Partitions cut from a graph's eigenvectors, also starting from the best so far."""
    vectors = spectrum.vectors[:, :n_clusters]
    return cuts_by_rows(vectors, n_cut, lambda rows: cut_embedding(vectors[rows], known=best[rows]))


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


def score_partitions(
    views: list[NeutralView], partitions: list[NDArray[np.int64]], n_judged: int = 0
) -> list[list[float]]:
    """Scores of each partition, by view, on neutral graphs of `n_judged` samples if not all."""
    if n_judged:
        rows = sampled_rows(len(partitions[0]), n_judged)
        partitions = [labels[rows] for labels in partitions]
    return [view_scores(view, partitions) for view in views]


def single(labels: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """A list of one partition."""
    return [labels]
