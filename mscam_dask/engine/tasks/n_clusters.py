"""Tasks of the selection of the number of clusters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from mscam_dask.engine.tasks.graph import GraphSpectrum
from mscam_dask.linalg.edge_split import edge_split
from mscam_dask.linalg.laplacian import connected_components
from mscam_dask.solvers.graph_update import Graph
from mscam_dask.solvers.reference_graphs import ReferenceGraphs, view_modularity
from mscam_dask.solvers.spectral_cut import extend_cut, sampled_rows, spectral_cut, spread_rows
from mscam_dask.solvers.spectral_embedding import walk_embedding
from mscam_dask.types.rules import SIZES

__all__ = ["cuts_of", "halves_of", "modularities", "split_half_ari"]

# Minimum number of samples per cluster for k-means.
_PER_CLUSTER = 4


def cuts_of(spectrum: GraphSpectrum, n_clusters: int) -> list[NDArray[np.int64]]:
    """Deterministic spectral cuts into c clusters."""
    embedding = walk_embedding(spectrum.spectrum.values, spectrum.vectors, n_clusters)
    n, enough = len(embedding.rows), max(SIZES.n_cut_by_number, _PER_CLUSTER * n_clusters)
    if n <= enough:
        return spectral_cut(embedding)
    samples = spread_rows(n, enough)
    return [
        extend_cut(embedding, samples, labels) for labels in spectral_cut(embedding.of(samples))
    ]


def halves_of(graph: Graph, seed: int) -> list[Graph]:
    """Two graphs with a random half of the edges each."""
    halves = edge_split(graph.affinity, np.random.default_rng(seed))
    return [Graph(half, *connected_components(half)) for half in halves]


def split_half_ari(first: GraphSpectrum, second: GraphSpectrum, n_clusters: int) -> float:
    """Adjusted Rand index between the spectral cuts of two graphs, the higher of both kinds of cut."""
    pairs = zip(cuts_of(first, n_clusters), cuts_of(second, n_clusters), strict=True)
    return max(float(adjusted_rand_score(*pair)) for pair in pairs)


def modularities(
    view: ReferenceGraphs, cuts: list[list[NDArray[np.int64]]], n_validation_samples: int
) -> list[list[float]]:
    """Modularity of each cut by the reference graphs of one view, by number of clusters.

    With `n_validation_samples` these graphs are of a sample of that size.
    """
    n = len(cuts[0][0])
    rows = sampled_rows(n, n_validation_samples) if n_validation_samples else slice(None)
    return [[view_modularity(view, labels[rows]) for labels in same_count] for same_count in cuts]
