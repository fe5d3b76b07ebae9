"""MLflow: what a fit and a finished run leave in a tracking store."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from numpy.testing import assert_array_equal

from mscam_dask import load_run
from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.mlflow import MlflowObserver, log_run
from mscam_dask.pipeline.run_directory import RunDirectory
from tests.estimators.small import quick
from tests.messages import raises
from tests.pipeline.runs import Stopped, at, stop
from tests.synthetic import gaussian_views, three_subspaces, values_of

pytestmark = pytest.mark.filterwarnings("default")  # of MLflow and what it imports


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # mlflow-skinny has no other store
    module = pytest.importorskip("mlflow", reason="mlflow is not installed")
    before = module.get_tracking_uri()
    module.set_tracking_uri((tmp_path / "tracking").as_uri())
    experiment = module.create_experiment("test", artifact_location=(tmp_path / "files").as_uri())
    module.set_experiment(experiment_id=experiment)
    yield module
    while module.active_run() is not None:
        module.end_run()
    module.set_tracking_uri(before)


def only_run(mlflow: Any) -> Any:
    experiment = mlflow.get_experiment_by_name("test").experiment_id
    (run,) = mlflow.MlflowClient().search_runs([experiment])
    return run


def test_a_fit_is_logged_by_iteration(mlflow: Any) -> None:
    views, _ = gaussian_views(0, n_samples=60)
    model = quick(callbacks=[MlflowObserver()]).fit(views)
    run = only_run(mlflow)
    assert run.info.status == "FINISHED"
    assert (run.data.params["n_samples"], run.data.params["n_clusters"]) == ("60", "3")
    assert run.data.params["alpha"] == str(model.solution_.parameters.alpha)
    assert run.data.tags["mscam.status"] == model.status_.name
    assert run.data.metrics["cross_view_information"] == model.cross_view_information_
    steps = mlflow.MlflowClient().get_metric_history(run.info.run_id, "iteration.score")
    assert_array_equal([step.value for step in steps], model.history_["score"].values)


def test_a_fit_that_fails_ends_its_run_as_failed(mlflow: Any) -> None:
    views, _ = gaussian_views(0, n_samples=60)
    with pytest.raises(Stopped):
        quick(callbacks=[MlflowObserver(), at(stop)]).fit(views)
    run = only_run(mlflow)
    assert run.info.status == "FAILED"
    assert run.data.tags["mscam.error"].startswith("Stopped")


@pytest.mark.thorough
def test_a_run_is_logged_with_its_report_and_its_model(mlflow: Any, finished: RunDirectory) -> None:
    run_id = log_run(finished.path)
    client = mlflow.MlflowClient()
    run, record = client.get_run(run_id), finished.read_record()
    assert run.data.metrics["accuracy"] == record.metrics["accuracy"]
    assert run.data.params["cluster.n_clusters"] == "3"
    files = {item.path for item in client.list_artifacts(run_id)}
    assert {"report.html", "run.json", "samples.csv"} <= files
    model = mlflow.pyfunc.load_model(f"runs:/{run_id}/model")
    new = values_of(three_subspaces())
    assert_array_equal(model.predict(new), load_run(finished.path).predict(new))
    with mlflow.start_run() as active:
        assert log_run(finished.path) == active.info.run_id


def test_without_mlflow_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with raises(ConfigurationError, "pip install 'mscam-dask[mlflow]'"):
        MlflowObserver()
