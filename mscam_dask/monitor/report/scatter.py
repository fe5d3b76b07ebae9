"""Scatter plots of the drawn samples: one compact path a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["Dots", "EdgePath", "Scatter", "edge_paths", "principal_planes", "scatter"]

_PLANES = 3
_TIGHT = 1.5  # enlargement below which samples are shown where they are

SIDE = 1000
_MARGIN = 30
_EDGE_LIMIT = 8000
_NAMED_CLUSTERS = 60


@dataclass(frozen=True)
class Dots:
    """The samples of one cluster: a path of dots, and where its number stands."""

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
        x and y of every drawn sample in each plane that can be chosen, in whole numbers.
    plane_names
    """

    dots: tuple[Dots, ...]
    planes: list[list[int]]
    plane_names: tuple[str, ...]


def principal_planes(
    values: NDArray[np.float64], labels: NDArray[np.int64]
) -> tuple[list[NDArray[np.float64]], tuple[str, ...]]:
    """Project samples on pairs of principal axes.

    Parameters
    ----------
    values : (m, r)
    labels : (m,)
        Ascending.

    Returns
    -------
    planes : list of (m, 2)
    names : tuple of str
        Which axes, and how much the samples' distances to the centre of their cluster are
        enlarged.

    Notes
    -----
    An embedding that was fitted to clusters draws each together to almost a point. What is left
    of its shape is seen only when deviations from the centre are enlarged; the last plane shows
    the first two axes as they are.
    """
    centred = values - values.mean(axis=0)
    left, lengths, right = np.linalg.svd(centred, full_matrices=False)
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])
    scores = left * lengths * signs
    if scores.shape[1] < 2:
        scores = np.pad(scores, ((0, 0), (0, 2 - scores.shape[1])))
    planes, names = [], []
    for first in range(0, min(2 * _PLANES, scores.shape[1] - 1), 2):
        plane = scores[:, first : first + 2]
        times = _enlargement(plane, labels)
        axes = f"axes {first + 1} and {first + 2}"
        if times > 1:
            planes.append(_enlarged(plane, labels, times))
            names.append(f"{axes}, deviations \u00d7 {times}")
        else:
            planes.append(plane)
            names.append(axes)
    if not np.array_equal(planes[0], scores[:, :2]):
        planes.append(scores[:, :2])
        names.append("axes 1 and 2, true to scale")
    return planes, tuple(names)


def _centres(plane: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean of the own cluster, for each sample."""
    _, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
    sums = np.column_stack([np.bincount(inverse, weights=column) for column in plane.T])
    return np.asarray((sums / counts[:, None])[inverse])


def _enlargement(plane: NDArray[np.float64], labels: NDArray[np.int64]) -> int:
    """How many times deviations fit into the room between centres; 1 where they fill it."""
    centres = _centres(plane, labels)
    deviation = np.hypot(*(plane - centres).T)
    spread = float(np.sqrt(np.ptp(centres, axis=0).prod() / max(len(np.unique(labels)), 1)))
    typical = float(np.quantile(deviation, 0.95))
    if not typical > 0 or spread / 2 < _TIGHT * typical:
        return 1
    return int(np.clip(round(spread / 2 / typical), 2, 1000))


def _enlarged(
    plane: NDArray[np.float64], labels: NDArray[np.int64], times: int
) -> NDArray[np.float64]:
    centres = _centres(plane, labels)
    return np.asarray(centres + times * (plane - centres))


def scatter(
    planes: list[NDArray[np.float64]], labels: NDArray[np.int64], plane_names: tuple[str, ...]
) -> Scatter:
    """Lay samples out, x to the right and y upwards, both axes with one scale.

    Parameters
    ----------
    planes : list of (m, 2)
        Samples in the order of clusters.
    labels : (m,)
        Ascending.
    plane_names
    """
    placed = [_placed(plane) for plane in planes]
    clusters, starts = np.unique(labels, return_index=True)
    pieces = np.split(placed[0], starts[1:])
    return Scatter(
        dots=tuple(
            _dots(int(cluster), piece, is_named=len(clusters) <= _NAMED_CLUSTERS)
            for cluster, piece in zip(clusters, pieces, strict=True)
        ),
        planes=[plane.ravel().tolist() for plane in placed],
        plane_names=plane_names,
    )


def _placed(plane: NDArray[np.float64]) -> NDArray[np.int64]:
    low, high = plane.min(axis=0), plane.max(axis=0)
    span = max(float((high - low).max()), 1e-300)
    unit = 0.5 + (plane - (low + high) / 2) / span
    unit[:, 1] = 1 - unit[:, 1]
    return np.asarray(np.rint(_MARGIN + unit * (SIDE - 2 * _MARGIN)), dtype=np.int64)


def _dots(cluster: int, places: NDArray[np.int64], *, is_named: bool) -> Dots:
    middle = np.median(places, axis=0)
    x, y = places[((places - middle) ** 2).sum(axis=1).argmin()]
    path = "".join(f"M{x} {y}h0" for x, y in places.tolist())
    return Dots(cluster, path, int(x), int(y), is_named)


def edge_paths(
    graph: csr_array[np.float64], plot: Scatter, labels: NDArray[np.int64]
) -> tuple[tuple[EdgePath, ...], int, int]:
    """Draw the heaviest edges.

    Parameters
    ----------
    graph : (m, m) CSR
        Symmetric.
    plot
        Of the same m samples.
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
    places = np.array(plot.planes[0]).reshape(-1, 2)
    paths = []
    for cluster in np.unique(owner):
        chosen = owner == cluster
        ends = np.hstack((places[start[chosen]], places[end[chosen]] - places[start[chosen]]))
        paths.append(EdgePath(int(cluster), "".join(f"M{x} {y}l{u} {v}" for x, y, u, v in ends)))
    return tuple(paths), len(upper), n_edges
