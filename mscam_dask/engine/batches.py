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
from mscam_dask.engine.views import view_shape
from mscam_dask.linalg.incomplete import PresentSamples
from mscam_dask.linalg.scaling import BatchCorrection
from mscam_dask.solvers.batch_effects import (
    BatchCells,
    OffsetPrices,
    batch_cells,
    batch_means,
    batch_scales,
    counted_cells,
    expected_share,
    fit_new_batch,
    group_sums,
    new_correction,
    same_batch_share,
    score_encoder,
    view_correction,
)
from mscam_dask.solvers.ridge_view import Encoder
from mscam_dask.types.result import BatchShares
from mscam_dask.types.rules import SIZES

SMALLEST_NEW_BATCH = 10
"""Samples of a new batch from which its offsets can be estimated."""

# Cells, at most, if the number of clusters is selected.
_N_COUNTED = 8


@dataclasses.dataclass(frozen=True)
class BatchEffects:
    """Batch effects of a fit, from which new samples of its batches, and of others, are corrected."""

    corrections: dict[str, BatchCorrection]  # by feature view with effects
    encoders: dict[str, Encoder]  # of the rows of each of these views to their scores
    score_means: NDArray[np.float64]  # (K, q) mean scores of the cells, all views side by side
    row_means: dict[str, NDArray[np.float64]]  # (K, d) corrected, by view
    shares: dict[str, BatchShares]
    matched: bool = True  # as in `BatchCells`; of a loaded fit, its assessment says it


@dataclasses.dataclass(frozen=True)
class _Scored:
    """Scores of the samples of one view."""

    scores: NDArray[np.float64]
    samples: NDArray[np.int64]
    means: NDArray[np.float64]
    encoder: Encoder
    scaled: bool  # whether batches have other scales


def batch_effects(
    data: MultiViewData, batches: NDArray[np.int64], n_clusters: int | None, executor: Executor
) -> BatchEffects:
    """Estimate batch effects on a sample of every batch; the number of clusters, None to count cells."""
    rows = sampled_batches(batches, SIZES.n_batched)
    own, n_batches = batches[rows], int(batches.max()) + 1
    sampled = {
        view.name: sampled_view(view, rows) for view in data.views if view.view_type == "features"
    }
    n_cells = max(1, min(n_clusters or _N_COUNTED, len(rows) // 2))
    find = counted_cells if n_clusters is None else batch_cells
    with executor:
        stage = Stage(executor, "batches")
        scored = [
            stage.submit(scores_of_view, view, own, n_batches, n_cells, part=name)
            for name, view in sampled.items()
        ]
        cells = stage.submit(cells_of_views, scored, own, n_batches, n_cells, find)
        found = [
            stage.submit(correction_of_view, view, one, cells, own, part=name)
            for (name, view), one in zip(sampled.items(), scored, strict=True)
        ]
        of_views, (of_cells,) = stage.gather(found, [cells])
    corrections, encoders, row_means, shares = (
        dict(zip(sampled, column, strict=True)) for column in zip(*of_views, strict=True)
    )
    effects = {name: found for name, found in corrections.items() if found is not None}
    return BatchEffects(effects, encoders, of_cells.means, row_means, shares, of_cells.matched)


def sampled_batches(batches: NDArray[np.int64], n_wanted: int) -> NDArray[np.int64]:
    """Ascending rows of a sample: whole small batches, and as many evenly spaced rows of each large one."""
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
        rows.append(of_batch[np.linspace(0, size - 1, min(size, most)).astype(np.int64)])
    return np.sort(np.concatenate(rows))


def scores_of_view(
    view: RowSource, batches: NDArray[np.int64], n_batches: int, n_cells: int
) -> _Scored:
    """Scores of the samples that a view has."""
    view = cache_chunks(view)
    present, shape = view.present, view_shape(view)
    samples = np.arange(len(batches)) if present is None else present.samples
    means = batch_means(view.read, shape, batches[samples], n_batches)
    own = batches[samples]
    encoder = score_encoder(view.read, shape, own, means, n_cells, view.name)
    rows = view.read(0, shape.n_samples)
    scales = batch_scales(rows - means[own], encoder, own, n_batches)
    center = encoder(means.mean(axis=0)[None])
    scores = (encoder(rows) - center) / scales[own, None] + center
    return _Scored(scores, samples, means, encoder, bool((scales != 1.0).any()))


def cells_of_views(
    scored: list[_Scored],
    batches: NDArray[np.int64],
    n_batches: int,
    n_cells: int,
    find: Callable[..., BatchCells],
) -> BatchCells:
    """Cells of the samples of all views."""
    n = len(batches)
    scores = [PresentSamples(one.samples, n).spread(one.scores) for one in scored]
    price = OffsetPrices.of_shapes([one.encoder.loadings.shape for one in scored])
    return find(np.hstack(scores), batches, n_batches, n_cells, price)


def correction_of_view(
    view: RowSource, scored: _Scored, cells: BatchCells, batches: NDArray[np.int64]
) -> tuple[BatchCorrection | None, Encoder, NDArray[np.float64], BatchShares]:
    """Correction of a view, None without effects; its encoder of scores, the mean rows of its cells, and the shares of batches among neighbors."""
    view = cache_chunks(view)
    own, of_cells = batches[scored.samples], cells.cells[scored.samples]
    sums = group_sums(view.read, view_shape(view), of_cells, own, len(cells.means), scored.means)
    correction, means = view_correction(sums)
    some = np.linspace(0, len(own) - 1, min(len(own), SIZES.n_coarsely_compared)).astype(np.int64)
    rows = view.read(0, view.shape[0])[some]
    has_scales = scored.scaled and bool((correction.factors != 1.0).any())
    found = correction if has_scales or cells.offsets.any() else None
    before = after = same_batch_share(rows, own[some])
    if found is not None:
        after = same_batch_share(found.of_rows(rows, own[some]), own[some])
    expected = expected_share(of_cells[some], own[some])
    return found, scored.encoder, means, BatchShares(before, after, expected)


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
        view = cache_chunks(sampled_view(views[name], samples))
        present = view.present
        here = np.arange(len(samples)) if present is None else present.samples
        rows = view.read(0, view.shape[0])
        part[here], rows_of[name] = encoder(rows), (here, rows)
    price = OffsetPrices.of_shapes([one.loadings.shape for one in effects.encoders.values()])
    cells = fit_new_batch(np.hstack(parts), effects.score_means, price)
    return {
        name: new_correction(rows, effects.row_means[name][cells[here]])
        for name, (here, rows) in rows_of.items()
    }
