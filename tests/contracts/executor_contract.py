"""Contract of every executor, whatever runs its tasks.

A new executor passes by subclassing `ExecutorContract` and giving the fixture `executor`, entered.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from mscam_dask.engine.executors.base import Executor
from mscam_dask.errors import DataError


def total(*numbers: float) -> float:
    return sum(numbers)


def same(anything: Any) -> Any:
    return anything


def late(number: float, seconds: float) -> float:
    time.sleep(seconds)
    return number


def filled(array: NDArray[np.float64]) -> float:
    array = array if array.flags.writeable else array.copy()
    array[:] = 1.0
    return float(array.sum())


def fail(message: str) -> None:
    raise DataError(message)


class ExecutorContract:
    """Tests of one executor; `executor` is given by the subclass."""

    @pytest.fixture
    def executor(self) -> Executor:
        raise NotImplementedError

    def test_handles_are_replaced_by_results(self, executor: Executor) -> None:
        one, two = (executor.submit(same, x, key=f"value/{x}") for x in (1.0, 2.0))
        assert executor.gather([executor.submit(total, one, two, 10.0, key="sum")]) == [13.0]
        mixed = [one, 100.0, [two, [], one]]
        assert executor.gather([executor.submit(same, mixed, key="list")]) == [
            [1.0, 100.0, [2.0, [], 1.0]]
        ]
        assert mixed == [one, 100.0, [two, [], one]]  # the caller's list is not touched

    def test_other_arguments_arrive_as_they_are(self, executor: Executor) -> None:
        rows = np.random.default_rng(0).standard_normal((50, 3))
        rows[0] = [np.nan, np.inf, -0.0]
        given: tuple[Any, ...] = (None, (1, "two"), {"three": 3}, [[1, 2], [], ["a", None]])
        handles = [executor.submit(same, one, key=f"as_is/{i}") for i, one in enumerate(given)]
        handles += [executor.submit(same, rows, key="bits"), executor.submit(dict, key="nothing")]
        *found, back, nothing = executor.gather(handles)
        assert (*found, nothing) == (*given, {})
        assert back.tobytes() == rows.tobytes()
        assert executor.gather([]) == []

    def test_it_says_whether_tasks_see_the_arrays_of_the_driver(self, executor: Executor) -> None:
        array = np.zeros(1000)
        (there,) = executor.gather([executor.submit(filled, array, key="filled")])
        assert there == 1000.0
        assert executor.shares_memory == bool(array.all())

    def test_one_result_feeds_many_tasks_and_chains(self, executor: Executor) -> None:
        source = executor.submit(np.arange, 1000.0, key="ramp")
        readers = [executor.submit(np.sum, source, key=f"reader/{i}") for i in range(6)]
        handle = readers[0]
        for i in range(1, 40):
            handle = executor.submit(total, handle, 1.0, key=f"chain/{i}")
        *sums, chained = executor.gather([*readers, handle])
        assert (sums, chained) == ([499500.0] * 6, 499539.0)
        (array,) = executor.gather([source])
        assert_array_equal(array, np.arange(1000.0))

    def test_gather_keeps_the_order_of_its_handles(self, executor: Executor) -> None:
        handles = [
            executor.submit(late, float(i), 0.05 if i == 0 else 0.0, key=f"late/{i}")
            for i in range(6)
        ]
        numbers = [float(i) for i in range(6)]
        assert executor.gather([*handles, *handles[::-1]]) == [*numbers, *numbers[::-1]]

    def test_errors_arrive_unchanged_and_leave_the_executor_usable(
        self, executor: Executor
    ) -> None:
        # raised when the task is submitted or when its result is asked for
        with pytest.raises(DataError, match=r"^view 'x' has 3 rows$") as caught:
            executor.gather([executor.submit(fail, "view 'x' has 3 rows", key="fails")])
        assert type(caught.value) is DataError
        with pytest.raises(DataError):
            executor.gather(
                [executor.submit(same, [executor.submit(fail, "root", key="root")], key="leaf")]
            )
        with pytest.raises(ZeroDivisionError):
            executor.gather([executor.submit(divmod, 1, 0, key="other")])
        assert executor.gather([executor.submit(same, 1.0, key="again")]) == [1.0]

    def test_handles_of_arguments_may_go_before_their_task_runs(self, executor: Executor) -> None:
        blockers = [
            executor.submit(late, 0.0, 0.05, key=f"blocker/{i}") for i in range(executor.n_workers)
        ]
        first = executor.submit(same, 2.0, key="early/first")
        second = executor.submit(total, first, 1.0, key="early/second")
        del blockers, first
        assert executor.gather([second]) == [3.0]

    def test_says_what_it_is(self, executor: Executor) -> None:
        assert executor.description
        assert "\n" not in executor.description
        assert executor.n_workers >= 1
        limit, kept = executor.memory_limit_bytes, executor.spill_threshold_bytes
        assert limit is None or limit > 2**20
        assert kept is None or (limit is not None and kept < limit)
