"""What several sources hold, as one `MultiViewData`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers import Selection, Source, SourceContents, read_source
from mscam_dask.data.readers.align_samples import in_one_order, labels_of_file
from mscam_dask.data.readers.orientation import check_sample_counts
from mscam_dask.data.store.object_store import Location, ObjectPath
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.conversion import common_sample_ids
from mscam_dask.data.views.labels import encode_labels
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import RowSource
from mscam_dask.errors import DataError

__all__ = ["Sources", "gather"]

Sources = str | Location | Source | MultiViewData | Sequence[str | Location | Source]


def gather(
    sources: Sources,
    views: Sequence[str] | Mapping[str, str] | None,
    labels: str | Path | Sequence[Any] | NDArray[Any] | None,
    stack: ExitStack,
) -> tuple[MultiViewData, tuple[str, ...]]:
    """Read sources as one data set: views chosen and renamed, labels encoded, ids compared.

    Parameters
    ----------
    sources, views, labels
        As for `mscam_dask.data.ingest.ingest`.
    stack
        Keeps files open for views that are read later; closed by the caller.

    Returns
    -------
    data
        Views are read when they are asked for.
    notes
        What was taken for what, and what was left out.

    Raises
    ------
    DataError
        When a source cannot be read, something asked for is not there, or sources disagree.
    """
    wanted = None if views is None else tuple(views)
    label_key = labels if isinstance(labels, str) else None
    if isinstance(sources, MultiViewData):
        files: list[Source] = []
        loaded = [_as_loaded(sources)]
    else:
        files = [item if isinstance(item, Source) else Source(item) for item in _listed(sources)]
        selection = Selection(views=wanted, labels=label_key)
        loaded = [read_source(file, selection, stack) for file in files]
    loaded = in_one_order(loaded)
    chosen, held_in = _choose(loaded, views)
    ids = common_sample_ids(
        {f"{item.where}": item.sample_ids for item in loaded if item.sample_ids is not None}
    )
    codes, names, more = _labels(loaded, labels, ids)
    orientations = {file.samples_in for file in files}
    if chosen and len(orientations) == 1:
        n_labels = None if codes is None else len(codes)
        check_sample_counts(chosen, n_labels, orientations.pop(), held_in)
    data = as_multi_view(list(chosen))
    data = replace(data, sample_ids=ids, labels=codes, label_names=names)
    return data, (*(note for item in loaded for note in item.notes), *more)


def _listed(sources: object) -> list[str | Location | Source]:
    """The files that are given."""
    known = (str, Path, ObjectPath, Source)
    listed: Any = [sources] if isinstance(sources, known) else sources
    if not isinstance(listed, list | tuple) or not all(isinstance(item, known) for item in listed):
        raise DataError(
            f"Got sources of type {type(sources).__module__}.{type(sources).__qualname__}; allowed are "
            "paths of files, a list of them (Source says how one is read), or a MultiViewData: "
            "mscam_dask.data.views.as_multi_view.as_multi_view makes one of arrays and frames."
        )
    if not listed:
        raise DataError("No source was given; name at least one file to ingest.")
    return [*listed]


def _as_loaded(data: MultiViewData) -> SourceContents:
    return SourceContents(
        where="the data given",
        views=data.views,
        labels=data.labels,
        label_names=data.label_names,
        sample_ids=data.sample_ids,
    )


def _choose(
    loaded: Sequence[SourceContents], views: Sequence[str] | Mapping[str, str] | None
) -> tuple[tuple[RowSource, ...], tuple[str, ...]]:
    """The views that are asked for, and the source of each."""
    found = tuple(view for item in loaded for view in item.views)
    if not found and views is None:
        raise DataError(
            f"{' and '.join(item.where for item in loaded)} has no view; what it has are labels. Add the "
            "files with the views."
        )
    named = [(view.name, view.name) for view in found] if views is None else _named(loaded, views)
    where = {
        name: [item.where for item in loaded for view in item.views if view.name == name]
        for name, _ in named
    }
    if views is not None and len(where) < len(named):
        raise DataError(
            f"views={list(views)} names a view twice; each is taken once. Leave out what is repeated, or "
            "name the view that is meant."
        )
    missing = [name for name, holders in where.items() if not holders]
    if missing:
        listing = "; ".join(
            f"{item.where} has {[*(view.name for view in item.views), *item.skipped]}"
            for item in loaded
        )
        raise DataError(f"No view is called {missing}. {listing}: name some of these.")
    for name, holders in where.items():
        if len(holders) > 1:
            raise DataError(
                f"Several views are called {name!r}, in {' and '.join(holders)}; names must be "
                "unique. Leave out the source that is not meant, or rename the view in it, which is the "
                "file where it holds one view."
            )
    held_in = tuple(holder for holders in where.values() for holder in holders)
    if views is None:
        return found, held_in
    by_name = {view.name: view for view in found}
    return tuple(
        cast("RowSource", replace(cast("Any", by_name[old]), name=new)) for old, new in named
    ), held_in


def _named(
    loaded: Sequence[SourceContents], views: Sequence[str] | Mapping[str, str]
) -> list[tuple[str, str]]:
    """Views that are asked for, (name in the source, name in the data); by a cell array all of its."""
    known = {view.name for item in loaded for view in item.views}
    cell_arrays = {name: held for item in loaded for name, held in item.cell_arrays.items()}
    named = []
    for old in views:
        new = views[old] if isinstance(views, Mapping) else old
        held = () if old in known else cell_arrays.get(old, ())
        named += [(name, new + name.removeprefix(old)) for name in held] or [(old, new)]
    return named


def _labels(
    loaded: Sequence[SourceContents],
    labels: str | Path | Sequence[Any] | NDArray[Any] | None,
    ids: tuple[str, ...] | None,
) -> tuple[NDArray[np.int64] | None, tuple[str, ...] | None, tuple[str, ...]]:
    """Labels of all samples, which have `ids`, their names, and what was taken for what."""
    known = [item for item in loaded if item.labels is not None]
    if isinstance(labels, str) and not any(item.labels_explicit for item in known):
        if not Path(labels).is_file():
            raise DataError(
                f"labels={labels!r} is neither a variable or column of "
                f"{', '.join(item.where for item in loaded)}, nor a file. Give one of these, or "
                "leave it out."
            )
        labels = Path(labels)
    if isinstance(labels, Path):
        values, notes = labels_of_file(labels, ids)
        return (*encode_labels(values), notes)
    if labels is not None and not isinstance(labels, str):
        return (*encode_labels(labels), ())
    if isinstance(labels, str):
        known = [item for item in known if item.labels_explicit]
    if not known:
        return None, None, ()
    encoded = [encode_labels(item.labels) for item in known]
    for item, (codes, names) in zip(known[1:], encoded[1:], strict=True):
        if names != encoded[0][1] or not np.array_equal(codes, encoded[0][0]):
            raise DataError(
                f"{known[0].where} and {item.where} have different labels, so their rows are not "
                "the same samples in the same order. Put them in one order, or give labels=... "
                "if only the labels differ."
            )
    codes, names = encoded[0]
    return codes, names if names is not None else known[0].label_names, ()
