"""Tasks that look at every number of clusters at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from mscam_dask.engine.tasks.cuts import cut_spectrum
from mscam_dask.engine.tasks.graph import GraphSpectrum
from mscam_dask.kernels.edge_halves import edge_halves
from mscam_dask.kernels.laplacian import connected_components
from mscam_dask.solvers.graph import Graph
from mscam_dask.solvers.neutral import NeutralView, view_modularity
from mscam_dask.solvers.partition import cut_embedding

__all__ = ["agreement_of_halves", "cuts_of", "halves_of", "modularities", "values_of"]

# Rows on which an embedding is cut: every number of clusters is cut several times.
_CUT_SAMPLES = 5000


def values_of(spectrum: GraphSpectrum) -> NDArray[np.float64]:
    """Eigenvalues of a spectrum, ascending."""
    return spectrum.spectrum.values


def cuts_of(spectrum: GraphSpectrum, n_clusters: int) -> list[NDArray[np.int64]]:
    """Partitions into c clusters, where nothing is drawn at random."""
    n_cut = 0 if len(spectrum.vectors) <= _CUT_SAMPLES else _CUT_SAMPLES
    return cut_spectrum(spectrum, n_clusters, n_cut, lambda some, _: cut_embedding(some))


def halves_of(graph: Graph, seed: int) -> list[Graph]:
    """Two graphs of one half of its edges each."""
    halves = edge_halves(graph.affinity, np.random.default_rng(seed))
    return [Graph(half, *connected_components(half)) for half in halves]


def agreement_of_halves(first: GraphSpectrum, second: GraphSpectrum, n_clusters: int) -> float:
    """Adjusted Rand index of the cuts of two graphs into c clusters, the better of both kinds."""
    pairs = zip(cuts_of(first, n_clusters), cuts_of(second, n_clusters), strict=True)
    return max(float(adjusted_rand_score(one, other)) for one, other in pairs)


def modularities(view: NeutralView, cuts: list[list[NDArray[np.int64]]]) -> list[list[float]]:
    """Modularity of each cut, by number of clusters, on one view's graphs."""
    return [[view_modularity(view, labels) for labels in of_one] for of_one in cuts]
