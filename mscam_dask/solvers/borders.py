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
import itertools
from collections.abc import Sequence
from typing import Any

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

N_FOLDS = 5
"""Folds of samples, whose discriminants are fitted on the others."""

# Differences of discriminant functions, as a share of the largest values, that are rounding.
_ROUNDING = 1e3 * float(np.finfo(np.float64).eps)

# Steps of less than this share of the standard deviation of a column leave no valley.
_LEAST_STEP = 0.1

# Borders of each cluster that are tested: with the clusters nearest to it.
_N_NEAREST = 12

# Halves of three equal intervals, in units of the distance from the cut to the smaller side.
_EDGES = np.array([-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5])


def valley_p_value(left: int, center: int, right: int, depth: float) -> float:
    """Mid p-value of a valley in three adjacent intervals of equal length.

    The hypothesis is m_C² ≥ ρ² m_L m_R with the depth ρ. On its boundary (m_L, m_C, m_R) ∝ (1, ρθ, θ²),
    so that given N = L + C + R and T = C + 2R the count C has the weights N! ρ^C / (L! C! R!) whatever
    θ is: the exact test of Hardy-Weinberg proportions, where ρ = 2.

    J. Graffelman, V. Moreno, doi:10.1515/sagmb-2012-0039.
    """
    n, t = left + center + right, center + 2 * right
    c = np.arange(t % 2, min(t, 2 * n - t) + 1, 2)
    r = (t - c) // 2
    weights = c * np.log(depth) - gammaln(n - c - r + 1.0) - gammaln(c + 1.0) - gammaln(r + 1.0)
    likely = np.exp(weights - weights.max())
    return float((likely[c < center].sum() + 0.5 * likely[c == center].sum()) / likely.sum())


@dataclasses.dataclass(frozen=True, slots=True)
class JointPoints:
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
        return np.asarray(
            scipy.linalg.block_diag(*(steps.T @ steps / 12.0 for steps in self.steps))
        )


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


TestedPairs = list[tuple[int, int, float, NDArray[np.int64]]]
"""Pairs of clusters, each with the p-value of its border and the counts of samples."""


def borders(points: JointPoints, labels: NDArray[np.int64], n_clusters: int) -> Borders:
    """Borders of a partition (n,) of points into clusters 0 … c−1; those of a cluster without samples do not hold."""
    tested = tested_clusters(points, labels)
    return joined_borders(tested, [tested_pairs(tested, slice(None))], n_clusters)


def tested_pairs(tested: TestedClusters, some: slice) -> TestedPairs:
    """Borders of some of the pairs of clusters."""
    return [(i, j, *tested.border(i, j)) for i, j in tested.pairs()[some]]


def joined_borders(
    tested: TestedClusters, parts: Sequence[TestedPairs], n_clusters: int
) -> Borders:
    """Borders of a partition from those of all pairs."""
    here = tested.here
    p_values = np.ones((n_clusters, n_clusters))
    p_values[np.ix_(here, here)] = 0.0
    np.fill_diagonal(p_values, 0.0)
    counts = np.zeros((n_clusters, n_clusters, 3), dtype=np.int64)
    for i, j, p_value, found in itertools.chain.from_iterable(parts):
        first, second = here[i], here[j]
        p_values[first, second] = p_values[second, first] = p_value
        counts[first, second], counts[second, first] = found, found[::-1]
    sizes = np.zeros(n_clusters, dtype=np.int64)
    sizes[here] = tested.sizes
    return Borders(p_values, counts, sizes)


def largest_p_value(points: JointPoints, labels: NDArray[np.int64]) -> float:
    """Largest p-value of the borders of a partition; the first that does not hold ends the search."""
    tested, largest = tested_clusters(points, labels), 0.0
    for i, j in tested.pairs():
        largest = max(largest, tested.border(i, j)[0])
        if largest > RULES.level:
            break
    return largest


def tested_clusters(points: JointPoints, labels: NDArray[np.int64]) -> TestedClusters:
    """Clusters of a partition (n,) of points, whose borders are tested."""
    cells, parts = nested_cells(points.rows, labels)
    functions = cell_functions(points.rows, cells, points.step_covariance)
    return TestedClusters(points, labels, parts, functions)


class TestedClusters:
    """Clusters and their parts (4, K) at every scale, with the discriminant functions of K cells from which every border follows."""

    def __init__(
        self,
        points: JointPoints,
        labels: NDArray[np.int64],
        parts: NDArray[np.int64],
        functions: CellFunctions,
    ) -> None:
        self.here, self.sizes = np.unique(labels, return_counts=True)
        self._rounding = _ROUNDING * np.abs(functions.values).max()
        loadings = np.split(functions.loadings, np.cumsum(points.widths)[:-1])
        changes = [
            steps @ of_view
            for steps, of_view in zip(points.steps, loadings, strict=False)
            if len(steps)
        ]
        by_cell = functions.values[np.argsort(functions.cells, kind="stable")]
        self._scales = [_scale(functions, by_cell, changes, parts[0], own) for own in parts]

    def pairs(self) -> list[tuple[int, int]]:
        """Pairs of clusters, each with the nearest ones, in the order of their distance."""
        distances = self._scales[0].distances + np.diag(np.full(len(self.sizes), np.inf))
        rank = np.argsort(np.argsort(distances, axis=1, kind="stable"), axis=1, kind="stable")
        near = (rank < _N_NEAREST) | (rank.T < _N_NEAREST)
        i, j = np.nonzero(np.triu(near, 1))
        order = np.argsort(distances[i, j], kind="stable")
        return list(zip(i[order].tolist(), j[order].tolist(), strict=True))

    def border(self, first: int, second: int) -> tuple[float, NDArray[np.int64]]:
        """Largest p-value of all scales, and its counts left of, at and right of the border.

        Where it holds by all facing parts together, two of them with a bridge are tested alone. Where it does not hold, it may
        be curved: each two facing parts of the last scale are tested alone.
        """
        if min(self.sizes[first], self.sizes[second]) < SMALLEST:
            return 1.0, np.zeros(3, dtype=np.int64)
        facing = [(scale, scale.facing(first, second)) for scale in self._scales]
        found = [
            self._half_counts(scale, np.unique(pairs[:, 0]), np.unique(pairs[:, 1]))
            for scale, pairs in facing
            if len(pairs)
        ]
        if not found:
            return 0.0, np.zeros(3, dtype=np.int64)
        p_values = [_p_value(halves) for halves in found]
        if max(p_values) <= RULES.level:
            bridges = self._bridges(facing[:-1])  # the smallest parts have too few samples to tell
            found += bridges
            p_values += [_p_value(halves) for halves in bridges]
        largest = int(np.argmax(p_values))
        if p_values[largest] > RULES.level and (curved := self._curved(*facing[-1], first, second)):
            return curved
        return p_values[largest], _counts(found[largest])

    def _bridges(
        self, facing: Sequence[tuple[_Scale, NDArray[np.int64]]]
    ) -> list[NDArray[np.int64]]:
        """Counts of each two of several facing parts that have a bridge."""
        counts = [
            (self._half_counts(scale, pair[:1], pair[1:]), len(pairs))
            for scale, pairs in facing
            if len(pairs) > 1
            for pair in pairs
        ]
        return [halves for halves, n_pairs in counts if _is_bridge(halves, n_pairs)]

    def _curved(
        self, scale: _Scale, pairs: NDArray[np.int64], first: int, second: int
    ) -> tuple[float, NDArray[np.int64]] | None:
        """Largest p-value of pairs (m, 2) of facing parts, each tested alone, and its counts; None if not all hold.

        Each is multiplied by the number of pairs of parts of the two clusters. Both must have several parts.
        """
        own, others = np.bincount(scale.clusters)[[first, second]].tolist()
        if not len(pairs) or min(own, others) < 2:
            return None
        largest, counts = 0.0, np.zeros(3, dtype=np.int64)
        for pair in pairs:
            halves = self._half_counts(scale, pair[:1], pair[1:])
            p_value = own * others * _p_value(halves)
            if p_value > RULES.level:
                return None
            if p_value >= largest:
                largest, counts = p_value, _counts(halves)
        return largest, counts

    def _half_counts(
        self, scale: _Scale, a: NDArray[np.int64], b: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Samples (6,) of the halves of the three intervals, from some parts a of one cluster to some b of another one.

        Zeros if the parts have no discriminant. Symbols are those of docs/method.md.
        """
        n_a, n_b = scale.sizes[a].sum(), scale.sizes[b].sum()
        if n_a < n_b:
            return self._half_counts(scale, b, a)[::-1]
        none = np.zeros(6, dtype=np.int64)
        if n_b < 2:  # it has no function where it is tested
            return none
        scores_a, scores_b = (np.sort(scale.scores(side, a, b)) for side in (a, b))
        median_a, median_b = _median(scores_a), _median(scores_b)
        distance = median_b - median_a
        if distance <= self._rounding:
            return none
        centered = scores_a - scores_a.mean(), scores_b - scores_b.mean()
        variance = sum(float(side @ side) for side in centered) / max(1.0, n_a + n_b - 2.0)
        cut = 0.5 * (median_a + median_b) + variance / distance * np.log(n_a / n_b)
        cut = min(cut, median_b - 0.25 * distance)
        edges = cut + (median_b - cut) * _EDGES
        step = scale.longest_step(a, b)
        below = _samples_below(scores_a, edges, step) + _samples_below(scores_b, edges, step)
        return np.asarray(np.rint(below[1:] - below[:-1]), dtype=np.int64)


def _median(ascending: NDArray[np.float64]) -> float:
    return float(0.5 * (ascending[(len(ascending) - 1) // 2] + ascending[len(ascending) // 2]))


def _counts(halves: NDArray[np.int64]) -> NDArray[np.int64]:
    return halves[::2] + halves[1::2]


def _p_value(halves: NDArray[np.int64]) -> float:
    """p-value of a border; 1 for a heavy tail, which is not log-concave and has no valley."""
    if halves[2:4].min() >= min(halves[:2].max(), halves[4:].max()):
        return 1.0
    left, center, right = _counts(halves).tolist()
    return valley_p_value(left, center, right, RULES.depth)


def _is_bridge(halves: NDArray[np.int64], n_pairs: int) -> bool:
    """Whether two of several pairs of facing parts have more samples at their border than half of what a border allows.

    The hypothesis m_C² ≤ (ρ/2)² m_L m_R is rejected at the level divided by the number of pairs.
    """
    (left, center, right), depth = _counts(halves).tolist(), 0.5 * RULES.depth
    if center**2 <= depth**2 * left * right:
        return False
    return valley_p_value(left, center, right, depth) >= 1.0 - RULES.level / n_pairs


@dataclasses.dataclass(frozen=True, slots=True)
class _Scale:
    """Parts of the clusters at one scale, of which each is a range of cells, with the samples in the order of the cells."""

    functions: NDArray[np.float64]  # (n, q) mean of those of the cells of each part
    first: NDArray[np.int64]  # (q + 1,) sample of each part
    sizes: NDArray[np.int64]  # (q,)
    clusters: NDArray[np.int64]  # (q,)
    neighbors: NDArray[np.bool_]  # (q, q)
    distances: NDArray[np.float64]  # (q, q) squared, of the means
    steps: list[NDArray[np.float64]]  # of each view, changes (t, q) by one step of a column

    def facing(self, first: int, second: int) -> NDArray[np.int64]:
        """Pairs (m, 2) of neighbors among the parts of two clusters."""
        own, others = (np.flatnonzero(self.clusters == cluster) for cluster in (first, second))
        i, j = np.nonzero(self.neighbors[np.ix_(own, others)])
        return np.stack([own[i], others[j]], axis=1)

    def scores(
        self, side: NDArray[np.int64], a: NDArray[np.int64], b: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Scores of the samples of some parts: the mean function of the parts b minus that of a."""
        ranges = [self.functions[self.first[part] : self.first[part + 1]] for part in side]
        rows = ranges[0] if len(ranges) == 1 else np.concatenate(ranges)
        return self._difference(rows, a, b)

    def longest_step(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> float:
        """Largest change of the score by one step up in a column and one down in another, of one view; 0 without steps."""
        changes = (self._difference(steps, a, b) for steps in self.steps)
        return max((max(0.0, view.max()) - min(0.0, view.min()) for view in changes), default=0.0)

    def _difference(
        self, functions: NDArray[np.float64], a: NDArray[np.int64], b: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        if len(a) == len(b) == 1:
            return np.asarray(functions[:, b[0]] - functions[:, a[0]])
        n_a, n_b = self.sizes[a], self.sizes[b]
        mean_b = functions[:, b] @ (n_b / n_b.sum())
        return np.asarray(mean_b - functions[:, a] @ (n_a / n_a.sum()))


def _scale(
    functions: CellFunctions,
    by_cell: NDArray[np.float64],
    steps: Sequence[NDArray[np.float64]],
    clusters: NDArray[np.int64],
    parts: NDArray[np.int64],
) -> _Scale:
    """Parts (K,) of the cells at one scale, from the functions (n, K) of the samples in the order of the cells."""
    starts = np.flatnonzero(np.diff(parts, prepend=-1))
    sizes = np.add.reduceat(functions.sizes, starts).astype(np.int64)

    def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
        if len(starts) == len(parts):
            return values
        return np.asarray(np.add.reduceat(values * functions.sizes, starts, axis=1) / sizes)

    neighbors, distances = _neighbors_and_distances(functions, parts)
    first = np.concatenate([[0], np.cumsum(sizes)])
    own = [mean(changes) for changes in steps]
    return _Scale(mean(by_cell), first, sizes, clusters[starts], neighbors, distances, own)


def _samples_below(
    ascending: NDArray[np.float64], edges: NDArray[np.float64], width: float
) -> NDArray[Any]:
    """Number of samples below each edge, each spread evenly over an interval of this width."""
    if not width > _ROUNDING * (edges[-1] - edges[0]):
        return np.searchsorted(ascending, edges)
    shares = 0.5 + (edges[:, None] - ascending) / width
    return np.asarray(np.clip(shares, 0.0, 1.0).sum(axis=1))


def nested_cells(
    points: NDArray[np.float64], labels: NDArray[np.int64], n_scales: int = _N_SCALES
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cells (n,) of the last scale, and the part (n_scales, K) of each at every scale, of which the first is the clusters.

    Each part with samples enough is halved at its mean along its first principal axis.
    """
    labels = np.unique(labels, return_inverse=True)[1]
    parts = [np.flatnonzero(labels == cluster) for cluster in range(int(labels.max()) + 1)]
    numbers = [labels]
    for _ in range(n_scales - 1):
        parts = [half for rows in parts for half in _halved(points, rows)]
        number = np.empty(len(labels), dtype=np.int64)
        for index, rows in enumerate(parts):
            number[rows] = index
        numbers.append(number)
    first = np.array([rows[0] for rows in parts])
    return numbers[-1], np.stack([number[first] for number in numbers])


def _halved(points: NDArray[np.float64], rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
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
    """Discriminant functions of cells (n,), none empty, of points (n, p).

    The `step_covariance` of the points is added to the covariance within cells.
    """
    folds = cell_folds(points, cells)
    sums = [fold_sums(points, folds, fold) for fold in range(N_FOLDS)]
    parts = [
        fold_functions(points, folds, sums, fold, step_covariance) for fold in range(N_FOLDS + 1)
    ]
    return joined_functions(folds, parts)


@dataclasses.dataclass(frozen=True, slots=True)
class CellFolds:
    """Cells of samples, which are spread over folds by the lengths of the points, not their order."""

    cells: NDArray[np.int64]  # (n,)
    folds: NDArray[np.int64]  # (n,)
    squares: NDArray[np.float64]  # (n,) squared lengths


def cell_folds(points: NDArray[np.float64], cells: NDArray[np.int64]) -> CellFolds:
    """Spread the samples of each cell over the folds."""
    squares = np.einsum("ij,ij->i", points, points)
    folds = np.empty(len(points), dtype=np.int64)
    folds[np.lexsort((squares, cells))] = np.arange(len(points)) % N_FOLDS
    return CellFolds(cells, folds, squares)


def fold_sums(points: NDArray[np.float64], folds: CellFolds, fold: int) -> ClassSums:
    """Sums over the samples of a fold for the cells."""
    rows = np.flatnonzero(folds.folds == fold)
    return class_sums(points[rows], folds.cells[rows], int(folds.cells.max()) + 1)


def fold_functions(
    points: NDArray[np.float64],
    folds: CellFolds,
    sums: list[ClassSums],
    fold: int,
    step_covariance: NDArray[np.float64] | None,
) -> CellFunctions:
    """Functions of the samples of a fold, fitted on the other folds; the fold N_FOLDS has no samples and is fitted on all."""
    total = functools.reduce(ClassSums.merge, sums)
    rest = total.merge(sums[fold], -1) if fold < N_FOLDS else total
    others, rows = np.flatnonzero(folds.folds != fold), np.flatnonzero(folds.folds == fold)
    means, loadings = _discriminants(points, folds, others, rest, step_covariance)
    values = points[rows] @ loadings - 0.5 * np.einsum("kp,pk->k", means, loadings)
    return CellFunctions(values, folds.cells[rows], total.sizes, loadings, means @ loadings)


def joined_functions(folds: CellFolds, parts: list[CellFunctions]) -> CellFunctions:
    """Functions of all samples, from those of each fold; the last part has the loadings, fitted on all samples."""
    *of_folds, whole = parts
    values = np.empty((len(folds.cells), len(whole.sizes)))
    for fold, part in enumerate(of_folds):
        values[folds.folds == fold] = part.values
    return dataclasses.replace(whole, values=values, cells=folds.cells)


def _discriminants(
    points: NDArray[np.float64],
    folds: CellFolds,
    rows: NDArray[np.int64],
    sums: ClassSums,
    step_covariance: NDArray[np.float64] | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means m (K, p) and S⁻¹ mᵀ (p, K), with S the covariance within cells, shrunk.

    O. Ledoit, M. Wolf, doi:10.1016/S0047-259X(03)00096-4. A cell without samples has the mean of all.
    """
    sizes = sums.sizes
    mean = sums.sums.sum(axis=0) / sizes.sum()
    means = np.where(sizes[:, None] > 0, sums.sums / np.maximum(sizes, 1)[:, None], mean)
    p, free = len(mean), max(1, len(rows) - int(np.count_nonzero(sizes)))
    weighted = means * np.sqrt(sizes)[:, None]
    covariance = (sums.squares - weighted.T @ weighted) / free
    mean_variance = float(np.trace(covariance)) / p
    products = np.einsum("ij,ij->i", points, means[folds.cells])
    lengths = np.einsum("kp,kp->k", means, means)[folds.cells]
    residual = (folds.squares - 2.0 * products + lengths)[rows]
    total = float(np.sum(covariance**2))
    spread = total / p - mean_variance**2
    noise = max(0.0, float(np.sum(residual**2)) / free**2 - total / free) / p
    share = min(1.0, noise / spread) if spread > 0.0 else 1.0
    covariance *= 1.0 - share
    # cells of equal points have no covariance: they are as far apart as rounding tells
    rounding, tiny = np.finfo(np.float64).eps * np.sqrt(p), np.finfo(np.float64).tiny
    least = 16.0 * rounding * np.trace(sums.squares) / free + tiny
    covariance[np.diag_indices(p)] += max((share + 1e-9) * mean_variance, least)
    if step_covariance is not None:
        covariance += step_covariance
    factor = scipy.linalg.cho_factor(covariance, check_finite=False)
    return means, scipy.linalg.cho_solve(factor, means.T, check_finite=False)


def _neighbors_and_distances(
    functions: CellFunctions, parts: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Gabriel neighbors (q, q) among parts (K,) of the cells, and squared Mahalanobis distances of their means.

    Two parts are neighbors unless the mean of a third is in the ball over their means.
    """
    q = int(parts.max()) + 1
    weights = np.zeros((q, len(parts)))
    weights[parts, np.arange(len(parts))] = functions.sizes
    weights /= weights.sum(axis=1, keepdims=True)
    gram = weights @ functions.gram @ weights.T
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
        functions = cell_functions(points, labels)
        new = np.argmax(functions.values + np.log(functions.sizes), axis=1).astype(np.int64)
        if len(np.unique(new)) < len(functions.sizes) or np.array_equal(new, labels):
            break
        labels = new
    return labels
