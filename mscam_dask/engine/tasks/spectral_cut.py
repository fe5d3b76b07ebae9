"""Tasks that return candidate partitions: spectral cuts of a graph, and initial labels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mscam_dask.engine.tasks.graph import GraphSpectrum
from mscam_dask.solvers.graph_update import Graph
from mscam_dask.solvers.predict import extend_labels
from mscam_dask.solvers.spectral_cut import extend_cut, good_minima, spectral_cut, spread_rows
from mscam_dask.solvers.spectral_embedding import SpectralEmbedding, walk_embedding

__all__ = [
    "all_cuts",
    "cut_spectrum",
    "extended",
    "first_cuts",
    "initial_labels_or_cuts",
    "minima",
    "next_cuts",
    "pick",
    "single",
]

# Minimum number of samples per cluster for k-means.
_PER_CLUSTER = 4


def cut_spectrum(
    spectrum: GraphSpectrum,
    n_clusters: int,
    n_samples_cut: int,
    cut: Callable[[SpectralEmbedding, slice | NDArray[np.int64]], list[NDArray[np.int64]]],
) -> list[NDArray[np.int64]]:
    """Return the partitions that `cut` makes of the spectral embedding.

    With `n_samples_cut` it receives that many evenly spaced samples or more (four for each cluster),
    and its partitions are extended to all samples.
    """
    embedding = walk_embedding(spectrum.spectrum.values, spectrum.vectors, n_clusters)
    n, enough = len(embedding.rows), max(n_samples_cut, _PER_CLUSTER * n_clusters)
    if not n_samples_cut or enough >= n:
        return cut(embedding, slice(None))
    samples = spread_rows(n, enough)
    partitions = cut(embedding.of(samples), samples)
    return [extend_cut(embedding, samples, labels) for labels in partitions]


def first_cuts(
    spectrum: GraphSpectrum, n_clusters: int, seed: int, n_samples_cut: int = 0
) -> list[NDArray[np.int64]]:
    """Spectral cuts of a graph without a known partition.

    With `n_samples_cut` k-means uses that many evenly spaced samples, and the partitions are extended.
    """
    rng = np.random.default_rng(seed)
    return cut_spectrum(
        spectrum, n_clusters, n_samples_cut, lambda rows, _: spectral_cut(rows, rng=rng)
    )


def minima(
    spectrum: GraphSpectrum, n_clusters: int, seed: int, n_samples_cut: int = 0
) -> list[NDArray[np.int64]]:
    """Spectral cuts at all good local minima of k-means."""
    rng = np.random.default_rng(seed)
    return cut_spectrum(
        spectrum, n_clusters, n_samples_cut, lambda rows, _: good_minima(rows, rng=rng)
    )


def all_cuts(
    spectrum: GraphSpectrum,
    n_clusters: int,
    seed: int,
    n_samples_cut: int,
    known: NDArray[np.int64],
) -> list[NDArray[np.int64]]:
    """Spectral cuts at the good minima, from a known partition and from the eigenvectors."""
    return [
        *minima(spectrum, n_clusters, seed, n_samples_cut),
        *next_cuts(spectrum, n_clusters, known, n_samples_cut),
    ]


def next_cuts(
    spectrum: GraphSpectrum, n_clusters: int, best: NDArray[np.int64], n_samples_cut: int = 0
) -> list[NDArray[np.int64]]:
    """Spectral cuts of a graph, also with k-means started from the best partition so far."""
    return cut_spectrum(
        spectrum,
        n_clusters,
        n_samples_cut,
        lambda rows, samples: spectral_cut(rows, known=best[samples]),
    )


def extended(graph: Graph, known: NDArray[np.int64], n_clusters: int) -> NDArray[np.int64]:
    """Earlier labels, extended to new samples (−1)."""
    return extend_labels(graph.affinity, known, n_clusters)


def initial_labels_or_cuts(
    spectrum: GraphSpectrum,
    n_clusters: int,
    known: NDArray[np.int64],
    is_whole: bool,  # noqa: FBT001 - tasks take positions
    n_samples_cut: int = 0,
) -> list[NDArray[np.int64]]:
    """Initial labels, if none of their clusters is empty, and spectral cuts of the graph."""
    cuts = next_cuts(spectrum, n_clusters, known, n_samples_cut)
    return [known, *cuts] if is_whole else cuts


def pick(partitions: list[NDArray[np.int64]], index: int) -> NDArray[np.int64]:
    """Item of a list of partitions."""
    return partitions[index]


def single(labels: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """List of one partition."""
    return [labels]
