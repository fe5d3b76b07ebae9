"""Corrections of the rows of a view for their batches, given the cells of the samples.

Effects on a column are an offset and a scale, shrunk to those of the batch, or for counts a factor.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from mscam_dask.linalg.distances import sums_by_group
from mscam_dask.linalg.scaling import BatchCorrection, logarithms, safe_exponent
from mscam_dask.solvers.batch_effects import (
    SMALLEST,
    Array,
    Labels,
    cell_sums,
    offset_covariance,
    two_way,
)

# Rounds of iterative proportional fitting.
_N_FITTED = 20


@dataclasses.dataclass(frozen=True, slots=True)
class GroupSums:
    """Counts (K, B), sums (K, B, d) and squares (B, d) of the rows minus a center (d,)."""

    counts: Array
    sums: Array
    squares: Array
    center: Array


def group_sums(
    rows: Array, cells: Labels, batches: Labels, n_cells: int, means: Array
) -> GroupSums:
    """Sums of rows (n, d), about the mean of the batch means (B, d)."""
    n_batches, center = len(means), means.mean(axis=0)
    rows = rows - center
    squares = sums_by_group(rows**2, batches, n_batches)
    counts, sums = cell_sums(rows, cells, batches, n_cells, n_batches)
    return GroupSums(counts, sums, squares, center)


def view_correction(sums: GroupSums) -> tuple[BatchCorrection, Array]:
    """Correction of one view, and the mean row (K, d) of each cell after it.

    Offsets are shrunk to zero by the factor of James and Stein, all columns of a batch together, and scales of columns
    to that of their batch. A batch is scaled only if its cells are as far apart as its samples: more noise is no scale.

    W. E. Johnson, C. Li, A. Rabinovic, doi:10.1093/biostatistics/kxj037.
    """
    counts, n_batches = sums.counts, sums.counts.shape[1]
    sizes, variances = counts.sum(axis=0), _variances(sums)
    tiny = np.finfo(np.float64).tiny
    pooled = np.maximum(sizes @ variances / sizes.sum(), tiny)
    free, ratios = sizes - np.count_nonzero(counts, axis=0), variances / pooled
    varies = ratios > 1e-12
    noise = np.where(varies, 0.5 / np.maximum(free, 1.0)[:, None], np.inf)
    log_scales = _shrunk_logs(0.5 * np.log(np.where(varies, ratios, 1.0)), noise)
    for batch in range(n_batches):
        own = pooled * np.exp(2.0 * log_scales[batch])
        if free[batch] < SMALLEST or not _has_scale(sums, batch, variances, own):
            log_scales[batch] = 0.0
    log_scales -= (sizes / sizes.sum()) @ log_scales
    factors = np.exp(-log_scales)
    scaled = GroupSums(counts, sums.sums * factors, sums.squares * factors**2, sums.center)
    means, offsets = two_way(counts, scaled.sums)
    variances = _variances(scaled)
    pooled = np.maximum(sizes @ variances / sizes.sum(), tiny)
    offsets = _shrunk(offsets, pooled, np.diag(offset_covariance(counts)))
    # (x − center) · factor − offset + center, so that the values stay where they are
    return (
        BatchCorrection(sums.center + (offsets - sums.center) / factors, factors),
        means + sums.center,
    )


def total_correction(
    rows: Array, cells: Labels, batches: Labels, n_cells: int, n_batches: int
) -> BatchCorrection:
    """Correction of counts (n, d) by one factor for each batch, from the logarithms of the totals of samples, such as library sizes.

    It is that of the means within cells, 1 where the Bayesian information criterion favors 1. A total is over columns in units
    near their maxima.
    """
    totals = rows.sum(axis=1)
    some = totals > 0.0
    logs, cells, batches = np.log(totals[some])[:, None], cells[some], batches[some]
    counts, sums = cell_sums(logs, cells, batches, n_cells, n_batches)
    means, effects = two_way(counts, sums)
    variance = np.mean((logs - means[cells] - effects[batches]) ** 2)
    effects[counts.sum(axis=0)[:, None] * effects**2 <= variance * np.log(max(1, len(logs)))] = 0.0
    return _factors(np.repeat(effects, rows.shape[1], axis=1))


def count_correction(sums: GroupSums, one: Array) -> BatchCorrection:
    """Correction of a view of counts by factors, from sums about 0.

    Means of cells and factors of batches are those of a Poisson model, by iterative proportional fitting. `one` (d,) is the unit of
    a count.
    """
    counts, totals = sums.counts, sums.sums
    sizes, of_batches = counts.sum(axis=0), totals.sum(axis=0)
    effects = np.ones_like(of_batches)
    for _ in range(_N_FITTED):
        means = totals.sum(axis=1) / np.maximum(counts @ effects, np.finfo(np.float64).tiny)
        effects = (of_batches + 0.5 * one) / (counts.T @ means + 0.5 * one)
    logs = np.log(effects)
    logs -= sizes / sizes.sum() @ logs
    noise = sizes[:, None] * _variances(sums) / np.maximum(of_batches, one) ** 2
    return _factors(_shrunk_logs(logs, noise))


def _factors(logs: Array) -> BatchCorrection:
    """Correction for effects (B, d) on logarithms by factors of at most 1, which do not raise noise."""
    factors = np.exp(-logs)
    factors /= factors.max(axis=0)
    return BatchCorrection(np.zeros_like(factors), factors)


def _shrunk_logs(logs: Array, noise: Array) -> Array:
    """Logarithms (B, d) of the effects of batches, shrunk to the mean of their batch by their noise (B, d), the same prior for all columns of a batch."""
    clear = (noise > 0.0) & (noise < 1.0)
    n_clear = np.maximum(clear.sum(axis=1, keepdims=True), 1)
    rest = logs - np.sum(np.where(clear, logs, 0.0), axis=1, keepdims=True) / n_clear
    between = np.sum(np.where(clear, rest**2 - noise, 0.0), axis=1, keepdims=True) / n_clear
    between = np.maximum(between, 0.0)
    kept = between / np.maximum(between + noise, np.finfo(np.float64).tiny)
    return np.asarray(logs - rest * (1.0 - kept))


def new_correction(rows: Array, expected: Array, scale: float) -> BatchCorrection:
    """Correction of the rows (m, d) of a new batch with a scale by their offset from the means of their cells, shrunk; none of few rows."""
    d = rows.shape[1]
    if len(rows) < SMALLEST:
        return BatchCorrection(np.zeros((1, d)), np.ones((1, d)))
    center = rows.mean(axis=0)
    residuals = (rows - center) / scale + center - expected
    exponent = safe_exponent(np.abs(residuals).max(axis=0, initial=0.0))
    residuals = np.ldexp(residuals, -exponent)
    variances = np.maximum(residuals.var(axis=0, ddof=1), np.finfo(np.float64).tiny)
    offset = _shrunk(residuals.mean(axis=0)[None], variances, np.array([1.0 / len(rows)]))
    offsets = center * (1.0 - scale) + scale * np.ldexp(offset, exponent)
    return BatchCorrection(offsets, np.full((1, d), 1.0 / scale))


def new_count_correction(rows: Array, expected: Array) -> BatchCorrection:
    """Correction of the counts (m, d) of a new batch, given the mean logarithms (m, d) of their cells.

    An offset o of log(1 + x) is a factor of 1 + x: it raises the noise of small counts less than a factor of x.
    """
    offset = new_correction(logarithms(rows), expected, 1.0).offsets
    return BatchCorrection(np.expm1(offset), np.exp(-offset))


def _shrunk(offsets: Array, variances: Array, errors: Array) -> Array:
    """Offsets (B, d) times the factor of James and Stein; the noise of a batch is `errors` (B,) times `variances` (d,).

    Columns that vary by no more than rounding keep theirs.
    """
    varies = variances > np.finfo(np.float64).eps * np.max(offsets**2, axis=0)
    squares = np.sum(offsets[:, varies] ** 2 / variances[varies], axis=1)
    noise = errors * np.count_nonzero(varies)
    kept = 1.0 - noise / np.maximum(squares, np.maximum(noise, np.finfo(np.float64).tiny))
    return np.where(varies, kept[:, None], 1.0) * offsets


def _variances(sums: GroupSums) -> Array:
    """Variances (B, d) of each batch within its cells."""
    squares = sums.squares - np.sum(sums.sums**2 / np.maximum(sums.counts, 1.0)[..., None], axis=0)
    free = np.maximum(1.0, sums.counts.sum(axis=0) - np.count_nonzero(sums.counts, axis=0))
    return np.asarray(np.maximum(squares, 0.0) / free[:, None])


def _has_scale(sums: GroupSums, batch: int, variances: Array, own: Array) -> bool:
    """Whether the means of cells in a batch, by those in others, are more likely scaled as its noise of variances (d,) than not."""
    n_own, sizes = sums.counts[:, batch], sums.counts.sum(axis=0)
    n_others = sums.counts.sum(axis=1) - n_own
    both = (n_own >= SMALLEST) & (n_others >= SMALLEST)
    if np.count_nonzero(both) < 2:
        return False
    n_own, n_others = n_own[both, None], n_others[both, None]
    first = sums.sums[both, batch] / n_own
    second = (sums.sums[both].sum(axis=1) - sums.sums[both, batch]) / n_others
    weights = np.broadcast_to(n_own * n_others / (n_own + n_others), first.shape)
    first = first - np.average(first, axis=0, weights=weights)
    second = second - np.average(second, axis=0, weights=weights)

    others = np.average(np.delete(variances, batch, 0), 0, np.delete(sizes, batch))
    others = np.where(others > 0.0, others, own)
    eps, tiny = np.finfo(np.float64).eps, np.finfo(np.float64).tiny
    rounding = (eps * np.abs(first).max(axis=0)) ** 2 + tiny

    def loss(scale: Array | float) -> float:  # −2 log of the likelihood
        variance = np.maximum(own / n_own + scale**2 * others / n_others, rounding)
        return float(np.sum((first - scale * second) ** 2 / variance + np.log(variance)))

    return loss(np.sqrt(own / others)) < loss(1.0)
