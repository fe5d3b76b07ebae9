"""Layout of a text table: its delimiter, header, and columns of ids and labels."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from mscam_dask.data.readers.base import (
    LABEL_NAMES,
    Selection,
    Source,
    open_text,
)
from mscam_dask.errors import ConfigurationError, DataError

__all__ = [
    "ID_NAMES",
    "LABEL_COLUMNS",
    "MISSING",
    "Layout",
    "is_number",
    "layout_of",
    "lines_of",
    "looks_numeric",
]

MISSING = ("", "na", "n/a", "nan", "null", "none")
"""Fields, in any case, that stand for a missing value."""

ID_NAMES = ("", "id", "ids", "index", "name", "sample", "sample_id", "sample id", "unnamed: 0")
LABEL_COLUMNS = tuple(name for name in LABEL_NAMES if name != "y")  # a coordinate
# patient_id, PatientID, user.id; not acid, GRID
_ENDS_IN_ID = re.compile(r"(?i:(?:^|[\W_])(?:u|uu|gu)?ids?$)|[a-z0-9]I[Dd]s?$")

_NUMBERED = 3  # columns from which consecutive numbers are hardly a sample
_SHOWN = 5


@dataclass(frozen=True)
class Layout:
    """Layout of a text table, as its first lines or the source say.

    Attributes
    ----------
    delimiter
        One character, or None for white space.
    has_header
        Whether the first line that is not blank names the columns.
    columns
        Their names; "column 0", ... without a header.
    id_position, label_position
        Places of the columns with sample ids and labels, None where there are none. Where samples are
        on columns, the first has the names of features, and there is no second.
    notes
        How lines and columns were interpreted.
    """

    delimiter: str | None
    has_header: bool
    columns: tuple[str, ...]
    id_position: int | None
    label_position: int | None
    notes: tuple[str, ...] = ()

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


def is_number(text: str) -> bool:
    """Return whether a field is a number, NaN and infinity among them."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def looks_numeric(text: str) -> bool:
    """Return whether a field is a number, or says that one is missing."""
    return is_number(text) or text.strip().lower() in MISSING[1:]


def lines_of(source: Source, delimiter: str | None) -> Iterator[list[str]]:
    """Yield the fields of each line, none for a blank line."""
    with open_text(source) as stream:
        if delimiter is None:
            yield from (line.split() for line in stream)
        else:
            for row in csv.reader(stream, delimiter=delimiter):
                fields = [field.strip() for field in row]
                yield [] if fields == [""] and row != [""] else fields


def layout_of(source: Source, selection: Selection) -> Layout:
    """Find the layout of a text table from its first two lines and what the source says.

    Raises
    ------
    DataError
        When the file is empty, or its first line may be names of columns as well as a sample.
    ConfigurationError
        When the column of ids does not exist.
    """
    delimiter = source.delimiter or {".csv": ",", ".tsv": "\t"}.get(source.suffix)
    first, second = _first_lines(source, delimiter)
    has_header = _has_header(source, first, second) if source.header is None else source.header
    columns = _heading(first) if has_header else tuple(f"column {i}" for i in range(len(first)))
    body = second if has_header else first
    on_rows = source.samples_in == "rows"
    label_position = None
    for position, column in enumerate(columns if has_header and on_rows else ()):
        named = column == selection.labels if selection.labels else column.lower() in LABEL_COLUMNS
        if named:
            label_position = position
            break
    id_position = _id_position(
        source, columns, body, label_position, delimiter=delimiter, has_header=has_header
    )
    return Layout(
        delimiter=delimiter,
        has_header=has_header,
        columns=columns,
        id_position=id_position,
        label_position=label_position,
        notes=(
            *_notes_of_header(source, first, second, has_header=has_header),
            *(
                f"{source.path}: column {columns[position]!r} taken as {what}."
                for what, position in (
                    ("sample ids" if on_rows else "names of features", id_position),
                    ("labels", label_position),
                )
                if position is not None
            ),
            *(
                _notes_of_ids(source, columns, (id_position, label_position))
                if on_rows and has_header
                else ()
            ),
        ),
    )


def _heading(first: list[str]) -> tuple[str, ...]:
    """Names of columns, without the # that NumPy writes before them."""
    if first[0] == "#":
        return tuple(first[1:])
    return (first[0].removeprefix("#").lstrip(), *first[1:])


def _notes_of_header(
    source: Source, first: list[str], second: list[str], *, has_header: bool
) -> tuple[str, ...]:
    """Return a note if a first line of numbers may be a header or a sample."""
    numbers = first[1:] if not looks_numeric(first[0]) else first
    is_plain = bool(numbers) and all(map(looks_numeric, numbers))
    if source.header is not None or not is_plain:
        return ()
    what = "sample" if source.samples_in == "rows" else "feature"
    if has_header:
        is_sure = first[0].lower() in ID_NAMES and not looks_numeric(first[0])
        taken = f"the names of columns (--no-header if it is a {what})"
        return () if is_sure else (f"{source.path}: first line {_shown(first)} taken as {taken}.",)
    # whole numbers that differ, above others: years, sizes, positions
    is_odd = (
        len(set(numbers)) == len(numbers) > 1
        and all(field.isdecimal() for field in numbers)
        and any(not field.isdecimal() for field in second[-len(numbers) :])
    )
    if is_odd or not looks_numeric(first[0]):
        taken = f"the first {what} (--header if it names the columns)"
        return (f"{source.path}: first line {_shown(first)} taken as {taken}.",)
    return ()


def _first_lines(source: Source, delimiter: str | None) -> tuple[list[str], list[str]]:
    filled = (fields for fields in lines_of(source, delimiter) if fields)
    found = list(islice(filled, 2))
    if not found:
        raise DataError(f"{source.path} is empty; it needs one line per sample.")
    return found[0], found[1] if len(found) > 1 else []


def _has_header(source: Source, first: list[str], second: list[str]) -> bool:
    if any(not looks_numeric(field) and field for field in first[1:]):
        return True
    if not looks_numeric(first[0]) and (
        first[0].lower() in ID_NAMES or (second and looks_numeric(second[0]))
    ):
        return True
    return _is_numbering(source, first, second)


def _is_numbering(source: Source, first: list[str], second: list[str]) -> bool:
    """Return whether a first line of numbers, maybe behind an id, numbers or dates the columns.

    Certain are three or more consecutive whole numbers above others, from 0 (what a frame writes
    for columns without names) or behind the heading of text ids.

    Raises
    ------
    DataError
        When such a line may as well be a sample.
    """
    has_ids = not looks_numeric(first[0])
    numbers, below = (first[1:], second[1:]) if has_ids else (first, second)
    if len(numbers) < _NUMBERED or not all(field.isdecimal() for field in numbers):
        return False
    start = int(numbers[0])
    if [int(field) for field in numbers] != list(range(start, start + len(numbers))):
        return False
    below_are_others = any(not field.isdecimal() for field in below)
    if below_are_others and (start == 0 or has_ids):
        return True
    if below_are_others or start == 0:
        raise DataError(
            f"{source.path}: the first line, {_shown(first)}, may be column numbers or the first "
            "sample. Set header=True or header=False (--header, --no-header)."
        )
    return False


def _shown(fields: list[str]) -> str:
    return ",".join(fields[:_SHOWN]) + (",..." if len(fields) > _SHOWN else "")


def _id_position(
    source: Source,
    columns: tuple[str, ...],
    body: list[str],
    label_position: int | None,
    *,
    delimiter: str | None,
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
    is_named = has_header and columns[0].lower() in ID_NAMES
    is_text = bool(body) and body[0] != "" and not looks_numeric(body[0])
    if is_named or is_text:
        return 0
    return (
        0 if has_header and _ENDS_IN_ID.search(columns[0]) and _is_key(source, delimiter) else None
    )


def _is_key(source: Source, delimiter: str | None) -> bool:
    """Return whether the first column below a header has whole numbers, each of them once."""
    with open_text(source) as stream:
        lines = [line for line in stream if line.strip()][1:]
    if any('"' in line for line in lines):
        rows = (fields for fields in lines_of(source, delimiter) if fields)
        values = [fields[0] for fields in islice(rows, 1, None)]
    elif delimiter is None:
        values = [line.split(maxsplit=1)[0] for line in lines]
    else:
        values = [line.partition(delimiter)[0].strip() for line in lines]
    return all(value.isdecimal() for value in values) and len(set(values)) == len(values)


def _notes_of_ids(
    source: Source, columns: tuple[str, ...], taken: tuple[int | None, ...]
) -> list[str]:
    """Return notes on features whose names look like those of ids."""
    return [
        f"{source.path}: column {column!r} taken as a feature; --id-column if it has the sample ids."
        for position, column in enumerate(columns)
        if position not in taken and _ENDS_IN_ID.search(column)
    ]
