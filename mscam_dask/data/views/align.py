"""Rows of several tables matched by sample id."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.conversion import is_instance_of, names_of_columns, sample_ids_of
from mscam_dask.data.views.sources import (
    BLOCK_BYTES,
    RowSource,
    ViewType,
    as_rows,
    check_row_range,
    feature_names_of,
    row_ranges,
)
from mscam_dask.errors import DataError

__all__ = ["LiftedRows", "aligned_tables", "lifted", "refuse_unmatched_columns"]


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
    """View of some of the samples as a view of all: rows of the others are NaN.

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
