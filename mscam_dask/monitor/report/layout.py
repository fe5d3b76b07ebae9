"""Layout of a graph in the plane: force-directed in each cluster, clusters as packed circles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["cluster_layout", "pack_circles"]

_SPRING_STEPS = 80
_SMALL = 20  # nodes that need fewer steps
_DENSE = 400  # nodes up to which all eigenvectors are computed


def cluster_layout(
    graph: csr_array[np.float64], labels: NDArray[np.int64], *, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Place the nodes of a graph in the unit square.

    Parameters
    ----------
    graph : (m, m) CSR
        Symmetric weights.
    labels : (m,)
        Nodes of one label are placed in a disc with an area proportional to their number.
    rng
        Breaks ties between nodes with the same position.

    Returns
    -------
    (m, 2)

    Notes
    -----
    Each cluster starts from eigenvectors of the Laplacian, followed by the forces of Fruchterman
    and Reingold. The positions of the discs have no meaning. Time and memory are O(Σ m_k²) for
    clusters of m_k nodes.

    References
    ----------
    Fruchterman, Reingold, Graph drawing by force-directed placement, Software: Practice and
    Experience 21 (1991), doi:10.1002/spe.4380211102.
    """
    names, inverse = np.unique(labels, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(inverse))[:-1]) if len(names) else []
    radii = np.sqrt([len(group) for group in groups])
    centers = pack_circles(0.92 * radii)  # few discs are full up to the rim
    places = np.empty((len(labels), 2))
    for group, radius, center in zip(groups, radii, centers, strict=True):
        places[group] = center + radius * _disc(graph[group][:, group], rng)
    low = (centers - radii[:, None]).min(axis=0)
    high = (centers + radii[:, None]).max(axis=0)
    span = float((high - low).max())
    return np.asarray(0.5 + (places - (low + high) / 2) / span)


def pack_circles(radii: NDArray[np.float64]) -> NDArray[np.float64]:
    """Centers of circles that do not overlap, with the largest in the middle.

    Parameters
    ----------
    radii : (c,)
        Positive.

    Returns
    -------
    (c, 2)

    Notes
    -----
    In descending order of radius, each circle takes the first point of a sunflower spiral where it
    does not overlap the previous circles.
    """
    order = np.argsort(-radii, kind="stable")
    spacing = 0.3 * float(np.median(radii))
    centers = np.empty((len(radii), 2))
    at = 0
    for done, circle in enumerate(order):
        placed = order[:done]
        while True:
            spots = _spiral(at, spacing)
            gaps = spots[:, None] - centers[placed]
            room = (radii[placed] + radii[circle]) ** 2
            free = np.flatnonzero((np.einsum("ijk,ijk->ij", gaps, gaps) >= room).all(axis=1))
            if len(free):
                at += int(free[0])
                centers[circle] = spots[free[0]]
                break
            at += len(spots)
    return centers


def _spiral(first: int, spacing: float, n_points: int = 64) -> NDArray[np.float64]:
    """Points `first`, `first` + 1, ... of a sunflower spiral."""
    index = np.arange(first, first + n_points)
    turn = index * np.pi * (3 - np.sqrt(5))
    directions = np.column_stack((np.cos(turn), np.sin(turn)))
    return np.asarray((spacing * np.sqrt(index))[:, None] * directions)


def _disc(graph: csr_array[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Positions of a graph in the disc of radius 1."""
    size = graph.shape[0]
    if size == 1:
        return np.zeros((1, 2))
    places = _spectral_start(graph) + 0.05 * rng.standard_normal((size, 2))
    if size > 3:
        places = _springs(graph, places - places.mean(axis=0))
    distances = np.hypot(places[:, 0], places[:, 1])
    return np.asarray(
        places / max(float(distances.max()), 1.25 * float(np.quantile(distances, 0.8)))
    )


def _spectral_start(graph: csr_array[np.float64]) -> NDArray[np.float64]:
    """Second and third eigenvector of the normalized Laplacian, each with unit deviation."""
    from scipy.sparse import csc_array, diags_array, eye_array
    from scipy.sparse.linalg import eigsh

    size = graph.shape[0]
    if size < 4:
        angles = 2 * np.pi * np.arange(size) / size
        return np.column_stack((np.cos(angles), np.sin(angles)))
    scale = diags_array(1 / np.sqrt(np.maximum(graph.sum(axis=0), 1e-300)))
    laplacian = eye_array(size) - scale @ graph @ scale
    if size <= _DENSE:
        vectors = np.linalg.eigh(laplacian.toarray())[1][:, 1:3]
    else:
        shifted = csc_array(laplacian + 1e-3 * eye_array(size))
        values, vectors = eigsh(shifted, k=3, sigma=0, v0=np.ones(size))
        vectors = vectors[:, np.argsort(values)[1:3]]
    largest = np.abs(vectors).argmax(axis=0)
    vectors = vectors * np.sign(vectors[largest, [0, 1]])
    return np.asarray(vectors / np.maximum(vectors.std(axis=0), 1e-12))


def _springs(graph: csr_array[np.float64], places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Move nodes by attraction (weight · d²/l) and repulsion (l²/d), with decreasing steps."""
    size = len(places)
    length = np.float32(2.0 / np.sqrt(size))
    entries = graph.tocoo()
    start, end = entries.coords
    pull = entries.data / max(float(entries.data.mean()), 1e-300) if graph.nnz else entries.data
    pull = np.minimum(pull, 4.0).astype(np.float32)
    at = places.astype(np.float32)
    n_steps = _SPRING_STEPS if size > _SMALL else _SPRING_STEPS // 4
    for step in range(n_steps):
        norms = (at**2).sum(axis=1)
        push = 1 / (np.maximum(norms[:, None] - 2 * at @ at.T + norms, 0) + np.float32(1e-4))
        np.fill_diagonal(push, 0)
        force = length**2 * (at * push.sum(axis=1)[:, None] - push @ at)
        along = at[end] - at[start]
        stretch = (pull * np.hypot(along[:, 0], along[:, 1]) / length)[:, None] * along
        for axis in (0, 1):
            force[:, axis] += np.bincount(start, weights=stretch[:, axis], minlength=size)
        force -= at * np.float32(0.2)
        norm = np.maximum(np.hypot(force[:, 0], force[:, 1]), 1e-9)[:, None]
        at += force / norm * np.minimum(norm, 0.15 * (1 - step / n_steps))
    return at.astype(np.float64)
