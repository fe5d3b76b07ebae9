"""The executors of the package against their contract."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import dask.config
import numpy as np
import pytest
from distributed import Client
from sklearn.utils._openmp_helpers import _openmp_effective_n_threads
from threadpoolctl import threadpool_info, threadpool_limits

from mscam_dask.engine.executors._process import PinnedBlas
from mscam_dask.engine.executors.base import Executor, SerialExecutor, ThreadExecutor
from mscam_dask.engine.executors.dask import DaskExecutor
from tests.clusters import local_client
from tests.contracts.executor_contract import ExecutorContract, late, same
from tests.processes import wait_until


def blas_threads(_: float) -> list[int]:
    return [int(pool["num_threads"]) for pool in threadpool_info() if pool["user_api"] == "blas"]


def blas_threads_of_a_fit() -> list[int]:
    with ThreadExecutor(1):
        return blas_threads(0.0)


def openmp_threads(_: float) -> int:
    return int(_openmp_effective_n_threads())


def assert_freed(executor: Executor) -> None:
    """A result is gone with its handle."""
    handle = executor.submit(np.arange, 1000.0, key="held/0")
    (array,) = executor.gather([handle])
    alive = weakref.ref(array)
    del array
    assert alive() is not None
    del handle
    wait_until(
        lambda: gc.collect() >= 0 and alive() is None
    )  # a pool thread may still be returning


@pytest.fixture(scope="module")
def thread_client() -> Iterator[Client]:
    """A cluster inside this process."""
    with local_client(1, threads_per_worker=2, processes=False) as client:
        yield client


@pytest.fixture(scope="module")
def process_client() -> Iterator[Client]:
    """Two worker processes."""
    with local_client(2) as client:
        yield client


class TestSerial(ExecutorContract):
    @pytest.fixture
    def executor(self) -> Iterator[Executor]:
        with SerialExecutor() as executor:
            yield executor

    def test_a_result_is_freed_with_its_handle(self, executor: Executor) -> None:
        assert_freed(executor)


class TestThreads(ExecutorContract):
    @pytest.fixture
    def executor(self) -> Iterator[Executor]:
        with ThreadExecutor(2) as executor:
            yield executor

    def test_a_result_is_freed_with_its_handle(self, executor: Executor) -> None:
        assert_freed(executor)

    def test_more_waiting_tasks_than_threads_do_not_lock(self, executor: Executor) -> None:
        # every task of a level waits for all of the level before
        level = [executor.submit(late, 1.0, 0.01, key=f"deep/0/{i}") for i in range(8)]
        for depth in range(1, 5):
            level = [executor.submit(sum, level, key=f"deep/{depth}/{i}") for i in range(8)]
        assert executor.gather(level) == [8.0**4] * 8

    def test_tasks_run_beside_each_other(self) -> None:
        together = threading.Barrier(3, timeout=60)
        with ThreadExecutor(3) as executor:
            handles = [executor.submit(_meet, together, key=f"meet/{i}") for i in range(3)]
            assert len(set(executor.gather(handles))) == 3

    def test_leaving_does_not_wait_for_tasks_not_started(self) -> None:
        ran: list[float] = []
        with ThreadExecutor(1) as executor:
            for i in range(200):
                executor.submit(_note, ran, 0.05, key=f"queued/{i}")
        assert len(ran) < 200


def _meet(together: threading.Barrier) -> int:
    """The thread of a task that only ends when the others have begun."""
    together.wait()
    return threading.get_ident()


def _note(ran: list[float], seconds: float) -> None:
    ran.append(late(0.0, seconds))


class TestDaskThreads(ExecutorContract):
    @pytest.fixture
    def executor(self, thread_client: Client) -> Iterator[Executor]:
        with DaskExecutor(thread_client) as executor:
            yield executor


class TestDaskProcesses(ExecutorContract):
    @pytest.fixture
    def executor(self, process_client: Client) -> Iterator[Executor]:
        with DaskExecutor(process_client) as executor:
            yield executor

    def test_counts_the_worker_threads_and_the_smallest_limit(self, executor: Executor) -> None:
        assert executor.n_workers == 2
        assert executor.memory_limit_bytes is not None

    def test_two_fits_on_one_cluster_do_not_share_keys(self, process_client: Client) -> None:
        with DaskExecutor(process_client) as first, DaskExecutor(process_client) as second:
            mine = first.submit(same, 1.0, key="same/0/key")
            theirs = second.submit(same, 2.0, key="same/0/key")
            assert first.gather([mine]) == [1.0]
            assert second.gather([theirs]) == [2.0]

    def test_results_without_a_handle_leave_the_cluster(self, process_client: Client) -> None:
        with DaskExecutor(process_client) as executor:
            handle = executor.submit(same, 1.0, key="leaves/0")
            executor.gather([handle])
            key = handle.key
            assert key in process_client.who_has()
            del handle
            wait_until(lambda: key not in process_client.who_has())


@pytest.mark.parametrize("kind", ["serial", "threads", "dask threads", "dask processes"])
def test_tasks_see_one_numerical_thread(
    kind: str, thread_client: Client, process_client: Client
) -> None:
    # other numbers of threads sum in another order, and give other bits
    executors: dict[str, Executor] = {
        "serial": SerialExecutor(),
        "threads": ThreadExecutor(2),
        "dask threads": DaskExecutor(thread_client),
        "dask processes": DaskExecutor(process_client),
    }
    executor = executors[kind]
    with threadpool_limits(limits=2), executor:
        handles = [executor.submit(blas_threads, float(i), key=f"blas/{i}") for i in range(4)]
        assert all(set(threads) == {1} for threads in executor.gather(handles))
        handles = [executor.submit(openmp_threads, float(i), key=f"openmp/{i}") for i in range(4)]
        assert set(executor.gather(handles)) == {1}


def test_a_task_that_comes_after_its_fit_does_not_unpin_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PinnedBlas._blas, "_is_permanent", False)
    with threadpool_limits(limits=2, user_api="blas"):
        PinnedBlas.pin_permanently()  # of a worker in this process
        assert set(blas_threads(0.0)) == {1}
        with threadpool_limits(limits=2, user_api="blas"):
            with ThreadExecutor(1):
                assert set(blas_threads(0.0)) == {1}
            assert set(blas_threads(0.0)) == {2}


def test_a_fit_is_pinned_whichever_thread_has_set_limits_before() -> None:
    with ThreadExecutor(1):
        pass
    with ThreadPoolExecutor(1) as other, threadpool_limits(limits=2, user_api="blas"):
        assert set(other.submit(blas_threads_of_a_fit).result()) == {1}
        assert set(blas_threads(0.0)) == {2}
        with threadpool_limits(limits=1, user_api="blas"):  # this thread is listened to again
            assert set(blas_threads(0.0)) == {1}


def test_fits_of_two_threads_that_overlap_give_the_threads_back() -> None:
    first, second = ThreadExecutor(1), ThreadExecutor(1)
    with ThreadPoolExecutor(1) as other, threadpool_limits(limits=2, user_api="blas"):
        first.__enter__()
        other.submit(second.__enter__).result()
        first.__exit__(None, None, None)
        assert set(blas_threads(0.0)) == {1}
        other.submit(second.__exit__, None, None, None).result()
        assert set(blas_threads(0.0)) == {2}


def test_fits_that_overlap_keep_dasks_settings_and_give_them_back(thread_client: Client) -> None:
    name = "distributed.admin.large-graph-warning-threshold"
    before = dask.config.get(name)
    first, second = DaskExecutor(thread_client), DaskExecutor(thread_client)
    first.__enter__()
    during = dask.config.get(name)
    second.__enter__()
    first.__exit__(None, None, None)
    assert dask.config.get(name) == during != before
    second.__exit__(None, None, None)
    assert dask.config.get(name) == before
