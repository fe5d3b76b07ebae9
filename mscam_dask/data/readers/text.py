"""Text tables: the first lines tell the dialect, the csv module of Python splits the rows."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import IO

import numpy as np

from mscam_dask.data.readers.base import Source, open_text, unreadable
from mscam_dask.data.readers.roles import MISSING, Block, Table, are_whole, id_strength, is_number
from mscam_dask.data.views.conversion import LABEL_COLUMNS
from mscam_dask.errors import DataError

_DELIMITERS = ("\t", ";", "|", ",")
_NAMES = {"\t": "tab", ";": "semicolon", "|": "bar", ",": "comma", None: "blanks"}
_HEAD_LINES = 50
_HEAD_CHARS = 2**20
# Blocks of rows that fit into a cache are read fastest.
_BLOCK_FIELDS, _LARGE_BLOCK_FIELDS, _BLOCK_ROWS = 2**14, 2**19, 32
_NUMBERED = 3  # columns from which consecutive numbers are hardly a sample
_SHOWN = 5
_MOST = 0.5
_FIELD = re.compile(r'"([^"]*(?:""[^"]*)*)"(?=\s|$)|(\S+)')
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+")
_COMMENT = re.compile(r"!|#(?!N/?A\b)", re.IGNORECASE)
_END = "\x1a"  # of a text, in DOS
_PLINK = ["FID", "IID", "PAT", "MAT", "SEX", "PHENOTYPE"]  # before the genotypes of a .raw file
_FIRST_NAMES = ("", "id", "ids", "index", "name", "sample", "sample_id", "sample id", "unnamed: 0")
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\s*$')
_SEVERAL_NUMBERS = re.compile(r"[-+.\d]\S*\s+[-+.\d]")
_OF_FIXED_WIDTH = "Convert the file (pandas.read_fwf(FILE, widths=[...], header=None).to_csv(...))."
_RUN_TOGETHER = re.compile(r"[-+]?\d+\.\d+[-+]\d+\.[-+.\d]+")  # 13.696-123.021


def text_table(
    source: Source, open_lines: Callable[[], IO[str]] | None = None, *, where: str = ""
) -> Table:
    """Find dialect, header and names of columns of a text table; `open_lines` replaces its file."""
    opened = open_lines or (lambda: open_text(source))
    with unreadable(source, "text", is_text=True), opened() as stream:
        above, lines = _first_lines(source, stream)
        return _table(source, opened, where or str(source.path), above, lines)


def _first_lines(source: Source, stream: IO[str]) -> tuple[list[str], list[str]]:
    """Lines above the table, and its first lines."""
    above: list[str] = []
    lines: list[str] = []
    mark = _COMMENT if source.comment is None else re.compile(re.escape(source.comment))
    for text in stream:
        line = text.rstrip(_END)
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
        is_long = len(lines) > 2 and sum(map(len, lines)) > _HEAD_CHARS
        if len(lines) >= _HEAD_LINES or is_long:
            break
    if not lines and source.comment is None:  # all lines may begin with #
        return above[: source.skip], above[source.skip :]
    return above, lines


def _check_positions(lines: list[str], where: str) -> None:
    """Refuse columns at fixed positions of which rows leave some empty, or which touch: values would shift."""
    rows = [[match.span() for match in _FIELD.finditer(line)] for line in lines if line.strip()]
    fields = [line.split() for line in lines if line.strip()]
    touching = [field for row in fields for field in row if _RUN_TOGETHER.fullmatch(field)]
    touching += _touching_integers(rows, fields)
    if touching:
        raise DataError(
            f"{where} seems to have numbers without a blank between them, the first {touching[0]!r}. "
            f"{_OF_FIXED_WIDTH} If that is one number, pass delimiter=' ' (--delimiter ' ')."
        )
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


def _touching_integers(rows: list[list[tuple[int, int]]], fields: list[list[str]]) -> list[str]:
    """First numbers of the columns in which whole numbers seem to touch.

    Such a column is as wide as several of the narrowest one, its numbers fill all but one of these widths, and none of
    the parts begins with 0.
    """
    ends = {tuple(stop for _, stop in row) for row in rows}
    if len(ends) != 1 or not all(field.isdecimal() for row in fields for field in row):
        return []
    widths = np.diff([0, *ends.pop()])
    sizes, least = np.array([[*map(len, row)] for row in fields]), widths.min()
    if len(rows) < 2 or (widths - sizes)[:, 1:].min(initial=2) < 2:  # separated by single blanks
        return []
    is_wide = (widths > least) & (widths % least == 0) & (sizes.min(axis=0) > widths - least)
    return [
        fields[0][column]
        for column in np.flatnonzero(is_wide)
        if all(
            row[column][-place] != "0"
            for row in fields
            for place in range(least, len(row[column]), least)
        )
    ]


def _is_gct(above: list[str]) -> bool:
    return bool(above) and above[0].strip() in ("#1.2", "#1.3")


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
    rows = _rows(lines, delimiter)
    if not rows:
        raise DataError(f"{where} is empty; it needs one line per sample.")
    first, n_lines, notes = _heading(source, where, above, lines, rows, delimiter, decimal)
    body = rows[min(n_lines, 1) :]
    has_header, n_above = first is not None, len(above) + n_lines
    if len(rows[0]) == 1 and not has_header:  # blank lines are missing values
        n_above = len("".join(above).rstrip().splitlines())
    columns = [f"column {index}" for index in range(len(rows[0]))]
    left_out: dict[int, str] = {}
    has_row_names = False
    if first is not None:
        columns, left_out, has_row_names = _columns(where, first, body, decimal)
    is_gct, samples_in = _is_gct(above), source.samples_in
    if is_gct or (comment == "!" and columns[0] == "ID_REF"):
        samples_in = "columns"
    if is_gct:  # 1.3 counts rows and columns that describe samples and features
        sizes = [*map(int, above[1].split())]
        n_notes, n_rows = sizes[2:4] if len(sizes) > 3 else (1, 0)
        left_out |= dict.fromkeys(range(1, 1 + n_notes), "describes the features")
        n_above, body = n_above + n_rows, body[n_rows:]
    said = [
        f"{_NAMES.get(delimiter, repr(delimiter))}",
        "header" if has_header else "no header",
        *(["row names"] if has_row_names else []),
        *(["decimal comma"] if decimal == "," else []),
        *([f"{len(above)} line{'s' * (len(above) > 1)} above"] if above else []),
    ]
    return Table(
        source=source,
        where=where,
        view=source.view_name,
        columns=tuple(columns),
        head=body,
        blocks=lambda _: _blocks(
            source,
            opened,
            where,
            n_columns=len(columns),
            n_above=n_above,
            comment=comment,
            delimiter=delimiter,
        ),
        has_header=has_header,
        samples_in=samples_in,
        id_position=0 if has_row_names or is_gct else None,
        left_out=left_out,
        form=", ".join(said),
        notes=notes,
        decimal=decimal,
        is_by_blanks=delimiter is None,
    )


def _heading(
    source: Source,
    where: str,
    above: list[str],
    lines: list[str],
    rows: list[list[str]],
    delimiter: str | None,
    decimal: str,
) -> tuple[list[str] | None, int, tuple[str, ...]]:
    """Names of columns, None without a header; number of lines below `above` that they take; notes."""
    first, second = rows[0], rows[1] if len(rows) > 1 else []
    are_values = [_is_value(field, decimal) for field in first]
    last = above[-1] if above and source.header is not False and source.comment is None else ""
    if last.startswith("#") and not _is_gct(above) and all(are_values[1:]):  # of NumPy
        names = next(iter(_rows([last.lstrip("#")], delimiter)), [])
        are_text = all(names) and not all(is_number(name, decimal) for name in names)
        if len(names) == len(first) and are_text:
            return names, 0, ()
    has_header, notes = source.header, tuple[str, ...]()
    if has_header is None:
        of_samples = source.samples_in == "columns"
        has_header = len(second) - len(first) == 1 and not all(are_values)
        has_header = has_header or _has_header(where, first, second, decimal, of_samples=of_samples)
        what = "feature" if of_samples else "sample"
        notes = _notes_of_header(where, first, second, decimal, what, has_header=has_header)
    if not has_header:
        return None, 0, notes
    n_lines = 1 + "".join(next(_fields(lines, delimiter))).count("\n")
    name = first[0].removeprefix("#").lstrip() or first[0]
    return [name, *first[1:]], n_lines, notes


def _columns(
    where: str, names: list[str], body: list[list[str]], decimal: str
) -> tuple[list[str], dict[int, str], bool]:
    """Names of all columns, those that are left out and why, and whether the first has the names of rows."""
    left_out = dict.fromkeys(range(2, 6), "describes the samples") if names[:6] == _PLINK else {}
    if not body or len(body[0]) - len(names) != 1:
        if len(names) > 1 and not names[-1] and not any(row[-1] for row in body):
            left_out[len(names) - 1] = "empty"
        return names, left_out, False
    if not all(row[-1:] == [""] and len(row) > len(names) for row in body):
        return ["", *names], left_out, True  # R's write.table
    if any(row[0] and not _is_value(row[0], decimal) for row in body):
        raise DataError(
            f"{where}: each row has one field more than the header, and the last one is empty: either the "
            "rows end in a delimiter, or the header lacks a name of the first column. Correct the header."
        )
    return [*names, ""], {**left_out, len(names): "empty"}, False


def _fields(lines: Iterable[str], delimiter: str | None) -> Iterator[list[str]]:
    """Yield the fields of each row, of a blank one none or an empty one."""
    if delimiter is not None:
        yield from csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
        return
    for line in lines:
        if '"' not in line:
            yield line.split()
        else:
            yield [quoted.replace('""', '"') or bare for quoted, bare in _FIELD.findall(line)]


def _is_blank(row: list[str]) -> bool:
    return len(row) < 2 and not "".join(row).strip()


def _rows(lines: list[str], delimiter: str | None) -> list[list[str]]:
    """Stripped fields of the rows that are not blank."""
    rows = _fields(lines, delimiter)
    return [[field.strip() for field in row] for row in rows if not _is_blank(row)]


def _is_value(field: str, decimal: str) -> bool:
    """Return whether a field is a number, or says that one is missing."""
    return is_number(field, decimal) or field.lower() in MISSING


def _delimiter(
    source: Source, lines: list[str], told: str | None, where: str
) -> tuple[str | None, str]:
    """The delimiter (None: runs of blanks) and the decimal mark under which most fields are numbers."""
    if told is not None:
        return told, _share(_rows(lines, told), told, where, source.decimal)[1]
    filled = [line for line in lines if line.strip()]
    found: list[tuple[bool, float, str, str, list[list[str]]]] = []
    for mark in _DELIMITERS:
        if not all(mark in line for line in filled[1:]):
            continue
        try:
            rows = _rows(lines, mark)
        except csv.Error:  # a field of more than 128 KiB
            continue
        widths = {len(row) for row in rows[1:] or rows}
        if len(widths) != 1 or (width := widths.pop()) < 2:
            continue
        if abs(len(rows[0]) - width) > 1 or (mark == "," and len(rows[0]) == 1):
            continue
        share, decimal = _share(rows, mark, where, source.decimal)
        found.append((len(rows[0]) == width, share, mark, decimal, rows))
    by_blanks = _rows(lines, None)
    share_of_blanks, decimal_of_blanks = _share(by_blanks, None, where, source.decimal)
    if found:
        _, share, mark, decimal, rows = max(found, key=lambda one: one[:2])  # the first of equals
        several = any(_SEVERAL_NUMBERS.match(field) for row in rows for field in row)
        several |= mark == "," and share_of_blanks > 2 * share  # commas are decimal marks
        if not (several and share_of_blanks > share):
            return mark, decimal
        return None, decimal_of_blanks
    widths = {len(row) for row in by_blanks}
    are_numbers = len(widths) == 1 and widths != {1} and share_of_blanks > _MOST
    own = {".csv": ",", ".tsv": "\t"}.get(source.suffix, "\t")
    in_all = [m for m in (own, *_DELIMITERS) if filled and all(m in line for line in filled)]
    if in_all and not are_numbers:  # rows of several lengths: reading says which
        return in_all[0], source.decimal or "."
    return None, decimal_of_blanks


def _share(
    rows: list[list[str]], mark: str | None, where: str, told: str | None
) -> tuple[float, str]:
    """Share of fields that are numbers, and their decimal mark."""
    fields = [field for row in (rows[1:] or rows) for field in row]
    n_fields = max(1, len(fields))
    if told is not None:
        return sum(is_number(field, told) for field in fields) / n_fields, told
    dots = sum(map(is_number, fields))
    commas = 0 if mark == "," else sum(is_number(field, ",") for field in fields)
    if commas <= dots:
        return dots / n_fields, "."
    with_comma = [field for field in fields if "," in field and is_number(field, ",")]
    if all(_THOUSANDS.fullmatch(field) for field in with_comma):
        raise DataError(
            f"{where}: the comma in {with_comma[0]!r} may mark decimals or thousands. Set decimal=',' "
            "(--decimal), or write numbers without separators of thousands."
        )
    return commas / n_fields, ","


def _has_header(
    where: str, first: list[str], second: list[str], decimal: str, *, of_samples: bool
) -> bool:
    def is_text(field: str) -> bool:
        return field != "" and not _is_value(field, decimal)

    if any(map(is_text, first[1:])):
        return True
    has_ids = is_text(first[0])
    digits, below = (first[1:], second[1:]) if has_ids or not first[0] else (first, second)
    are_others = not all(map(str.isdecimal, below))
    if first[0] == "" and digits and all(map(str.isdecimal, digits)):
        return _is_range(digits) or is_text((second or [""])[0]) or are_others
    if has_ids:
        is_named = id_strength(first[0]) > 2 or first[0].lower() in (*_FIRST_NAMES, *LABEL_COLUMNS)
        if is_named or (second and _is_value(second[0], decimal) and second[0]):
            return True
        if of_samples and len(digits) >= _NUMBERED and _are_odd(digits, [""]):
            is_padded = any(field[0] == "0" and len(field) > 1 for field in digits)
            if is_padded or _are_odd(digits, below):
                return True
            raise _unclear(where, first)
    # Three or more consecutive whole numbers above others, from 0 (what a frame writes for columns without
    # names) or behind the heading of text ids, number or date the columns.
    if len(digits) < _NUMBERED or not all(map(str.isdecimal, digits)) or not _is_range(digits):
        return False
    starts_at_0 = int(digits[0]) == 0
    is_sure = are_others and (starts_at_0 or has_ids)
    if not is_sure and (are_others or starts_at_0):
        raise _unclear(where, first)
    return is_sure


def _is_range(digits: list[str]) -> bool:
    start = int(digits[0])
    return [int(field) for field in digits] == list(range(start, start + len(digits)))


def _unclear(where: str, first: list[str]) -> DataError:
    return DataError(
        f"{where}: the first line, {_shown(first)}, may be column numbers or the first "
        "sample. Set header=True or header=False (--header, --no-header)."
    )


def _notes_of_header(
    where: str, first: list[str], second: list[str], decimal: str, what: str, *, has_header: bool
) -> tuple[str, ...]:
    """Return a note if a first line of numbers may be a header or a sample (or feature)."""
    has_ids = not _is_value(first[0], decimal)
    numbers = first[1:] if has_ids or not first[0] else first
    if not numbers or not all(field and _is_value(field, decimal) for field in numbers):
        return ()
    if has_header:
        is_sure = first[0].lower() in _FIRST_NAMES
        taken = f"the names of columns (--no-header if it is a {what})"
    else:
        is_sure = not has_ids and not _are_odd(numbers, second[-len(numbers) :])
        taken = f"the first {what} (--header if it names the columns)"
    return () if is_sure else (f"{where}: first line {_shown(first)} taken as {taken}.",)


def _are_odd(numbers: list[str], below: list[str]) -> bool:
    """Return whether fields are whole numbers that differ, above others: years, sizes, positions."""
    are_others = are_whole(numbers) and not are_whole(below)
    return are_others and 1 < len(set(numbers)) == len(numbers)


def _shown(fields: list[str]) -> str:
    return ",".join(fields[:_SHOWN]) + (",..." if len(fields) > _SHOWN else "")


def _blocks(
    source: Source,
    opened: Callable[[], IO[str]],
    where: str,
    *,
    n_columns: int,
    n_above: int,
    comment: str | None,
    delimiter: str | None,
) -> Iterator[Block]:
    """Columns of some rows at a time, of which the first is below `n_above` lines."""

    def lines(stream: IO[str]) -> Iterator[str]:
        n_blank = 0
        for text in itertools.islice(stream, n_above, None):
            line = text.rstrip(_END)
            if comment is not None and line.startswith(comment):
                continue
            if n_columns == 1 and not line.strip():
                n_blank += 1
                continue
            # a blank line among rows of one field is a missing value
            yield from itertools.repeat('""\n', n_blank)
            yield line
            n_blank = 0

    size = max(1, min(_BLOCK_ROWS, _LARGE_BLOCK_FIELDS // n_columns), _BLOCK_FIELDS // n_columns)
    first = 0
    with unreadable(source, "text", is_text=True), opened() as stream:
        rows = _fields(lines(stream), delimiter)
        filled = (row for row in rows if n_columns == 1 or not _is_blank(row))
        while block := [*itertools.islice(filled, size)]:
            for index, row in enumerate(block, first):
                if len(row) != n_columns:
                    remedy = "Put quotes around fields that have the delimiter in them, or"
                    if len(row) < n_columns:
                        remedy = "Write the empty cells of the row too, remove the row if it is no sample, or"
                        if delimiter is None:
                            remedy = f"If numbers touch: {_OF_FIXED_WIDTH} Else"
                    raise DataError(
                        f"{where}: row {index} (counted from 0 below the header) has {len(row)} fields where the "
                        f"first line has {n_columns}, separated by {_NAMES.get(delimiter, repr(delimiter))}. {remedy} "
                        "leave out lines above the header (--skip) or comments (--comment), or tell the delimiter "
                        "(--delimiter)."
                    )
            first += len(block)
            yield [*zip(*block, strict=True)]
