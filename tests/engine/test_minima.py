"""All good cuts of the selected initial graph are scored, and the best is the start of the fit."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.solvers.partition_score import PartitionScore
from mscam_dask.types.parameters import Constants, Parameters
from tests.snapshots import Memory

SETTINGS = Parameters(n_clusters=6, n_neighbors=10, max_iter=1)


def before_and_after(seed: int, *, apart: float = 1.8, **more: Any) -> tuple[float, float]:
    """Score of the initial graph of six clusters in two views, before and after all its cuts are tried."""
    rng = np.random.default_rng(seed)
    labels = np.arange(300) % 6
    views = [apart * np.eye(6, 8)[labels] + rng.standard_normal((300, 8)) for _ in range(2)]
    parameters, memory = dataclasses.replace(SETTINGS, **more), Memory()
    solution = run_fit(as_multi_view(views), parameters, SerialExecutor(), checkpoint_store=memory)
    start = memory.saved[0]
    np.testing.assert_array_equal(np.unique(start.arrays["best_labels"]), np.arange(6))
    after = PartitionScore(tuple(start.record["best_view_scores"])).score
    return solution.settings[0].score, after


def test_a_better_minimum_is_taken() -> None:
    scores = [before_and_after(seed) for seed in range(4)]
    assert all(after >= before for before, after in scores)
    assert any(after > before for before, after in scores)


def test_one_that_is_hardly_better_is_not() -> None:
    before, after = before_and_after(0, constants=Constants(score_tie=10.0))
    assert after == before
