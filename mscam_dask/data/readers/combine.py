"""Combine several sources into one `MultiViewData`, and read tables beside the views: labels, and properties of the samples."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.array_files import load_npy
from mscam_dask.data.readers.base import Selection, Source, SourceContents, unreadable
from mscam_dask.data.readers.fields import (
    Column,
    are_counted,
    in_plain_spelling,
    is_missing,
    is_value,
    parsed_labels,
    tell_rows_apart,
)
from mscam_dask.data.readers.registry import read_sources, table_of
from mscam_dask.data.readers.roles import MayBeIds, Table, TableRows, id_columns
from mscam_dask.data.store.object_store import Location, ObjectPath
from mscam_dask.data.views.as_multi_view import check_order, column_of_ids, ids_of_columns
from mscam_dask.data.views.conversion import UNLABELED, encode_labels, label_rank
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.rows import lifted, replaced_view
from mscam_dask.data.views.sample_ids import (
    MISSING,
    Join,
    check_sample_ids,
    decoded_id,
    join_samples,
    places_of,
)
from mscam_dask.data.views.sources import RowSource
from mscam_dask.errors import DataError

_SHOWN = 3

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
    ids, places = join_samples({item.where: item.sample_ids for item in loaded}, join)
    if ids is not None:
        first = next(item.where for item in loaded if item.sample_ids is not None)
        loaded = [_joined(item, ids, places, first) for item in loaded]
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
    loaded: Sequence[SourceContents], labels: str | Path | Sequence[Any] | NDArray[Any] | None
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


def _joined(
    item: SourceContents, ids: tuple[str, ...], of_all: Mapping[str, NDArray[np.int64]], first: str
) -> SourceContents:
    """Return a source with the joined samples: views lack, and labels of −1 are, those that are not in it."""
    own = item.sample_ids
    if own is None:
        if are_counted(ids, in_order=False) and not are_counted(ids):
            raise DataError(
                f"{first} numbers its rows in another order ({list(ids[:3])}, ...), and {item.where} does not, so that its "
                "rows may be in either. Write the numbers to both files, or to neither if row i is the same sample."
            )
        plain = [*map(in_plain_spelling, ids)]
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
    places = of_all[item.where]
    views = tuple(lifted(view, places, own, ids) for view in item.views)
    if own == ids:
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
        sample_ids=ids,
        notes=(*item.notes, f"{item.where}: rows matched by sample id{others} ({moved})."),
        origin={**item.origin, "rows": moved} if item.origin else {},
    )


# tables beside the views --------------------------------------------------------------------------


def labels_of_file(
    file: Path,
    sample_ids: tuple[str, ...] | None,
    n_samples: int,
    *,
    may_be_missing: bool = False,
    what: str = "labels",
    other_keys: Collection[str] = (),
) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Labels (n,) of a separate file, by sample id if it has ids, else row by row, and notes on `what` they are.

    Labels of samples that the file lacks, or whose cells are empty, are NaN or empty text, if they may be missing. A file by
    one of `other_keys`, columns of the data with the same ids in another order, is refused.
    """
    labels, ids, key = _labels_and_ids(file, sample_ids or ())
    if key is not None and key in other_keys:
        raise DataError(
            f"{file} has {what} by {key!r}, a column of the data whose sample ids are in another one. Take it as theirs "
            f"(--id-column {shlex.quote(key)}), or give the {what} by their ids."
        )
    if (ids is None or not may_be_missing) and tell_rows_apart(np.ravel(labels).tolist()):
        raise DataError(
            f"{file}: all of its {len(labels)} {what} differ, the first is {str(labels[0])!r}; several samples have to share one. "
            "Write sample ids in a column of their own, with a comma or tab before the next column."
        )
    if not may_be_missing:
        check_labels(labels, str(file))
    if ids is None:
        notes = []
        if labels.shape == (n_samples + 1,):
            counts = Counter(labels[1:].tolist())
            if labels[0] not in counts and 1 not in counts.values():
                notes = [f"{file}: first line {labels[0]} taken as the name of the {what}."]
                labels = labels[1:]
        if sample_ids is not None:
            notes.append(
                f"{file}: no sample ids; the first of its {what} is taken for {sample_ids[0]!r}."
            )
        return labels, tuple(notes)
    if sample_ids is None:
        if are_counted(ids, in_order=False):  # of a run, or row numbers of R
            return labels[np.argsort(np.array(ids, dtype=np.int64))], (f"{file}: {what} by row.",)
        raise DataError(
            f"{file} has {what} by sample id, but the data have no ids. Give one value per line, in the "
            "order of the rows, or name the column of ids in the data (--id-column)."
        )
    known = set(sample_ids)
    ids = tuple(one if one in known else decoded_id(one) for one in ids)  # as runs write them
    check_sample_ids(ids, where=str(file))
    places = places_of(ids, sample_ids)
    missing = np.array(sample_ids, dtype=object)[places < 0].tolist()
    if missing:
        # says how spellings differ, or that no sample is shared
        join_samples(
            {"the data": sample_ids, str(file): ids}, None if known.isdisjoint(ids) else "inner"
        )
    if missing and not may_be_missing:
        raise DataError(
            f"{file} has no label for {len(missing)} of {len(sample_ids)} samples, the first "
            f"{missing[:_SHOWN]}; its ids begin with {list(ids[:_SHOWN])}. Add these labels (-1 for unlabeled "
            "samples), or check that the ids are written in the same way."
        )
    n_others = len(ids) - len(sample_ids) + len(missing)
    others = f", {n_others} of other samples left out" if n_others else ""
    labels = np.append(labels, np.nan if labels.dtype.kind == "f" else "")  # that of place -1
    return labels[places], (f"{file}: {what} matched by sample id{others}.",)


def check_labels(labels: NDArray[Any], where: str) -> None:
    """Refuse labels of which some are missing."""
    texts = () if labels.dtype.kind in "biu" else map(str, labels.tolist())
    rows = np.flatnonzero([is_missing(text) for text in texts])
    if rows.size:
        raise DataError(
            f"{rows.size} label(s) of {where} are missing, the first {str(labels[rows[0]])!r} in row {rows[0]} (counted "
            "from 0 below a header). Mark unlabeled samples with a number such as -1 (a word, if labels are text), and rename a class whose "
            f"name stands for a missing value: {', '.join(sorted(filter(None, MISSING)))}."
        )


def _labels_and_ids(
    file: Path, sample_ids: Sequence[str]
) -> tuple[NDArray[Any], tuple[str, ...] | None, str | None]:
    """Labels, ids and the name of their column, in a .npy file, or in a table with a column of labels, maybe beside one of ids.

    Labels are the only column beside the ids, or the one that is called labels, class or the like; a line such as
    "T cell" is one label. The column that has most of its values from `sample_ids` has the ids; numbers of rows without
    a name, as R and pandas write them, are no ids where the samples have other ones.
    """
    if file.suffix == ".npy":
        with unreadable(Source(file), "a NumPy array (.npy) of labels"):
            return load_npy(Source(file)), None, None
    known, plain = {*sample_ids}, {*map(in_plain_spelling, sample_ids)}
    first = table_of(Source(file, header=False)).head[:1]
    table, columns = _texts(file, header=False if any(map(known.intersection, first)) else None)
    places = range(len(columns))
    if len(columns) == 1:
        return parsed_labels(columns[0].texts), None, None
    usual = [place for place in places if label_rank(table.columns[place])]
    of_samples = [
        place
        for place in places
        if 2 * sum(text in plain for text in columns[place].spellings) > len(columns[place].texts)
    ]
    different = [place for place in of_samples if columns[place].is_unique]
    different = [p for p in different if not columns[p].numbers_rows] or different
    if len({tuple(columns[place].spellings) for place in different}) > 1:
        names = [table.columns[place] for place in different]
        raise DataError(
            f"{file}: columns {names} have the sample ids in different orders. Drop those that are not the ids of the data."
        )
    if len(columns) == 2 and not different:
        different = [
            place
            for place in places
            if columns[place].tells_rows_apart and not columns[place].has_decimals
        ]
    of_samples = different or of_samples
    if len(of_samples) == 1:
        (position,) = of_samples
    else:
        (found,) = id_columns([MayBeIds.of_table(table, dict(enumerate(columns)))])
        position = -1 if found is None else found.position
    free = [place for place in places if place != position]
    free = [p for p in free if not (columns[p].may_number_rows and columns[p].is_whole)] or free
    labels = free if len(free) == 1 else usual
    if position < 0 or len(labels) != 1:
        raise DataError(
            f"{file} has {len(columns)} columns, {list(table.columns[:6])}; a label file has one label "
            "per line, or sample ids and labels in two columns (.csv, .tsv) that a first line names, "
            "such as id,label. To take a column of a data file, give its name as labels."
        )
    values, ids = parsed_labels(columns[labels[0]].texts), columns[position]
    are_rows = ids.may_number_rows and are_counted(ids.texts)
    if are_rows and len(known) == len(values) and known.isdisjoint(ids.texts):
        return values, None, None
    return values, tuple(ids.texts), ids.name


def _texts(file: Path, *, header: bool | None = None) -> tuple[Table, list[Column]]:
    """The table of a file, and its columns."""
    table = table_of(Source(file, header=header))
    if table.is_by_blanks:  # inside of texts, such as T cell, unless these are quoted
        lines = table_of(Source(file, header=header, delimiter="\x1f"))  # which no line has
        texts = [text for row in lines.head for text in row]
        have_values = (
            all(is_value(part, table.decimal) for part in text.split()) for text in texts
        )
        if not any('"' in text for text in texts) and not any(have_values):
            table = lines
    rows = TableRows(table, range(len(table.columns)), [])
    return table, list(rows.texts.values())


def read_sample_columns(
    file: Path, sample_ids: Sequence[str] | None, n_samples: int
) -> dict[str, NDArray[Any]]:
    """Read the columns of a table of samples, put in the order of the samples.

    The table has names of columns in the first line and sample ids in the first column; without `sample_ids`
    these are the rows 0, 1, ... Columns (n,) have numbers or text, None where missing.
    """
    import pandas as pd

    table, (own, *others) = _texts(file)
    names = table.columns
    if not table.has_header or len(set(names)) < len(names) or len(names) < 2:
        raise DataError(
            f"{file} has columns {list(names[:6])}; allowed are a column of sample ids and one or more of "
            "properties, with different names in the first line. Correct the names."
        )
    ids = [*map(str, range(n_samples))] if sample_ids is None else [*sample_ids]
    places = places_of(own.texts, ids)
    if not (places >= 0).any():
        raise DataError(
            f"{file} has none of the {n_samples} samples: its column {names[0]!r} has {own.texts[:3]}, the "
            f"samples are {ids[:3]}. Put their ids in the first column."
        )
    known = {*ids}
    check_sample_ids([text for text in own.texts if text in known], where=repr(str(file)))
    columns = {}
    for name, column in zip(names[1:], others, strict=True):
        values = pd.Series(parsed_labels(column.texts)).convert_dtypes().replace("", None)
        told = [*values.astype(object).where(values.notna(), None), None]
        columns[name] = np.array(told)[places]  # the last, None, for samples that are not there
    return columns
