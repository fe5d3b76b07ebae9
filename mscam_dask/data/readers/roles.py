"""Roles of the columns of tables: which one has the sample ids, decided once for all tables together."""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mscam_dask.errors import DataError

MISSING = (
    *("", "na", "n/a", "nan", "null", "none", "#n/a", "#na", "<na>", "-nan", "nat"),
    *("#n/a n/a", "1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan"),
)
"""Fields, in any case, that stand for a missing value; pandas knows them too."""

# An id by its name: certainly; of a family; maybe.
_CERTAIN, _FAMILY, _MAYBE = 3, 2, 1

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
# patient_id, PatientID, user.id; not acid, GRID
_ENDS_IN_ID = re.compile(r"(?i:(?:^|[\W_])ids?$)|[a-z0-9]I[Dd]s?$")

_WHOLE = re.compile(r"[-+]?\d+(\.0*)?", re.ASCII)
_POWER = re.compile(r"[-+]?\d{1,4}(\.\d{1,6})?[eE]\+?\d{1,2}", re.ASCII)  # R and Excel write 1e+05
# 1_000, 1+2j, 12-34, $5.10, 5.1 mg
_AMOUNT = re.compile(r"[-+\d.,_ eEjJ%]+$|\W*\d+[.,\s]\d|[\W\d_]+$")
_NAME = re.compile(r"(?![-+]?[\d.,]*[.,][\d.,]*([eE][-+]?\d+)?$)(.*[^\W_].*)", re.DOTALL)
_FEW = 5  # rows in which numbers may differ, or count the rows, by chance


def id_strength(name: str) -> int:
    """How surely a column of this name has ids: 0 to 3."""
    plain = re.sub(r"[\W_]+", "", name).lower()
    if _CERTAIN_NAME.fullmatch(plain):
        return _CERTAIN
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


def are_unique(texts: Sequence[str]) -> bool:
    """Return whether no text is missing or repeated."""
    return len(set(texts)) == len(texts) and not any(text.lower() in MISSING for text in set(texts))


@dataclass(frozen=True)
class IdColumn:
    """Position of the column with the sample ids, and why it is."""

    position: int
    reason: str


@dataclass(frozen=True, eq=False)
class Candidates:
    """Columns of a table, as text by position, that may have its sample ids.

    `others_are_like` says that at least half of the other columns with numbers have whole numbers that differ
    too; `told` is what the user, or the format, says.
    """

    where: str
    names: Sequence[str] | None
    texts: Mapping[int, Sequence[str]]
    others_are_like: bool
    told: IdColumn | None = None

    def name(self, position: int) -> str:
        return f"column {position}" if self.names is None else self.names[position]

    @property
    def first_name(self) -> str | None:
        return None if self.names is None or 0 not in self.texts else self.names[0].strip().lower()

    def strength(self, position: int) -> int:
        return 0 if self.names is None else id_strength(self.names[position])


def id_columns(tables: Sequence[Candidates]) -> list[IdColumn | None]:
    """Return the column of the sample ids of each table, None for one without ids.

    In this order: what is told; a column of unique text or whole numbers whose name, or place at the
    front, several tables share beside half of the values; one that is called as ids are; the first one of
    unique text; a first column of consecutive whole numbers. Other unique whole numbers there are an error.
    """
    unique = [_unique(table) for table in tables]
    shared = _shared(tables, unique)
    firsts = Counter(table.first_name for table in tables)
    found = [
        table.told
        or shared.get(index)
        or _id_column(table, unique[index], is_repeated=firsts[table.first_name] > 1)
        for index, table in enumerate(tables)
    ]
    names_of_ids = {
        table.name(ids.position).strip().lower()
        for table, ids in zip(tables, found, strict=True)
        if ids is not None and table.names is not None
    }
    for table, ids, columns in zip(tables, found, unique, strict=True):
        if ids is None and table.first_name in names_of_ids and are_whole(columns.get(0, ["x"])):
            raise _unclear(table)
    return found


def _unique(table: Candidates) -> dict[int, Sequence[str]]:
    """Columns of unique texts; row numbers at the front only if no other column has ids."""
    found = {position: texts for position, texts in table.texts.items() if are_unique(texts)}
    others = [p for p, texts in found.items() if p > 0 and (table.strength(p) or are_names(texts))]
    if 0 in found and others and _are_counted(found[0]):
        del found[0]
    return found


def _are_counted(texts: Sequence[str]) -> bool:
    """Return whether texts are the numbers of rows, from 0 or 1."""
    return texts[0] in ("0", "1") and list(texts) == [
        str(number) for number in range(int(texts[0]), int(texts[0]) + len(texts))
    ]


def _shared(
    tables: Sequence[Candidates], unique: Sequence[Mapping[int, Sequence[str]]]
) -> dict[int, IdColumn]:
    """Columns that several tables share by name and values, or by place and values."""
    holders: dict[tuple[bool, str], list[tuple[int, int]]] = defaultdict(list)
    for index, (table, columns) in enumerate(zip(tables, unique, strict=True)):
        if table.told is not None:
            continue
        for position, texts in columns.items():
            stands_out = not (are_whole(texts) and table.others_are_like)
            if table.names is not None and (stands_out or table.strength(position)):
                holders[True, table.names[position].strip().lower()].append((index, position))
            if position == min(table.texts) and stands_out:
                holders[False, "the first column"].append((index, position))

    def rank(key: tuple[bool, str]) -> tuple[int, bool, int, int]:
        strength = min(tables[index].strength(position) for index, position in holders[key])
        return len(holders[key]), key[0], strength, -min(place for _, place in holders[key])

    found: dict[int, IdColumn] = {}
    for key in sorted(holders, key=rank, reverse=True):
        free = [(index, place) for index, place in holders[key] if index not in found]
        values = {index: {_plain(text) for text in unique[index][place]} for index, place in free}
        for index, place in free:
            alike = [
                other
                for other, others in values.items()
                if other != index
                and 2 * len(values[index] & others) >= min(len(values[index]), len(others))
            ]
            if alike:
                found[index] = IdColumn(place, f"as in {tables[alike[0]].where}")
    return found


def _plain(text: str) -> str:
    return str(int(float(text))) if _is_whole(text) else text.casefold()


def _id_column(
    table: Candidates, unique: Mapping[int, Sequence[str]], *, is_repeated: bool
) -> IdColumn | None:
    """The column of the sample ids of one table; the first column of another may have the same name."""
    first = min(table.texts, default=0)
    names = [
        place
        for place, texts in unique.items()
        if are_names(texts, with_numbers=place == first) and len(texts) > 1
    ]
    named = [
        place
        for place, texts in unique.items()
        if table.strength(place) == _CERTAIN
        or (table.strength(place) and (place in names or (are_whole(texts) and len(texts) >= _FEW)))
    ]
    if named or names:
        best = min(named or names, key=lambda p: (-table.strength(p) * bool(named), p))
        return IdColumn(best, "by its name" if named else "text that differs in every row")
    for place, texts in table.texts.items():  # repeated or missing ids, which are refused
        known = [text for text in texts if text.lower() not in MISSING]
        is_text = place == 0 and are_names(known, with_numbers=True)
        mostly_differ = 2 * len(set(texts)) > len(texts)
        if (is_text and mostly_differ) or table.strength(place) == _CERTAIN:
            return IdColumn(place, "by its name" if table.strength(place) else "text")
    if first not in unique or first > 0 or not are_whole(unique[first]):
        return None
    # unique whole numbers under a name that tells nothing
    numbers = [int(float(text)) for text in unique[0]]
    if _are_counted([str(number) for number in numbers]) and len(numbers) >= _FEW:
        return IdColumn(0, "consecutive whole numbers")
    if table.others_are_like or (len(numbers) < _FEW and not (is_repeated and table.first_name)):
        return None
    raise _unclear(table)


def _unclear(table: Candidates) -> DataError:
    name = table.name(0)
    by, option = ("0", "0") if table.names is None else (repr(name), shlex.quote(name))
    return DataError(
        f"{table.where}: the first column, {name!r}, has whole numbers that differ in every row, which may be "
        f"sample ids or a feature. Set id_column={by} (--id-column {option}) or "
        "id_column=False (--id-column none)."
    )
