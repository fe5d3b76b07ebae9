"""First lines of a text table: the delimiter and the decimal mark that go best with them, their fields, and whether the first one is a header."""

from __future__ import annotations

import csv
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mscam_dask.data.readers.base import Source
from mscam_dask.data.readers.fields import (
    are_rising,
    are_whole,
    is_number,
    is_value,
    is_whole_number,
)
from mscam_dask.data.views.conversion import CERTAIN, id_strength, label_rank
from mscam_dask.errors import DataError

_DELIMITERS = ("\t", ";", "|", ",")
_NAMES = {"\t": "tab", ";": "semicolon", "|": "bar", ",": "comma", None: "blanks"}
_MOST = 0.7  # of the rows that a delimiter splits: titles and footers have none
_FIELD = re.compile(r'"([^"]*(?:""[^"]*)*)"(?=\s|$)|(\S+)')
_THOUSANDS = re.compile(r"[+-]?\d{1,3}([,\s]\d{3})+")
_SEVERAL_NUMBERS = re.compile(r"[-+.\d]\S*\s+[-+.\d]")
_RUN_TOGETHER = re.compile(r"[-+]?\d+\.\d+[-+]\d+\.[-+.\d]+")  # 13.696-123.021
_SHOWN, _SHOWN_CHARS = 5, 60  # fields, and characters of each
_RISING = 8  # numbers of a sample that hardly rise or fall by chance
_NUMBERED = 3  # columns above which whole numbers are hardly a sample by chance
_QUOTED_NUMBER = re.compile(r'"[-+.,]?\d[-+\d.,eE]*"')

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


def check_positions(lines: list[str], where: str) -> None:
    """Refuse columns at fixed positions of which rows leave some empty, or which touch: values would shift."""
    rows = [[match.span() for match in _FIELD.finditer(line)] for line in lines if line.strip()]
    fields = itertools.chain.from_iterable(map(str.split, lines))
    if touching := [*filter(_RUN_TOGETHER.fullmatch, fields)]:
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


# header -----------------------------------------------------------------------------------------


def has_header(
    where: str, lines: list[str], rows: list[list[str]], decimal: str, *, on_columns: bool
) -> tuple[bool, str]:
    """Whether the first line names the columns, and a note if it may be otherwise; an error where that is unclear.

    `on_columns` says that these are the samples. The first of these decides:

    1. what names alone have: the form of R, a name of ids, labels or classes, and 0, 1, 2, ... above measured values;
    2. text above numbers: names, but unclear beside numbers that are not like names;
    3. what samples alone have: text of the lines below, and numbers that are not like names;
    4. numbers like names, whole or rising: names behind text and above measured values, unclear above others or beside
       text, otherwise a sample.
    """
    line, first = _FirstLine(rows, decimal), rows[0]
    numbers, are_whole_numbers = line.numbers, are_whole(line.numbers)
    stands_out = _stand_out(numbers, line.below, decimal)
    are_like_names = are_whole_numbers or stands_out
    is_quoted_apart = (
        len(line.below) > 0 < len(numbers)
        and lines[0].count('"') == 2 * len(first)
        and not any(map(_QUOTED_NUMBER.search, lines[1:]))
    )  # as R writes names
    is_header = is_unclear = False
    if line.lacks_a_name or line.names_roles or line.counts_columns or is_quoted_apart:
        is_header = True
    elif line.is_above_numbers or not numbers:
        is_new = not line.repeats_text or first in rows[1:]
        is_header = line.is_above_numbers or (line.has_texts and is_new)
        is_unclear = is_header and not are_like_names
    elif not line.repeats_text and are_like_names and len({*numbers}) == len(numbers):
        is_many = len(numbers) >= (_NUMBERED if are_whole_numbers else _RISING)
        is_behind_name = line.begins_with_text and (
            (on_columns and is_many) or _name_decimals(numbers, line.below)
        )
        is_header = (
            are_whole_numbers and line.is_above_decimals and (first[0] == "" or is_behind_name)
        )
        is_unclear = not is_header and (
            line.has_texts
            or (is_many and (line.is_above_decimals or stands_out or line.is_counted))
            or (is_many and on_columns and line.begins_with_text)
        )
    is_unclear |= not is_header and first[0] == "" and are_whole(first[1:])
    if is_unclear:
        raise DataError(
            f"{where}: the first line, {shown_fields(first)}, may name the columns or be the first "
            "sample. Set header=True or header=False (--header, --no-header)."
        )
    what = "feature" if on_columns else "sample"
    if is_header:
        is_doubted = bool(numbers) and not (line.lacks_a_name or line.names_roles)
        taken = f"the names of columns (--no-header if it is a {what})"
    else:
        is_odd = len(numbers) > 0 and are_like_names and not any(map(are_whole, line.below))
        is_doubted = line.begins_with_text or line.has_texts or is_odd
        taken = f"the first {what} (--header if it names the columns)"
    note = f"{where}: first line {shown_fields(first)} taken as {taken}."
    return is_header, note if is_doubted else ""


class _FirstLine:
    """What the first line of a table and the rows below it say about each other."""

    def __init__(self, rows: list[list[str]], decimal: str) -> None:
        def has_text(fields: Sequence[str]) -> bool:
            return not all(is_value(field, decimal) for field in fields)

        first, second = rows[0], rows[1] if len(rows) > 1 else []
        body = [row for row in rows[1:] if len(row) == len(first)]
        columns = [*zip(*body, strict=True)] or [()] * len(first)
        texts = [one for one in zip(first, columns, strict=True) if has_text(one[:1])]
        self.begins_with_text = has_text(first[:1])
        self.has_texts = len(texts) > self.begins_with_text
        self.repeats_text = any(name in own for name, own in texts)
        new = [
            (name, own, has_text(own))
            for name, own in texts
            if any(map(str.isalnum, name))  # unlike "?"
            and (name not in own or (first in body and names_ids(name)))
        ]
        self.is_above_numbers = any(
            not is_above_text and (any(own) or self.has_texts) for _, own, is_above_text in new
        )
        self.names_roles = any(
            names_ids(name)
            or (
                self.has_texts
                and (id_strength(name) or (is_above_text and 2 * len({*own}) <= len(own)))
            )
            for name, own, is_above_text in new
        )
        places = [
            place
            for place, name in enumerate(first)
            if is_number(name, decimal) and not has_text(columns[place])
        ]
        self.numbers, *self.below = [[row[place] for place in places] for row in (first, *body)]
        known = ([text for text in row if is_number(text, decimal)] for row in self.below)
        self.is_above_decimals = not are_whole(next(filter(None, known), []))
        behind = [
            *itertools.dropwhile(lambda name: name == "" or not is_value(name, decimal), first)
        ]
        self.is_counted = behind == [*map(str, range(len(behind) or 1))]  # a frame without names
        self.counts_columns = (
            self.is_counted
            and len(behind) >= _NUMBERED
            and not self.repeats_text
            and not all(map(str.isdecimal, second[-len(behind) :] or "0"))
        )
        is_short = len(second) - len(first) == 1 and len(texts) > 0
        self.lacks_a_name = is_short or (
            first[0] == "" and (self.has_texts or self.is_counted or has_text(second[:1]))
        )


def names_ids(name: str) -> bool:
    """Return whether a field names the first column of a table."""
    return id_strength(name) == CERTAIN or name.lower() in ("index", "name") or label_rank(name) > 0


def is_second_header(rows: list[list[str]], decimal: str) -> bool:
    """Return whether the line below the first one has numbers that name the columns rather than a sample."""
    first, second = rows[0], rows[1] if len(rows) > 1 else []
    named = second[0 if second and is_number(second[0], decimal) else 1 :]
    below = [row[-len(named) :] for row in rows[2:] if len(row) == len(second)]
    are_odd = len({*first}) < len(first) or are_rising(named)
    are_odd |= len(named) == len(second) and len({*named}) > 1  # without an id
    is_axis = len(named) >= _RISING and _stand_out(named, below, decimal)
    return (are_odd and _name_decimals(named, below)) or is_axis


def _name_decimals(numbers: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether three or more whole numbers stand above columns of which most fields are not whole, as names do."""
    columns = zip(*(row[-len(numbers) :] for row in rows), strict=True)
    return (
        len(numbers) >= _NUMBERED
        and all(map(str.isdecimal, numbers))
        and bool(rows)
        and all(2 * sum(map(is_whole_number, own)) <= len(own) for own in columns)
    )


def _stand_out(numbers: Sequence[str], rows: Sequence[Sequence[str]], decimal: str) -> bool:
    """Return whether numbers rise or fall, as wavelengths, masses and times in a header do, but not those below."""
    return any(
        are_rising(numbers[::step], decimal)
        and not any(are_rising(row[::step], decimal) for row in rows[:_NUMBERED])
        for step in (1, -1)
    )
