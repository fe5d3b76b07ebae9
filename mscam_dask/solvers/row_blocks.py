"""Row blocks of a view, and sums over them.

Blocks depend only on the shape of a view, so sums are bit-identical wherever the rows are stored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mscam_dask.linalg.scaling import ColumnMoments

RowReader = Callable[[int, int], NDArray[np.float64]]
"""read(start, stop) -> rows start up to, not including, stop of a view, (m, d) float64."""

ViewType = Literal["features", "distance", "kernel"]

Blocks = Callable[[], Iterator[tuple[int, int, NDArray[np.float64]]]]
"""Start, stop and scaled rows of each block; called once for each pass over the view."""

# Rows are streamed in blocks of at most this many bytes, the size of a chunk of a store, and of at
# most a quarter of a small view.
BLOCK_BYTES = 8 * 2**20
_MIN_BLOCK_BYTES = 2**20


@dataclasses.dataclass(frozen=True, slots=True)
class ViewShape:
    """Shape and type of a view, known before it is read."""

    n_samples: int
    n_features: int
    view_type: ViewType


def row_blocks(
    n_samples: int, n_columns: int, *, block_bytes: int | None = None
) -> Iterator[tuple[int, int]]:
    """Row ranges of at most `block_bytes` (8 MiB), which depend only on the shape."""
    quarter = 8 * n_samples * n_columns // 4
    most = min(block_bytes or BLOCK_BYTES, max(_MIN_BLOCK_BYTES, quarter))
    size = max(1, most // (8 * max(1, n_columns)))
    for start in range(0, n_samples, size):
        yield start, min(start + size, n_samples)


def mean_row(blocks: Blocks, shape: ViewShape) -> NDArray[np.float64]:
    """Mean row (d,), summed block by block in order."""
    total = np.zeros(shape.n_features)
    for _, _, rows in blocks():
        total += rows.sum(axis=0)
    return total / shape.n_samples


def mean_and_gram(
    blocks: Blocks, shape: ViewShape
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean row (d,) and Gram matrix (d, d) of the centered rows, in one pass about the mean of the first block."""
    d = shape.n_features
    gram, total, shift = np.zeros((d, d)), np.zeros(d), np.zeros(d)
    for start, _, rows in blocks():
        if start == 0:
            shift = rows.mean(axis=0)
        shifted = rows - shift
        total += shifted.sum(axis=0)
        gram += shifted.T @ shifted
    rest = total / shape.n_samples
    correction = shape.n_samples * np.outer(rest, rest)
    if not np.isfinite(gram).all() or not np.isfinite(correction).all():
        return shift + rest, np.full((d, d), np.nan)  # the decomposition raises DataError
    return shift + rest, gram - correction


def moments_of_rows(read: RowReader, start: int, stop: int, n_features: int) -> ColumnMoments:
    """Moments of the columns over rows start … stop − 1, merged block by block in order."""
    moments: ColumnMoments | None = None
    for first, last in row_blocks(stop - start, n_features):
        block = ColumnMoments.from_rows(read(start + first, start + last))
        moments = block if moments is None else moments.merge(block)
    assert moments is not None, "a block has rows"
    return moments
