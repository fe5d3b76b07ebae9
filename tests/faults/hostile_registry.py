"""Parts that hostile files have in common, and the canary: a file outside, whose values no store may hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

Hostile = Callable[[Path, Path], object]

TABLE = np.random.default_rng(0).normal(size=(20, 3))
CANARY = 12345.678901 + np.arange(60.0).reshape(20, 3)


def write_canary(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=CANARY)
        node = file.create_dataset("turned", data=CANARY.T)
        node.attrs["MATLAB_class"] = np.bytes_("double")


def overwrite(path: Path, place: int, content: bytes) -> None:
    changed = bytearray(path.read_bytes())
    changed[place : place + len(content)] = content
    path.write_bytes(changed)


def truncate(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
