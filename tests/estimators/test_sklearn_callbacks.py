"""Callbacks of scikit-learn on our estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from mscam_dask import MSCAM, Constants
from tests.synthetic import two_subspaces, values_of

sklearn_callback = pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9")


class Log:
    """Writes down what a callback is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def setup(self, estimator: Any, context: Any) -> None:
        self.said.append("setup")

    def teardown(self, estimator: Any, context: Any) -> None:
        self.said.append("teardown")

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        self.said.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator: Any, context: Any) -> bool:
        self.said.append(f"end {context.task_name}")
        return False


def test_each_outer_iteration_is_a_task() -> None:
    log = Log()
    data = two_subspaces()
    model = MSCAM(n_clusters=2, n_jobs=1, constants=Constants.paper()).set_callbacks(log).fit(data)
    steps = ["begin outer iteration", "end outer iteration"] * model.n_iter_
    assert model.n_iter_ > 0
    assert log.said == ["setup", "begin fit", *steps, "end fit", "teardown"]


def test_a_fit_that_fails_is_torn_down() -> None:
    log = Log()

    def stop(event: object) -> None:
        raise RuntimeError("no further")

    data = two_subspaces()
    model = MSCAM(
        n_clusters=2, n_jobs=1, constants=Constants.paper(), callbacks=[stop]
    ).set_callbacks(log)
    with pytest.raises(RuntimeError, match="no further"):
        model.fit(data)
    assert log.said == ["setup", "teardown"]


def test_the_progress_bar_of_scikit_learn(capsys: pytest.CaptureFixture[str]) -> None:
    data = two_subspaces()
    bar = sklearn_callback.ProgressBar()
    MSCAM(n_clusters=2, n_jobs=1, constants=Constants.paper()).set_callbacks(bar).fit(data)
    assert "MSCAM - fit" in capsys.readouterr().out


def test_without_callbacks_and_within_a_pipeline_nothing_changes() -> None:
    views = list(values_of(two_subspaces()).values())
    model = MSCAM(n_clusters=2, n_jobs=1, constants=Constants.paper())
    labels = make_pipeline(FunctionTransformer(), model).fit_predict(views)
    np.testing.assert_array_equal(labels, model.fit_predict(views))
