"""The driver loop on a cluster that loses, delays, repeats and reorders: always the same result."""

from __future__ import annotations

import pytest

from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.types.parameters import Model, Parameters, Scale
from mscam_dask.types.result import Solution
from tests.faults.histories import HistoryExecutor, Memory, assert_same
from tests.synthetic import gaussian_views

pytestmark = pytest.mark.faults

# Names that look like the path of another task's key.
NAMES = ("0/a", "a", "0")

SETTINGS: tuple[tuple[Scale, int], ...] = (("standard", 3), ("unit", 5))


def problem(model: Model) -> tuple[MultiViewData, tuple[Parameters, ...]]:
    views, _ = gaussian_views(4, n_samples=30, spread=1.2, dims=(3, 4, 6))
    candidates = tuple(
        Parameters(n_clusters=3, model=model, n_neighbors=k, max_iter=6, scale=scale)
        for scale, k in SETTINGS
    )
    return as_multi_view(dict(zip(NAMES, views, strict=True))), candidates


def check(model: Model, seeds: range, *, remember: bool) -> dict[str, int]:
    data, candidates = problem(model)
    expected: Solution = run_fit(data, candidates, SerialExecutor())
    assert len(expected.history) >= 3
    memory = Memory() if remember else None
    counts = {"lost": 0, "twice": 0, "tasks": 0}
    for seed in seeds:
        executor = HistoryExecutor(seed, memory)
        solution = run_fit(data, candidates, executor)
        for name in ("labels", "consensus_graph", "status", "score", "view_embeddings", "history"):
            assert_same(getattr(solution, name), getattr(expected, name), f"{seed}: {name}")
        counts["lost"] += executor.n_lost
        counts["twice"] += executor.n_twice
        counts["tasks"] += len(executor.keys)
    assert counts["lost"] > 0
    assert counts["twice"] > 0
    return counts


@pytest.mark.parametrize("model", ["mscam", "mscan"])
def test_histories_do_not_diverge(model: Model) -> None:
    check(model, range(150), remember=True)


@pytest.mark.parametrize("model", ["mscam", "mscan"])
def test_tasks_that_are_run_again_give_the_same(model: Model) -> None:
    check(model, range(2), remember=False)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("model", ["mscam", "mscan"])
def test_twenty_thousand_histories(model: Model) -> None:
    check(model, range(10_000), remember=True)
