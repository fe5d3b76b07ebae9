"""Half the neighbours, where neither more of them nor the views' own graphs were taken."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from mscam_dask import MSCAM
from mscam_dask.data.views import as_multi_view
from mscam_dask.engine import starts
from mscam_dask.engine.fit import run_fit
from mscam_dask.engine.local import SerialExecutor
from mscam_dask.model.candidates import Choices, fewer_neighbors
from mscam_dask.model.parameters import Parameters
from mscam_dask.model.solution import Solution
from tests.engine.test_view_graphs import moons

FEWER = Choices(fewer_neighbors=True)


def solve(choices: Choices = FEWER, tol: float = 1e-3) -> Solution:
    """Two half circles that twenty neighbours join and ten do not."""
    parameters = Parameters(
        n_clusters=2, scale="standard", alpha=10.0, n_neighbors=20, max_outer_iter=3, tol=tol
    )
    views, _ = moons(3, seed=0)
    return run_fit(as_multi_view(views), parameters, SerialExecutor(), choices=choices)


def test_they_are_taken_where_they_are_ahead_and_only_then() -> None:
    solution = solve()
    twenty, ten = solution.settings
    assert (twenty.n_neighbors, ten.n_neighbors) == (20, 10)
    assert ten.score > twenty.score
    assert solution.chosen == 1
    assert solution.n_neighbors == solution.parameters.n_neighbors == 10
    assert adjusted_rand_score(moons(3, seed=0)[1], solution.labels) == 1.0
    ahead = ten.score / twenty.score - 1.0
    assert solve(tol=0.99 * ahead).n_neighbors == 10
    assert solve(tol=1.01 * ahead).n_neighbors == 20


def test_nothing_is_tried_that_was_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [one.n_neighbors for one in solve(Choices()).settings] == [20]
    views, _ = moons(3, seed=0)
    asked = MSCAM(2, n_neighbors=20, random_state=0, n_jobs=1).fit(views)
    assert {one.n_neighbors for one in asked.solution_.settings} == {20}
    monkeypatch.setattr(starts, "_CLEAR", -np.inf)  # whatever is found leaves nothing to find
    assert [one.n_neighbors for one in solve().settings] == [20]


def test_the_views_own_graphs_come_first_and_keep_their_neighbours() -> None:
    solution = solve(Choices(first_graph=True, fewer_neighbors=True))
    assert [one.first_graph for one in solution.settings] == ["distances", "graphs"]
    assert [one.n_neighbors for one in solution.settings] == [20, 20]
    assert solution.chosen == 1


@pytest.mark.parametrize(
    ("n_neighbors", "n_samples", "expected"),
    [(20, 500, 10), (14, 500, 7), (9, 500, 5), (5, 500, None), (3, 500, None), (20, 50_000, None)],
)
def test_half_but_five_at_least(n_neighbors: int, n_samples: int, expected: int | None) -> None:
    parameters = Parameters(n_clusters=2, n_neighbors=n_neighbors)
    assert fewer_neighbors(parameters, n_samples) == expected
