"""Excel, Parquet and Feather files as tables, through pandas and pyarrow."""

from __future__ import annotations

import csv
import datetime as dt
import functools
import io
import math
import re
import zipfile
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mscam_dask.data.readers.base import (
    Selection,
    Source,
    SourceContents,
    check_size,
    needing,
    unreadable,
)
from mscam_dask.data.readers.roles import Table
from mscam_dask.data.readers.text import text_table
from mscam_dask.data.views.conversion import as_text
from mscam_dask.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

_HEAD_ROWS = 50


def arrow_tables(source: Source, _selection: Selection, _stack: ExitStack) -> list[Table]:
    """The table of a Parquet or Feather (Arrow IPC) file; the index that pandas stored has the ids."""
    form = "Parquet" if source.suffix in (".parquet", ".pq") else "Feather"
    with needing(source, "'mscam-dask[parquet]'", "save the file as CSV"):
        import pyarrow as pa
        import pyarrow.dataset as ds
    with unreadable(source, f"a {form} file"):
        stored = ds.dataset(source.file, format="parquet" if form == "Parquet" else "ipc")
        n_values = stored.count_rows() * max(1, len(stored.schema))
        check_size(source, "its table", 8 * n_values)
        try:
            table = stored.to_table()
            table.validate(full=True)  # Arrow follows wrong offsets out of its memory
            frame = table.to_pandas()
        except pa.ArrowException as error:
            raise ValueError(f"its columns are damaged ({type(error).__name__})") from error
        return [table_of_frame(source, frame, form)]


def table_of_frame(source: Source, frame: pd.DataFrame, form: str) -> Table:
    """The table of a frame; an index other than 0, 1, ... has the sample ids, or numbers the rows if it has no name."""
    import pandas as pd

    is_range = isinstance(frame.index, pd.RangeIndex)
    has_index = not (is_range and frame.index.start == 0 and frame.index.step == 1)
    may_number_rows = frame.index.dtype.kind in "iu" and frame.index.name is None
    frame.columns = [as_text(name) for name in frame.columns]
    if has_index:
        index = [
            ", ".join(map(as_text, key)) if isinstance(key, tuple) else key for key in frame.index
        ]
        name = ", ".join(as_text(part) for part in frame.index.names if part is not None)
        frame = frame.reset_index(drop=True)
        frame.insert(0, name, index, allow_duplicates=True)
    if not len(frame.columns):
        raise DataError(
            f"{source.path} has no columns; a table has at least one. Check that the file is complete."
        )
    columns = tuple(frame.columns)
    frame.columns = range(len(columns))
    for place, name in enumerate(columns):
        # a dictionary of Arrow, a factor of R
        if isinstance(frame[place].dtype, pd.CategoricalDtype):
            kinds = frame[place].cat.categories.dtype
            frame[place] = frame[place].astype("float64" if kinds.kind in "iuf" else kinds)
        if frame[place].dtype.kind in "Om":
            kind = pd.api.types.infer_dtype(frame[place], skipna=True)
            if kind not in ("string", "bytes", "empty", "boolean", "date", "decimal"):
                raise DataError(
                    f"{source.path}: column {name!r} has values of type {kind}; allowed are numbers and "
                    "text. Drop it, or spread it over columns of numbers."
                )

    head = frame.head(_HEAD_ROWS)
    texts = [_texts(head[place]) for place in frame.columns]
    return Table(
        source=source,
        where=str(source.path),
        view=source.view_name,
        columns=columns,
        head=[list(row) for row in zip(*texts, strict=True)],
        blocks=lambda texts, numbers: iter(
            [({place: _texts(frame[place]) for place in (*texts, *numbers)}, None)]
        ),
        samples_in=source.samples_in,
        id_position=0 if has_index and not may_number_rows else None,
        form=form,
        frame=frame,
    )


def _texts(column: pd.Series[Any]) -> list[str]:
    """Cells as text, empty where missing."""
    pairs = zip(column.tolist(), column.isna(), strict=True)
    return ["" if is_missing else _cell(value) for value, is_missing in pairs]


def _cell(value: object) -> str:
    """A cell as text, whole numbers without a point, truth as 1 and 0, and days without a time."""
    if isinstance(value, dt.datetime) and value.time() == dt.time():
        return str(value.date())
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        return str(int(value))
    return as_text(value)


# first bytes of a zip archive and of a file of Excel before 2007
_WORKBOOKS = (b"PK", b"\xd0\xcf\x11\xe0")

# Bytes of memory, measured, for each byte of XML, and for each cell of a sheet, empty ones too.
_XML_BYTES, _CELL_BYTES = 10, 40
_HIDDEN = re.compile(rb'<(?:\w+:)?(?:row|col) [^>]*\bhidden="(?:1|true)"')
_FILLED_CELL = re.compile(rb'<(?:\w+:)?c [^>]*?\br="([A-Z]{1,3})(\d+)"[^>]*(?<!/)>(?!</)')


def excel_tables(
    source: Source, selection: Selection, _stack: ExitStack
) -> list[Table | SourceContents]:
    """The tables of a workbook, of each sheet that has cells, and what was left out; an only view is named by the file."""
    with source.file.open("rb") as stream:
        if not stream.read(4).startswith(_WORKBOOKS):  # text, as instruments write under this name
            return [text_table(source)]
    import pandas as pd

    where, notes = str(source.path), []
    with unreadable(source, "an Excel workbook"):
        if zipfile.is_zipfile(source.file):
            with zipfile.ZipFile(source.file) as archive:
                if _has_hidden_cells(source, archive):
                    notes = [f"{where}: hidden rows and columns are read too."]
        needed = "xlrd" if source.suffix == ".xls" else "'mscam-dask[excel]'"
        missing = needing(source, needed, "save the sheets as CSV")
        with missing, pd.ExcelFile(source.file) as book:
            sheets = pd.read_excel(
                book, sheet_name=None, header=None, dtype=object, na_filter=False
            )
            own = getattr(book.book, "worksheets", ())  # of openpyxl
            hidden = {sheet.title for sheet in own if sheet.sheet_state != "visible"}
            hidden -= {*(selection.views or ())}

        def text_of(value: object) -> str:
            is_text = isinstance(value, str | bool)  # a truth value is no number
            return str(value) if is_text else _cell(value).replace(".", source.decimal or ".")

        cells = {
            str(name): sheet.iloc[source.skip :].map(text_of)
            for name, sheet in sheets.items()
            if name not in hidden
        }
        filled = {name: sheet for name, sheet in cells.items() if (sheet != "").any(axis=None)}
        is_one = len(filled) < 2
        wanted = [
            name
            for name, sheet in filled.items()
            if is_one or selection.wants(name) or (sheet == selection.labels).any(axis=None)
        ]
    if not filled:
        raise DataError(
            f"{source.path} has no cells in a visible sheet; a sheet has at least one row for each sample."
        )
    if hidden:
        notes.append(f"{where}: left out hidden sheets {sorted(hidden)} (--view NAME takes one).")
    left = (*(name for name in filled if name not in wanted), *sorted(hidden))
    others = SourceContents(f"{where}, other sheets", (), notes=tuple(notes), skipped=left)
    tables = [
        _sheet_table(source, filled[name], where, source.view_name)
        if is_one
        else _sheet_table(source, filled[name], f"{where}, sheet {name!r}", name)
        for name in wanted
    ]
    return [*tables, others] if left or notes else [*tables]


def _has_hidden_cells(source: Source, archive: zipfile.ZipFile) -> bool:
    """Return whether rows or columns are hidden; refuse sheets that take too much memory: many cells, or one far away."""
    parts = archive.infolist()
    n_bytes = _XML_BYTES * sum(part.file_size for part in parts)
    check_size(source, "its sheets", n_bytes)
    shapes, has_hidden = [(0, 0)], False
    for part in parts:
        if part.filename.endswith(".xml"):
            text = archive.read(part)
            has_hidden |= _HIDDEN.search(text) is not None
            found = {*_FILLED_CELL.findall(text)}
            last = max((letters.rjust(3, b"@") for letters, _ in found), default=b"@")
            n_columns = functools.reduce(lambda number, letter: 26 * number + letter - 64, last, 0)
            shapes.append((max((int(row) for _, row in found), default=0), n_columns))
    n_rows, n_columns = max(shapes, key=math.prod)
    n_bytes += _CELL_BYTES * sum(map(math.prod, shapes))
    check_size(source, f"its sheets, one with {n_rows} rows and {n_columns} columns,", n_bytes)
    return has_hidden


def _sheet_table(source: Source, sheet: pd.DataFrame, where: str, view: str) -> Table:
    """The table of a sheet, by way of text, without empty columns; empty rows are blank lines."""
    stream = io.StringIO()
    rows = sheet.loc[:, (sheet != "").any(axis=0)]
    check_size(source, "its text", 4 * int(rows.map(len).to_numpy().sum()))  # a text may be shared
    csv.writer(stream).writerows(row if any(row) else () for row in rows.itertuples(index=False))
    text = stream.getvalue()
    told = replace(source, skip=0, delimiter=",", decimal=source.decimal or ".")
    found = text_table(told, lambda: io.StringIO(text), where=where)
    return replace(found, view=view, form=found.form.replace("comma", "sheet", 1))
