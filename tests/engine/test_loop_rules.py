"""Rules of the outer iterations and of the refinement, one decision at a time."""

from __future__ import annotations

import dataclasses
import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.engine import finalize, iteration_steps, outer_loop, refine, tasks
from mscam_dask.engine.row_blocks import embedding
from mscam_dask.engine.row_blocks.candidates import (
    BlockedCandidates,
    BlockedSpectrum,
    RowOrder,
)
from mscam_dask.engine.row_blocks.tasks import FAN_IN, drawn_minima
from mscam_dask.solvers.partition_score import PartitionScore
from mscam_dask.solvers.rank_control import Decision
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.result import Status
from mscam_dask.types.rules import CONSTANTS, RULES, SIZES

PARAMETERS = Parameters(n_clusters=3)


def of_score(score: float) -> PartitionScore:
    """A partition whose views all have the same information, as they have together."""
    return PartitionScore((score, score), entropy=1.0, joint=score)


def proposal(score: float, n_components: int = 3, spectrum: Any = "spectrum of the new") -> Any:
    first = SimpleNamespace(n_components=n_components, graph="the new graph")
    best = Best("the new labels", of_score(score), 0)
    return SimpleNamespace(first=first, best=best, spectrum=spectrum)


@dataclasses.dataclass(frozen=True)
class Best:
    """A partition, as the refinement looks at it."""

    labels: str
    partition_score: PartitionScore
    iteration: int

    @property
    def score(self) -> float:
        return self.partition_score.score


@dataclasses.dataclass(frozen=True)
class State:
    """A state, as the refinement looks at it."""

    graph: str
    spectrum: str | None
    best: Best
    iteration: int = 7


def state(score: float = 0.5, spectrum: str | None = "spectrum of the old") -> Any:
    return State("the old graph", spectrum, Best("the old labels", of_score(score), 2))


class Releases:
    """An executor that only notes what is released."""

    def __init__(self) -> None:
        self.released: list[Any] = []

    def release(self, handles: Any) -> None:
        self.released += handles


@pytest.mark.parametrize("n_views", [1, 2, 5])
def test_views_count_equally_and_the_projected_distances_in_units_of_their_mean(
    n_views: int,
) -> None:
    def weights(**settings: Any) -> Any:
        prepared = SimpleNamespace(names=("v",) * n_views, n_samples=60)
        parameters = dataclasses.replace(PARAMETERS, **settings)
        context: Any = SimpleNamespace(prepared=prepared, parameters=parameters)
        return outer_loop._distance_weights(0.7, context)

    # ‖F_i − F_j‖² has the mean 2c / n over pairs
    assert weights(identity_weight=0.3) == {
        "data_weight": 0.3,
        "projected_weight": pytest.approx(0.7 * 60 / (2 * 3) / n_views),
    }
    # of MSCAN, the distances are those of Z, and λ is in them
    assert weights(model="mscan") == {
        "data_weight": 0.0,
        "projected_weight": pytest.approx(1 / n_views),
    }


def test_of_the_iterations_a_refinement_leaves_some_to_admm() -> None:
    for most in (1, RULES.max_iterations, RULES.max_iterations + 5):
        parameters = dataclasses.replace(PARAMETERS, max_iter=most)
        assert outer_loop.max_admm_iterations(parameters, refines=False) == most
        with_refinement = outer_loop.max_admm_iterations(parameters, refines=True)
        assert with_refinement == min(most, RULES.max_iterations)


@pytest.mark.parametrize("follows_a_fit", [False, True])
@pytest.mark.parametrize("n_components", [3, 4])
def test_a_proposal_is_taken_unless_it_is_clearly_worse(
    follows_a_fit: bool, n_components: int
) -> None:
    def is_taken(score: float) -> bool:
        context: Any = SimpleNamespace(parameters=PARAMETERS, from_previous_fit=follows_a_fit)
        return refine._is_accepted(proposal(score, n_components), state(), context)

    slightly_lower = 0.5 * (1 - 0.5 * RULES.score_margin)
    clearly_lower = 0.5 * (1 - 2.0 * RULES.score_margin)
    assert is_taken(0.5 * (1 + 2 * PARAMETERS.tol) + 0.1)
    assert not is_taken(clearly_lower)
    assert is_taken(slightly_lower) is not follows_a_fit  # of an earlier fit only a better one is
    # the same score again, with other components than clusters: nothing was learned
    assert is_taken(0.5) is (n_components == 3 and not follows_a_fit)


@pytest.mark.parametrize(
    ("patience", "max_iter", "improves_at", "expected"),
    [
        (2, 50, (), 3),  # one more than patience without a better partition
        (2, 50, (1, 3), 6),  # the third is the last better one
        (9, 4, (), 4),
    ],
)
def test_iterations_end_where_they_stall(
    patience: int,
    max_iter: int,
    improves_at: tuple[int, ...],
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def iterate(state: Any, context: Any, executor: Any) -> Any:
        number = state.iteration + 1
        best = number if number in improves_at else state.best.iteration
        return SimpleNamespace(
            **{**vars(state), "iteration": number, "best": SimpleNamespace(iteration=best)}
        )

    monkeypatch.setattr(outer_loop, "outer_iteration", iterate)
    start: Any = SimpleNamespace(
        refinement=None,
        spectrum="a spectrum",
        decision=Decision.ACCEPT,
        iteration=0,
        best=SimpleNamespace(iteration=0),
    )
    context: Any = SimpleNamespace(
        parameters=Parameters(n_clusters=3, patience=patience, max_iter=max_iter),
        refines=False,
        prepared=SimpleNamespace(n_samples=90),
    )
    session: Any = SimpleNamespace(executor=None, finish_iteration=lambda state, context: None)
    assert outer_loop.outer_loop(start, context, session).iteration == expected
    start.decision = Decision.REACHED
    assert outer_loop.outer_loop(start, context, session).iteration == 0


@pytest.mark.parametrize(
    ("n_components", "score", "accepted", "expected"),
    [
        (3, 0.5, True, Decision.REACHED),
        (3, 0.5, False, Decision.STOPPED),
        (4, 0.5, True, Decision.ACCEPT),
        (4, 0.5, False, Decision.STOPPED),
        (4, math.log(3), True, Decision.STOPPED),  # the most that three clusters can have
        (3, math.log(3), True, Decision.REACHED),
        (2, 0.5, True, Decision.ACCEPT),
    ],
)
def test_rounds_end_with_c_components_or_where_nothing_is_left_to_learn(
    n_components: int, score: float, accepted: bool, expected: Decision
) -> None:
    found = refine._decide(proposal(score, n_components), PARAMETERS, accepted=accepted)
    assert found is expected


@pytest.mark.parametrize("new_spectrum", ["spectrum of the new", None])
@pytest.mark.parametrize("old_spectrum", ["spectrum of the old", None])
@pytest.mark.parametrize("accepted", [False, True])
def test_of_two_rounds_the_one_that_is_not_kept_is_released(
    monkeypatch: pytest.MonkeyPatch,
    new_spectrum: str | None,
    old_spectrum: str | None,
    accepted: bool,
) -> None:
    monkeypatch.setattr(refine, "start_vectors", lambda spectrum, _executor, *, key: spectrum + key)
    executor: Any = Releases()
    before, new = state(spectrum=old_spectrum), proposal(0.6, spectrum=new_spectrum)
    found = refine._next_state(before, new, executor, " 4", accepted=accepted)
    old = {before.graph, before.best.labels, old_spectrum} - {None}
    if not accepted:
        assert found is before
        others = {new.first.graph, new.best.labels, new_spectrum} - {None}
        assert sorted(executor.released) == sorted(others)
        return
    assert found.graph == new.first.graph
    assert found.best == dataclasses.replace(new.best, iteration=7)
    kept = old_spectrum if new_spectrum is None else f"{new_spectrum} 4"
    assert found.spectrum == kept
    assert sorted(executor.released) == sorted(old - {kept})


@pytest.mark.parametrize(("graph", "expected"), [("mixed", True), ("mean", False), ("none", False)])
def test_graphs_of_single_views_are_learned_from_where_the_start_was(
    graph: str, expected: bool
) -> None:
    settings = (SimpleNamespace(initial_graph="mixed" if graph != "mixed" else "mean"),)
    selection = SimpleNamespace(
        settings=(*settings, SimpleNamespace(initial_graph=graph)), chosen=1
    )
    context: Any = SimpleNamespace(selection=selection)
    assert refine._is_mixed(context) is expected


class Submissions(Releases):
    """An executor that notes what is submitted and computes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.submitted: list[tuple[Any, ...]] = []

    def submit(self, function: Any, *arguments: Any, key: str) -> str:
        self.submitted.append((function, *arguments))
        return key


class Immediate(Submissions):
    """An executor whose handles are the results; no two tasks may have the same key."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: set[str] = set()

    def submit(self, function: Any, *arguments: Any, key: str) -> Any:
        assert key not in self.keys
        self.keys.add(key)
        super().submit(function, *arguments, key=key)
        return function(*arguments)


@pytest.mark.parametrize("n_views", [1, 2, 8, 9, 70])
def test_sums_and_records_have_each_view_once_and_in_order(
    n_views: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "projected", lambda results, _block, _model: results)
    monkeypatch.setattr(tasks, "added", itertools.chain.from_iterable)
    results: list[Any] = [SimpleNamespace(record=f"record {index}") for index in range(n_views)]
    executor: Any = Immediate()
    summed: Any = outer_loop._summed_over_views(results, "a block", "mscam", executor, key="0/0")
    assert list(summed) == results
    records = outer_loop._submit_records(results, executor, key="0")
    assert list(itertools.chain.from_iterable(records)) == [one.record for one in results]
    assert len(records) == -(-n_views // FAN_IN)


@pytest.mark.parametrize("model", ["mscam", "mscan"])
def test_large_data_keep_the_laplacian_for_distances_of_another_weight(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = SimpleNamespace(rows=["rows"], scaled=["scaled rows"])
    monkeypatch.setattr(outer_loop, "embed_views", lambda *_, key: [result])
    monkeypatch.setattr(embedding, "projected_sums", lambda *_, key: ["sums"])
    prepared: Any = SimpleNamespace(blocks=object.__new__(BlockedCandidates))
    context: Any = SimpleNamespace(prepared=prepared, parameters=SimpleNamespace(model=model))
    spectrum: Any = SimpleNamespace(laplacian=["Laplacian"])
    executor: Any = Releases()
    found = outer_loop._solve_views(spectrum, 0.5, context, executor, key="0")
    assert (found.results, found.distances) == ([result], ["sums"])
    laplacian = ["Laplacian"] if model == "mscam" else []
    assert executor.released == ["rows", "scaled rows", *laplacian]


@pytest.mark.parametrize("n_views", [1, 2, 16, 17, 40])
def test_scores_have_each_view_once_and_sixteen_tasks_at_most(
    n_views: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = tuple(f"view {index}" for index in range(n_views))
    monkeypatch.setattr(tasks, "score_partitions", lambda graphs, _cuts, _n: graphs)
    monkeypatch.setattr(tasks, "partition_scores", lambda _cuts, groups, _n: groups)
    prepared: Any = SimpleNamespace(
        reference_graphs=SimpleNamespace(handles=lambda _executor, views: views),
        validation_views=names,
        n_validation_samples=0,
    )
    executor: Any = Immediate()
    cuts: Any = "cuts"
    groups: Any = iteration_steps.score_partitions_by_views(prepared, cuts, executor, key="0")
    assert list(itertools.chain.from_iterable(groups)) == list(names)
    assert len(groups) <= 16
    assert max(map(len, groups)) <= -(-n_views // 16)
    assert executor.released == groups


def test_a_better_cut_takes_the_place_of_the_best_partition() -> None:
    executor: Any = Immediate()
    cuts: Any = ["labels 0", "labels 1", "labels 2"]
    scores = [of_score(0.4), of_score(0.6), of_score(0.5)]
    for before, expected in ((0.5, "labels 1"), (0.7, "the old labels"), (0.6, "the old labels")):
        earlier: Any = Best("the old labels", of_score(before), 2)
        best, score = outer_loop._better(
            cuts, scores, earlier, PARAMETERS, executor, key=str(len(executor.keys) + 4)
        )
        assert score == scores[1]
        assert best.labels == expected
        assert best.iteration == (4 if expected == "labels 1" else 2)


@pytest.mark.parametrize("n", [10, 10**6])
def test_tasks_of_random_starts_have_each_start_once(n: int) -> None:
    executor: Any = Submissions()
    prepared: Any = SimpleNamespace(n_samples=n)
    iteration_steps.first_cuts(Any, prepared, PARAMETERS, executor, key="0")
    *drawn, (_, _, _, handles) = executor.submitted
    starts = [start for *_, some in drawn for start in some]
    assert starts == list(range(SIZES.n_random_starts))
    assert len(handles) == len(drawn) == len(set(handles))
    assert executor.released == handles


def test_first_cuts_of_large_data_have_each_random_start_once() -> None:
    order = RowOrder(((0, 600), (600, 1200)), "order", "positions")
    blocks = BlockedCandidates(order, ("rows", "rows"), ((0,), (1,)))
    prepared: Any = SimpleNamespace(blocks=blocks, n_samples=1200)
    spectrum = BlockedSpectrum((), ("vectors 0", "vectors 1"), (), np.zeros(9), converged=True)
    executor: Any = Submissions()
    iteration_steps.first_cuts(spectrum, prepared, PARAMETERS, executor, key="0")
    starts = [starts for function, *_, starts in executor.submitted if function is drawn_minima]
    assert list(itertools.chain.from_iterable(starts)) == list(range(SIZES.n_random_starts))


@pytest.mark.parametrize("n", [5, 500])
def test_reference_graphs_have_fewer_neighbors_than_samples_and_equal_weights(n: int) -> None:
    executor: Any = Submissions()
    views = as_multi_view([np.random.default_rng(0).standard_normal((n, 2)) for _ in range(3)])
    graphs = iteration_steps.LazyReferenceGraphs(views)
    names = [view.name for view in views.views]
    first = graphs.handles(executor, names)
    assert graphs.handles(executor, names) == first
    assert len(set(first)) == len(executor.submitted) == 3  # each is computed once
    for _, _, n_neighbors, weight in executor.submitted:
        assert n_neighbors == min(CONSTANTS.validation_neighbors, n - 1)
        assert weight == 1.0


def test_the_learned_graph_is_a_second_one_where_it_was_rebuilt() -> None:
    def graphs(learned: str) -> Any:
        final: Any = finalize._FinalGraph
        return final("graph", learned, "labels", "status", "score").graphs

    assert graphs("graph") == {"consensus_graph": "graph"}
    assert graphs("other") == {"consensus_graph": "graph", "learned_graph": "other"}


@pytest.mark.parametrize("weights", [(), (0.4,), (0.4, 0.6, 0.7)])
def test_embeddings_of_the_result_have_the_last_weight_of_the_graph(
    monkeypatch: pytest.MonkeyPatch, weights: tuple[float, ...]
) -> None:
    monkeypatch.setattr(finalize, "spectrum_of", lambda graph, *_, **settings: (graph, settings))
    monkeypatch.setattr(
        finalize, "embed_views", lambda spectrum, weight, *_, key: [spectrum, weight]
    )
    context: Any = SimpleNamespace(prepared=None, parameters=PARAMETERS)
    history: Any = tuple(SimpleNamespace(graph_weight=weight) for weight in weights)
    final: Any = SimpleNamespace(graph="the graph", status=Status.CONVERGED)
    executor: Any = None
    (graph, settings), weight = finalize._submit_embeddings(final, context, executor, history)
    assert graph == "the graph"
    assert settings["graph_from_partition"]
    assert weight == (weights[-1] if weights else PARAMETERS.graph_weight)
    final.status = Status.SINGLETONS
    assert finalize._submit_embeddings(final, context, executor, history) == []


@pytest.mark.parametrize("model", ["mscam", "mscan"])
def test_only_distances_of_mscan_depend_on_the_weight_of_the_graph(
    monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.setattr(
        outer_loop, "_solve_views", lambda _spectrum, weight, *_, key: (weight, key)
    )
    executor: Any = Releases()
    views: Any = SimpleNamespace(results=["a result"], distances=["distances"])
    context: Any = SimpleNamespace(parameters=SimpleNamespace(model=model))
    spectrum: Any = "spectrum"
    found: Any = outer_loop._with_graph_weight(views, spectrum, 0.5, context, executor, key="1")
    if model == "mscam":
        assert found is views
        assert executor.released == []
    else:
        assert found == (0.5, "1")
        assert executor.released == ["a result", "distances"]
