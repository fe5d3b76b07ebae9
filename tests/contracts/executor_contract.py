"""What every executor must do, whatever runs its tasks.

Scope: substitution of handles, order of results, errors, release, facts about the machine. A new
executor passes by subclassing `ExecutorContract` and giving the fixture `executor`, entered.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from mscam_dask.engine.executors.base import Executor
from mscam_dask.errors import DataError, MscamError


def value(number: float) -> float:
    return number


def total(*numbers: float) -> float:
    return sum(numbers)


def total_of_list(numbers: list[float], factor: float) -> float:
    return factor * sum(numbers)


def total_of_nested(groups: list[list[float]]) -> list[float]:
    return [sum(group) for group in groups]


def same(anything: Any) -> Any:
    return anything


def late(number: float, seconds: float) -> float:
    time.sleep(seconds)
    return number


def ramp(n: int) -> NDArray[np.float64]:
    return np.arange(n, dtype=np.float64)


def filled(array: NDArray[np.float64]) -> float:
    array = array if array.flags.writeable else array.copy()
    array[:] = 1.0
    return float(array.sum())


def fail(message: str) -> None:
    raise DataError(message)


def fail_otherwise(message: str) -> None:
    raise ZeroDivisionError(message)


def current_thread(_: float) -> int:
    return threading.get_ident()


class ExecutorContract:
    """Tests of one executor; `executor` is given by the subclass."""

    @pytest.fixture
    def executor(self) -> Executor:
        raise NotImplementedError

    def test_plain_values_pass_through(self, executor: Executor) -> None:
        handle = executor.submit(total, 1.0, 2.0, 3.0, key="plain")
        assert executor.gather([handle]) == [6.0]

    def test_a_task_without_arguments(self, executor: Executor) -> None:
        assert executor.gather([executor.submit(dict, key="nothing")]) == [{}]

    def test_nothing_to_gather(self, executor: Executor) -> None:
        assert executor.gather([]) == []

    def test_handles_are_replaced_by_results(self, executor: Executor) -> None:
        one, two = (executor.submit(value, x, key=f"value/{x}") for x in (1.0, 2.0))
        assert executor.gather([executor.submit(total, one, two, 10.0, key="sum")]) == [13.0]

    def test_handles_in_lists_are_replaced(self, executor: Executor) -> None:
        handles = [executor.submit(value, float(i), key=f"listed/{i}") for i in range(5)]
        mixed = [*handles, 100.0]
        result = executor.submit(total_of_list, mixed, 2.0, key="sum_list")
        assert executor.gather([result]) == [220.0]
        assert mixed == [*handles, 100.0]  # the caller's list is not touched

    def test_handles_in_nested_lists_are_replaced(self, executor: Executor) -> None:
        a, b, c = (executor.submit(value, float(i), key=f"nested/{i}") for i in range(3))
        result = executor.submit(total_of_nested, [[a, b], [], [c, 5.0]], key="sum_nested")
        assert executor.gather([result]) == [[1.0, 0, 7.0]]

    def test_lists_without_handles_arrive_as_lists(self, executor: Executor) -> None:
        given = [[1, 2], [], ["a", None]]
        assert executor.gather([executor.submit(same, given, key="lists")]) == [given]

    def test_none_and_tuples_arrive_as_they_are(self, executor: Executor) -> None:
        for number, given in enumerate((None, (1, "two"), {"three": 3})):
            handle = executor.submit(same, given, key=f"as_is/{number}")
            assert executor.gather([handle]) == [given]

    def test_it_says_whether_tasks_see_the_arrays_of_the_driver(self, executor: Executor) -> None:
        array = np.zeros(1000)
        (there,) = executor.gather([executor.submit(filled, array, key="filled")])
        assert there == 1000.0
        assert executor.shares_memory == bool(array.all())

    def test_a_chain_of_tasks(self, executor: Executor) -> None:
        handle = executor.submit(value, 0.0, key="chain/0")
        for i in range(1, 40):
            handle = executor.submit(total, handle, 1.0, key=f"chain/{i}")
        assert executor.gather([handle]) == [39.0]

    def test_one_result_feeds_many_tasks(self, executor: Executor) -> None:
        source = executor.submit(ramp, 1000, key="ramp")
        readers = [executor.submit(np.sum, source, key=f"reader/{i}") for i in range(6)]
        assert executor.gather(readers) == [499500.0] * 6
        (array,) = executor.gather([source])
        assert_array_equal(array, np.arange(1000.0))

    def test_gather_keeps_the_order_of_its_handles(self, executor: Executor) -> None:
        handles = [
            executor.submit(late, float(i), 0.05 if i == 0 else 0.0, key=f"late/{i}")
            for i in range(6)
        ]
        assert executor.gather(handles) == [float(i) for i in range(6)]
        assert executor.gather(handles[::-1]) == [float(i) for i in range(6)][::-1]

    def test_the_same_handle_twice(self, executor: Executor) -> None:
        handle = executor.submit(value, 3.0, key="twice")
        assert executor.gather([handle, handle]) == [3.0, 3.0]
        assert executor.gather([executor.submit(total, handle, handle, key="double")]) == [6.0]

    def test_arrays_keep_every_bit(self, executor: Executor) -> None:
        given = np.random.default_rng(0).standard_normal((50, 3))
        given[0] = [np.nan, np.inf, -0.0]
        (back,) = executor.gather([executor.submit(same, given, key="bits")])
        assert back.tobytes() == given.tobytes()

    def test_the_packages_errors_arrive_unchanged(self, executor: Executor) -> None:
        # raised when the task is submitted or when its result is asked for
        with pytest.raises(DataError, match=r"^view 'x' has 3 rows$") as caught:
            executor.gather([executor.submit(fail, "view 'x' has 3 rows", key="fail")])
        assert type(caught.value) is DataError
        assert isinstance(caught.value, MscamError)

    def test_other_errors_arrive_unchanged(self, executor: Executor) -> None:
        with pytest.raises(ZeroDivisionError, match=r"^by nought$"):
            executor.gather([executor.submit(fail_otherwise, "by nought", key="fail_otherwise")])

    def test_errors_travel_through_later_tasks(self, executor: Executor) -> None:
        with pytest.raises(DataError, match=r"^at the root$"):
            executor.gather(
                [
                    executor.submit(
                        total_of_list,
                        [executor.submit(fail, "at the root", key="root"), 1.0],
                        2.0,
                        key="leaf",
                    )
                ]
            )

    def test_an_error_leaves_the_executor_usable(self, executor: Executor) -> None:
        with pytest.raises(DataError, match="once"):
            executor.gather([executor.submit(fail, "once", key="once")])
        assert executor.gather([executor.submit(value, 1.0, key="again")]) == [1.0]

    def test_handles_of_arguments_may_go_before_their_task_runs(self, executor: Executor) -> None:
        blockers = [
            executor.submit(late, 0.0, 0.05, key=f"blocker/{i}") for i in range(executor.n_workers)
        ]
        first = executor.submit(value, 2.0, key="early/first")
        second = executor.submit(total_of_list, [first, 1.0], 1.0, key="early/second")
        del blockers, first
        assert executor.gather([second]) == [3.0]

    def test_says_what_it_is(self, executor: Executor) -> None:
        assert executor.description
        assert "\n" not in executor.description
        assert executor.n_workers >= 1
        limit = executor.memory_limit_bytes
        assert limit is None or limit > 2**20
        kept = executor.spill_threshold_bytes
        assert kept is None or (limit is not None and kept < limit)
