"""More neighbours where the first cut is one large cluster and splinters: tried, and taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from mscam_dask import MSCAM
from mscam_dask.data.views import as_multi_view
from mscam_dask.engine import selection
from mscam_dask.engine.fit import run_fit
from mscam_dask.engine.local import SerialExecutor
from mscam_dask.engine.plan import plan_memory
from mscam_dask.errors import ConfigurationError
from mscam_dask.model.candidates import Choices
from mscam_dask.model.parameters import Parameters
from mscam_dask.model.snapshot import Snapshot
from mscam_dask.model.solution import Solution
from tests.snapshots import Memory
from tests.synthetic import assert_partition_and_graph_agree

Array = NDArray[np.float64]
MORE = Choices(more_neighbors=True)


def with_repeats(seed: int) -> tuple[list[Array], Any]:
    """Three overlapping clusters in two views, 26 samples of each nearly the same.

    With twenty neighbours the repeats are nearly a component of their own, cheaper to cut off than
    the clusters are to part.
    """
    rng = np.random.default_rng(seed)
    labels = np.arange(600) % 3
    views = []
    for _ in range(2):
        view = 2.5 * np.eye(3, 8)[labels] + rng.standard_normal((600, 8))
        for cluster in range(3):
            repeats = np.flatnonzero(labels == cluster)[:26]
            view[repeats] = view[repeats[0]] + 0.3 * rng.standard_normal((26, 8))
        views.append(view)
    return views, labels


def settings(**more: Any) -> Parameters:
    given: dict[str, Any] = {"n_clusters": 3, "alpha": 10.0, "n_neighbors": 20, "max_outer_iter": 3}
    return Parameters(**(given | more))


def solve(data: list[Array], *, choices: Choices = MORE, **more: Any) -> Solution:
    return run_fit(as_multi_view(data), settings(), SerialExecutor(), choices=choices, **more)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_repeats_do_not_take_the_place_of_clusters(seed: int) -> None:
    views, labels = with_repeats(seed)
    chosen, as_given = solve(views), solve(views, choices=Choices())
    assert adjusted_rand_score(labels, as_given.labels) < 0.6
    assert adjusted_rand_score(labels, chosen.labels) > 0.9


def test_neighbours_that_were_asked_for_stay() -> None:
    views, _ = with_repeats(2)
    chosen = MSCAM(3, random_state=0, n_jobs=1).fit(views)
    asked = MSCAM(3, n_neighbors=20, random_state=0, n_jobs=1).fit(views)
    assert {one.n_neighbors for one in chosen.solution_.settings} > {20}
    assert {one.n_neighbors for one in asked.solution_.settings} == {20}
    nothing = MSCAM(3, selection=None, random_state=0, n_jobs=1).fit(views)
    assert [one.n_neighbors for one in nothing.solution_.settings] == [9]
    models = (chosen, asked, nothing)
    assert [one.chooses_neighbors for one in models] == [True, False, False]


def test_the_setting_tells_how_many_neighbours_were_taken() -> None:
    views, _ = with_repeats(1)
    solution = solve(views)
    tried = [one.n_neighbors for one in solution.settings]
    assert tried == [20, 40]  # forty leave the clusters even
    assert solution.chosen == 1
    assert solution.n_neighbors == 40
    assert solution.parameters.n_neighbors == 40
    assert solution.settings[1].score > 1.05 * solution.settings[0].score
    assert_partition_and_graph_agree(solution, n_clusters=3)


def test_where_twice_as_many_lose_four_times_as_many_may_win() -> None:
    solution = solve(with_repeats(2)[0])
    scores = [one.score for one in solution.settings]
    assert [one.n_neighbors for one in solution.settings] == [20, 40, 80]
    assert scores[1] < 1.05 * scores[0] < scores[2]
    assert solution.n_neighbors == 80


def test_it_has_to_be_ahead_by_a_twentieth(monkeypatch: pytest.MonkeyPatch) -> None:
    views, _ = with_repeats(2)
    first, _, third = (one.score for one in solve(views).settings)
    ahead = third / first - 1.0
    for handicap, taken in ((0.99 * ahead, 80), (1.01 * ahead, 20)):
        monkeypatch.setattr(selection, "_HANDICAP", handicap)
        assert solve(views).n_neighbors == taken


def test_even_clusters_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    views, _ = with_repeats(1)
    monkeypatch.setattr(selection, "_UNEVEN", 0.0)
    assert [one.n_neighbors for one in solve(views).settings] == [20]
    monkeypatch.undo()
    assert [one.n_neighbors for one in solve(views, choices=Choices()).settings] == [20]


def test_a_fit_goes_on_with_the_neighbours_that_were_taken() -> None:
    views, _ = with_repeats(1)
    memory = Memory()
    whole = solve(views, checkpointer=memory)
    assert whole.n_neighbors == 40
    state = memory.saved[0]
    again = solve(views, checkpointer=Memory(state))
    assert again.n_neighbors == 40
    assert_array_equal(again.labels, whole.labels)
    assert_array_equal(again.consensus_graph.indices, whole.consensus_graph.indices)
    assert_array_equal(again.consensus_graph.data, whole.consensus_graph.data)
    with pytest.raises(ConfigurationError, match="number of neighbours is chosen"):
        solve(views, checkpointer=Memory(state), choices=Choices())
    older = {key: value for key, value in state.record.items() if key != "more_neighbors"}
    earlier = Memory(Snapshot(state.arrays, older))
    assert_array_equal(solve(views, checkpointer=earlier).labels, whole.labels)


def test_the_memory_plan_counts_them() -> None:
    data = as_multi_view(with_repeats(0)[0])
    wide = plan_memory(data, settings(), more_neighbors=True)
    assert wide == plan_memory(data, settings(n_neighbors=80))
    assert wide.held_bytes > plan_memory(data, settings()).held_bytes
