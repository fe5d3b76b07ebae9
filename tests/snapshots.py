"""A checkpointer in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.checkpoints import Checkpoint
from mscam_dask.data.store.arrays import ArrayPieces


class Memory:
    """Keeps every state, and hands out the one it is told to."""

    def __init__(self, snapshot: Checkpoint | None = None) -> None:
        self.start = snapshot
        self.saved: list[Checkpoint] = []

    def load(self) -> Checkpoint | None:
        return self.start

    def save(self, snapshot: Checkpoint) -> None:
        arrays = {name: _whole(values) for name, values in snapshot.arrays.items()}
        self.saved.append(Checkpoint(arrays, snapshot.record))


def _whole(values: Any) -> NDArray[Any]:
    """An array that a checkpoint has whole or in pieces."""
    if not isinstance(values, ArrayPieces):
        return np.asarray(values)
    whole = np.concatenate(list(values.pieces()))
    assert (whole.shape, whole.dtype) == (values.shape, values.dtype)
    return whole
