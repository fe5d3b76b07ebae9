"""Sources with different samples, joined by sample id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.base import SourceContents
from mscam_dask.data.views.align import LiftedRows, lifted
from mscam_dask.data.views.conversion import check_unique_ids
from mscam_dask.data.views.labels import UNLABELED, encode_labels
from mscam_dask.data.views.presence import PresentRows, n_samples_of, presence_table
from mscam_dask.data.views.sources import RowSource
from mscam_dask.errors import ConfigurationError, DataError

__all__ = ["JOINS", "Join", "check_join", "join_sources"]

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
