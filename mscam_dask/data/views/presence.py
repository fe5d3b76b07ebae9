"""Rows of several tables or sources matched by sample id, and views that do not have all samples.

Rows that are all NaN stand for absent samples.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mscam_dask.data.views.conversion import (
    UNLABELED,
    check_unique_ids,
    encode_labels,
    is_instance_of,
    names_of_columns,
    sample_ids_of,
)
from mscam_dask.data.views.sources import (
    BLOCK_BYTES,
    ArrayRows,
    RowsOf,
    RowSource,
    ViewType,
    as_rows,
    check_row_range,
    feature_names_of,
    recorded_digest,
    row_ranges,
)
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.linalg.incomplete import PresentSamples
from mscam_dask.types.parameters import ImputeMethod

if TYPE_CHECKING:
    from mscam_dask.data.readers.base import SourceContents

__all__ = [
    "JOINS",
    "Join",
    "LiftedRows",
    "PresentRows",
    "aligned_tables",
    "check_join",
    "check_presence",
    "is_in_memory",
    "join_sources",
    "lifted",
    "n_samples_of",
    "presence_table",
    "present_samples",
    "recorded_presence",
    "refuse_unmatched_columns",
    "replaced_view",
    "restrict_to_present",
]


def aligned_tables(
    tables: Sequence[tuple[str, Any]],
) -> tuple[list[tuple[str, Any]], tuple[int, ...]]:
    """Put tables that hold the same sample ids in the order of the first of them.

    Parameters
    ----------
    tables : sequence of (name, table)
        Frames, DataArrays and AnnData have ids; a default index (0, 1, ...) is none. Tables with
        repeated or other ids than the first stay as they are.

    Returns
    -------
    tables : list of (name, table)
        Columns that are named by the ids as well, as those of a distance matrix, are in the same order.
    unmatched : tuple of int
        Positions of reordered square tables whose columns are not named by the ids.

    Raises
    ------
    DataError
        When the order differs and another table has no ids, which may go with either order.
    """
    ids = {name: sample_ids_of(table) for name, table in tables}
    known = [name for name, own in ids.items() if own is not None]
    if not known:
        return list(tables), ()
    wanted = ids[known[0]]
    assert wanted is not None
    found: list[tuple[str, Any]] = []
    moved: list[str] = []
    unmatched: list[int] = []
    for position, (name, table) in enumerate(tables):
        own = ids[name]
        order = None if own is None or own == wanted else _order(own, wanted)
        if order is None:
            found.append((name, table))
            continue
        moved.append(name)
        columns = names_of_columns(table)
        by_id = None if columns is None else _order(columns, wanted)
        if by_id is None and table.shape[0] == table.shape[1]:
            unmatched.append(position)
        found.append((name, _taken(table, order, by_id)))
    nameless = [name for name, own in ids.items() if own is None]
    if moved and nameless:
        raise DataError(
            f"Views {known[0]!r} and {moved[0]!r} hold the same sample ids in a different order, and "
            f"view {nameless[0]!r} has no ids: its rows may be in either order. Give it as a frame with "
            "its ids as index, or put all views in one order (frames: b.loc[a.index])."
        )
    return found, tuple(unmatched)


def refuse_unmatched_columns(views: Collection[RowSource]) -> None:
    """Refuse reordered pairwise views whose columns have no ids.

    Raises
    ------
    DataError
        Naming the view.
    """
    for view in views:
        if view.view_type != "features":
            raise DataError(
                f"View {view.name!r} holds a {view.view_type} for each pair of samples, in another order "
                "than the first view, and its columns are not named by the sample ids. Name them, or "
                "put its rows and columns in the order of the first view."
            )


def _order(own: tuple[str, ...], wanted: tuple[str, ...]) -> NDArray[np.int64] | None:
    """Position of each wanted id among `own`; None where the ids differ or repeat."""
    places = {name: place for place, name in enumerate(own)}
    if not len(places) == len(own) == len(wanted) or places.keys() != set(wanted):
        return None
    return np.array([places[name] for name in wanted], dtype=np.int64)


def _taken(table: Any, rows: NDArray[np.int64], columns: NDArray[np.int64] | None) -> Any:
    """Rows, and maybe columns, of a table in order."""
    by_place = table.iloc if is_instance_of(table, "pandas", "DataFrame") else table
    return by_place[rows] if columns is None else by_place[rows, columns]


@dataclass(frozen=True, eq=False)
class LiftedRows:
    """View of samples in another order, or of some of the samples as a view of all: rows of the others are NaN.

    So are columns of a pairwise view whose columns are its samples.

    Parameters
    ----------
    source
        The view as it is held.
    places
        (n,) row of each sample in the source; −1 for samples that are absent from it.
    name, view_type
        See `RowSource`.
    block_bytes
        Float64 bytes of the source that are read at a time, at most.
    """

    source: RowSource
    places: NDArray[np.int64]
    name: str
    view_type: ViewType = "features"
    block_bytes: int = BLOCK_BYTES

    @property
    def _is_pairwise(self) -> bool:
        return self.view_type != "features" and self.source.shape[0] == self.source.shape[1]

    @property
    def shape(self) -> tuple[int, int]:
        n = len(self.places)
        return n, n if self._is_pairwise else self.source.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.source.dtype

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns of the source, if it has any."""
        return None if self._is_pairwise else feature_names_of(self.source)

    def read(self, start: int, stop: int) -> NDArray[np.float64]:
        """Return rows start..stop-1 as read-only float64."""
        check_row_range(self, start, stop)
        wanted = self.places[start:stop]
        rows = np.full((stop - start, self.source.shape[1]), np.nan)
        for first, last in row_ranges(self.source, block_bytes=self.block_bytes):
            here = np.flatnonzero((wanted >= first) & (wanted < last))
            if here.size:
                held = wanted[here]
                low = int(held.min())
                rows[here] = self.source.read(low, int(held.max()) + 1)[held - low]
        if not self._is_pairwise:
            return as_rows(rows)
        has = self.places >= 0
        wide = np.full((stop - start, len(has)), np.nan)
        wide[:, has] = rows[:, self.places[has]]
        return as_rows(wide)


def lifted(view: RowSource, own: tuple[str, ...], wanted: tuple[str, ...]) -> RowSource:
    """Return the view with a row for each wanted id, NaN for ids that it does not hold.

    Parameters
    ----------
    view
        As it is held.
    own
        Unique ids of its rows, all of them wanted.
    wanted
        Unique ids of all samples.
    """
    if own == wanted:
        return view
    places = {name: place for place, name in enumerate(own)}
    return LiftedRows(
        view,
        np.array([places.get(name, -1) for name in wanted], dtype=np.int64),
        view.name,
        view.view_type,
    )


_SHOWN = 5


@dataclasses.dataclass(frozen=True, eq=False)
class PresentRows(RowsOf):
    """Rows of the samples that an incomplete view has, and the same columns of a pairwise view.

    Parameters
    ----------
    source
        The view with a row for every sample; rows of absent samples are not used.
    samples
        (m,) positions of the samples that the view has, ascending.
    columns
        Columns of a pairwise view that are kept; by default those of `samples`.
    """

    source: RowSource
    samples: NDArray[np.int64]
    columns: NDArray[np.int64] | None = None

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        return feature_names_of(self.source)

    @property
    def impute(self) -> ImputeMethod | None:
        """Method by which a store says that missing cells were filled."""
        method: ImputeMethod | None = getattr(self.source, "impute", None)
        return method

    @property
    def n_samples(self) -> int:
        """Number of all samples n."""
        return self.source.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        if self.view_type == "features":
            return len(self.samples), self.source.shape[1]
        return len(self.samples), len(self._kept_columns)

    @property
    def _kept_columns(self) -> NDArray[np.int64]:
        return self.samples if self.columns is None else self.columns

    @property
    def recorded_digest(self) -> str:
        """Digest of these rows that a store has recorded; else an empty text."""
        return recorded_digest(self.source) if self.columns is None else ""

    def read(self, start: int, stop: int) -> NDArray[np.float64]:
        """Return the rows of the view's samples start..stop-1 as read-only float64."""
        check_row_range(self, start, stop)
        if start == stop:
            return as_rows(np.empty((0, self.shape[1])))
        rows = self.samples[start:stop]
        first = int(rows[0])
        block = self.source.read(first, int(rows[-1]) + 1)[rows - first]
        return as_rows(block if self.view_type == "features" else block[:, self._kept_columns])


def present_samples(source: RowSource) -> PresentSamples | None:
    """Return the samples that a view has, None for all."""
    if isinstance(source, PresentRows):
        return PresentSamples(source.samples, source.n_samples)
    return None


def replaced_view(view: RowSource, **changes: Any) -> RowSource:
    """Return a view with another name or view type."""
    if isinstance(view, PresentRows):
        return dataclasses.replace(view, source=replaced_view(view.source, **changes))
    return cast("RowSource", dataclasses.replace(cast("Any", view), **changes))


def n_samples_of(source: RowSource) -> int:
    """Return the number of samples of the data that a view is part of."""
    return source.n_samples if isinstance(source, PresentRows) else source.shape[0]


def is_in_memory(source: RowSource) -> bool:
    """Return whether the rows of a view are in the memory of this process."""
    return isinstance(source.source if isinstance(source, PresentRows) else source, ArrayRows)


def presence_table(views: Sequence[RowSource]) -> NDArray[np.bool_]:
    """Return whether each view (columns) has each sample (rows)."""
    table = np.ones((n_samples_of(views[0]), len(views)), dtype=np.bool_)
    for column, view in enumerate(views):
        if isinstance(view, PresentRows):
            table[:, column] = False
            table[view.samples, column] = True
    return table


def restrict_to_present(
    view: RowSource,
    absent: NDArray[np.int64] | None = None,
    *,
    columns: NDArray[np.int64] | None = None,
) -> RowSource:
    """Return a view without its absent samples; the view itself if it has all.

    Parameters
    ----------
    view
        With a row for every sample.
    absent
        Positions of absent samples. By default the rows of an array that are all NaN, and samples
        whose ids the view does not have; other views that are not in memory have all samples then.
    columns
        Columns of a pairwise view that are kept, and in which rows may be all NaN.
    """
    if absent is None:
        absent = np.zeros(0, dtype=np.int64)
        if isinstance(view, ArrayRows):
            absent = _rows_of_nan(view, columns)
        elif isinstance(view, LiftedRows):
            absent = np.flatnonzero(view.places < 0)
            if isinstance(view.source, ArrayRows):  # in which rows may be all NaN
                nowhere = np.isin(view.places, _rows_of_nan(view.source, None))
                absent = np.union1d(absent, np.flatnonzero(nowhere))
    if not absent.size and columns is None:
        return view
    return PresentRows(view, np.setdiff1d(np.arange(view.shape[0]), absent), columns)


def _rows_of_nan(view: ArrayRows, columns: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Positions of the rows that are all NaN, but for the diagonal of a square pairwise view."""
    array = view.array if columns is None else view.array[:, columns]
    if array.dtype.kind != "f" or 0 in array.shape:
        return np.zeros(0, dtype=np.int64)
    if isinstance(array, sparse.csr_array):
        n_nan = np.concatenate(([0], np.cumsum(np.isnan(array.data))))
        return np.flatnonzero(np.diff(n_nan[array.indptr]) == array.shape[1])
    has_diagonal = view.view_type != "features" and array.shape[0] == array.shape[1] > 1
    # few rows, if any, have NaN in one column: the other columns are read only for these
    some = np.flatnonzero(np.isnan(array[:, 0]) | np.isnan(array[:, -1]))
    absent = [
        row
        for row in some.tolist()
        if np.isnan(np.delete(array[row], row) if has_diagonal else array[row]).all()
    ]
    return np.array(absent, dtype=np.int64)


def check_presence(views: Sequence[RowSource], sample_ids: Sequence[str] | None = None) -> None:
    """Refuse samples that no view has.

    Raises
    ------
    DataError
        With the number of such samples and the first of them.
    """
    nowhere = np.flatnonzero(~presence_table(views).any(axis=1))
    if nowhere.size:
        first = nowhere[:_SHOWN].tolist()
        shown = first if sample_ids is None else [sample_ids[row] for row in first]
        raise DataError(
            f"{nowhere.size} sample(s) are absent from every view: all their values are NaN (first "
            f"{'rows' if sample_ids is None else 'ids'}: {shown}). Drop these samples; every sample must be "
            "in at least one view."
        )


def recorded_presence(view: RowSource) -> str:
    """Return text that identifies the samples of an incomplete view, for digests; else ""."""
    if not isinstance(view, PresentRows):
        return ""
    runs = np.flatnonzero(np.diff(view.samples, prepend=-2) != 1)
    starts, stops = view.samples[runs], view.samples[np.append(runs[1:] - 1, len(view.samples) - 1)]
    return f"{view.n_samples}:" + ",".join(
        f"{a}-{b}" for a, b in zip(starts.tolist(), stops.tolist(), strict=True)
    )


Join = Literal["inner", "outer"]
"""Samples that every source has, or that any source has."""

JOINS: tuple[Join, ...] = ("inner", "outer")


def check_join(join: object) -> None:
    """Refuse a value that is not a kind of join.

    Raises
    ------
    ConfigurationError
    """
    if join is not None and join not in JOINS:
        raise ConfigurationError(
            f"join={join!r} is not usable: allowed are 'inner' (samples that every source has), 'outer' "
            "(samples that any source has) and None (all sources have the same samples)."
        )


def join_sources(loaded: Sequence[SourceContents], join: Join) -> list[SourceContents]:
    """Give all sources the same samples, in the order in which the sources name them first.

    Parameters
    ----------
    loaded
        Sources with unique sample ids.
    join
        With "outer", views do not have the samples that are not in their source; their labels are −1.

    Raises
    ------
    DataError
        A source has no ids, ids repeat, no sample is in every source, or a view has another number of
        rows than its source has ids.
    """
    by_source = [_ids(item, join) for item in loaded]
    wanted = tuple(dict.fromkeys(name for ids in by_source for name in ids))
    if join == "inner":
        everywhere = set(wanted).intersection(*by_source)
        wanted = tuple(name for name in wanted if name in everywhere)
        if not wanted:
            raise DataError(
                f"join='inner': no sample id is in all of {', '.join(item.where for item in loaded)}. "
                "Check that the ids are written in the same way, or set join='outer'."
            )
    return [_joined(item, ids, wanted) for item, ids in zip(loaded, by_source, strict=True)]


def _ids(item: SourceContents, join: Join) -> tuple[str, ...]:
    if item.sample_ids is None:
        raise DataError(
            f"join={join!r} matches samples by id, but {item.where} has no ids. Name the column of ids "
            "(--id-column, [data] id_column), or remove join if row i is the same sample everywhere."
        )
    check_unique_ids(item.sample_ids, where=item.where)
    return item.sample_ids


def _joined(item: SourceContents, own: tuple[str, ...], wanted: tuple[str, ...]) -> SourceContents:
    if own == wanted:
        return item
    for view in item.views:
        if n_samples_of(view) != len(own):
            raise DataError(
                f"{item.where}: view {view.name!r} has {n_samples_of(view)} rows for {len(own)} sample ids; "
                "there must be one row for each. Correct the file."
            )
    has = set(own).intersection(wanted)
    labels, names = item.labels, item.label_names
    if labels is not None:
        labels, names = _labels_of(item, own, wanted)
    note = f"{item.where}: joined by sample id"
    if len(own) > len(has):
        note += f"; {len(own) - len(has)} others left out"
    return replace(
        item,
        views=tuple(_lifted(view, own, wanted) for view in item.views),
        labels=labels,
        label_names=names,
        sample_ids=wanted,
        notes=(*item.notes, note),
    )


def _lifted(view: RowSource, own: tuple[str, ...], wanted: tuple[str, ...]) -> RowSource:
    """Return a view with a row for each wanted id, those that it does not have left out."""
    if not isinstance(view, PresentRows):
        return lifted(view, own, wanted)
    has = presence_table([view])[:, 0]
    places = {name: place for place, name in enumerate(own) if has[place]}
    rows = np.array([places.get(name, -1) for name in wanted], dtype=np.int64)
    return LiftedRows(view.source, rows, view.name, view.view_type)


def _labels_of(
    item: SourceContents, own: tuple[str, ...], wanted: tuple[str, ...]
) -> tuple[NDArray[np.int64], Any]:
    """Labels of the wanted samples, −1 for those that the source does not have."""
    codes, names = encode_labels(item.labels)
    by_id = dict(zip(own, codes.tolist(), strict=True))
    labels = np.array([by_id.get(name, UNLABELED) for name in wanted], dtype=np.int64)
    return labels, item.label_names if names is None else names
