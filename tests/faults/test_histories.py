"""The driver loop on a cluster that loses, delays, repeats and reorders by a seed: always the same result."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import pytest

from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.types.parameters import Model, Parameters, Scale
from tests.engine.same_bits import bits
from tests.synthetic import gaussian_views


@dataclasses.dataclass
class Memory:
    """Results by what was computed of what; shared by histories of the same data."""

    results: dict[int, Any] = dataclasses.field(default_factory=dict)
    numbers: dict[Any, int] = dataclasses.field(default_factory=dict)
    kept: list[Any] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(eq=False)
class _Handle:
    """A task, and its result while somebody holds it."""

    key: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
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
        None: every execution is real, and of a task that is run twice the second result is taken.
    """

    description = "one bad history"
    n_workers = 3
    memory_limit_bytes = None
    spill_threshold_bytes = None
    shares_memory = True

    def __init__(self, seed: int, memory: Memory | None) -> None:
        self._rng = np.random.default_rng(seed)
        self._remembers = memory is not None
        self._memory = memory or Memory()
        self._waiting: list[_Handle] = []
        self._done: list[_Handle] = []
        self._keys: set[str] = set()
        self.n_lost = self.n_twice = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._waiting.clear()
        self._done.clear()

    def submit(self, function: Callable[..., Any], /, *args: Any, key: str) -> _Handle:
        """Queue a task; some of those queued run at once, in any order."""
        assert key not in self._keys, f"two tasks are called {key!r}"
        self._keys.add(key)
        identity = (repr(function), self._identity(args))
        numbers = self._memory.numbers
        handle = _Handle(key, function, args, numbers.setdefault(identity, len(numbers)))
        self._waiting.append(handle)
        while self._waiting and self._rng.random() < 0.4:
            self._run(self._waiting[self._rng.integers(len(self._waiting))])
        return handle

    def gather(self, handles: Sequence[_Handle]) -> list[Any]:
        """Finish what is asked for, in any order, while a worker may be lost with all it held."""
        if self._rng.random() < 0.3:
            for handle in self._done:
                if self._rng.random() < 0.34:
                    handle.is_done, handle.result = False, None
                    self.n_lost += 1
            self._done = [handle for handle in self._done if handle.is_done]
        for index in self._rng.permutation(len(handles)):
            self._run(handles[index])
        return [handle.result for handle in handles]

    def _identity(self, arg: Any) -> Any:
        if isinstance(arg, _Handle):
            return ("task", arg.number)
        if isinstance(arg, list | tuple):
            return tuple(map(self._identity, arg))
        if isinstance(arg, slice):  # hashable from Python 3.12 on
            return ("slice", arg.start, arg.stop, arg.step)
        try:
            hash(arg)
        except TypeError:
            self._memory.kept.append(arg)  # its id stays its own
            return ("object", id(arg))
        return arg

    def _run(self, handle: _Handle) -> None:
        if handle.is_done:
            return
        args = self._values(handle.args)
        results = self._memory.results
        if not self._remembers or handle.number not in results:
            results[handle.number] = handle.function(*args)
            if not self._remembers and self._rng.random() < 0.1:
                self.n_twice += 1
                results[handle.number] = handle.function(*args)
        handle.result, handle.is_done = results[handle.number], True
        self._done.append(handle)
        if handle in self._waiting:
            self._waiting.remove(handle)

    def _values(self, arg: Any) -> Any:
        """An argument with the results of tasks in place of their handles, which are run first."""
        if isinstance(arg, _Handle):
            self._run(arg)
            return arg.result
        if isinstance(arg, list | tuple):
            return type(arg)(map(self._values, arg))
        return arg


pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(300),
    pytest.mark.parametrize("model", ["mscam", "mscan"]),
]


@pytest.mark.parametrize(
    "n_histories",
    [10, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])],
)
def test_histories_do_not_diverge(model: Model, n_histories: int) -> None:
    """The first two compute every task anew, and some twice; the others remember results."""
    views, _ = gaussian_views(4, n_samples=30, spread=1.2, dims=(3, 4, 6))
    names = ("0/a", "a", "0")  # which look like the path of another task's key
    data = as_multi_view(dict(zip(names, views, strict=True)))
    settings: tuple[tuple[Scale, int], ...] = (("standard", 3), ("unit", 5))
    candidates = tuple(
        Parameters(n_clusters=3, model=model, n_neighbors=k, max_iter=6, scale=scale)
        for scale, k in settings
    )
    solution = run_fit(data, candidates, SerialExecutor())
    assert len(solution.history) >= 3
    expected = bits(solution)
    memory = Memory()
    n_lost = n_twice = 0
    for seed in range(n_histories):
        executor = HistoryExecutor(seed, memory if seed > 1 else None)
        assert bits(run_fit(data, candidates, executor)) == expected, seed
        n_lost += executor.n_lost
        n_twice += executor.n_twice
    assert n_lost > 0
    assert n_twice > 0
