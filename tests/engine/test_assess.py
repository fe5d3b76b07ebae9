"""Tasks of an assessment that need no graph of the fit are submitted beside its spectrum, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.types.parameters import Parameters
from tests.synthetic import gaussian_views


class Listed(SerialExecutor):
    """Executor that lists the stages of its tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.stages: list[str] = []

    def submit(self, function: Callable[..., Any], /, *args: Any, key: str) -> Any:
        self.stages.append(key.partition("/")[0])
        return super().submit(function, *args, key=key)


def test_they_come_before_the_first_iteration() -> None:
    views, _ = gaussian_views(3, n_samples=150, n_clusters=3, spread=2.0, dims=(6,) * 3)
    executor = Listed()
    settings = [Parameters(n_clusters=3, scale=scale) for scale in ("unit", "standard")]
    solution = run_fit(as_multi_view(views), settings, executor)
    stages, first = executor.stages, executor.stages.index("admm_view")
    assert stages.count("view_agreement") == 1
    assert stages.index("view_agreement") < first
    agreement = solution.assessment.view_agreement
    assert agreement.shape == (3, 3)
    np.testing.assert_array_equal(np.diag(agreement), 1.0)
