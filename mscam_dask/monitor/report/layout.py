"""Force-directed layout of a graph in the plane, which no label enters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mscam_dask.linalg.eigensolver import bottom_eigenpairs
from mscam_dask.linalg.laplacian import connected_components, laplacian

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["graph_layout"]

_SPRING_STEPS = 80
_PUSHING = 256


def graph_layout(graph: csr_array[np.float64], *, rng: np.random.Generator) -> NDArray[np.float64]:
    """Place the nodes of a graph in the plane, connected ones near each other.

    Parameters
    ----------
    graph : (m, m) CSR
        Symmetric weights.
    rng
        Breaks ties between nodes with the same position.

    Returns
    -------
    (m, 2)

    Notes
    -----
    Eigenvectors of the Laplacian, followed by the forces of Fruchterman and Reingold. Each step takes
    the repulsion of at most 256 random nodes.

    References
    ----------
    Fruchterman, Reingold, Graph drawing by force-directed placement, Software: Practice and
    Experience 21 (1991), doi:10.1002/spe.4380211102.
    """
    size = graph.shape[0]
    if size == 1:
        return np.zeros((1, 2))
    places = _start(graph, rng) + 0.05 * rng.standard_normal((size, 2))
    return _springs(graph, places - places.mean(axis=0), rng) if size > 3 else places


def _start(graph: csr_array[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Second and third eigenvector of the Laplacian with unit deviation, or components on a circle."""
    size = graph.shape[0]
    count, components = connected_components(graph)
    if size < 4 or count > 1:
        angles = 2 * np.pi * (np.arange(size) / size if size < 4 else components / count)
        return np.column_stack((np.cos(angles), np.sin(angles)))
    spectrum = bottom_eigenpairs(
        laplacian(graph), 3, components=(count, components), relative_tolerance=1e-3, rng=rng
    )
    vectors = spectrum.vectors[:, 1:3]
    vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(axis=0), [0, 1]])
    return np.asarray(vectors / np.maximum(vectors.std(axis=0), 1e-12))


def _springs(
    graph: csr_array[np.float64], places: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Move nodes by attraction (weight · d²/l) and repulsion (l²/d), with decreasing steps."""
    size = len(places)
    length = np.float32(2.0 / np.sqrt(size))
    entries = graph.tocoo()
    start, end = entries.coords
    pull = entries.data / max(float(entries.data.mean()), 1e-300) if graph.nnz else entries.data
    pull = np.minimum(pull, 4.0).astype(np.float32)
    at = places.astype(np.float32)
    for step in range(_SPRING_STEPS):
        others = np.arange(size) if size <= _PUSHING else rng.choice(size, _PUSHING, replace=False)
        far = at[others]
        squared = (at**2).sum(axis=1)[:, None] - 2 * at @ far.T + (far**2).sum(axis=1)
        push = 1 / (np.maximum(squared, 0) + np.float32(1e-4))
        push[others, np.arange(len(others))] = 0
        scale = length**2 * np.float32(size / len(others))
        force = scale * (at * push.sum(axis=1)[:, None] - push @ far)
        along = at[end] - at[start]
        stretch = (pull * np.hypot(along[:, 0], along[:, 1]) / length)[:, None] * along
        for axis in (0, 1):
            force[:, axis] += np.bincount(start, weights=stretch[:, axis], minlength=size)
        force -= at * np.float32(0.2)
        norm = np.maximum(np.hypot(force[:, 0], force[:, 1]), 1e-9)[:, None]
        at += force / norm * np.minimum(norm, 0.15 * (1 - step / _SPRING_STEPS))
    return at.astype(np.float64)
