"""Labels as text: one per line of a file, or a column of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.base import Selection, Source, unreadable
from mscam_dask.data.readers.text_layout import MISSING, is_number, layout_of, lines_of
from mscam_dask.errors import DataError

__all__ = ["parsed_labels", "read_labels"]


def read_labels(file: Path) -> tuple[NDArray[Any], tuple[str, ...] | None]:
    """Read labels from a .npy file, a text file with one label per line, or one of ids and labels.

    A first line that is no number above lines that all are is a heading.

    Returns
    -------
    labels
        One for each line.
    ids
        Of their samples, where the file has a column of ids (`layout_of`) beside that of labels.

    Raises
    ------
    DataError
        When the file cannot be read or holds variables (.mat, .npz), a line has other fields or is
        blank above others.
    """
    source = Source(file)
    if file.suffix.lower() in (".mat", ".npz"):
        raise DataError(
            f"{file} cannot be read as labels; a file of labels is text with one per line, or .npy. Give "
            "the file as a source beside those of the views: labels in it are found by their name, or "
            "by labels=NAME (--labels NAME)."
        )
    if file.suffix == ".npy":
        with unreadable(source, "a NumPy array (.npy) of labels"):
            return np.asarray(np.load(file, allow_pickle=False)), None
    with unreadable(source, "labels, one per line", is_text=True):
        text = file.read_text(encoding="utf-8-sig").strip()
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
            f"row {missing[0]} (counted from 0 below a header). Give unlabelled samples a number of "
            "their own, for example -1, or a name where labels are text; a class that is called so "
            f"({', '.join(MISSING[1:])}) another name."
        )
    if all(map(is_number, stripped)):
        return np.array([float(text) for text in stripped])
    return np.array(stripped, dtype=np.str_)
