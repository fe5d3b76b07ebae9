"""Whole fits: the same bits on every executor, events in order, arguments that stay, the odd corners of n, c and k."""

from __future__ import annotations

import gc
import hashlib
import io
import pickle
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_rand_score

from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.engine.executors.base import Executor, SerialExecutor, ThreadExecutor
from mscam_dask.engine.executors.dask import DaskExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.engine.prepare import Prepared
from mscam_dask.solvers.ridge_view import MAX_EXACT_GRAM
from mscam_dask.types.events import (
    FitEvent,
    FitFinished,
    FitStarted,
    IterationFinished,
    SettingsSelected,
)
from mscam_dask.types.parameters import Choices, Constants, Parameters, ViewSettings
from mscam_dask.types.result import Solution, Status
from tests.clusters import local_client
from tests.engine.same_bits import bits
from tests.synthetic import assert_partition_and_graph_agree, distances_between, gaussian_views


def fit(views: Any, executor: Executor | None = None, **parameters: Any) -> Solution:
    data = views if isinstance(views, MultiViewData) else as_multi_view(views)
    return run_fit(data, Parameters(**parameters), executor or SerialExecutor())


pytestmark = pytest.mark.usefixtures("small_blocks")

MODELS = ("mscam", "mscan")


def settings_of(model: str) -> list[Parameters]:
    return [
        Parameters(n_clusters=3, model=model, scale=scale, alpha=alpha, max_iter=2)  # type: ignore[arg-type]
        for scale, alpha in (("unit", 10.0), ("standard", 1.0))
    ]


def small_data() -> MultiViewData:
    views, _ = gaussian_views(1, n_samples=90, spread=0.7)
    pairs = distances_between(views[2])
    return as_multi_view(
        {"few": views[0], "more": views[1], "pairs": pairs}, view_type={"pairs": "distance"}
    )


def test_threads_and_worker_processes_give_the_same_bits() -> None:
    with local_client(2) as client:
        for model in MODELS:
            serial = run_fit(small_data(), settings_of(model), SerialExecutor())
            assert len(serial.history) > 1, "a path of one iteration tests little"
            for executor in (ThreadExecutor(2), DaskExecutor(client)):
                other = run_fit(small_data(), settings_of(model), executor)
                assert bits(other) == bits(serial)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("case", ["all samples", "absent samples", "large data"])
def test_encoders_of_wide_views_map_the_samples_to_their_coordinates(case: str, model: str) -> None:
    """Also of a view with fewer columns than samples, and for large data of one that a single task decomposes."""
    views, _ = gaussian_views(1, n_samples=120, dims=(MAX_EXACT_GRAM + 1, 60, 6))
    if case == "absent samples":
        views[0][::7] = np.nan
    exact_samples = 100 if case == "large data" else 1000
    found = fit(views, n_clusters=3, model=model, max_iter=1, exact_samples=exact_samples)
    assert found.encoders.keys() == found.view_coordinates.keys()
    for (name, encoder), view in zip(found.encoders.items(), views, strict=True):
        has = np.isfinite(view).all(axis=1)
        coordinates = found.view_coordinates[name]
        encoded = encoder(view[has])[:, : coordinates.shape[1]]
        assert_allclose(encoded, coordinates[has], atol=1e-6)


def test_observers_see_the_fit_in_order() -> None:
    seen: list[list[FitEvent]] = [[], []]
    began = time.perf_counter()
    solution = run_fit(
        small_data(),
        settings_of("mscam"),
        SerialExecutor(),
        observers=[seen[0].append, seen[1].append],
    )
    assert seen[0] == seen[1]
    started, selected, *outer, finalize = seen[0]
    assert isinstance(started, FitStarted)
    assert (started.n_samples, started.n_clusters) == (90, 3)
    assert [view.view for view in started.views] == ["few", "more", "pairs"]
    assert isinstance(selected, SettingsSelected)
    assert selected.settings == solution.settings
    assert selected.max_iter == 2
    assert 0 <= selected.chosen < len(selected.settings) == 2
    assert all(isinstance(record, IterationFinished) for record in outer)
    assert tuple(outer) == solution.history
    assert [record.iteration for record in solution.history] == list(range(len(outer)))
    assert isinstance(finalize, FitFinished)
    # seconds are those of stages that follow one another
    stages = [selected.seconds, *(record.seconds for record in solution.history)]
    assert min(stages) > 0.0
    assert sum(stages) <= finalize.seconds <= time.perf_counter() - began
    assert finalize.status == solution.status.name
    assert finalize.n_iterations == len(outer)
    assert finalize.n_connected_components == 3
    assert finalize.score == solution.score
    assert finalize.view_contributions == solution.view_contributions


def test_an_iteration_is_accepted_where_its_cut_scores_higher_than_all_before() -> None:
    views, _ = gaussian_views(4, spread=0.5, n_samples=90)
    solution = fit(views, n_clusters=3, max_iter=6, alpha=1.0, scale="standard")
    first, *later = solution.history
    best, expected = first.score, []
    for record in later:
        expected.append(record.score > best + solution.parameters.constants.score_tie * abs(best))
        best = record.score if expected[-1] else best
    assert [record.accepted for record in later] == expected
    assert not first.accepted, "its spectrum is that of the initial graph"
    assert any(expected)
    assert solution.score == best


@pytest.mark.parametrize("patience", [1, 4])
def test_iterations_end_where_none_is_better_for_a_while(patience: int) -> None:
    views, _ = gaussian_views(4, spread=0.5, n_samples=90)
    constants = Constants(patience=patience)
    solution = fit(
        views, n_clusters=3, max_iter=40, alpha=1.0, scale="standard", constants=constants
    )
    accepted = [record.iteration for record in solution.history if record.accepted]
    assert len(solution.history) == max(accepted, default=0) + patience + 1 < 40


def test_a_graph_whose_components_equal_samples_join_is_rebuilt() -> None:
    views, blobs = gaussian_views(5, n_samples=60, n_clusters=2, spread=40.0)
    parameters, executor = Parameters(n_clusters=2, n_neighbors=10), SerialExecutor()
    solution = run_fit(as_multi_view(views), parameters, executor)
    assert solution.status is Status.CONVERGED
    equal = np.full(60, -1)
    equal[np.flatnonzero(blobs == 0)[:5]] = equal[np.flatnonzero(blobs == 1)[0]] = 0
    joined = run_fit(as_multi_view(views), parameters, executor, equal=equal)
    assert joined.status is Status.PARTITION_GRAPH
    assert_partition_and_graph_agree(joined, n_clusters=2)
    expected = np.where(equal == 0, blobs[np.flatnonzero(blobs == 0)[0]], blobs)
    assert adjusted_rand_score(joined.labels, expected) == 1.0


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("n_samples", "n_clusters"),
    [(2, 1), (2, 2), (3, 2), (4, 2), (5, 4), (12, 2), (12, 11), (30, 7), (20, 20), (40, 1)],
)
def test_any_number_of_clusters_is_reached(n_samples: int, n_clusters: int, model: str) -> None:
    """With more neighbors than other samples, and half of the samples identical."""
    views, _ = gaussian_views(4, n_samples=n_samples)
    for view in views:
        view[: n_samples // 2] = view[0]
    solution = fit(views, n_clusters=n_clusters, n_neighbors=n_samples + 1, model=model, max_iter=5)
    assert_partition_and_graph_agree(solution, n_clusters=n_clusters)
    assert solution.n_neighbors == n_samples - 1
    assert (solution.status is Status.SINGLETONS) is (n_clusters == n_samples)
    assert (solution.status is Status.SINGLE_CLUSTER) is (n_clusters == 1)
    assert n_clusters > 1 or solution.history == ()


def test_a_smaller_graph_weight_joins_pieces_and_so_do_more_neighbors() -> None:
    views, _ = gaussian_views(5, n_samples=60, n_clusters=2, spread=40.0)
    start = Constants(graph_weight=1.0)
    solution = fit(views, n_clusters=2, n_neighbors=3, model="mscan", max_iter=12, constants=start)
    assert_partition_and_graph_agree(solution, n_clusters=2)
    assert solution.status is Status.CONVERGED
    assert solution.history[0].graph_weight < start.graph_weight
    views, _ = gaussian_views(5, n_samples=60, n_clusters=6, spread=40.0)
    solution = fit(views, n_clusters=2, n_neighbors=3)
    assert_partition_and_graph_agree(solution, n_clusters=2)
    assert solution.n_neighbors > 3


def test_more_pieces_than_clusters_are_merged_whole() -> None:
    # six far blobs of 60: more than the candidates of a sample can bridge
    views, blobs = gaussian_views(5, n_samples=360, n_clusters=6, spread=40.0)
    events: list[FitEvent] = []
    parameters = Parameters(n_clusters=4, n_neighbors=5)
    solution = run_fit(
        as_multi_view(views), parameters, SerialExecutor(), observers=[events.append]
    )
    (selected,) = (event for event in events if isinstance(event, SettingsSelected))
    assert selected.max_iter == 0
    assert solution.status is Status.MERGED_COMPONENTS
    assert_partition_and_graph_agree(solution, n_clusters=4)
    for blob in range(6):
        assert len(set(solution.labels[blobs == blob].tolist())) == 1


OPTIONS = tuple(ViewSettings(scale, 10.0) for scale in ("unit", "standard"))


class _Arrays(pickle.Pickler):
    """Digests of all arrays within an object, at any depth."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())
        self.digests: list[str] = []

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, np.ndarray):
            return None
        self.digests.append(hashlib.sha256(value.tobytes("A")).hexdigest())
        return len(self.digests)


def arrays_in(value: Any) -> list[str]:
    pickler = _Arrays()
    pickler.dump(value)
    return pickler.digests


class _Watching(SerialExecutor):
    """Fails at a task that changes an array it was given."""

    n_tasks = 0

    def submit(self, function: Callable[..., Any], /, *args: Any, key: str) -> Any:
        def watched(*values: Any) -> Any:
            before = arrays_in(values)
            result = function(*values)
            assert arrays_in(values) == before, f"{key} changed its arguments"
            return result

        self.n_tasks += 1
        return super().submit(watched, *args, key=key)


@pytest.mark.parametrize(
    ("settings", "choices", "n_samples"),
    [
        ({}, Choices(OPTIONS, initial_graph=True, may_exclude_views=True), 90),
        ({"n_clusters": 6}, Choices(n_clusters=True), 90),
        ({"model": "mscan"}, Choices(), 90),
        ({"exact_samples": 400}, Choices(), 600),
    ],
    ids=["default", "number of clusters", "mscan", "large data"],
)
def test_no_task_changes_what_it_was_given(
    settings: dict[str, Any], choices: Choices, n_samples: int
) -> None:
    views, _ = gaussian_views(1, n_samples=n_samples, spread=0.7)
    given = {"few": views[0], "more": views[1], "pairs": distances_between(views[2])}
    data = as_multi_view(given, view_type={"pairs": "distance"})
    executor = _Watching()
    parameters = Parameters(**{"n_clusters": 3, "max_iter": 4, **settings})
    run_fit(data, parameters, executor, choices=choices)
    assert executor.n_tasks > 50


class Counting(SerialExecutor):
    """Counts the prepared settings that are held whenever partitions are scored."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[int] = []

    def submit(self, function: Callable[..., Any], /, *args: Any, key: str) -> Any:
        if key.startswith("partition_scores/setting"):
            self.held.append(sum(isinstance(one, Prepared) for one in gc.get_objects()))
        return super().submit(function, *args, key=key)


def test_settings_that_lose_are_freed() -> None:
    """Beside the best one, those are held for which the driver waits, and the next one."""
    (view, *_), _ = gaussian_views(1, n_samples=90, spread=0.7)
    asked = [Parameters(n_clusters=3, n_neighbors=k, max_iter=1) for k in range(4, 12)]
    executor = Counting()
    solution = run_fit(as_multi_view([view]), asked, executor)
    assert len(solution.settings) == len(executor.held) == 8
    assert max(executor.held) == 4
