"""Batch effects of feature views: offsets and scales of batches, found together with cells of samples.

Each row of a view is modeled as x = s_b (μ_z + e) + o_b, with the given batch b and the cell z of k-means with an
offset for each batch, over the scores of all views. An offset comes from cells with samples of several batches
alone, so that clusters of one batch stay where they are. See docs/method.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist, squareform

from mscam_dask.linalg.distances import squared_distances, sums_by_group
from mscam_dask.linalg.neighbors import nearest_neighbors
from mscam_dask.linalg.scaling import ColumnMoments, fit_transform_from_moments, safe_exponent
from mscam_dask.solvers.borders import JointPoints, borders
from mscam_dask.solvers.choice import signal_rank
from mscam_dask.solvers.cluster_tree import ward_merge
from mscam_dask.solvers.ridge_view import Encoder, view_directions, with_loadings
from mscam_dask.solvers.row_blocks import ViewShape
from mscam_dask.solvers.spectral_cut import k_means, nearest_mean
from mscam_dask.types.result import Borders
from mscam_dask.types.rules import CONSTANTS, RULES

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

MAX_SCORES = 64
"""Principal scores of each view, at most."""

SMALLEST = 5
"""Samples of a cell of a batch from which means are compared."""

# Columns of a view in which neighbors are searched for the share of batches among them.
_MAX_COLUMNS = 1024

# Samples whose neighbors are searched for this share, and the seed that draws them: evenly spaced ones may be of one kind.
_N_ASKED, _SEED = 250, 0

# Offsets of two batches, of all pairs of their cells, that are tried by their cells, then by all samples.
_N_COARSE, _N_FINE = 40, 3

_N_ROUNDS = 20

# Losses, −2 log of the evidence, up to this above the least one are likely too.
_LIKELY = -2.0 * np.log(RULES.level)

# Starts of k-means.
_N_STARTS = 2


@dataclasses.dataclass(frozen=True, slots=True)
class BatchCells:
    """Cells (m,) of samples, with their means (K, q), and the offsets (B, q) of batches."""

    cells: Labels
    means: Array
    offsets: Array
    squares: float  # of the residuals
    # Whether the data tell which cells of the batches are the same.
    matched: bool = True
    # Variances (V,) of the residuals by view, and standard deviations (q,) by score.
    view_variances: Array = dataclasses.field(default_factory=lambda: np.ones(1))
    noise: Array = dataclasses.field(default_factory=lambda: np.ones(1))


@dataclasses.dataclass(frozen=True, slots=True)
class _Scores:
    """Scores (m, q) of samples, with the mean of the batch where they are absent."""

    rows: Array
    absent: NDArray[np.bool_]  # (m, q)
    batches: Labels  # (m,)
    n_batches: int

    @classmethod
    def filled(cls, scores: Array, batches: Labels, n_batches: int) -> _Scores:
        """Scores of which the absent ones were NaN."""
        absent, means = np.isnan(scores), group_means(scores, batches, n_batches)
        return cls(np.where(absent, means[batches], scores), absent, batches, n_batches)

    @property
    def sizes(self) -> Labels:
        """Number (B,) of samples of each batch."""
        return np.bincount(self.batches, minlength=self.n_batches)

    @property
    def means(self) -> Array:
        """Mean (B, q) of each batch."""
        return group_means(self.rows, self.batches, self.n_batches)

    def without(self, offsets: Array) -> Array:
        """Rows (m, q) without the offsets (B, q) of the batches."""
        return np.asarray(self.rows - offsets[self.batches])

    def residuals(self, fit: BatchCells) -> Array:
        """Residuals (m, q) of a fit, 0 where scores are absent."""
        return np.where(self.absent, 0.0, self.without(fit.offsets) - fit.means[fit.cells])

    def in_units_of(self, noise: Array) -> _Scores:
        """Scores in units of the noise (q,) of each."""
        return dataclasses.replace(self, rows=self.rows / noise)


def score_encoder(
    rows: Array, batches: Labels, means: Array, n_cells: int, name: str, size: Array | None = None
) -> Encoder:
    """Encoder of rows to their scores, in units of the noise.

    The directions are the principal ones within batches that noise does not explain, at least one for each cell, and those
    in which the means of batches differ besides. They are orthogonal to `size` (d,), if it is given and not all that varies: the
    change of the rows with the total of a sample, such as its library size.
    """
    within, (n, d) = rows - means[batches], rows.shape
    rounding = n * np.finfo(np.float64).eps * np.abs(rows).max(axis=0)
    is_constant = np.abs(within).max(axis=0) <= rounding  # in each batch
    within[:, is_constant] = 0.0
    shape = ViewShape(n, d, "features")

    def read(start: int, stop: int) -> Array:
        return within[start:stop]

    found = view_directions(read, shape, scale="standard", name=name)
    s2 = found.basis.singular_values_squared
    rank, noise = signal_rank(s2, n, d)
    rank = min(max(rank, n_cells), len(s2), MAX_SCORES)
    found = with_loadings(found, read, rank)
    lengths = np.linalg.norm(found.encoder.loadings, axis=0)
    directions = found.encoder.loadings[:, :rank] / lengths[:rank]
    transform = found.encoder.transform
    assert transform is not None, "the view has features"
    centers = transform.apply(means)
    if size is not None:
        size = np.where(is_constant, 0.0, size / transform.scale)
        directions, centers = _orthogonal_to(size, directions, centers)
    centers = centers[np.bincount(batches, minlength=len(means)) > 0]
    centers -= centers.mean(axis=0)
    rest = centers - (centers @ directions) @ directions.T
    _, lengths_of_rest, others = np.linalg.svd(rest, full_matrices=False)
    others = others[lengths_of_rest > 1e-9 * np.linalg.norm(centers)]
    weight = lengths[0] * np.sqrt(n * s2[0] / noise)
    loadings = np.hstack([directions, others.T]) * weight
    return dataclasses.replace(found.encoder, loadings=loadings)


def _orthogonal_to(size: Array, directions: Array, centers: Array) -> tuple[Array, Array]:
    """Orthonormal directions (d, r) and centers (B, d) without their part along `size` (d,); both as they are if it is all."""
    unit = (size / np.linalg.norm(size))[:, None]
    rest = directions - unit @ (unit.T @ directions)
    orthogonal, lengths, _ = np.linalg.svd(rest, full_matrices=False)
    kept = lengths > 0.5  # without the direction that is lost, or cut short
    if not kept.any():
        return directions, centers
    return orthogonal[:, kept], centers - (centers @ unit) @ unit.T


@dataclasses.dataclass(frozen=True, slots=True)
class OffsetPrices:
    """Prices of offsets in the scores of all views side by side, −2 log of their evidence.

    The offsets of a batch of n samples in the d columns of a view are normal, with variance τ² or zero. The price is
    that of the likeliest τ², with log n for τ² itself: twice as large offsets cost 2 d log 2 more.
    """

    views: Labels  # (q,) of each score
    dims: Array  # (V,) columns of each view

    @classmethod
    def of_shapes(cls, shapes: Sequence[tuple[int, ...]]) -> OffsetPrices:
        """Prices for views with (columns, scores)."""
        dims, widths = np.array(shapes).T
        return cls(np.repeat(np.arange(len(dims)), widths), dims.astype(np.float64))

    def squares(self, residuals: Array) -> Array:
        """Sums of squares (V,) of residuals (m, q) in each view."""
        return sums_by_group(np.sum(residuals**2, axis=0), self.views, len(self.dims))

    def n_present(self, absent: NDArray[np.bool_]) -> Array:
        """Number (V,) of scores of each view that are not absent."""
        return self.squares((~absent).astype(np.float64))

    def losses(self, offsets: Array, sizes: NDArray[Any]) -> Array:
        """Losses (2, V, B) if offsets (B, q) of batches with sizes (B,) are zero, and if they are normal."""
        none = sums_by_group(offsets.T**2, self.views, len(self.dims)) * sizes
        ratios = np.maximum(none / self.dims[:, None], 1.0)
        normal = self.dims[:, None] * (1.0 + np.log(ratios)) + np.log(np.maximum(sizes, 1))
        return np.stack([none, normal])

    def __call__(self, offsets: Array, sizes: NDArray[Any]) -> float:
        """Price of offsets (B, q) of batches with sizes (B,)."""
        return float(self.losses(offsets, sizes).min(axis=0).sum())


def vary_as_counts(rows: Array, batches: Labels, n_batches: int) -> bool:
    """Whether the logarithms of rows (n, d) without negative values are more likely normal within batches than the rows.

    By the likelihood of each column in G. E. P. Box, D. R. Cox, doi:10.1111/j.2517-6161.1964.tb00553.x.
    """
    if rows.min(initial=0.0) < 0.0:
        return False
    exponent = safe_exponent(rows.max(axis=0, initial=0.0))
    logs, variances = np.log1p(rows), []
    for values in (np.ldexp(rows, -exponent), logs):
        means = group_means(values, batches, n_batches)
        variances.append(np.mean((values - means[batches]) ** 2, axis=0))
    varies = (variances[0] > 0.0) & (variances[1] > 0.0)
    raw, log = (np.log(one[varies]) for one in variances)
    # twice the gain in mean log likelihood: variances, derivative of log(1 + x), divisor of the rows
    gain = raw - log - 2.0 * logs.mean(axis=0)[varies] + 2.0 * np.log(2.0) * exponent[varies]
    return float(gain.sum()) > 0.0


def batch_scales(rows: Array, encoder: Encoder, batches: Labels, n_batches: int) -> Array:
    """Scale (B,) of the rows (n, d), minus the means of their batches, by their residuals from the scores, which need no cells.

    It is 1 for small batches, where the Bayesian information criterion favors 1, and where the scores are not scaled too: more
    noise is no scale.
    """
    is_compared = np.bincount(batches, minlength=n_batches)[batches] >= SMALLEST
    rows, batches = rows[is_compared], batches[is_compared]
    standardized = encoder.transform.apply(rows) if encoder.transform else rows
    directions = encoder.loadings / np.linalg.norm(encoder.loadings, axis=0)
    rank, sizes = directions.shape[1], np.bincount(batches, minlength=n_batches)
    squares = np.sum(standardized**2, axis=1)
    residuals = squares - np.sum((standardized @ directions) ** 2, axis=1)
    rounding = np.finfo(np.float64).eps * rows.shape[1] * squares.max(initial=0.0)
    if rank == rows.shape[1] or residuals.min(initial=np.inf) <= rounding or len(rows) == 0:
        return np.ones(n_batches)
    noise = 0.5 * np.log(residuals)[:, None]
    means = group_means(noise, batches, n_batches)
    variance = float(np.mean((noise - means[batches]) ** 2))
    found = means[:, 0] - noise.mean()  # logarithms of the scales
    found[sizes * found**2 <= variance * np.log(len(rows))] = 0.0  # BIC
    # are the scores, without the noise in them, nearer to scaled than to not scaled?
    signal = group_means(np.sum(encoder(rows) ** 2, axis=1)[:, None], batches, n_batches)[:, 0]
    signal -= rank * np.exp(2.0 * found) / np.mean(np.exp(2.0 * found)[batches])
    of_scores = 0.5 * np.log(np.where(signal > 0.0, signal, 1.0))
    of_scores -= of_scores[batches].mean()
    same = (signal > 0.0) & (np.abs(of_scores - found) < np.abs(of_scores))
    return np.where(same, np.exp(found), 1.0)


def batch_cells(
    scores: Array, batches: Labels, n_batches: int, n_cells: int, price: OffsetPrices
) -> BatchCells:
    """Cells and offsets with the most evidence: residual squares, and the price of the offsets from the largest batch.

    Scores (m, q) are NaN for absent samples.
    """
    filled = _Scores.filled(scores, batches, n_batches)
    sizes, means = filled.sizes, filled.means
    cells = k_means(filled.rows, n_cells, _N_STARTS)
    fits = [_fit_of(filled, cells, np.zeros_like(means))]
    starts = _offsets_of_pairs(filled, n_cells, price)
    for offsets in [means - (sizes @ means) / sizes.sum(), *starts]:
        cells = k_means(filled.without(offsets), n_cells, _N_STARTS)
        fits.append(_iterated(filled, cells, offsets))
    # scores vary within cells by different amounts: each counts by its own
    noise = _noise_of_scores(min(fits, key=lambda fit: fit.squares), filled)
    white, n_offsets, losses = filled.in_units_of(noise), int(np.count_nonzero(sizes)) - 1, []
    for fit in fits:
        of_white = _fit_of(white, fit.cells, fit.offsets / noise)
        loss = _loss(of_white, white, price)
        if fit.offsets.any():
            # an offset can always put one cell on another, and the cell that this spares cuts another one
            loss += _worth_of_cuts(of_white, white, n_offsets)
        losses.append(loss)
    best = fits[int(np.argmin(losses))]
    likely = [fit for fit, loss in zip(fits, losses, strict=True) if loss < min(losses) + _LIKELY]
    return dataclasses.replace(
        best,
        matched=_are_matched(best, likely, batches, price),
        view_variances=price.squares(filled.residuals(best))
        / np.maximum(price.n_present(filled.absent), 1.0),
        noise=noise,
    )


def counted_cells(
    scores: Array, batches: Labels, n_batches: int, most: int, price: OffsetPrices
) -> BatchCells:
    """Cells and offsets with the most cells that are left once cells without a border between them are merged.

    More cells have to save more than cuts of normal samples without structure would.
    """
    filled = _Scores.filled(scores, batches, n_batches)
    found, merged = batch_cells(scores, batches, n_batches, 1, price), np.zeros(1, dtype=np.int64)
    owed = 0.0
    for n_cells in range(2, most + 1):
        more = batch_cells(scores, batches, n_batches, n_cells, price)
        white = filled.in_units_of(more.noise)
        before, after = (
            _fit_of(white, fit.cells, fit.offsets / more.noise) for fit in (found, more)
        )
        owed += _worth_of_cuts(after, white, 1)
        gain = _loss(before, white, price) - _loss(after, white, price)
        tested = _borders_of_cells(after, white).of_several(most - 1)
        if gain > owed and tested.n_supported >= 1 + merged.max():
            found, merged, owed = more, tested.merged, 0.0
    fit = _iterated(filled, merged[found.cells], found.offsets)
    return dataclasses.replace(
        fit, matched=found.matched, view_variances=found.view_variances, noise=found.noise
    )


def _borders_of_cells(fit: BatchCells, white: _Scores) -> Borders:
    """Borders of the cells of a fit of scores in units of the noise.

    A batch does not have the same effects on all cells. Two cells are therefore apart only if they are at least twice as far
    apart as the batches within cells are on average.
    """
    n_cells, n_batches = len(fit.means), len(fit.offsets)
    points, batches = white.without(fit.offsets), white.batches
    found = borders(JointPoints(points, points.shape[1:]), fit.cells, n_cells)
    counts, sums = cell_sums(points, fit.cells, batches, n_cells, n_batches)
    means = sums / np.maximum(counts, 1.0)[..., None]
    of_cells = zip(means, counts >= SMALLEST, strict=True)
    between_batches = np.concatenate([pdist(own[here]) for own, here in of_cells])
    least = 2.0 * between_batches.mean() if between_batches.size else 0.0
    p_values = np.where(squareform(pdist(fit.means)) < least, 1.0, found.p_values)
    np.fill_diagonal(p_values, 0.0)
    return dataclasses.replace(found, p_values=p_values)


def _noise_of_scores(fit: BatchCells, filled: _Scores) -> Array:
    """Standard deviation (q,) of each score within the cells of a fit, not less than rounding."""
    n_present = np.maximum(np.count_nonzero(~filled.absent, axis=0), 1)
    variances = np.sum(filled.residuals(fit) ** 2, axis=0) / n_present
    within = filled.without(filled.means)
    eps, tiny = np.finfo(np.float64).eps, np.finfo(np.float64).tiny
    rounding = eps * np.mean(within**2) + eps**2 * np.mean(filled.rows**2)
    return np.asarray(np.sqrt(np.maximum(variances, rounding + tiny)))


def _links(fit: BatchCells, batches: Labels) -> Labels:
    """Number (B, B) of cells with a share of the samples of both batches."""
    counts = cell_counts(fit.cells, batches, len(fit.means), len(fit.offsets))
    shared = ((counts >= RULES.level * counts.sum(axis=0)) & (counts > 0.0)).astype(np.int64)
    return np.asarray(shared.T @ shared)


def _are_matched(
    fit: BatchCells, likely: Sequence[BatchCells], batches: Labels, price: OffsetPrices
) -> bool:
    """Whether common cells link all batches, two cells where batches have offsets in all views, and likely fits agree.

    Some offset puts any cell on any other one; only a second pair, or a view that stays where it is, confirms it. The
    offsets of likely fits agree if they move no batch by half the distance of two cells.
    """
    moved = np.stack([other.offsets - fit.offsets for other in likely])
    moved = np.linalg.norm(moved - moved[:, :1], axis=2)
    if moved.max() > 0.5 * pdist(fit.means).min(initial=np.inf):
        return False
    sizes = np.bincount(batches, minlength=len(fit.offsets))
    base = np.argmax(sizes)
    covariance = offset_covariance(cell_counts(fit.cells, batches, len(fit.means), len(sizes)))
    own = np.diag(covariance)
    # an offset is as uncertain as the mean of so many samples
    n_samples = 1.0 / np.maximum(own + own[base] - 2.0 * covariance[base], 1.0 / len(batches))
    losses = price.losses(fit.offsets - fit.offsets[base], n_samples)
    free = losses.argmin(axis=0).all(axis=0)  # batches with offsets in all views
    linked = _links(fit, batches) > (free[:, None] | free)
    return bool(connected_components(linked[np.ix_(sizes > 0, sizes > 0)], directed=False)[0] == 1)


def _loss(fit: BatchCells, white: _Scores, price: OffsetPrices) -> float:
    """Loss of a fit of scores in units of the noise, −2 log of its evidence: squares, and prices of offsets and of groups of batches without common cells."""
    sizes = white.sizes
    base = np.argmax(sizes)
    n_groups, groups = connected_components(_links(fit, white.batches), directed=False)
    labels = groups[white.batches].astype(np.int64)
    means = group_means(white.without(fit.offsets), labels, n_groups)
    group_sizes = np.bincount(labels, minlength=n_groups)
    of_groups = price(means - means[groups[base]], group_sizes)
    return fit.squares + (price(fit.offsets - fit.offsets[base], sizes) + of_groups)


def _worth_of_cuts(fit: BatchCells, white: _Scores, n_cuts: int) -> float:
    """Squares that cuts of normal samples in two at their mean save; their halves are the largest cells."""
    n, q = white.rows.shape
    n_cut = np.sort(np.bincount(fit.cells))[::-1][: 2 * n_cuts].sum()
    residuals = white.without(fit.offsets) - fit.means[fit.cells]
    largest = np.linalg.eigvalsh(residuals.T @ residuals / n)[-1]
    # the largest variance in fewer samples, by the law of Marchenko and Pastur
    edge = (1.0 + np.sqrt(q * n_cuts / n_cut)) / (1.0 + np.sqrt(q / n))
    return float(2.0 / np.pi * largest * edge**2 * n_cut)


def fit_new_batch(
    scores: Array, means: Array, variances: Array, price: OffsetPrices
) -> tuple[Labels, Array]:
    """Cells (m,) of the samples of one new batch, and its scales (V,), given the means (K, q) of the cells and the variances (V,) in them.

    The scales are those of the distances within clusters of the batch. They are 1 if the samples are not clearly nearer to
    their cells with them: more noise is no scale. A view that is constant in each cluster has no scale and does not count.
    """
    absent = np.isnan(scores)
    filled = np.where(absent, group_means(scores, np.zeros(len(scores), np.int64), 1), scores)
    center, n_present = filled.mean(axis=0), np.maximum(price.n_present(absent), 1.0)
    clusters = _centers(filled, len(means))[0]
    residuals = np.where(absent, 0.0, filled - clusters[nearest_mean(filled, clusters)])
    free = n_present * (1.0 - len(clusters) / len(scores))
    tiny, eps = float(np.finfo(np.float64).tiny), np.finfo(np.float64).eps
    within = price.squares(residuals)
    noise = within / free / np.maximum(variances, tiny)
    varies = within > eps * price.squares(filled)  # by more than rounding
    found = []
    for scales in (np.ones(len(n_present)), np.sqrt(np.where(varies, noise, 1.0))):
        rows = center + (filled - center) / scales[price.views]
        cells, squares = _cells_of_batch(rows, absent, means, price)
        loss = (n_present * varies) @ (np.log(np.maximum(squares, tiny)) + 2.0 * np.log(scales))
        found.append((float(loss), cells, scales))
    without, scaled = found
    return (scaled if scaled[0] + _LIKELY < without[0] else without)[1:]


def _cells_of_batch(
    rows: Array, absent: NDArray[np.bool_], means: Array, price: OffsetPrices
) -> tuple[Labels, Array]:
    """Cells (m,) of the rows of one batch, and the squares (V,) of the residuals, by the best offset."""
    centers, sizes = _centers(rows, len(means))
    weights = np.full(len(means), len(rows) / len(means))
    offsets = _candidate_offsets(means, weights, centers, sizes, len(means), price)[:_N_FINE]
    found = []
    for start in [np.zeros(rows.shape[1]), *offsets]:
        own, offset = rows, start
        cells = nearest_mean(own - offset, means)
        for _ in range(_N_ROUNDS):
            offset = (own - means[cells]).mean(axis=0)
            own = np.where(absent, means[cells] + offset, rows)
            cells = nearest_mean(own - offset, means)
        squares = price.squares(own - offset - means[cells])
        loss = float(squares.sum()) + price(offset[None], np.array([len(rows)]))
        found.append((loss, cells, squares))
    return min(found, key=lambda fit: fit[0])[1:]


def group_means(rows: Array, groups: Labels, n_groups: int) -> Array:
    """Mean (G, q) of the values of each group that are not NaN, 0 where there are none."""
    is_there = ~np.isnan(rows)
    sums = sums_by_group(np.where(is_there, rows, 0.0), groups, n_groups)
    counts = sums_by_group(is_there, groups, n_groups)
    return np.asarray(sums / np.maximum(counts, 1.0))


def _centers(rows: Array, n_cells: int) -> tuple[Array, Array]:
    """Means (k, q) and sizes (k,) of up to K clusters of the rows of one batch."""
    n_clusters = max(1, min(n_cells, len(rows) // SMALLEST))
    labels = np.unique(k_means(rows, n_clusters, _N_STARTS), return_inverse=True)[1]
    sizes = np.bincount(labels).astype(np.float64)
    return group_means(rows, labels, len(sizes)), sizes


def _offsets_of_pairs(filled: _Scores, n_cells: int, price: OffsetPrices) -> list[Array]:
    """Some offsets (B, q) that put a cluster of each batch on one of the largest batch."""
    rows, counts = filled.rows, filled.sizes
    ordered = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    centers = [_centers(rows[filled.batches == batch], n_cells) for batch in ordered]
    starts = []
    for variant in range(_N_FINE):
        base, weights = centers[0]
        offsets = np.zeros((filled.n_batches, rows.shape[1]))
        for batch, (own, sizes) in zip(ordered[1:], centers[1:], strict=True):
            candidates = _candidate_offsets(base, weights, own, sizes, n_cells, price)
            is_varied = batch == ordered[1] and variant < len(candidates)
            offsets[batch] = candidates[variant if is_varied else 0]
            base = np.vstack([base, own - offsets[batch]])
            weights = np.concatenate([weights, sizes])
            merged, _ = ward_merge(squared_distances(base, base), weights, n_cells)
            groups = np.unique(merged, return_inverse=True)[1]
            totals = np.bincount(groups, weights).astype(np.float64)
            sums = sums_by_group(base * weights[:, None], groups, len(totals))
            base, weights = sums / totals[:, None], totals
        starts.append(offsets - counts / len(rows) @ offsets)
    return starts


def _candidate_offsets(
    base: Array, weights: Array, own: Array, sizes: Array, n_cells: int, price: OffsetPrices
) -> list[Array]:
    """Offsets (q,) that put a cluster of a batch on one of the others, in the order of the squares of K groups and the price."""
    offsets = (own[:, None] - base[None]).reshape(-1, base.shape[1])
    distances = np.stack([squared_distances(own - offset, base).min(axis=1) for offset in offsets])
    coarse = np.argsort(distances @ sizes, kind="stable")[:_N_COARSE]
    joint = np.concatenate([weights, sizes])
    losses = []
    for offset in offsets[coarse]:
        moved = np.vstack([base, own - offset])
        squares = ward_merge(squared_distances(moved, moved), joint, n_cells)[1]
        losses.append(squares + price(offset[None], np.array([int(sizes.sum())])))
    return [offsets[coarse[index]] for index in np.argsort(losses, kind="stable")]


def _fit_of(scores: _Scores, cells: Labels, offsets: Array) -> BatchCells:
    """Fit of some cells with given offsets of the batches."""
    here, cells = np.unique(cells, return_inverse=True)
    means = group_means(scores.without(offsets), cells, len(here))
    fit = BatchCells(cells, means, offsets, 0.0)
    return dataclasses.replace(fit, squares=float(np.sum(scores.residuals(fit) ** 2)))


def _iterated(scores: _Scores, cells: Labels, offsets: Array) -> BatchCells:
    """Alternate between offsets and means given the cells, and the cells given these (Lloyd)."""
    rows, absent, batches = scores.rows, scores.absent, scores.batches
    n_cells, n_batches = int(cells.max()) + 1, scores.n_batches
    own = rows
    for _ in range(_N_ROUNDS):
        means, offsets = two_way(*cell_sums(own, cells, batches, n_cells, n_batches))
        own = np.where(absent, means[cells] + offsets[batches], rows)
        new = nearest_mean(own - offsets[batches], means)
        stays = np.array_equal(new, cells) and not absent.any()
        if stays or len(np.unique(new)) < n_cells:
            break
        cells = new
    return _fit_of(scores, cells, offsets)


def cell_counts(cells: Labels, batches: Labels, n_cells: int, n_batches: int) -> Array:
    """Number (K, B) of samples of each cell and batch."""
    counts = np.bincount(cells * n_batches + batches, minlength=n_cells * n_batches)
    return counts.reshape(n_cells, n_batches).astype(np.float64)


def cell_sums(
    rows: Array, cells: Labels, batches: Labels, n_cells: int, n_batches: int
) -> tuple[Array, Array]:
    """Number (K, B) and sum (K, B, d) of the rows of each cell and batch."""
    sums = sums_by_group(rows, cells * n_batches + batches, n_cells * n_batches)
    counts = cell_counts(cells, batches, n_cells, n_batches)
    return counts, sums.reshape(n_cells, n_batches, -1)


def offset_covariance(counts: Array) -> Array:
    """Covariance (B, B) of the offsets per σ²: inverse of the Laplacian of the batches linked by their cells, from counts (K, B)."""
    cell_sizes = np.maximum(counts.sum(axis=1), 1.0)
    laplacian = np.diag(counts.sum(axis=0)) - counts.T @ (counts / cell_sizes[:, None])
    return np.asarray(np.linalg.pinv(laplacian, rcond=1e-9, hermitian=True))


def two_way(counts: Array, sums: Array) -> tuple[Array, Array]:
    """Means of cells (K, d) and offsets of batches (B, d) with mean 0, by least squares; batches without common cells keep theirs."""
    cell_sizes = np.maximum(counts.sum(axis=1), 1.0)
    total = sums.sum(axis=1)
    offsets = offset_covariance(counts) @ (
        sums.sum(axis=0) - counts.T @ (total / cell_sizes[:, None])
    )
    offsets -= (counts.sum(axis=0) / counts.sum()) @ offsets
    means = (total - counts @ offsets) / cell_sizes[:, None]
    return means, offsets


def same_batch_share(rows: Array, batches: Labels) -> float:
    """Share of the nearest neighbors of some rows of (m, d), by standardized columns, that are of their batch."""
    order = np.random.default_rng(_SEED).permutation(len(rows))
    columns = np.linspace(0, rows.shape[1] - 1, min(rows.shape[1], _MAX_COLUMNS)).astype(np.int64)
    rows, batches = rows[np.ix_(order, columns)], batches[order]
    points = fit_transform_from_moments("standard", ColumnMoments.from_rows(rows)).apply(rows)
    n_neighbors = min(CONSTANTS.validation_neighbors, len(rows) - 1)
    n_asked = min(len(rows), _N_ASKED)
    neighbors = nearest_neighbors(points, n_neighbors, row_stop=n_asked)[0]
    return float(np.mean(batches[neighbors] == batches[:n_asked, None]))


def expected_share(cells: Labels, batches: Labels) -> float:
    """Share of the other samples of a cell that are of the same batch, in the mean over samples."""
    counts = cell_counts(cells, batches, int(cells.max()) + 1, int(batches.max()) + 1)
    others = np.maximum(counts.sum(axis=1)[cells] - 1.0, 1.0)
    return float(np.mean((counts[cells, batches] - 1.0) / others))
