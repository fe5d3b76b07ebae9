"""Text tables, separated by comma, tab or white space, with or without header and id column."""

from __future__ import annotations

import inspect
import itertools
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import islice, repeat
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.base import (
    Selection,
    Source,
    SourceContents,
    open_bytes,
    open_text,
    unreadable,
)
from mscam_dask.data.readers.text_layout import (
    LABEL_COLUMNS,
    MISSING,
    Layout,
    is_number,
    layout_of,
    lines_of,
)
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.errors import ConfigurationError, DataError

__all__ = [
    "PlainTable",
    "read_labels",
    "read_plain_table",
    "read_sample_columns",
    "read_text",
]

# Of smaller files the import of pandas would take longer than the careful path.
_LARGE_BYTES = 2**18

# pandas takes a quarter of a millisecond for each column, which only long ones repay.
_MANY_COLUMNS = 1000
_LONG_COLUMN_BYTES = 2000


def read_labels(file: Path) -> tuple[NDArray[Any], tuple[str, ...] | None]:
    """Read labels from a .npy file, a text file with one label per line, or one of ids and labels.

    A first line that is no number above lines that all are is a heading.

    Returns
    -------
    labels
        One for each line.
    ids
        Ids of the samples, where the file has a column of ids (`layout_of`) beside that of labels.

    Raises
    ------
    DataError
        When the file cannot be read or holds variables (.mat, .npz), a line has other fields or is
        blank above others.
    """
    source = Source(file)
    if file.suffix.lower() in (".mat", ".npz"):
        raise DataError(
            f"{file} cannot be read as labels; allowed are text with one label per line, and .npy. Pass it "
            "as a source beside the files of the views, and name the variable of the labels in it: "
            "labels=NAME (--labels NAME)."
        )
    if file.suffix == ".npy":
        with unreadable(source, "a NumPy array (.npy) of labels"):
            return np.asarray(np.load(file, allow_pickle=False)), None
    with unreadable(source, "labels, one per line", is_text=True):
        with open_text(source) as stream:
            text = stream.read().strip()
        lines = [line.strip().strip('"') for line in text.splitlines()]
        several = [index for index, line in enumerate(lines) if "," in line or "\t" in line]
        if several:
            return _labels_by_id(source, several[0])
    if len(lines) > 1 and not is_number(lines[0]) and all(map(is_number, lines[1:])):
        lines = lines[1:]
    return parsed_labels(lines, str(file)), None


def _labels_by_id(source: Source, line: int) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Labels and ids of a table of these two columns."""
    layout = layout_of(source, Selection())
    if layout.id_position is None or len(layout.columns) != 2:
        raise DataError(
            f"{source.path} has more than one field in line {line + 1}; a label file has one label "
            "per line, or sample ids and labels in two columns (.csv, .tsv) that a first line names, "
            "such as id,label. To take a column of a data file, give its name as labels."
        )
    rows = [row for row in lines_of(source, layout.delimiter) if row][layout.has_header :]
    uneven = [index for index, row in enumerate(rows) if len(row) != 2]
    if uneven:
        raise DataError(
            f"{source.path}: row {uneven[0]} has {len(rows[uneven[0]])} fields where the first line has "
            "2, ids and labels (rows counted from 0 below the header)."
        )
    ids = tuple(row[layout.id_position] for row in rows)
    return parsed_labels([row[1 - layout.id_position] for row in rows], str(source.path)), ids


def parsed_labels(texts: list[str], where: str) -> NDArray[Any]:
    """Return numbers where all are numbers, text otherwise.

    Raises
    ------
    DataError
        When a label is missing (empty, NA, null and the like): it would be a class of its own.
    """
    stripped = [text.strip() for text in texts]
    missing = [row for row, text in enumerate(stripped) if text.lower() in MISSING]
    if missing:
        raise DataError(
            f"{len(missing)} label(s) of {where} are missing, the first {stripped[missing[0]]!r} in "
            f"row {missing[0]} (counted from 0 below a header). Mark unlabeled samples with a number "
            "such as -1 (a word, if labels are text), and rename a class that is called "
            f"{', '.join(MISSING[1:-1])} or {MISSING[-1]}."
        )
    if all(map(is_number, stripped)):
        return np.array([float(text) for text in stripped])
    return np.array(stripped, dtype=np.str_)


def read_text(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:  # noqa: ARG001 - a reader's signature
    """Read one table, one sample per line or column; the view is named by the file.

    A column called labels, class, target or the like (`LABEL_COLUMNS`, or what the selection names)
    is ground truth, never a feature; a label that is missing is refused. Empty fields, NA, null
    and the like become NaN, and so does a blank line between others where there is one column.
    With samples on columns the header has their ids, the column of ids the names of features, and
    ground truth is a row.
    """
    if source.delimiter is not None and len(source.delimiter) != 1:
        raise ConfigurationError(
            f"delimiter={source.delimiter!r} of {source.path}; allowed is one character, or None."
        )
    with unreadable(source, "text", is_text=True):
        layout = layout_of(source, selection)
        plain = _plain(source, layout)
        ids = _texts(source, layout, layout.id_position, plain)
        if source.samples_in == "columns":
            return _samples_on_columns(source, selection, layout, ids, plain)
        values = _numbers(source, layout) if plain is None else plain.values
        labels = _texts(source, layout, layout.label_position, plain)
        truth = None if labels is None else parsed_labels(labels, str(source.path))
    return SourceContents(
        where=str(source.path),
        views=(ArrayRows(values, source.view_name, feature_names=layout.feature_names),),
        labels=truth,
        sample_ids=None if ids is None else tuple(ids),
        labels_explicit=labels is not None and selection.labels is not None,
        notes=layout.notes,
    )


def _samples_on_columns(
    source: Source,
    selection: Selection,
    layout: Layout,
    features: list[str] | None,
    plain: PlainTable | None,
) -> SourceContents:
    """The table turned: `features` are the names of its rows, one of which may be ground truth."""
    truth = None
    notes = layout.notes
    if layout.has_header:
        notes = (*notes, f"{source.path}: first line taken as sample ids.")
    row = _label_row(features, selection)
    if row is not None:
        assert features is not None
        fields = next(islice(_rows(source, layout), row, None))
        truth = parsed_labels(
            [fields[position] for position in layout.feature_positions], str(source.path)
        )
        notes = (*notes, f"{source.path}: row {features[row]!r} taken as labels.")
        features = features[:row] + features[row + 1 :]
    values = _numbers(source, layout, but=row) if row is not None or plain is None else plain.values
    return SourceContents(
        where=str(source.path),
        views=(
            ArrayRows(
                values.T,
                source.view_name,
                feature_names=None if features is None else tuple(features),
            ),
        ),
        labels=truth,
        sample_ids=layout.feature_names,
        labels_explicit=truth is not None and selection.labels is not None,
        notes=notes,
    )


def _label_row(features: list[str] | None, selection: Selection) -> int | None:
    for row, name in enumerate(features or ()):
        if name == selection.labels if selection.labels else name.lower() in LABEL_COLUMNS:
            return row
    return None


def _rows(source: Source, layout: Layout) -> Iterator[list[str]]:
    """Yield the fields of each sample.

    A blank line between others is a missing value where there is one column, else nothing.
    """
    is_header = layout.has_header
    n_blank = 0
    for row in lines_of(source, layout.delimiter):
        if not row:
            n_blank += 1
            continue
        if not is_header:
            if len(layout.columns) == 1:
                yield from repeat([""], n_blank)
            yield row
        is_header = False
        n_blank = 0


def _plain(source: Source, layout: Layout) -> PlainTable | None:
    """The table read by the fast path, None where it does not apply."""
    mark = layout.delimiter
    if mark is None or not layout.feature_positions or any(mark in name for name in layout.columns):
        return None
    n_bytes, n_columns = source.file.stat().st_size, len(layout.columns)
    if n_bytes < _LARGE_BYTES:
        return None
    if n_columns > _MANY_COLUMNS and n_bytes < _LONG_COLUMN_BYTES * n_columns:
        return None
    return read_plain_table(
        source,
        delimiter=mark,
        n_columns=n_columns,
        has_header=layout.has_header,
        text_positions=[
            position
            for position in (layout.id_position, layout.label_position)
            if position is not None
        ],
    )


def _texts(
    source: Source, layout: Layout, position: int | None, plain: PlainTable | None
) -> list[str] | None:
    if position is None:
        return None
    if plain is not None:
        return plain.texts[position]
    return [row[position] for row in _rows(source, layout)]


def _numbers(source: Source, layout: Layout, *, but: int | None = None) -> NDArray[np.float64]:
    """Columns that are neither ids nor labels, (lines, columns), without the line `but`."""
    positions = layout.feature_positions
    if not positions:
        raise DataError(
            f"{source.path} has no column beside ids and labels; a view has at least one."
        )
    if layout.id_position is layout.label_position is None:
        # NumPy's parser, ten times as fast, where all is plain numbers; all lines are checked.
        with (
            suppress(ValueError, UserWarning),
            warnings.catch_warnings(),
            open_text(source) as stream,
        ):
            warnings.simplefilter("error")
            while layout.has_header and not stream.readline().strip():
                pass
            lines = _unbroken(stream) if len(layout.columns) == 1 else stream
            values = np.loadtxt(lines, delimiter=layout.delimiter, comments=None, ndmin=2)
            if values.shape[1] == len(layout.columns):
                return values
    return _careful_numbers(source, layout, positions, but)


def _unbroken(stream: Iterable[str]) -> Iterator[str]:
    """Pass lines on until one that is not blank follows one that is: ValueError."""
    is_broken = False
    for line in stream:
        if not line.strip():
            is_broken = True
        elif is_broken:
            raise ValueError("blank line")
        else:
            yield line


def _careful_numbers(
    source: Source, layout: Layout, positions: list[int], but: int | None
) -> NDArray[np.float64]:
    """Parse line by line: ids, labels and missing values allowed, errors with their place."""
    found: list[NDArray[np.float64]] = []
    bad: Counter[int] = Counter()
    first_bad = (0, 0, "")
    for index, row in enumerate(_rows(source, layout)):
        if len(row) != len(layout.columns):
            raise DataError(
                f"{source.path}: row {index} has {len(row)} fields where the first line has "
                f"{len(layout.columns)} (rows counted from 0 below the header). Check the "
                "delimiter, and commas inside fields, which need quotes."
            )
        if index == but:
            continue
        fields = [row[position] for position in positions]
        if "_" not in "".join(fields):  # Python's own notation, 1_000
            with suppress(ValueError):
                found.append(np.array(fields, dtype=np.float64))
                continue
        numbers = np.full(len(fields), np.nan)
        for place, field in enumerate(fields):
            if is_number(field):
                numbers[place] = float(field)
            elif field.lower() not in MISSING:
                first_bad = first_bad if bad else (index, positions[place], field)
                bad[positions[place]] += 1
        found.append(numbers)
    if bad:
        row_index, position, field = first_bad
        raise DataError(
            f"{source.path}: column {layout.columns[position]!r} has {bad[position]} value(s) that "
            f"are not numbers, the first {field!r} in row {row_index} (counted from 0 below the "
            f"header); {len(bad)} column(s) have such values. {_remedy(field, layout)}"
        )
    if not found:
        raise DataError(f"{source.path} has a header and no line below; it needs one per sample.")
    return np.stack(found)


def _remedy(field: str, layout: Layout) -> str:
    """Return the remedy for a field that is not a number."""
    between = next((mark for mark in ";\t|" if mark in field), None)
    if between is None and len(layout.columns) == 1 and "," in field:
        between = ","
    if between is not None:
        return f"If {between!r} separates columns, pass delimiter={between!r} (--delimiter)."
    if re.fullmatch(r"[+-]?\d*(,\d+)+([.eE].*)?", field):
        return "Write numbers with a decimal point, and without separators of thousands: 1000.5."
    return (
        "Remove or encode them; name an id column with id_column (--id-column), a label column with "
        "labels (--labels)."
    )


_SPELLINGS = [
    "".join(letters)
    for word in MISSING
    for letters in itertools.product(*({letter, letter.upper()} for letter in word))
]


@dataclass(frozen=True, eq=False)
class PlainTable:
    """Columns of a text table.

    Attributes
    ----------
    values
        (n, d) numbers.
    texts
        Columns of text by position.
    """

    values: NDArray[np.float64]
    texts: dict[int, list[str]]


def read_plain_table(
    source: Source,
    *,
    delimiter: str,
    n_columns: int,
    has_header: bool,
    text_positions: Sequence[int],
) -> PlainTable | None:
    """Read a table whose columns are numbers and missing values, but for those of text.

    Parameters
    ----------
    source
        Read once.
    delimiter
        One character.
    n_columns
        In every row, at least 2.
    has_header
        Whether the first line that is not blank is no row; it has no delimiter inside quotes.
    text_positions
        Positions of the columns of text, which are stripped.

    Returns
    -------
    PlainTable or None
        None where anything is out of the ordinary: rows of other lengths, delimiters inside quotes, text in a
        column of numbers, bytes that are not UTF-8, no row at all. Numbers are the closest to what is
        written.

    Notes
    -----
    pandas fills rows that are too short, so delimiters are counted: no row is longer, and all have
    as many as rows of `n_columns` fields.
    """
    import pandas as pd

    mark = delimiter.encode()
    if n_columns < 2 or len(mark) != 1 or delimiter in '"\r\n':
        return None
    # pandas 3.1 deprecates the argument: its numbers are always the closest
    is_exact = "float_precision" not in inspect.signature(pd.read_csv).parameters
    options: dict[str, Any] = {} if is_exact else {"float_precision": "round_trip"}
    with warnings.catch_warnings(), open_bytes(source) as stream:
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "The 'float_precision' argument")
        content = _Counted(stream, mark)
        try:
            frame = pd.read_csv(
                content,
                sep=delimiter,
                header=0 if has_header else None,
                names=range(n_columns),
                index_col=False,
                dtype=dict.fromkeys(text_positions, str),
                na_values=_SPELLINGS,
                keep_default_na=False,
                encoding="utf-8",
                engine="c",
                **options,
            )
        except (ValueError, Warning):  # ParserError and UnicodeDecodeError are ValueErrors
            return None
    numbers = frame.drop(columns=list(text_positions))
    if (
        frame.empty
        or content.has_nul
        or content.count != (len(frame) + has_header) * (n_columns - 1)
        or not all(dtype.kind in "iuf" for dtype in numbers.dtypes)
        or frame[list(text_positions)].isna().any(axis=None)  # an id may be called NA
    ):
        return None
    texts = {name: [item.strip() for item in frame[name].tolist()] for name in text_positions}
    if any(delimiter in item for column in texts.values() for item in column):
        return None
    return PlainTable(np.ascontiguousarray(numbers.to_numpy(dtype=np.float64)), texts)


class _Counted:
    """Stream of bytes that counts delimiters, and looks for NUL, which pandas takes for an end."""

    def __init__(self, stream: IO[bytes], mark: bytes) -> None:
        self._stream = stream
        self._mark = mark
        self.count = 0
        self.has_nul = False

    def read(self, size: int = -1) -> bytes:
        part = self._stream.read(size)
        self.count += part.count(self._mark)
        self.has_nul |= b"\0" in part
        return part

    def __iter__(self) -> Iterator[bytes]:  # by which pandas knows a file
        return iter(self._stream)


_DELIMITERS = {".csv": ",", ".tsv": "\t"}


def read_sample_columns(
    file: Path, sample_ids: Sequence[str] | None, n_samples: int
) -> dict[str, NDArray[Any]]:
    """Read the columns of a table of samples, put in the order of the samples.

    Parameters
    ----------
    file
        .csv or .tsv, also compressed (.gz, .zst), with names of columns in the first line; or .parquet.
        The first column has sample ids.
    sample_ids
        None for samples that are known by their row 0, 1, ...
    n_samples

    Returns
    -------
    dict of str to (n,) object array
        Numbers or text, None where missing, of every column but the first.

    Raises
    ------
    DataError
        The file cannot be read, an id occurs twice, or no sample is in it.
    """
    source = Source(file)
    if source.suffix == ".parquet":
        header, rows = _parquet(source)
    elif source.suffix in _DELIMITERS:
        header, rows = _text(source)
    else:
        raise DataError(
            f"{file} is not a table of samples by its name: allowed are .csv, .tsv (also .gz and .zst) "
            "and .parquet. Rename or convert it."
        )
    if len(set(header)) < len(header) or len(header) < 2:
        raise DataError(
            f"{file} has columns {header[:6]}; allowed are a column of sample ids and one or more of "
            "properties, with different names in the first line. Correct the names."
        )
    ids = list(map(str, range(n_samples))) if sample_ids is None else list(sample_ids)
    position = {name: row for row, name in enumerate(ids)}
    places = [position.get(str(row[0]), -1) for row in rows]
    known = [place for place in places if place >= 0]
    if not known:
        shown = [str(row[0]) for row in rows[:3]]
        raise DataError(
            f"{file} has none of the {n_samples} samples: its column {header[0]!r} has {shown}, the "
            f"samples are {ids[:3]}. Put their ids in the first column."
        )
    if len(set(known)) < len(known):
        twice = next(ids[place] for place in known if known.count(place) > 1)
        raise DataError(f"{file} has sample {twice!r} twice. Keep one row for each sample.")
    columns = {}
    for index, name in enumerate(header[1:], start=1):
        column = np.full(n_samples, None, dtype=object)
        column[known] = [row[index] for row, place in zip(rows, places, strict=True) if place >= 0]
        columns[name] = column
    return columns


def _text(source: Source) -> tuple[list[str], list[list[Any]]]:
    with unreadable(source, "a table of samples", is_text=True):
        lines = [line for line in lines_of(source, _DELIMITERS[source.suffix]) if line]
    header, *rows = lines or [[]]
    uneven = next((index for index, row in enumerate(rows) if len(row) != len(header)), None)
    if uneven is not None:
        raise DataError(
            f"{source.path}: row {uneven} has {len(rows[uneven])} fields where the first line has "
            f"{len(header)} (rows counted from 0 below it). Correct the row."
        )
    columns = [list(column) for column in zip(*rows, strict=True)]
    parsed = [columns[0], *map(_parsed, columns[1:])] if columns else []
    return header, [list(row) for row in zip(*parsed, strict=True)]


def _parsed(texts: list[str]) -> list[Any]:
    """Return whole numbers, numbers or text, None where missing."""
    known = [text for text in texts if text.lower() not in MISSING]
    if not all(map(is_number, known)):
        return [None if text.lower() in MISSING else text for text in texts]
    numbers = [None if text.lower() in MISSING else float(text) for text in texts]
    if all(number is None or number.is_integer() for number in numbers):
        return [None if number is None else int(number) for number in numbers]
    return numbers


def _parquet(source: Source) -> tuple[list[str], list[list[Any]]]:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise DataError(
            f"{source.path} needs pyarrow. Install it (pip install 'mscam-dask[parquet]'), or write a "
            ".csv file."
        ) from error
    with unreadable(source, "a Parquet file"):
        table = pq.read_table(source.file)
    columns = [column.to_pylist() for column in table.columns]
    return list(table.column_names), [list(row) for row in zip(*columns, strict=True)]
