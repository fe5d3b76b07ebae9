"""Outer iterations that learn metrics from the best partition: when, to which end, and their record."""

from __future__ import annotations

import dataclasses
import itertools
import math
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from mscam_dask import MSCAM, Constants
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.engine import refine, select
from mscam_dask.engine.executors.base import Handle, SerialExecutor, ThreadExecutor
from mscam_dask.engine.executors.dask import DaskExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.engine.initialize import InitialGraph, Initialization, with_view_graphs
from mscam_dask.engine.scores import BestPartition
from mscam_dask.engine.session import LoopState
from mscam_dask.engine.stage import Stage
from mscam_dask.linalg.distances import mean_squared_distance
from mscam_dask.solvers.partition_score import PartitionScore
from mscam_dask.solvers.rank_control import Decision, RankControl
from mscam_dask.solvers.ridge_view import RidgeView, complete_embedding, ridge_view
from mscam_dask.solvers.row_blocks import ViewShape
from mscam_dask.solvers.view_svd import view_svd
from mscam_dask.types.events import (
    FitFinished,
    IterationFinished,
    RefinementFinished,
    SettingsSelected,
)
from mscam_dask.types.parameters import Choices, Parameters
from mscam_dask.types.result import Solution, Status
from mscam_dask.types.rules import RULES
from tests.clusters import local_client
from tests.snapshots import Memory
from tests.solvers.discriminants import linear_discriminants
from tests.synthetic import assert_partition_and_graph_agree, gaussian_views

Array = NDArray[np.float64]
LEARNS = Choices(initial_graph=True)


def blurred(seed: int = 0, *, n_samples: int = 240, c: int = 4) -> tuple[list[Array], Any]:
    """Clusters in a few directions of three views, and more variance in as many others."""
    rng = np.random.default_rng(seed)
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
        key: more.pop(key)
        for key in ("constants", "n_clusters", "n_neighbors", "exact_samples")
        if key in more
    }
    parameters = dataclasses.replace(PARAMETERS, **changed)
    views = as_multi_view(data)
    return run_fit(views, parameters, executor or SerialExecutor(), choices=LEARNS, **more)


def without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop before the first iteration."""
    monkeypatch.setattr(refine, "RULES", dataclasses.replace(RULES, max_iterations=0))


def test_partitions_get_better(monkeypatch: pytest.MonkeyPatch) -> None:
    data = [blurred(seed) for seed in range(4)]
    learned = [solve(views) for views, _ in data]
    without(monkeypatch)
    plain = [solve(views) for views, _ in data]
    gains = [
        adjusted_rand_score(labels, one.labels) - adjusted_rand_score(labels, other.labels)
        for (_, labels), one, other in zip(data, learned, plain, strict=True)
    ]
    assert min(gains) >= 0
    assert np.mean(gains) > 0.01
    for one, other in zip(learned, plain, strict=True):
        assert one.refinement is not None
        assert other.refinement is not None
        assert other.refinement.scores == ()
        if one.refinement.taken:
            assert one.score == pytest.approx(one.refinement.scores[one.refinement.taken - 1])
        else:
            assert np.array_equal(one.labels, other.labels)
        assert_partition_and_graph_agree(one, n_clusters=4)


def copied(labels: Any, stage: Stage) -> Handle:
    return stage.submit(np.copy, labels, kind="another")


def near(score: float, before: float) -> bool:
    return score >= before - 0.015 * abs(before)


@pytest.mark.thorough
def test_rounds_end_with_the_first_that_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    data = [blurred(seed)[0] for seed in range(4)]
    learned = [solve(views).refinement for views in data]
    without(monkeypatch)
    for views, one in zip(data, learned, strict=True):
        assert one is not None
        assert len(one.scores) <= 3
        assert one.taken in (len(one.scores), len(one.scores) - 1)
        chain = [solve(views).score, *one.scores]
        taken, rest = chain[: one.taken + 1], chain[one.taken + 1 :]
        assert all(near(later, earlier) for earlier, later in itertools.pairwise(taken))
        assert all(score == taken[-1] or not near(score, taken[-1]) for score in rest)


def little_behind(monkeypatch: pytest.MonkeyPatch, behind: float) -> None:
    """Every round gives a partition that scores so much less."""

    def lower(state: LoopState, stage: Stage) -> BestPartition:
        before = state.best.partition_score
        score = PartitionScore((before.score * (1 - behind),))
        return BestPartition(copied(state.best.labels, stage), score, 0)

    replaced(monkeypatch, lower)


def replaced(
    monkeypatch: pytest.MonkeyPatch,
    partition: Callable[[LoopState, Stage], BestPartition],
) -> None:
    """Make every iteration find another partition than that of its graph."""
    plain = refine._next_graph

    def found(stage: Stage, state: LoopState, *rest: Any) -> Initialization:
        following = plain(stage, state, *rest)
        return dataclasses.replace(following, best=partition(state, stage))

    monkeypatch.setattr(refine, "_next_graph", found)


@pytest.mark.parametrize(("behind", "taken"), [(0.0149, 3), (0.0151, 0)])
def test_one_that_is_little_behind_is_taken(
    monkeypatch: pytest.MonkeyPatch, behind: float, taken: int
) -> None:
    """The reference graphs are of the original distances, and favor cuts by these."""
    little_behind(monkeypatch, behind)
    learned = solve(blurred()[0]).refinement
    assert learned is not None
    assert learned.taken == taken
    assert len(learned.scores) == max(taken, 1)


@pytest.mark.parametrize("mixed", [True, False])
def test_its_graphs_are_mixed_if_the_initial_graph_is(
    monkeypatch: pytest.MonkeyPatch, mixed: bool
) -> None:
    monkeypatch.setattr(select, "_is_better", lambda *_: mixed)
    calls: list[tuple[Any, ...]] = []

    def counted(*arguments: Any, **more: Any) -> InitialGraph:
        calls.append(arguments)
        return with_view_graphs(*arguments, **more)

    monkeypatch.setattr(refine, "with_view_graphs", counted)
    solution = solve(blurred()[0])
    assert solution.settings[solution.chosen].initial_graph == ("mixed" if mixed else "mean")
    assert solution.refinement is not None
    assert len(calls) == (len(solution.refinement.scores) if mixed else 0)


def test_a_partition_handed_down_stays_unless_one_is_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    views, labels = blurred()
    little_behind(monkeypatch, 0.005)
    learned = solve(views, init_labels=np.asarray(labels)).refinement
    assert learned is not None
    assert (len(learned.scores), learned.taken) == (1, 0)
    little_behind(monkeypatch, -0.005)
    ahead = solve(views, init_labels=np.asarray(labels)).refinement
    assert ahead is not None
    assert ahead.taken == 3


def test_the_same_partition_again_ends_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    def equal(state: LoopState, stage: Stage) -> BestPartition:
        return dataclasses.replace(state.best, labels=copied(state.best.labels, stage))

    replaced(monkeypatch, equal)
    learned = solve(blurred()[0]).refinement
    assert learned is not None
    assert (len(learned.scores), learned.taken) == (1, 0)


def test_a_graph_of_c_components_ends_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its components are the clusters, and it is the graph that is returned."""
    views, labels = gaussian_views(0, spread=8.0)
    given = Parameters(n_clusters=len(set(labels)), scale="none", alpha=10.0, max_iter=6)
    monkeypatch.setattr(
        "mscam_dask.solvers.partition_score.RULES", dataclasses.replace(RULES, nearly_perfect=1.1)
    )
    solution = run_fit(as_multi_view(views), given, SerialExecutor(), choices=LEARNS)
    last = solution.history[-1]
    assert last.n_connected_components == solution.n_connected_components == len(set(labels))
    assert solution.status is Status.CONVERGED
    assert adjusted_rand_score(labels, solution.labels) == 1.0


def test_every_iteration_is_recorded() -> None:
    events: list[Any] = []
    solution = solve(blurred()[0], observers=[events.append])
    assert solution.refinement is not None
    n_learned = len(solution.refinement.scores)
    by_admm, learned = solution.history[:-n_learned], solution.history[-n_learned:]
    assert 0 < len(by_admm) <= 3
    assert [record.iteration for record in solution.history] == list(range(len(solution.history)))
    assert [record.score for record in learned] == list(solution.refinement.scores)
    assert sum(record.accepted for record in learned) == solution.refinement.taken
    assert tuple(e for e in events if isinstance(e, IterationFinished)) == solution.history
    for record in learned:
        assert [view.view for view in record.views] == ["view_0", "view_1", "view_2"]
        assert all(-3 <= view.objective < 0 for view in record.views)  # c − 1 shares below 1


def test_they_are_told_after_the_path() -> None:
    events: list[Any] = []
    solution = solve(blurred()[0], observers=[events.append])
    assert [type(event) for event in events[-2:]] == [RefinementFinished, FitFinished]
    assert events[-2] == solution.refinement
    learned = solution.history[-len(events[-2].scores) :]
    seconds = sum(record.seconds for record in learned)
    assert 0.0 < seconds <= events[-2].seconds <= events[-1].seconds


@pytest.mark.parametrize("decision", [Decision.STOPPED, Decision.REACHED])
def test_a_refinement_without_a_new_partition_leaves_the_decision_before_it(
    monkeypatch: pytest.MonkeyPatch, decision: Decision
) -> None:
    record: Any = SimpleNamespace(score=0.4, accepted=False)

    def iterate(_: Any, state: Any, *__: Any) -> Any:
        history = (*state.history, record)
        return dataclasses.replace(state, history=history, decision=Decision.STOPPED)

    monkeypatch.setattr(refine, "refine_iteration", iterate)
    monkeypatch.setattr(refine, "_is_mixed", lambda _: False)
    best: Any = SimpleNamespace(partition_score=PartitionScore((0.5,)))
    graph: Any = "a graph"
    start = LoopState(graph, None, RankControl(3, 1.3, 0.1), best, decision)
    context: Any = SimpleNamespace(refines=True, parameters=PARAMETERS, view_graphs=None)
    session: Any = SimpleNamespace(
        stage=lambda name: None, finish_iteration=lambda *_: None, notify=lambda *_: None
    )
    assert refine.refine(start, context, session).decision is decision
    record.accepted = True
    assert refine.refine(start, context, session).decision is Decision.STOPPED


@pytest.mark.thorough
def test_the_limit_of_the_iterations_is_told_before_the_first() -> None:
    """By ADMM as many as are allowed, at most three, and of the refinement the rest, at most three."""
    views, _ = blurred()
    limits: list[tuple[int | None, int]] = [(1, 1), (2, 2), (4, 4), (30, 6), (None, 6)]
    for max_iter, limit in limits:
        solution, selected = with_selection(views, max_iter=max_iter)
        assert solution.refinement is not None
        assert selected.max_iter == limit
        assert len(solution.history) <= limit
    for max_iter in (None, 30):
        solution, selected = with_selection(clear_views(), max_iter=max_iter)
        assert solution.refinement is None
        assert selected.max_iter == 30


def with_selection(views: Any, *, max_iter: int | None) -> tuple[Solution, SettingsSelected]:
    events: list[Any] = []
    parameters = dataclasses.replace(PARAMETERS, max_iter=max_iter)
    data = as_multi_view(views)
    solution = run_fit(
        data, parameters, SerialExecutor(), choices=LEARNS, observers=[events.append]
    )
    (selected,) = (event for event in events if isinstance(event, SettingsSelected))
    return solution, selected


def clear_views() -> list[Array]:
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 4
    return [20 * np.eye(4, 6)[labels] + rng.standard_normal((120, 6)) for _ in range(2)]


def test_clear_partitions_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    views = clear_views()
    solution = solve(views)
    assert solution.refinement is None
    assert solution.score >= 0.9 * math.log(4)
    monkeypatch.setattr(
        "mscam_dask.solvers.partition_score.RULES", dataclasses.replace(RULES, nearly_perfect=1.1)
    )
    assert solve(views).refinement is not None


@pytest.mark.parametrize("n_views", [1, 17])
def test_one_view_and_many_views_learn_nothing(n_views: int) -> None:
    views = [blurred(seed)[0][0] for seed in range(n_views)]
    assert solve(views).refinement is None


def test_pieces_that_were_merged_learn_nothing() -> None:
    views, _ = gaussian_views(5, n_samples=360, n_clusters=6, spread=40.0)
    solution = solve(views, n_neighbors=5)
    assert solution.status is Status.MERGED_COMPONENTS
    assert solution.refinement is None


def test_nothing_chosen_learns_nothing() -> None:
    model = MSCAM(4, constants=Constants.paper(), random_state=0, n_jobs=1)
    assert model.fit(blurred()[0]).solution_.refinement is None
    assert (
        clone(model).set_params(constants=None).fit(blurred()[0]).solution_.refinement is not None
    )


def signature(solution: Solution) -> Any:
    graph = solution.consensus_graph
    arrays = (solution.labels, graph.data, graph.indices, graph.indptr)
    told = solution.refinement
    assert told is not None
    return [array.tobytes() for array in arrays], (told.scores, told.taken), solution.score


@pytest.mark.thorough
def test_a_restart_gives_the_same_bits_and_does_nothing_twice() -> None:
    views, _ = blurred(1)
    memory = Memory()
    reference = solve(views, checkpoint_store=memory)
    assert reference.refinement is not None
    assert reference.refinement.taken > 0
    for index, state in enumerate(memory.saved):
        again = Memory(state)
        assert signature(solve(views, checkpoint_store=again)) == signature(reference)
        assert len(again.saved) == len(memory.saved) - index - 1


@pytest.mark.thorough
def test_every_executor_gives_the_same_bits() -> None:
    views, _ = blurred(1)
    reference = solve(views)
    assert signature(solve(views, ThreadExecutor(2))) == signature(reference)
    with local_client(2) as client:
        assert signature(solve(views, DaskExecutor(client))) == signature(reference)


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


def prepared(rows: Array) -> RidgeView:
    shape = ViewShape(rows.shape[0], rows.shape[1], "features")
    view = view_svd(lambda a, b: rows[a:b], shape, scale="none", name="a view")
    return ridge_view(view, alpha=1.0)


def test_data_and_learned_distances_count_the_same() -> None:
    views, labels = gaussian_views(0)
    data = [prepared(view) for view in views]
    learned = [linear_discriminants(view, labels) for view in data]
    assert mean_squared_distance(complete_embedding(data)) == pytest.approx(1.0)
    assert mean_squared_distance(complete_embedding([*data, *learned])) == pytest.approx(2.0)
    silent = [dataclasses.replace(one, points=0 * one.points, mean_distance=0.0) for one in learned]
    assert mean_squared_distance(complete_embedding([*data, *silent])) == pytest.approx(1.0)


def test_results_of_an_iteration_are_freed_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An iteration leaves no more results alive than it found: graph, spectrum, labels and what all share."""
    alive: weakref.WeakSet[Any] = weakref.WeakSet()

    class Counting(SerialExecutor):
        def submit(self, function: Any, /, *args: Any, key: str) -> Any:
            handle = super().submit(function, *args, key=key)
            alive.add(handle)
            return handle

    held: list[int] = []
    plain = refine.refine_iteration

    def watched(*arguments: Any) -> Any:
        held.append(len(alive))
        return plain(*arguments)

    monkeypatch.setattr(refine, "refine_iteration", watched)
    little_behind(monkeypatch, 0.001)
    solve(blurred()[0], Counting())
    assert len(held) == 3
    assert held[2] <= held[1], held
