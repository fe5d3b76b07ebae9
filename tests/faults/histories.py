"""An executor that behaves as badly as a cluster may, by a seed.

It loses results (and computes them again), delays and reorders tasks, and runs some of them twice.
What each task gives is remembered across histories, so that one history costs the driver loop
alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np

__all__ = ["FakeHandle", "HistoryExecutor", "Memory"]

Identity = tuple[Any, ...]


@dataclasses.dataclass
class Memory:
    """Results by what was computed of what; shared by histories of the same data."""

    results: dict[int, Any] = dataclasses.field(default_factory=dict)
    numbers: dict[Identity, int] = dataclasses.field(default_factory=dict)
    kept: list[Any] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(eq=False)
class FakeHandle:
    """A task, and its result while somebody holds it."""

    key: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    needs: tuple[FakeHandle, ...]
    number: int
    is_done: bool = False
    result: Any = None


class HistoryExecutor:
    """One history.

    Parameters
    ----------
    seed : int
        Of what goes wrong, and when.
    memory : Memory or None
        None: every execution is real, and a task that is run twice has to give the same.
    """

    description = "one bad history"
    n_workers = 3
    memory_limit_bytes = None
    spill_threshold_bytes = None
    shares_memory = True

    def __init__(self, seed: int, memory: Memory | None) -> None:
        self._rng = np.random.default_rng(seed)
        self._draws: Iterator[float] = iter(())
        self._memory = memory
        self._numbers = memory or Memory()
        self._waiting: list[FakeHandle] = []
        self._done: list[FakeHandle] = []
        self.keys: set[str] = set()
        self.n_lost = self.n_twice = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._waiting.clear()
        self._done.clear()

    def submit(self, function: Callable[..., Any], /, *args: Any, key: str) -> FakeHandle:
        """Queue a task; some of those queued run at once, in any order."""
        assert key not in self.keys, f"two tasks are called {key!r}"
        self.keys.add(key)
        needs = tuple(_handles(args))
        identity = (repr(function), *(self._identity(arg) for arg in args))
        numbers = self._numbers.numbers
        number = numbers.setdefault(identity, len(numbers))  # the same in every history
        handle = FakeHandle(key, function, args, needs, number)
        self._waiting.append(handle)
        while self._waiting and self._chance() < 0.4:
            self._run(self._waiting[int(self._chance() * len(self._waiting))])
        return handle

    def gather(self, handles: Sequence[FakeHandle]) -> list[Any]:
        """Finish what is asked for, last first as often as not, while other things go wrong."""
        self._lose_some()
        order = sorted(range(len(handles)), key=lambda _: self._chance())
        for index in order:
            self._run(handles[index])
        for handle in handles:  # lost between finishing and fetching
            self._run(handle)
        return [handle.result for handle in handles]

    def _chance(self) -> float:
        for draw in self._draws:
            return draw
        self._draws = iter(self._rng.random(512).tolist())
        return next(self._draws)

    def _identity(self, arg: Any) -> Any:
        if isinstance(arg, FakeHandle):
            return ("task", arg.number)
        if isinstance(arg, list | tuple):
            return tuple(self._identity(item) for item in arg)
        try:
            hash(arg)
        except TypeError:
            self._numbers.kept.append(arg)  # its id stays its own
            return ("object", id(arg))
        return arg

    def _lose_some(self) -> None:
        """A worker is gone, with all it held."""
        if self._chance() < 0.3:
            for handle in self._done:
                if self._chance() < 0.34 and handle.is_done:
                    handle.is_done, handle.result = False, None
                    self.n_lost += 1
            self._done = [handle for handle in self._done if handle.is_done]

    def _run(self, handle: FakeHandle) -> None:
        if handle.is_done:
            return
        for need in handle.needs:
            self._run(need)
        handle.result = self._value(handle)
        handle.is_done = True
        self._done.append(handle)
        if handle in self._waiting:
            self._waiting.remove(handle)

    def _value(self, handle: FakeHandle) -> Any:
        twice = self._chance() < 0.1
        self.n_twice += twice
        if self._memory is None:
            result = handle.function(*_values(handle.args))
            if twice:
                assert_same(result, handle.function(*_values(handle.args)), handle.key)
            return result
        if handle.number not in self._memory.results:
            self._memory.results[handle.number] = handle.function(*_values(handle.args))
        return self._memory.results[handle.number]


def _handles(arg: Any) -> list[FakeHandle]:
    if isinstance(arg, FakeHandle):
        return [arg]
    if isinstance(arg, list | tuple):
        return [handle for item in arg for handle in _handles(item)]
    return []


def _values(arg: Any) -> Any:
    if isinstance(arg, FakeHandle):
        return arg.result
    if isinstance(arg, list | tuple):
        return type(arg)(_values(item) for item in arg)
    return arg


def assert_same(one: Any, two: Any, where: str) -> None:
    """Two results are equal, clocks aside."""
    assert type(one) is type(two), where
    parts: dict[Any, tuple[Any, Any]]
    if dataclasses.is_dataclass(one):
        names = {field.name for field in dataclasses.fields(one)} - {"seconds"}
        parts = {name: (getattr(one, name), getattr(two, name)) for name in names}
    elif isinstance(one, list | tuple):
        parts = dict(enumerate(zip(one, two, strict=True)))
    elif isinstance(one, dict):
        assert one.keys() == two.keys(), where
        parts = {name: (one[name], two[name]) for name in one}
    elif hasattr(one, "indptr"):
        names = {"data", "indices", "indptr"}
        parts = {name: (getattr(one, name), getattr(two, name)) for name in names}
    else:
        np.testing.assert_array_equal(one, two, where)
        return
    for name, (left, right) in parts.items():
        assert_same(left, right, f"{where}.{name}")
