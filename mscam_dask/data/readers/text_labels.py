"""Labels as text: one per line of a file, or a column of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.base import Source, unreadable
from mscam_dask.data.readers.text_layout import MISSING, is_number
from mscam_dask.errors import DataError

__all__ = ["parsed_labels", "read_labels"]


def read_labels(file: Path) -> NDArray[Any]:
    """Read labels from a .npy file or a text file with one label per line.

    A first line that is no number above lines that all are is a heading.

    Raises
    ------
    DataError
        When the file cannot be read, a line has several fields or is blank above others.
    """
    source = Source(file)
    if file.suffix == ".npy":
        with unreadable(source, "a NumPy array (.npy) of labels", ValueError, EOFError):
            return np.asarray(np.load(file, allow_pickle=False))
    with unreadable(source, "labels, one per line", UnicodeDecodeError):
        text = file.read_text(encoding="utf-8-sig").strip()
    lines = [line.strip().strip('"') for line in text.splitlines()]
    several = [index for index, line in enumerate(lines) if "," in line or "\t" in line]
    if several:
        raise DataError(
            f"{file} has more than one field in line {several[0] + 1}; a label file has one label "
            "per line. To take a column of a data file, give its name as labels."
        )
    if len(lines) > 1 and not is_number(lines[0]) and all(map(is_number, lines[1:])):
        lines = lines[1:]
    return parsed_labels(lines, str(file))


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
