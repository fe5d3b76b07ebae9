"""A fit that goes on from any of its states ends as if nothing had happened, to the last bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mscam_dask.data.checkpoints import Checkpoint
from mscam_dask.data.views import multi_view as multiview
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import RowSource, view_digest
from mscam_dask.engine import blocks, neighbors
from mscam_dask.engine.executors.base import SerialExecutor, ThreadExecutor
from mscam_dask.engine.executors.dask import DaskExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.errors import ConfigurationError, StoreCorruptError
from mscam_dask.estimators.mscam import MSCAM
from mscam_dask.types.events import (
    FitEvent,
    FitFinished,
    FitStarted,
    IterationFinished,
    SettingsSelected,
)
from mscam_dask.types.parameters import Choices, Parameters, ViewSettings
from mscam_dask.types.result import Solution, Status
from tests.clusters import local_client
from tests.messages import quotes
from tests.snapshots import Memory
from tests.synthetic import gaussian_views


def data(n_samples: int = 150, *, spread: float = 0.7) -> MultiViewData:
    views, _ = gaussian_views(1, n_samples=n_samples, spread=spread)
    return as_multi_view(dict(zip(("a", "b", "c"), views, strict=True)))


def candidates(model: str = "mscam", **more: Any) -> list[Parameters]:
    return [
        Parameters(n_clusters=3, model=model, scale=scale, alpha=alpha, **more)  # type: ignore[arg-type]
        for scale, alpha in (("unit", 10.0), ("standard", 1.0))
    ]


def signature(solution: Solution) -> Any:
    """Everything of a solution but the time it took."""
    graph = solution.consensus_graph
    arrays: list[Any] = [solution.labels, graph.data, graph.indices, graph.indptr]
    arrays += [solution.view_embeddings[name] for name in sorted(solution.view_embeddings)]
    history = [
        dataclasses.replace(
            record,
            seconds=0.0,
            views=tuple(dataclasses.replace(view, seconds=0.0) for view in record.views),
        )
        for record in solution.history
    ]
    prepared = [dataclasses.replace(record, seconds=0.0) for record in solution.prepared]
    return (
        [(array.dtype.str, array.shape, array.tobytes()) for array in arrays],
        history,
        prepared,
        solution.settings,
        solution.parameters,
        solution.score,
        solution.view_contributions,
        solution.status,
        solution.n_neighbors,
    )


@pytest.mark.parametrize("model", ["mscam", "mscan"])
def test_every_state_leads_to_the_same_end(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbors, "_MIN_PART", 40)
    views, asked = data(), candidates(model, max_iter=5)
    memory = Memory()
    whole = run_fit(views, asked, SerialExecutor(), checkpoint_store=memory)
    assert signature(whole) == signature(run_fit(views, asked, SerialExecutor()))
    assert len(memory.saved) == len(whole.history) + 1  # and one after the selection
    for index, snapshot in enumerate(memory.saved):
        again = Memory(snapshot)
        assert signature(
            run_fit(views, asked, SerialExecutor(), checkpoint_store=again)
        ) == signature(whole)
        assert len(again.saved) == len(whole.history) - index  # nothing is done twice


@pytest.mark.parametrize("model", ["mscam", "mscan"])
def test_every_state_of_large_data_leads_to_the_same_end(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_BLOCK_ROWS", 200)
    monkeypatch.setattr(neighbors, "CELL_POINTS", 50)
    views = data(800, spread=0.5)
    asked = candidates(model, max_iter=2, exact_samples=400)[:1]
    memory = Memory()
    whole = run_fit(views, asked, SerialExecutor(), checkpoint_store=memory)
    assert len(memory.saved) == len(whole.history) + 1 == 3
    for snapshot in memory.saved:
        again = run_fit(views, asked, ThreadExecutor(2), checkpoint_store=Memory(snapshot))
        assert signature(again) == signature(whole)


def test_the_warm_start_of_the_eigensolver_is_part_of_the_state() -> None:
    """Above 800 samples the eigensolver iterates, and where it starts shows in the last bits."""
    views = data(900, spread=0.4)
    asked = candidates(max_iter=3)[:1]
    memory = Memory()
    whole = run_fit(views, asked, SerialExecutor(), checkpoint_store=memory)
    assert len(whole.history) == 3
    state = memory.saved[1]
    again = run_fit(views, asked, SerialExecutor(), checkpoint_store=Memory(state))
    assert signature(again) == signature(whole)
    elsewhere = np.random.default_rng(0).standard_normal(state.arrays["spectrum_vectors"].shape)
    state = Checkpoint({**state.arrays, "spectrum_vectors": elsewhere}, state.record)
    again = run_fit(views, asked, SerialExecutor(), checkpoint_store=Memory(state))
    assert signature(again) != signature(whole)


def test_another_executor_goes_on_to_the_same_end() -> None:
    views, asked = data(), candidates(max_iter=3)
    memory = Memory()
    whole = run_fit(views, asked, SerialExecutor(), checkpoint_store=memory)
    start = Memory(memory.saved[1])
    with local_client(1, processes=False) as client:
        again = run_fit(views, asked, DaskExecutor(client), checkpoint_store=start)
    assert signature(again) == signature(whole)


def test_observers_hear_of_the_iterations_before_the_restart() -> None:
    views, asked = data(), candidates(max_iter=3)
    memory = Memory()
    heard: list[list[FitEvent]] = [[], []]
    run_fit(views, asked, SerialExecutor(), observers=[heard[0].append], checkpoint_store=memory)
    start = Memory(memory.saved[2])
    run_fit(views, asked, SerialExecutor(), observers=[heard[1].append], checkpoint_store=start)
    kinds = [[type(event) for event in events] for events in heard]
    assert kinds[0] == kinds[1]
    assert kinds[0][:2] == [FitStarted, SettingsSelected]
    assert kinds[0][-1] is FitFinished
    assert heard[1][1:4] == heard[0][1:4]  # selection and two iterations, seconds and all
    assert all(isinstance(event, IterationFinished) for event in heard[1][2:-1])


def test_data_in_more_pieces_than_clusters_restart_too() -> None:
    rng = np.random.default_rng(0)
    centers = 100.0 * np.arange(5)[:, None]
    views = as_multi_view([np.repeat(centers, 20, axis=0) + rng.normal(size=(100, 3))])
    asked = [Parameters(n_clusters=2, n_neighbors=3, n_candidates=4)]
    memory = Memory()
    whole = run_fit(views, asked, SerialExecutor(), checkpoint_store=memory)
    assert whole.status is Status.MERGED_COMPONENTS
    (snapshot,) = memory.saved
    again = run_fit(views, asked, SerialExecutor(), checkpoint_store=Memory(snapshot))
    assert signature(again) == signature(whole)


def test_the_data_are_digested_once(monkeypatch: pytest.MonkeyPatch) -> None:
    digested: list[str] = []

    def counted(source: RowSource) -> str:
        digested.append(source.name)
        return view_digest(source)

    monkeypatch.setattr(multiview, "view_digest", counted)
    views, asked, memory = data(), candidates(max_iter=3)[:1], Memory()
    run_fit(views, asked, SerialExecutor())
    assert digested == []
    run_fit(views, asked, SerialExecutor(), checkpoint_store=memory)
    assert len(memory.saved) > 2
    assert digested == ["a", "b", "c"]
    run_fit(views, asked, SerialExecutor(), checkpoint_store=Memory(memory.saved[0]))
    assert digested == 2 * ["a", "b", "c"]


def test_one_cluster_needs_no_checkpoint() -> None:
    memory = Memory()
    run_fit(data(), Parameters(n_clusters=1), SerialExecutor(), checkpoint_store=memory)
    assert memory.saved == []


def first_state(views: MultiViewData, asked: list[Parameters]) -> Checkpoint:
    memory = Memory()
    run_fit(views, asked, SerialExecutor(), checkpoint_store=memory)
    return memory.saved[0]


def test_the_state_of_another_fit_is_refused() -> None:
    views, asked = data(), candidates(max_iter=1)
    memory = Memory(first_state(views, asked))
    with pytest.raises(ConfigurationError, match=quotes("digest")):
        run_fit(data(spread=0.8), asked, SerialExecutor(), checkpoint_store=memory)
    other = Memory(first_state(data(spread=0.8), asked))
    with pytest.raises(ConfigurationError, match=quotes("digest")):
        run_fit(views, asked, SerialExecutor(), checkpoint_store=other)
    with pytest.raises(ConfigurationError, match=quotes("alpha", "scale", "n_neighbors")):
        run_fit(views, asked[:1], SerialExecutor(), checkpoint_store=memory)


def test_the_state_of_a_fit_that_chose_among_other_preparations_is_refused() -> None:
    """Candidates stand for what is chosen later: they may be the same where choices differ."""
    tried = tuple(ViewSettings("unit", alpha) for alpha in (10.0, 1.0))
    views, asked = data(), candidates(max_iter=1)[:1]
    memory = Memory()
    run_fit(views, asked, SerialExecutor(), checkpoint_store=memory, choices=Choices(tried))
    state = memory.saved[-1]
    for others in ((), tried[:1], (*tried, ViewSettings("standard", 1.0))):
        with pytest.raises(ConfigurationError, match=quotes("scale", "alpha", "unit", 10)):
            run_fit(
                views,
                asked,
                SerialExecutor(),
                checkpoint_store=Memory(state),
                choices=Choices(others),
            )
    run_fit(views, asked, SerialExecutor(), checkpoint_store=Memory(state), choices=Choices(tried))
    chosen, fixed = (MSCAM(3, alpha=alpha, n_jobs=1, max_iter=1) for alpha in (None, 10.0))
    memory = Memory()
    chosen.set_params(checkpoint_store=memory).fit(views)
    assert chosen.candidate_settings(views) == fixed.candidate_settings(views)
    with pytest.raises(ConfigurationError, match=quotes("scale", "alpha")):
        fixed.set_params(checkpoint_store=Memory(memory.saved[-1])).fit(views)


@pytest.mark.parametrize(
    ("argument", "name"), [("init_labels", "init_labels"), ("known", "partial_labels")]
)
def test_the_state_of_a_fit_that_began_with_other_labels_is_refused(
    argument: str, name: str
) -> None:
    views, asked = data(), candidates(max_iter=1)[:1]
    known = np.arange(150) % 3
    known[100:] = -1
    memory = Memory()

    def resume(store: Memory, labels: Any) -> Any:
        given = {argument: labels}
        return run_fit(views, asked, SerialExecutor(), checkpoint_store=store, **given)

    whole = resume(memory, known)
    state = memory.saved[-1]
    for other in (None, known[::-1].copy()):
        with pytest.raises(ConfigurationError, match=quotes(name, "recorded: others")):
            resume(Memory(state), other)
    np.testing.assert_array_equal(resume(Memory(state), known).labels, whole.labels)
    cold = Memory(first_state(views, asked))
    with pytest.raises(ConfigurationError, match=quotes(name, "recorded: none")):
        resume(cold, known)


@pytest.mark.parametrize("is_selected", [False, True])
def test_the_state_of_a_fit_whose_number_of_clusters_was_selected_or_not_is_refused(
    is_selected: bool,
) -> None:
    views, asked, memory = data(), candidates(max_iter=1)[:1], Memory()
    before, now = Choices(n_clusters=is_selected), Choices(n_clusters=not is_selected)
    run_fit(views, asked, SerialExecutor(), checkpoint_store=memory, choices=before)
    state = Memory(memory.saved[-1])
    was = "it was selected" if is_selected else "it was given"
    with pytest.raises(ConfigurationError, match=quotes(was)):
        run_fit(views, asked, SerialExecutor(), checkpoint_store=state, choices=now)


def without_labels(snapshot: Checkpoint) -> Checkpoint:
    arrays = {name: values for name, values in snapshot.arrays.items() if name != "best_labels"}
    return Checkpoint(arrays, snapshot.record)


def without_choices(snapshot: Checkpoint) -> Checkpoint:
    record = {key: value for key, value in snapshot.record.items() if key != "choices"}
    return Checkpoint(snapshot.arrays, record)


def with_decision(snapshot: Checkpoint) -> Checkpoint:
    return Checkpoint(snapshot.arrays, {**snapshot.record, "decision": "GUESS"})


@pytest.mark.parametrize(
    "change", [without_labels, without_choices, with_decision, lambda snapshot: Checkpoint({}, {})]
)
def test_what_is_no_state_is_refused(change: Callable[[Checkpoint], Checkpoint]) -> None:
    views, asked = data(), candidates(max_iter=1)
    memory = Memory(change(first_state(views, asked)))
    with pytest.raises(StoreCorruptError):
        run_fit(views, asked, SerialExecutor(), checkpoint_store=memory)
