"""MLflow tracking: fits as they happen, and finished runs with their report and model.

Needs mlflow (``pip install 'mscam-dask[mlflow]'``).
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from mscam_dask.data.results import read_result
from mscam_dask.errors import ConfigurationError
from mscam_dask.estimators.mscam import MSCAM
from mscam_dask.monitor.events import Event
from mscam_dask.pipeline.load_run import load_run
from mscam_dask.pipeline.stored_run import StoredRun, flat_settings, run_scores
from mscam_dask.types import events

__all__ = ["MlflowObserver", "log_run"]

_MODEL_FILES = ("run.json", "labels.csv", "result.zarr")
_ARTIFACTS = ("report.html", "run.json", "pipeline.toml", "samples.csv", "moved.csv")
_OF_SETTING = ("scale", "alpha", "n_neighbors", "initial_graph")
_OF_ITERATIONS = ("score", "graph_weight", "n_connected_components", "eigengap")
_LONGEST = 500  # of the value of a parameter


class MlflowObserver:
    """Observer that logs a fit to MLflow: parameters, metrics by iteration, and the status.

    Give it to `callbacks` of an estimator, or to `observers` of a run. It logs to the active MLflow
    run; without one, each fit gets its own.

    Raises
    ------
    ConfigurationError
        mlflow is not installed.
    """

    def __init__(self) -> None:
        self._mlflow = _mlflow()
        self._is_own = False

    def __call__(self, event: Event) -> None:
        """Log an event of a fit; others are ignored."""
        if isinstance(event, events.FitStarted):
            self._is_own = self._mlflow.active_run() is None
            if self._is_own:
                self._mlflow.start_run()
            found: dict[str, object] = {"n_views": len(event.views), "executor": event.executor}
            found |= {"n_samples": event.n_samples, "n_clusters": event.n_clusters}
            self._mlflow.log_params(_texts(found))
        elif isinstance(event, events.SettingsSelected):
            chosen = event.settings[event.chosen]
            found = {name: getattr(chosen, name) for name in _OF_SETTING}
            found |= {"max_iter": event.max_iter, "exclude_views": list(chosen.exclude_views)}
            for view, scale, alpha in chosen.view_settings:
                found |= {f"scale.{view}": scale, f"alpha.{view}": alpha}
            self._mlflow.log_params(_texts(found))
        elif isinstance(event, events.IterationFinished):
            values = {f"iteration.{name}": getattr(event, name) for name in _OF_ITERATIONS}
            for one, score in zip(event.views, event.view_scores, strict=False):
                values[_key(f"iteration.score.{one.view}")] = score
            self._mlflow.log_metrics(values, step=event.iteration)
        elif isinstance(event, events.FitFinished):
            values = {"n_iter": event.n_iterations, "seconds": event.seconds}
            for view, share in event.view_contributions.items():
                values[_key(f"contribution.{view}")] = share
            values["cross_view_information"] = event.score
            self._mlflow.log_metrics(values)
            self._mlflow.set_tag("mscam.status", event.status)
            self._end("FINISHED")
        elif isinstance(event, events.FitFailed):
            self._mlflow.set_tag("mscam.error", f"{event.error}: {event.message}")
            self._end("FAILED")

    def _end(self, status: str) -> None:
        if self._is_own:
            self._mlflow.end_run(status)


def log_run(path: str | os.PathLike[str]) -> str:
    """Log a finished run to MLflow: settings, scores, history, report, and the model.

    Parameters
    ----------
    path
        The run directory.

    Returns
    -------
    str
        Id of the MLflow run: the active one, or a new one. Its model "model" is loaded by
        ``mlflow.pyfunc.load_model`` without pickles, and predicts from a dict of views.

    Raises
    ------
    ConfigurationError
        mlflow is not installed.
    DataError
        There is no run, or it is not finished, damaged, or of another version.
    """
    mlflow = _mlflow()
    run = StoredRun.read(path).finished()
    record, directory = run.record, run.directory
    history = read_result(directory.result).history
    active = mlflow.active_run()
    with mlflow.start_run() if active is None else nullcontext(active) as logged:
        mlflow.log_params(_texts({"method": record.method, **flat_settings(record)}))
        mlflow.set_tags({"mscam.run": run.name, "mscam.status": run.fit.status})
        scores = run_scores(run)
        mlflow.log_metrics({name: value for name, value in scores.items() if value is not None})
        for name in _OF_ITERATIONS:
            for step, iteration in enumerate(history):
                mlflow.log_metric(f"iteration.{name}", getattr(iteration, name), step=step)
        for name in _ARTIFACTS:
            if (directory.path / name).is_file():
                mlflow.log_artifact(str(directory.path / name))
        with tempfile.TemporaryDirectory() as temporary:
            model = Path(temporary) / "run"
            model.mkdir()
            for name in _MODEL_FILES:
                source = directory.path / name
                copy = shutil.copytree if source.is_dir() else shutil.copyfile
                copy(source, model / name)
            mlflow.pyfunc.log_model(name="model", loader_module=__name__, data_path=str(model))
    return str(logged.info.run_id)


def _load_pyfunc(path: str) -> MSCAM:
    """Load the model of `log_run`; the name is MLflow's."""
    return load_run(path)


def _mlflow() -> Any:
    try:
        import mlflow
        import mlflow.pyfunc
    except ImportError as error:
        raise ConfigurationError(
            f"MLflow is not installed ({error}). Install it: pip install 'mscam-dask[mlflow]'."
        ) from error
    return mlflow


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    return {_key(name): str(value)[:_LONGEST] for name, value in values.items()}


def _key(name: str) -> str:
    """Return a name in the characters that MLflow allows."""
    return re.sub(r"[^\w\-. /]", "_", name, flags=re.ASCII)
