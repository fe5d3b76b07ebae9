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
    look: Callable[[RowSource], _Result],
    views: Sequence[RowSource],
    executor: Executor,
    *,
    stage: str,
) -> list[_Result]:
    """Apply a function to each view and return the results in the order of the views.

    Stored views are read by tasks, one for each view, so that a large store does not pass through the
    driver. Arrays in the memory of the driver are processed there, unless tasks share this memory.

    Parameters
    ----------
    look : callable
        Function of a view; importable at module level.
    views : sequence of RowSource
        Views with distinct names.
    executor : Executor
        Entered while tasks run.
    stage : str
        First part of the keys of the tasks.

    Raises
    ------
    DataError
        Error of the first view, in order, that has one.
    """
    in_driver = {view.name for view in views if is_in_memory(view) and not executor.shares_memory}
    outcomes = {view.name: _outcome(look, view) for view in views if view.name in in_driver}
    others = [view for view in views if view.name not in in_driver]
    if others:
        with executor:
            handles = [
                executor.submit(_outcome, look, view, key=f"{stage}/{view.name}") for view in others
            ]
            gathered = executor.gather(handles)
        outcomes |= {view.name: outcome for view, outcome in zip(others, gathered, strict=True)}
    return [_result_or_raise(outcomes[view.name]) for view in views]


def _outcome(look: Callable[[RowSource], _Result], view: RowSource) -> _Result | DataError:
    """Result of the function, or its data error, returned so that the task is not retried."""
    try:
        return look(view)
    except DataError as error:
        return error


def _result_or_raise(outcome: _Result | DataError) -> _Result:
    if isinstance(outcome, DataError):
        raise outcome
    return outcome
