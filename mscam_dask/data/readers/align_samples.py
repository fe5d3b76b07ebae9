"""Sources that name their samples: the rows and labels of all in the order of the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers import read_labels
from mscam_dask.data.readers.base import SourceContents
from mscam_dask.data.views.conversion import check_unique_ids
from mscam_dask.data.views.feature_names import feature_names_of
from mscam_dask.data.views.sources import (
    BLOCK_BYTES,
    RowSource,
    ViewType,
    as_rows,
    check_row_range,
    row_ranges,
)
from mscam_dask.errors import DataError

__all__ = ["OrderedRows", "in_one_order", "labels_of_file"]

_SHOWN = 3


@dataclass(frozen=True, eq=False)
class OrderedRows:
    """The rows of a view in another order, and so the columns of a pairwise one.

    Parameters
    ----------
    source
        The view as it is held.
    order
        (n,) a permutation: row i here is row ``order[i]`` there.
    name, view_type
        See `RowSource`.
    block_bytes
        Float64 bytes of the source that are read at a time, at most.

    Notes
    -----
    A read passes over the part of the source that its rows lie in, block by block: memory is that
    of two blocks. Rows that are mixed over a source of B blocks are read B times.
    """

    source: RowSource
    order: NDArray[np.int64]
    name: str
    view_type: ViewType = "features"
    block_bytes: int = BLOCK_BYTES

    @property
    def shape(self) -> tuple[int, int]:
        return self.source.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.source.dtype

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Of the source, where it has some."""
        return feature_names_of(self.source)

    def read(self, start: int, stop: int) -> NDArray[np.float64]:
        """Return rows start..stop-1 as read-only float64."""
        check_row_range(self, start, stop)
        wanted = self.order[start:stop]
        rows = np.empty((stop - start, self.shape[1]))
        for first, last in row_ranges(self.source, block_bytes=self.block_bytes):
            here = np.flatnonzero((wanted >= first) & (wanted < last))
            if here.size:
                rows[here] = self.source.read(first, last)[wanted[here] - first]
        if self.view_type != "features" and self.shape[1] == len(self.order):
            rows = rows[:, self.order]
        return as_rows(rows)


def in_one_order(loaded: Sequence[SourceContents]) -> list[SourceContents]:
    """Put sources that hold the same sample ids in the order of the first that has ids.

    Parameters
    ----------
    loaded
        Those without ids stay as they are, and so do those with other or repeated ids: what does
        not fit is refused by `mscam_dask.data.views.conversion.common_sample_ids`.

    Returns
    -------
    list of Loaded
        A source that was put in order says so in its notes.
    """
    known = [item for item in loaded if item.sample_ids is not None]
    return [_ordered(item, known[0]) if item in known else item for item in loaded]


def _ordered(item: SourceContents, first: SourceContents) -> SourceContents:
    ids, wanted = item.sample_ids, first.sample_ids
    assert ids is not None
    assert wanted is not None
    rows = {name: row for row, name in enumerate(ids)}
    if ids == wanted or not len(rows) == len(ids) == len(wanted) or rows.keys() != set(wanted):
        return item
    order = np.array([rows[name] for name in wanted], dtype=np.int64)
    labels = None if item.labels is None else np.asarray(item.labels).ravel()
    n_moved = int(np.count_nonzero(order != np.arange(len(order))))
    note = (
        f"{item.where}: rows matched by sample id with {first.where} ({n_moved} of {len(order)} "
        "stood elsewhere)"
    )
    return replace(
        item,
        sample_ids=wanted,
        views=tuple(_view(view, order) for view in item.views),
        labels=labels if labels is None or len(labels) != len(order) else labels[order],
        notes=(*item.notes, note),
    )


def _view(view: RowSource, order: NDArray[np.int64]) -> RowSource:
    """A view in order; one with another number of rows is left to be refused."""
    return (
        OrderedRows(view, order, view.name, view.view_type) if view.shape[0] == len(order) else view
    )


def labels_of_file(
    file: Path, sample_ids: tuple[str, ...] | None
) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Labels of a file of its own, by id where it has ids, else row by row; and what to note.

    Parameters
    ----------
    file
        As for `read_labels`.
    sample_ids
        Of the data, in their order; None where they have none.

    Raises
    ------
    DataError
        When the file cannot be read, an id occurs twice in it, or it has none for a sample.
    """
    labels, ids = read_labels(file)
    if ids is None:
        if sample_ids is None:
            return labels, ()
        return labels, (f"{file}: no sample ids; its first label is taken for {sample_ids[0]!r}.",)
    if sample_ids is None:
        raise DataError(
            f"{file} has labels by sample id, and the data have no ids. Give one label per line, in the "
            "order of the rows; or data with ids (--id-column)."
        )
    check_unique_ids(ids, where=str(file))
    rows = {name: row for row, name in enumerate(ids)}
    missing = [name for name in sample_ids if name not in rows]
    if missing:
        raise DataError(
            f"{file} has no label for {len(missing)} of {len(sample_ids)} samples, the first "
            f"{missing[:_SHOWN]}; its ids begin with {list(ids[:_SHOWN])}. Add them, -1 for samples "
            "without a label; or check that the ids are written alike."
        )
    n_others = len(ids) - len(sample_ids)
    exclude_views = f", {n_others} of other samples left out" if n_others else ""
    notes = (f"{file}: labels matched by sample id{exclude_views}.",)
    return labels[[rows[name] for name in sample_ids]], notes
