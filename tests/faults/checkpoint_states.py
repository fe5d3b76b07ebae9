"""Numbered states of a fit, to tell which of them a checkpoint store gives back."""

from __future__ import annotations

import numpy as np

from mscam_dask.data.checkpoints import Checkpoint, FileCheckpointStore


def state(number: int, n_values: int = 30) -> Checkpoint:
    rng = np.random.default_rng(number)
    arrays = {"graph_data": rng.standard_normal(n_values), "best_labels": np.arange(9) + number}
    return Checkpoint(arrays, {"iteration": number, "n_values": n_values})


def number_in(store: FileCheckpointStore) -> int | None:
    """Which state a store gives back, all of it of that state; None for none."""
    found = store.load()
    if found is None:
        return None
    expected = state(found.record["iteration"], found.record["n_values"])
    assert found.arrays.keys() == expected.arrays.keys()
    for name, values in expected.arrays.items():
        assert found.arrays[name].tobytes() == values.tobytes()
    return int(found.record["iteration"])
