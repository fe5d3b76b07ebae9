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
    check_widths,
    dialect_of,
    fields_of,
    shown_fields,
    split_rows,
)
from mscam_dask.data.readers.fields import (
    are_padded,
    are_rising,
    are_whole,
    is_number,
    is_value,
    is_whole_number,
    number_of,
)
from mscam_dask.data.readers.roles import Block, Table
from mscam_dask.data.views.conversion import CERTAIN, id_strength, label_rank
from mscam_dask.errors import DataError

_HEAD_LINES = 50
_HEAD_CHARS = 2**20
_BLOCK_FIELDS = 2**14  # blocks of rows that fit into a cache are read fastest
_RISING = 8  # numbers of a sample that hardly rise or fall by chance
_NUMBERED = 3  # columns from which consecutive numbers are hardly a sample
_COMMENT = re.compile(r"[!^]|#(?!N/?A\b)", re.IGNORECASE)
_DIRECTIVES = ("#q2:", "#!{")  # of QIIME 2 and Perseus, below the header
_OF_SAMPLES = {  # before the genotypes of PLINK's .raw files, and the counts of mothur
    ("FID", "IID", "PAT", "MAT", "SEX", "PHENOTYPE"): (2, 3, 4, 5),
    ("label", "Group", "numOtus"): (0, 2),
}
_OF_OTHERS = re.compile(r"\s*(<(!doctype|html|table|\?xml|meta)|[\[{]\s*[\"\[{])", re.IGNORECASE)
_QUOTED = re.compile(r'"[^"]*"')
_QUOTED_NUMBER = re.compile(r'"[-+.,]?\d[-+\d.,eE]*"')
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\s*$')


def text_table(
    source: Source, open_lines: Callable[[], IO[str]] | None = None, *, where: str = ""
) -> Table:
    """Find dialect, header and names of columns of a text table; `open_lines` replaces its file."""
    opened, where = open_lines or (lambda: open_text(source)), where or str(source.path)
    with unreadable(source, "text", is_text=True), opened() as stream:
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
    if any("\0" in line for line in lines[:2]) or (lines and _OF_OTHERS.match(lines[0])):
        raise DataError(
            f"{where} is a web page, XML, JSON or text with NUL characters, as UTF-16 without a byte order mark has: its first "
            f"line is {shown_fields(lines[:1])!a}. Save the table as CSV in UTF-8."
        )
    told = [match[1] for line in above if (match := _SEPARATOR_LINE.match(line))]
    known = [("!", above), *((mark, lines) for mark in _DIRECTIVES)]
    comment = source.comment or next(
        (mark for mark, some in known if any(line.startswith(mark) for line in some)), None
    )
    if comment is not None:
        lines = [line for line in lines if not line.startswith(comment)]
    lines = lines if any(map(str.strip, lines)) else []
    dialect = dialect_of(source, lines, source.delimiter or next(iter(told), None))
    delimiter, decimal, rows = dialect.delimiter, dialect.decimal, dialect.rows
    if not rows:
        raise DataError(f"{where} is empty; it needs one line per sample.")
    if source.delimiter is None:
        check_widths(dialect, lines, len(above), where)
    doubt = "" if source.decimal else check_decimal(dialect, where)
    if delimiter is None:
        check_positions(lines, where)
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
        columns, left_out, has_row_names = _columns(where, first, body, decimal)
    is_gct, samples_in, id_position = _is_gct(above), source.samples_in, 0
    if is_gct or (comment == "!" and columns[0] == "ID_REF"):
        samples_in = "columns"
    if is_gct:  # 1.3 counts rows and columns that describe samples and features
        sizes = [*map(int, above[1].split())]
        n_notes, n_rows = sizes[2:4] if len(sizes) > 3 else (1, 0)
        id_position = columns.index("Name") if "Name" in columns else 0  # GTEx numbers the rows
        places = range(1 + id_position + n_notes)
        left_out |= dict.fromkeys({*places} - {id_position}, "describes the features")
        n_above, body = n_above + n_rows, body[n_rows:]
    number_rows = are_whole([row[0] for row in body])
    causes = {
        ",": "a comma may be a decimal mark. Write decimal points",
        None: "ids may have blanks in them. Write quotes around ids",
    }
    if (
        has_row_names
        and delimiter in causes
        and not number_rows
        and id_strength(columns[1]) == CERTAIN
        and any(row[0] != row[1] for row in body)
    ):
        raise DataError(
            f"{where}: each row has one field more than the header, which begins with {columns[1]!r}: {causes[delimiter]}, or a "
            "name of the first column into the header."
        )
    n_apart = len(above) - (first is not None and n_lines == 0)
    said = [
        dialect.name,
        "no header" if first is None else "header",
        *(["row names"] if has_row_names else []),
        *(["decimal comma"] if decimal == "," else []),
        *([f"{n_apart} line{'s' * (n_apart > 1)} above"] if n_apart else []),
    ]
    return Table(
        source=source,
        where=where,
        view=source.view_name,
        columns=tuple(columns),
        head=body,
        blocks=functools.partial(
            _blocks,
            replace(source, skip=n_above, comment=comment),
            opened,
            where,
            replace(dialect, width=len(columns)),
        ),
        has_header=first is not None,
        samples_in=samples_in,
        id_position=id_position if is_gct or (has_row_names and not number_rows) else None,
        left_out=left_out,
        form=", ".join(said),
        notes=tuple(filter(None, (note, doubt))),
        decimal=decimal,
        is_by_blanks=delimiter is None,
    )


def _heading(
    source: Source, where: str, above: list[str], lines: list[str], dialect: Dialect
) -> tuple[list[str] | None, int, str]:
    """Names of columns, None without a header; number of lines below `above` that they take; a note."""
    rows, decimal = dialect.rows, dialect.decimal
    first, second = rows[0], rows[1] if len(rows) > 1 else []
    are_values = [is_value(field, decimal) for field in first]
    last = above[-1] if above and source.header is not False and source.comment is None else ""
    are_data = 2 * sum(are_values) >= len(first) and (are_values[0] or not _names_ids(first[0]))
    if last.startswith("#") and ": " not in last and are_data:  # of NumPy
        names = next(iter(split_rows([last.lstrip("#")], dialect.delimiter)), [])
        has_first = first[0].isdecimal() or any(names[:1])
        are_text = all(names[1:]) and not all(is_number(name, decimal) for name in names)
        if len(names) == len(first) and has_first and are_text:
            return names, 0, ""
    has_header, note = source.header, ""
    is_blank_behind = len(first) > 2 and not any(first[1:])
    if is_blank_behind and not all(is_value(field, decimal) for row in rows for field in row[1:]):
        raise DataError(
            f"{where}: the first line, {shown_fields(first)}, has no names of columns. Leave it out (--skip {len(above) + 1}), "
            "or write them in it."
        )
    if has_header is None:
        is_short = len(second) - len(first) == 1 and not all(are_values)  # R's write.table
        if is_short or _are_quoted_apart(lines, first):
            has_header = True
        else:
            has_header, note = _has_header(source, where, rows, decimal)
        named = second[0 if second and is_number(second[0], decimal) else 1 :]
        are_odd = len({*first}) < len(first) or are_rising(named)
        are_odd |= len(named) == len(second) and len({*named}) > 1  # without an id
        are_names = are_odd and _name_decimals(named, rows[2:])
        below = [row[-len(named) :] for row in rows[2:] if len(row) == len(second)]
        are_names |= _stand_out(named, below, decimal) and (
            len(named) >= _RISING or _are_outside(named, below, decimal)
        )
        if has_header and are_names:
            raise DataError(
                f"{where}: the first line, {shown_fields(first)}, stands above one that seems to name the columns, "
                f"{shown_fields(second)}. Leave it out (--skip), or set header=True (--header) if it names the columns."
            )
    if not has_header:
        return None, 0, note
    n_lines = 1 + "".join(next(fields_of(lines, dialect.delimiter))).count("\n")
    name = first[0].removeprefix("#").lstrip() or first[0]
    return [name, *first[1:]], n_lines, note


def _are_quoted_apart(lines: list[str], first: list[str]) -> bool:
    """Return whether quotes are around all fields of the first line, and around none of the numbers below, as R writes names."""
    return (
        len(lines) > 1
        and lines[0].count('"') == 2 * len(first)
        and not any(map(_QUOTED_NUMBER.search, lines[1:]))
        and any(map(str.isdigit, _QUOTED.sub("", "".join(lines[1:]))))
    )


def _has_header(
    source: Source, where: str, rows: list[list[str]], decimal: str
) -> tuple[bool, str]:
    """Whether a first line names the columns, and a note if it may be otherwise; an error where that is unclear.

    Text names the columns if it is that of ids or labels, or stands above numbers or classes. Without any, a line is a
    sample if it has text of the lines below, or numbers that repeat or are not whole.
    """

    def is_text(field: str) -> bool:
        return field != "" and not is_value(field, decimal)

    first, body = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    below = [*zip(*body, strict=True)] or [()] * len(first)
    columns = [(name, own, any(map(is_text, own))) for name, own in zip(first, below, strict=True)]
    known = [name for name, own, _ in columns if is_text(name) and name in own]
    texts = [
        (name, own, has_text)
        for name, own, has_text in columns
        if is_text(name) and any(map(str.isalnum, name)) and name not in own  # unlike "?"
    ]
    has_ids, has_texts = is_text(first[0]), any(map(is_text, first[1:]))
    names = first[1:] if first[0] == "" else [*itertools.dropwhile(is_text, first)]
    is_frame = names == [*map(str, range(len(names)))]  # without names of columns
    if (
        (first[0] == "" and (has_texts or is_frame or any(is_text(row[0]) for row in body[:1])))
        or (has_ids and _names_ids(first[0]))
        or (has_texts and first in body)
        or any(
            _names_ids(name)
            or (has_texts and (id_strength(name) or (has_text and 2 * len({*own}) <= len(own))))
            for name, own, has_text in texts
        )
    ):
        return True, ""
    places = [
        place
        for place, (name, _, has_text) in enumerate(columns)
        if is_number(name, decimal) and not has_text
    ]
    numbers, *others = [[row[place] for place in places] for row in (first, *body)]
    are_above = any(not has_text and (any(own[:1]) or has_texts) for _, own, has_text in texts)
    is_frame &= len(names) >= _NUMBERED
    known_numbers = ([text for text in row if is_number(text, decimal)] for row in others)
    is_above_decimals = not are_whole(next(filter(None, known_numbers), []))
    is_whole, stands_out = are_whole(numbers), _stand_out(numbers, others, decimal)
    differ = len({*numbers}) == len(numbers)
    of_samples = source.samples_in != "rows"
    if is_frame and body and not known and not all(map(str.isdecimal, body[0][-len(names) :])):
        has_header, is_unclear = True, False
    elif first[0] == "" and are_whole(names):
        has_header, is_unclear = is_above_decimals, not is_above_decimals
    elif are_above or not numbers:
        has_header = are_above or (has_texts and not known)
        is_unclear = has_header and not (is_whole or stands_out)
    elif known or not (is_whole or stands_out) or not differ:
        has_header = is_unclear = False
    else:
        may_name = is_whole and len(numbers) >= _NUMBERED
        is_certain = has_ids and (of_samples or _name_decimals(numbers, others))
        has_header = may_name and (
            (is_above_decimals and is_certain) or (of_samples and are_padded(numbers))
        )
        may_name &= is_above_decimals or is_frame or (of_samples and has_ids)
        may_name |= has_texts or (stands_out and len(numbers) >= _RISING)
        is_unclear = may_name and not has_header
    if is_unclear:
        raise DataError(
            f"{where}: the first line, {shown_fields(first)}, may name the columns or be the first "
            "sample. Set header=True or header=False (--header, --no-header)."
        )
    what = "feature" if of_samples else "sample"
    if has_header:
        doubt = bool(numbers) and not has_texts and first[0] != ""
        taken = f"the names of columns (--no-header if it is a {what})"
    else:
        is_odd = is_above_decimals and is_whole and differ
        are_decimals = len(body) >= _RISING and not any(map(are_whole, body))
        is_odd &= len(first) > 1 or are_decimals
        is_full = len(numbers) >= max(1, len(first) - 1)
        doubt = has_texts or (is_full and (has_ids or stands_out or is_odd))
        taken = f"the first {what} (--header if it names the columns)"
    note = f"{where}: first line {shown_fields(first)} taken as {taken}."
    return has_header, note if doubt else ""


def _name_decimals(numbers: list[str], rows: list[list[str]]) -> bool:
    """Return whether three or more whole numbers stand above columns of which most fields are not whole, as names do."""
    columns = zip(*(row[-len(numbers) :] for row in rows), strict=True)
    return (
        len(numbers) >= _NUMBERED
        and all(map(str.isdecimal, numbers))
        and bool(rows)
        and all(2 * sum(map(is_whole_number, own)) <= len(own) for own in columns)
    )


def _names_ids(name: str) -> bool:
    """Return whether a field names the first column of a table."""
    return id_strength(name) == CERTAIN or name.lower() in ("index", "name") or label_rank(name) > 0


def _stand_out(numbers: list[str], rows: list[list[str]], decimal: str) -> bool:
    """Return whether numbers rise or fall, as wavelengths, masses and times in a header do, but not those below."""
    return any(
        are_rising(numbers[::step], decimal)
        and not any(are_rising(row[::step], decimal) for row in rows[:_NUMBERED])
        for step in (1, -1)
    )


def _are_outside(numbers: list[str], rows: list[list[str]], decimal: str) -> bool:
    """Return whether each number is outside of those below it, in many rows that are not sorted by it."""
    columns = zip(numbers, *rows, strict=True)
    known = [
        [number_of(text, decimal) for text in own if is_number(text, decimal)] for own in columns
    ]
    return len(rows) >= _RISING and all(
        len(own) > 1
        and not min(own[1:]) <= own[0] <= max(own[1:])
        and sorted(own) not in (own, own[::-1])
        for own in known
    )


def _columns(
    where: str, names: list[str], body: list[list[str]], decimal: str
) -> tuple[list[str], dict[int, str], bool]:
    """Names of all columns, those that are left out and why, and whether the first has the names of rows."""
    known = (places for start, places in _OF_SAMPLES.items() if (*names[: len(start)],) == start)
    left_out = dict.fromkeys(next(known, ()), "describes the samples")
    if not body or len(body[0]) - len(names) != 1:
        filled = (place for row in (names, *body) for place, field in enumerate(row) if field)
        left_out |= dict.fromkeys(range(1 + max(filled, default=0), len(names)), "empty")
        return names, left_out, False
    if not all(row[-1:] == [""] and len(row) > len(names) for row in body):
        return ["", *names], left_out, True  # R's write.table
    if any(row[0] and not is_value(row[0], decimal) for row in body):
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
    with unreadable(source, "text", is_text=True), opened() as stream:
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
    remedy = (
        "Put quotes around fields that have the delimiter in them, or write the whole matrix of a triangle "
        "(as.matrix of a dist in R, scipy.spatial.distance.squareform)"
    )
    if any("\n" in field for field in row):
        remedy = "If a quote is not closed there, correct it"
    elif row[0].startswith(("#", "%", "!")):
        remedy = f"If it is a comment, set --comment '{row[0][0]}'"
    elif len(row) < dialect.width:
        remedy = "Remove the row if it is no sample, or write its empty cells too (all of a triangle: as.matrix in R)"
        if dialect.delimiter is None:
            remedy = f"If numbers touch: {OF_FIXED_WIDTH} Else remove the row if it is no sample"
    return DataError(
        f"{where}: row {index} (counted from 0 below the header), {shown_fields(row)}, has {len(row)} field(s) where the "
        f"first line has {dialect.width}, separated by {dialect.name}. {remedy}, or leave out lines above "
        "the header (--skip) or comments (--comment), or tell the delimiter (--delimiter)."
    )
