"""Tables as text: comma, tab or white space; header and id column found or told."""

from __future__ import annotations

import csv
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.base import Loaded, Selection, Source, oriented, unreadable
from mscam_dask.data.sources import ArrayRows
from mscam_dask.errors import ConfigurationError, DataError

__all__ = ["read_labels", "read_text"]

_ID_NAMES = ("", "id", "ids", "index", "name", "sample", "sample_id", "sample id", "unnamed: 0")
_LABEL_COLUMNS = ("labels", "label", "class", "target", "ground_truth")  # not y: a coordinate
_MISSING = ("", "na", "n/a", "nan", "null", "none")


@dataclass(frozen=True)
class _Layout:
    delimiter: str | None
    has_header: bool
    columns: tuple[str, ...]
    id_position: int | None
    label_position: int | None

    @property
    def feature_positions(self) -> list[int]:
        """Places of the columns that are neither ids nor labels."""
        others = (self.id_position, self.label_position)
        return [index for index in range(len(self.columns)) if index not in others]

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns at `feature_positions`, None without a header."""
        if not self.has_header:
            return None
        return tuple(self.columns[position] for position in self.feature_positions)


def read_text(source: Source, selection: Selection, stack: ExitStack) -> Loaded:  # noqa: ARG001 - a reader's signature
    """Read one table, one sample per line; the view is named by the file.

    A column called labels, label, class, target or ground_truth (or what the selection names)
    is ground truth, never a feature. Empty fields, NA, null and the like become NaN.
    """
    if source.delimiter is not None and len(source.delimiter) != 1:
        raise ConfigurationError(
            f"delimiter={source.delimiter!r} of {source.path}; allowed is one character, or None."
        )
    with unreadable(source, "text", UnicodeDecodeError, csv.Error):
        layout = _layout(source, selection)
        values = _numbers(source, layout)
        ids = _texts(source, layout, layout.id_position)
        labels = _texts(source, layout, layout.label_position)
    notes = [
        f"{source.path}: column {layout.columns[position]!r} taken as {what}."
        for what, position in (
            ("sample ids", layout.id_position),
            ("labels", layout.label_position),
        )
        if position is not None
    ]
    return Loaded(
        where=str(source.path),
        views=(
            ArrayRows(
                oriented(values, source),
                source.view_name,
                feature_names=layout.feature_names if source.samples_on == "rows" else None,
            ),
        ),
        labels=None if labels is None else _parsed(labels),
        sample_ids=None if ids is None else tuple(ids),
        labels_are_chosen=labels is not None and selection.labels is not None,
        notes=tuple(notes),
    )


def read_labels(file: Path) -> NDArray[Any]:
    """Read labels from a .npy file or a text file with one label per line.

    A first line that is no number above lines that all are is a heading.

    Raises
    ------
    DataError
        When the file cannot be read or a line has several fields.
    """
    source = Source(file)
    if file.suffix == ".npy":
        with unreadable(source, "a NumPy array (.npy) of labels", ValueError, EOFError):
            return np.asarray(np.load(file, allow_pickle=False))
    with unreadable(source, "labels, one per line", UnicodeDecodeError):
        lines = [line.strip() for line in file.read_text(encoding="utf-8-sig").splitlines()]
    lines = [line.strip('"') for line in lines if line]
    several = [index for index, line in enumerate(lines) if "," in line or "\t" in line]
    if several:
        raise DataError(
            f"{file} has more than one field in line {several[0] + 1}; a label file has one label "
            "per line. To take a column of a data file, give its name as labels."
        )
    if len(lines) > 1 and not _is_number(lines[0]) and all(map(_is_number, lines[1:])):
        lines = lines[1:]
    return _parsed(lines)


def _parsed(texts: list[str]) -> NDArray[Any]:
    """Whole numbers where all are numbers, text otherwise."""
    stripped = [text.strip() for text in texts]
    if all(map(_is_number, stripped)):
        return np.array([float(text) for text in stripped])
    return np.array(stripped, dtype=np.str_)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _looks_numeric(text: str) -> bool:
    return _is_number(text) or text.strip().lower() in _MISSING[1:]


def _layout(source: Source, selection: Selection) -> _Layout:
    delimiter = source.delimiter or {".csv": ",", ".tsv": "\t"}.get(source.file.suffix.lower())
    first, second = _first_lines(source, delimiter)
    has_header = _has_header(first, second) if source.header is None else source.header
    columns = tuple(first) if has_header else tuple(f"column {i}" for i in range(len(first)))
    body = second if has_header else first
    label_position = None
    for position, column in enumerate(columns if has_header else ()):
        named = column == selection.labels if selection.labels else column.lower() in _LABEL_COLUMNS
        if named:
            label_position = position
            break
    return _Layout(
        delimiter=delimiter,
        has_header=has_header,
        columns=columns,
        id_position=_id_position(source, columns, body, label_position, has_header=has_header),
        label_position=label_position,
    )


def _rows(source: Source, delimiter: str | None, *, skip: int = 0) -> Iterator[list[str]]:
    """Yield the fields of each line that is not blank, after the first `skip` of them."""
    with source.file.open(encoding="utf-8-sig", newline="") as stream:
        if delimiter is None:
            rows: Iterator[list[str]] = (line.split() for line in stream)
        else:
            rows = csv.reader(stream, delimiter=delimiter)
        filled = ([field.strip() for field in row] for row in rows if row)
        yield from islice(filled, skip, None)


def _first_lines(source: Source, delimiter: str | None) -> tuple[list[str], list[str]]:
    found = list(islice(_rows(source, delimiter), 2))
    if not found:
        raise DataError(f"{source.path} is empty; it needs one line per sample.")
    return found[0], found[1] if len(found) > 1 else []


def _has_header(first: list[str], second: list[str]) -> bool:
    if any(not _looks_numeric(field) and field for field in first[1:]):
        return True
    if _looks_numeric(first[0]):
        return False
    return first[0].lower() in _ID_NAMES or (bool(second) and _looks_numeric(second[0]))


def _id_position(
    source: Source,
    columns: tuple[str, ...],
    body: list[str],
    label_position: int | None,
    *,
    has_header: bool,
) -> int | None:
    wanted = source.id_column
    if isinstance(wanted, str):
        if wanted not in columns:
            raise ConfigurationError(
                f"id_column={wanted!r} is not in {source.path}, whose columns are "
                f"{list(columns[:10])}{' ...' if len(columns) > 10 else ''}."
            )
        return columns.index(wanted)
    if wanted is not None:
        if not 0 <= wanted < len(columns):
            raise ConfigurationError(
                f"id_column={wanted} of {source.path}; allowed are 0 to {len(columns) - 1}."
            )
        return wanted
    if label_position == 0 or len(columns) < 2:
        return None
    is_named = has_header and columns[0].lower() in _ID_NAMES
    is_text = bool(body) and body[0] != "" and not _looks_numeric(body[0])
    return 0 if is_named or is_text else None


def _texts(source: Source, layout: _Layout, position: int | None) -> list[str] | None:
    if position is None:
        return None
    return [row[position] for row in _rows(source, layout.delimiter, skip=int(layout.has_header))]


def _numbers(source: Source, layout: _Layout) -> NDArray[np.float64]:
    """Columns that are neither ids nor labels, (n, d)."""
    positions = layout.feature_positions
    if not positions:
        raise DataError(
            f"{source.path} has no column beside ids and labels; a view has at least one."
        )
    if layout.id_position is layout.label_position is None:
        # NumPy's parser, ten times as fast, where all is plain numbers; all lines are checked.
        with (
            suppress(ValueError, UserWarning),
            warnings.catch_warnings(),
            source.file.open(encoding="utf-8-sig") as stream,
        ):
            warnings.simplefilter("error")
            while layout.has_header and not stream.readline().strip():
                pass
            return np.loadtxt(stream, delimiter=layout.delimiter, comments=None, ndmin=2)
    return _careful_numbers(source, layout, positions)


def _careful_numbers(source: Source, layout: _Layout, positions: list[int]) -> NDArray[np.float64]:
    """Parse line by line: ids, labels and missing values allowed, errors with their place."""
    found: list[NDArray[np.float64]] = []
    bad: Counter[int] = Counter()
    first_bad = (0, 0, "")
    for index, row in enumerate(_rows(source, layout.delimiter, skip=int(layout.has_header))):
        if len(row) != len(layout.columns):
            raise DataError(
                f"{source.path}: row {index} has {len(row)} fields where the first line has "
                f"{len(layout.columns)} (rows counted from 0 below the header). Check the "
                "delimiter, and commas inside fields, which need quotes."
            )
        fields = [row[position] for position in positions]
        if "_" not in "".join(fields):  # Python's own notation, 1_000
            with suppress(ValueError):
                found.append(np.array(fields, dtype=np.float64))
                continue
        numbers = np.full(len(fields), np.nan)
        for place, field in enumerate(fields):
            if _is_number(field):
                numbers[place] = float(field)
            elif field.lower() not in _MISSING:
                first_bad = first_bad if bad else (index, positions[place], field)
                bad[positions[place]] += 1
        found.append(numbers)
    if bad:
        row_index, position, field = first_bad
        raise DataError(
            f"{source.path}: column {layout.columns[position]!r} has {bad[position]} value(s) that "
            f"are not numbers, the first {field!r} in row {row_index} (counted from 0 below the "
            f"header); {len(bad)} column(s) have such values. Remove or encode them; name an id "
            "column with id_column, a label column with labels."
        )
    if not found:
        raise DataError(f"{source.path} has a header and no line below; it needs one per sample.")
    return np.stack(found)
