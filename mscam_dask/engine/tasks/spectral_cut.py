"""Tasks that return candidate partitions: spectral cuts of a graph, and initial labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mscam_dask.engine.tasks.graph import GraphSpectrum
from mscam_dask.solvers import spectral_cut
from mscam_dask.solvers.graph_update import Graph
from mscam_dask.solvers.predict import extend_labels
from mscam_dask.solvers.spectral_cut import Minimum
from mscam_dask.solvers.spectral_embedding import SpectralEmbedding, walk_embedding

__all__ = [
    "all_cuts",
    "drawn_starts",
    "extended",
    "first_cuts",
    "minima",
    "next_cuts",
]


def drawn_starts(
    spectrum: GraphSpectrum, n_clusters: int, seed: int, starts: range
) -> list[Minimum]:
    """Local minima of k-means from some of the random starts of a cut."""
    drawn = int(np.random.default_rng(seed).integers(2**31))
    return spectral_cut.drawn_starts(_embedding(spectrum, n_clusters), drawn, starts)


def first_cuts(
    spectrum: GraphSpectrum, n_clusters: int, drawn: list[list[Minimum]]
) -> list[NDArray[np.int64]]:
    """Spectral cuts of a graph without a known partition, with random starts that were solved already."""
    starts = [minimum for group in drawn for minimum in group]
    return spectral_cut.spectral_cut(_embedding(spectrum, n_clusters), drawn=starts)


def minima(spectrum: GraphSpectrum, n_clusters: int, seed: int) -> list[NDArray[np.int64]]:
    """Spectral cuts at all good local minima of k-means."""
    return spectral_cut.good_minima(
        _embedding(spectrum, n_clusters), rng=np.random.default_rng(seed)
    )


def all_cuts(
    spectrum: GraphSpectrum, n_clusters: int, seed: int, known: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """Spectral cuts at the good minima, from a known partition and from the eigenvectors."""
    return [*minima(spectrum, n_clusters, seed), *next_cuts(spectrum, n_clusters, known)]


def next_cuts(
    spectrum: GraphSpectrum, n_clusters: int, best: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """Spectral cuts of a graph, also with k-means started from the best partition so far."""
    return spectral_cut.spectral_cut(_embedding(spectrum, n_clusters), known=best)


def _embedding(spectrum: GraphSpectrum, n_clusters: int) -> SpectralEmbedding:
    return walk_embedding(spectrum.spectrum.values, spectrum.vectors, n_clusters)


def extended(graph: Graph, known: NDArray[np.int64], n_clusters: int) -> NDArray[np.int64]:
    """Earlier labels, extended to new samples (−1)."""
    return extend_labels(graph.affinity, known, n_clusters)
