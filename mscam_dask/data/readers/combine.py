"""Combine several sources into one `MultiViewData`."""

from __future__ import annotations

import itertools
import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.base import Selection, Source, SourceContents
from mscam_dask.data.readers.labels import read_labels
from mscam_dask.data.readers.registry import read_sources
from mscam_dask.data.store.object_store import Location, ObjectPath
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.conversion import UNLABELED, encode_labels
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.presence import lifted, n_samples_of, replaced_view
from mscam_dask.data.views.sample_ids import (
    Join,
    JoinedSamples,
    check_sample_ids,
    decoded_id,
    join_samples,
    places_of,
)
from mscam_dask.data.views.sources import RowSource, feature_names_of
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
    later; with `may_lack_views` some, but not all, requested views may be missing. Beside the data it returns
    notes, and what was decided about each table, by title.
    """
    wanted = None if views is None else tuple(views)
    label_key = labels if isinstance(labels, str) else None
    selection = Selection(views=wanted, labels=label_key)
    if isinstance(sources, MultiViewData):
        files: list[Source] = []
        loaded = [SourceContents.of_data(sources, "the data given", selection)]
    else:
        files = [item if isinstance(item, Source) else Source(item) for item in _listed(sources)]
        loaded = read_sources(files, selection, stack)
    if join is not None and len(loaded) > 1:
        loaded = _with_chosen_views(loaded, views, labels)
    _check_orientation(loaded, files)
    joined = join_samples({item.where: item.sample_ids for item in loaded}, join)
    if joined is not None:
        first = next(item.where for item in loaded if item.sample_ids is not None)
        loaded = [_joined(item, joined, first) for item in loaded]
    if may_lack_views and views is not None:
        there = {
            name for item in loaded for name in (*(v.name for v in item.views), *item.cell_arrays)
        }
        found = [name for name in views if name in there]
        if found:
            views = {name: views[name] for name in found} if isinstance(views, Mapping) else found
    chosen, held_in = _choose(loaded, views)
    ids = None if joined is None else joined.ids
    codes, names, more = _labels(loaded, labels, ids, joined=join is not None)
    orientations = {file.samples_in for file in files}
    if chosen and len(orientations) == 1:
        n_labels = None if codes is None else len(codes)
        _check_sample_counts(chosen, n_labels, orientations.pop(), held_in)
    data = as_multi_view(list(chosen))
    data = replace(data, sample_ids=ids, labels=codes, label_names=names)
    notes = (*(note for item in loaded for note in item.notes), *more)
    return data, notes, tuple(item.origin for item in loaded if item.origin)


def _check_orientation(loaded: Sequence[SourceContents], files: Sequence[Source]) -> None:
    """Refuse a file whose features have the names of the samples of others."""
    ids = {one.where: frozenset(one.sample_ids) for one in loaded if one.sample_ids is not None}
    turned: list[tuple[int, float, RowSource, str, str]] = []
    for where, view in ((one.where, view) for one in loaded for view in one.views):
        names = frozenset(feature_names_of(view) or "")
        alike = [
            other
            for other, samples in ids.items()
            if samples.isdisjoint(ids.get(where, samples))
            and 2 * len(names & samples) >= max(len(names), 1)
        ]
        if alike:
            turned.append((len(alike), len(names) / view.shape[0], view, where, alike[0]))
    if not turned:
        _check_columns(loaded, ids)
        return
    *_, view, where, other = max(turned, key=lambda one: one[:2])
    name = shlex.quote(view.name)
    remedy = "its samples are in columns. Read it with Source(path, samples_in='columns')"
    if any(file.samples_in == "columns" for file in files if file.view_name == view.name):
        name = "VIEW"
        remedy = "not all have samples in columns. Give samples_in='columns' for those that do"
    raise DataError(
        f"The features of {where!r} have the names of the samples of {other!r} (first: "
        f"{list(feature_names_of(view) or ())[:_SHOWN]}), so {remedy} (--samples-in {name}=columns, "
        f'[data] samples_in = {{{name} = "columns"}}).'
    )


def _check_columns(loaded: Sequence[SourceContents], ids: Mapping[str, frozenset[str]]) -> None:
    """Refuse files without common samples whose columns have the same names."""
    if any(not one.isdisjoint(other) for one, other in itertools.combinations(ids.values(), 2)):
        return
    names = {
        one.where: tuple(feature_names_of(view) or ())
        for one in loaded
        for view in one.views
        if one.where in ids
    }
    for (where, own), (other, others) in itertools.combinations(names.items(), 2):
        known = set(others)
        common = [name for name in own if name in known]
        if common and 2 * len(common) >= min(len(own), len(others)):
            raise DataError(
                f"{where!r} and {other!r} share no sample, but {len(common)} names of columns (first: "
                f"{common[:_SHOWN]}). If these are the samples, read both with samples_in='columns' "
                "(--samples-in columns, [data] samples_in); if the files have other samples of one view, put them "
                "into one file."
            )


def _with_chosen_views(
    loaded: Sequence[SourceContents],
    views: Sequence[str] | Mapping[str, str] | None,
    labels: object,
) -> list[SourceContents]:
    """Sources of requested views or labels: the samples of others are not joined."""
    wanted = {old for old, _ in _named(loaded, views)}
    has_labels = views is None or labels is not None
    return [
        item
        for item in loaded
        if any(view.name in wanted for view in item.views)
        or (item.labels is not None and has_labels)
    ] or [*loaded]


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


def _choose(
    loaded: Sequence[SourceContents], views: Sequence[str] | Mapping[str, str] | None
) -> tuple[tuple[RowSource, ...], tuple[str, ...]]:
    """Return the requested views, and the source of each."""
    held: dict[str, list[tuple[RowSource, str]]] = defaultdict(list)
    for item in loaded:
        for view in item.views:
            held[view.name].append((view, item.where))
    if not held and views is None:
        raise DataError(
            f"No view was found, only labels in {' and '.join(item.where for item in loaded)}. Add the "
            "files with the views."
        )
    named = _named(loaded, views)
    if views is not None and len(dict(named)) < len(named):
        raise DataError(
            f"views={list(views)} contains a name twice; names must be unique. Remove the repeated name."
        )
    missing = [old for old, _ in named if old not in held]
    if missing:
        listing = "; ".join(
            f"{item.where} has {[*(view.name for view in item.views), *item.skipped]}"
            for item in loaded
        )
        raise DataError(f"No view is called {missing}. Choose from these: {listing}.")
    for old, _ in named:
        if len(held[old]) > 1:
            raise DataError(
                f"Several views are called {old!r}, in {' and '.join(w for _, w in held[old])}; names must be "
                "unique. Leave out one of the sources, or rename the view in it (a file with one view "
                "gives it the name of the file)."
            )
    found = [(*held[old][0], new) for old, new in named]
    return tuple(replaced_view(v, name=new) for v, _, new in found), tuple(w for _, w, _ in found)


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


def _labels(
    loaded: Sequence[SourceContents],
    labels: str | Path | Sequence[Any] | NDArray[Any] | None,
    ids: tuple[str, ...] | None,
    *,
    joined: bool,
) -> tuple[NDArray[np.int64] | None, tuple[str, ...] | None, tuple[str, ...]]:
    """Return the labels of the samples with `ids`, the names of labels, and notes."""
    known = [item for item in loaded if item.labels is not None]
    if isinstance(labels, str) and not any(item.labels_explicit for item in known):
        if not Path(labels).is_file():
            hints = [note for item in loaded for note in item.notes if repr(labels) in note]
            raise DataError(
                f"labels={labels!r} is neither a variable or column of "
                f"{', '.join(item.where for item in loaded)}, nor a file. "
                + (" ".join(hints) or "Give one of these, or leave it out.")
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
    label_names = [
        item.label_names if names is None else names
        for item, (_, names) in zip(known, encoded, strict=True)
    ]
    codes = encoded[0][0]
    for item, (own, _), names in zip(known[1:], encoded[1:], label_names[1:], strict=True):
        unlabeled = (codes < 0) | (own < 0) if joined else np.zeros(len(own), dtype=np.bool_)
        if names != label_names[0] or not np.array_equal(codes[~unlabeled], own[~unlabeled]):
            raise DataError(
                f"{known[0].where} and {item.where} have different labels, so their rows are not "
                "the same samples in the same order. Put them in one order, or give labels=... "
                "if only the labels differ."
            )
        codes = np.where(codes < 0, own, codes) if joined else codes
    return codes, label_names[0], ()


_SHOWN = 3


def _joined(item: SourceContents, joined: JoinedSamples, first: str) -> SourceContents:
    """Return a source with the joined samples: views lack, and labels of −1 are, those that are not in it."""
    own = item.sample_ids
    if own is None:
        return item
    places = joined.places[item.where]
    other = next((view for view in item.views if n_samples_of(view) != len(own)), None)
    if other is not None:
        if own == joined.ids:  # `_check_sample_counts` says more
            return item
        raise DataError(
            f"{item.where}: view {other.name!r} has {n_samples_of(other)} rows for {len(own)} sample ids; "
            "there must be one row for each. Correct the file."
        )
    views = tuple(lifted(view, places, own, joined.ids) for view in item.views)
    if own == joined.ids:
        return replace(item, views=views)
    labels, names = item.labels, item.label_names
    if labels is not None and np.size(labels) == len(own):
        codes, found = encode_labels(labels)
        names = names if found is None else found
        labels = np.where(places < 0, UNLABELED, codes[places])
    n_held = int(np.count_nonzero(places >= 0))
    n_moved = int(np.count_nonzero((places >= 0) & (places != np.arange(len(places)))))
    moved = f"{n_moved} of {n_held} moved"
    others = f", {len(own) - n_held} left out" if len(own) > n_held else ""
    return replace(
        item,
        views=views,
        labels=labels,
        label_names=names,
        sample_ids=joined.ids,
        notes=(
            *item.notes,
            f"{item.where}: rows matched by sample id with {first} ({moved}{others}).",
        ),
        origin={**item.origin, "rows": moved + others} if item.origin else {},
    )


def labels_of_file(
    file: Path, sample_ids: tuple[str, ...] | None
) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Labels of a separate file, by id if it has ids, else row by row, and notes."""
    labels, ids = read_labels(file)
    if ids is None:
        if sample_ids is None:
            return labels, ()
        return labels, (f"{file}: no sample ids; its first label is taken for {sample_ids[0]!r}.",)
    if sample_ids is None and sorted(ids) == sorted(map(str, range(len(ids)))):  # of a run
        return labels[np.argsort(np.array(ids, dtype=np.int64))], (f"{file}: labels by row.",)
    if sample_ids is None:
        raise DataError(
            f"{file} has labels by sample id, but the data have no ids. Give one label per line, in the "
            "order of the rows, or name the column of ids in the data (--id-column)."
        )
    known = set(sample_ids)
    ids = tuple(one if one in known else decoded_id(one) for one in ids)  # as runs write them
    check_sample_ids(ids, where=str(file))
    places = places_of(ids, sample_ids)
    missing = np.array(sample_ids, dtype=object)[places < 0].tolist()
    if missing:
        join_samples({"the data": sample_ids, str(file): ids}, "inner")  # says how spellings differ
        raise DataError(
            f"{file} has no label for {len(missing)} of {len(sample_ids)} samples, the first "
            f"{missing[:_SHOWN]}; its ids begin with {list(ids[:_SHOWN])}. Add these labels (-1 for unlabeled "
            "samples), or check that the ids are written in the same way."
        )
    n_others = len(ids) - len(sample_ids)
    others = f", {n_others} of other samples left out" if n_others else ""
    return labels[places], (f"{file}: labels matched by sample id{others}.",)


def _check_sample_counts(
    views: Sequence[RowSource],
    n_labels: int | None,
    samples_in: Literal["rows", "columns"],
    held_in: Sequence[str],
) -> None:
    """Refuse views of other numbers of samples; say which files to turn, and which views to take.

    The number of samples is that of the labels, or the one that most views have. Views in one file of which only
    some have to be turned, and other numbers of labels, are left to `MultiViewData`.
    """
    rows = [n_samples_of(view) for view in views]
    if len(set(rows)) == 1 and n_labels in (None, rows[0]):
        return
    counts = Counter([*rows, *(view.shape[1] for view in views)])
    n_samples = n_labels if n_labels in counts else counts.most_common(1)[0][0]
    found = [*zip(views, rows, held_in, strict=True)]
    turned = {file for view, n, file in found if n != n_samples == view.shape[1]}
    upright = {file for view, n, file in found if n == n_samples != view.shape[1]}
    fit = [view.name for view, n, _ in found if n_samples in (n, view.shape[1])]
    if turned & upright or (not turned and len(fit) == len(views)):
        return
    files, by_columns = list(dict.fromkeys(held_in)), samples_in == "columns"
    remedies = []
    if turned:
        first = [file for file in files if (file in turned) != by_columns]
        where, how = f"on columns only in {', '.join(first)}: read that", "--samples-in"
        options = [f"{how} {shlex.quote(Source(f).view_name)}=columns" for f in first]
        if len(turned) == len(files):
            where, options = "not on rows: read the file", [f"{how} columns"]
        remedy = f"{where} with Source(path, samples_in='columns') ({' '.join(options)})"
        if len(turned) == len(files) and by_columns:
            remedy = f"not on rows: leave out samples_in='columns' ({how} columns)"
        remedies.append(f"There seem to be {n_samples} samples, {remedy}.")
    if len(fit) < len(views):
        flags = " ".join(f"--view {shlex.quote(name)}" for name in fit)
        remedies.append(f"Take the views that have {n_samples}: views={fit} ({flags}).")
    labels = "" if n_labels is None else f"{n_labels} labels and "
    shapes = ", ".join(f"{view.name!r} {view.shape}" for view in views)
    raise DataError(
        f"Got {labels}views{', with samples_in=' + repr(samples_in) if by_columns else ''} of different numbers of "
        f"samples ({shapes}; files: {', '.join(files)}). {' '.join(remedies)}"
    )
