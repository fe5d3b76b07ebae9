"""Dialect of a text table: the delimiter and the decimal mark that go best with its first lines, and its fields."""

from __future__ import annotations

import csv
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from mscam_dask.data.readers.base import Source
from mscam_dask.data.readers.fields import is_number, is_value
from mscam_dask.errors import DataError

_DELIMITERS = ("\t", ";", "|", ",")
_NAMES = {"\t": "tab", ";": "semicolon", "|": "bar", ",": "comma", None: "blanks"}
_MOST = 0.7  # of the rows that a delimiter splits: titles and footers have none
_FIELD = re.compile(r'"([^"]*(?:""[^"]*)*)"(?=\s|$)|(\S+)')
_THOUSANDS = re.compile(r"[+-]?\d{1,3}([,\s]\d{3})+")
_SEVERAL_NUMBERS = re.compile(r"[-+.\d]\S*\s+[-+.\d]")
_RUN_TOGETHER = re.compile(r"[-+]?\d+\.\d+[-+]\d+\.[-+.\d]+")  # 13.696-123.021
_SHOWN, _SHOWN_CHARS = 5, 60  # fields, and characters of each

OF_FIXED_WIDTH = "Convert the file (pandas.read_fwf(FILE, widths=[...], header=None).to_csv(...))."
"""Remedy for columns of fixed width."""


@dataclass(frozen=True)
class Dialect:
    """A delimiter (None: runs of blanks), and the first rows under it.

    `width` is the number of fields of most rows, `decimal` the mark under which most fields are numbers, `fit` how
    well the rows go with both: 1 if all have this width and all of their fields are numbers.
    """

    delimiter: str | None
    rows: list[list[str]]
    decimal: str
    width: int
    fit: float

    @property
    def name(self) -> str:
        return _NAMES.get(self.delimiter, repr(self.delimiter))


def _under(delimiter: str | None, lines: list[str], told: str | None) -> Dialect:
    """The first lines under a delimiter, and under the decimal mark that is told, else found."""
    rows = split_rows(lines, delimiter)
    body = rows[1:] or rows
    fields = [field for row in body for field in row]
    counts = {
        mark: sum(is_number(field, mark) for field in fields)
        for mark in ([told] if told else [".", ","] if delimiter != "," else ["."])
    }
    decimal = max(counts, key=lambda mark: counts[mark])
    width, n_rows = Counter(map(len, body)).most_common(1)[0] if body else (0, 0)
    fit = n_rows * counts[decimal] / max(1, len(body) * len(fields))
    return Dialect(delimiter, rows, decimal, width, fit)


def dialect_of(source: Source, lines: list[str], told: str | None) -> Dialect:
    """The dialect that goes best with the first lines; the first of equals."""
    if told is not None:
        return _under(told, lines, source.decimal)
    blanks, found = _under(None, lines, source.decimal), []
    for mark in _DELIMITERS:
        try:
            one = _under(mark, lines, source.decimal)
        except csv.Error:  # a field of more than 128 KiB
            continue
        if _splits(one, blanks):
            found.append(one)
    if not found:
        return blanks
    best = max(found, key=lambda one: (len(one.rows[0]) == one.width, one.fit))
    several = [field for row in best.rows for field in row if _SEVERAL_NUMBERS.match(field)]
    are_thousands = all(map(_THOUSANDS.fullmatch, several))
    are_full, are_blanks_full = (
        {len(row) for row in one.rows} == {one.width} for one in (best, blanks)
    )
    is_doubted = not are_thousands and (are_blanks_full or not are_full)
    if best.delimiter == blanks.decimal and abs(len(blanks.rows[0]) - blanks.width) < 2:
        is_doubted |= blanks.fit > 2 * best.fit  # commas may be decimal marks
    return blanks if is_doubted and blanks.fit > best.fit else best


def _splits(one: Dialect, blanks: Dialect) -> bool:
    """Return whether rows have the fields of a table under a delimiter.

    All are as long as the header, or it lacks a name or has one more. Where titles and footers are no rows of the table,
    more fields are numbers than under blanks: text of one column, such as labels, may have commas in most rows.
    """
    body, n_names = one.rows[1:] or one.rows, len(one.rows[0]) if one.rows else 0
    if {len(row) for row in body} == {one.width} and one.width > 1 and abs(n_names - one.width) < 2:
        is_one_column = one.delimiter == "," and n_names == 1  # x above 1,5
        if not is_one_column:
            return True
    n_split = sum(len(row) > 1 for row in body)
    is_better = one.fit > blanks.fit or (one.delimiter == "\t" and one.fit == blanks.fit > 0)
    return n_split >= _MOST * len(body) > 0 and is_better


def check_decimal(dialect: Dialect, where: str) -> str:
    """Refuse a decimal comma that was found, and is only where separators of thousands may be; a note on such points."""
    body, decimal = dialect.rows[1:] or dialect.rows, dialect.decimal
    fields = (field for row in body for field in row)
    marked = [field for field in fields if decimal in field and is_number(field, decimal)]
    if not marked or not all(_THOUSANDS.fullmatch(text.replace(".", ",")) for text in marked):
        return ""
    if decimal == ",":
        raise DataError(
            f"{where}: the comma in {marked[0]!r} may mark decimals or thousands. Set decimal=',' "
            "(--decimal), or write numbers without separators of thousands."
        )
    if any(text.lstrip("+-").startswith("0") for text in marked):
        return ""
    return f"{where}: the point in {marked[0]!r} taken as decimal mark; leave it out if it separates thousands."


def check_widths(dialect: Dialect, lines: list[str], n_above: int, where: str) -> None:
    """Refuse lines above the header, with fewer fields than it has."""
    rows, width, mark = dialect.rows, dialect.width, dialect.delimiter
    first = rows[0]
    if mark is None and not any(
        len(row) > 1 and all(is_value(field, dialect.decimal) for field in row[1:]) for row in rows
    ):
        return  # a text in each line, such as CD4 T cell
    if len(first) >= width - 1 or len(rows) < 3:
        return
    widths = [max(map(len, split_rows([line], mark)), default=0) for line in lines]
    n_lines = widths.index(width) if width in widths else 1
    raise DataError(
        f"{where}: the first line, {shown_fields(first)}, has {len(first)} field(s) where most have {width}, separated by "
        f"{dialect.name}. Leave out what is above the header (--skip {n_above + n_lines}), write a header with the delimiter "
        "of the rows, or tell the delimiter (--delimiter)."
    )


def check_positions(lines: list[str], where: str) -> None:
    """Refuse columns at fixed positions of which rows leave some empty, or which touch: values would shift."""
    rows = [[match.span() for match in _FIELD.finditer(line)] for line in lines if line.strip()]
    fields = [line.split() for line in lines if line.strip()]
    touching = [field for row in fields for field in row if _RUN_TOGETHER.fullmatch(field)]
    touching += _touching_integers(rows, fields)
    if touching:
        raise DataError(
            f"{where} seems to have numbers without a blank between them, the first {touching[0]!r}. "
            f"{OF_FIXED_WIDTH} If that is one number, pass delimiter=' ' (--delimiter ' ')."
        )
    if any("\t" in line for line in lines):
        return  # not at fixed positions
    has_text = np.zeros(2 + max(map(len, lines)), dtype=np.bool_)
    for start, stop in itertools.chain.from_iterable(rows):
        has_text[1 + start : 1 + stop] = True
    starts = np.flatnonzero(has_text[1:] & ~has_text[:-1])
    columns: list[list[tuple[int, int]]] = [[] for _ in starts]
    for span in itertools.chain.from_iterable(rows):
        columns[int(np.searchsorted(starts, span[0], side="right")) - 1].append(span)
    are_aligned = all(1 in map(len, map(set, zip(*spans, strict=True))) for spans in columns)
    n_fields = max(map(len, rows))
    if are_aligned and len(columns) > n_fields:
        raise DataError(
            f"{where} has {len(columns)} columns at fixed positions, and at most {n_fields} fields in a row: cells "
            "are empty. Write NA in them, convert the file (pandas.read_fwf(...).to_csv(...)), or leave out what is above "
            "the numbers (--skip)."
        )


def _touching_integers(rows: list[list[tuple[int, int]]], fields: list[list[str]]) -> list[str]:
    """First numbers of columns that are as wide as several of the narrowest one, and full, among aligned whole numbers."""
    ends = {tuple(stop for _, stop in row) for row in rows}
    if len(ends) != 1 or len(rows) < 2 or not all(map(str.isdecimal, itertools.chain(*fields))):
        return []
    widths = np.diff([0, *ends.pop()])
    sizes, least = np.array([[*map(len, row)] for row in fields]), widths.min()
    is_apart = (widths - sizes)[:, 1:].min(initial=2) >= 2  # not by single blanks
    is_wide = (widths > least) & (widths % least == 0) & (sizes.min(axis=0) > widths - least)
    return [fields[0][column] for column in np.flatnonzero(is_wide & is_apart)]


def fields_of(
    lines: Iterable[str], delimiter: str | None, later: Iterable[str] = ()
) -> Iterator[list[str]]:
    """Yield the fields of each row, of a blank one none or an empty one; a run of blanks separates once.

    A quoted field may have several lines, the last of them maybe in `later` lines.
    """
    lines, longest = iter(lines), csv.field_size_limit()
    for line in lines:
        is_plain = '"' not in line and len(line) <= longest and delimiter != " "
        if delimiter is not None and not is_plain:
            rest = itertools.chain([line], lines, later)
            yield next(csv.reader(rest, delimiter=delimiter, skipinitialspace=True))
        elif '"' not in line:
            yield line.rstrip("\n").split(delimiter)
        else:
            yield [quoted.replace('""', '"') or bare for quoted, bare in _FIELD.findall(line)]


def is_blank(row: list[str]) -> bool:
    """Return whether a row has no fields, or a blank one only."""
    return len(row) < 2 and not "".join(row).strip()


def split_rows(lines: list[str], delimiter: str | None) -> list[list[str]]:
    """Stripped fields of the rows that are not blank."""
    rows = fields_of(lines, delimiter)
    return [[field.strip() for field in row] for row in rows if not is_blank(row)]


def shown_fields(fields: list[str]) -> str:
    """Return the first fields of a row for a message, shortened."""
    first = [" ".join(field[: _SHOWN_CHARS + 1].split()) for field in fields[:_SHOWN]]
    short = [
        field if len(field) <= _SHOWN_CHARS else f"{field[:_SHOWN_CHARS]}..." for field in first
    ]
    return ",".join(short) + (",..." if len(fields) > _SHOWN else "")
