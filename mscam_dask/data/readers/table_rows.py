"""Rows of a table: columns of text and of numbers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.fields import TRUTH, is_missing, is_number, number_of
from mscam_dask.data.readers.roles import Table
from mscam_dask.data.views.conversion import rows_of
from mscam_dask.errors import DataError

_SHOWN_CHARS = 60  # of a cell in a message


class TableRows:
    """Rows of a table: columns of text, and of numbers side by side (`values`); a column may be both."""

    def __init__(self, table: Table, texts: Iterable[int], numbers: Sequence[int]) -> None:
        found: dict[int, list[str]] = {place: [] for place in sorted(texts)}
        self.numbers = [*numbers]
        # Fields of a column that are no numbers, by row.
        self.bad: dict[int, dict[int, str]] = {}
        self.values: NDArray[Any] = np.empty((0, len(numbers)))
        self._decimal, frame = table.decimal, table.frame
        if frame is not None and all(frame[p].dtype.kind in "biuf" for p in numbers):
            view: Any = rows_of(frame[self.numbers], name=table.view)
            self.values, numbers = view.array, []
        for columns, values in table.blocks([*found], numbers):
            for place, fields in found.items():
                fields += [text.strip() for text in columns[place]]
            if numbers:
                start = len(self.values)
                block = values
                if block is None:
                    together = itertools.chain.from_iterable(columns[place] for place in numbers)
                    joined = _plain_numbers([*together], self._decimal)
                    if joined is None:
                        joined = np.concatenate(
                            [self.floats(place, columns[place], start) for place in numbers]
                        )
                    block = joined.reshape(len(numbers), -1).T
                # where it is, without a second copy
                self.values.resize((start + len(block), len(numbers)), refcheck=False)
                self.values[start:] = block
        self.texts = {place: table.column(place, fields) for place, fields in found.items()}

    def floats(self, place: int, fields: Sequence[str], start: int = 0) -> NDArray[np.float64]:
        """Numbers of a column of text; those that are none are NaN, and remembered."""
        if (numbers := _plain_numbers(fields, self._decimal)) is not None:
            return numbers
        texts = [text.strip() for text in fields]
        known = [row for row, text in enumerate(texts) if not is_missing(text)]
        if {texts[row].lower() for row in known} <= TRUTH.keys():
            texts = [TRUTH.get(text.lower(), text) for text in texts]
        found = np.full(len(texts), np.nan)
        if (numbers := _plain_numbers([texts[row] for row in known], self._decimal)) is not None:
            found[known] = numbers
            return found
        for row in known:
            if is_number(texts[row], self._decimal):
                found[row] = number_of(texts[row], self._decimal)
            else:
                self.bad.setdefault(place, {})[start + row] = texts[row]
        return found

    def take_out(self, row: int) -> list[str]:
        """Return the fields of a row that is no feature, and forget those of them that are no numbers."""
        return [
            self.bad.get(place, {}).pop(row, np.format_float_positional(value, trim="-"))
            for place, value in zip(self.numbers, self.values[row], strict=True)
        ]


def _plain_numbers(fields: Sequence[str], decimal: str) -> NDArray[np.float64] | None:
    """Numbers, if all are written with digits, signs, exponents and this decimal mark."""
    if "".join(fields).encode().translate(None, b"0123456789+-eE " + decimal.encode()):
        return None
    try:
        texts = fields if decimal == "." else [text.replace(decimal, ".") for text in fields]
        return np.fromiter(map(float, texts), np.float64, len(fields))
    except ValueError:
        return None


def values_of(table: Table, rows: TableRows, features: Sequence[int]) -> NDArray[Any]:
    """Numbers of the features, (rows, features)."""
    names = table.columns
    for place in set(features) - set(rows.numbers):  # whose first fields are text
        rows.floats(place, rows.texts[place].texts)
    bad = {place: own for place in features if (own := rows.bad.get(place))}
    if bad:
        place = min(bad, key=lambda place: (min(bad[place]), place))
        row = min(bad[place])
        text = bad[place][row]
        if "\n" in text:
            remedy = "Close the quote in front of it."
        elif any(map(str.isdigit, text)) and not text[0].isalpha():
            remedy = (
                f"Write one number in a cell, with the decimal mark {table.decimal!r} (--decimal), without units or "
                "separators of thousands: 1000.5; dates as days, and missing cells as NA. Name a column of ids (--id-column), "
                "and another delimiter (--delimiter)."
            )
        else:
            remedy = (
                "Remove these rows if they are units or further headings, or the lines above them if they have the names of columns (--skip); write "
                "NA for missing cells and numbers for categories (0 and 1 for no and yes); drop these columns, or name them if "
                "they have ids or labels (--id-column, --labels)."
            )
        raise DataError(
            f"{table.where}: column {names[place]!r} has {len(bad[place])} value(s) that are not numbers, the "
            f"first {text[:_SHOWN_CHARS]!r} in row {row} (counted from 0 below the header); {len(bad)} column(s) have such "
            f"values. {remedy}"
        )
    if not features:
        raise DataError(
            f"{table.where} has no column beside ids and labels, in {list(names[:6])}; a view has at least one. Choose the "
            "others with views=[...] (--view NAME, [data] views), or tell the delimiter (--delimiter) if these are several."
        )
    if not len(rows.values):
        raise DataError(f"{table.where} has a header and no line below; it needs one per sample.")
    slots = np.flatnonzero(np.isin(rows.numbers, features))
    if slots[-1] - slots[0] == len(slots) - 1:  # no copy
        return rows.values[:, slots[0] : slots[-1] + 1]
    return rows.values[:, slots]
