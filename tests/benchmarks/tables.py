"""Markdown tables of the scripts, line by line, and the score of a method with its defaults."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask import MSCAM
from mscam_dask.benchmark.methods import method
from mscam_dask.metrics import adjusted_rand_index

PEERS = ("knn-sc", "mlan", "mmsc", "lmvsc", "smvsc", "sc-concat")


def write_head(*titles: str) -> None:
    """Print the first two lines of a table."""
    write_row(*titles)
    sys.stdout.write(f"{'|---' * len(titles)}|\n")


def write_row(*cells: object) -> None:
    """Print a line of a table; floats have three digits."""
    texts = (f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in cells)
    sys.stdout.write(f"| {' | '.join(texts)} |\n")
    sys.stdout.flush()


def ari(
    name: str,
    views: Sequence[Any],
    labels: NDArray[np.int64],
    *,
    seed: int = 0,
    scales: Iterable[str] = ("standard",),
) -> float:
    """Adjusted Rand index of one fit; of the best of the scales for a baseline, which does not choose one."""
    c = len(np.unique(labels))
    models: list[Any] = (
        [MSCAM(c, random_state=seed)]
        if name == "mscam"
        else [method(name).make(c, seed, {"scale": scale}) for scale in scales]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return max(adjusted_rand_index(labels, model.fit_predict(views)) for model in models)
