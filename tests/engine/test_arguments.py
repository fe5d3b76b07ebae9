"""Tasks leave their arguments as they were: in threads another task may be reading them."""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.types.parameters import Choices, Parameters, ViewSettings
from tests.synthetic import distances_between, gaussian_views

OPTIONS = tuple(ViewSettings(scale, 10.0) for scale in ("unit", "standard"))


class _Arrays(pickle.Pickler):
    """Digests of all arrays within an object, at any depth."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())
        self.digests: list[str] = []

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, np.ndarray):
            return None
        self.digests.append(hashlib.sha256(value.tobytes("A")).hexdigest())
        return len(self.digests)


def arrays_in(value: Any) -> list[str]:
    pickler = _Arrays()
    pickler.dump(value)
    return pickler.digests


class _Watching(SerialExecutor):
    """Fails at a task that changes an array it was given."""

    n_tasks = 0

    def submit(self, function: Callable[..., Any], /, *args: Any, key: str) -> Any:
        def watched(*values: Any) -> Any:
            before = arrays_in(values)
            result = function(*values)
            assert arrays_in(values) == before, f"{key} changed its arguments"
            return result

        self.n_tasks += 1
        return super().submit(watched, *args, key=key)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    ("settings", "choices", "n_samples"),
    [
        ({}, Choices(OPTIONS, initial_graph=True, may_exclude_views=True), 90),
        ({"n_clusters": 6}, Choices(n_clusters=True), 90),
        ({"model": "mscan"}, Choices(), 90),
        ({"exact_samples": 400}, Choices(), 600),
    ],
    ids=["default", "number of clusters", "mscan", "large data"],
)
def test_no_task_changes_what_it_was_given(
    settings: dict[str, Any], choices: Choices, n_samples: int
) -> None:
    views, _ = gaussian_views(1, n_samples=n_samples, spread=0.7)
    given = {"few": views[0], "more": views[1], "pairs": distances_between(views[2])}
    data = as_multi_view(given, view_type={"pairs": "distance"})
    executor = _Watching()
    parameters = Parameters(**{"n_clusters": 3, "max_iter": 4, **settings})
    run_fit(data, parameters, executor, choices=choices)
    assert executor.n_tasks > 50
