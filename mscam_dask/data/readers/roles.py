"""Tables, and which of their columns has the sample ids: decided once for all tables together."""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from mscam_dask.data.readers.base import Source
from mscam_dask.data.views.conversion import LABEL_COLUMNS
from mscam_dask.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    import pandas as pd

MISSING = {
    *("", "na", "n/a", "nan", "null", "none", "#n/a", "#na", "<na>", "-nan", "nat"),
    *("\\n", "."),  # of MySQL and PostgreSQL, and of SAS and Stata
    *("#n/a n/a", "1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan"),
}
"""Fields, in any case, that stand for a missing value."""

_MINUS = "\u2212"  # of typeset tables

TRUTH = {"true": "1", "false": "0"}
"""Numbers of truth values, which pandas and R write in any case."""

# An id by its name: certainly; of a family; maybe.
CERTAIN, _FAMILY, _MAYBE = 3, 2, 1

_PEOPLE = "sample|patient|subject|participant|individual|person|donor|specimen|respondent"
_THINGS = (
    "case|record|cell|spot|animal|mouse|aliquot|row|obs|observation|item|object|unit|customer|user|client|"
    "member|employee|student|product|order|account|image|run|entry|entity|gene|probe|feature|bcrpatient"
)
_CERTAIN_NAME = re.compile(
    rf"(unnamed0)?|({_PEOPLE})s?|(({_PEOPLE}|{_THINGS})s?)?(id|ids|uid|uuid|guid|identifier|barcode|accession)|"
    r"mrn|eid|seqn|iid|rid|pid|nhsno|nhsnumber|rownames?"
)
_MAYBE_NAME = re.compile(
    rf"({_PEOPLE}|{_THINGS})?s?(name|no|nr|num|number|code|key|index|label)|({_THINGS})"
)
_OF_ROW_NUMBERS = re.compile(r"(unnamed\d*|index|level0|row|rowid|rownumber)?", re.IGNORECASE)
# patient_id, PatientID, user.id; not acid, GRID
_ENDS_IN_ID = re.compile(r"(?i:(?:^|[\W_])ids?$)|[a-z0-9]I[Dd]s?$")

_NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|inf(inity)?)", re.I | re.A)
_WHOLE = re.compile(r"[-+]?\d+(\.0*)?", re.ASCII)
_POWER = re.compile(r"[-+]?\d{1,4}(\.\d{1,6})?[eE]\+?\d{1,2}", re.ASCII)  # R and Excel write 1e+05
# 1_000, 1+2j, 12-34, $5.10, 5.1 mg
_AMOUNT = re.compile(r"[-+\d.,_ eEjJ%]+$|\W*\d+[.,\s]\d|[\W\d_]+$")
_NAME = re.compile(r"(?![-+]?[\d.,]*[.,][\d.,]*([eE][-+]?\d+)?$)(.*[^\W_].*)", re.DOTALL)
_FEW = 5  # rows in which numbers may differ, or count the rows, by chance
_KIND_ROWS = 20


def is_number(text: str, decimal: str = ".") -> bool:
    """Return whether a field is a number in decimal notation."""
    if decimal != ".":
        text = "-" if "." in text else text.replace(decimal, ".")
    return _NUMBER.fullmatch(text.replace(_MINUS, "-")) is not None


def number_of(text: str, decimal: str = ".") -> float:
    """Return the number of a field that is one."""
    return float(text.replace(decimal, ".").replace(_MINUS, "-"))


def is_value(text: str, decimal: str = ".") -> bool:
    """Return whether a field is a number or a truth value, or says that one is missing."""
    return is_number(text, decimal) or text.lower() in MISSING or text.lower() in TRUTH


def id_strength(name: str) -> int:
    """How surely a column of this name has ids: 0 to 3."""
    plain = re.sub(r"[\W_]+", "", name).lower()
    if _CERTAIN_NAME.fullmatch(plain):
        return CERTAIN
    if plain == "fid":
        return _FAMILY
    return _MAYBE if _MAYBE_NAME.fullmatch(plain) or _ENDS_IN_ID.search(name) else 0


def are_whole(texts: Sequence[str]) -> bool:
    """Return whether all are whole numbers, also written as 1000.0 or 1e+05."""
    return all(map(_is_whole, texts))


def _is_whole(text: str) -> bool:
    return _WHOLE.fullmatch(text) is not None or (
        _POWER.fullmatch(text) is not None and float(text).is_integer()
    )


def are_names(texts: Sequence[str], *, with_numbers: bool = False) -> bool:
    """Return whether all are names, such as P-001, 12-34 and 0012 but not 1,5 or ?; maybe whole numbers too."""
    if are_whole(texts):
        return any(text[:1] == "0" and text[1:2].isdigit() for text in texts)
    return all(
        _NAME.fullmatch(text) and (with_numbers or not _AMOUNT.match(text)) for text in texts
    )


def are_decimals(texts: Sequence[str], decimal: str = ".") -> bool:
    """Return whether all that are known are numbers, and some are not whole."""
    known = [text for text in texts if text.lower() not in MISSING]
    return all(is_number(text, decimal) for text in known) and not are_whole(known)


def are_unique(texts: Sequence[str]) -> bool:
    """Return whether no text is missing or repeated."""
    return len(set(texts)) == len(texts) and not any(text.lower() in MISSING for text in set(texts))


Block = Mapping[int, Sequence[str]] | Sequence[Sequence[str]]
"""Columns of some rows as text, by position."""


@dataclass(frozen=True, eq=False)
class Table:
    """A table: names of its columns, its first rows (`head`), and by blocks the columns that are asked for.

    `where` names it in messages, `view` is the name of its view; `id_position` is a column that the format says
    has the ids of the rows; `left_out` are columns that are no features by the format, and why; `frame` has the
    columns by position where they have types.
    """

    source: Source
    where: str
    view: str
    columns: tuple[str, ...]
    head: list[list[str]]
    blocks: Callable[[Sequence[int]], Iterator[Block]]
    has_header: bool = True
    samples_in: Literal["rows", "columns"] = "rows"
    id_position: int | None = None
    left_out: Mapping[int, str] = field(default_factory=dict)
    form: str = ""
    notes: tuple[str, ...] = ()
    decimal: str = "."
    is_by_blanks: bool = False
    frame: pd.DataFrame | None = None

    def name(self, position: int) -> str | None:
        """Name of a column in lower case, None without a header."""
        return self.columns[position].strip().lower() if self.has_header else None

    def strength(self, position: int) -> int:
        """How surely a column has ids by its name."""
        return id_strength(self.columns[position]) if self.has_header else 0

    def may_number_rows(self, position: int) -> bool:
        """Return whether a column has no name, or that of row numbers which pandas and R write."""
        name = self.columns[position]
        return (
            self.has_header and _OF_ROW_NUMBERS.fullmatch(re.sub(r"[\W_]+", "", name)) is not None
        )

    def names_of(self, positions: Sequence[int]) -> tuple[str, ...] | None:
        """Names of columns, None without a header."""
        return tuple(self.columns[place] for place in positions) if self.has_header else None

    def head_of(self, position: int) -> list[str]:
        """First fields of a column."""
        return [row[position] if position < len(row) else "" for row in self.head]

    def is_text(self, position: int) -> bool:
        """Return whether the first fields of a column are not all numbers."""
        return not all(is_value(text, self.decimal) for text in self.head_of(position)[:_KIND_ROWS])

    def is_whole(self, position: int) -> bool:
        """Return whether the first fields of a column are whole numbers or missing."""
        return are_whole([text for text in self.head_of(position) if text.lower() not in MISSING])

    def is_key(self, position: int) -> bool:
        """Return whether the first fields of a column are whole numbers that differ."""
        texts = self.head_of(position)
        return bool(texts) and are_whole(texts) and are_unique(texts)

    @cached_property
    def has_many_keys(self) -> bool:
        """Whether at least half of the columns of numbers, the first aside, have whole numbers that differ."""
        are_keys = [
            self.is_key(place)
            for place, name in enumerate(self.columns)
            if place > 0
            and place not in self.left_out
            and name.lower() not in LABEL_COLUMNS
            and not self.is_text(place)
        ]
        return 2 * sum(are_keys) >= len(are_keys) > 0


@dataclass(frozen=True)
class IdColumn:
    """Position of the column with the sample ids, and why it is."""

    position: int
    reason: str


Candidates = tuple[Table, Mapping[int, Sequence[str]]]
"""A table, and columns of it as text by position, of which one may have the sample ids."""


def told_ids(table: Table) -> IdColumn | None:
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


def id_columns(tables: Sequence[Candidates]) -> list[IdColumn | None]:
    """Return the column of the sample ids of each table, None for one without ids.

    In this order: what is told; a column of unique text or whole numbers whose name, or place at the
    front, several tables share beside half of the values; one that is called as ids are; the first one of
    unique text; a first column of consecutive whole numbers. Other unique whole numbers there are an error.
    """
    tables = [(table, _may_be_ids(table, texts)) for table, texts in tables]
    unique = [_unique(*one) for one in tables]
    have_only_numbers = [*map(_has_only_numbers, tables, unique)]
    if any(have_only_numbers) and not all(have_only_numbers):
        unique = [_unique(*one, may_share_numbers=True) for one in tables]
    shared = _shared(tables, unique)
    firsts = Counter(table.name(0) for table, texts in tables if 0 in texts)
    found = [
        told_ids(table)
        or shared.get(index)
        or _id_column(table, texts, unique[index], is_repeated=firsts[table.name(0)] > 1)
        for index, (table, texts) in enumerate(tables)
    ]
    numbers = [
        texts[ids.position]
        for (table, texts), ids in zip(tables, found, strict=True)
        if ids is not None and told_ids(table) is None and table.may_number_rows(ids.position)
    ]
    if (
        len(numbers) == len(found)
        and len({*map(tuple, numbers)}) > 1
        and len({*map(len, numbers)}) == 1
        and all(map(are_counted, numbers))
    ):
        return [None] * len(found)  # row i, counted from 0 and from 1
    names_of_ids = {
        table.name(ids.position)
        for (table, _), ids in zip(tables, found, strict=True)
        if ids is not None and table.has_header
    }
    for (table, _), ids, columns in zip(tables, found, unique, strict=True):
        if ids is None and table.name(0) in names_of_ids and are_whole(columns.get(0, ["x"])):
            raise _unclear(table)
    return found


def _may_be_ids(table: Table, texts: Mapping[int, Sequence[str]]) -> dict[int, Sequence[str]]:
    return {
        place: fields
        for place, fields in (texts.items() if table.source.id_column is not False else ())
        if place not in table.left_out and table.columns[place].lower() not in LABEL_COLUMNS
    }


def _unique(
    table: Table, texts: Mapping[int, Sequence[str]], *, may_share_numbers: bool = False
) -> dict[int, Sequence[str]]:
    """Columns of unique texts; row numbers only if no other column has ids, or another table may have the same."""
    found = {place: fields for place, fields in texts.items() if are_unique(fields)}
    nameless = {p for p in found if table.may_number_rows(p) and are_whole(found[p])}
    others = [
        p
        for p in found
        if p > 0 and p not in nameless and not are_decimals(found[p], table.decimal)
    ]
    if may_share_numbers:
        nameless = {place for place in nameless if are_counted(found[place], in_order=False)}
    counted = {place for place in {0} & found.keys() if are_counted(found[place])}
    if any(table.strength(p) == CERTAIN or are_names(found[p]) for p in others):
        numbers = nameless | counted
    else:
        numbers = counted if any(map(table.strength, others)) else set()
    return {place: fields for place, fields in found.items() if place not in numbers}


def _has_only_numbers(one: Candidates, unique: Mapping[int, Sequence[str]]) -> bool:
    """Return whether whole numbers without a name, which do not count the rows, are all that may be ids."""
    table, _ = one
    may_be = [place for place in unique if table.strength(place) or not are_whole(unique[place])]
    return bool(may_be) and all(
        table.may_number_rows(place)
        and are_whole(unique[place])
        and not are_counted(unique[place], in_order=False)
        for place in may_be
    )


def are_counted(texts: Sequence[str], *, in_order: bool = True) -> bool:
    """Return whether texts are the numbers of rows, from 0 or 1."""
    if len(texts) != 1 and str(len(texts) - 1) not in texts:  # told without a second list
        return False
    numbers = (list(map(str, range(first, first + len(texts)))) for first in (0, 1))
    return any(list(texts) == own or (not in_order and {*texts} == {*own}) for own in numbers)


def numbers_rows(table: Table, place: int, texts: Sequence[str]) -> bool:
    """Return whether a column has nothing but numbers of rows, by its name, or as its name does not say otherwise."""
    if table.may_number_rows(place):
        return are_whole(texts)
    return not table.strength(place) and are_counted(texts, in_order=False)


def _shared(
    tables: Sequence[Candidates], unique: Sequence[Mapping[int, Sequence[str]]]
) -> dict[int, IdColumn]:
    """Columns that several tables share by name and values, or by place and values.

    Half of the values are enough, but not for a second column under names that differ, where small numbers of a
    feature may be the same by chance.
    """
    holders: dict[str | None, list[tuple[int, int]]] = defaultdict(list)  # None: the first columns
    for index, ((table, may_be), columns) in enumerate(zip(tables, unique, strict=True)):
        first, *others = sorted(may_be) or [0]
        is_counted = first in may_be and numbers_rows(table, first, may_be[first])
        leading = (first, *others[: 1 if is_counted else 0])
        for position, texts in columns.items() if told_ids(table) is None else ():
            stands_out = not (are_whole(texts) and table.has_many_keys)
            name = table.name(position)
            if name is not None and (stands_out or table.strength(position)):
                holders[name].append((index, position))
            if position in leading and stands_out:
                holders[None].append((index, position))

    def rank(name: str | None) -> tuple[bool, int, bool, int, int]:
        held = [(*tables[index], place) for index, place in holders[name]]
        strength = min(table.strength(place) for table, _, place in held)
        number_rows = all(numbers_rows(table, place, texts[place]) for table, texts, place in held)
        first = min(place for _, _, place in held)
        return (
            not number_rows,
            len({index for index, _ in holders[name]}),
            name is not None,
            strength,
            -first,
        )

    found: dict[int, IdColumn] = {}
    for name in sorted(holders, key=rank, reverse=True):
        free = [(index, place) for index, place in holders[name] if index not in found]
        free.sort(key=lambda one: numbers_rows(tables[one[0]][0], one[1], unique[one[0]][one[1]]))
        values = [{_plain(text) for text in unique[index][place]} for index, place in free]
        second = {one for one in free if name is None and one[1] > min(tables[one[0]][1])}
        for one, own in zip(free, values, strict=True):
            alike = [
                other[0]
                for other, others in zip(free, values, strict=True)
                if other[0] != one[0]
                and len(own & others)
                >= (1 if second & {one, other} else 0.5) * min(len(own), len(others))
            ]
            if alike and one[0] not in found:
                found[one[0]] = IdColumn(one[1], f"as in {tables[alike[0]][0].where}")
    return found


def _plain(text: str) -> str:
    return str(int(float(text))) if _is_whole(text) else text.casefold()


def _id_column(
    table: Table,
    may_be: Mapping[int, Sequence[str]],
    unique: Mapping[int, Sequence[str]],
    *,
    is_repeated: bool,
) -> IdColumn | None:
    """The column of the sample ids of one table; the first column of another may have the same name."""
    strength, first = table.strength, min(may_be, default=0)
    decimals = {p for p, texts in may_be.items() if are_decimals(texts, table.decimal)}
    names = [
        place
        for place, texts in unique.items()
        if are_names(texts, with_numbers=place == first) and len(texts) > 1
    ]
    named = [
        place
        for place, texts in unique.items()
        if (strength(place) == CERTAIN and place not in decimals)
        or (strength(place) and (place in names or (are_whole(texts) and len(texts) >= _FEW)))
    ]
    if named:
        return IdColumn(min(named, key=lambda p: (-strength(p), p)), "by its name")
    if names:
        return IdColumn(min(names), "text that differs in every row")
    # decimals in front; repeated or missing ids, which are refused
    for place, texts in may_be.items():
        if place > 0 and place in decimals:
            continue
        known = [text for text in texts if text.lower() not in MISSING]
        is_text = place == 0 and are_names(known, with_numbers=True)
        mostly_differ = 2 * len(set(texts)) > len(texts)
        if (is_text and mostly_differ) or strength(place) == CERTAIN:
            return IdColumn(place, "by its name" if strength(place) else "text")
    if first not in unique or first > 0 or not are_whole(unique[first]):
        return None
    # unique whole numbers under a name that tells nothing
    numbers = [int(float(text)) for text in unique[0]]
    if are_counted([str(number) for number in numbers]) and len(numbers) >= _FEW:
        return IdColumn(0, "consecutive whole numbers")
    if table.has_many_keys or (len(numbers) < _FEW and not (is_repeated and table.name(0))):
        return None
    raise _unclear(table)


def _unclear(table: Table) -> DataError:
    name = table.columns[0]
    by, option = (repr(name), shlex.quote(name)) if table.has_header else ("0", "0")
    return DataError(
        f"{table.where}: the first column, {name!r}, has whole numbers that differ in every row, which may be "
        f"sample ids or a feature. Set id_column={by} (--id-column {option}) or "
        "id_column=False (--id-column none)."
    )
