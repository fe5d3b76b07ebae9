"""Combine several sources into one `MultiViewData`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.base import Selection, Source, SourceContents
from mscam_dask.data.readers.fields import are_counted, in_plain_spelling
from mscam_dask.data.readers.labels import check_labels, labels_of_file
from mscam_dask.data.readers.registry import read_sources
from mscam_dask.data.store.object_store import Location, ObjectPath
from mscam_dask.data.views.as_multi_view import (
    check_order,
    column_of_ids,
    ids_of_columns,
)
from mscam_dask.data.views.conversion import UNLABELED, encode_labels
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.rows import lifted, replaced_view
from mscam_dask.data.views.sample_ids import Join, JoinedSamples, join_samples
from mscam_dask.data.views.sources import RowSource
from mscam_dask.errors import DataError

Sources = str | Location | Source | MultiViewData | Sequence[str | Location | Source]


def gather(
    sources: Sources,
    views: Sequence[str] | Mapping[str, str] | None,
    labels: str | Path | Sequence[Any] | NDArray[Any] | None,
    stack: ExitStack,
    join: Join | None = None,
    *,
    may_lack_views: bool = False,
) -> tuple[MultiViewData, tuple[str, ...], tuple[Mapping[str, str], ...]]:
    """Read sources as one data set: views chosen and renamed, labels encoded, samples matched by id.

    Parameters are those of `mscam_dask.data.ingest.ingest`; `stack` keeps files open for views that are read
    later; with `may_lack_views` some, but not all, requested views may be missing. Beside the data it returns notes,
    and what was decided about each table, by title.
    """
    label_key = labels if isinstance(labels, str) else None
    selection = Selection(None if views is None else tuple(views), label_key)
    if isinstance(sources, MultiViewData):
        loaded = [SourceContents.of_data(sources, "the data given", selection)]
    else:
        files = [item if isinstance(item, Source) else Source(item) for item in _listed(sources)]
        loaded = read_sources(files, selection, stack)
    named = _named(loaded, views)
    found = loaded
    loaded = [item for item in found if item.views or item.labels is not None] or found
    left = [item for item in found if not item.views and item.labels is None]
    if join is not None and len(loaded) > 1:  # the samples of other sources are not joined
        has_labels = views is None or labels is not None
        wanted = {old for old, _ in named}
        loaded = [
            item
            for item in loaded
            if any(view.name in wanted for view in item.views)
            or (item.labels is not None and has_labels)
        ] or loaded
    loaded, others = _with_labels(loaded, labels)
    loaded = [_with_names_as_ids(item, loaded) for item in loaded]
    joined = join_samples({item.where: item.sample_ids for item in loaded}, join)
    ids = None if joined is None else joined.ids
    if joined is not None:
        first = next(item.where for item in loaded if item.sample_ids is not None)
        loaded = [_joined(item, joined, first) for item in loaded]
    if ids is None or are_counted(ids, in_order=False):  # which may number rows that moved
        check_order([(item.where, view) for item in loaded for view in item.views])
    if may_lack_views:
        there = {view.name for item in loaded for view in item.views}
        named = [pair for pair in named if pair[0] in there] or named
    chosen = _choose(loaded, named, found)
    more: tuple[str, ...] = ()
    if isinstance(others, Path):
        keys = {
            name
            for item in found
            for name, texts in item.may_be_ids.items()
            if texts != item.sample_ids and {*texts} == {*(item.sample_ids or ())}
        }
        others, more = labels_of_file(others, ids, chosen[0].shape[0], other_keys=keys)
    codes, names = _agreed(loaded, joined=join is not None)
    if others is not None:
        codes, names = encode_labels(others)
    data = MultiViewData(chosen, ids, codes, names)
    notes = (*(note for item in (*loaded, *left) for note in item.notes), *more)
    return data, notes, tuple(item.origin for item in loaded if item.origin)


def _listed(sources: object) -> list[str | Location | Source]:
    """Return the sources as a list."""
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


def _named(
    loaded: Sequence[SourceContents], views: Sequence[str] | Mapping[str, str] | None
) -> list[tuple[str, str]]:
    """Return requested views as (name in the source, name in the data); a cell array stands for its views."""
    known = [view.name for item in loaded for view in item.views]
    cell_arrays = {name: held for item in loaded for name, held in item.cell_arrays.items()}
    named = []
    for old in known if views is None else views:
        new = views[old] if isinstance(views, Mapping) else old
        held = () if old in known else cell_arrays.get(old, ())
        named += [(name, new + name.removeprefix(old)) for name in held] or [(old, new)]
    return named


def _choose(
    loaded: Sequence[SourceContents],
    named: Sequence[tuple[str, str]],
    found: Sequence[SourceContents],
) -> tuple[RowSource, ...]:
    """Return the requested views under their new names; others that were `found` are named in errors."""
    held: dict[str, list[tuple[RowSource, str]]] = defaultdict(list)
    for item in loaded:
        for view in item.views:
            held[view.name].append((view, item.where))
    if not named:
        raise DataError(
            f"No view was found, only labels in {' and '.join(item.where for item in loaded)}. Add the "
            "files with the views."
        )
    missing = [old for old, _ in named if old not in held]
    if missing:
        listing = "; ".join(
            f"{item.where}: {[*(view.name for view in item.views), *item.skipped]}"
            for item in found
            if item.views or item.skipped
        )
        raise DataError(
            f"No view is called {missing}. Choose from these, or give other files: {listing}."
        )
    for old, _ in named:
        if len(held[old]) > 1:
            raise DataError(
                f"Several views are called {old!r}, in {' and '.join(w for _, w in held[old])}; names must be "
                "unique. Leave out one of the sources, or rename the view in it (a file with one view "
                "gives it the name of the file)."
            )
    return tuple(replaced_view(held[old][0][0], name=new) for old, new in named)


def _with_labels(
    loaded: Sequence[SourceContents],
    labels: str | Path | Sequence[Any] | NDArray[Any] | None,
) -> tuple[list[SourceContents], Any]:
    """Return sources with the codes of those labels only that are taken, and a file or values beside them."""
    others: Any = labels
    if labels is None or any(item.labels_explicit for item in loaded):
        others = None
    elif isinstance(labels, str):
        others = Path(labels)
        if not others.is_file():
            hints = [note for item in loaded for note in item.notes if repr(labels) in note]
            raise DataError(
                f"{labels!r} is neither a variable nor a column of "
                f"{', '.join(item.where for item in loaded)}, nor a file. "
                + (" ".join(hints) or "Give one of these, or leave it out.")
            )
    found = []
    for item in loaded:
        codes, names = None, None
        if item.labels is not None and (labels is None or item.labels_explicit):
            check_labels(item.labels, item.where)
            codes, names = encode_labels(item.labels)
        found.append(replace(item, labels=codes, label_names=names or item.label_names))
    return found, others


def _agreed(
    loaded: Sequence[SourceContents], *, joined: bool
) -> tuple[NDArray[np.int64] | None, tuple[str, ...] | None]:
    """Return the labels of the sources, which are the same in all that have some, and their names."""
    known = [item for item in loaded if item.labels is not None]
    if not known:
        return None, None
    first, *others = known
    codes: NDArray[np.int64] = np.asarray(first.labels)
    for item in others:
        own = np.asarray(item.labels)
        if len(own) != len(codes):
            raise DataError(
                f"{first.where} has {len(codes)} labels, and {item.where} {len(own)}, so they hold different samples. Give "
                "files with the same samples in the same order, or sample ids in each and join (--join)."
            )
        unlabeled = (codes < 0) | (own < 0) if joined else np.zeros(len(own), dtype=np.bool_)
        if item.label_names != first.label_names or not np.array_equal(
            codes[~unlabeled], own[~unlabeled]
        ):
            raise DataError(
                f"{first.where} and {item.where} have different labels, so their rows are not "
                "the same samples in the same order. Put them in one order, or give labels=... "
                "if only the labels differ."
            )
        codes = np.where(codes < 0, own, codes) if joined else codes
    return codes, first.label_names


def _with_names_as_ids(item: SourceContents, loaded: Sequence[SourceContents]) -> SourceContents:
    """Return a source without sample ids with the names of its columns, if these are all samples of another."""
    for view in item.views if item.sample_ids is None else ():
        if names := ids_of_columns(view, [other.sample_ids for other in loaded]):
            note = f"{item.where}: names of columns, which are all samples, taken as sample ids."
            return replace(item, sample_ids=names, notes=(*item.notes, note))
    return item


def _joined(item: SourceContents, joined: JoinedSamples, first: str) -> SourceContents:
    """Return a source with the joined samples: views lack, and labels of −1 are, those that are not in it."""
    own = item.sample_ids
    if own is None:
        if are_counted(joined.ids, in_order=False) and not are_counted(joined.ids):
            raise DataError(
                f"{first} numbers its rows in another order ({list(joined.ids[:3])}, ...), and {item.where} does not, so that its "
                "rows may be in either. Write the numbers to both files, or to neither if row i is the same sample."
            )
        plain = [*map(in_plain_spelling, joined.ids)]
        if name := next(filter(None, (column_of_ids(v, plain) for v in item.views)), ""):
            told = f"Give it a name of ids, such as sample_id, or tell it in Python (Source(..., id_column={name!r}))"
            if not item.origin:  # an array
                told = "Save it as a vector 'sample_ids' beside the other columns (numpy.savez)"
            raise DataError(
                f"{item.where}: column {name!r} has the sample ids of {first}. {told}; drop it if its rows are in the order of {first}."
            )
        note = f"{item.where} has no sample ids; its rows are taken in the order of {first}."
        return replace(item, notes=(*item.notes, note))
    counts = {f"view {view.name!r}": view.n_samples for view in item.views}
    if item.labels is not None:
        counts["the labels"] = len(item.labels)
    for what, count in counts.items():
        if count != len(own):
            raise DataError(
                f"{item.where} has {count} rows in {what} for {len(own)} sample ids; there must be one row for "
                "each. Correct the file, or turn it (samples_in='columns', --samples-in columns)."
            )
    places = joined.places[item.where]
    views = tuple(lifted(view, places, own, joined.ids) for view in item.views)
    if own == joined.ids:
        return replace(item, views=views)
    n_held = int(np.count_nonzero(places >= 0))
    n_moved = int(np.count_nonzero((places >= 0) & (places != np.arange(len(places)))))
    moved = f"{n_moved} of {n_held} moved"
    moved += f", {len(own) - n_held} left out" if len(own) > n_held else ""
    others, labels = "" if item.where == first else f" with {first}", item.labels
    return replace(
        item,
        views=views,
        labels=None if labels is None else np.where(places < 0, UNLABELED, labels[places]),
        sample_ids=joined.ids,
        notes=(*item.notes, f"{item.where}: rows matched by sample id{others} ({moved})."),
        origin={**item.origin, "rows": moved} if item.origin else {},
    )
