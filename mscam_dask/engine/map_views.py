"""What is found in the rows of each view, looked at where the rows are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from mscam_dask.data.views.as_multi_view import RowSource
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.engine.executors.base import Executor
from mscam_dask.errors import DataError

__all__ = ["map_views"]

_Found = TypeVar("_Found")


def map_views(
    look: Callable[[RowSource], _Found],
    views: Sequence[RowSource],
    executor: Executor,
    *,
    stage: str,
) -> list[_Found]:
    """What a function that reads whole views finds in each, in their order.

    Stored views are read by tasks, one for each: a large store does not pass through the driver.
    Arrays in the driver's memory are looked at there, unless tasks share it.

    Parameters
    ----------
    look : callable
        Importable at module level.
    views : sequence of RowSource
        Each with a name of its own.
    executor : Executor
        Entered while tasks run.
    stage : str
        First part of the tasks' keys.

    Raises
    ------
    DataError
        That of the first view, in their order, in which there was one.
    """
    in_driver = {
        view.name for view in views if isinstance(view, ArrayRows) and not executor.shares_memory
    }
    outcomes = {view.name: _outcome(look, view) for view in views if view.name in in_driver}
    others = [view for view in views if view.name not in in_driver]
    if others:
        with executor:
            handles = [
                executor.submit(_outcome, look, view, key=f"{stage}/{view.name}") for view in others
            ]
            found = executor.gather(handles)
        outcomes |= {view.name: one for view, one in zip(others, found, strict=True)}
    return [_raised_or_found(outcomes[view.name]) for view in views]


def _outcome(look: Callable[[RowSource], _Found], view: RowSource) -> _Found | DataError:
    """What is found, or what is wrong with the data, which is not to be tried again."""
    try:
        return look(view)
    except DataError as error:
        return error


def _raised_or_found(outcome: _Found | DataError) -> _Found:
    if isinstance(outcome, DataError):
        raise outcome
    return outcome
