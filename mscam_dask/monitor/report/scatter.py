"""Scatter plots and graph drawings: the drawn samples, their places in the plane, and one path for each cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mscam_dask.linalg.eigensolver import bottom_eigenpairs
from mscam_dask.linalg.laplacian import connected_components, laplacian

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = [
    "DRAW_LIMIT",
    "DRAW_SEED",
    "Dots",
    "Drawing",
    "EdgePath",
    "Scatter",
    "contracted_graph",
    "draw_samples",
    "edge_paths",
    "graph_layout",
    "principal_planes",
    "scatter",
]

_PLANES = 3

SIDE = 1000
_MARGIN = 30
_EDGE_LIMIT = 8000
_NAMED_CLUSTERS = 60


@dataclass(frozen=True)
class Dots:
    """Samples of one cluster: a path of dots, and the position of the cluster number."""

    cluster: int
    path: str
    label_x: int
    label_y: int
    is_named: bool


@dataclass(frozen=True)
class EdgePath:
    """Lines between samples of one cluster; cluster −1: between clusters."""

    cluster: int
    path: str


@dataclass(frozen=True, eq=False)
class Scatter:
    """A plot.

    Attributes
    ----------
    dots
    planes : list of (2m,) lists
        x and y of every drawn sample in each plane, as integers.
    frames : list of (3,) lists
        Coordinates of the middle of each plane, and the length of one unit of `planes`; y points down
        in these.
    plane_names
    """

    dots: tuple[Dots, ...]
    planes: list[list[int]]
    frames: list[list[float]]
    plane_names: tuple[str, ...]


def principal_planes(
    values: NDArray[np.float64],
) -> tuple[list[NDArray[np.float64]], tuple[str, ...]]:
    """Project samples on pairs of principal axes, without distortion.

    Parameters
    ----------
    values : (m, r)
        NaN for samples that a view does not have.

    Returns
    -------
    planes : list of (m, 2)
        NaN for these.
    names : tuple of str
        Axes of each plane.
    """
    has = ~np.isnan(values).any(axis=1)
    if not has.all():
        planes, names = principal_planes(values[has]) if has.any() else ([np.zeros((0, 2))], ("",))
        spread = [np.full((len(values), 2), np.nan) for _ in planes]
        for all_rows, plane in zip(spread, planes, strict=True):
            all_rows[has] = plane
        return spread, names
    centered = values - values.mean(axis=0)
    left, lengths, right = np.linalg.svd(centered, full_matrices=False)
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])
    scores = left * lengths * signs
    if scores.shape[1] < 2:
        scores = np.pad(scores, ((0, 0), (0, 2 - scores.shape[1])))
    starts = range(0, min(2 * _PLANES, scores.shape[1] - 1), 2)
    planes = [scores[:, start : start + 2] for start in starts]
    return planes, tuple(f"axes {start + 1} and {start + 2}" for start in starts)


def scatter(
    planes: list[NDArray[np.float64]], labels: NDArray[np.int64], plane_names: tuple[str, ...]
) -> Scatter:
    """Place samples in a plot whose axes have the same scale.

    Parameters
    ----------
    planes : list of (m, 2)
        Samples in the order of clusters.
    labels : (m,)
        Ascending.
    plane_names
    """
    positions = [_positions(plane) for plane in planes]
    clusters, starts = np.unique(labels, return_index=True)
    pieces = np.split(positions[0], starts[1:])
    return Scatter(
        dots=tuple(
            _dots(int(cluster), piece, is_named=len(clusters) <= _NAMED_CLUSTERS)
            for cluster, piece in zip(clusters, pieces, strict=True)
        ),
        planes=[plane.ravel().tolist() for plane in positions],
        frames=[_frame(plane) for plane in planes],
        plane_names=plane_names,
    )


def _positions(plane: NDArray[np.float64]) -> NDArray[np.int64]:
    """Positions in the plot, outside of it for NaN."""
    has = ~np.isnan(plane).any(axis=1)
    if not has.all():
        positions = np.full(plane.shape, -SIDE, dtype=np.int64)
        if has.any():
            positions[has] = _positions(plane[has])
        return positions
    *middle, length = _frame(plane)
    offsets = (plane - np.array(middle)) / length
    return np.asarray(np.rint(SIDE / 2 + offsets * [1, -1]), dtype=np.int64)


def _frame(plane: NDArray[np.float64]) -> list[float]:
    """Middle of a plane, and the length of one unit of the plot."""
    has = ~np.isnan(plane).any(axis=1)
    if not has.any():
        return [0.0, 0.0, 1.0]
    low, high = plane[has].min(axis=0), plane[has].max(axis=0)
    span = max(float((high - low).max()), 1e-300)
    middle = ((low + high) / 2).tolist()
    return [*middle, span / (SIDE - 2 * _MARGIN)]


def _dots(cluster: int, positions: NDArray[np.int64], *, is_named: bool) -> Dots:
    seen = positions[positions[:, 0] >= 0]
    positions = seen if len(seen) else positions  # samples that the view has
    middle = np.median(positions, axis=0)
    x, y = positions[((positions - middle) ** 2).sum(axis=1).argmin()]
    path = "".join(f"M{x} {y}h0" for x, y in positions.tolist())
    return Dots(cluster, path, int(x), int(y), is_named)


def edge_paths(
    graph: csr_array[np.float64], plot: Scatter, labels: NDArray[np.int64]
) -> tuple[tuple[EdgePath, ...], int, int]:
    """Paths of the heaviest edges, by cluster.

    Parameters
    ----------
    graph : (m, m) CSR
        Symmetric.
    plot
        Plot of the same m samples.
    labels : (m,)

    Returns
    -------
    paths, n_drawn, n_edges
    """
    entries = graph.tocoo()
    start, end = entries.coords
    upper = np.flatnonzero(start < end)
    n_edges = len(upper)
    if n_edges > _EDGE_LIMIT:
        heavy = np.argsort(-entries.data[upper], kind="stable")[:_EDGE_LIMIT]
        upper = np.sort(upper[heavy])
    start, end = start[upper], end[upper]
    owner = np.where(labels[start] == labels[end], labels[start], -1)
    positions = np.array(plot.planes[0]).reshape(-1, 2)
    paths = []
    for cluster in np.unique(owner):
        own = owner == cluster
        first, second = positions[start[own]], positions[end[own]]
        ends = np.hstack((first, second - first))
        paths.append(EdgePath(int(cluster), "".join(f"M{x} {y}l{u} {v}" for x, y, u, v in ends)))
    return tuple(paths), len(upper), n_edges


DRAW_LIMIT = 2000
"""Size of the random sample. The least certain samples and one of each cluster are added."""

DRAW_SEED = 0


@dataclass(frozen=True, eq=False)
class Drawing:
    """Samples of the plots.

    Attributes
    ----------
    rows : (m,) int64
        Ordered by cluster, then by row.
    n_random
        Size of the random sample; n if all samples are shown.
    """

    rows: NDArray[np.int64]
    n_random: int


def draw_samples(
    labels: NDArray[np.int64], listed: NDArray[np.int64], *, limit: int = DRAW_LIMIT
) -> Drawing:
    """Select all samples, or a random sample, the listed rows, and one row of each cluster.

    Parameters
    ----------
    labels : (n,)
    listed : (l,)
        Rows that are always included.
    limit
        Size of the random sample, and of the rows added for clusters that it does not contain.
    """
    n_samples = len(labels)
    if n_samples <= limit:
        selected, n_random = np.arange(n_samples), n_samples
    else:
        rng = np.random.default_rng(DRAW_SEED)
        random = rng.choice(n_samples, size=limit, replace=False)
        first = np.unique(labels, return_index=True)[1]
        missing = first[~np.isin(labels[first], labels[random])][:limit]
        selected, n_random = np.unique(np.concatenate((random, listed, missing))), limit
    return Drawing(selected[np.lexsort((selected, labels[selected]))].astype(np.int64), n_random)


def contracted_graph(
    graph: csr_array[np.float64], rows: NDArray[np.int64]
) -> csr_array[np.float64]:
    """Graph between some samples, each of which represents the samples nearest to it in the graph.

    Parameters
    ----------
    graph : (n, n) CSR
    rows : (m,)

    Returns
    -------
    (m, m) CSR
        Symmetric, without a diagonal: total weight between the samples that two rows represent.
        With all samples, (A + Aᵀ)/2. Connected components stay connected.

    Notes
    -----
    The nearest sample is the fewest edges away. Samples that no row can reach are omitted.
    """
    from scipy.sparse import coo_array, csr_array
    from scipy.sparse.csgraph import dijkstra

    symmetric: csr_array[np.float64] = csr_array(0.5 * graph + 0.5 * graph.T)
    size = len(rows)
    if size == symmetric.shape[0]:
        nearest = np.empty(size, dtype=np.int64)
        nearest[rows] = np.arange(size)
    else:
        position = np.full(symmetric.shape[0] + 1, -1)
        position[rows] = np.arange(size)
        _, _, sources = dijkstra(
            symmetric, indices=rows, min_only=True, unweighted=True, return_predecessors=True
        )
        nearest = position[np.where(sources < 0, -1, sources)]
    entries = symmetric.tocoo()
    start, end = nearest[entries.coords[0]], nearest[entries.coords[1]]
    kept = (start >= 0) & (end >= 0) & (start != end)
    pairs = (entries.data[kept], (start[kept], end[kept]))
    return csr_array(coo_array(pairs, shape=(size, size)))


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
    Ranks in eigenvectors of the Laplacian, followed by the forces of Fruchterman and Reingold. Each step takes
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
    """Ranks in the second and third eigenvector of the Laplacian, or components on a circle.

    A weakly attached node may have nearly all of an eigenvector; ranks keep it near the others.
    """
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
