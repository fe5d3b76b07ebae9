"""Tasks that look at every number of clusters at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from mscam_dask.engine.tasks.graph import GraphSpectrum
from mscam_dask.engine.tasks.spectral_cut import cut_spectrum
from mscam_dask.linalg.edge_split import edge_split
from mscam_dask.linalg.laplacian import connected_components
from mscam_dask.solvers.graph_update import Graph
from mscam_dask.solvers.reference_graphs import ReferenceGraphs, view_modularity
from mscam_dask.solvers.spectral_cut import spectral_cut

__all__ = ["cuts_of", "halves_of", "modularities", "split_half_ari", "values_of"]

# Rows on which an embedding is cut: every number of clusters is cut several times.
_CUT_SAMPLES = 5000


def values_of(spectrum: GraphSpectrum) -> NDArray[np.float64]:
    """Eigenvalues of a spectrum, ascending."""
    return spectrum.spectrum.values


def cuts_of(spectrum: GraphSpectrum, n_clusters: int) -> list[NDArray[np.int64]]:
    """Partitions into c clusters, where nothing is drawn at random."""
    n_samples_cut = 0 if len(spectrum.vectors) <= _CUT_SAMPLES else _CUT_SAMPLES
    return cut_spectrum(spectrum, n_clusters, n_samples_cut, lambda some, _: spectral_cut(some))


def halves_of(graph: Graph, seed: int) -> list[Graph]:
    """Two graphs of one half of its edges each."""
    halves = edge_split(graph.affinity, np.random.default_rng(seed))
    return [Graph(half, *connected_components(half)) for half in halves]


def split_half_ari(first: GraphSpectrum, second: GraphSpectrum, n_clusters: int) -> float:
    """Adjusted Rand index of the cuts of two graphs into c clusters, the better of both kinds."""
    pairs = zip(cuts_of(first, n_clusters), cuts_of(second, n_clusters), strict=True)
    return max(float(adjusted_rand_score(one, other)) for one, other in pairs)


def modularities(view: ReferenceGraphs, cuts: list[list[NDArray[np.int64]]]) -> list[list[float]]:
    """Modularity of each cut, by number of clusters, on one view's graphs."""
    return [[view_modularity(view, labels) for labels in of_one] for of_one in cuts]
