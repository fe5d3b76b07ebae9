"""Tasks that return candidate partitions: spectral cuts of a graph, and initial labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mscam_dask.engine.tasks.graph import GraphSpectrum
from mscam_dask.solvers.graph_update import Graph
from mscam_dask.solvers.predict import extend_labels
from mscam_dask.solvers.spectral_cut import good_minima, spectral_cut
from mscam_dask.solvers.spectral_embedding import SpectralEmbedding, walk_embedding

__all__ = [
    "all_cuts",
    "extended",
    "first_cuts",
    "minima",
    "next_cuts",
]


def first_cuts(spectrum: GraphSpectrum, n_clusters: int, seed: int) -> list[NDArray[np.int64]]:
    """Spectral cuts of a graph without a known partition."""
    return spectral_cut(_embedding(spectrum, n_clusters), rng=np.random.default_rng(seed))


def minima(spectrum: GraphSpectrum, n_clusters: int, seed: int) -> list[NDArray[np.int64]]:
    """Spectral cuts at all good local minima of k-means."""
    return good_minima(_embedding(spectrum, n_clusters), rng=np.random.default_rng(seed))


def all_cuts(
    spectrum: GraphSpectrum, n_clusters: int, seed: int, known: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """Spectral cuts at the good minima, from a known partition and from the eigenvectors."""
    return [*minima(spectrum, n_clusters, seed), *next_cuts(spectrum, n_clusters, known)]


def next_cuts(
    spectrum: GraphSpectrum, n_clusters: int, best: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """Spectral cuts of a graph, also with k-means started from the best partition so far."""
    return spectral_cut(_embedding(spectrum, n_clusters), known=best)


def _embedding(spectrum: GraphSpectrum, n_clusters: int) -> SpectralEmbedding:
    return walk_embedding(spectrum.spectrum.values, spectrum.vectors, n_clusters)


def extended(graph: Graph, known: NDArray[np.int64], n_clusters: int) -> NDArray[np.int64]:
    """Earlier labels, extended to new samples (−1)."""
    return extend_labels(graph.affinity, known, n_clusters)
