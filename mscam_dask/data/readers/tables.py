"""Tables with named columns, of text, Excel, Parquet and Feather files: views, sample ids and labels."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.base import LABEL_COLUMNS, Selection, Source, SourceContents
from mscam_dask.data.readers.roles import (
    MISSING,
    Candidates,
    IdColumn,
    are_names,
    are_unique,
    are_whole,
    id_columns,
    id_strength,
)
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.errors import ConfigurationError, DataError

_NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|inf(inity)?)", re.I | re.A)
THOUSANDS = re.compile(r"[+-]?\d{1,3}([,.' \u00a0\u202f]\d{3})+([.,]\d+)?")
_LABEL_RANK = {name: rank for rank, name in enumerate(LABEL_COLUMNS)}
_OF_GENES = re.compile(
    r"((entrez|hugo|ensembl)?[_ .]?(gene|probe)?[_ .]?(ids?|names?|symbols?|type|biotype|length))|entrez|chr(om|"
    r"omosome)?|start|end|strand|length|description",
    re.IGNORECASE,
)
_OF_NO_GENE = re.compile(  # rows that HTSeq and STAR write around the counts
    r"__(no_feature|ambiguous|too_low_aQual|not_aligned|alignment_not_unique)|"
    r"N_(unmapped|multimapping|noFeature|ambiguous)"
)
_OF_FOOTERS = frozenset(
    ("total", "totals", "grand total", "sum", "sums", "mean", "means", "average", "avg")
)
_ROUNDED = 0.01  # relative difference of a sum or mean that is shown with few digits
_KIND_ROWS = 20
_TEXTS = 20  # columns of numbers that are kept as text too


def is_number(text: str, decimal: str = ".") -> bool:
    """Return whether a field is a number in decimal notation."""
    if decimal != ".":
        text = "-" if "." in text else text.replace(decimal, ".")
    return _NUMBER.fullmatch(text) is not None


@dataclass(eq=False)
class TableRows:
    """Rows of a table: columns of text, and columns of numbers side by side; a column may be both.

    Rows that `is_label` says are labels, by the text of their column `key`, are kept apart.
    """

    texts: dict[int, list[str]]
    numbers: list[int]
    key: int | None = None
    is_label: Callable[[str], bool] = bool
    values: NDArray[Any] = field(default_factory=lambda: np.empty((0, 0)))
    labels: dict[str, list[str]] = field(default_factory=dict)
    n_missing: int | NDArray[np.int64] = 0
    bad: dict[int, tuple[int, int, str]] = field(default_factory=dict)

    def empty(self) -> TableRows:
        """Return the same columns without rows."""
        texts: dict[int, list[str]] = {place: [] for place in self.texts}
        return TableRows(texts, self.numbers, self.key, self.is_label)

    def add(self, columns: Mapping[int, Any], decimal: str = ".") -> None:
        """Add rows by columns: arrays of float64, or text in which numbers have this decimal mark."""
        if self.key is not None:
            columns = self._without_labels(columns, [name.strip() for name in columns[self.key]])
        texts = {place: [text.strip() for text in columns[place]] for place in self.texts}
        n_rows = len(columns[next(iter([*self.numbers, *texts]))])
        start = len(self.values)
        if not start:
            self.values = np.empty((0, len(self.numbers)))
        # where it is, without a second copy
        self.values.resize((start + n_rows, len(self.numbers)), refcheck=False)
        for slot, place in enumerate(self.numbers):
            column = columns[place]
            if place in texts or not isinstance(column, np.ndarray):
                fields = texts.get(place) or [text.strip() for text in column]
                column = self.floats(place, fields, decimal, start)
            self.values[start:, slot] = column
        for place, fields in texts.items():
            self.texts[place] += fields
        self.n_missing = self.n_missing + np.isnan(self.values[start:]).sum(axis=0, dtype=np.int64)

    def _without_labels(self, columns: Mapping[int, Any], names: list[str]) -> Mapping[int, Any]:
        kept = [row for row, name in enumerate(names) if not self.is_label(name)]
        for row in {*range(len(names))}.difference(kept):
            cells = [str(columns[place][row]).strip() for place in range(len(columns))]
            self.labels[names[row]] = cells
        if len(kept) == len(names):
            return columns
        return {
            place: column[kept] if isinstance(column, np.ndarray) else [column[row] for row in kept]
            for place, column in columns.items()
        }

    def missing_of(self, positions: Sequence[int]) -> NDArray[np.int64]:
        """Number of missing cells of columns."""
        counts = np.broadcast_to(self.n_missing, len(self.numbers))
        return counts[np.isin(self.numbers, positions)]

    def floats(
        self, place: int, fields: list[str], decimal: str, start: int
    ) -> NDArray[np.float64] | list[float]:
        """Numbers of a column of text; those that are none are NaN, and remembered."""
        if decimal == "." and not re.search(r"[^-+.\deE]", "".join(fields), re.ASCII):
            try:
                return np.array(fields, dtype=np.float64)
            except ValueError:
                pass
        numbers = []
        for row, text in enumerate(fields, start):
            if is_number(text, decimal):
                numbers.append(float(text.replace(decimal, ".")))
                continue
            numbers.append(np.nan)
            if text.lower() not in MISSING:
                n_bad, first_row, first_text = self.bad.get(place, (0, row, text))
                self.bad[place] = (n_bad + 1, first_row, first_text)
        return numbers


@dataclass(frozen=True, eq=False)
class Table:
    """A table whose first rows (`head`) are known as text; `fill` reads the rows into what it gets.

    `where` names it in messages, `view` is the name of its view; `id_position` is a column that the format says
    has the ids of the rows; `left_out` are columns that are no features by the format, and why.
    """

    source: Source
    where: str
    view: str
    columns: tuple[str, ...]
    head: list[list[str]]
    fill: Callable[[TableRows], TableRows]
    has_header: bool = True
    samples_in: Literal["rows", "columns"] = "rows"
    id_position: int | None = None
    left_out: Mapping[int, str] = field(default_factory=dict)
    form: str = ""
    notes: tuple[str, ...] = ()
    decimal: str = "."
    is_by_blanks: bool = False

    def strength(self, position: int) -> int:
        """How surely a column has ids by its name."""
        return id_strength(self.columns[position]) if self.has_header else 0

    def names_of(self, positions: Sequence[int]) -> tuple[str, ...] | None:
        """Names of columns, None without a header."""
        return tuple(self.columns[place] for place in positions) if self.has_header else None

    def head_of(self, position: int) -> list[str]:
        """First fields of a column."""
        return [row[position] if position < len(row) else "" for row in self.head]

    def is_value(self, text: str) -> bool:
        """Return whether a field is a number, or says that one is missing."""
        return is_number(text, self.decimal) or text.lower() in MISSING

    def is_text(self, position: int) -> bool:
        """Return whether the first fields of a column are not all numbers."""
        return not all(map(self.is_value, self.head_of(position)[:_KIND_ROWS]))

    def is_whole(self, position: int) -> bool:
        """Return whether the first fields of a column are whole numbers or missing."""
        return are_whole([text for text in self.head_of(position) if text.lower() not in MISSING])

    def is_key(self, position: int) -> bool:
        """Return whether the first fields of a column are whole numbers that differ."""
        texts = self.head_of(position)
        return bool(texts) and are_whole(texts) and are_unique(texts)

    def are_mostly_keys(self, positions: Sequence[int]) -> bool:
        """Return whether at least half of the columns, the first aside, have whole numbers that differ."""
        are_so = [self.is_key(place) for place in positions if place > 0]
        return 2 * sum(are_so) >= len(are_so) > 0


def read_tables(tables: Sequence[Table], selection: Selection) -> list[SourceContents]:
    """Read tables of the same samples: one view of each.

    Samples on rows: a column has their ids, one the labels, all others are features. Samples on columns: the
    header has their ids, a column the names of features, a row the labels.
    """
    upright = [table for table in tables if table.samples_in == "rows"]
    rows = [table.fill(_wanted_rows(table, upright, selection)) for table in upright]
    ids = id_columns([_candidates(*pair) for pair in zip(upright, rows, strict=True)])
    found = iter([_on_rows(*each, selection) for each in zip(upright, rows, ids, strict=True)])
    return [
        next(found) if table.samples_in == "rows" else _on_columns(table, selection)
        for table in tables
    ]


def _wanted_rows(table: Table, tables: Sequence[Table], selection: Selection) -> TableRows:
    """Rows to be filled: columns that have numbers, and as text those that may have ids or labels."""
    places = range(len(table.columns))
    told = _told(table)
    only_text = {*_label_columns(table, selection), *table.left_out}
    if told is not None:
        only_text.add(told.position)
    free = [place for place in places if place not in only_text]
    only_text.update(place for place in free if table.is_text(place))
    elsewhere = {n.lower() for other in tables if other is not table for n in other.columns}
    may_be_ids = [
        place
        for place in free
        if (table.strength(place) and table.is_whole(place))
        or ((place == free[0] or table.columns[place].lower() in elsewhere) and table.is_key(place))
        or (place == 1 and table.is_key(1) and table.head_of(1) == table.head_of(0))  # FID, IID
    ]
    texts = {*only_text, *may_be_ids[:_TEXTS]}
    return TableRows(
        {place: [] for place in sorted(texts)}, [p for p in places if p not in only_text]
    )


def _told(table: Table) -> IdColumn | None:
    """Column of the ids that the user or the format tells."""
    wanted, columns = table.source.id_column, table.columns
    if wanted is False or (wanted is None and table.id_position is None):
        return None
    if wanted is None:
        return IdColumn(int(table.id_position or 0), "row names")
    place = columns.index(wanted) if wanted in columns else wanted
    if isinstance(place, str) or not 0 <= place < len(columns) or wanted is True:
        raise ConfigurationError(
            f"id_column={wanted!r} is not in {table.where}, whose columns 0 to {len(columns) - 1} are "
            f"{list(columns[:10])}{' ...' if len(columns) > 10 else ''}. Name one of them, or none "
            "(id_column=False, --id-column none)."
        )
    return IdColumn(place, "told")


def _candidates(table: Table, rows: TableRows) -> Candidates:
    """Columns that may have ids."""
    may_be = {
        place: texts
        for place, texts in rows.texts.items()
        if place not in table.left_out and table.columns[place].lower() not in LABEL_COLUMNS
    }
    return Candidates(
        where=table.where,
        names=table.columns if table.has_header else None,
        texts={} if table.source.id_column is False else may_be,
        others_are_like=table.are_mostly_keys(rows.numbers),
        told=_told(table),
    )


def _label_columns(table: Table, selection: Selection) -> list[int]:
    """Columns of labels by their names, the one that is told first."""
    told = _told(table)
    names = {
        name: place
        for place, name in enumerate(table.columns if table.has_header else ())
        if told is None or place != told.position
    }
    usual = sorted(names, key=lambda name: _LABEL_RANK.get(name.lower(), -1))
    usual = [name for name in usual if name.lower() in _LABEL_RANK and name != selection.labels]
    return [names[name] for name in (selection.labels, *usual) if name in names]


def _on_rows(
    table: Table, rows: TableRows, ids: IdColumn | None, selection: Selection
) -> SourceContents:
    """Contents of a table with a sample on each row."""
    names = table.columns
    labels = _label_columns(table, selection)
    is_told = bool(labels) and names[labels[0]] == selection.labels
    truth = labels[0] if labels and (is_told or selection.labels is None) else None
    left_out = {place: why for place, why in table.left_out.items() if place != truth}
    left_out |= {place: "labels too" for place in labels if place != truth}
    notes = []
    for place, texts in rows.texts.items():
        if table.left_out.get(place) == "empty" and any(texts):
            raise DataError(
                f"{table.where}: the last column has no name and no first values, but later ones such as "
                f"{next(filter(None, texts))!r}. Correct the header, or the row with one field too many."
            )
        if place in left_out or place in labels or (ids is not None and ids.position == place):
            continue
        strength = table.strength(place)
        if ids is not None and (
            strength > 1
            or texts == rows.texts[ids.position]
            or (are_unique(texts) and are_names(texts))
        ):
            left_out[place] = "ids too"
        elif strength:
            notes.append(
                f"{table.where}: column {names[place]!r} taken as a feature; --id-column if it has the "
                "sample ids."
            )
    taken = {*left_out, truth, None if ids is None else ids.position}
    features = [place for place in range(len(names)) if place not in taken]
    values = _values(table, rows, features)
    if ids is not None:
        _check_footer(values, rows.texts[ids.position][-1], table.where)
    found = _Roles(
        "sample ids",
        None if ids is None else (names[ids.position], ids.reason),
        None if truth is None else f"column {names[truth]!r}",
        {names[place]: reason for place, reason in left_out.items() if names[place]},
    )
    return SourceContents(
        where=table.where,
        views=(ArrayRows(values, table.view, feature_names=table.names_of(features)),),
        labels=None if truth is None else parsed_labels(rows.texts[truth], table.where),
        sample_ids=None if ids is None else tuple(rows.texts[ids.position]),
        labels_explicit=is_told,
        notes=(*table.notes, *found.notes(table.where), *notes),
        origin=found.origin(table, int(rows.missing_of(features).sum())),
    )


def _on_columns(table: Table, selection: Selection) -> SourceContents:
    """Contents of a table with a sample on each column."""
    names = table.columns
    places = [place for place in range(len(names)) if place not in table.left_out]
    head = TableRows(
        {place: table.head_of(place) for place in places if table.is_text(place) or place == 0},
        places,
    )
    (key,) = id_columns([_candidates(table, head)])
    left_out = dict(table.left_out)
    if key is not None:
        others = [
            p
            for p in places
            if p != key.position
            and (_OF_GENES.fullmatch(names[p]) or not any(map(table.is_value, table.head_of(p))))
        ]
        left_out |= dict.fromkeys(others, "describes the features")
    samples = [p for p in places if p not in left_out and (key is None or p != key.position)]
    rows = TableRows(
        {} if key is None else {key.position: []},
        samples,
        key=None if key is None else key.position,
        is_label=lambda name: (
            name == selection.labels
            or name.lower() in _LABEL_RANK
            or _OF_NO_GENE.fullmatch(name) is not None
        ),
    )
    rows = table.fill(rows)
    usual = sorted(
        (name for name in rows.labels if name.lower() in _LABEL_RANK),
        key=lambda name: _LABEL_RANK[name.lower()],
    )
    is_told = selection.labels in rows.labels
    truth = (
        selection.labels if is_told else next(iter(usual if selection.labels is None else ()), None)
    )
    found = _Roles(
        "names of features",
        None if key is None else (names[key.position], key.reason),
        None if truth is None else f"row {truth!r}",
        {
            **{names[place]: reason for place, reason in left_out.items() if names[place]},
            **{
                name: "counts no gene" if _OF_NO_GENE.fullmatch(name) else "labels too"
                for name in rows.labels
                if name != truth
            },
        },
    )
    notes = [f"{table.where}: first line taken as sample ids."] if table.has_header else []
    labels = None if truth is None else [rows.labels[truth][place] for place in samples]
    return SourceContents(
        where=table.where,
        views=(
            ArrayRows(
                _values(table, rows, samples).T,
                table.view,
                feature_names=None if key is None else tuple(rows.texts[key.position]),
            ),
        ),
        labels=None if labels is None else parsed_labels(labels, table.where),
        sample_ids=table.names_of(samples),
        labels_explicit=is_told,
        notes=(*table.notes, *found.notes(table.where), *notes),
        origin=found.origin(table, int(rows.missing_of(samples).sum())),
    )


@dataclass(frozen=True)
class _Roles:
    """Roles of columns: that of the ids by name and reason, that of the labels, those left out and why."""

    of_ids: str
    ids: tuple[str, str] | None
    labels: str | None
    left_out: Mapping[str, str]

    def notes(self, where: str) -> list[str]:
        notes = []
        if self.ids is not None:
            notes.append(f"{where}: column {self.ids[0]!r} taken as {self.of_ids} ({self.ids[1]}).")
        if self.labels is not None:
            notes.append(f"{where}: {self.labels} taken as labels.")
        for reason in dict.fromkeys(self.left_out.values()):
            names = [name for name, why in self.left_out.items() if why == reason]
            notes.append(f"{where}: {', '.join(map(repr, names))} left out ({reason}).")
        return notes

    def origin(self, table: Table, n_missing: int) -> dict[str, str]:
        by_header = table.samples_in == "columns" and table.has_header
        ids = "by row" if self.ids is None else f"{self.ids[0]!r}, {self.ids[1]}"
        return {
            "source": table.where.replace(str(table.source.path), table.source.file.name),
            "read as": table.form,
            "sample ids": "header"
            if by_header
            else "by row"
            if table.samples_in == "columns"
            else ids,
            "labels": self.labels or "none",
            "left out": ", ".join(map(repr, self.left_out)) or "none",
            "missing cells": str(n_missing),
        }


def _values(table: Table, rows: TableRows, features: Sequence[int]) -> NDArray[Any]:
    """Numbers of the features, (rows, features)."""
    bad = {place: rows.bad[place] for place in features if place in rows.bad}
    for place in set(features) - set(rows.numbers):
        fields = rows.texts[place]
        rows.floats(place, fields, table.decimal, 0)
        bad[place] = rows.bad.get(place, (0, 0, ""))
    if bad:
        place = min(bad, key=lambda place: (bad[place][1], place))
        n_bad, row, text = bad[place]
        raise DataError(
            f"{table.where}: column {table.columns[place]!r} has {n_bad} value(s) that are not numbers, the "
            f"first {text!r} in row {row} (counted from 0 below the header); {len(bad)} column(s) have such "
            f"values. {_remedy(text, table.decimal)}"
        )
    if not features:
        raise DataError(
            f"{table.where} has no column beside ids and labels; a view has at least one."
        )
    if not len(rows.values):
        raise DataError(f"{table.where} has a header and no line below; it needs one per sample.")
    slots = np.flatnonzero(np.isin(rows.numbers, features))
    if slots[-1] - slots[0] == len(slots) - 1:  # no copy
        return rows.values[:, slots[0] : slots[-1] + 1]
    return rows.values[:, slots]


def _check_footer(values: NDArray[Any], name: str, where: str) -> None:
    """Refuse a last row with the sums or means of those above it, whose id says so too."""
    above, last = values[:-1], values[-1]
    if name.strip(" :.").casefold() not in _OF_FOOTERS or not len(above) or np.isnan(last).all():
        return
    sums = np.nansum(above, axis=0)
    means = sums / np.maximum(np.count_nonzero(~np.isnan(above), axis=0), 1)
    is_known = ~np.isnan(last)
    if any(
        np.allclose(last[is_known], made[is_known], rtol=_ROUNDED, atol=0) for made in (sums, means)
    ):
        raise DataError(
            f"{where}: the last row, {name!r}, is no sample: it has the sums or means of the rows above. "
            "Remove it."
        )


def _remedy(field: str, decimal: str) -> str:
    """Return the remedy for a field that is not a number."""
    between = next((mark for mark in ";\t|" if mark in field), None)
    if between is not None:
        return f"If {between!r} separates columns, pass delimiter={between!r} (--delimiter)."
    if THOUSANDS.fullmatch(field) or re.fullmatch(r"[+-]?\d*[,.]\d+([eE].*)?", field):
        return (
            f"Write numbers with one decimal mark, here {decimal!r} (decimal of Source, --decimal), and "
            "without separators of thousands: 1000.5."
        )
    return (
        "Remove or encode them; name an id column with id_column (--id-column), a label column with "
        "labels (--labels)."
    )


def parsed_labels(texts: Sequence[str], where: str) -> NDArray[Any]:
    """Return numbers where all are numbers, text otherwise; missing ones, classes of their own, are refused."""
    missing = [row for row, text in enumerate(texts) if text.lower() in MISSING]
    if missing:
        raise DataError(
            f"{len(missing)} label(s) of {where} are missing, the first {texts[missing[0]]!r} in "
            f"row {missing[0]} (counted from 0 below a header). Mark unlabeled samples with a number "
            "such as -1 (a word, if labels are text), and rename a class that is called na, n/a, nan, null or "
            "none."
        )
    if all(map(is_number, texts)):
        return np.array([float(text) for text in texts])
    return np.array(texts, dtype=np.str_)
