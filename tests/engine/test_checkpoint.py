"""A fit that goes on from any of its states ends as if nothing had happened, to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

from mscam_dask.data.checkpoints import Checkpoint
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.engine.executors.base import SerialExecutor, ThreadExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.errors import ConfigurationError, StoreCorruptError
from mscam_dask.types.events import (
    FitEvent,
    FitFinished,
    FitStarted,
    IterationFinished,
    SettingsSelected,
)
from mscam_dask.types.parameters import Choices, Parameters, ViewSettings
from mscam_dask.types.result import Solution
from tests.engine.same_bits import bits
from tests.messages import raises
from tests.snapshots import Memory
from tests.synthetic import gaussian_views

pytestmark = pytest.mark.usefixtures("small_blocks")


def data(n_samples: int = 150, *, spread: float = 0.7, absent: float = 0.0) -> MultiViewData:
    views, _ = gaussian_views(1, n_samples=n_samples, spread=spread)
    for seed, view in enumerate(views[1:]):
        view[np.random.default_rng(seed).random(n_samples) < absent] = np.nan
    return as_multi_view(dict(zip(("a", "b", "c"), views, strict=True)))


def candidates(model: str = "mscam", **more: Any) -> list[Parameters]:
    return [
        Parameters(n_clusters=3, model=model, scale=scale, alpha=alpha, **more)  # type: ignore[arg-type]
        for scale, alpha in (("unit", 10.0), ("standard", 1.0))
    ]


KNOWN = np.where(np.arange(150) < 100, np.arange(150) % 3, -1)


@pytest.mark.parametrize(
    ("views", "asked", "given"),
    [
        (data(), candidates(max_iter=3), {}),
        (data(), candidates("mscan", max_iter=3), {}),
        (data(absent=0.3), candidates(max_iter=3), {}),
        (data(800, spread=0.5), candidates(max_iter=2, exact_samples=400)[:1], {}),
        (data(), candidates(max_iter=1)[:1], {"init_labels": KNOWN}),
        (data(), candidates(max_iter=1)[:1], {"known": KNOWN}),
    ],
    ids=["mscam", "mscan", "absent samples", "large data", "earlier labels", "known labels"],
)
def test_every_state_leads_to_the_same_end(
    views: MultiViewData, asked: list[Parameters], given: dict[str, Any]
) -> None:
    memory = Memory()
    whole = run_fit(views, asked, SerialExecutor(), checkpoint_store=memory, **given)
    assert bits(whole) == bits(run_fit(views, asked, SerialExecutor(), **given))
    assert len(memory.saved) == len(whole.history) + 1 > 1  # and one after the selection
    for index, snapshot in enumerate(memory.saved):
        again = Memory(snapshot)
        resumed = run_fit(views, asked, ThreadExecutor(2), checkpoint_store=again, **given)
        assert bits(resumed) == bits(whole)
        assert len(again.saved) == len(whole.history) - index  # nothing is done twice


def test_the_warm_start_of_the_eigensolver_is_part_of_the_state() -> None:
    """Above 800 samples the eigensolver iterates, and where it starts shows in the last bits."""
    views = data(900, spread=0.4)
    asked = candidates(max_iter=3)[:1]
    memory = Memory()
    whole = run_fit(views, asked, SerialExecutor(), checkpoint_store=memory)
    assert len(whole.history) == 3
    state = memory.saved[1]
    again = run_fit(views, asked, SerialExecutor(), checkpoint_store=Memory(state))
    assert bits(again) == bits(whole)
    elsewhere = np.random.default_rng(0).standard_normal(state.arrays["spectrum_vectors"].shape)
    state = Checkpoint({**state.arrays, "spectrum_vectors": elsewhere}, state.record)
    again = run_fit(views, asked, SerialExecutor(), checkpoint_store=Memory(state))
    assert bits(again) != bits(whole)


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


def test_the_data_are_digested_once() -> None:
    views, asked, memory = data(), candidates(max_iter=3)[:1], Memory()
    digest = MultiViewData.digest
    with mock.patch.object(MultiViewData, "digest", autospec=True, side_effect=digest) as counted:
        run_fit(views, asked, SerialExecutor())
        assert counted.call_count == 0
        run_fit(views, asked, SerialExecutor(), checkpoint_store=memory)
        assert len(memory.saved) > 2
        run_fit(views, asked, SerialExecutor(), checkpoint_store=Memory(memory.saved[0]))
        assert counted.call_count == 2


TRIED = tuple(ViewSettings("unit", alpha) for alpha in (10.0, 1.0))
CHOICES = Choices(TRIED, initial_graph=True, n_clusters=True, may_exclude_views=True)


def resume(store: Memory, **more: Any) -> Solution:
    given: dict[str, Any] = {"views": data(), "asked": candidates(max_iter=1)[:1], **more}
    return run_fit(
        given.pop("views"), given.pop("asked"), SerialExecutor(), checkpoint_store=store, **given
    )


def first_state(**given: Any) -> Checkpoint:
    memory = Memory()
    resume(memory, **given)
    return memory.saved[0]


@pytest.mark.parametrize(
    ("before", "now", "named"),
    [
        ({}, {"views": data(spread=0.8)}, ("digest",)),
        ({}, {"asked": candidates(max_iter=2)[:1]}, ("alpha", "scale", "n_neighbors")),
        ({"choices": CHOICES}, {"choices": Choices(TRIED)}, ("may_exclude_views=True", "unit")),
        ({}, {"choices": Choices(n_clusters=True)}, ("n_clusters=False",)),
        ({"init_labels": KNOWN}, {}, ("init_labels",)),
        ({}, {"known": KNOWN}, ("partial_labels",)),
        ({"known": KNOWN}, {"known": KNOWN[::-1].copy()}, ("partial_labels",)),
    ],
    ids=str,
)
def test_the_state_of_another_fit_is_refused(
    before: dict[str, Any], now: dict[str, Any], named: tuple[object, ...]
) -> None:
    state = first_state(**before)
    with raises(ConfigurationError, *named):
        resume(Memory(state), **now)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda arrays, _: arrays.pop("best_labels"), "best_labels"),
        (lambda _, record: record.pop("choices"), "choices"),
        (lambda _, record: record.update(decision="GUESS"), "GUESS"),
        (lambda arrays, record: (arrays.clear(), record.clear()), "control"),
        (
            lambda arrays, _: arrays.update(graph_indices=-arrays["graph_indices"]),
            "the graph is not a valid sparse array",
        ),
    ],
    ids=["no labels", "no choices", "unknown decision", "nothing", "another graph"],
)
def test_what_is_no_state_is_refused(change: Callable[[Any, Any], object], named: str) -> None:
    state = first_state()
    arrays, record = dict(state.arrays), dict(state.record)
    change(arrays, record)
    with raises(StoreCorruptError, named):
        resume(Memory(Checkpoint(arrays, record)))
