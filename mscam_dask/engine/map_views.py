"""Application of a function to each view, in the process that has its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from mscam_dask.data.views.as_multi_view import RowSource
from mscam_dask.data.views.presence import is_in_memory
from mscam_dask.engine.executors.base import Executor
from mscam_dask.errors import DataError

__all__ = ["map_views"]

_Result = TypeVar("_Result")


def map_views(
    function: Callable[[RowSource], _Result],
    views: Sequence[RowSource],
    executor: Executor,
    *,
    stage: str,
) -> list[_Result]:
    """Apply a function to each view, or part of a view, and return the results in their order.

    Stored views are read by tasks, one for each of them, so that a large store does not pass through the
    driver. Arrays in the memory of the driver are processed there, unless tasks share this memory.

    Parameters
    ----------
    function : callable
        Function of a view; importable at module level.
    views : sequence of RowSource
        Views, or rows of views.
    executor : Executor
        Entered while tasks run.
    stage : str
        First part of the keys of the tasks.

    Raises
    ------
    DataError
        Error of the first view, in order, that has one.
    """
    in_driver = [is_in_memory(view) and not executor.shares_memory for view in views]
    outcomes: dict[int, _Result | DataError] = {
        index: _outcome(function, view)
        for index, (view, here) in enumerate(zip(views, in_driver, strict=True))
        if here
    }
    if not all(in_driver):
        with executor:
            handles = {
                index: executor.submit(_outcome, function, view, key=f"{stage}/{view.name}")
                for index, view in enumerate(views)
                if not in_driver[index]
            }
            outcomes |= zip(handles, executor.gather(list(handles.values())), strict=True)
    return [_result_or_raise(outcomes[index]) for index in range(len(views))]


def _outcome(function: Callable[[RowSource], _Result], view: RowSource) -> _Result | DataError:
    """Result of the function, or its data error, returned so that the task is not retried."""
    try:
        return function(view)
    except DataError as error:
        return error


def _result_or_raise(outcome: _Result | DataError) -> _Result:
    if isinstance(outcome, DataError):
        raise outcome
    return outcome
