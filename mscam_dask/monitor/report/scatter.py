"""Scatter plots of the drawn samples: one path for each cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["Dots", "EdgePath", "Scatter", "edge_paths", "principal_planes", "scatter"]

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
