"""Rules of the outer iterations and of the refinement, one decision at a time."""

from __future__ import annotations

import dataclasses
import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.engine import embed, finalize, outer_loop, refine, scores
from mscam_dask.engine.blocks import Candidates, Embedding, RowOrder, Spectrum
from mscam_dask.engine.cuts import random_starts, spectral_cuts
from mscam_dask.engine.stage import FAN_IN, Stage
from mscam_dask.solvers.partition_score import PartitionScore
from mscam_dask.solvers.rank_control import Decision
from mscam_dask.types.parameters import Constants, Parameters
from mscam_dask.types.result import Status
from mscam_dask.types.rules import CONSTANTS, RULES, SIZES

PARAMETERS = Parameters(n_clusters=3)


def of_score(score: float) -> PartitionScore:
    """A partition whose views all have the same information, as they have together."""
    return PartitionScore((score, score))


@pytest.mark.parametrize("n_views", [1, 2, 5])
def test_views_count_equally_and_the_projected_distances_in_units_of_their_mean(
    n_views: int,
) -> None:
    def weight(**settings: Any) -> float:
        prepared = SimpleNamespace(names=("v",) * n_views, n_samples=60)
        parameters = dataclasses.replace(PARAMETERS, **settings)
        context: Any = SimpleNamespace(prepared=prepared, parameters=parameters)
        return outer_loop._projected_weight(0.7, context)

    # ‖F_i − F_j‖² has the mean 2c / n over pairs
    assert weight() == pytest.approx(0.7 * 60 / (2 * 3) / n_views)
    # of MSCAN, the distances are those of Z, and λ is in them
    assert weight(model="mscan") == pytest.approx(1 / n_views)


@pytest.mark.parametrize(
    ("max_iter", "alone", "with_refinement"),
    [(None, 30, (3, 6)), (1, 1, (1, 1)), (3, 3, (3, 3)), (4, 4, (3, 4)), (50, 50, (3, 6))],
)
def test_a_limit_is_that_of_both_kinds_of_iterations(
    max_iter: int | None, alone: int, with_refinement: tuple[int, int]
) -> None:
    parameters = dataclasses.replace(PARAMETERS, max_iter=max_iter)
    assert parameters.iteration_limits(refines=False) == (alone, alone)
    assert parameters.iteration_limits(refines=True) == with_refinement


@pytest.mark.parametrize("follows_a_fit", [False, True])
@pytest.mark.parametrize("n_components", [3, 4])
def test_a_proposal_is_taken_unless_it_is_clearly_worse(
    follows_a_fit: bool, n_components: int
) -> None:
    def is_taken(score: float) -> bool:
        context: Any = SimpleNamespace(parameters=PARAMETERS, from_previous_fit=follows_a_fit)
        first = SimpleNamespace(graph=SimpleNamespace(n_components=n_components))
        best = SimpleNamespace(partition_score=of_score(score))
        proposal: Any = SimpleNamespace(first=first, best=best)
        state: Any = SimpleNamespace(best=SimpleNamespace(partition_score=of_score(0.5)))
        return refine._is_accepted(proposal, state, context)

    slightly_lower = 0.5 * (1 - 0.5 * RULES.score_margin)
    clearly_lower = 0.5 * (1 - 2.0 * RULES.score_margin)
    assert is_taken(0.5 * (1 + 2 * PARAMETERS.constants.score_tie) + 0.1)
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
    def iterate(_stage: Any, state: Any, _context: Any) -> Any:
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
        parameters=Parameters(
            n_clusters=3, max_iter=max_iter, constants=Constants(patience=patience)
        ),
        refines=False,
        prepared=SimpleNamespace(n_samples=90),
    )
    session: Any = SimpleNamespace(stage=lambda name: None, finish_iteration=lambda *_: None)
    assert outer_loop.outer_loop(start, context, session).iteration == expected
    start.decision = Decision.REACHED
    assert outer_loop.outer_loop(start, context, session).iteration == 0


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


class Submissions:
    """An executor that notes what is submitted and computes nothing."""

    def __init__(self) -> None:
        self.submitted: list[tuple[Any, ...]] = []
        self.keys: list[str] = []

    def submit(self, function: Any, *arguments: Any, key: str) -> Any:
        assert key not in self.keys
        self.keys.append(key)
        self.submitted.append((function, *arguments))
        return key

    def stage(self) -> Stage:
        executor: Any = self
        return Stage(executor, "0")


class Immediate(Submissions):
    """An executor whose handles are the results."""

    def submit(self, function: Any, *arguments: Any, key: str) -> Any:
        super().submit(function, *arguments, key=key)
        return function(*arguments)


ORDER = RowOrder(((0, 12),), "order", "positions")


def summed(terms: Any) -> list[Any]:
    return list(itertools.chain.from_iterable(terms))


def rows_of_views(views: Any, _candidates: Any, _ranges: Any) -> list[Any]:
    return [rows for (rows,) in views]


@pytest.mark.parametrize("n_views", [1, 2, 8, 9, 70])
def test_sums_and_records_have_each_view_once_and_in_order(
    n_views: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embed, "projected_distances", rows_of_views)
    monkeypatch.setattr(embed, "added", summed)
    solved: list[Any] = [SimpleNamespace(record=f"record {index}") for index in range(n_views)]
    results = [Embedding((f"rows {index}",), one) for index, one in enumerate(solved)]
    candidates = Candidates(ORDER, ("a part", "another"), ((0,), (0,)))
    expected = [one.rows[0] for one in results]
    assert embed.projected_sums(Immediate().stage(), results, candidates) == [expected] * 2
    records: Any = embed.submit_records(Immediate().stage(), solved)
    assert list(itertools.chain.from_iterable(records)) == [one.record for one in solved]
    assert len(records) == -(-n_views // FAN_IN)


@pytest.mark.parametrize("n_views", [1, 2, 16, 17, 40])
def test_scores_have_each_view_once_and_sixteen_tasks_at_most(
    n_views: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def name(source: Any, *_: Any) -> str:
        return str(source.name)

    monkeypatch.setattr(scores, "reference_graphs_of_view", name)
    monkeypatch.setattr(scores, "score_partitions", lambda graphs, _cuts, _n: graphs)
    monkeypatch.setattr(scores, "partition_scores", lambda groups, _cuts, _known: groups)
    views = as_multi_view([np.random.default_rng(0).standard_normal((9, 2))] * n_views)
    stage = Immediate().stage()
    groups: Any = scores.Scorer(stage, views).scores(stage, views.view_names, "cuts", 0)
    assert list(itertools.chain.from_iterable(groups)) == list(views.view_names)
    assert len(groups) <= 16
    assert max(map(len, groups)) <= -(-n_views // 16)


@pytest.mark.parametrize("ranges", [((0, 10),), ((0, 2500),), ((0, 6000), (6000, 12_000))])
@pytest.mark.parametrize("random", [False, True])
def test_tasks_of_random_starts_have_each_start_once(ranges: Any, random: bool) -> None:
    executor = Submissions()
    order = RowOrder(ranges, "order", "positions")
    spectrum = Spectrum((), ("vectors",) * len(ranges), (), np.zeros(9), converged=True)
    spectral_cuts(executor.stage(), spectrum, order, PARAMETERS, random=random)
    starts = [some for function, *_, some in executor.submitted if function is random_starts]
    found = list(itertools.chain.from_iterable(starts))
    assert found == (list(range(SIZES.n_random_starts)) if random else [])


@pytest.mark.parametrize("n", [5, 500])
def test_reference_graphs_have_fewer_neighbors_than_samples_and_equal_weights(n: int) -> None:
    executor = Submissions()
    views = as_multi_view([np.random.default_rng(0).standard_normal((n, 2)) for _ in range(3)])
    scorer = scores.Scorer(executor.stage(), views)
    first = scorer.graphs(views.view_names)
    assert scorer.graphs(views.view_names) == first
    assert len(set(first)) == len(executor.submitted) == 3  # each is computed once
    for _, _, n_neighbors, weight in executor.submitted:
        assert n_neighbors == min(CONSTANTS.validation_neighbors, n - 1)
        assert weight == 1.0


@pytest.mark.parametrize("weights", [(), (0.4,), (0.4, 0.6, 0.7)])
@pytest.mark.parametrize("status", [Status.CONVERGED, Status.SINGLETONS])
def test_embeddings_of_the_result_have_the_last_weight_of_the_graph(
    monkeypatch: pytest.MonkeyPatch, weights: tuple[float, ...], status: Status
) -> None:
    used: list[Any] = []

    def embed_views(_stage: Any, spectrum: Any, weight: float, *_: Any) -> list[Any]:
        used.append((spectrum, weight))
        return []

    monkeypatch.setattr(finalize, "null_spectrum", lambda _, graph: graph)
    monkeypatch.setattr(finalize, "embed_views", embed_views)
    monkeypatch.setattr(finalize, "gather_arrays", lambda *arguments: arguments[1])
    prepared = SimpleNamespace(names=(), views=(), order=ORDER)
    context: Any = SimpleNamespace(prepared=prepared, parameters=PARAMETERS)
    history: Any = tuple(SimpleNamespace(graph_weight=weight) for weight in weights)
    stage: Any = None
    for learned in ("the graph", "another"):
        final: Any = SimpleNamespace(graph="the graph", learned_graph=learned, status=status)
        graphs: Any = finalize._arrays(stage, final, context, None, history)
        others = {} if learned == "the graph" else {"learned_graph": learned}
        assert graphs == {"consensus_graph": "the graph", **others}
    last = weights[-1] if weights else PARAMETERS.constants.graph_weight
    assert used == ([] if status.is_trivial else [("the graph", last)] * 2)
