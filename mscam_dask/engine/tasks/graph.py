"""Tasks on the consensus graph, whole or by blocks of rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.eigensolver import Spectrum, bottom_eigenpairs
from mscam_dask.linalg.laplacian import connected_components, laplacian
from mscam_dask.solvers.graph_update import Graph

__all__ = [
    "GraphSpectrum",
    "WarmStart",
    "added",
    "eigengap",
    "graph_arrays",
    "graph_spectrum",
    "restore_graph",
    "spectrum_facts",
    "warm_start",
]

# Residual of the eigenpairs relative to the largest eigenvalue: far below any relevant eigengap.
_SPECTRUM_TOLERANCE = 1e-6


@dataclasses.dataclass(frozen=True, slots=True)
class GraphSpectrum:
    """Laplacian of a graph and its bottom eigenpairs, shared by the tasks of an iteration."""

    laplacian: csr_array[Any]
    spectrum: Spectrum

    @property
    def vectors(self) -> NDArray[Any]:
        """Eigenvectors, (n, m)."""
        return self.spectrum.vectors


@dataclasses.dataclass(frozen=True, slots=True)
class WarmStart:
    """Eigenvectors of a `GraphSpectrum`, from which the next eigensolver starts."""

    vectors: NDArray[Any]


def graph_spectrum(
    graph: Graph, previous: GraphSpectrum | WarmStart | None, n_pairs: int, seed: int
) -> GraphSpectrum:
    """Laplacian and bottom eigenpairs of a graph, from the previous eigenvectors as a start."""
    matrix = laplacian(graph.affinity)
    spectrum = bottom_eigenpairs(
        matrix,
        n_pairs,
        warm_start=None if previous is None else previous.vectors,
        components=(graph.n_components, graph.components),
        relative_tolerance=_SPECTRUM_TOLERANCE,
        rng=np.random.default_rng(seed),
    )
    return GraphSpectrum(matrix, spectrum)


def warm_start(spectrum: GraphSpectrum) -> WarmStart:
    """Eigenvectors of a spectrum without the Laplacian."""
    return WarmStart(spectrum.vectors)


def spectrum_facts(spectrum: GraphSpectrum, n_clusters: int) -> tuple[float, bool]:
    """Gap λ_{c+1} − λ_c of the Laplacian (NaN if n = c), and whether the eigenpairs converged."""
    return eigengap(spectrum.spectrum.values, n_clusters), spectrum.spectrum.converged


def eigengap(values: NDArray[np.float64], n_clusters: int) -> float:
    """Gap λ_{c+1} − λ_c of ascending eigenvalues; NaN if there are only c."""
    if len(values) <= n_clusters:
        return float("nan")
    return float(values[n_clusters] - values[n_clusters - 1])


def added(terms: Iterable[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Sum of one array or more by a binary tree in their order, two partial sums of one size at a time.

    Sums of 2^m consecutive arrays that are added again give identical bits.
    """
    partial: list[tuple[int, NDArray[np.float64]]] = []
    for term in terms:
        size, total = 1, term
        while partial and partial[-1][0] == size:
            total = partial.pop()[1] + total
            size *= 2
        partial.append((size, total))
    _, total = partial.pop()
    while partial:
        total = partial.pop()[1] + total
    return total


def graph_arrays(
    graph: Graph,
) -> tuple[NDArray[np.float64], NDArray[np.integer[Any]], NDArray[np.integer[Any]]]:
    """Data, indices and indptr of A, from which `restore_graph` rebuilds the graph."""
    affinity = graph.affinity
    return affinity.data, affinity.indices, affinity.indptr


def restore_graph(
    data: NDArray[np.float64],
    indices: NDArray[np.integer[Any]],
    indptr: NDArray[np.integer[Any]],
) -> Graph:
    """Graph from the arrays that `graph_arrays` returned."""
    n = len(indptr) - 1
    affinity: csr_array[np.float64] = csr_array((data, indices, indptr), shape=(n, n))
    count, components = connected_components(affinity)
    return Graph(affinity, count, components)
