"""Ingest files into a store, and append samples to one."""

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
from mscam_dask.data.store.atomic_replace import resolve_current
from mscam_dask.data.store.dataset import check_output, open_store, read_origin, write_store
from mscam_dask.data.store.object_store import Location, as_location, size_of
from mscam_dask.data.views.as_multi_view import ViewTypeSpec, with_view_types
from mscam_dask.data.views.conversion import UNLABELED, labeled_samples
from mscam_dask.data.views.missing_cells import (
    impute_methods,
    impute_methods_of,
    impute_views,
    naming_missing_cells,
)
from mscam_dask.data.views.multi_view import MultiViewData, presence_table
from mscam_dask.data.views.rows import LiftedRows, restrict_to_present
from mscam_dask.data.views.sample_ids import Join
from mscam_dask.data.views.sources import (
    ArrayRows,
    RowsOf,
    RowSource,
    changed_names,
    listed,
)
from mscam_dask.data.views.validation import check_linked, issues_of_codes, validate_view
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
        joined = _joined_samples(old, data, where=str(output))
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
    notes = [issue.message for view in data.views for issue in issues_of_codes(view)]
    data, _, shares = impute_views(data, methods)
    notes += [
        f"View {view.name!r}: {share.sum() / view.shape[0]:.2%} of the cells, in {np.count_nonzero(share)} of "
        f"{view.shape[0]} samples, imputed by {methods[view.name]!r}; at most {share.max():.0%} of a sample."
        for view in data.views
        if (share := shares.get(view.name)) is not None
    ]
    notes += [
        f"View {view.name!r} is square and symmetric, and is read as features. If it holds distances or similarities, set "
        "view_type to 'distance' or 'kernel' (--view-type)."
        for view in data.views
        if view_type is None or (isinstance(view_type, Mapping) and view.name not in view_type)
        if view.view_type == "features" and _is_symmetric(view)
    ]
    return data, methods, tuple(notes)


def _with_diagonal(view: RowSource) -> RowSource:
    """Return a distance view whose blank diagonal is 0, any other as it is; one that is read as features is refused."""
    n_rows, n_columns = view.shape
    if n_rows != n_columns or n_rows < 2 or [*np.flatnonzero(np.isnan(view.read(0, 1)))] != [0]:
        return view
    rows = np.array(view.read(0, n_rows))
    is_blank = np.array_equal(np.isnan(rows), np.eye(n_rows, dtype=np.bool_))
    if view.view_type == "kernel" or view.present is not None or not is_blank:
        return view
    if view.view_type == "features":
        raise DataError(
            f"View {view.name!r} is square, and its diagonal is blank. If it holds distances, set view_type to 'distance' "
            "(--view-type), which has 0 there; write the diagonal of similarities."
        )
    np.fill_diagonal(rows, 0)
    return ArrayRows(rows, view.name, view.view_type)


def _is_symmetric(view: RowSource) -> bool:
    """Return whether a view is square, and its first rows and columns are the same."""
    n_rows, n_columns = view.shape
    if n_rows != n_columns or n_rows < 2:
        return False
    corner = view.read(0, min(n_rows, _CORNER))[:, :_CORNER]
    rounding = 1e-6 * np.nanmax(np.abs(corner), initial=0)  # of products of matrices
    return rounding > 0 and np.allclose(corner, corner.T, 0, rounding, equal_nan=True)


def _absences(data: MultiViewData) -> tuple[str, ...]:
    """Return a note on each view that does not have all samples."""
    return tuple(
        f"View {view.name!r} has {view.shape[0]} of {data.n_samples} samples."
        for view in data.views
        if view.shape[0] < data.n_samples
    )


def _repetitions(data: MultiViewData) -> tuple[str, ...]:
    """Return a note on each view of a store that has the values of an earlier one."""
    first_with = {view.recorded_digest: view.name for view in reversed(data.views)}
    return tuple(
        f"Views {first!r} and {view.name!r} have the same values, which count twice. Name the views to read (--view) to take "
        "one of them."
        for view in data.views
        if (first := first_with[view.recorded_digest]) != view.name
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
        notes=(*notes, *_repetitions(stored)),
        origin=read_origin(root),
        stored_bytes=size_of(resolve_current(root)),
        digest=stored.digest(),
    )


# appended samples ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _JoinedRows(RowsOf):
    """View with the rows of one view of features followed by those of another with the same columns."""

    source: RowSource
    second: RowSource

    @property
    def shape(self) -> tuple[int, int]:
        return self.source.shape[0] + self.second.shape[0], self.source.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.result_type(self.source.dtype, self.second.dtype)

    def _rows(self, start: int, stop: int) -> NDArray[Any]:
        border = self.source.shape[0]
        parts = []
        if start < border:
            parts.append(self.source.read(start, min(stop, border)))
        if stop > border or not parts:
            parts.append(self.second.read(max(start, border) - border, max(stop, border) - border))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _joined_samples(old: MultiViewData, new: MultiViewData, *, where: str) -> MultiViewData:
    """Return the samples of a store followed by new ones, with all or some of its views, read lazily."""
    by_name = {view.name: view for view in new.views}
    if not set(by_name) <= set(old.view_names):
        raise DataError(
            f"{where} has the views {list(old.view_names)}, the new samples have "
            f"{list(new.view_names)}; allowed are views of the store, of which some may be missing. "
            "Give these (--view NAME)."
        )
    views = tuple(_joined(view, by_name.get(view.name), new.n_samples, where) for view in old.views)
    labels, label_names = _labels(old, new, where)
    return MultiViewData(
        views=views,
        sample_ids=_ids(old, new, where),
        labels=labels,
        label_names=label_names,
    )


def _joined(old: RowSource, new: RowSource | None, n_new: int, where: str) -> RowSource:
    """Return the rows of the old and the new samples, absent samples left out."""
    if new is None:
        new = restrict_to_present(LiftedRows(old, np.full(n_new, -1, dtype=np.int64)))
    # with a row for each sample; those of absent samples have arbitrary values
    rows = _joined_rows(old.whole, new.whole, where)
    has = np.concatenate([presence_table([one])[:, 0] for one in (old, new)])
    return restrict_to_present(rows, np.flatnonzero(~has))


def _joined_rows(old: RowSource, new: RowSource, where: str) -> RowSource:
    if old.view_type != "features" or new.view_type != "features":
        raise DataError(
            f"View {old.name!r} has view_type={old.view_type!r} in {where} and {new.view_type!r} in the new "
            "samples; samples can be appended to feature views only. Ingest a distance or kernel matrix as a whole."
        )
    differ = f"there are {new.shape[1]} columns and were {old.shape[1]}"
    if old.shape[1] == new.shape[1]:
        differ = changed_names(old.feature_names, new.feature_names)
    if differ:
        raise DataError(
            f"View {old.name!r} has other features than in {where}: {differ}. Give those of the store, in its order "
            "and under its names."
        )
    return _JoinedRows(old, new)


def _ids(old: MultiViewData, new: MultiViewData, where: str) -> tuple[str, ...] | None:
    if old.sample_ids is None and new.sample_ids is None:
        return None
    if old.sample_ids is None or new.sample_ids is None:
        raise DataError(
            f"Only {where if new.sample_ids is None else 'the new samples'} have sample ids; allowed are ids in "
            f"{where} and in the new samples, or in neither. Name their column (--id-column)."
        )
    known = set(old.sample_ids)
    repeated = [name for name in new.sample_ids if name in known]
    if repeated:
        raise DataError(
            f"{len(repeated)} of the {len(new.sample_ids)} new samples are in {where} already: "
            f"{listed(repeated)}. Leave them out; to change samples, ingest the whole data again with "
            "--overwrite."
        )
    return (*old.sample_ids, *new.sample_ids)


def _labels(
    old: MultiViewData, new: MultiViewData, where: str
) -> tuple[NDArray[np.int64] | None, tuple[str, ...] | None]:
    """Labels of all; names that are new get the numbers after the old ones, -1 stays unlabeled."""
    if new.labels is None:
        if old.labels is None:
            return None, None
        unlabeled = np.full(new.n_samples, UNLABELED, dtype=np.int64)
        return np.concatenate([old.labels, unlabeled]), old.label_names
    if old.labels is None or (old.label_names is None) != (new.label_names is None):
        forms = ["numbers" if data.label_names is None else "text" for data in (old, new)]
        raise DataError(
            f"Labels are {'absent' if old.labels is None else forms[0]} in {where} and {forms[1]} in the new "
            "samples. Give both in one form, leave new ones out, or ingest the whole data again with labels."
        )
    if old.label_names is None or new.label_names is None:
        return np.concatenate([old.labels, new.labels]), None
    added = [name for name in new.label_names if name not in old.label_names]
    names = (*old.label_names, *added)
    codes = np.array([names.index(name) for name in new.label_names], dtype=np.int64)
    renamed = np.append(codes, UNLABELED)[new.labels]  # whose last entry is that of -1
    return np.concatenate([old.labels, renamed]), names
