"""The driver loop on a cluster that loses, delays, repeats and reorders: always the same result."""

from __future__ import annotations

import pytest

from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.types.parameters import Model, Parameters, Scale
from tests.engine.same_bits import bits
from tests.faults.histories import HistoryExecutor, Memory
from tests.synthetic import gaussian_views

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(300),
    pytest.mark.parametrize("model", ["mscam", "mscan"]),
]

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


@pytest.mark.parametrize(
    "n_histories",
    [10, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])],
)
def test_histories_do_not_diverge(model: Model, n_histories: int) -> None:
    """The first two compute every task anew, and some twice; the others remember results."""
    data, candidates = problem(model)
    solution = run_fit(data, candidates, SerialExecutor())
    assert len(solution.history) >= 3
    expected = bits(solution)
    memory = Memory()
    n_lost = n_twice = 0
    for seed in range(n_histories):
        executor = HistoryExecutor(seed, memory if seed > 1 else None)
        assert bits(run_fit(data, candidates, executor)) == expected, seed
        n_lost += executor.n_lost
        n_twice += executor.n_twice
    assert n_lost > 0
    assert n_twice > 0
