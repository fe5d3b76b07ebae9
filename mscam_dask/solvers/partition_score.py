"""Partition scores and their comparison, from the reference graphs of the views.

See docs/decisions/0011, 0068 and 0069.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.incomplete import PresentSamples
from mscam_dask.linalg.laplacian import graph_from_neighbors, symmetric_affinity
from mscam_dask.linalg.neighbor_information import (
    RandomWalk,
    adjusted_information,
    evidence,
    information,
    modularity,
    random_walk,
    reliability,
)
from mscam_dask.linalg.neighbors import nearest_neighbors
from mscam_dask.linalg.scaling import RowTransform, fit_transform_from_moments, safe_exponent
from mscam_dask.solvers.graph_update import select_neighbors
from mscam_dask.solvers.row_blocks import (
    RowReader,
    ViewShape,
    moments_of_rows,
    row_blocks,
)
from mscam_dask.types.parameters import Parameters, Scale
from mscam_dask.types.rules import RULES


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionScore:
    """Information of the views on a partition, in nats."""

    view_scores: tuple[float, ...]  # of the reference graphs of each view
    entropy: float  # of the clusters, the upper limit of the information
    joint: float  # of the reference graphs of all views together

    @property
    def score(self) -> float:
        """Cross-view information, in nats."""
        return mean_score(self.view_scores)

    @property
    def reliability(self) -> float:
        """Uncertainty coefficient U: share of the entropy that all neighbors explain, 0 … 1."""
        return reliability(self.joint, self.entropy)

    @property
    def adjusted(self) -> float:
        """Adjusted information, in nats: the score times (1 + U³) / 2."""
        return adjusted_information(self.score, self.joint, self.entropy)


def is_better(later: PartitionScore, earlier: PartitionScore, parameters: Parameters) -> bool:
    """Whether the later partition is better by more than a tie."""
    now, before = _compared(later, earlier)
    return now > before + parameters.constants.score_tie * abs(before)


def is_worse(later: PartitionScore, earlier: PartitionScore, share: float) -> bool:
    """Whether the later partition is worse by more than a share of the score of the earlier one."""
    now, before = _compared(later, earlier)
    return now < before - share * abs(before)


def argbest(partition_scores: Sequence[PartitionScore]) -> int:
    """Index of the best partition, by information, adjusted if that differs clearly."""
    by_score = max(range(len(partition_scores)), key=lambda i: partition_scores[i].score)
    by_adjusted = max(range(len(partition_scores)), key=lambda i: partition_scores[i].adjusted)
    now, before = _compared(partition_scores[by_adjusted], partition_scores[by_score])
    return by_adjusted if now > before else by_score


def _compared(later: PartitionScore, earlier: PartitionScore) -> tuple[float, float]:
    """Adjusted information of both if clearly different, else information (docs/decisions/0069)."""
    lower, higher = sorted((later.adjusted, earlier.adjusted))
    if higher > (1.0 + RULES.clear_difference) * lower:
        return later.adjusted, earlier.adjusted
    return later.score, earlier.score


def is_nearly_perfect(score: float, parameters: Parameters) -> bool:
    """Whether a partition has nearly the information log c, the most that c clusters can have."""
    return score >= RULES.nearly_perfect * math.log(parameters.n_clusters)


def mean_score(view_scores: Sequence[float]) -> float:
    """Exactly rounded mean over views, independent of their order."""
    return math.fsum(view_scores) / len(view_scores)


_SCALES: tuple[Scale, ...] = ("unit", "standard")


@dataclasses.dataclass(frozen=True, slots=True)
class ReferenceGraphs:
    """Reference graphs of one view: symmetric, nonnegative, (n, n) CSR each."""

    graphs: tuple[csr_array[np.float64], ...]  # (m, m), of the samples that the view has
    present: PresentSamples | None = None  # these samples; None for all
    weight: float = 1.0  # in mean scores, in proportion to the number of its samples

    def own(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Labels of the samples that the view has."""
        return labels if self.present is None else labels[self.present.samples]


def reference_graphs(
    read: RowReader,
    shape: ViewShape,
    n_neighbors: int,
    *,
    dtype: type[np.floating[Any]] = np.float64,
) -> ReferenceGraphs:
    """Reference graphs of one view: adaptive-neighbor graphs, Eq. (29), of its raw rows.

    Feature views have two (unit rows, standardized columns), distance and kernel views one. The
    search is exact, in the precision `dtype`; the transformed view is held in memory once.
    """
    n = shape.n_samples
    if shape.view_type != "features":
        rows = np.empty((n, n))
        for start, stop in row_blocks(n, n):
            rows[start:stop] = read(start, stop)
        graphs = [_graph_from_distances(_pair_distances(rows, shape), n_neighbors)]
    else:
        moments = moments_of_rows(read, 0, n, shape.n_features)
        graphs = []
        for scale in _SCALES:
            transform = fit_transform_from_moments(scale, moments)
            rows = _transformed(read, shape, transform, dtype)
            graphs.append(_graph_from_rows(rows, n_neighbors))
    return ReferenceGraphs(tuple(csr_array(graph.astype(dtype)) for graph in graphs))


def view_scores(view: ReferenceGraphs, partitions: Sequence[NDArray[np.int64]]) -> list[float]:
    """Information of a view on each partition (n,): the highest of its reference graphs."""
    return [score for score, _ in _best_informed(view, partitions)]


def view_evidence(
    view: ReferenceGraphs,
    partitions: Sequence[NDArray[np.int64]],
    rows: slice | NDArray[np.int64] = slice(None),
) -> list[tuple[float, NDArray[np.float32]]]:
    """`view_scores`, each with the evidence (m, c) of that graph for the clusters of some rows.

    A view has no evidence, which is 0, for samples that it does not have.
    """
    best = _best_informed(view, partitions)
    if view.present is None:
        return [
            (score, evidence(walk, labels, rows))
            for labels, (score, walk) in zip(partitions, best, strict=True)
        ]
    positions = view.present.positions[rows]
    has = positions >= 0
    found = []
    for labels, (score, walk) in zip(partitions, best, strict=True):
        n_clusters = int(labels.max()) + 1
        of_rows = np.zeros((len(positions), n_clusters), dtype=np.float32)
        of_rows[has] = evidence(walk, view.own(labels), positions[has], n_clusters=n_clusters)
        found.append((score, of_rows))
    return found


def _best_informed(
    view: ReferenceGraphs, partitions: Sequence[NDArray[np.int64]]
) -> list[tuple[float, RandomWalk]]:
    """Highest information on each partition, with the random walk on that graph."""
    walks = [random_walk(graph) for graph in view.graphs]
    return [
        max(
            ((view.weight * information(walk, view.own(labels)), walk) for walk in walks),
            key=operator.itemgetter(0),
        )
        for labels in partitions
    ]


def view_modularity(view: ReferenceGraphs, labels: NDArray[np.int64]) -> float:
    """Modularity of a partition (n,): the highest of the reference graphs of a view."""
    return max(modularity(graph, view.own(labels)) for graph in view.graphs)


def _transformed(
    read: RowReader,
    shape: ViewShape,
    transform: RowTransform,
    dtype: type[np.floating[Any]],
) -> NDArray[Any]:
    rows = np.empty((shape.n_samples, shape.n_features), dtype=dtype)
    for start, stop in row_blocks(shape.n_samples, shape.n_features):
        rows[start:stop] = transform.apply(read(start, stop))
    return rows


def _graph_from_rows(rows: NDArray[Any], n_neighbors: int) -> csr_array[np.float64]:
    wanted = min(n_neighbors + 1, len(rows) - 1)
    indices, distances = nearest_neighbors(rows, wanted)
    return _graph(indices, distances, n_neighbors)


def _pair_distances(rows: NDArray[np.float64], shape: ViewShape) -> NDArray[np.float64]:
    """Distances of a distance view; squared distances of a kernel view."""
    exponent = int(safe_exponent(np.abs(rows).max()))
    if exponent:  # one factor for all distances changes no neighbor and no weight
        rows = np.ldexp(rows, -exponent)
    if shape.view_type == "distance":
        return np.maximum(rows, 0.0)  # validation accepts rounding below zero
    diagonal = rows.diagonal()
    return np.maximum(diagonal[:, None] + diagonal - rows - rows.T, 0.0)


def _graph_from_distances(
    distances: NDArray[np.float64], n_neighbors: int
) -> csr_array[np.float64]:
    n = len(distances)
    wanted = min(n_neighbors + 1, n - 1)
    others = distances.copy()
    np.fill_diagonal(others, np.inf)
    indices = np.argsort(others, axis=1, kind="stable")[:, :wanted].astype(np.int64)
    return _graph(indices, np.take_along_axis(others, indices, axis=1), n_neighbors)


def _graph(
    indices: NDArray[np.int64], distances: NDArray[np.float64], n_neighbors: int
) -> csr_array[np.float64]:
    chosen, weights = select_neighbors(indices, distances, min(n_neighbors, indices.shape[1]))
    return symmetric_affinity(graph_from_neighbors(chosen, weights))
