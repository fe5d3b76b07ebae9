"""Tables, their rows, and which columns of tables and vectors of archives have the sample ids: decided once for all together."""

from __future__ import annotations

import itertools
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.base import Source, SourceContents
from mscam_dask.data.readers.fields import (
    TRUTH,
    Column,
    are_counted,
    are_measured,
    are_names,
    are_rising,
    is_missing,
    is_number,
    number_of,
)
from mscam_dask.data.views.conversion import CERTAIN, label_rank, rows_of
from mscam_dask.data.views.sample_ids import places_of
from mscam_dask.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    import pandas as pd

TWIN = re.compile(r"[._](\d+|[xy])$")  # which pandas adds to a name that is there twice
_SHOWN_CHARS = 60  # of a cell in a message
_FEW = 5  # rows in which numbers may differ, or count the rows, by chance

Block = tuple[Mapping[int, Sequence[str]] | Sequence[Sequence[str]], NDArray[np.float64] | None]
"""Columns of some rows as text, by position, and those of numbers (rows, columns) if they are known."""


@dataclass(frozen=True)
class IdColumn:
    """Position of the column with the sample ids, and why it is."""

    position: int
    reason: str


@dataclass(frozen=True, eq=False)
class Table:
    """A table: names of its columns, its first rows (`head`), and by `blocks` columns of text and those of numbers.

    `where` names it in messages, `view` is the name of its view; `id_position` is a column that the format says
    has the ids of the rows; `left_out` are columns that are no features by the format, and why; `frame` has the
    columns by position where they have types.
    """

    source: Source
    where: str
    view: str
    columns: tuple[str, ...]
    head: list[list[str]]
    blocks: Callable[[Sequence[int], Sequence[int]], Iterator[Block]]
    has_header: bool = True
    samples_in: Literal["rows", "columns"] = "rows"
    id_position: int | None = None
    left_out: Mapping[int, str] = field(default_factory=dict)
    form: str = ""
    notes: tuple[str, ...] = ()
    decimal: str = "."
    is_by_blanks: bool = False
    frame: pd.DataFrame | None = None

    def column(self, position: int, texts: Sequence[str]) -> Column:
        """A column with some of its fields."""
        return Column(texts, self.columns[position] if self.has_header else None, self.decimal)

    def head_of(self, position: int) -> Column:
        """A column with its first fields; not kept, for a table may have very many."""
        return self.column(
            position, [row[position] if position < len(row) else "" for row in self.head]
        )

    def names_of(self, positions: Sequence[int]) -> tuple[str, ...] | None:
        """Names of columns, None without a header."""
        return tuple(self.columns[place] for place in positions) if self.has_header else None

    @cached_property
    def told_ids(self) -> IdColumn | None:
        """Column of the ids that the user or the format tells."""
        wanted, columns = self.source.id_column, self.columns
        if wanted is False or (wanted is None and self.id_position is None):
            return None
        if wanted is None:
            return IdColumn(int(self.id_position or 0), "row names")
        place = columns.index(wanted) if wanted in columns else wanted
        if isinstance(place, str) or not 0 <= place < len(columns) or wanted is True:
            raise ConfigurationError(
                f"id_column={wanted!r} is not in {self.where}, whose columns 0 to {len(columns) - 1} are "
                f"{list(columns[:10])}{' ...' if len(columns) > 10 else ''}. Name one of them, or none "
                "(id_column=False, --id-column none)."
            )
        return IdColumn(place, "told")


class TableRows:
    """Rows of a table: columns of text, and of numbers side by side (`values`); a column may be both."""

    def __init__(self, table: Table, texts: Iterable[int], numbers: Sequence[int]) -> None:
        found: dict[int, list[str]] = {place: [] for place in sorted(texts)}
        self.numbers = [*numbers]
        # Fields of a column that are no numbers, by row.
        self.bad: dict[int, dict[int, str]] = {}
        self.values: NDArray[Any] = np.empty((0, len(numbers)))
        self._decimal, frame = table.decimal, table.frame
        if frame is not None and all(frame[p].dtype.kind in "biuf" for p in numbers):
            view: Any = rows_of(frame[self.numbers], name=table.view)
            self.values, numbers = view.array, []
        for columns, values in table.blocks([*found], numbers):
            for place, fields in found.items():
                fields += [text.strip() for text in columns[place]]
            if numbers:
                start = len(self.values)
                block = values
                if block is None:
                    together = itertools.chain.from_iterable(columns[place] for place in numbers)
                    joined = _plain_numbers([*together], self._decimal)
                    if joined is None:
                        joined = np.concatenate(
                            [self.floats(place, columns[place], start) for place in numbers]
                        )
                    block = joined.reshape(len(numbers), -1).T
                # where it is, without a second copy
                self.values.resize((start + len(block), len(numbers)), refcheck=False)
                self.values[start:] = block
        self.texts = {place: table.column(place, fields) for place, fields in found.items()}

    def floats(self, place: int, fields: Sequence[str], start: int = 0) -> NDArray[np.float64]:
        """Numbers of a column of text; those that are none are NaN, and remembered."""
        if (numbers := _plain_numbers(fields, self._decimal)) is not None:
            return numbers
        texts = [text.strip() for text in fields]
        known = [row for row, text in enumerate(texts) if not is_missing(text)]
        if {texts[row].lower() for row in known} <= TRUTH.keys():
            texts = [TRUTH.get(text.lower(), text) for text in texts]
        found = np.full(len(texts), np.nan)
        if (numbers := _plain_numbers([texts[row] for row in known], self._decimal)) is not None:
            found[known] = numbers
            return found
        for row in known:
            if is_number(texts[row], self._decimal):
                found[row] = number_of(texts[row], self._decimal)
            else:
                self.bad.setdefault(place, {})[start + row] = texts[row]
        return found


def _plain_numbers(fields: Sequence[str], decimal: str) -> NDArray[np.float64] | None:
    """Numbers, if all are written with digits, signs, exponents and this decimal mark."""
    if "".join(fields).encode().translate(None, b"0123456789+-eE " + decimal.encode()):
        return None
    try:
        texts = fields if decimal == "." else [text.replace(decimal, ".") for text in fields]
        return np.fromiter(map(float, texts), np.float64, len(fields))
    except ValueError:
        return None


def values_of(table: Table, rows: TableRows, features: Sequence[int]) -> NDArray[Any]:
    """Numbers of the features, (rows, features)."""
    names = table.columns
    for place in set(features) - set(rows.numbers):  # whose first fields are text
        rows.floats(place, rows.texts[place].texts)
    bad = {place: own for place in features if (own := rows.bad.get(place))}
    if bad:
        place = min(bad, key=lambda place: (min(bad[place]), place))
        row = min(bad[place])
        text = bad[place][row]
        remedy = (
            "Close the quote in front of it."
            if "\n" in text
            else "Remove these rows if they are units or further headings, or the lines above them if they have the names of columns "
            f"(--skip); write one number in a cell, with the decimal mark {table.decimal!r} (--decimal), without units or separators of "
            "thousands: 1000.5; numbers for categories, dates as days, and NA for missing cells; drop these columns, or name them "
            "if they have ids or labels (--id-column, --labels)."
        )
        raise DataError(
            f"{table.where}: column {names[place]!r} has {len(bad[place])} value(s) that are not numbers, the "
            f"first {text[:_SHOWN_CHARS]!r} in row {row} (counted from 0 below the header); {len(bad)} column(s) have such "
            f"values. {remedy}"
        )
    if not features:
        raise DataError(
            f"{table.where} has no column beside ids and labels, in {list(names[:6])}; a view has at least one. Choose the "
            "others with views=[...] (--view NAME, [data] views), or tell the delimiter (--delimiter) if these are several."
        )
    if not len(rows.values):
        raise DataError(f"{table.where} has a header and no line below; it needs one per sample.")
    slots = np.flatnonzero(np.isin(rows.numbers, features))
    if slots[-1] - slots[0] == len(slots) - 1:  # no copy
        return rows.values[:, slots[0] : slots[-1] + 1]
    return rows.values[:, slots]


# ids --------------------------------------------------------------------------------------------

Columns = Mapping[int, Column]
"""Columns of a table, or vectors of an archive, by position."""


@dataclass(frozen=True)
class MayBeIds:
    """Columns of a source that may have its sample ids; `told` has them, `otherwise` is taken unless another source decides.

    Those in front of a table may be shared under any name, and all vectors of an archive.
    """

    where: str
    columns: Columns
    told: IdColumn | None = None
    is_table: bool = True
    otherwise: IdColumn | None = None

    @classmethod
    def of_table(cls, table: Table, columns: Columns) -> MayBeIds:
        """Columns of a table but for labels and those that its format leaves out."""
        may_be = {
            place: column
            for place, column in (columns.items() if table.source.id_column is not False else ())
            if place not in table.left_out
            and (not label_rank(table.columns[place]) or column.tells_rows_apart)
        }
        return cls(table.where, may_be, table.told_ids)

    @classmethod
    def of_archive(cls, archive: SourceContents) -> MayBeIds:
        """The ids of an archive, or else its vectors that may be these."""
        own, vectors = archive.sample_ids, archive.may_be_ids
        if own is not None and not vectors:
            return cls(archive.where, {0: Column(own)}, IdColumn(0, "ids"), is_table=False)
        columns = {place: Column(vectors[name], name) for place, name in enumerate(vectors)}
        otherwise = None if own is None else IdColumn([*vectors.values()].index(own), "text")
        return cls(archive.where, columns, is_table=False, otherwise=otherwise)

    @property
    def leading(self) -> list[int]:
        """Positions of columns that may be shared under any name."""
        return sorted(self.columns)[: 1 if self.is_table else None]


def id_columns(sources: Sequence[MayBeIds]) -> list[IdColumn | None]:
    """Return which column of each source has the sample ids, None for a source without ids.

    In this order: what is told; a column of unique text or whole numbers whose name, or place at the
    front, several sources share beside half of the values; of tables, one that is called as ids are; the first one of
    unique text; a first column of consecutive whole numbers. Other unique whole numbers there are an error.
    """
    unique = [_unique(source.columns) for source in sources]
    shared = _shared(sources, unique)
    firsts = Counter(s.columns[0].key for s in sources if s.is_table and 0 in s.columns)
    found = [
        source.told
        or shared.get(index)
        or (_id_column(source, unique[index], firsts) if source.is_table else None)
        for index, source in enumerate(sources)
    ]
    surest = [key or source.otherwise for source, key in zip(sources, found, strict=True)]
    known = [
        (source, source.columns[key.position])
        for source, key in zip(sources, surest, strict=True)
        if key is not None and key.position in source.columns
    ]
    found = [
        key or _ids_of_others(source, [one for one in known if one[0] is not source]) or otherwise
        for source, key, otherwise in zip(sources, found, surest, strict=True)
    ]
    _check_row_numbers(sources, found)
    _check_agreement(sources, found)
    return found


def with_ids(archive: SourceContents, ids: IdColumn | None) -> SourceContents:
    """An archive with one of its vectors as ids."""
    names = [*archive.may_be_ids]
    if not names:
        return archive
    if ids is None:
        note, texts = f"left out {names}, which may be sample ids.", None
    else:
        taken = names.pop(ids.position)
        texts = archive.may_be_ids[taken]
        note = f"{taken!r} taken as sample ids ({ids.reason})."
        note += f" Left out {names}." if names else ""
    return replace(archive, sample_ids=texts, notes=(*archive.notes, f"{archive.where}: {note}"))


def _ids_of_others(source: MayBeIds, known: Sequence[tuple[MayBeIds, Column]]) -> IdColumn | None:
    """The column with half of the ids of another source, under their name or in front; those missing or repeated are refused later."""
    for (other, ids), (place, column) in itertools.product(known, source.columns.items()):
        is_first = place in source.leading and column.mostly_differs
        is_first &= not (ids.counts_rows and source.is_table)
        are_named = column.key is not None and column.key == ids.key
        if is_first or are_named:
            own, theirs = {*column.spellings}, {*ids.spellings}
            n_least = min(len(own), len(theirs)) if column.mostly_differs else len(theirs)
            n_least *= 2 if ids.counts_rows and not are_named else 1  # all of them
            if 2 * len(own & theirs) >= n_least:
                return IdColumn(place, f"as in {other.where}")
    return None


def _check_row_numbers(sources: Sequence[MayBeIds], found: Sequence[IdColumn | None]) -> None:
    """Refuse row numbers beside ids of another file that are not among them, or row numbers that begin elsewhere."""
    ids = {
        source.where: source.columns[key.position]
        for source, key in zip(sources, found, strict=True)
        if key and (source.told is None or not source.is_table)
    }
    numbered = [w for w, own in ids.items() if own.may_number_rows and are_counted(own.texts)]
    if not numbered or any(source.is_table and source.where not in ids for source in sources):
        return
    for where, other in ids.items():
        own, others = {*ids[numbered[0]].texts}, {*other.texts}
        if not (own >= others or (where in numbered and own <= others)):
            raise DataError(
                f"{numbered[0]} numbers its rows ({list(ids[numbered[0]].texts[:2])}, ...), and {where} has other ids ({list(other.texts[:2])}, ...). "
                f"Give {numbered[0]} a column of these ids, or set id_column=False (--id-column none) if row i is the same sample "
                "in all, or id_column=0 (--id-column 0) if each number is."
            )


def _check_agreement(sources: Sequence[MayBeIds], found: Sequence[IdColumn | None]) -> None:
    """Refuse tables whose samples another column that they share matches in another way, and as surely as the ids."""
    matched = [
        (source, source.columns[ids.position])
        for source, ids in zip(sources, found, strict=True)
        if ids and ids.reason != "told"
    ]
    for (one, ids), (other, other_ids) in itertools.combinations(matched, 2):
        for column, same in itertools.product(one.columns.values(), other.columns.values()):
            if _match_otherwise((column, same), (ids, other_ids)):
                taken, rival = (other_ids, same) if column is ids else (ids, column)
                raise DataError(
                    f"{one.where} and {other.where}: columns {taken.name!r} and {rival.name!r} match the samples in different "
                    f"ways. Drop one of them, or set id_column={taken.name!r} or id_column={rival.name!r} (--id-column), the one that is "
                    "in all files, or its position (0, 1, ...) where it has no name."
                )


def _match_otherwise(columns: tuple[Column, Column], ids: tuple[Column, Column]) -> bool:
    """Return whether columns of two tables match the samples in another way than the ids, and as surely.

    If one of them is the ids of its table, the other may be a second key with the same values, unless the ids have the same name.
    """
    rivals = [column for column, own in zip(columns, ids, strict=True) if column is not own]
    has_ids = len(rivals) == 1
    are_named = columns[0].key is not None and columns[0].key == columns[1].key
    if not rivals or not (are_named or all(column.is_unique for column in columns)):
        return False
    if has_ids and not are_named and ids[0].key is not None and ids[0].key == ids[1].key:
        return False
    if _are_surer(rivals if has_ids else ids, rivals, are_named=are_named and has_ids):
        return False
    places, by_ids = (places_of(two.spellings, one.spellings) for one, two in (columns, ids))
    n_shared, n_ids = np.count_nonzero(places >= 0), np.count_nonzero(by_ids >= 0)
    # a few small numbers may be the same by chance
    least = 1.0 if has_ids and not are_named else 0.5
    is_shared = n_shared >= least * min(len(column.texts) for column in columns)
    differs = ((by_ids != places) & (places >= 0)).any()
    return bool(is_shared and 2 * n_ids >= n_shared and differs)


def _are_surer(ids: Sequence[Column], others: Sequence[Column], *, are_named: bool) -> bool:
    """Return whether columns are ids more surely than others, which have no or weaker names of ids, or number the rows.

    `are_named` says that the others have the same name as the ids of a table.
    """
    own, other = (
        max(0 if column.may_number_rows else column.strength for column in columns)
        for columns in (ids, others)
    )
    if all(column.may_number_rows and column.is_key for column in (*ids, *others)):
        return False  # one was written before rows moved or went
    return own > other or any(
        (not column.is_unique and not are_named)
        or column.has_decimals
        or (column.numbers_rows and (column.counts_rows or are_rising(column.texts)))
        for column in others
    )


def check_order(where: str, ids: Column, other: Column) -> None:
    """Refuse a second column under the name of the sample ids, maybe numbered, that has them in another order."""
    own, name = (TWIN.sub("", column.key or "") for column in (ids, other))
    is_other = own == name and other.texts != ids.texts
    if other.key and is_other and 2 * len({*other.texts} & {*ids.texts}) > len(other.texts):
        raise DataError(
            f"{where}: columns {ids.name!r} and {other.name!r} have the same sample ids in different orders, as two tables side by "
            "side have. Write each to a file or sheet of its own, or drop one of the columns."
        )


def _unique(columns: Columns) -> dict[int, Column]:
    """Columns of unique texts; row numbers only if no other column has ids."""
    found = {place: column for place, column in columns.items() if column.is_unique}
    nameless = {p for p, column in columns.items() if column.may_number_rows and column.is_whole}
    others = [
        column
        for place, column in columns.items()
        if place not in nameless and not column.has_decimals
        if (place > 0 if place in found else column.strength == CERTAIN)
    ]
    # a first column 1, 2, 3 that is called patient_id yields to ids alone, not to any text
    is_sure = 0 in found and found[0].strength == CERTAIN and not found[0].may_number_rows
    has_ids = any(
        column.strength == CERTAIN or (are_names(column.texts) and (column.strength or not is_sure))
        for column in others
    )
    numbers = {*nameless} if has_ids else set[int]()
    is_counted = 0 in found and are_counted(found[0].texts)
    if is_counted and (has_ids or any(column.strength for column in others)):
        numbers.add(0)
    return {place: column for place, column in found.items() if place not in numbers}


def _shared(sources: Sequence[MayBeIds], unique: Sequence[Columns]) -> dict[int, IdColumn]:
    """Columns that several sources share by values, and by name, by place or since all are called as ids are.

    Half of the values are enough, but not for a second column under names that differ, where small numbers of a
    feature may be the same by chance.
    """
    holders = _holders(sources, unique)

    def rank(name: str | int | None) -> tuple[bool, int, int, bool, bool, int]:
        held = [unique[index][place] for index, place in holders[name]]
        number_rows = [column.numbers_rows for column in held]
        return (
            not all(number_rows),
            len({index for index, _ in holders[name]}),
            min(column.strength for column in held),
            name is None and not any(number_rows),
            isinstance(name, str),
            -min(place for _, place in holders[name]),
        )

    found: dict[int, IdColumn] = {}
    for name in sorted(holders, key=rank, reverse=True):
        free = [
            (index, place)
            for index, place in holders[name]
            if index not in found or found[index].position == place
        ]
        free.sort(key=lambda one: unique[one[0]][one[1]].numbers_rows)
        second = {one for one in free if name is None and one[1] not in sources[one[0]].leading}
        values = [{*unique[index][place].spellings} for index, place in free]
        pairs = itertools.permutations(zip(free, values, strict=True), 2)
        for (one, mine), (other, theirs) in pairs:
            if other[0] == one[0] or one[0] in found:
                continue
            least = 1 if second & {one, other} else 0.5
            if len(mine & theirs) >= least * min(len(mine), len(theirs)):
                found[one[0]] = IdColumn(one[1], f"as in {sources[other[0]].where}")
    return found


def _holders(
    sources: Sequence[MayBeIds], unique: Sequence[Columns]
) -> dict[str | int | None, list[tuple[int, int]]]:
    """Sources and positions of columns of one name; under None those in front, under CERTAIN those called as ids are."""
    holders: dict[str | int | None, list[tuple[int, int]]] = defaultdict(list)
    for index, (source, columns) in enumerate(zip(sources, unique, strict=True)):
        leading, others = source.leading, sorted(source.columns)[1:]
        if leading and source.columns[leading[0]].numbers_rows:
            leading += others[:1]
        for position, column in columns.items():
            if source.told is not None and position != source.told.position:
                continue
            stands_out = column.may_number_rows or not column.counts_rows  # ranks
            if column.key is not None and (stands_out or column.strength):
                holders[column.key].append((index, position))
            if position in leading and stands_out:
                holders[None].append((index, position))
            if column.strength and not (column.may_number_rows or column.counts_rows):
                holders[CERTAIN].append((index, position))
    return holders


def _id_column(
    source: MayBeIds, unique: Columns, firsts: Mapping[str | None, int]
) -> IdColumn | None:
    """The column of the sample ids of one table; `firsts` are the names of first columns of all, and how many have each."""
    first = min(source.columns, default=0)
    names = [
        place
        for place, column in unique.items()
        if len(column.texts) > 1
        and are_names(column.texts, with_numbers=place == first and not are_measured(column.texts))
    ]
    named = {
        place: column.strength
        for place, column in unique.items()
        if (column.strength == CERTAIN and not column.has_decimals)
        or (column.strength and (place in names or (column.is_whole and len(column.texts) >= _FEW)))
    }
    if named:
        return IdColumn(min(named, key=lambda p: (-named[p], p)), "by its name")
    if names:
        return IdColumn(min(names), "text that differs in every row")
    # decimals in front; repeated or missing ids, which are refused
    for place, column in source.columns.items():
        if (place > 0 and column.has_decimals) or (column.is_unique and place not in unique):
            continue
        known = [text for text in column.texts if not is_missing(text)]
        is_named = column.strength == CERTAIN
        if are_measured(known) and not (is_named and column.name):
            continue
        is_text = place == 0 and are_names(known, with_numbers=True)
        if (is_text and column.mostly_differs) or is_named:
            return IdColumn(place, "by its name" if column.strength else "text")
    if first not in unique or first > 0 or not unique[first].is_whole:
        return None
    # unique whole numbers under a name that tells nothing
    is_short = len(unique[0].texts) < _FEW
    if are_counted(unique[0].spellings) and not is_short:
        return IdColumn(0, "consecutive whole numbers")
    name = unique[0].name
    if is_short and not (name and firsts[unique[0].key] > 1):
        return None
    by, option = ("0", "0") if name is None else (repr(name), shlex.quote(name))
    raise DataError(
        f"{source.where}: the first column, {name or 'column 0'!r}, has whole numbers that differ in every row, which may be "
        f"sample ids or a feature. Set id_column={by} (--id-column {option}) or "
        "id_column=False (--id-column none)."
    )
