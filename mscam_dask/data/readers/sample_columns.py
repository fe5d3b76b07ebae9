"""Tables of properties of the samples, such as clinical data, to color plots by."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.base import Source, unreadable
from mscam_dask.data.readers.plain_table import MISSING
from mscam_dask.data.readers.text_layout import is_number, lines_of
from mscam_dask.errors import DataError

__all__ = ["read_sample_columns"]

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
