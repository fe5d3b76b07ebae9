"""Text tables: the first lines tell the dialect, NumPy reads numbers, and Python's csv module splits other rows with quotes."""

from __future__ import annotations

import functools
import itertools
import re
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import IO

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.base import Source, open_text, unreadable
from mscam_dask.data.readers.dialect import (
    OF_FIXED_WIDTH,
    Dialect,
    check_decimal,
    check_positions,
    dialect_of,
    fields_of,
    has_header,
    is_second_header,
    names_ids,
    shown_fields,
    split_rows,
)
from mscam_dask.data.readers.fields import are_whole, is_number, is_value
from mscam_dask.data.readers.roles import Block, Table
from mscam_dask.data.views.conversion import CERTAIN, id_strength
from mscam_dask.errors import DataError

_HEAD_LINES = 50
_HEAD_CHARS = 2**20
_BLOCK_FIELDS = 2**14  # blocks of rows that fit into a cache are read fastest
_COMMENT = re.compile(r"[!^]|#(?!N/?A\b)", re.IGNORECASE)
_OF_SAMPLES = {  # before the genotypes of PLINK's .raw files, and the counts of mothur
    ("FID", "IID", "PAT", "MAT", "SEX", "PHENOTYPE"): (2, 3, 4, 5),
    ("label", "Group", "numOtus"): (0, 2),
}
_OF_OTHERS = re.compile(r"\s*(<(!doctype|html|table|\?xml|meta)|[\[{]\s*[\"\[{])", re.IGNORECASE)
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\s*$')


def text_table(
    source: Source, open_lines: Callable[[], IO[str]] | None = None, *, where: str = ""
) -> Table:
    """Find dialect, header and names of columns of a text table; `open_lines` replaces its file."""
    opened, where = open_lines or (lambda: open_text(source)), where or str(source.path)
    with unreadable(source, "text"), opened() as stream:
        above, lines = _first_lines(source, stream)
        return _table(source, opened, where, above, lines)


def _first_lines(source: Source, stream: IO[str]) -> tuple[list[str], list[str]]:
    """Lines above the table, and its first lines."""
    above: list[str] = []
    lines: list[str] = []
    mark = _COMMENT if source.comment is None else re.compile(re.escape(source.comment))
    for line in stream:
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


def _is_gct(above: list[str]) -> bool:
    return bool(above) and above[0].strip() in ("#1.2", "#1.3")


# header -----------------------------------------------------------------------------------------


def _table(
    source: Source, opened: Callable[[], IO[str]], where: str, above: list[str], lines: list[str]
) -> Table:
    """The table below some lines `above` it; `lines` are its first ones."""
    comment = source.comment or ("!" if any(line.startswith("!") for line in above) else None)
    if comment is not None:
        lines = [line for line in lines if not line.startswith(comment)]
    dialect, doubt = _checked_dialect(source, where, above, lines)
    decimal, rows = dialect.decimal, dialect.rows
    first, n_lines, note = _heading(source, where, above, lines, dialect)
    body, n_above = rows[min(n_lines, 1) :], len(above) + n_lines
    while len(body) > 1 and not any(body[-1]):  # which may be below the table
        body.pop()
    if len(rows[0]) == 1 and first is None:  # blank lines are missing values
        n_above = max((n for n, line in enumerate(above, 1) if line.strip()), default=0)
    columns = [f"column {index}" for index in range(len(rows[0]))]
    left_out: dict[int, str] = {}
    has_row_names = False
    if first is not None:
        columns, left_out, has_row_names = _columns(where, first, body, dialect)
    are_numbers = are_whole([row[0] for row in body])
    id_position = 0 if has_row_names and not are_numbers else None
    is_gct, samples_in = _is_gct(above), source.samples_in
    if is_gct or (comment == "!" and columns[0] == "ID_REF"):
        samples_in = "columns"
    if is_gct:  # 1.3 counts rows and columns that describe samples and features
        sizes = [*map(int, above[1].split())]
        n_notes, n_rows = sizes[2:4] if len(sizes) > 3 else (1, 0)
        id_position = columns.index("Name") if "Name" in columns else 0  # GTEx numbers the rows
        places = range(1 + id_position + n_notes)
        left_out |= dict.fromkeys({*places} - {id_position}, "describes the features")
        n_above, body = n_above + n_rows, body[n_rows:]
    n_apart = len(above) - (first is not None and n_lines == 0)
    said = [
        dialect.name,
        "no header" if first is None else "header",
        *(["row names"] if has_row_names else []),
        *(["decimal comma"] if decimal == "," else []),
        *([f"{n_apart} line{'s' * (n_apart > 1)} above"] if n_apart else []),
    ]
    rest, width = replace(source, skip=n_above, comment=comment), len(columns)
    return Table(
        source=source,
        where=where,
        view=source.view_name,
        columns=tuple(columns),
        head=body,
        blocks=functools.partial(_blocks, rest, opened, where, replace(dialect, width=width)),
        has_header=first is not None,
        samples_in=samples_in,
        id_position=id_position,
        left_out=left_out,
        form=", ".join(said),
        notes=tuple(filter(None, (note, doubt))),
        decimal=decimal,
        is_by_blanks=dialect.delimiter is None,
    )


def _checked_dialect(
    source: Source, where: str, above: list[str], lines: list[str]
) -> tuple[Dialect, str]:
    """The dialect of the first lines, and a note on decimal points in doubt; what is no table of text is refused."""
    if any("\0" in line for line in lines[:2]) or (lines and _OF_OTHERS.match(lines[0])):
        raise DataError(
            f"{where} is a web page, XML, JSON or text with NUL characters, as UTF-16 without a byte order mark has: its first "
            f"line is {shown_fields(lines[:1])!a}. Save the table as CSV in UTF-8."
        )
    told = [match[1] for line in above if (match := _SEPARATOR_LINE.match(line))]
    lines = lines if any(map(str.strip, lines)) else []
    dialect = dialect_of(source, lines, source.delimiter or next(iter(told), None))
    if not dialect.rows:
        raise DataError(f"{where} is empty; it needs one line per sample.")
    doubt = "" if source.decimal else check_decimal(dialect, where)
    if dialect.delimiter is None:
        check_positions(lines, where)
    return dialect, doubt


def _heading(
    source: Source, where: str, above: list[str], lines: list[str], dialect: Dialect
) -> tuple[list[str] | None, int, str]:
    """Names of columns, None without a header; number of lines below `above` that they take; a note."""
    rows, decimal = dialect.rows, dialect.decimal
    first, second = rows[0], rows[1] if len(rows) > 1 else []
    are_values = [is_value(field, decimal) for field in first]
    last = above[-1] if above and source.header is not False and source.comment is None else ""
    are_data = 2 * sum(are_values) >= len(first) and (are_values[0] or not names_ids(first[0]))
    if last.startswith("#") and are_data:  # of NumPy
        names = next(iter(split_rows([last.lstrip("#")], dialect.delimiter)), [])
        is_row = dialect.delimiter is not None and len(names) > 2  # not a remark, or "key: value"
        has_first = first[0].isdecimal() or any(names[:1]) or is_row
        are_text = all(names[1:]) and not all(is_number(name, decimal) for name in names)
        if len(names) == len(first) and has_first and are_text and (is_row or ": " not in last):
            return names, 0, ""
    header, note = source.header, ""
    is_title = header is not False and len(first) > 2 and not any(first[1:])
    if is_title and not all(
        is_value(field, decimal) for row in rows for field in (first[0], *row[1:])
    ):
        raise DataError(
            f"{where}: the first line, {shown_fields(first)}, has no names of columns. Leave it out (--skip {len(above) + 1}), "
            "write them in it, or set header=False (--no-header) if it is a sample."
        )
    if header is None:
        on_columns = source.samples_in == "columns"
        header, note = has_header(where, lines, rows, decimal, on_columns=on_columns)
        if header and is_second_header(rows, decimal):
            raise DataError(
                f"{where}: the first line, {shown_fields(first)}, stands above one that seems to name the columns, "
                f"{shown_fields(second)}. Leave it out (--skip), or set header=True (--header) if it names the columns."
            )
    if not header:
        return None, 0, note
    n_lines = 1 + "".join(next(fields_of(lines, dialect.delimiter))).count("\n")
    name = first[0].removeprefix("#").lstrip() or first[0]
    return [name, *first[1:]], n_lines, note


def _columns(
    where: str, names: list[str], body: list[list[str]], dialect: Dialect
) -> tuple[list[str], dict[int, str], bool]:
    """Names of all columns, those that are left out and why, and whether the first has the names of rows."""
    known = (places for start, places in _OF_SAMPLES.items() if (*names[: len(start)],) == start)
    left_out = dict.fromkeys(next(known, ()), "describes the samples")
    if not body or len(body[0]) - len(names) != 1:
        filled = (place for row in (names, *body) for place, field in enumerate(row) if field)
        left_out |= dict.fromkeys(range(1 + max(filled, default=0), len(names)), "empty")
        return names, left_out, False
    if not all(row[-1:] == [""] and len(row) > len(names) for row in body):
        are_ids = id_strength(names[0]) == CERTAIN and any(row[0] != row[1] for row in body)
        if are_ids and dialect.delimiter in (",", None) and not are_whole([row[0] for row in body]):
            raise DataError(
                f"{where}: each row has one field more than the header, which begins with {names[0]!r}: commas or blanks "
                "may be parts of numbers or text. Write decimal points and quotes around text, or a name of the first column into the header."
            )
        return ["", *names], left_out, True  # R's write.table
    if any(row[0] and not is_value(row[0], dialect.decimal) for row in body):
        raise DataError(
            f"{where}: each row has one field more than the header, and the last one is empty: either the "
            "rows end in a delimiter, or the header lacks a name of the first column. Correct the header."
        )
    return [*names, ""], {**left_out, len(names): "empty"}, False


# rows -------------------------------------------------------------------------------------------


def _blocks(
    source: Source,
    opened: Callable[[], IO[str]],
    where: str,
    dialect: Dialect,
    texts: Sequence[int],
    numbers: Sequence[int],
) -> Iterator[Block]:
    """Columns of some rows at a time."""
    size, first = max(1, _BLOCK_FIELDS // dialect.width), 0
    with unreadable(source, "text"), opened() as stream:
        lines = _lines(stream, source, dialect, "" if texts else where)
        while chunk := [*itertools.islice(lines, size)]:
            if (block := _plain_rows(chunk, dialect, texts, numbers)) is not None:
                first += len(chunk)
                yield block
                continue
            rows = [*fields_of(chunk, dialect.delimiter, lines)]
            for index, row in enumerate(rows, first):
                if len(row) != dialect.width:
                    raise _other_width(where, dialect, row, index)
            first += len(rows)
            yield [*zip(*rows, strict=True)], None


def _plain_rows(
    lines: list[str], dialect: Dialect, texts: Sequence[int], numbers: Sequence[int]
) -> Block | None:
    """Columns of rows in which NumPy reads the same numbers as `float` and only whole fields have quotes; None for other rows."""
    mark, text = dialect.delimiter, "".join(lines)
    if mark is None or mark == " " or dialect.decimal != "." or dialect.width == 1 or not numbers:
        return None
    between = re.escape(mark)
    if '"' in text:
        text = re.sub(rf'"(?<![^{between}\n]")([^"{between}\n]*)"(?![^{between}\n])', r"\1", text)
        lines = text.removesuffix("\n").split("\n")
    if any(line.count(mark) != dialect.width - 1 for line in lines) or '"' in text:
        return None
    values = _loaded(lines, mark, numbers)
    if values is None:
        missing = rf"{between}(NA|NaN|nan)?(?![^{between}\n])"
        filled = re.sub(missing, lambda _: f"{mark}nan", text)
        values = _loaded(filled.split("\n"), mark, numbers)
    if values is None or np.isinf(values).any():
        return None
    values[np.isnan(values)] = np.nan  # -nan has another sign
    fields = [line.split(mark, max(texts) + 1) for line in lines] if texts else []
    return {place: [row[place] for row in fields] for place in texts}, values


def _loaded(lines: list[str], mark: str, numbers: Sequence[int]) -> NDArray[np.float64] | None:
    try:
        return np.loadtxt(lines, delimiter=mark, usecols=numbers, comments=None, ndmin=2)
    except ValueError:
        return None


def _lines(stream: IO[str], source: Source, dialect: Dialect, of_numbers: str) -> Iterator[str]:
    """Lines below the header; a blank one among rows of one field is a missing value, and none is between blocks `of_numbers`.

    Rows at the end without a field, as Excel writes below a table, are none beside text.
    """
    n_blank = n_rows = 0
    empty: list[str] = []
    delimiter = dialect.delimiter or ""
    blanks = f"{string.whitespace}\u00a0".replace(delimiter, "")
    for line in itertools.islice(stream, source.skip, None):
        if source.comment is not None and line.startswith(source.comment):
            continue
        if not line.strip(blanks) or (dialect.delimiter is None and line.isspace()):
            n_blank += 1
            continue
        if not of_numbers and not line.strip(blanks + delimiter):
            empty.append(line)
            continue
        yield from empty
        empty.clear()
        if dialect.width > 1 and n_blank and n_rows > 1 and of_numbers:
            raise DataError(
                f"{of_numbers}: blank lines separate blocks of rows without sample ids, the first in front of {shown_fields([line])}. "
                "Remove these lines if the blocks are one table, or write each block to a file of its own."
            )
        n_rows = 1 if n_blank else n_rows + 1
        yield from itertools.repeat('""\n', n_blank if dialect.width == 1 else 0)
        n_blank = 0
        yield line


def _other_width(where: str, dialect: Dialect, row: list[str], index: int) -> DataError:
    of_blanks = f" If numbers touch: {OF_FIXED_WIDTH}" if dialect.delimiter is None else ""
    return DataError(
        f"{where}: row {index} (counted from 0 below the header), {shown_fields(row)}, has {len(row)} field(s) where the "
        f"first line, {shown_fields(dialect.rows[0])}, has {dialect.width}, separated by {dialect.name}.{of_blanks} Remove the "
        "row if it is no sample, write its empty cells too (all of a triangle: as.matrix in R), put quotes around fields that have "
        "the delimiter in them, close all quotes, or leave out lines above the header (--skip) or comments (--comment), or "
        "tell the delimiter (--delimiter)."
    )
