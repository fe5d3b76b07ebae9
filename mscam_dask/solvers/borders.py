"""Borders between clusters: tests for a valley in the density of the samples between two of them.

A border is tested along the discriminant of two clusters, which is fitted on other samples than those
it is tested on. If the density is log-concave along it, as for one normal, uniform or exponential
cluster that was cut in two, three adjacent intervals of equal length at the cut have masses with
m_C² ≥ m_L m_R. A border holds if that is rejected. See docs/method.md.

Values that lie on a lattice (0 and 1, grades, counts) have valleys between any two of them. The samples
are therefore spread over the largest change of the discriminant by one step up in one column of a
view and one step down in another, as between two categories.

All borders of a partition, and of every coarser one, come from one (n, K) matrix of discriminant
functions of K cells, the parts of the clusters.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.special import gammaln

from mscam_dask.solvers.lda import ClassSums, class_sums
from mscam_dask.types.result import SMALLEST, Borders
from mscam_dask.types.rules import RULES

# A border is tested between whole clusters, and between their halves, quarters and eighths.
_N_SCALES = 4

# Samples of the smaller half of a part that is halved.
_LEAST = 10

_N_FOLDS = 5

# Differences of discriminant functions, as a share of the largest values, that are rounding.
_ROUNDING = 1e3 * float(np.finfo(np.float64).eps)

# Steps of less than this share of the standard deviation of a column leave no valley.
_LEAST_STEP = 0.1

# Borders of each cluster that are tested: with the clusters nearest to it.
_N_NEAREST = 12

# Halves of three equal intervals, in units of the distance from the cut to the smaller side.
_EDGES = np.array([-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5])


def valley_p_value(left: int, center: int, right: int, depth: float = RULES.depth) -> float:
    """Mid p-value of a valley in three adjacent intervals of equal length.

    The hypothesis is m_C² ≥ ρ² m_L m_R with the depth ρ. On its boundary (m_L, m_C, m_R) ∝ (1, ρθ, θ²),
    so that given N = L + C + R and S = C + 2R the count C has the weights N! ρ^C / (L! C! R!) whatever
    θ is: the exact test of Hardy-Weinberg proportions, where ρ = 2.

    J. Graffelman, V. Moreno, doi:10.1515/sagmb-2012-0039.
    """
    n, s = left + center + right, center + 2 * right
    c = np.arange(s % 2, min(s, 2 * n - s) + 1, 2)
    r = (s - c) // 2
    weights = c * np.log(depth) - gammaln(n - c - r + 1.0) - gammaln(c + 1.0) - gammaln(r + 1.0)
    likely = np.exp(weights - weights.max())
    return float((likely[c < center].sum() + 0.5 * likely[c == center].sum()) / likely.sum())


@dataclasses.dataclass(frozen=True, slots=True)
class Points:
    """Samples as points: the principal coordinates of all views side by side."""

    rows: NDArray[np.float64]  # (n, p)
    widths: tuple[int, ...]  # columns of each view
    # of each view, changes (q, p_v) of a point by one step of a column whose values lie on a lattice
    steps: tuple[NDArray[np.float64], ...] = ()

    @property
    def views(self) -> list[NDArray[np.float64]]:
        """Points (n, p_v) of each view."""
        return np.split(self.rows, np.cumsum(self.widths)[:-1], axis=1)

    @property
    def step_covariance(self) -> NDArray[np.float64] | None:
        """Covariance (p, p) of values that are spread evenly over their steps; None without steps."""
        if not any(map(len, self.steps)):
            return None
        return np.asarray(scipy.linalg.block_diag(*(of.T @ of / 12.0 for of in self.steps)))


@np.errstate(under="ignore")
def column_steps(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Step (d,) of the lattice of each column of rows (m, d): the median distance of its values to the nearest other value.

    0 where it is small in the column, as for values that are not on a lattice.
    """
    exponents = np.frexp(np.abs(rows).max(axis=0))[1]
    rows = np.ldexp(rows, -exponents)  # whose squares neither under- nor overflow
    gaps = np.diff(np.sort(rows, axis=0), axis=0)
    # the gap below and above each value; equal values share those of their group
    below, above = np.full(rows.shape, np.inf), np.full(rows.shape, np.inf)
    for row in range(1, len(rows)):
        below[row] = np.where(gaps[row - 1] > 0.0, gaps[row - 1], below[row - 1])
        above[-row - 1] = np.where(gaps[-row] > 0.0, gaps[-row], above[-row])
    steps = np.median(np.minimum(below, above), axis=0)
    on_lattice = np.isfinite(steps) & (steps > _LEAST_STEP * rows.std(axis=0))
    return np.ldexp(np.where(on_lattice, steps, 0.0), exponents)


def borders(points: Points, labels: NDArray[np.int64], n_clusters: int) -> Borders:
    """Borders of a partition (n,) of points into clusters 0 … c−1; those of a cluster without samples do not hold."""
    here, labels = np.unique(labels, return_inverse=True)
    tested = _Tested(points, labels)
    p_values = np.ones((n_clusters, n_clusters))
    p_values[np.ix_(here, here)] = 0.0
    np.fill_diagonal(p_values, 0.0)
    counts = np.zeros((n_clusters, n_clusters, 3), dtype=np.int64)
    for i, j in tested.pairs():
        first, second = here[i], here[j]
        p_value, found = tested.border(i, j)
        p_values[first, second] = p_values[second, first] = p_value
        counts[first, second], counts[second, first] = found, found[::-1]
    sizes = np.zeros(n_clusters, dtype=np.int64)
    sizes[here] = tested.sizes
    return Borders(p_values, counts, sizes)


def largest_p_value(points: Points, labels: NDArray[np.int64]) -> float:
    """Largest p-value of the borders of a partition; the first that does not hold ends the search."""
    tested, largest = _Tested(points, labels), 0.0
    for i, j in tested.pairs():
        largest = max(largest, tested.border(i, j)[0])
        if largest > RULES.level:
            break
    return largest


class _Tested:
    """Cells of a partition and their discriminant functions, from which every border follows."""

    def __init__(self, points: Points, labels: NDArray[np.int64]) -> None:
        self.sizes = np.bincount(labels)
        cells, self._parts = nested_cells(points.rows, labels)
        self._of = cell_functions(points.rows, cells, points.step_covariance)
        self._rounding = _ROUNDING * np.abs(self._of.values).max()
        loadings = np.split(self._of.loadings, np.cumsum(points.widths)[:-1])
        self._steps = [of @ own for of, own in zip(points.steps, loadings, strict=False) if len(of)]
        facing = [_facing(self._of, parts) for parts in self._parts]
        self._neighbors = [neighbors for neighbors, _ in facing]
        self._distances = facing[0][1]

    def pairs(self) -> list[tuple[int, int]]:
        """Pairs of clusters, each with the nearest ones, in the order of their distance."""
        distances = self._distances + np.diag(np.full(len(self.sizes), np.inf))
        rank = np.argsort(np.argsort(distances, axis=1, kind="stable"), axis=1, kind="stable")
        near = (rank < _N_NEAREST) | (rank.T < _N_NEAREST)
        i, j = np.nonzero(np.triu(near, 1))
        order = np.argsort(distances[i, j], kind="stable")
        return list(zip(i[order].tolist(), j[order].tolist(), strict=True))

    def border(self, first: int, second: int) -> tuple[float, NDArray[np.int64]]:
        """Largest p-value of all scales, and its counts left of, at and right of the border."""
        if min(self.sizes[first], self.sizes[second]) < SMALLEST:
            return 1.0, np.zeros(3, dtype=np.int64)
        scales = zip(self._parts, self._neighbors, strict=True)
        found = [self._of_scale(*scale, first, second) for scale in scales]
        return max(found, key=lambda border: border[0])

    def _of_scale(
        self, parts: NDArray[np.int64], neighbors: NDArray[np.bool_], first: int, second: int
    ) -> tuple[float, NDArray[np.int64]]:
        """p-value and counts of a border between the facing parts of two clusters."""
        of, clusters, none = self._of, self._parts[0], np.zeros(3, dtype=np.int64)
        in_first, in_second = clusters == first, clusters == second
        touch = neighbors[np.ix_(parts[in_first], parts[in_second])]
        if not touch.any():
            return 0.0, none
        a, b = in_first.copy(), in_second.copy()
        a[in_first], b[in_second] = touch.any(axis=1), touch.any(axis=0)
        is_swapped = of.sizes[a].sum() < of.sizes[b].sum()
        if is_swapped:
            a, b = b, a
        if of.sizes[b].sum() < 2:  # it has no function where it is tested
            return 1.0, none
        weights = np.where(b, of.sizes, 0.0) / of.sizes[b].sum()
        weights -= np.where(a, of.sizes, 0.0) / of.sizes[a].sum()
        rows = np.flatnonzero((a | b)[of.cells])
        score, in_b = of.values[rows] @ weights, b[of.cells[rows]]
        low, high = score[~in_b], score[in_b]
        at_low, at_high = np.median(low), np.median(high)
        distance = at_high - at_low
        if distance <= self._rounding:
            return 1.0, none
        variance = (len(low) * low.var() + len(high) * high.var()) / max(1, len(score) - 2)
        middle = 0.5 * (at_low + at_high) + variance / distance * np.log(len(low) / len(high))
        middle = min(middle, at_high - 0.25 * distance)
        edges = middle + (at_high - middle) * _EDGES
        if not self._steps:
            halves = np.histogram(score, edges)[0]
        else:
            step = max(np.ptp(np.append(of @ weights, 0.0)) for of in self._steps)
            halves = np.rint(np.diff(_samples_below(score, edges, step))).astype(np.int64)
        left, center, right = halves.reshape(3, 2).sum(axis=1).tolist()
        counts = np.array([right, center, left] if is_swapped else [left, center, right])
        # a heavy tail is not log-concave and has no valley
        if halves[2:4].min() >= min(halves[:2].max(), halves[4:].max()):
            return 1.0, counts
        return valley_p_value(left, center, right), counts


def _samples_below(
    score: NDArray[np.float64], edges: NDArray[np.float64], width: float
) -> NDArray[np.float64]:
    """Number of samples below each edge, each spread evenly over an interval of this width."""
    shares = 0.5 + (edges[:, None] - score) / max(width, _ROUNDING * (edges[-1] - edges[0]))
    return np.asarray(np.clip(shares, 0.0, 1.0).sum(axis=1))


def nested_cells(
    points: NDArray[np.float64], labels: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cells (n,) of the finest scale, and the part (4, K) of each at every scale, of which the first is the clusters.

    Each part with samples enough is halved at its mean along its first principal axis.
    """
    parts = [np.flatnonzero(labels == cluster) for cluster in range(int(labels.max()) + 1)]
    numbers = [labels]
    for _ in range(_N_SCALES - 1):
        parts = [half for rows in parts for half in _halves(points, rows)]
        number = np.empty(len(labels), dtype=np.int64)
        for index, rows in enumerate(parts):
            number[rows] = index
        numbers.append(number)
    first = np.array([rows[0] for rows in parts])
    return numbers[-1], np.stack([number[first] for number in numbers])


def _halves(points: NDArray[np.float64], rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    if len(rows) < 2 * _LEAST:
        return [rows]
    centered = points[rows] - points[rows].mean(axis=0)
    axis = centered[np.argmax(np.einsum("ij,ij->i", centered, centered))]
    for _ in range(10):  # power iteration
        axis = centered.T @ (centered @ axis)
        length = np.linalg.norm(axis)
        if length == 0.0:
            return [rows]
        axis = axis / length
    above = centered @ axis > 0
    return [half for half in (rows[~above], rows[above]) if len(half)]


@dataclasses.dataclass(frozen=True, slots=True)
class CellFunctions:
    """Cross-fitted linear discriminant functions g_k(x) = xᵀ S⁻¹ m_k − m_kᵀ S⁻¹ m_k / 2 of K cells."""

    values: NDArray[np.float64]  # (n, K), with means m and covariance S of the other folds
    cells: NDArray[np.int64]  # (n,)
    sizes: NDArray[np.float64]  # (K,)
    loadings: NDArray[np.float64]  # (p, K) S⁻¹ m_k of all samples
    gram: NDArray[np.float64]  # (K, K) m_kᵀ S⁻¹ m_l of all samples


def cell_functions(
    points: NDArray[np.float64],
    cells: NDArray[np.int64],
    step_covariance: NDArray[np.float64] | None = None,
) -> CellFunctions:
    """Discriminant functions of cells (n,), none empty, of points (n, p), spread over folds by their lengths, not their order.

    The `step_covariance` of the points is added to the covariance within cells.
    """
    n, k = len(points), int(cells.max()) + 1
    squares = np.einsum("ij,ij->i", points, points)
    fold = np.empty(n, dtype=np.int64)
    fold[np.lexsort((squares, cells))] = np.arange(n) % _N_FOLDS
    folds = [np.flatnonzero(fold == number) for number in range(_N_FOLDS)]
    own = [class_sums(points[rows], cells[rows], k) for rows in folds]
    total = functools.reduce(ClassSums.merge, own)
    values = np.empty((n, k))
    for rows, left_out in zip(folds, own, strict=True):
        rest = total.merge(left_out, -1)
        others = np.flatnonzero(fold != fold[rows[0]]) if len(rows) else rows
        if len(rows):
            means, loadings = _discriminants(points, cells, squares, others, rest, step_covariance)
            values[rows] = points[rows] @ loadings - 0.5 * np.einsum("kp,pk->k", means, loadings)
    means, loadings = _discriminants(points, cells, squares, np.arange(n), total, step_covariance)
    return CellFunctions(values, cells, total.sizes, loadings, means @ loadings)


def _discriminants(
    points: NDArray[np.float64],
    cells: NDArray[np.int64],
    squares: NDArray[np.float64],
    rows: NDArray[np.int64],
    of: ClassSums,
    step_covariance: NDArray[np.float64] | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means m (K, p) and S⁻¹ mᵀ (p, K), with S the covariance within cells, shrunk.

    O. Ledoit, M. Wolf, doi:10.1016/S0047-259X(03)00096-4. A cell without samples has the mean of all.
    """
    mean = of.sums.sum(axis=0) / of.sizes.sum()
    means = np.where(of.sizes[:, None] > 0, of.sums / np.maximum(of.sizes, 1)[:, None], mean)
    p, free = len(mean), max(1, len(rows) - int(np.count_nonzero(of.sizes)))
    weighted = means * np.sqrt(of.sizes)[:, None]
    covariance = (of.squares - weighted.T @ weighted) / free
    mean_variance = float(np.trace(covariance)) / p
    own = cells[rows]
    products = (points @ means.T)[rows, own]
    residual = squares[rows] - 2.0 * products + np.einsum("ij,ij->i", means, means)[own]
    total = float(np.sum(covariance**2))
    spread = total / p - mean_variance**2
    noise = max(0.0, float(np.sum(residual**2)) / free**2 - total / free) / p
    share = min(1.0, noise / spread) if spread > 0.0 else 1.0
    covariance *= 1.0 - share
    # cells of equal points have no covariance: they are as far apart as rounding tells
    rounding, tiny = np.finfo(np.float64).eps * np.sqrt(p), np.finfo(np.float64).tiny
    least = 4.0 * rounding * np.trace(of.squares) / free + tiny
    covariance[np.diag_indices(p)] += max((share + 1e-9) * mean_variance, least)
    if step_covariance is not None:
        covariance += step_covariance
    factor = scipy.linalg.cho_factor(covariance, check_finite=False)
    return means, scipy.linalg.cho_solve(factor, means.T, check_finite=False)


def _facing(
    of: CellFunctions, parts: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Gabriel neighbors (q, q) among parts (K,) of the cells, and squared Mahalanobis distances of their means.

    Two parts are neighbors unless the mean of a third is in the ball over their means.
    """
    q = int(parts.max()) + 1
    weights = np.zeros((q, len(parts)))
    weights[parts, np.arange(len(parts))] = of.sizes
    weights /= weights.sum(axis=1, keepdims=True)
    gram = weights @ of.gram @ weights.T
    squared = np.diag(gram)[:, None] + np.diag(gram) - 2.0 * gram
    least = squared * (1.0 - 1e-9) - _ROUNDING * np.diag(gram).max()
    neighbors = np.ones((q, q), dtype=bool)
    for third in range(q):
        neighbors &= squared[:, [third]] + squared[[third], :] >= least
    neighbors[np.diag_indices(q)] = False
    return neighbors, squared


def reassigned(
    points: NDArray[np.float64], labels: NDArray[np.int64], n_rounds: int
) -> NDArray[np.int64]:
    """Partition after some rounds of y ← argmax_k g_k(x) + log n_k with cross-fitted functions.

    A classification EM of normal clusters with a common covariance; a round that would empty a cluster is not taken.
    """
    for _ in range(n_rounds):
        of = cell_functions(points, labels)
        new = np.argmax(of.values + np.log(of.sizes), axis=1).astype(np.int64)
        if len(np.unique(new)) < len(of.sizes) or np.array_equal(new, labels):
            break
        labels = new
    return labels
