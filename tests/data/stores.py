"""A store to read, to damage and to replace."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.store.dataset import verify_store
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ArrayRows, RowSource, ViewType

N = 11


def example_data() -> MultiViewData:
    rng = np.random.default_rng(5)
    return MultiViewData(
        views=(
            ArrayRows(rng.standard_normal((N, 3)), "colour"),
            ArrayRows(np.zeros((N, 2), dtype=np.float32), "all fill value"),
            ArrayRows(rng.integers(0, 9, (N, 4)).astype(">i2"), "counts"),
        ),
        sample_ids=tuple(f"sample {i} é" for i in range(N)),
        labels=np.arange(N, dtype=np.int64) % 3,
        label_names=("a", "b", "c"),
    )


def counting(start: int, stop: int) -> MultiViewData:
    """One view of one column: start, ..., stop - 1."""
    return MultiViewData((ArrayRows(np.arange(float(start), stop)[:, None], "v"),))


def numbers(store: Path) -> list[float]:
    """Values of a store of `counting`, all of them compared with their checksums."""
    view = verify_store(store).views[0]
    values: list[float] = view.read(0, view.shape[0]).ravel().tolist()
    return values


def clustered_data(n: int, first: int = 0) -> MultiViewData:
    """Samples `first` … of three clusters in two views."""
    rng = np.random.default_rng(first)
    labels = np.arange(n) % 3
    centers = np.hstack([8 * np.eye(3), np.zeros((3, 1))])
    return MultiViewData(
        tuple(
            ArrayRows(centers[labels] + 0.1 * rng.standard_normal((n, 4)), name) for name in "ab"
        ),
        sample_ids=tuple(f"sample {first + i}" for i in range(n)),
        labels=labels,
    )


@dataclass(frozen=True, eq=False)
class FailingRows(RowSource):
    """A view whose last row cannot be read."""

    name: str
    error: BaseException
    shape: tuple[int, int] = (N, 2**20)  # wide: several blocks
    view_type: ViewType = "features"

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float64)

    def read(self, start: int, stop: int) -> NDArray[np.float64]:
        if stop == N:
            raise self.error
        return np.zeros((stop - start, self.shape[1]))


def edit(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    metadata = json.loads(file.read_text())
    change(metadata)
    file.write_text(json.dumps(metadata))
