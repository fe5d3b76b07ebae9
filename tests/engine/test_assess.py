"""Tasks of an assessment that need no graph of the fit are submitted beside its spectrum, once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.rules import SIZES
from tests.synthetic import gaussian_views


class Listed(SerialExecutor):
    """Executor that lists the stages of its tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.stages: list[str] = []

    def submit(self, function: Callable[..., Any], /, *args: Any, key: str) -> Any:
        self.stages.append(key.partition("/")[0])
        return super().submit(function, *args, key=key)


@pytest.mark.parametrize("n_views", [3, 10])
def test_they_come_before_the_first_iteration(
    n_views: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = dataclasses.replace(SIZES, n_scored=150, n_coarsely_compared=90)
    for module in ("prepare", "preprocessing_selection"):
        monkeypatch.setattr(f"mscam_dask.engine.{module}.SIZES", sizes)
    views, _ = gaussian_views(n_views, n_samples=300, n_clusters=3, spread=2.0, dims=(6,) * n_views)
    executor = Listed()
    settings = [Parameters(n_clusters=3, scale=scale) for scale in ("unit", "standard")]
    solution = run_fit(as_multi_view(views), settings, executor)
    stages, first = executor.stages, executor.stages.index("admm_view")
    assert stages.count("view_agreement") == 1
    assert stages.index("view_agreement") < first
    agreement = solution.assessment.view_agreement
    assert agreement.shape == (n_views, n_views)
    np.testing.assert_array_equal(np.diag(agreement), 1.0)
