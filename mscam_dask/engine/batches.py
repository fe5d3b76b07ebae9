"""Correction of the batch effects of views: one task for each view, and one for the cells of all views."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.rows import cache_chunks, sampled_view
from mscam_dask.data.views.sources import RowSource
from mscam_dask.engine.blocks import Stage
from mscam_dask.engine.executors.base import Executor
from mscam_dask.engine.views import encoded_rows
from mscam_dask.linalg.incomplete import PresentSamples
from mscam_dask.linalg.scaling import BatchCorrection, logarithms, safe_exponent
from mscam_dask.solvers import batch_corrections, batch_effects
from mscam_dask.solvers.ridge_view import Encoder
from mscam_dask.solvers.spectral_cut import sampled_rows
from mscam_dask.types.result import BatchShares
from mscam_dask.types.rules import SIZES

SMALLEST_NEW_BATCH = 10
"""Samples of a new batch from which its effects can be estimated."""

# Cells, at most, if the number of clusters is selected.
_N_COUNTED = 8


@dataclasses.dataclass(frozen=True)
class BatchEffects:
    """Batch effects of a fit, from which new samples of its batches, and of others, are corrected."""

    corrections: dict[str, BatchCorrection]  # by feature view with effects
    encoders: dict[str, Encoder]  # of the rows of each of these views to their scores
    score_means: NDArray[np.float64]  # (K, q) mean scores of the cells, all views side by side
    score_variances: NDArray[np.float64]  # (V,) of the scores within cells
    # (K, d) of corrected rows in each cell, by view; of the logarithms of counts
    row_means: dict[str, NDArray[np.float64]]
    shares: dict[str, BatchShares]
    matched: bool = True  # as in `BatchCells`; of a loaded fit, its assessment says it


@dataclasses.dataclass(frozen=True)
class _Scored:
    """Scores of the samples of one view."""

    scores: NDArray[np.float64]
    samples: NDArray[np.int64]
    exponent: NDArray[np.int32]  # (d,), values are divided by 2**exponent: `safe_exponent`
    means: NDArray[np.float64]  # (B, d) of the divided rows of each batch
    encoder: Encoder  # of rows as they are
    scaled: bool  # whether batches have other scales


def estimate_effects(
    data: MultiViewData, batches: NDArray[np.int64], n_clusters: int | None, executor: Executor
) -> BatchEffects:
    """Estimate batch effects on a sample of every batch; the number of clusters, None to count cells."""
    rows = sampled_batches(batches, SIZES.n_batched)
    own, n_batches = batches[rows], int(batches.max()) + 1
    sampled = {
        view.name: sampled_view(view, rows) for view in data.views if view.view_type == "features"
    }
    n_cells = max(1, min(n_clusters or _N_COUNTED, len(rows) // 2))
    find = batch_effects.counted_cells if n_clusters is None else batch_effects.batch_cells
    with executor:
        stage = Stage(executor, "batches")
        scored = [
            stage.submit(scores_of_view, view, own, n_batches, n_cells, part=name)
            for name, view in sampled.items()
        ]
        cells = stage.submit(cells_of_views, scored, own, n_batches, n_cells, find)
        found = [
            stage.submit(correction_of_view, view, view_scores, cells, own, part=name)
            for (name, view), view_scores in zip(sampled.items(), scored, strict=True)
        ]
        of_views, (of_cells,) = stage.gather(found, [cells])
    corrections, encoders, row_means, shares = (
        dict(zip(sampled, column, strict=True)) for column in zip(*of_views, strict=True)
    )
    effects = {name: found for name, found in corrections.items() if found is not None}
    return BatchEffects(
        effects,
        encoders,
        of_cells.means,
        of_cells.view_variances,
        row_means,
        shares,
        of_cells.matched,
    )


def sampled_batches(batches: NDArray[np.int64], n_wanted: int) -> NDArray[np.int64]:
    """Ascending rows of a sample: whole small batches, and as many rows of each large one."""
    sizes = np.bincount(batches)
    most = n_wanted // len(sizes)
    for _ in range(len(sizes)):  # what small batches leave goes to the large ones
        spare = n_wanted - int(np.minimum(sizes, most).sum())
        n_large = int(np.count_nonzero(sizes > most))
        if n_large == 0 or spare < n_large:
            break
        most += spare // n_large
    most = max(most, 1)
    rows = []
    for batch, size in enumerate(sizes.tolist()):
        of_batch = np.flatnonzero(batches == batch)
        rows.append(of_batch[sampled_rows(size, most)])
    return np.sort(np.concatenate(rows))


def scores_of_view(
    view: RowSource, batches: NDArray[np.int64], n_batches: int, n_cells: int
) -> _Scored:
    """Scores of the samples that a view has."""
    samples, rows = _rows_of(view)
    own = batches[samples]
    is_log = batch_effects.vary_as_counts(rows, own, n_batches)
    rows = logarithms(rows) if is_log else rows
    exponent = safe_exponent(np.abs(rows).max(axis=0, initial=0.0))
    rows = np.ldexp(rows, -exponent)
    means = batch_effects.group_means(rows, own, n_batches)
    size = -np.expm1(-np.ldexp(means.mean(axis=0), exponent)) if is_log else None
    encoder = batch_effects.score_encoder(rows, own, means, n_cells, view.name, size)
    scales = batch_effects.batch_scales(rows - means[own], encoder, own, n_batches)
    center = encoder(means.mean(axis=0)[None])
    scores = (encoder(rows) - center) / scales[own, None] + center
    if encoder.transform is not None:
        exponents = encoder.transform.exponent + exponent
        transform = dataclasses.replace(encoder.transform, exponent=exponents)
        encoder = dataclasses.replace(encoder, transform=transform, is_log=is_log)
    return _Scored(scores, samples, exponent, means, encoder, bool((scales != 1.0).any()))


def _rows_of(view: RowSource) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Samples (m,) that a view has, and their rows (m, d)."""
    rows = cache_chunks(view).read(0, view.shape[0])
    return np.arange(len(rows)) if view.present is None else view.present.samples, rows


def cells_of_views(
    scored: list[_Scored],
    batches: NDArray[np.int64],
    n_batches: int,
    n_cells: int,
    find: Callable[..., batch_effects.BatchCells],
) -> batch_effects.BatchCells:
    """Cells of the samples of all views."""
    n = len(batches)
    scores = [PresentSamples(view.samples, n).spread(view.scores) for view in scored]
    price = batch_effects.OffsetPrices.of_shapes([view.encoder.loadings.shape for view in scored])
    return find(np.hstack(scores), batches, n_batches, n_cells, price)


def correction_of_view(
    view: RowSource, scored: _Scored, cells: batch_effects.BatchCells, batches: NDArray[np.int64]
) -> tuple[BatchCorrection | None, Encoder, NDArray[np.float64], BatchShares]:
    """Correction of a view, None without effects; its encoder of scores, the mean rows of its cells, and the shares of batches among neighbors."""
    own, of_cells = batches[scored.samples], cells.cells[scored.samples]
    rows, n_cells, has_effects = _rows_of(view)[1], len(cells.means), bool(cells.offsets.any())
    are_counts, exponent, center = scored.encoder.is_log, scored.exponent, scored.means
    if are_counts:
        exponent, center = safe_exponent(rows.max(axis=0, initial=0.0)), np.zeros_like(center)
    divided = np.ldexp(rows, -exponent)
    sums = batch_corrections.group_sums(divided, of_cells, own, n_cells, center)
    if are_counts:
        if has_effects:
            correction = batch_corrections.count_correction(sums, np.ldexp(1.0, -exponent))
        else:  # on scores, which totals do not change
            correction = batch_corrections.total_correction(
                divided, of_cells, own, n_cells, len(center)
            )
            has_effects = bool((correction.factors != 1.0).any())
        logs = logarithms(correction.of_rows(rows, own))
        means = batch_effects.group_means(logs, of_cells, n_cells)
    else:
        found, means = batch_corrections.view_correction(sums)
        means = np.ldexp(means, exponent)
        correction = dataclasses.replace(found, offsets=np.ldexp(found.offsets, exponent))
        has_effects |= scored.scaled and bool((correction.factors != 1.0).any())
    some = sampled_rows(len(own), SIZES.n_coarsely_compared)
    rows, own, of_cells = rows[some], own[some], of_cells[some]
    before = after = batch_effects.same_batch_share(rows, own)
    if has_effects:
        after = batch_effects.same_batch_share(correction.of_rows(rows, own), own)
    shares = BatchShares(before, after, batch_effects.expected_share(of_cells, own))
    return correction if has_effects else None, scored.encoder, means, shares


def corrections_of_new_batch(
    data: MultiViewData, samples: NDArray[np.int64], effects: BatchEffects
) -> dict[str, BatchCorrection]:
    """Corrections of the samples of a batch that the fit did not have, by view, each of one batch."""
    parts, rows_of = [], {}
    views = {view.name: view for view in data.views}
    for name, encoder in effects.encoders.items():
        part = np.full((len(samples), encoder.loadings.shape[1]), np.nan)
        parts.append(part)
        if name not in views:
            continue
        here, rows = _rows_of(sampled_view(views[name], samples))
        part[here] = encoded_rows(encoder, rows, samples[here], name)
        rows_of[name] = here, rows
    price = batch_effects.OffsetPrices.of_shapes(
        [encoder.loadings.shape for encoder in effects.encoders.values()]
    )
    cells, scales = batch_effects.fit_new_batch(
        np.hstack(parts), effects.score_means, effects.score_variances, price
    )
    scale_of = dict(zip(effects.encoders, scales.tolist(), strict=True))
    return {
        name: batch_corrections.new_count_correction(rows, effects.row_means[name][cells[here]])
        if effects.encoders[name].is_log
        else batch_corrections.new_correction(
            rows, effects.row_means[name][cells[here]], scale_of[name]
        )
        for name, (here, rows) in rows_of.items()
    }
