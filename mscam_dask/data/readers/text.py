"""Text tables: the first lines tell the dialect, pandas reads the rows."""

from __future__ import annotations

import csv
import inspect
import itertools
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import IO, Any

import numpy as np

from mscam_dask.data.readers.base import LABEL_COLUMNS, Source, open_text, unreadable
from mscam_dask.data.readers.roles import MISSING, id_strength
from mscam_dask.data.readers.tables import THOUSANDS, Table, TableRows, is_number
from mscam_dask.errors import ConfigurationError, DataError

_DELIMITERS = ("\t", ";", "|", ",")
_NAMES = {"\t": "tab", ";": "semicolon", "|": "bar", ",": "comma", None: "blanks"}
_HEAD_LINES = 50
_HEAD_CHARS = 2**20
_CHUNK_VALUES, _LARGE_CHUNK_VALUES, _CHUNK_ROWS = 2**19, 2**24, 500  # what pandas holds at a time
_MANY_COLUMNS = 50_000  # pandas takes a quarter of a millisecond for each
_LONGEST_FIELD = 100_000
_NUMBERED = 3  # columns from which consecutive numbers are hardly a sample
_SHOWN = 5
_MOST = 0.5
_FIELD = re.compile(r'"([^"]*(?:""[^"]*)*)"(?=\s|$)|(\S+)')
_COMMENT = re.compile(r"!|#(?!N/?A\b)", re.IGNORECASE)
_END = "\x1a"  # of a text, in DOS
_MARK = "\ufeff"  # of byte order
_PLINK = ["FID", "IID", "PAT", "MAT", "SEX", "PHENOTYPE"]  # before the genotypes of a .raw file
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\s*$')
_SEVERAL_NUMBERS = re.compile(r"[-+.\d]\S*\s+[-+.\d]")
# Other spellings, such as nAn, take the way of what is not plain.
_SPELLINGS = sorted({form for word in MISSING for form in (word, word.upper(), word.title())})
_SPELLINGS += ["NaN", "-NaN"]


@dataclass(frozen=True)
class Dialect:
    """How the rows of a text table are written.

    `delimiter` None stands for runs of blanks; lines that begin with `comment` are no rows; `n_above` lines
    stand above the first row, the header among them; `n_columns` counts the fields of a row.
    """

    delimiter: str | None
    decimal: str
    comment: str | None
    n_above: int
    n_columns: int


def text_table(
    source: Source, open_lines: Callable[[], IO[str]] | None = None, *, where: str = ""
) -> Table:
    """Find dialect, header and names of columns of a text table; `open_lines` replaces its file."""
    if source.delimiter is not None and len(source.delimiter) != 1:
        raise ConfigurationError(
            f"delimiter={source.delimiter!r} of {source.path}; allowed is one character, or None."
        )
    opened = open_lines or (lambda: open_text(source))
    where = where or str(source.path)
    with unreadable(source, "text", is_text=True):
        above, lines = _first_lines(source, opened)
        return _table(source, opened, where, above, lines)


def _first_lines(source: Source, opened: Callable[[], IO[str]]) -> tuple[list[str], list[str]]:
    """Lines above the table, and its first lines."""
    above: list[str] = []
    lines: list[str] = []
    mark = _COMMENT if source.comment is None else re.compile(re.escape(source.comment))
    with opened() as stream:
        for line in stream:
            if "\0" in line:
                raise _nul(source)
            if not (line := line.rstrip(_END)):
                break
            is_above = len(above) < source.skip or (
                not lines
                and (
                    not line.strip()
                    or mark.match(line) is not None
                    or _SEPARATOR_LINE.match(line) is not None
                    or (len(above) == 1 and _is_gct(above))
                )
            )
            (above if is_above else lines).append(line)
            n_chars = sum(map(len, lines)) if len(lines) > 2 else 0
            if len(lines) >= _HEAD_LINES or n_chars > _HEAD_CHARS:
                break
    if not lines and source.comment is None:  # all lines may begin with #
        above, lines = above[: source.skip], above[source.skip :]
    return above, lines


def _first_rows(lines: list[str], delimiter: str | None, where: str) -> list[list[str]]:
    rows = [row for row in _fields(lines, delimiter) if row]
    if not rows:
        raise DataError(f"{where} is empty; it needs one line per sample.")
    longest = max(len(field) for row in rows for field in row)
    if longest > _LONGEST_FIELD:
        raise DataError(
            f"{where} has a field of {longest} characters; allowed are {_LONGEST_FIELD}. Check the quotes, "
            "and the delimiter."
        )
    return rows


def _check_positions(lines: list[str], where: str) -> None:
    """Refuse columns at fixed positions of which rows leave some empty: later values would shift."""
    rows = [[match.span() for match in _FIELD.finditer(line)] for line in lines if line.strip()]
    gaps = {after[0] - before[1] for row in rows for before, after in pairwise(row)}
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
            "are empty. Write NA in them, or convert the file (pandas.read_fwf(...).to_csv(...))."
        )


def _is_gct(above: list[str]) -> bool:
    return bool(above) and above[0].strip() in ("#1.2", "#1.3")


def _nul(source: Source) -> DataError:
    return DataError(
        f"{source.path} has NUL bytes, so it is no UTF-8 text. Convert UTF-16 (iconv -f utf-16 -t utf-8 "
        "FILE), and binary files to a format that can be read."
    )


def _table(
    source: Source, opened: Callable[[], IO[str]], where: str, above: list[str], lines: list[str]
) -> Table:
    told = [match[1] for line in above if (match := _SEPARATOR_LINE.match(line))]
    comment = source.comment or ("!" if any(line.startswith("!") for line in above) else None)
    if comment is not None:
        lines = [line for line in lines if not line.startswith(comment)]
    delimiter, decimal = _delimiter(
        source, lines, source.delimiter or (told[0] if told else None), where
    )
    if delimiter is None:
        _check_positions(lines, where)
    rows = _first_rows(lines, delimiter, where)
    n_above, has_header = len(above), source.header
    numbered = above[-1].lstrip("#").strip() if above and above[-1].startswith("#") else ""
    heading = next(_fields([numbered], delimiter), []) if source.comment is None else []
    first = rows[0]
    short = len(rows) > 1 and len(rows[1]) - len(first) == 1
    short &= bool(has_header) or not all(_is_value(field, decimal) for field in first)
    notes: tuple[str, ...] = ()
    if (
        has_header is not False
        and len(heading) == len(first)
        and not _is_gct(above)
        and all(heading)
        and not all(is_number(name, decimal) for name in heading)
        and all(_is_value(field, decimal) for field in first[1:])
    ):  # NumPy writes # before the header
        first, body, has_header, short = heading, rows, True, False
    else:
        if has_header is None:
            second = rows[1] if len(rows) > 1 else []
            has_header = short or _has_header(
                where, first, second, decimal, of_samples=source.samples_in == "columns"
            )
            notes = _notes_of_header(source, where, first, second, decimal, has_header=has_header)
        body = rows[1:] if has_header else rows
        n_above += _n_lines(lines, delimiter) if has_header else 0
        short &= has_header
    if len(first) == 1 and not has_header:  # blank lines are missing values
        n_above = len("".join(above).rstrip().splitlines())
    columns = list(first) if has_header else [f"column {index}" for index in range(len(first))]
    if has_header:
        columns[0] = columns[0].removeprefix("#").lstrip() if len(columns[0]) > 1 else columns[0]
    n_about_samples = 6 if columns[:6] == _PLINK else 0
    left_out = dict.fromkeys(range(2, n_about_samples), "describes the samples")
    if short and body and all(row[-1:] == [""] and len(row) > len(first) for row in body):
        if any(row[0] and not _is_value(row[0], decimal) for row in body):
            raise DataError(
                f"{where}: each row has one field more than the header, and the last one is empty: either the "
                "rows end in a delimiter, or the header lacks a name of the first column. Correct the header."
            )
        short = False
        left_out[len(columns)] = "empty"
        columns.append("")
    elif short:  # R's write.table
        columns.insert(0, "")
    elif has_header and len(columns) > 1 and not columns[-1] and not any(r[-1] for r in body):
        left_out[len(columns) - 1] = "empty"
    samples_in, is_gct = source.samples_in, _is_gct(above)
    if is_gct or (comment == "!" and columns[0] == "ID_REF"):
        samples_in = "columns"
        n_rows, n_notes = _gct_annotations(above) if is_gct else (0, 0)
        left_out |= dict.fromkeys(range(1, 1 + n_notes), "describes the features")
        n_above, body = n_above + n_rows, body[n_rows:]
    dialect = Dialect(delimiter, decimal, comment, n_above, len(columns))
    said = [
        f"{_NAMES.get(delimiter, repr(delimiter))}",
        "header" if has_header else "no header",
        *(["row names"] if short else []),
        *(["decimal comma"] if decimal == "," else []),
        *([f"{len(above)} line{'s' * (len(above) > 1)} above"] if above else []),
    ]
    return Table(
        source=source,
        where=where,
        view=source.view_name,
        columns=tuple(columns),
        head=body,
        fill=lambda wanted: _fill(source, opened, dialect, where, wanted),
        has_header=has_header,
        samples_in=samples_in,
        id_position=0 if short or is_gct else None,
        left_out=left_out,
        form=", ".join(said),
        notes=notes,
        decimal=decimal,
        is_by_blanks=delimiter is None,
    )


def _gct_annotations(above: list[str]) -> tuple[int, int]:
    """Rows and columns of a GCT file that describe samples and features."""
    sizes = [int(size) for size in above[1].split()]
    return (sizes[3], sizes[2]) if len(sizes) > 3 else (0, 1)


def _n_lines(lines: list[str], delimiter: str | None) -> int:
    """Lines that the first row takes, blank ones above it included."""
    if delimiter is None:
        return 1
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    next(row for row in reader if row)
    return reader.line_num


def _fields(lines: Iterable[str], delimiter: str | None) -> Iterator[list[str]]:
    """Yield the stripped fields of each row, none for a blank line."""
    if delimiter is None:
        for line in lines:
            yield [quoted.replace('""', '"') or bare for quoted, bare in _FIELD.findall(line)]
        return
    for row in csv.reader(lines, delimiter=delimiter, skipinitialspace=True):
        fields = [field.strip() for field in row]
        yield [] if len(row) == 1 and not fields[0] else fields


def _is_value(field: str, decimal: str) -> bool:
    """Return whether a field is a number, or says that one is missing."""
    return is_number(field, decimal) or field.lower() in MISSING


def _delimiter(
    source: Source, lines: list[str], told: str | None, where: str
) -> tuple[str | None, str]:
    """The delimiter and the decimal mark under which most fields are numbers.

    Runs of blanks count where no other delimiter gives rows of one length.
    """
    if told is not None:
        return told, _share(lines, told, where, source.decimal)[1]
    found: list[tuple[bool, float, str, str]] = []
    for mark in _DELIMITERS:
        if not all(mark in line for line in lines[1:] if line.strip()):
            continue
        try:
            rows = [row for row in _fields(lines, mark) if row]
        except csv.Error:  # a field of more than 128 KiB
            continue
        widths = {len(row) for row in rows[1:]} or {len(row) for row in rows[:1]}
        if len(widths) != 1 or (width := widths.pop()) < 2:
            continue
        if abs(len(rows[0]) - width) > 1 or (mark == "," and len(rows[0]) == 1):
            continue
        share, decimal = _share(lines, mark, where, source.decimal)
        found.append((len(rows[0]) == width, share, mark, decimal))
    best = max(found, key=lambda one: one[:2], default=None)  # the first of equals
    by_blanks = _share(lines, None, where, source.decimal)
    several = best is not None and any(
        _SEVERAL_NUMBERS.match(field) for row in _fields(lines, best[2]) for field in row
    )
    if (
        best is not None and best[2] == "," and by_blanks[0] > 2 * best[1]
    ):  # commas are decimal marks
        several = True
    if best is not None and not (several and by_blanks[0] > best[1]):
        return best[2], best[3]
    widths = {len(row) for row in _fields(lines, None) if row}
    if best is None and len(widths) == 1 and widths != {1} and by_blanks[0] > _MOST:
        return None, by_blanks[1]
    own = {".csv": ",", ".tsv": "\t"}.get(source.suffix)
    in_all = [
        mark
        for mark in (own, *_DELIMITERS)
        if mark is not None and lines and all(mark in line for line in lines if line.strip())
    ]
    if best is None and in_all:  # rows of several lengths: reading says which
        return in_all[0], source.decimal or "."
    return None, by_blanks[1]


def _share(lines: list[str], mark: str | None, where: str, told: str | None) -> tuple[float, str]:
    """Share of fields that are numbers, and their decimal mark."""
    rows = [row for row in _fields(lines, mark) if row]
    fields = [field for row in (rows[1:] or rows) for field in row]
    if told is not None:
        return sum(is_number(field, told) for field in fields) / max(1, len(fields)), told
    dots = sum(is_number(field) for field in fields)
    if mark == "," or not fields:
        return dots / max(1, len(fields)), "."
    commas = sum(is_number(field, ",") for field in fields)
    if commas <= dots:
        return dots / len(fields), "."
    with_comma = [field for field in fields if "," in field and is_number(field, ",")]
    if all(THOUSANDS.fullmatch(field) for field in with_comma):
        raise DataError(
            f"{where}: the comma in {with_comma[0]!r} may mark decimals or thousands. Set decimal=',' "
            "(--decimal), or write numbers without separators of thousands."
        )
    return commas / len(fields), ","


def _has_header(
    where: str, first: list[str], second: list[str], decimal: str, *, of_samples: bool
) -> bool:
    def is_text(field: str) -> bool:
        return field != "" and not _is_value(field, decimal)

    if any(map(is_text, first[1:])):
        return True
    if first[0] == "" and len(first) > 1 and all(field.isdecimal() for field in first[1:]):
        numbers = [int(field) for field in first[1:]]
        is_range = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        below = second or [""]
        return is_range or is_text(below[0]) or not all(map(str.isdecimal, below[1:]))
    if is_text(first[0]):
        is_named = id_strength(first[0]) > 2 or first[0].lower() in (*_FIRST_NAMES, *LABEL_COLUMNS)
        if is_named or (second and _is_value(second[0], decimal) and second[0]):
            return True
        if of_samples and len(first) > _NUMBERED and _are_odd(first[1:], [""]):
            is_padded = any(field[0] == "0" and len(field) > 1 for field in first[1:])
            if is_padded or _are_odd(first[1:], second[1:]):
                return True
            raise _unclear(where, first)
    return _is_numbering(where, first, second, has_ids=is_text(first[0]))


_FIRST_NAMES = ("", "id", "ids", "index", "name", "sample", "sample_id", "sample id", "unnamed: 0")


def _unclear(where: str, first: list[str]) -> DataError:
    return DataError(
        f"{where}: the first line, {_shown(first)}, may be column numbers or the first "
        "sample. Set header=True or header=False (--header, --no-header)."
    )


def _is_numbering(where: str, first: list[str], second: list[str], *, has_ids: bool) -> bool:
    """Return whether a first line of numbers, maybe behind an id, numbers or dates the columns.

    Certain are three or more consecutive whole numbers above others, from 0 (what a frame writes
    for columns without names) or behind the heading of text ids.
    """
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
        raise _unclear(where, first)
    return False


def _notes_of_header(
    source: Source,
    where: str,
    first: list[str],
    second: list[str],
    decimal: str,
    *,
    has_header: bool,
) -> tuple[str, ...]:
    """Return a note if a first line of numbers may be a header or a sample."""
    has_ids = not _is_value(first[0], decimal)
    numbers = first[1:] if has_ids or not first[0] else first
    if not numbers or not all(field and _is_value(field, decimal) for field in numbers):
        return ()
    what = "sample" if source.samples_in == "rows" else "feature"
    if has_header:
        taken = f"the names of columns (--no-header if it is a {what})"
        is_sure = first[0].lower() in _FIRST_NAMES
        return () if is_sure else (f"{where}: first line {_shown(first)} taken as {taken}.",)
    is_odd = len(numbers) > 1 and _are_odd(numbers, second[-len(numbers) :])
    if is_odd or has_ids:
        taken = f"the first {what} (--header if it names the columns)"
        return (f"{where}: first line {_shown(first)} taken as {taken}.",)
    return ()


def _are_odd(numbers: list[str], below: list[str]) -> bool:
    """Return whether fields are whole numbers that differ, above others: years, sizes, positions."""
    are_whole = all(map(str.isdecimal, numbers)) and not all(map(str.isdecimal, below))
    return are_whole and len(set(numbers)) == len(numbers)


def _shown(fields: list[str]) -> str:
    return ",".join(fields[:_SHOWN]) + (",..." if len(fields) > _SHOWN else "")


class _Rows:
    """Rows of a text stream for pandas: no comments; delimiters are counted.

    A blank line among rows of one field is a missing value.
    """

    def __init__(self, stream: IO[str], dialect: Dialect, source: Source) -> None:
        for _ in range(dialect.n_above):
            stream.readline()
        self._stream = stream
        self._dialect = dialect
        self._source = source
        is_filtered = dialect.comment is not None or dialect.n_columns == 1
        self._filtered = self._without_comments() if is_filtered else None
        self.n_delimiters, self._is_begin = 0, True

    def read(self, size: int = -1) -> str:
        part = self._stream.read(size) if self._filtered is None else next(self._filtered, "")
        if self._is_begin and part.startswith(_MARK):
            part = _MARK + part  # of which pandas drops the first
        self._is_begin = False
        part = part.rstrip(_END)
        if "\0" in part:
            raise _nul(self._source)
        self.n_delimiters += part.count(self._dialect.delimiter or "\n")
        return part

    def _without_comments(self) -> Iterator[str]:
        comment, n_blank = self._dialect.comment, 0
        for line in self._stream:
            if comment is not None and line.startswith(comment):
                continue
            if self._dialect.n_columns > 1:
                yield line
            elif line.strip():
                yield from repeat('""\n', n_blank)
                yield line
                n_blank = 0
            else:
                n_blank += 1

    def __iter__(self) -> Iterator[str]:  # by which pandas knows a file
        return iter(self._stream if self._filtered is None else self._filtered)


def _fill(
    source: Source, opened: Callable[[], IO[str]], dialect: Dialect, where: str, wanted: TableRows
) -> TableRows:
    """Read rows; quickly where columns of numbers have nothing but plain numbers."""
    with unreadable(source, "text", is_text=True):
        rows, n_rows, ends_missing = wanted.empty(), 0, False
        if dialect.n_columns <= _MANY_COLUMNS:
            # errors of pandas are ValueErrors; a text that a short row lacks is no text
            with suppress(ValueError, AttributeError, Warning), opened() as stream:
                lines = _Rows(stream, dialect, source)
                for frame in _frames(lines, dialect, rows):
                    n_rows += len(frame)
                    last = frame[dialect.n_columns - 1]
                    ends_missing |= bool((last.isna() | (last == "")).any())
                    columns = {place: column.to_numpy() for place, column in frame.items()}
                    rows.add(columns, dialect.decimal)
                # pandas fills rows that are too short
                n_expected = n_rows * (dialect.n_columns - 1)
                if not ends_missing or (dialect.delimiter and lines.n_delimiters == n_expected):
                    return rows
        rows, n_rows = wanted.empty(), 0
        with opened() as stream:
            found = _fields(_Rows(stream, dialect, source), dialect.delimiter)
            if dialect.n_columns == 1:
                found = (row or [""] for row in found)
            found = filter(None, found)
            size = max(1, _CHUNK_VALUES // dialect.n_columns)
            while block := [*itertools.islice(found, size)]:
                _check_lengths(block, n_rows, dialect, where)
                rows.add(dict(enumerate(zip(*block, strict=True))), dialect.decimal)
                n_rows += len(block)
    return rows


def _frames(lines: _Rows, dialect: Dialect, rows: TableRows) -> Iterator[Any]:
    """Chunks of a table, columns by position; a ValueError where a column of numbers has others than plain ones."""
    import pandas as pd

    # pandas 3.1 deprecates the argument: its numbers are always the closest
    is_exact = "float_precision" not in inspect.signature(pd.read_csv).parameters
    options: dict[str, Any] = {} if is_exact else {"float_precision": "round_trip"}
    plain = [place for place in rows.numbers if place not in rows.texts]
    options["dtype"] = dict.fromkeys(range(dialect.n_columns), str)
    options["dtype"] |= dict.fromkeys(plain, np.float64)
    options["na_values"] = dict.fromkeys(plain, _SPELLINGS)
    n_rows = min(_CHUNK_ROWS, _LARGE_CHUNK_VALUES // dialect.n_columns)
    n_rows = max(
        1, n_rows, _CHUNK_VALUES // dialect.n_columns
    )  # columns take time, each of a chunk
    blanks = "\t" if dialect.n_columns == 1 else r"\s+"  # which skips fields of "" in one column
    delimiter = blanks if dialect.delimiter is None else dialect.delimiter
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "The 'float_precision' argument")
        try:
            reader = pd.read_csv(
                lines,
                sep=delimiter,
                header=None,
                names=range(dialect.n_columns),
                index_col=False,
                decimal=dialect.decimal,
                skipinitialspace=True,
                skip_blank_lines=dialect.n_columns > 1,
                keep_default_na=False,
                engine="c",
                chunksize=n_rows,
                low_memory=False,
                **options,
            )
        except pd.errors.EmptyDataError:
            return
        yield from reader


def _check_lengths(rows: list[list[str]], first: int, dialect: Dialect, where: str) -> None:
    """Refuse a row of another number of fields."""
    for index, row in enumerate(rows, first):
        if len(row) != dialect.n_columns:
            raise DataError(
                f"{where}: row {index} has {len(row)} fields where the first line has "
                f"{dialect.n_columns} (rows counted from 0 below the header). Check the delimiter, and "
                "delimiters inside fields, which need quotes; comment, skip and delimiter of Source "
                "(--comment, --skip, --delimiter) tell other forms."
            )
