"""The memory estimate: it bounds what fits use, grows with the work, and refuses with its numbers."""

from __future__ import annotations

import dataclasses
import sys
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import pdist, squareform

from mscam_dask import MSCAM, MSCAN
from mscam_dask.data.store.dataset import open_store, write_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import RowSource, ViewType
from mscam_dask.engine.executors._process import BASE_BYTES
from mscam_dask.engine.memory import check_memory, plan_memory
from mscam_dask.errors import ClusterError, MemoryPlanError, MemoryPlanWarning
from mscam_dask.solvers.ridge_view import MAX_EXACT_GRAM
from mscam_dask.types.parameters import Parameters
from tests.benchmarks.measured import peak_bytes, worker_processes
from tests.messages import quotes
from tests.processes import printed
from tests.synthetic import gaussian_views

GIB = 2.0**30


@dataclasses.dataclass(frozen=True)
class ShapeOnly(RowSource):
    """A view that cannot be read: a plan looks at shapes and metrics only."""

    name: str
    shape: tuple[int, int]
    view_type: ViewType = "features"

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float64)

    def read(self, start: int, stop: int) -> NDArray[np.float64]:
        raise AssertionError("the plan read a view")


def shapes_only(n: int, dims: Iterable[int], view_type: ViewType = "features") -> MultiViewData:
    return MultiViewData(tuple(ShapeOnly(f"v{i}", (n, d), view_type) for i, d in enumerate(dims)))


# Measured fits --------------------------------------------------------------------------------------


def views_of(case: str, n: int) -> list[Any]:
    """Views whose clusters overlap, so that a fit tries all kinds of graphs and metrics."""
    dims = {"wide": (2000, 50), "many views": (20,) * 20}.get(case, (40, 90))
    views, labels = gaussian_views(0, n_samples=n, n_clusters=5, spread=0.3, dims=dims)
    if case == "distances":
        return [squareform(pdist(views[0])), views[1]]
    if case == "sparse":
        rates = 0.02 + 0.1 * (labels[:, None] == np.arange(1000) % 5)
        counts = np.random.default_rng(0).poisson(rates).astype(float)
        return [sparse.csr_array(counts), views[1]]
    if case == "incomplete":
        for index, view in enumerate(views):
            view[np.arange(n) % 7 == index] = np.nan
    return list(views)


def traced_fit(model: MSCAM | MSCAN, views: Any) -> int:
    """Peak of what a fit allocates in this process; NumPy reports its arrays to tracemalloc."""
    tracemalloc.start()
    try:
        model.fit(views)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("case", "n_samples", "method"),
    [
        ("features", 2000, MSCAM),
        ("features", 2000, MSCAN),
        ("features", 13_000, MSCAM),
        ("features", 13_000, MSCAN),
        ("wide", 1000, MSCAM),
        ("many views", 1000, MSCAM),
        ("distances", 1200, MSCAM),
        ("sparse", 1500, MSCAM),
        ("incomplete", 2000, MSCAM),
    ],
)
def test_the_estimate_bounds_what_a_fit_allocates_by_less_than_twice(
    case: str, n_samples: int, method: type[MSCAM | MSCAN]
) -> None:
    views = views_of(case, n_samples)
    view_type = ["distance", "features"] if case == "distances" else "features"
    model = method(5, n_jobs=1, max_iter=2, view_type=view_type)
    peak = traced_fit(model, views)
    plan = plan_memory(
        as_multi_view(views, view_type=view_type), model.solution_.parameters, view_graphs=True
    )
    assert peak <= plan.worker_bytes(1) - BASE_BYTES  # which are for libraries
    assert plan.worker_bytes(1) <= 2 * (peak + BASE_BYTES)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("case", "n_samples", "n_workers"),
    [("sparse", 1500, 2), ("features", 13_000, 1), ("features", 30_000, 2)],
)
def test_the_estimate_bounds_the_memory_of_workers(
    case: str, n_samples: int, n_workers: int, tmp_path: Path
) -> None:
    store = tmp_path / "data.zarr"
    data = open_store(write_store(as_multi_view(views_of(case, n_samples)), store))
    with worker_processes(n_workers, "4GiB") as client:
        model = MSCAM(5, client=client, max_iter=2)
        model.fit(str(store))
        peak = max(client.run(peak_bytes).values())
    plan = plan_memory(data, model.solution_.parameters, view_graphs=True)
    assert peak <= plan.worker_bytes(n_workers) <= 2 * peak


# Estimates ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exact_samples", [1, 10**9])
@given(n=st.integers(10, 10**6), dims=st.lists(st.integers(1, 10**5), min_size=1, max_size=6))
def test_grows_with_samples(exact_samples: int, n: int, dims: list[int]) -> None:
    parameters = Parameters(n_clusters=5, exact_samples=exact_samples)
    small, large = (
        plan_memory(shapes_only(factor * (n + MAX_EXACT_GRAM), dims), parameters)
        for factor in (1, 10)
    )
    assert small.held_bytes <= large.held_bytes
    for n_workers in (1, 4):
        assert small.worker_bytes(n_workers) <= large.worker_bytes(n_workers)


# Refusals -------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is one of Linux")
def test_the_limit_of_the_address_space_is_one_of_memory() -> None:
    program = """
import resource
from mscam_dask.engine.executors.base import SerialExecutor, psutil
limit = psutil.Process().memory_info().vms + 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(SerialExecutor().memory_limit_bytes)
"""
    assert int(printed(program)) <= 2**20


def executor(
    limit_bytes: int | None = None,
    *,
    n_workers: int = 1,
    kept_bytes: int | None = None,
    shares_memory: bool = True,
) -> Any:
    """What an executor says of its memory."""
    return SimpleNamespace(
        memory_limit_bytes=limit_bytes,
        n_workers=n_workers,
        spill_threshold_bytes=kept_bytes,
        shares_memory=shares_memory,
    )


WIDE, PARAMETERS = shapes_only(50_000, (20, 3000)), Parameters(n_clusters=5)


def test_a_fit_that_cannot_fit_is_refused_with_its_numbers_and_its_task() -> None:
    of = plan_memory(WIDE, PARAMETERS)
    limit = of.worker_bytes(1) - 1
    with pytest.raises(MemoryPlanError) as caught:
        check_memory(WIDE, PARAMETERS, executor(limit))
    assert isinstance(caught.value, ClusterError)
    task, peak = next(iter(of.tasks.items()))
    for number in (of.worker_bytes(1), limit, peak, of.held_bytes):
        assert f"{number / GIB:.2f} GiB" in str(caught.value)
    assert repr(task) in str(caught.value)
    assert check_memory(WIDE, PARAMETERS, executor(limit + 1)) == of
    assert check_memory(WIDE, PARAMETERS, executor()) == of
    assert of.worker_bytes(4) < of.worker_bytes(1)
    check_memory(WIDE, PARAMETERS, executor(of.worker_bytes(4), n_workers=4))


@pytest.mark.parametrize("shares_memory", [False, True])
@pytest.mark.parametrize("n_workers", [1, 2])
def test_more_workers_are_advised_on_a_cluster_and_fewer_threads_in_this_process(
    shares_memory: bool, n_workers: int
) -> None:
    small = executor(10**6, n_workers=n_workers, shares_memory=shares_memory)
    with pytest.raises(MemoryPlanError) as caught:
        check_memory(WIDE, PARAMETERS, small)
    assert ("use more workers" in str(caught.value)) is not shares_memory
    assert ("fewer threads" in str(caught.value)) is (shares_memory and n_workers > 1)


def test_large_results_may_be_spilled_but_a_task_has_to_fit() -> None:
    views = shapes_only(300_000, (100, 200, 64))
    parameters = Parameters(n_clusters=10, n_neighbors=20)
    of, kept = plan_memory(views, parameters), 10**8
    limit, need = kept + of.spilling_worker_bytes, of.worker_bytes(1)
    assert limit < need
    with pytest.warns(MemoryPlanWarning, match=quotes(f"{need / GIB:.2f} GiB")):
        assert check_memory(views, parameters, executor(limit, kept_bytes=kept)) == of
    for small in (executor(limit - 1, kept_bytes=kept), executor(limit)):
        with pytest.raises(MemoryPlanError):
            check_memory(views, parameters, small)
    check_memory(views, parameters, executor(need, kept_bytes=kept))  # without a warning


@pytest.mark.parametrize(("n_samples", "times"), [(60, 3), (100, 1)])
def test_arrays_that_travel_inside_tasks_count_where_they_arrive(
    n_samples: int, times: int, tmp_path: Path
) -> None:
    rows = np.random.default_rng(0).random((n_samples, 7))
    views = as_multi_view([rows, sparse.csr_array(rows)])
    parameters = Parameters(n_clusters=5, exact_samples=80)
    here = check_memory(views, parameters, executor()).held_bytes
    there = check_memory(views, parameters, executor(shares_memory=False)).held_bytes
    assert times * 2 * rows.nbytes < there - here < times * (3 * rows.nbytes + 2000)
    stored = open_store(write_store(views, tmp_path / "data.zarr"))
    assert check_memory(stored, parameters, executor(shares_memory=False)).held_bytes == here
