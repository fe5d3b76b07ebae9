"""Views of a fit: singular vectors, ridge views and linear discriminants, by blocks of rows."""

from __future__ import annotations

import copy
import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.rows import cache_chunks, rows_in_memory
from mscam_dask.data.views.sources import RowSource
from mscam_dask.engine.blocks import FAN_IN, RowOrder, Stage, View
from mscam_dask.engine.executors.base import Handle
from mscam_dask.errors import DataError, StoreCorruptError
from mscam_dask.linalg.halos import Ranges
from mscam_dask.linalg.incomplete import PresentSamples
from mscam_dask.linalg.scaling import ColumnMoments, RowTransform, fit_transform_from_moments
from mscam_dask.solvers import lda
from mscam_dask.solvers.ridge_view import (
    MAX_EXACT_GRAM,
    Encoder,
    RidgeView,
    ViewSVD,
    directions_of_gram,
    project_rows,
    ridge_view,
    view_svd,
    with_loadings,
)
from mscam_dask.solvers.row_blocks import GramSum, ViewShape, gram_of_rows, moments_of_rows
from mscam_dask.types.events import ViewIteration, ViewPrepared
from mscam_dask.types.parameters import Scale, ViewSettings
from mscam_dask.types.rules import SIZES

# Axes of each view that figures show, two at a time.
N_AXES = 6

# Largest coordinate of a new sample, in units of the spread of the training samples: squares are finite.
_FARTHEST = 1e150


@dataclasses.dataclass(frozen=True, slots=True)
class FactoredView:
    """SVD of a view, its record, and the samples that the view has (None for all)."""

    view: ViewSVD
    record: ViewPrepared
    present: PresentSamples | None = None


def view_shape(source: RowSource) -> ViewShape:
    """Shape and type of a view, which solvers need before they read it."""
    return ViewShape(source.shape[0], source.shape[1], source.view_type)


def svd_view(source: RowSource, scale: Scale, max_rank: int | None = None) -> FactoredView:
    """Read one view, scale it and compute its SVD."""
    started = time.perf_counter()
    source = cache_chunks(source)
    view = view_svd(
        source.read,
        view_shape(source),
        scale=scale,
        name=source.name,
        dtype=np.float32,
        max_rank=max_rank,
    )
    record = ViewPrepared(
        view=source.name,
        n_features=source.shape[1],
        rank=view.basis.rank,
        effective_rank=view.effective_rank,
        seconds=time.perf_counter() - started,
        n_bytes=view.basis.vectors.nbytes,
    )
    return FactoredView(view, record, source.present)


def svd_or_error(
    source: RowSource, scale: Scale, max_rank: int | None = None
) -> FactoredView | DataError:
    """SVD of a view, or the error of a scaling that makes all rows equal."""
    try:
        return svd_view(source, scale, max_rank)
    except StoreCorruptError:
        raise
    except DataError as error:
        return error


SVDs = dict[tuple[str, Scale], Handle]
"""SVDs of the views of a fit, by name and scaling."""


def svd_once(
    stage: Stage, svds: SVDs, source: RowSource, scale: Scale, max_rank: int | None = None
) -> Handle:
    """Return the SVD of a view from `svds`; it is submitted first if it is not there."""
    key = source.name, scale
    if key not in svds:
        part = f"{scale}/{source.name}"
        svds[key] = stage.submit(svd_or_error, source, scale, max_rank, part=part)
    return svds[key]


def ridge_view_of(found: FactoredView, alpha: float) -> RidgeView:
    """Ridge view: the directions of a view with their ridge shrinkage."""
    return ridge_view(found.view, alpha=alpha, present=found.present)


def with_encoder(source: RowSource, found: FactoredView, alpha: float) -> RidgeView:
    """Ridge view with all loadings of its encoder."""
    view = with_loadings(found.view, cache_chunks(source).read)
    return ridge_view(view, alpha=alpha, present=found.present)


def encoder_of(source: RowSource, found: FactoredView, alpha: float) -> Encoder:
    """Encoder of the ridge view of a view."""
    return with_encoder(source, found, alpha).encoder


def whole_view(source: RowSource, settings: ViewSettings, max_rank: int) -> RidgeView:
    """Ridge view of a view that one task decomposes."""
    return with_encoder(source, svd_view(source, settings.scale, max_rank), settings.alpha)


def by_blocks(
    stage: Stage, source: RowSource, settings: ViewSettings, ranges: Ranges, max_rank: int
) -> View:
    """Submit the ridge view of a view by blocks of rows in the order of the data.

    The moments of the columns, the Gram matrix of the scaled rows and the projection are three passes.
    Views of many columns, and distance and kernel views, are decomposed by one task.
    """
    if source.view_type != "features" or source.shape[1] > MAX_EXACT_GRAM:
        view = stage.submit(whole_view, source, settings, max_rank)
        *rows, empty = (
            stage.submit(rows_of_view, view, start, stop) for start, stop in (*ranges, (0, 0))
        )
        return View(tuple(rows), empty)
    data = [_rows(stage, source, start, stop) for start, stop in ranges]
    moments = [
        stage.submit(of_rows, moments_of_rows, *block, source.shape[1], kind="moments_of")
        for block in data
    ]
    transform = stage.submit(row_scaling, moments, settings.scale)
    grams = stage.tree(  # since a task would hold the matrices of all blocks
        merged_grams,
        [stage.submit(of_rows, gram_of_rows, *block, transform, kind="gram") for block in data],
        n_left=FAN_IN,
    )
    factor = stage.submit(
        ridge_factor, grams, transform, settings, source.name, max_rank, kind="factor_of"
    )
    rows = [stage.submit(project, *block, factor) for block in data]
    return View(tuple(rows), factor)


def _rows(stage: Stage, source: RowSource, start: int, stop: int) -> tuple[Any, int, int]:
    """Source of a block of rows, and their range in it: only these rows of an array are sent, once for all tasks."""
    rows = rows_in_memory(source, start, stop)
    if rows is None:
        return source, start, stop
    return stage.submit(copy.copy, rows, kind="rows"), 0, stop - start


def of_rows(function: Callable[..., Any], source: RowSource, *args: Any) -> Any:
    """Function of the rows of a view, which keeps the chunks that it reads."""
    return function(cache_chunks(source).read, *args)


def merged_grams(sums: list[GramSum]) -> GramSum:
    """Sum of the Gram matrices of several blocks."""
    return functools.reduce(GramSum.merge, sums)


def row_scaling(moments: list[ColumnMoments], scale: Scale) -> RowTransform:
    """Scaling of the rows from the moments of all blocks."""
    return fit_transform_from_moments(scale, functools.reduce(ColumnMoments.merge, moments))


def ridge_factor(
    sums: list[GramSum], transform: RowTransform, settings: ViewSettings, name: str, max_rank: int
) -> RidgeView:
    """Ridge view, without rows, from the Gram matrices of all blocks."""
    total = merged_grams(sums)
    view = directions_of_gram(total, transform).without_rows(
        total.count, name=name, scale=settings.scale, max_rank=max_rank
    )
    return ridge_view(view, alpha=settings.alpha, n_samples=total.count)


def project(source: RowSource, start: int, stop: int, view: RidgeView) -> RidgeView:
    """Ridge view of a block of rows."""
    loadings = view.encoder.loadings / np.sqrt(view.coordinates()[1])
    encoder = dataclasses.replace(view.encoder, loadings=loadings)
    read = cache_chunks(source).read
    return view.of_rows(project_rows(read, start, stop, encoder, np.float32))


def rows_of_view(view: RidgeView, start: int, stop: int) -> RidgeView:
    """Ridge view of some rows of a whole ridge view."""
    return view.of_rows(view.basis.vectors[start:stop].copy())


def principal_coordinates(view: RidgeView) -> NDArray[np.float32]:
    """First principal coordinates (m, ≤ 6) of a block of a view; NaN for samples that it does not have."""
    vectors, weights = view.coordinates()
    found = np.asarray(vectors[:, :N_AXES] * np.sqrt(weights[:N_AXES]), dtype=np.float32)
    return found if view.present is None else view.present.spread(found)


# learned metrics -------------------------------------------------------------------------------


def learn_metrics(
    stage: Stage, views: Sequence[View], names: Sequence[str], labels: Handle, order: RowOrder
) -> tuple[list[View], list[Handle]]:
    """Submit the linear discriminants of each view for a partition, and their records."""
    by_rows = stage.item(labels, order.order)
    metrics, records = [], []
    for view, name in zip(views, names, strict=True):
        sums = [
            stage.submit(class_sums_of, block, by_rows, start, stop)
            for block, (start, stop) in zip(view.rows, order.ranges, strict=True)
        ]
        metric = stage.submit(learn_metric, sums, view.empty, name, part=name)
        rows = tuple(stage.submit(discriminants, block, metric) for block in view.rows)
        metrics.append(View(rows, stage.item(metric, 1)))
        records.append(stage.item(metric, 2))
    return metrics, records


def class_sums_of(
    view: RidgeView, labels: NDArray[np.int64], start: int, stop: int
) -> lda.ClassSums:
    """Sums of a block of rows by cluster."""
    n_clusters, own = int(labels.max()) + 1, labels[start:stop]  # −1 where a label is not known
    own = own if view.present is None else own[view.present.samples]
    return lda.class_sums(view.basis.vectors[:, : SIZES.max_rank], own, n_clusters)


def learn_metric(
    sums: list[lda.ClassSums], view: RidgeView, name: str
) -> tuple[NDArray[np.float64], lda.LinearDiscriminants, ViewIteration]:
    """Loadings of the linear discriminants of a view, the discriminants without rows, and the record."""
    started = time.perf_counter()
    loadings, metric = lda.fitted_discriminants(functools.reduce(lda.ClassSums.merge, sums), view)
    seconds = time.perf_counter() - started
    record = ViewIteration(view=name, objective=-metric.separation, seconds=seconds)
    return loadings, metric, record


def discriminants(
    view: RidgeView, metric: tuple[NDArray[np.float64], lda.LinearDiscriminants, ViewIteration]
) -> lda.LinearDiscriminants:
    """Rows of a view in its linear discriminants."""
    return metric[1].of_rows(lda.discriminant_points(view, metric[0]))


def encoded_rows(
    encoder: Encoder, rows: NDArray[np.float64], samples: NDArray[np.int64], name: str
) -> NDArray[np.float64]:
    """Coordinates of the rows of new samples; a `DataError` if they are too far from the training samples."""
    with np.errstate(over="ignore", invalid="ignore"):
        encoded = encoder(rows)
    far = samples[~(np.abs(encoded) < _FARTHEST).all(axis=1)]
    if far.size:
        raise DataError(
            f"View {name!r}: {far.size} new sample(s) cannot be scaled like the training samples, or are "
            f"farther from them than {_FARTHEST:g} times their spread (first rows: {far[:5].tolist()}). Check "
            "their units."
        )
    return encoded
