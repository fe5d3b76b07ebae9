"""Tasks leave their arguments as they were: in threads another task may be reading them."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mscam_dask import MSCAM, MSCAN, Constants
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.engine import blocks, neighbors
from mscam_dask.engine import prepare as precomputed
from mscam_dask.engine.executors import base
from mscam_dask.engine.fit import run_fit
from mscam_dask.estimators import _resources as execution
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.rules import SIZES
from tests.synthetic import distances_between, gaussian_views


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


class _Watching(base.SerialExecutor):
    """Fails at a task that changes an array it was given."""

    n_tasks = 0

    def submit(self, function: Callable[..., Any], /, *args: Any, key: str) -> Any:
        def watched(*values: Any) -> Any:
            before = arrays_in(values)
            result = function(*values)
            assert arrays_in(values) == before, f"{key} changed its arguments"
            return result

        _Watching.n_tasks += 1
        return super().submit(watched, *args, key=key)


@pytest.fixture(autouse=True)
def watching(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "SerialExecutor", _Watching)
    monkeypatch.setattr(_Watching, "n_tasks", 0)
    monkeypatch.setattr(neighbors, "_MIN_PART", 40)


@pytest.mark.parametrize(
    "estimator",
    [
        MSCAM(3, random_state=0, n_jobs=1),
        MSCAM(3, random_state=0, n_jobs=1, constants=Constants.paper()),
        MSCAM("auto", random_state=0, n_jobs=1),
        MSCAN(3, random_state=0, n_jobs=1),
    ],
    ids=["default", "one setting", "number of clusters", "mscan"],
)
def test_no_task_changes_what_it_was_given(estimator: Any) -> None:
    views, _ = gaussian_views(1, spread=0.7)
    pairs = distances_between(views[2])
    estimator.set_params(view_type={"pairs": "distance"})
    estimator.fit({"few": views[0], "more": views[1], "pairs": pairs})
    assert _Watching.n_tasks > 50


def test_nor_on_large_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precomputed, "SIZES", dataclasses.replace(SIZES, n_scored=250))
    monkeypatch.setattr(neighbors, "CELL_POINTS", 50)
    monkeypatch.setattr(blocks, "_BLOCK_ROWS", 200)
    views, _ = gaussian_views(1, n_samples=600)
    parameters = [
        Parameters(n_clusters=3, scale="unit", alpha=10.0, exact_samples=400),
        Parameters(n_clusters=3, scale="standard", alpha=1.0, exact_samples=400),
    ]
    run_fit(as_multi_view(views), parameters, _Watching())
    assert _Watching.n_tasks > 50
