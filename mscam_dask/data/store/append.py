"""Append samples: the views of a store followed by those of new samples, read lazily."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.conversion import UNLABELED
from mscam_dask.data.views.multi_view import MultiViewData, presence_table
from mscam_dask.data.views.rows import LiftedRows, restrict_to_present
from mscam_dask.data.views.sources import (
    RowsOf,
    RowSource,
    first_difference,
    is_numbering,
    listed,
)
from mscam_dask.errors import DataError


@dataclass(frozen=True, eq=False)
class JoinedRows(RowsOf):
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


def joined_samples(old: MultiViewData, new: MultiViewData, *, where: str) -> MultiViewData:
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
    differ = f"{old.shape[1]} columns in {where} and {new.shape[1]} in the new samples"
    before, after = old.feature_names, new.feature_names
    is_other = old.shape[1] != new.shape[1]
    if not is_other and before is not None and after is not None and before != after:
        has_numbers = is_numbering(before) or is_numbering(after)
        is_other = not has_numbers or sorted(before) == sorted(after)
        at = first_difference(before, after)
        differ = f"column {at} (counted from 0) {before[at]!r} in {where} and {after[at]!r} in the new samples"
        missing, added = sorted(set(before) - set(after)), sorted(set(after) - set(before))
        differ += f"; only in the store are [{listed(missing)}], only in the new samples [{listed(added)}]"
    if is_other:
        raise DataError(
            f"View {old.name!r} has {differ}. Give the features of the store, in its order and under its names."
        )
    return JoinedRows(old, new)


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
    if old.labels is None and new.labels is None:
        return None, None
    if old.labels is None:
        raise DataError(
            f"The new samples have labels, but {where} has none. Leave the labels out, or ingest the whole "
            "data again with labels."
        )
    if new.labels is None:
        unlabeled = np.full(new.n_samples, UNLABELED, dtype=np.int64)
        return np.concatenate([old.labels, unlabeled]), old.label_names
    if (old.label_names is None) != (new.label_names is None):
        raise DataError(
            f"Labels are {'numbers' if old.label_names is None else 'text'} in {where} and "
            f"{'numbers' if new.label_names is None else 'text'} in the new samples. Give both in one form."
        )
    if old.label_names is None or new.label_names is None:
        return np.concatenate([old.labels, new.labels]), None
    added = [name for name in new.label_names if name not in old.label_names]
    names = (*old.label_names, *added)
    codes = np.array([names.index(name) for name in new.label_names], dtype=np.int64)
    renamed = np.append(codes, UNLABELED)[new.labels]  # whose last entry is that of -1
    return np.concatenate([old.labels, renamed]), names
