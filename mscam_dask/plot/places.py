"""Samples that are drawn, and their places in the plane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.linalg.eigensolver import bottom_eigenpairs
from mscam_dask.linalg.laplacian import connected_components, laplacian

if TYPE_CHECKING:
    from scipy.sparse import csr_array

DRAW_LIMIT = 2000
DRAW_SEED = 0

_PLANES = 3
_SPRING_STEPS = 80
_PUSHING = 256


def draw_samples(
    labels: NDArray[np.int64], *, listed: NDArray[np.int64] | None = None, limit: int = DRAW_LIMIT
) -> NDArray[np.int64]:
    """Rows of all samples, or of a random sample, `listed` and one of each cluster; by cluster."""
    rows = np.arange(len(labels))
    if len(labels) > limit:
        random = np.random.default_rng(DRAW_SEED).choice(len(labels), size=limit, replace=False)
        first = np.unique(labels, return_index=True)[1]
        missing = first[~np.isin(labels[first], labels[random])][:limit]
        rows = np.unique(np.concatenate((random, rows[:0] if listed is None else listed, missing)))
    return rows[np.argsort(labels[rows], kind="stable")]


def principal_planes(values: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Orthogonal projections (m, 2) of samples (m, r) on axes 1 and 2, 3 and 4, 5 and 6; NaN for absent samples."""
    has = ~np.isnan(values).any(axis=1)
    centered = values[has] - values[has].mean(axis=0) if has.any() else np.zeros((0, 2))
    left, lengths, right = np.linalg.svd(centered, full_matrices=False)
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])
    scores = np.full((len(values), max(2, len(lengths))), np.nan)
    scores[has] = 0.0
    scores[has, : len(lengths)] = left * lengths * signs
    starts = range(0, min(2 * _PLANES, scores.shape[1] - 1), 2)
    return [scores[:, start : start + 2] for start in starts]


def contracted_graph(
    graph: csr_array[np.float64], rows: NDArray[np.int64]
) -> csr_array[np.float64]:
    """Total weights (m, m) between the samples that two of the m rows represent, without a diagonal.

    A sample is represented by the row that is the fewest edges away. Connected components stay connected.
    """
    from scipy.sparse import coo_array, csr_array
    from scipy.sparse.csgraph import dijkstra

    symmetric: csr_array[np.float64] = csr_array(0.5 * graph + 0.5 * graph.T)
    size = len(rows)
    position = np.full(symmetric.shape[0] + 1, -1)
    position[rows] = np.arange(size)
    sources: NDArray[Any] = np.arange(symmetric.shape[0])
    if size < symmetric.shape[0]:
        _, _, sources = dijkstra(
            symmetric, indices=rows, min_only=True, unweighted=True, return_predecessors=True
        )
    nearest = position[np.where(sources < 0, -1, sources)]
    entries = symmetric.tocoo()
    start, end = nearest[entries.coords[0]], nearest[entries.coords[1]]
    kept = (start >= 0) & (end >= 0) & (start != end)
    pairs = (entries.data[kept], (start[kept], end[kept]))
    return csr_array(coo_array(pairs, shape=(size, size)))


def graph_layout(graph: csr_array[np.float64]) -> NDArray[np.float64]:
    """Places (m, 2) of the nodes of a symmetric graph, connected ones near each other.

    Ranks in eigenvectors of the Laplacian, followed by the forces of Fruchterman and Reingold (Software:
    Practice and Experience 21, 1991, doi:10.1002/spe.4380211102). Each step takes the repulsion of at most
    256 random nodes.
    """
    size = graph.shape[0]
    if size == 1:
        return np.zeros((1, 2))
    rng = np.random.default_rng(DRAW_SEED)
    places = _start(graph, rng) + 0.05 * rng.standard_normal((size, 2))
    return _springs(graph, places - places.mean(axis=0), rng) if size > 3 else places


def _start(graph: csr_array[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Ranks in eigenvectors 2 and 3 of the Laplacian, which a weak node cannot dominate, or components on a circle."""
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
    ranks = vectors.argsort(axis=0, kind="stable").argsort(axis=0)
    return np.asarray(np.sqrt(3.0) * (2.0 * ranks / (size - 1) - 1.0))


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
