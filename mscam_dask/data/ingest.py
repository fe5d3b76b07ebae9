"""Ingest files into a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.base import Source
from mscam_dask.data.readers.combine import Sources, gather
from mscam_dask.data.store.append import joined_samples
from mscam_dask.data.store.atomic_replace import resolve_current
from mscam_dask.data.store.object_store import Location, as_location, size_of
from mscam_dask.data.store.read import open_store, read_origin
from mscam_dask.data.store.write import check_output, write_store
from mscam_dask.data.views.as_multi_view import ViewTypeSpec, with_view_types
from mscam_dask.data.views.conversion import labeled_samples
from mscam_dask.data.views.missing_cells import (
    impute_methods,
    impute_methods_of,
    impute_views,
    naming_missing_cells,
)
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sample_ids import Join
from mscam_dask.data.views.sources import RowsOf, RowSource, row_ranges
from mscam_dask.data.views.validation import check_linked, validate_view
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.types.parameters import ImputeMethod

__all__ = ["IngestReport", "Source", "append", "ingest"]

_CORNER = 64  # rows and columns that show whether a view is symmetric


@dataclass(frozen=True)
class IngestReport:
    """Report of `ingest` and `append`.

    Attributes
    ----------
    output
        Absolute path, or the URL, of the store.
    n_samples, views
        Number of samples, and the views, of the store: each has `name`, `view_type`, `shape` and `dtype`.
    n_classes
        Number of distinct labels, None without labels.
    has_sample_ids
        Whether samples have ids.
    notes
        How variables and columns were interpreted, and which were skipped, one sentence each.
    origin
        What was decided about each table, by title: source, read as, sample ids, labels, left out, missing
        cells, rows.
    stored_bytes
        Size of the store where it lies.
    digest
        `MultiViewData.digest` of the store.
    """

    output: Location
    n_samples: int
    views: tuple[RowSource, ...]
    n_classes: int | None
    has_sample_ids: bool
    notes: tuple[str, ...]
    origin: tuple[Mapping[str, str], ...]
    stored_bytes: int
    digest: str


def ingest(  # noqa: PLR0913 - one option for each thing that sources may say differently
    sources: Sources,
    output: str | Location,
    *,
    views: Sequence[str] | Mapping[str, str] | None = None,
    view_type: ViewTypeSpec | None = None,
    labels: str | Path | Sequence[Any] | NDArray[Any] | None = None,
    chunk_size: int | None = None,
    overwrite: bool = False,
    join: Join | None = None,
    impute: str | Mapping[str, str | None] | None = None,
) -> IngestReport:
    """Turn files of several views of the same samples into one chunked, checksummed store.

    Parameters
    ----------
    sources
        One or more files of the formats in docs/own-data.md, or the URL of a store of this package. A file with an
        unknown suffix is read as text. `Source` adds how a file is to be read. A `MultiViewData` is written as it is. Sources with sample
        ids hold the same ids, in any order: rows are put in the order of the first of them.
        Row i of a source without ids is sample i.
    output
        Directory or URL of the store; see `write_store` for how it comes into being.
    views
        Which views to take, in which order; a mapping also renames them, {name in the source:
        name in the store}. The name of a cell array of a .mat file stands for all views in it. All of
        them by default.
    view_type
        As in `as_multi_view`; by default what the sources say, else "features".
    labels
        Ground truth for evaluation: name of a variable or column of the sources, a file with
        one label per line or with sample ids and labels in two columns (matched by id), or the labels
        themselves (in the order of the store). By default what the sources call labels.
    chunk_size
        Samples per chunk; by default as many as make 8 MiB in each view.
    overwrite
        Replace a store that is there.
    join
        Samples of sources with sample ids that differ: "inner" takes those that every source has,
        "outer" those that any source has, which the views of the others do not have. None refuses
        them.
    impute
        Method for missing cells, NaN in rows that are not all NaN: "mean", "median" or "knn", for all
        views or as a mapping by name; such views are read into memory. None refuses them. A row that
        is all NaN is a sample that the view does not have.

    Raises
    ------
    DataError
        When a source cannot be read, holds Python objects, or the views do not fit each
        other: numbers of samples, ids, names; when a value is NaN or infinite; when a distance or
        kernel view is none (`mscam_dask.data.views.validation`); when `output` exists.
    ConfigurationError
        When an option names something that does not exist.
    """
    check_output(output, overwrite=overwrite)
    with ExitStack() as stack:
        data, notes, origin = gather(sources, views, labels, stack, join)
        data, methods, imputed = _prepared(data, view_type, impute)
        check_linked(data)
        with naming_missing_cells(data):
            for view in data.views:
                if view.view_type != "features":
                    validate_view(view)
            root = write_store(
                data,
                as_location(output),
                chunk_size=chunk_size,
                overwrite=overwrite,
                impute=methods,
                origin=origin,
            )
    return _report(root, (*notes, *_absences(data), *imputed))


def append(  # noqa: PLR0913 - as `ingest`
    sources: Sources,
    output: str | Location,
    *,
    views: Sequence[str] | Mapping[str, str] | None = None,
    view_type: ViewTypeSpec | None = None,
    labels: str | Path | Sequence[Any] | NDArray[Any] | None = None,
    chunk_size: int | None = None,
    join: Join | None = None,
    impute: str | Mapping[str, str | None] | None = None,
) -> IngestReport:
    """Add the samples of files to a store, after those that are there.

    Parameters
    ----------
    sources, views, view_type, labels, chunk_size, join, impute
        As for `ingest`. Views may be missing from the new samples, which these then do not have, but
        not all of them. New samples without labels are unlabeled (−1) in a store with labels. Missing
        cells are imputed from the new samples only.
    output
        The store. It has all of the new samples or none, also after a kill: a sibling directory
        is written, read back, and takes its place (`mscam_dask.data.store.atomic_replace`). A run that
        reads the store at that time ends with an error that says so.

    Returns
    -------
    IngestReport
        Report on the whole store.

    Raises
    ------
    DataError
        When there is no store, the new samples have other views or columns, or ids that are in
        the store already, or a value is NaN or infinite.
    StoreCorruptError
        When the store is damaged, or another process replaced it meanwhile.
    TemporaryFailure
        When another process is writing the store.
    """
    old = open_store(output)
    with ExitStack() as stack:
        data, notes, origin = gather(sources, views, labels, stack, join)
        data, methods, imputed = _prepared(data, view_type, impute)
        joined = joined_samples(old, data, where=str(output))
        with naming_missing_cells(data):
            root = write_store(
                joined,
                as_location(output),
                chunk_size=chunk_size,
                overwrite=True,
                impute={**methods, **impute_methods_of(old)},
                origin=(*read_origin(output), *origin),
            )
    added = f"{data.n_samples} samples added to {old.n_samples}"
    return _report(root, (added, *notes, *_absences(joined), *imputed))


def _prepared(
    data: MultiViewData,
    view_type: ViewTypeSpec | None,
    impute: str | Mapping[str, str | None] | None,
) -> tuple[MultiViewData, dict[str, ImputeMethod], tuple[str, ...]]:
    """Return the data with view types as told, else as their files say, and imputed; methods by view; notes."""
    others = [view.name for view in data.views if view.view_type != "features"]
    if view_type == "features" and others:
        raise ConfigurationError(
            f"view_type='features', but the sources say that {others} are distances or kernels. Leave "
            "view_type out, or give a mapping by name to take them as features."
        )
    data = with_view_types(data, "features" if view_type is None else view_type)
    data = replace(data, views=tuple(map(_with_diagonal, data.views)))
    methods = impute_methods(impute, data.view_names)
    imputed = impute_views(data, methods)
    notes = [
        f"View {view.name!r}: {share.sum() / view.shape[0]:.2%} of the cells, in {np.count_nonzero(share)} of "
        f"{view.shape[0]} samples, imputed by {methods[view.name]!r}; at most {share.max():.0%} of a sample."
        for view in imputed.data.views
        if (share := imputed.shares.get(view.name)) is not None
    ]
    notes += [
        f"View {view.name!r} is square and symmetric, and is read as features. If it holds distances or similarities, set "
        "view_type to 'distance' or 'kernel' (--view-type)."
        for view in imputed.data.views
        if view_type is None or (isinstance(view_type, Mapping) and view.name not in view_type)
        if view.view_type == "features" and _is_symmetric(view)
    ]
    return imputed.data, methods, tuple(notes)


def _with_diagonal(view: RowSource) -> RowSource:
    """Return a distance view whose blank diagonal is 0, any other as it is; one that is read as features is refused."""
    n_rows, n_columns = view.shape
    if n_rows != n_columns or n_rows < 2 or [*np.flatnonzero(np.isnan(view.read(0, 1)))] != [0]:
        return view
    if view.view_type == "kernel":
        return view
    for start, stop in row_ranges(view):
        gone = np.isnan(view.read(start, stop))
        if gone.sum() > stop - start or not gone.diagonal(start).all():
            return view
    if view.view_type == "features":
        raise DataError(
            f"View {view.name!r} is square, and its diagonal is blank. If it holds distances, set view_type to 'distance' "
            "(--view-type), which has 0 there; write the diagonal of similarities."
        )
    return _ZeroDiagonalRows(view)


@dataclass(frozen=True, eq=False)
class _ZeroDiagonalRows(RowsOf):
    """A square view whose blank diagonal is read as 0."""

    source: RowSource

    def _rows(self, start: int, stop: int) -> NDArray[np.float64]:
        rows = np.array(self.source.read(start, stop))
        rows[np.arange(stop - start), np.arange(start, stop)] = 0
        return rows


def _is_symmetric(view: RowSource) -> bool:
    """Return whether a view is square, and its first rows and columns are the same."""
    n_rows, n_columns = view.shape
    if n_rows != n_columns or n_rows < 2:
        return False
    corner = view.read(0, min(n_rows, _CORNER))[:, :_CORNER]
    return np.array_equal(corner, corner.T, equal_nan=True) and bool(np.any(corner != 0))


def _absences(data: MultiViewData) -> tuple[str, ...]:
    """Return a note on each view that does not have all samples."""
    return tuple(
        f"View {view.name!r} has {view.shape[0]} of {data.n_samples} samples."
        for view in data.views
        if view.shape[0] < data.n_samples
    )


def _report(root: Location, notes: tuple[str, ...]) -> IngestReport:
    stored = open_store(root)
    return IngestReport(
        output=root,
        n_samples=stored.n_samples,
        views=stored.views,
        n_classes=None
        if stored.labels is None
        else len(np.unique(stored.labels[labeled_samples(stored.labels)])),
        has_sample_ids=stored.sample_ids is not None,
        notes=notes,
        origin=read_origin(root),
        stored_bytes=size_of(resolve_current(root)),
        digest=stored.digest(),
    )
