"""The memory plan: arithmetic that grows with the work, and a refusal that shows its numbers."""

from __future__ import annotations

import dataclasses
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import pdist, squareform

from mscam_dask import MSCAM
from mscam_dask.data.store.read import open_store
from mscam_dask.data.store.write import write_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ArrayRows, ViewType
from mscam_dask.data.views.validation import validate
from mscam_dask.engine.candidate_neighbors import own_graph, row_ranges
from mscam_dask.engine.executors.base import Handle, SerialExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.engine.initialize import have_view_graphs
from mscam_dask.engine.memory import MemoryPlan, check_memory, plan_memory
from mscam_dask.engine.preprocessing_selection import Coarse, sampled_neighbors
from mscam_dask.engine.tasks import ridge_view_of, svd_view
from mscam_dask.errors import ClusterError, MemoryPlanError, MemoryPlanWarning
from mscam_dask.solvers.view_svd import MAX_EXACT_GRAM
from mscam_dask.types.parameters import Parameters, Scale, ViewSettings
from mscam_dask.types.rules import SIZES
from tests.messages import quotes
from tests.synthetic import gaussian_views

GIB = 2.0**30
SCALES: tuple[Scale, ...] = ("unit", "standard")


@dataclasses.dataclass(frozen=True)
class ShapeOnly:
    """A view that cannot be read: a plan looks at shapes and metrics only."""

    name: str
    shape: tuple[int, int]
    view_type: ViewType = "features"

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float64)

    def read(self, start: int, stop: int) -> NDArray[np.float64]:
        raise AssertionError("the plan read a view")


def plan(
    n: int, dims: tuple[int, ...], view_type: ViewType = "features", **settings: Any
) -> MemoryPlan:
    views = tuple(
        ShapeOnly(f"v{i}", (n, n if view_type != "features" else d), view_type)
        for i, d in enumerate(dims)
    )
    # one regime: beyond it the plan of large data is another, and smaller, one
    every = {"n_clusters": 5, "exact_samples": 10**9, **settings}
    return plan_memory(MultiViewData(views), Parameters(**every), view_graphs=True)


@pytest.mark.parametrize(
    ("n_samples", "n_views", "more"),
    [
        (5000, 3, True),
        (100_000, 3, True),
        (100_000, 1, False),
        (100_000, 17, False),
        (300_000, 3, False),
        (40_000, 16, False),
    ],
)
def test_views_own_graphs_are_planned_where_they_may_be_tried(
    n_samples: int, n_views: int, more: bool
) -> None:
    views = MultiViewData(tuple(ShapeOnly(f"v{i}", (n_samples, 50)) for i in range(n_views)))
    with_graphs, without = (
        plan_memory(views, Parameters(n_clusters=5), view_graphs=joined).worker_bytes(1)
        for joined in (True, False)
    )
    assert with_graphs > without if more else with_graphs == without


def sizes(of: MemoryPlan) -> tuple[int, int, int]:
    return of.worker_bytes(1), of.worker_bytes(4), of.held_bytes


shapes = st.tuples(
    st.integers(10, 10**6), st.lists(st.integers(1, 10**5), min_size=1, max_size=6).map(tuple)
)


@given(shapes, st.integers(1, 10**5))
def test_grows_with_samples(shape: tuple[int, tuple[int, ...]], more: int) -> None:
    n, dims = shape
    # the other regime: millions of samples have no graphs of the views
    assume(have_view_graphs(len(dims), n) == have_view_graphs(len(dims), n + more))
    for small, large in zip(sizes(plan(n, dims)), sizes(plan(n + more, dims)), strict=True):
        assert large >= small


@given(shapes, st.data(), st.integers(1, 10**5))
def test_grows_with_features(
    shape: tuple[int, tuple[int, ...]], data: st.DataObject, more: int
) -> None:
    n, dims = shape
    which = data.draw(st.integers(0, len(dims) - 1))
    wider = tuple(d + more * (i == which) for i, d in enumerate(dims))
    for small, large in zip(sizes(plan(n, dims)), sizes(plan(n, wider)), strict=True):
        assert large >= small


@given(shapes, st.integers(1, 10**5))
def test_grows_with_views(shape: tuple[int, tuple[int, ...]], d: int) -> None:
    n, dims = shape
    # the other regime: so many views of so many samples have no graphs of their own
    assume(have_view_graphs(len(dims) + 1, n) or not have_view_graphs(len(dims), n))
    for small, large in zip(sizes(plan(n, dims)), sizes(plan(n, (*dims, d))), strict=True):
        assert large >= small


@given(shapes, st.integers(1, 9))
def test_grows_with_clusters(shape: tuple[int, tuple[int, ...]], more: int) -> None:
    n, dims = shape
    few, many = plan(n, dims, n_clusters=1), plan(n, dims, n_clusters=1 + more)
    for small, large in zip(sizes(few), sizes(many), strict=True):
        assert large >= small


@given(shapes, st.integers(1, 64))
def test_more_workers_never_need_more_each(
    shape: tuple[int, tuple[int, ...]], n_workers: int
) -> None:
    n, dims = shape
    of = plan(n, dims)
    assert of.worker_bytes(n_workers + 1) <= of.worker_bytes(n_workers)


@given(shapes)
def test_largest_task_comes_first(shape: tuple[int, tuple[int, ...]]) -> None:
    n, dims = shape
    peaks = [task.peak_bytes for task in plan(n, dims).tasks]
    assert peaks == sorted(peaks, reverse=True)
    assert all(peak > 0 for peak in peaks)


def test_every_view_has_its_tasks() -> None:
    names = [task.task for task in plan(100, (3, 4)).tasks]
    for view in ("v0", "v1"):
        assert sum(view in name for name in names) >= 3


@pytest.mark.parametrize("view_type", ["distance", "kernel"])
def test_pair_views_count_their_square(view_type: ViewType) -> None:
    assert plan(10_000, (1,), view_type).tasks[0].peak_bytes >= 3 * 8 * 10_000**2


@given(shapes, st.integers(1, 10**5))
def test_large_data_grow_with_samples_too(shape: tuple[int, tuple[int, ...]], more: int) -> None:
    n, dims = shape[0] + MAX_EXACT_GRAM, shape[1]  # with fewer, wide views are of another regime
    assume(have_view_graphs(len(dims), n) == have_view_graphs(len(dims), n + more))
    small, large = (sizes(plan(size, dims, exact_samples=1)) for size in (n, n + more))
    assert all(b >= a for a, b in zip(small, large, strict=True))


def test_a_million_samples_fit_two_workers_of_eight_gib() -> None:
    of = plan(10**6, (100, 200, 64), n_clusters=10, exact_samples=20_000, n_neighbors=20)
    assert of.worker_bytes(2) < 8 * GIB


def test_feature_views_need_no_square_of_the_samples() -> None:
    assert plan(10**6, (100, 200)).worker_bytes(1) < 8 * 10**6 * 10**6 / 100


@given(st.integers(1, 10**7))
def test_row_ranges_depend_on_the_samples_alone_and_cover_them(n: int) -> None:
    ranges = row_ranges(n)
    assert ranges[0][0] == 0
    assert ranges[-1][1] == n
    assert all(left[1] == right[0] for left, right in pairwise(ranges))
    assert all(0 < stop - start <= 8192 for start, stop in ranges)


class Small(SerialExecutor):
    """An executor that has as much memory as it is told."""

    def __init__(self, limit_bytes: int | None) -> None:
        super().__init__()
        self._limit_bytes = limit_bytes

    @property
    def memory_limit_bytes(self) -> int | None:
        return self._limit_bytes


def data(n: int, *dims: int) -> MultiViewData:
    return MultiViewData(tuple(ShapeOnly(f"v{i}", (n, d)) for i, d in enumerate(dims)))


def test_what_cannot_fit_is_refused_with_its_numbers_and_its_task() -> None:
    views, parameters = data(50_000, 20, 3000), Parameters(n_clusters=5)
    of = plan_memory(views, parameters)
    limit = of.worker_bytes(1) - 1
    with pytest.raises(MemoryPlanError) as caught:
        check_memory(views, parameters, Small(limit))
    assert isinstance(caught.value, ClusterError)
    deciding = of.deciding_task(1)
    held = deciding.other_bytes + of.shared_bytes
    for number in (of.worker_bytes(1), limit, deciding.peak_bytes, held):
        assert f"{number / GIB:.2f} GiB" in str(caught.value)
    assert repr(deciding.task) in str(caught.value)


def test_what_just_fits_is_let_through() -> None:
    views, parameters = data(50_000, 20, 3000), Parameters(n_clusters=5)
    of = plan_memory(views, parameters)
    assert check_memory(views, parameters, Small(of.worker_bytes(1))) == of
    assert check_memory(views, parameters, Small(None)) == of


def test_a_worker_that_does_whole_fits_holds_all_of_each() -> None:
    views, parameters = data(50_000, 20, 3000), Parameters(n_clusters=5)
    of = plan_memory(views, parameters)
    assert of.worker_bytes(4) < of.worker_bytes(1)
    check_memory(views, parameters, Four(of.worker_bytes(4)))
    check_memory(views, parameters, Four(of.worker_bytes(1)), whole_fits=True)
    with pytest.raises(MemoryPlanError, match=quotes(f"{of.worker_bytes(1) / GIB:.2f} GiB")):
        check_memory(views, parameters, Four(of.worker_bytes(1) - 1), whole_fits=True)


class Four(Small):
    """An executor of four workers."""

    n_workers = 4


class Spills(Small):
    """An executor whose workers keep some results in memory, and others on their disks."""

    def __init__(self, limit_bytes: int, kept_bytes: int) -> None:
        super().__init__(limit_bytes)
        self.spill_threshold_bytes = kept_bytes  # type: ignore[assignment]


def test_large_results_may_be_spilled_but_a_task_has_to_fit() -> None:
    views = data(300_000, 100, 200, 64)
    parameters = Parameters(n_clusters=10, n_neighbors=20)
    of, kept = plan_memory(views, parameters), 10**8
    limit = kept + of.spilling_worker_bytes
    assert limit < of.worker_bytes(1)
    with pytest.warns(MemoryPlanWarning, match=quotes(f"{of.worker_bytes(1) / GIB:.2f} GiB")):
        assert check_memory(views, parameters, Spills(limit, kept)) == of
    with pytest.raises(MemoryPlanError):
        check_memory(views, parameters, Spills(limit - 1, kept))
    with pytest.raises(MemoryPlanError):
        check_memory(views, parameters, Small(limit))
    check_memory(views, parameters, Spills(of.worker_bytes(1), kept))  # without a warning


def test_whole_fits_and_small_data_are_not_spilled() -> None:
    parameters = Parameters(n_clusters=10, n_neighbors=20, exact_samples=100_000)
    for views, whole_fits in ((data(300_000, 100), True), (data(50_000, 100), False)):
        limit = plan_memory(views, parameters).worker_bytes(1) - 1
        with pytest.raises(MemoryPlanError):
            check_memory(views, parameters, Spills(limit, 0), whole_fits=whole_fits)


class Apart(Small):
    """An executor whose tasks run somewhere else."""

    shares_memory = False


@pytest.mark.parametrize(("n_samples", "times"), [(60, 3), (100, 1)])
def test_arrays_that_travel_inside_tasks_count_where_they_arrive(
    n_samples: int, times: int, tmp_path: Path
) -> None:
    rows = np.random.default_rng(0).random((n_samples, 7))
    views = as_multi_view([rows, sparse.csr_array(rows)])
    parameters = Parameters(n_clusters=5, exact_samples=80)
    here = check_memory(views, parameters, Small(None)).held_bytes
    there = check_memory(views, parameters, Apart(None)).held_bytes
    assert times * 2 * rows.nbytes < there - here < times * (3 * rows.nbytes + 2000)
    stored = open_store(write_store(views, tmp_path / "data.zarr"))
    assert check_memory(stored, parameters, Apart(None)).held_bytes == here


@pytest.fixture
def tight_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mscam_dask.engine.executors.base.available_memory_bytes", lambda: 2**20)


@pytest.mark.usefixtures("tight_memory")
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_fit_is_refused_before_it_starts(n_jobs: int) -> None:
    events: list[object] = []
    views, _ = gaussian_views(0, n_samples=30)
    with pytest.raises(MemoryPlanError, match=quotes("0.00 GiB")):
        MSCAM(3, n_jobs=n_jobs, callbacks=[events.append]).fit(views)
    assert events == []


def test_plan_bounds_what_a_fit_allocates() -> None:
    # NumPy reports its arrays to tracemalloc; libraries and BLAS buffers are the plan's margin
    views, _ = gaussian_views(0, n_samples=1500, dims=(40, 90))
    model = MSCAM(3, n_jobs=1, auto_settings=False, max_iter=2)
    of = plan_memory(
        MultiViewData(tuple(ShapeOnly(f"v{i}", v.shape) for i, v in enumerate(views))),
        Parameters(n_clusters=3),
    )
    tracemalloc.start()
    try:
        model.fit(views)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < of.worker_bytes(1)
    assert peak < 2 * 8 * 1500**2  # near one n × n, whatever the plan says


class Weighing(SerialExecutor):
    """An executor that weighs what there is between tasks."""

    most_bytes = 0

    def submit(self, function: Callable[..., Any], /, *args: Any, key: str) -> Handle:
        handle = super().submit(function, *args, key=key)
        self.most_bytes = max(self.most_bytes, tracemalloc.get_traced_memory()[0])
        return handle


@pytest.mark.parametrize("exact_samples", [2000, 20_000])
@pytest.mark.thorough
def test_plan_bounds_what_lies_between_the_tasks_of_a_fit(exact_samples: int) -> None:
    views, _ = gaussian_views(0, n_samples=6000, dims=(30, 40))
    in_memory = as_multi_view(views)
    parameters = Parameters(n_clusters=5, n_neighbors=20, exact_samples=exact_samples, max_iter=2)
    executor = Weighing()
    tracemalloc.start()
    try:
        run_fit(in_memory, parameters, executor)
    finally:
        tracemalloc.stop()
    held = plan_memory(in_memory, parameters).held_bytes
    assert held / 3 < executor.most_bytes < held


@pytest.mark.parametrize("d", [300, 900, 1500])
def test_comparing_the_preparations_of_a_wide_view_stays_below_its_figure(d: int) -> None:
    n = 1000
    rows = ArrayRows(np.random.default_rng(0).standard_normal((n, d)), "v0")
    options = tuple(ViewSettings(scale, alpha) for scale in SCALES for alpha in (10.0, 1.0, 0.1))
    tracemalloc.start()
    try:
        sampled_neighbors(rows, options, np.arange(n), 9, Coarse(np.arange(n), n // 10))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    figures = {task.task: task.peak_bytes for task in plan(n, (d,)).tasks}
    assert peak <= figures["compare settings of v0"]


@pytest.mark.parametrize(("n", "d"), [(300, 20_000), (1200, 3000)])
def test_preparing_a_view_with_more_columns_than_rows_stays_below_its_figure(
    n: int, d: int
) -> None:
    rows = ArrayRows(np.random.default_rng(0).standard_normal((n, d)), "v0")
    tracemalloc.start()
    try:
        ridge_view_of(svd_view(rows, "standard"), 10.0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    figure = {task.task: task.peak_bytes for task in plan(n, (d,)).tasks}["prepare v0"]
    assert figure / 2 < peak <= figure


@pytest.mark.thorough
def test_preparing_a_large_distance_view_stays_below_its_figure() -> None:
    n = 4200
    distances = squareform(pdist(np.random.default_rng(0).standard_normal((n, 5))))
    view = ArrayRows(distances, "v0", "distance")
    tracemalloc.start()
    try:
        svd_view(view, "none", SIZES.max_rank)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    tasks = plan(n, (n,), "distance", exact_samples=4100).tasks
    figure = {task.task: task.peak_bytes for task in tasks}["prepare v0"]
    assert figure / 2 < peak <= figure < 3 * 8 * n**2


@pytest.mark.parametrize("ties", [False, True])
def test_the_graph_of_one_view_stays_below_its_figure(ties: bool) -> None:
    n, d = 3000, 40
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2, (n, d)) if ties else rng.standard_normal((n, d))
    view = ridge_view_of(svd_view(ArrayRows(rows.astype(float), "v0"), "standard"), 10.0)
    tracemalloc.start()
    try:
        own_graph(view, 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    figures = {task.task: task.peak_bytes for task in plan(n, (d, d), n_neighbors=20).tasks}
    assert peak <= figures["graph of one view"]
    assert "graph of one view" not in {task.task for task in plan(n, (d,)).tasks}


@pytest.mark.parametrize("view_type", ["features", "distance"])
def test_validating_a_view_stays_below_its_figure(view_type: ViewType) -> None:
    n = 2000
    values = np.random.default_rng(0).standard_normal((n, n))
    if view_type == "distance":
        values = squareform(pdist(values[:, :5]))
    view = ArrayRows(values.astype(np.float32), "v0", view_type)  # which reading makes double
    tracemalloc.start()
    try:
        validate(MultiViewData((view,)), n_clusters=2, n_neighbors=2, digest=True)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    figures = {task.task: task.peak_bytes for task in plan(n, (n,), view_type).tasks}
    assert peak <= figures["validate v0"]
