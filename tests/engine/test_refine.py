"""Outer iterations that learn metrics from the best partition: when, to which end, their record and rules."""

from __future__ import annotations

import dataclasses
import weakref
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.engine import outer_loop as refine
from mscam_dask.engine.executors.base import SerialExecutor, ThreadExecutor
from mscam_dask.engine.executors.dask import DaskExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.engine.views import learn_metrics
from mscam_dask.solvers.known_labels import n_missed
from mscam_dask.solvers.partition_score import PartitionScore
from mscam_dask.types.events import FitFinished, IterationFinished, RefinementFinished
from mscam_dask.types.parameters import Choices, Parameters
from mscam_dask.types.result import Solution
from mscam_dask.types.rules import RULES
from tests.blocks import other_values
from tests.clusters import local_client
from tests.engine.same_bits import bits
from tests.snapshots import Memory
from tests.synthetic import Array, assert_partition_and_graph_agree, gaussian_views


def blurred(seed: int = 0, *, n_samples: int = 240) -> tuple[list[Array], Any]:
    """Clusters in a few directions of three views, and more variance in as many others."""
    rng, c = np.random.default_rng(seed), 4
    labels = rng.permutation(np.arange(n_samples) % c)
    views = []
    for _ in range(3):
        telling = 1.9 * np.eye(c)[labels] + 0.6 * rng.standard_normal((n_samples, c))
        silent = 1.2 * rng.standard_normal((n_samples, 2 * c))
        mixed = np.linalg.qr(rng.standard_normal((3 * c, 3 * c)))[0]
        views.append(np.column_stack([telling, silent]) @ mixed)
    return views, labels


PARAMETERS = Parameters(n_clusters=4, n_neighbors=20, scale="none", alpha=10.0, max_iter=6)


def solve(data: Any, executor: Any = None, **more: Any) -> Solution:
    changed = {
        key: more.pop(key) for key in ("max_iter", "n_neighbors", "exact_samples") if key in more
    }
    parameters = dataclasses.replace(PARAMETERS, **changed)
    views = as_multi_view(data)
    given = {"choices": Choices(initial_graph=True), **more}
    return run_fit(views, parameters, executor or SerialExecutor(), **given)


def test_iterations_end_with_the_first_that_is_not_taken_and_are_recorded() -> None:
    for seed in range(3):
        views, labels = blurred(seed)
        events: list[Any] = []
        solution = solve(views, observers=[events.append])
        told = solution.refinement
        assert [type(event) for event in events[-2:]] == [RefinementFinished, FitFinished]
        assert events[-2] == told
        assert tuple(e for e in events if isinstance(e, IterationFinished)) == solution.history
        by_admm = solution.history[: -len(told.scores)]
        learned = solution.history[-len(told.scores) :]
        assert 0 < len(by_admm) <= 3
        assert 0 < len(learned) <= 3
        assert tuple(record.score for record in learned) == told.scores
        accepted = [record.accepted for record in learned]
        assert all(accepted[:-1])
        assert sum(accepted) == told.taken
        if told.taken:
            assert solution.score == pytest.approx(told.scores[told.taken - 1])
        for record in learned:
            assert [view.view for view in record.views] == ["view_0", "view_1", "view_2"]
            assert all(-3 <= view.objective < 0 for view in record.views)  # c − 1 shares below 1
        seconds = sum(record.seconds for record in learned)
        assert 0.0 < seconds <= told.seconds <= events[-1].seconds
        assert adjusted_rand_score(labels, solution.labels) > 0.9
        assert_partition_and_graph_agree(solution, n_clusters=4)


@pytest.mark.parametrize(
    ("views", "settings"),
    [
        (gaussian_views(0, n_samples=120, n_clusters=4, spread=20.0, dims=(6, 6))[0], {}),
        ([blurred()[0][0]], {}),
        ([blurred(seed, n_samples=60)[0][0] for seed in range(17)], {}),
        (gaussian_views(5, n_samples=360, n_clusters=6, spread=40.0)[0], {"n_neighbors": 5}),
        (blurred()[0], {"choices": Choices()}),
    ],
    ids=["clear", "one view", "many views", "merged", "no choice"],
)
def test_some_fits_have_no_refinement(views: Any, settings: dict[str, Any]) -> None:
    assert solve(views, **settings).refinement is None


@pytest.mark.thorough
def test_restarts_and_executors_give_the_same_bits() -> None:
    views, _ = blurred(1)
    memory = Memory()
    reference = solve(views, checkpoint_store=memory)
    assert reference.refinement.taken > 0
    for index, state in enumerate(memory.saved):
        again = Memory(state)
        assert bits(solve(views, checkpoint_store=again)) == bits(reference)
        assert len(again.saved) == len(memory.saved) - index - 1  # nothing is done twice
    assert bits(solve(views, ThreadExecutor(2))) == bits(reference)
    with local_client(2) as client:
        assert bits(solve(views, DaskExecutor(client))) == bits(reference)


def test_rounds_are_limited() -> None:
    views, _ = blurred(1)
    assert len(solve(views).refinement.scores) > 1
    with other_values(RULES, max_iterations=1):
        assert len(solve(views).refinement.scores) == 1


def test_results_of_an_iteration_are_freed_with_it() -> None:
    """An iteration leaves no more results alive than it found: graph, spectrum, labels and what all share."""
    alive: weakref.WeakSet[Any] = weakref.WeakSet()

    class Counting(SerialExecutor):
        def submit(self, function: Any, /, *args: Any, key: str) -> Any:
            handle = super().submit(function, *args, key=key)
            alive.add(handle)
            return handle

    held: list[int] = []

    def observe(event: Any) -> None:
        if isinstance(event, IterationFinished):
            held.append(len(alive))

    solution = solve(blurred(1)[0], Counting(), observers=[observe])
    told = solution.refinement
    assert len(told.scores) > 1
    learned = held[-len(told.scores) :]
    assert learned[1] <= learned[0], held


@pytest.mark.thorough
def test_large_data_learn_from_cells() -> None:
    views, labels = blurred(2, n_samples=600)
    exact, from_cells = solve(views), solve(views, exact_samples=300)
    assert exact.refinement is not None
    assert from_cells.refinement is not None
    found = adjusted_rand_score(labels, from_cells.labels)
    assert found > adjusted_rand_score(labels, exact.labels) - 0.05


@pytest.mark.thorough
def test_an_earlier_fit_is_learned_from_too() -> None:
    views, _ = blurred(3)
    known = solve(views).labels
    again = solve(views, init_labels=known)  # must be ahead to be taken
    assert again.refinement is not None
    assert again.score >= solve(views).score - 1e-9


def test_missed_known_labels_are_learned_from_with_the_partition_then_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learned: list[NDArray[np.int64]] = []

    def recorded(stage: Any, views: Any, names: Any, labels: Any, order: Any) -> Any:
        learned.append(np.asarray(stage.value(labels)))
        return learn_metrics(stage, views, names, labels, order)

    limits: list[tuple[bool, bool]] = []
    is_accepted = refine._is_accepted

    def limited(*given: Any, must_be_better: bool, may_miss_more: bool) -> bool:
        limits.append((must_be_better, may_miss_more))
        return is_accepted(*given, must_be_better=must_be_better, may_miss_more=may_miss_more)

    monkeypatch.setattr(refine, "learn_metrics", recorded)
    monkeypatch.setattr(refine, "_is_accepted", limited)
    views, labels = gaussian_views(0, n_samples=240, n_clusters=4, spread=0.4)
    known, memory = np.where(np.arange(240) % 6 == 0, labels, -1), Memory()
    reference = solve(views, known=known, checkpoint_store=memory)
    assert len(reference.refinement.scores) == 3
    assert limits == [(False, False), (True, False), (False, True)]
    assert len(learned) == 5
    for some, alone in zip(learned, (False, True, True, False, True), strict=True):
        if alone:
            assert_array_equal(some, known)
        else:  # the partition, with known samples in the cluster of their class
            assert some.min() == 0
            assert n_missed(some, known) == 0
    for state in memory.saved:
        again = solve(views, known=known, checkpoint_store=Memory(state))
        assert bits(again) == bits(reference)


THREE_CLUSTERS = Parameters(n_clusters=3)


def is_taken(
    score: float,
    n_missed: int = 0,
    *,
    missed_before: int = 0,
    n_components: int = 3,
    follows_a_fit: bool = False,
    **limits: bool,
) -> bool:
    """Whether a partition of this score takes the place of one of 0.5; all views have the same information."""
    context: Any = SimpleNamespace(parameters=THREE_CLUSTERS, from_previous_fit=follows_a_fit)
    best = SimpleNamespace(partition_score=PartitionScore((score, score), n_missed=n_missed))
    graph = SimpleNamespace(n_components=n_components)
    proposal: Any = SimpleNamespace(graph=graph, best=best)
    before = PartitionScore((0.5, 0.5), n_missed=missed_before)
    state: Any = SimpleNamespace(best=SimpleNamespace(partition_score=before))
    return refine._is_accepted(proposal, state, context, **limits)


@pytest.mark.parametrize("follows", [False, True])
@pytest.mark.parametrize("n_components", [3, 4])
def test_a_proposal_is_taken_unless_it_is_clearly_worse(follows: bool, n_components: int) -> None:
    taken = partial(is_taken, follows_a_fit=follows, n_components=n_components)
    slightly_lower = 0.5 * (1 - 0.5 * RULES.level)
    clearly_lower = 0.5 * (1 - 2.0 * RULES.level)
    assert taken(0.5 * (1 + 2 * THREE_CLUSTERS.constants.score_tie) + 0.1)
    assert not taken(clearly_lower)
    assert taken(slightly_lower) is not follows  # of an earlier fit only a better one is
    # the same score again, with other components than clusters: nothing was learned
    assert taken(0.5) is (n_components == 3 and not follows)


def test_a_partition_of_known_labels_has_to_be_better_or_may_not_miss_more() -> None:
    taken = partial(is_taken, missed_before=4)
    assert taken(0.1, 1, must_be_better=True)  # 3 fewer are more than a standard error, √5
    assert not taken(0.5, 2, must_be_better=True)  # 2 fewer are not: √6
    assert taken(0.6, 2, must_be_better=True)
    assert not taken(0.9, 9, must_be_better=True)  # 5 more are more than √13
    assert taken(0.5, 5)
    assert not taken(0.9, 5, may_miss_more=False)
    assert taken(0.5, 4, may_miss_more=False)
