"""Samples that are equal in every view."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.rows import blocks_of_rows
from mscam_dask.data.views.sources import RowSource
from mscam_dask.engine.executors.base import Executor
from mscam_dask.estimators._resources import map_views
from mscam_dask.solvers.row_blocks import row_blocks

# Odd, so that groups stay apart when they are added to fingerprints modulo 2**64.
_ODD = np.uint64(0x9E3779B97F4A7C15)


def equal_samples(views: Sequence[RowSource], executor: Executor) -> NDArray[np.int64] | None:
    """Group (n,) of the samples that are equal in every view, −1 for the others; None, without reading wider views, if all differ."""
    n_samples = views[0].n_samples
    rows, groups = np.arange(n_samples), np.zeros(n_samples, dtype=np.int64)
    for view in sorted(views, key=lambda one: one.shape[1]):
        blocks = map_views(row_fingerprints, blocks_of_rows(view), executor, stage="fingerprints")
        keys, present = np.concatenate(blocks), view.present
        if present is not None:  # absent samples are alike in the view
            keys = present.spread(keys, 0)
        keys = groups.astype(np.uint64) * _ODD + keys[rows]
        different, counts = np.unique(keys, return_counts=True)
        repeated = different[counts > 1]
        if not repeated.size:
            return None
        groups = np.minimum(np.searchsorted(repeated, keys), repeated.size - 1)
        equal = np.flatnonzero(repeated[groups] == keys)
        rows, groups = rows[equal], groups[equal]
    found = np.full(n_samples, -1, dtype=np.int64)
    found[rows] = groups
    return found


def row_fingerprints(view: RowSource) -> NDArray[np.uint64]:
    """Fingerprint (n,) of the bits of each row: equal for equal rows, and for others only by rare collisions."""
    rng = np.random.default_rng(0)
    weights = rng.integers(2**63, size=view.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    numbers = []
    for start, stop in row_blocks(*view.shape):
        values = np.ascontiguousarray(view.read(start, stop), dtype=np.float64) + 0.0  # no -0.0
        bits = values.view(np.uint64)
        mixed = (bits ^ (bits >> np.uint64(32))) * _ODD
        mixed ^= mixed >> np.uint64(29)
        numbers.append((mixed * weights).sum(axis=1, dtype=np.uint64))
    return np.concatenate(numbers)
