"""Tasks that propose partitions: cuts of a graph's bottom spectrum, and what earlier fits hand down."""

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
    "handed_down_or_cut",
    "minima",
    "next_cuts",
    "pick",
    "single",
]

# Samples that are cut for each cluster, at the least.
_PER_CLUSTER = 4


def cut_spectrum(
    spectrum: GraphSpectrum,
    n_clusters: int,
    n_samples_cut: int,
    cut: Callable[[SpectralEmbedding, slice | NDArray[np.int64]], list[NDArray[np.int64]]],
) -> list[NDArray[np.int64]]:
    """Return the partitions that `cut` makes of the embedding of a spectrum.

    With `n_samples_cut` it gets that many evenly spaced samples or more (four for each cluster), and its
    partitions are extended to all.
    """
    embedding = walk_embedding(spectrum.spectrum.values, spectrum.vectors, n_clusters)
    n, enough = len(embedding.rows), max(n_samples_cut, _PER_CLUSTER * n_clusters)
    if not n_samples_cut or enough >= n:
        return cut(embedding, slice(None))
    samples = spread_rows(n, enough)
    of_some = cut(embedding.of(samples), samples)
    return [extend_cut(embedding, samples, labels) for labels in of_some]


def first_cuts(
    spectrum: GraphSpectrum, n_clusters: int, seed: int, n_samples_cut: int = 0
) -> list[NDArray[np.int64]]:
    """Partitions cut from the bottom spectrum of a graph that nothing is known of yet.

    With `n_samples_cut` the cut is made on so many evenly spaced samples, and extended to all.
    """
    rng = np.random.default_rng(seed)
    return cut_spectrum(
        spectrum, n_clusters, n_samples_cut, lambda some, _: spectral_cut(some, rng=rng)
    )


def minima(
    spectrum: GraphSpectrum, n_clusters: int, seed: int, n_samples_cut: int = 0
) -> list[NDArray[np.int64]]:
    """Partitions into which the bottom spectrum of a graph may well be cut."""
    rng = np.random.default_rng(seed)
    return cut_spectrum(
        spectrum, n_clusters, n_samples_cut, lambda some, _: good_minima(some, rng=rng)
    )


def all_cuts(
    spectrum: GraphSpectrum,
    n_clusters: int,
    seed: int,
    n_samples_cut: int,
    known: NDArray[np.int64],
) -> list[NDArray[np.int64]]:
    """The minima, and partitions that start from a known one and from the vectors themselves."""
    return [
        *minima(spectrum, n_clusters, seed, n_samples_cut),
        *next_cuts(spectrum, n_clusters, known, n_samples_cut),
    ]


def next_cuts(
    spectrum: GraphSpectrum, n_clusters: int, best: NDArray[np.int64], n_samples_cut: int = 0
) -> list[NDArray[np.int64]]:
    """Partitions cut from a graph's bottom spectrum, also starting from the best so far."""
    return cut_spectrum(
        spectrum,
        n_clusters,
        n_samples_cut,
        lambda some, samples: spectral_cut(some, known=best[samples]),
    )


def extended(graph: Graph, known: NDArray[np.int64], n_clusters: int) -> NDArray[np.int64]:
    """An earlier partition, with a cluster for each sample that is new (−1)."""
    return extend_labels(graph.affinity, known, n_clusters)


def handed_down_or_cut(
    spectrum: GraphSpectrum,
    n_clusters: int,
    known: NDArray[np.int64],
    is_whole: bool,  # noqa: FBT001 - tasks take positions
    n_samples_cut: int = 0,
) -> list[NDArray[np.int64]]:
    """An earlier partition, where it has all its clusters, and cuts of the graph at hand."""
    cuts = next_cuts(spectrum, n_clusters, known, n_samples_cut)
    return [known, *cuts] if is_whole else cuts


def pick(partitions: list[NDArray[np.int64]], index: int) -> NDArray[np.int64]:
    """One of several partitions."""
    return partitions[index]


def single(labels: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """A list of one partition."""
    return [labels]
