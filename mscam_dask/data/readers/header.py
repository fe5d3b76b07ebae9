"""First line of a text table: whether it names the columns or is a sample."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from mscam_dask.data.readers.dialect import shown_fields
from mscam_dask.data.readers.fields import (
    are_rising,
    are_whole,
    is_number,
    is_value,
    is_whole_number,
    number_of,
)
from mscam_dask.data.views.conversion import CERTAIN, id_strength, label_rank
from mscam_dask.errors import DataError

_RISING = 8  # numbers of a sample that hardly rise or fall by chance
_NUMBERED = 3  # columns above which whole numbers are hardly a sample by chance
_QUOTED_NUMBER = re.compile(r'"[-+.,]?\d[-+\d.,eE]*"')


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
    stands_out = _stand_out(named, below, decimal)
    return (are_odd and _name_decimals(named, below)) or (
        stands_out and (len(named) >= _RISING or _are_outside(named, below, decimal))
    )


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


def _are_outside(numbers: list[str], rows: list[list[str]], decimal: str) -> bool:
    """Return whether each number is outside of those below it, in many rows that are not sorted by it."""
    if len(rows) < _RISING:
        return False
    columns = [
        [number_of(text, decimal) for text in own if is_number(text, decimal)]
        for own in zip(numbers, *rows, strict=True)
    ]
    return all(
        len(own) > 1
        and not min(own[1:]) <= own[0] <= max(own[1:])
        and sorted(own) not in (own, own[::-1])
        for own in columns
    )
