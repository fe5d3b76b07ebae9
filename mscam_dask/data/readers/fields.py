"""Fields of tables: numbers, missing values and ids, what the fields of a column have in common, and notes on its values."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.conversion import id_strength
from mscam_dask.data.views.sample_ids import MISSING
from mscam_dask.data.views.sources import listed
from mscam_dask.errors import DataError

_OF_STATA = re.compile(r"\.[a-zA-Z_]")  # and SAS, for several reasons
_MINUS = "\u2212"  # of typeset tables

TRUTH = {"true": "1", "false": "0"}
"""Numbers of truth values, which pandas and R write in any case."""

_OF_ROW_NUMBERS = re.compile(  # pandas adds _x and _y to names that merged frames share
    r"((unnamed\d*|index|(index)?level0|row|rowid|rownumber|key0)[xy]?)?", re.IGNORECASE
)

_NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|inf(inity)?)", re.I | re.A)
_WHOLE = re.compile(r"[-+]?\d+(\.0*)?", re.ASCII)
_PADDED = re.compile(r"0\d", re.ASCII)
_POWER = re.compile(r"[-+]?\d{1,4}(\.\d{1,6})?[eE]\+?\d{1,2}", re.ASCII)  # R and Excel write 1e+05
_MONTH = "(jan|feb|mar|apr|ma[iy]|jun|jul|aug|sep|o[ck]t|nov|de[cz])[a-z]*"
_AMOUNT = re.compile(
    r"[-+\d.,_ eEjJ%()/]+$|\W*\d+[.,\s]\d|[\W\d_]+$|"  # 1_000, (1+2j), 12-34, $5.10, 5.1 mg
    r"[A-Za-z]{0,3}\s?[$€£¥]|[A-Z]{3}\s[\d']+[.,]\d|"  # R$ 5, CHF 1'000.50
    r"(AUD|BRL|CAD|CHF|CNY|DKK|EUR|GBP|INR|JPY|NOK|PLN|SEK|USD)\s?\d|\w{1,3}\s?=|"  # EUR 5, n=5
    rf"(?i:\d{{1,2}}[-./ ]?{_MONTH}[-./, ]*\d{{2,4}}\b|{_MONTH}[. ]+\d{{1,2}},? \d{{4}})|"  # 01JAN2015, Jan 5, 2015
    r"(np\.float\d\d|tensor)\("  # as Python shows numbers
)
_WITH_UNIT = re.compile(
    r"[-+]?\d[\d.,]*\s?([^\W\d_]{1,7}\d?(?:/[^\W\d_]{1,4}\d?)?)|0x[\da-f]+", re.IGNORECASE
)  # 5mg, 5 years, 0x1a
_UNITS = 3  # of a column, such as K and M
_NAME = re.compile(r"(?![-+]?[\d.,]*[.,][\d.,]*([eE][-+]?\d+)?$)(.*[^\W_].*)", re.DOTALL)
_PRESSURE = re.compile(r"[1-9]\d{1,2}/[1-9]\d{1,2}", re.ASCII)
_RANGE = re.compile(r"(0|[1-9]\d*) ?[-\u2013] ?([1-9]\d*)", re.ASCII)
_KIND_ROWS = 20
_LAST_WHOLE = 2**53 - 1  # above it, several whole numbers are one float
_OF_STATISTICS = re.compile(
    r"\W*(((grand|sub)[ -]?)?(total|sum|mean|average|avg|median|std|stdev|gesamt|summe|mittelwert|moyenne|promedio)s?\b.*|"
    r"(sd|se|sem|var|variance|min|max|minimum|maximum|n|count|range|cv|lo[dq]|[lu]loq|\d+(\.\d+)?%)\W*)",
    re.IGNORECASE,
)
_STATISTICS = ("sum", "mean", "median", "std", "sem", "var", "min", "max", "count")
_ROUNDED = 0.01  # difference, beside the spread, of a sum or mean that is shown with few digits
_SOME, _TOTAL_COLUMNS, _TOTAL_ROWS = 8, 3, 5  # of which no sample has the means by chance
_CLASSES, _SOME_ROWS, _HEAD_ROWS = 20, 64, 32
_MAY_BE_LABELS = re.compile(
    r"(?<![^\W_])(y|label|class|clusters?|target|species|diagnosis|outcome|survived|subtype|category|group|condition|"
    r"(cell|tissue)?_?type|phenotype|status|predict(ed|ion)|batch|site|plate|fold|split|rep(licate)?|lane|run)(?![^\W_])",
    re.IGNORECASE,
)
_RISING = 3  # numbers that hardly rise by chance
_FEW = 5  # rows that differ by chance


def is_number(text: str, decimal: str = ".") -> bool:
    """Return whether a field is a number in decimal notation."""
    if decimal != ".":
        text = "-" if "." in text else text.replace(decimal, ".")
    return _NUMBER.fullmatch(text.replace(_MINUS, "-")) is not None


def number_of(text: str, decimal: str = ".") -> float:
    """Return the number of a field that is one."""
    return float(text.replace(decimal, ".").replace(_MINUS, "-"))


def is_missing(text: str) -> bool:
    """Return whether a field stands for a missing value."""
    return text.lower() in MISSING or _OF_STATA.fullmatch(text) is not None


def is_value(text: str, decimal: str = ".") -> bool:
    """Return whether a field is a number or a truth value, or says that one is missing."""
    return is_number(text, decimal) or is_missing(text) or text.lower() in TRUTH


def is_whole_number(text: str) -> bool:
    """Return whether a field is a whole number, also written as 1000.0 or 1e+05."""
    return _WHOLE.fullmatch(text) is not None or (
        _POWER.fullmatch(text) is not None and float(text).is_integer()
    )


def in_plain_spelling(text: str) -> str:
    """An id in small letters, or a whole number without a point."""
    return str(int(float(text))) if is_whole_number(text) else text.casefold()


def are_whole(texts: Sequence[str]) -> bool:
    """Return whether all are whole numbers."""
    return all(map(is_whole_number, texts))


def are_names(texts: Sequence[str], *, with_numbers: bool = False) -> bool:
    """Return whether all are names, such as P-001, 12-34 and 0012 but not 1,5, 5mg or ?; maybe whole numbers too."""
    if are_whole(texts):
        return are_padded(texts)
    if not with_numbers and texts and _WITH_UNIT.fullmatch(texts[0]):
        units = [*map(_WITH_UNIT.fullmatch, texts)]
        if all(units) and len({unit and unit[1] for unit in units}) <= _UNITS:
            return False
    return all(
        _NAME.fullmatch(text) and (with_numbers or not _AMOUNT.match(text)) for text in texts
    )


def are_measured(texts: Sequence[str]) -> bool:
    """Return whether all are blood pressures, or ranges that do not overlap, such as 0-4 and 5-9."""
    if not texts:
        return False
    if all(map(_PRESSURE.fullmatch, texts)):
        return True
    ranges = {match and (int(match[1]), int(match[2])) for match in map(_RANGE.fullmatch, texts)}
    ends = [*itertools.chain(*sorted(filter(None, ranges)))]
    return None not in ranges and ends == sorted(ends)


def are_padded(texts: Sequence[str]) -> bool:
    """Return whether all are whole numbers, some with zeros in front, as ids have."""
    return any(map(_PADDED.match, texts)) and are_whole(texts)


def are_counted(texts: Sequence[str], *, in_order: bool = True) -> bool:
    """Return whether texts are the numbers of rows, from 0 or 1."""
    if len(texts) != 1 and str(len(texts) - 1) not in texts:  # told without a second list
        return False
    numbers = (list(map(str, range(first, first + len(texts)))) for first in (0, 1))
    return any(list(texts) == own or (not in_order and {*texts} == {*own}) for own in numbers)


def are_rising(texts: Sequence[str], decimal: str = ".") -> bool:
    """Return whether texts are three or more numbers that rise."""
    if len(texts) < _RISING or not all(is_number(text, decimal) for text in texts):
        return False
    return all(
        low < high for low, high in itertools.pairwise(number_of(text, decimal) for text in texts)
    )


def tell_rows_apart(values: Sequence[Any]) -> bool:
    """Return whether all of several values differ, as labels of classes do not."""
    return len(values) >= _FEW and len({*values}) == len(values)


class Column:
    """Fields of a column as stripped text, its name (None without a header), and properties, each computed on first use."""

    def __init__(self, texts: Sequence[str], name: str | None = None, decimal: str = ".") -> None:
        self.texts, self.name, self._decimal = texts, name, decimal

    @property
    def key(self) -> str | None:
        """The name by which files share a column."""
        return None if self.name is None else self.name.strip().lower()

    @cached_property
    def strength(self) -> int:
        """How surely it has ids by its name: 0 to 3."""
        return 0 if self.name is None else id_strength(self.name)

    @cached_property
    def may_number_rows(self) -> bool:
        """Whether it has the name, or none, of row numbers which pandas and R write."""
        plain = None if self.name is None else re.sub(r"[\W_]+", "", self.name)
        return plain is not None and _OF_ROW_NUMBERS.fullmatch(plain) is not None

    @cached_property
    def is_text(self) -> bool:
        """Whether the first fields are not all values."""
        return not all(is_value(text, self._decimal) for text in self.texts[:_KIND_ROWS])

    @cached_property
    def is_unique(self) -> bool:
        """Whether no field is missing or repeated."""
        different = set(self.texts)
        return len(different) == len(self.texts) and not any(map(is_missing, different))

    @property
    def mostly_differs(self) -> bool:
        """Whether there are more values than half of the rows."""
        return 2 * len({*self.texts}) > len(self.texts)

    @property
    def tells_rows_apart(self) -> bool:
        """Whether no field is missing or repeated, in several rows."""
        return self.is_unique and tell_rows_apart(self.texts)

    @property
    def numbers(self) -> list[float]:
        """Numbers of the fields, NaN for a field that is none."""
        own = self._decimal
        return [number_of(t, own) if is_number(t, own) else np.nan for t in self.texts]

    @cached_property
    def spellings(self) -> list[str]:
        """Ids in small letters, and whole numbers without a point."""
        return [*map(in_plain_spelling, self.texts)]

    @cached_property
    def is_whole(self) -> bool:
        """Whether all are whole numbers."""
        return are_whole(self.texts)

    @property
    def is_key(self) -> bool:
        """Whether they are whole numbers that differ."""
        return len(self.texts) > 0 and self.is_unique and self.is_whole

    @cached_property
    def has_decimals(self) -> bool:
        """Whether all that are known are numbers, and some are not whole."""
        known = [text for text in self.texts if not is_missing(text)]
        return all(is_number(text, self._decimal) for text in known) and not are_whole(known)

    @cached_property
    def counts_rows(self) -> bool:
        """Whether they are the numbers of rows in any order, from 0 or 1."""
        return are_counted(self.texts, in_order=False)

    @property
    def numbers_rows(self) -> bool:
        """Whether it has nothing but numbers of rows, by its name, or as its name does not say otherwise."""
        return self.is_whole if self.may_number_rows else not self.strength and self.counts_rows


def parsed_labels(texts: Sequence[str]) -> NDArray[Any]:
    """Return numbers where all that are known are numbers without rounding, text otherwise; missing ones are NaN or empty text."""
    known = ["" if is_missing(text) else text for text in texts]
    if all(map(is_number, filter(None, known))):
        numbers = np.array([number_of(text) if text else np.nan for text in known])
        if not np.any(np.abs(numbers) > _LAST_WHOLE):
            return numbers
    return np.array(known, dtype=np.str_)


# values of columns -----------------------------------------------------------------------------


def notes_of_statistics(values: NDArray[Any], ids: Sequence[str], where: str) -> list[str]:
    """Refuse first and last samples that have the sums or other statistics of the others; notes on ids that say so."""
    values, last = values[:, :_SOME], len(values) - 1
    n_first, n_last = (
        sum(1 for _ in itertools.takewhile(_OF_STATISTICS.fullmatch, order))
        for order in (ids, reversed(ids))
    )
    named = {*range(n_first), *range(len(values) - n_last, len(values))}
    rest = values[n_first : len(values) - n_last]
    found = [row for row in named if _is_statistic(values[row], rest, _STATISTICS)]
    if len(values) > _TOTAL_ROWS and values.shape[1] >= _TOTAL_COLUMNS:
        others = [(0, values[1:]), (last - 1, values[: last - 1]), (last, values[:last])]
        found += [
            row
            for row, rest in others
            if row not in named
            and _is_statistic(values[row], rest, _STATISTICS[:2], least=_TOTAL_COLUMNS)
        ]
    if found:
        first = min(found)
        what = repr(ids[first]) if ids else f"row {first} (counted from 0 below the header)"
        raise DataError(
            f"{where}: {what} is no sample: it has the sums, means or other statistics of the others. Remove it, or move and "
            "rename it if it is one: this is looked for in the first and the last rows."
        )
    named |= {*unlike_most(ids)}
    if not named:
        return []
    listing = ", ".join(repr(ids[row]) for row in sorted(named))
    return [f"{listing} taken as samples; remove them if they are none, as their names suggest."]


def unlike_most(names: Sequence[str], most: int = 2) -> list[int]:
    """Positions of names that begin with other letters than three quarters of them do, as at `most` so many do."""
    starts = [re.split(r"[\W\d_]", name.casefold(), maxsplit=1)[0] for name in names]
    counts = Counter(starts)
    if len(names) < _SOME or 4 * max(counts.values()) < 3 * len(names):
        return []
    # letters beyond those of hexadecimal ids
    few = {start for start, n in counts.items() if n <= most and re.search("[g-z]", start)}
    return [place for place, start in enumerate(starts) if start in few]


def _is_statistic(
    own: NDArray[Any], others: NDArray[Any], kinds: Sequence[str], *, least: int = 1
) -> bool:
    """Return whether a row has one kind of statistic of others, up to a small part of their spread, in the columns where they differ, if there are enough."""
    import pandas as pd

    with np.errstate(over="ignore", invalid="ignore"):
        frame = pd.DataFrame(others)
        spread = frame.std().to_numpy()
        differs = (spread > 0) & np.isfinite(spread) & ~np.isnan(own)
        if np.count_nonzero(differs) < least or not own[differs].any():
            return False
        distances = np.abs(frame.loc[:, differs].agg([*kinds]).to_numpy() - own[differs])
        return bool((distances <= _ROUNDED * spread[differs]).all(axis=1).any())


def notes_of_thousands(values: NDArray[Any], names: Sequence[str]) -> list[str]:
    """A note on columns of whole numbers from 100 to 999, after which three decimals come: they may be thousands."""
    found = []
    head, largest = values[:_HEAD_ROWS], np.fmax.reduce(values, axis=0)
    may_be = (largest >= 100) & (largest < 1000) & ~(np.floor(head) < head).any(axis=0)
    for place in np.flatnonzero(may_be) if len(values) > _HEAD_ROWS else ():
        column = values[:, place]
        marked = column[np.floor(column) < column]
        n_whole = np.count_nonzero((np.floor(column) == column) & (column >= 100))
        if 4 * n_whole <= len(column) or not marked.size or marked.min() < 1:
            continue
        of_hundredths, of_thousandths = (
            np.allclose(scale * marked, np.rint(scale * marked), 0, 1e-6) for scale in (100, 1000)
        )
        if of_thousandths and not of_hundredths:
            found.append(names[int(place)])
    note = f"column(s) {listed(found)} have points that may separate thousands; remove such points."
    return [note] if found else []


def notes_of_labels(values: NDArray[Any], names: Sequence[str], *, has_names: bool) -> list[str]:
    """A note on columns of few whole numbers that may be labels: those with usual names, or an only column.

    Without names, it is on the first and the last column if most columns that vary have more values.
    """
    is_one = len(names) == 1
    may_be = [p for p, name in enumerate(names) if is_one or _MAY_BE_LABELS.search(name)]
    if not (has_names or is_one):
        n_values = np.count_nonzero(np.diff(np.sort(values[:_SOME_ROWS], axis=0), axis=0), axis=0)
        n_vary = np.count_nonzero(n_values)
        may_be = [p for p in (0, len(names) - 1) if 2 * np.sum(n_values > n_values[p]) > n_vary]
    found = []
    for place in dict.fromkeys(may_be):
        kinds = np.unique(values[:, place])
        if 1 < len(kinds) <= min(_CLASSES, len(values) / 2) and (np.floor(kinds) == kinds).all():
            found.append(names[place])
    note = f"column(s) {listed(found)} taken as features; drop them if they are batches; --labels NAME if one has the labels."
    return [note] if found else []


def notes_of_keys(values: NDArray[Any], names: Sequence[str], *, have_ids: bool) -> list[str]:
    """A note on the only column of whole numbers that differ in every row, which may be ids, or on the few that number rows which have ids."""
    head = values[:_SOME_ROWS]
    ordered = np.sort(head, axis=0)
    are_keys = (np.floor(head) == head).all(axis=0) & (ordered[1:] > ordered[:-1]).all(axis=0)
    places = np.flatnonzero(are_keys).tolist()
    if have_ids:
        numbers, n_rows = np.arange(len(values)), len(values)
        counts = [
            names[at]
            for at in places
            if n_rows >= _FEW
            and any(np.array_equal(np.sort(values[:, at]), numbers + first) for first in (0, 1))
        ]
        note = f"column(s) {listed(counts)} number the rows in some order, and are taken as features; drop them unless they are ranks."
        return [note] if 0 < 2 * len(counts) < len(names) else []
    if len(places) != 1 or not tell_rows_apart(values[:, places[0]].tolist()):
        return []
    name = names[places[0]]
    return [
        f"column {name!r} has whole numbers that differ in every row, taken as a feature; --id-column if it has ids."
    ]
