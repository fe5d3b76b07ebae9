"""Fast path for tables of plain numbers, through pandas."""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.base import Source, open_bytes

__all__ = ["MISSING", "PlainTable", "read_plain_table"]

MISSING = ("", "na", "n/a", "nan", "null", "none")
"""Fields, in any case, that stand for a missing value."""

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
