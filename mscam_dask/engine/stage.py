"""Stage of a fit: it submits tasks, names them, and collects what the driver needs of them.

A result lives as long as something refers to its handle. A function that submits tasks therefore keeps
the handles that it returns, and the results of the others are freed when it ends.
"""

from __future__ import annotations

import itertools
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mscam_dask.engine.executors.base import Executor, Handle

FAN_IN = 16
"""Results that one task adds up."""


class Stage:
    """Tasks with one name: their keys are "function/name/part"."""

    def __init__(self, executor: Executor, name: str) -> None:
        self.executor = executor
        self.name = name
        self._counts: Counter[str] = Counter()

    def sub(self, name: object) -> Stage:
        """Return a stage within this one."""
        return Stage(self.executor, f"{self.name}/{name}")

    def submit(
        self, function: Callable[..., Any], *args: Any, part: str = "", kind: str = ""
    ) -> Handle:
        """Submit a task. `kind` replaces the name of the function, and `part` its number, in the key."""
        kind = kind or function.__name__
        if not part:
            part = str(self._counts[kind])
            self._counts[kind] += 1
        return self.executor.submit(function, *args, key=f"{kind}/{self.name}/{part}")

    def map(self, function: Callable[..., Any], *columns: Iterable[Any]) -> tuple[Handle, ...]:
        """Submit a task for each row of some columns of arguments."""
        return tuple(self.submit(function, *row) for row in zip(*columns, strict=True))

    def item(self, handle: Handle, index: Any) -> Handle:
        """Submit the selection of an item of a result."""
        return self.submit(operator.getitem, handle, index, kind="item")

    def attribute(self, handle: Handle, name: str) -> Handle:
        """Submit the selection of an attribute of a result."""
        return self.submit(getattr, handle, name, kind=name)

    def gather(self, *groups: Sequence[Handle]) -> list[list[Any]]:
        """Return the results of several groups of handles, for which the driver waits once."""
        gathered = iter(self.executor.gather([handle for group in groups for handle in group]))
        return [list(itertools.islice(gathered, len(group))) for group in groups]

    def value(self, handle: Handle) -> Any:
        """Return the result of a task."""
        return self.executor.gather([handle])[0]

    def tree(
        self, function: Callable[[list[Any]], Any], handles: Sequence[Handle], *, n_left: int = 1
    ) -> list[Handle]:
        """Submit merges of consecutive results, in their order, until at most `n_left` are left."""
        handles = list(handles)
        while len(handles) > n_left:
            handles = [
                self.submit(function, handles[first : first + FAN_IN])
                for first in range(0, len(handles), FAN_IN)
            ]
        return handles
