"""Views without batch effects, and the batch of each sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.presence import PresentRows
from mscam_dask.data.views.sources import (
    ArrayRows,
    RowsOf,
    RowSource,
    as_rows,
    check_row_range,
    feature_names_of,
)
from mscam_dask.linalg.scaling import BatchCorrection


@dataclass(frozen=True, eq=False)
class CorrectedRows(RowsOf):
    """Rows of a view, corrected for their batches (n,) when they are read; what is sparse stays sparse."""

    source: RowSource
    batches: NDArray[np.int64]
    correction: BatchCorrection

    @property
    def shape(self) -> tuple[int, int]:
        return self.source.shape

    @property
    def chunk_size(self) -> int:
        """Rows that the source decodes together."""
        return int(getattr(self.source, "chunk_size", 1))

    def read(self, start: int, stop: int) -> NDArray[np.float64]:
        """Return rows start..stop-1 as read-only float64."""
        check_row_range(self, start, stop)
        rows = self.source.read(start, stop)
        return as_rows(self.correction.of_rows(rows, self.batches[start:stop]))


def rows_in_memory(view: RowSource, start: int, stop: int) -> RowSource | None:
    """Return some rows of an array as a view of their own, without the others; None for other views."""
    if isinstance(view, ArrayRows):
        return ArrayRows(view.array[start:stop], view.name)
    if isinstance(view, CorrectedRows):
        rows = rows_in_memory(view.source, start, stop)
        return rows and CorrectedRows(rows, view.batches[start:stop], view.correction)
    return None


def corrected_view(
    view: RowSource, batches: NDArray[np.int64], correction: BatchCorrection
) -> RowSource:
    """Return a feature view without batch effects: a copy of a dense array, else rows corrected when they are read."""
    if isinstance(view, PresentRows):
        return PresentRows(corrected_view(view.source, batches, correction), view.samples)
    if isinstance(view, ArrayRows) and isinstance(view.array, np.ndarray):
        rows: NDArray[Any] = correction.of_rows(view.array, batches)
        if view.dtype == np.float32:
            rows = rows.astype(np.float32)
        return ArrayRows(rows, view.name, view.view_type, feature_names_of(view))
    return CorrectedRows(view, batches, correction)
