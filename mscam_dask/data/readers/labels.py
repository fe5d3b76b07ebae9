"""Tables that come beside the views: labels, and properties of the samples."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.base import Source, unreadable
from mscam_dask.data.readers.fields import (
    Column,
    are_counted,
    in_plain_spelling,
    is_missing,
    is_value,
    parsed_labels,
    tell_rows_apart,
)
from mscam_dask.data.readers.numpy_files import load_npy
from mscam_dask.data.readers.registry import table_of
from mscam_dask.data.readers.roles import MayBeIds, Table, id_columns
from mscam_dask.data.readers.table_rows import TableRows
from mscam_dask.data.views.conversion import label_rank
from mscam_dask.data.views.sample_ids import (
    MISSING,
    check_sample_ids,
    decoded_id,
    join_samples,
    places_of,
)
from mscam_dask.errors import DataError

_SHOWN = 3


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
