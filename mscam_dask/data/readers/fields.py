"""Fields of tables: numbers, missing values and ids, what the fields of a column have in common, notes on its values, and the dialect of a text."""

from __future__ import annotations

import csv
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.base import Source
from mscam_dask.data.views.conversion import id_strength
from mscam_dask.data.views.sample_ids import MISSING
from mscam_dask.data.views.sources import listed
from mscam_dask.errors import DataError

_OF_STATA = re.compile(r"\.[a-zA-Z_]")  # and SAS, for several reasons
_MINUS = "\u2212"  # of typeset tables

TRUTH = {"true": "1", "false": "0"}
"""Numbers of truth values, which pandas and R write in any case."""

_OF_ROW_NUMBERS = re.compile(r"(unnamed\d*|index|level0|row|rowid|rownumber)?", re.IGNORECASE)

_NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|inf(inity)?)", re.I | re.A)
_WHOLE = re.compile(r"[-+]?\d+(\.0*)?", re.ASCII)
_POWER = re.compile(r"[-+]?\d{1,4}(\.\d{1,6})?[eE]\+?\d{1,2}", re.ASCII)  # R and Excel write 1e+05
_MONTH = "(jan|feb|mar|apr|ma[iy]|jun|jul|aug|sep|o[ck]t|nov|de[cz])[a-z]*"
_AMOUNT = re.compile(
    r"[-+\d.,_ eEjJ%()]+$|\W*\d+[.,\s]\d|[\W\d_]+$|"  # 1_000, (1+2j), 12-34, $5.10, 5.1 mg
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
    r"(cell|tissue)?_?type|phenotype|status|predict(ed|ion)|batch|site|plate|fold|split)(?![^\W_])",
    re.IGNORECASE,
)
_RISING = 3  # numbers that hardly rise by chance


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


def are_whole(texts: Sequence[str]) -> bool:
    """Return whether all are whole numbers."""
    return all(map(is_whole_number, texts))


def are_names(texts: Sequence[str], *, with_numbers: bool = False) -> bool:
    """Return whether all are names, such as P-001, 12-34 and 0012 but not 1,5, 5mg or ?; maybe whole numbers too."""
    if are_whole(texts):
        return any(text[:1] == "0" and text[1:2].isdigit() for text in texts)
    if not with_numbers and texts and _WITH_UNIT.fullmatch(texts[0]):
        units = [*map(_WITH_UNIT.fullmatch, texts)]
        if all(units) and len({unit and unit[1] for unit in units}) <= _UNITS:
            return False
    return all(
        _NAME.fullmatch(text) and (with_numbers or not _AMOUNT.match(text)) for text in texts
    )


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

    @cached_property
    def is_whole(self) -> bool:
        """Whether all are whole numbers."""
        return are_whole(self.texts)

    @property
    def is_key(self) -> bool:
        """Whether they are whole numbers that differ."""
        return len(self.texts) > 0 and self.is_whole and self.is_unique

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
    is_large = len(values) > _TOTAL_ROWS and values.shape[1] >= _TOTAL_COLUMNS
    found = []
    for row in sorted(named | ({0, last} if is_large else set())):
        others = np.delete(values, [*({*named} if row in named else {row})], axis=0)
        if _is_statistic(values[row], others, _STATISTICS if row in named else _STATISTICS[:2]):
            found.append(row)
    if found:
        what = repr(ids[found[0]]) if ids else f"row {found[0]} (counted from 0 below the header)"
        raise DataError(
            f"{where}: {what} is no sample: it has the sums, means or other statistics of the others. Remove it, or move and "
            "rename it if it is one: this is looked for in the first and the last rows."
        )
    named |= {*unlike_most(ids)}
    if not named:
        return []
    listing = ", ".join(repr(ids[row]) for row in sorted(named))
    return [f"{listing} taken as samples; remove them if they are none, as their names suggest."]


def unlike_most(names: Sequence[str]) -> list[int]:
    """Positions of the few names that begin with other letters than three quarters of them do."""
    starts = [re.split(r"[\W\d_]", name.casefold(), maxsplit=1)[0] for name in names]
    counts = Counter(starts)
    if len(names) < _SOME or 4 * max(counts.values()) < 3 * len(names):
        return []
    # letters beyond those of hexadecimal ids
    few = {start for start, n in counts.items() if n <= 2 and re.search("[g-z]", start)}
    return [place for place, start in enumerate(starts) if start in few]


def _is_statistic(own: NDArray[Any], others: NDArray[Any], kinds: Sequence[str]) -> bool:
    """Return whether a row has one kind of statistic of others, up to a small part of their spread."""
    import pandas as pd

    with np.errstate(over="ignore", invalid="ignore"):
        frame = pd.DataFrame(others)
        spread = frame.std().to_numpy()
        differs = (spread > 0) & np.isfinite(spread) & ~np.isnan(own)
        if not own[differs].any():
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

    Without names, it is on the first and the last column beside decimals.
    """
    is_one = len(names) == 1
    may_be = [p for p, name in enumerate(names) if is_one or _MAY_BE_LABELS.search(name)]
    if not (has_names or is_one):
        head = values[:_SOME_ROWS]
        have_decimals = (np.floor(head) != head).any(axis=0)
        may_be = [0, len(names) - 1] if 2 * have_decimals.sum() > len(names) else []
    found = []
    for place in dict.fromkeys(may_be):
        kinds = np.unique(values[:, place])
        if 1 < len(kinds) <= min(_CLASSES, len(values) / 2) and (np.floor(kinds) == kinds).all():
            found.append(names[place])
    note = f"column(s) {listed(found)} taken as features; drop them if they are batches; --labels NAME if one has the labels."
    return [note] if found else []


# dialect of a text: the delimiter and the decimal mark that go best with its first lines ----------

_DELIMITERS = ("\t", ";", "|", ",")
_NAMES = {"\t": "tab", ";": "semicolon", "|": "bar", ",": "comma", None: "blanks"}
_MOST = 0.7  # of the rows that a delimiter splits: titles and footers have none
_MOST_NUMBERS = 0.5  # share of the fields of a table of numbers
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
        filled = [line for line in lines if line.strip()]
        in_all = [mark for mark in _DELIMITERS if filled and all(mark in line for line in filled)]
        are_numbers = {len(row) for row in blanks.rows} == {blanks.width} and blanks.width > 1
        are_numbers &= blanks.fit > _MOST_NUMBERS
        if in_all and not are_numbers:  # rows of several lengths: reading says which
            return _under(in_all[0], lines, source.decimal)
        return blanks
    best = max(found, key=lambda one: (len(one.rows[0]) == one.width, one.fit))
    several = [field for row in best.rows for field in row if _SEVERAL_NUMBERS.match(field)]
    are_thousands = bool(several) and all(map(_THOUSANDS.fullmatch, several))
    widths, of_blanks = (
        {len(row) for row in one.rows} for one in (best, blanks)
    )  # with the header
    is_table = are_thousands or (widths == {best.width} and of_blanks != {blanks.width})
    is_by_blanks = bool(several) and not is_table
    if abs(len(blanks.rows[0]) - blanks.width) < 2:  # commas may be decimal marks
        is_by_blanks |= best.delimiter == "," and blanks.fit > 2 * best.fit
    return blanks if is_by_blanks and blanks.fit > best.fit else best


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
    gaps = {after[0] - before[1] for row in rows for before, after in itertools.pairwise(row)}
    if len(gaps) < 2 or any("\t" in line for line in lines):
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
