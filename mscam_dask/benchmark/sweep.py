"""A sensitivity experiment from its settings to its directory: scores over α × λ."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mscam_dask.benchmark.experiment import Experiment, Observer, default_output
from mscam_dask.benchmark.load_datasets import Dataset, open_datasets
from mscam_dask.benchmark.results import (
    SCORES,
    ExperimentRecord,
    HeatMapEntry,
    TrialEntry,
)
from mscam_dask.benchmark.settings import ExperimentSettings, SweepTable
from mscam_dask.benchmark.settings_sweep import SweepFit, sweep_fits
from mscam_dask.benchmark.summary import method_entry
from mscam_dask.benchmark.trial import Limits, Trial, TrialFit, entry_of
from mscam_dask.data.views.validation import validate
from mscam_dask.engine.executors.base import Executor
from mscam_dask.engine.executors.local import SerialExecutor
from mscam_dask.engine.memory import check_memory
from mscam_dask.metrics import score_partition
from mscam_dask.pipeline.config.validate import check_execution
from mscam_dask.pipeline.run.cluster import OpenCluster, check_workers, open_cluster
from mscam_dask.types.parameters import Parameters

__all__ = ["LABEL_FREE", "run_sweep", "sweep_parameters", "sweep_trials"]

LABEL_FREE = ("cross_view_information", "eigengap", "modularity")
"""Scores that see no label; larger is better."""

_NO_LIMITS = Limits()


def run_sweep(
    settings: ExperimentSettings,
    output: str | Path | None = None,
    *,
    command: str = "",
    overwrite: bool = False,
    insecure: bool = False,
    observers: Sequence[Observer] = (),
) -> ExperimentRecord:
    """Fit every α × λ on every data set, or what is missing of it.

    Parameters
    ----------
    settings, output, command, overwrite, insecure, observers
        As for `mscam_dask.benchmark.compare.run_comparison`.

    Returns
    -------
    ExperimentRecord
        As in experiment.json.

    Raises
    ------
    MscamError
        For anything wrong with settings, data or cluster.
    """
    check_execution(settings.execution, insecure=insecure)
    with Experiment.entered(
        settings,
        output or default_output(settings),
        command=command,
        overwrite=overwrite,
        observers=observers,
    ) as context:
        _Sweep(settings, context).run()
        return context.record


class _Sweep:
    """The steps of one sweep."""

    def __init__(self, settings: ExperimentSettings, context: Experiment) -> None:
        assert isinstance(settings.table, SweepTable)
        self._settings = settings
        self._table = settings.table
        self._course = context
        self._found: dict[str, TrialEntry] = {}

    def run(self) -> None:
        """Open the data, check, fit what is missing, write the maps."""
        table = self._table
        self._course.tell("reading the data")
        datasets = open_datasets(self._settings.datasets, self._course.directory, need_labels=False)
        for dataset in datasets.values():
            data = dataset.read()
            first = sweep_parameters(table, dataset, table.alpha[0], table.graph_weight[0])
            validate(data, n_clusters=first.n_clusters, n_neighbors=first.n_neighbors)
        self._course.update(
            seeds=(table.seed,),
            varies="There is one run of every cell.",
            datasets=tuple(dataset.entry for dataset in datasets.values()),
            methods=(method_entry(table.method),),
        )
        with contextlib.ExitStack() as stack:
            cluster: OpenCluster | None = None
            for dataset in datasets.values():
                missing = self._take_kept(dataset)
                if missing and cluster is None:
                    self._course.begin()
                    self._course.tell("starting workers")
                    cluster = stack.enter_context(open_cluster(self._settings.execution))
                    check_workers(cluster, [one.place for one in datasets.values()])
                    self._course.update(executor=cluster.description)
                if missing and cluster is not None:
                    self._fit(dataset, missing, _executor(cluster))
        self._course.finish(
            heat_maps=tuple(self._heat_map(dataset) for dataset in datasets.values()),
            trials=tuple(self._found.values()),
        )

    def _take_kept(self, dataset: Dataset) -> list[tuple[float, float]]:
        """Take over what is kept; the points that remain to be fitted."""
        trials = sweep_trials(self._table, dataset)
        kept = self._course.directory.kept_of(list(trials.values()), _NO_LIMITS)
        self._found.update(kept)
        self._course.update(n_reused=self._course.record.n_reused + len(kept))
        return [point for point, trial in trials.items() if trial.key not in kept]

    def _fit(
        self, dataset: Dataset, points: Sequence[tuple[float, float]], executor: Executor
    ) -> None:
        data = dataset.read()
        settings = [sweep_parameters(self._table, dataset, *point) for point in points]
        check_memory(data, settings[0], executor, whole_fits=True)
        self._course.tell(f"{len(points)} fits to do on {dataset.entry.name}, views factored once")
        trials = sweep_trials(self._table, dataset)
        fits = sweep_fits(data, settings, executor)
        for count, (point, fit) in enumerate(zip(points, fits, strict=True), start=1):
            ended = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
            entry = entry_of(trials[point], _scored(fit, data.labels), _NO_LIMITS, ended)
            self._course.directory.keep(entry)
            self._found[entry.key] = entry
            self._course.tell(entry=entry, done=count, total=len(points))

    def _heat_map(self, dataset: Dataset) -> HeatMapEntry:
        table = self._table
        trials = sweep_trials(table, dataset)
        entries = {point: self._found[trial.key] for point, trial in trials.items()}

        def of(name: str) -> tuple[tuple[float | None, ...], ...]:
            return tuple(
                tuple(entries[alpha, weight].scores.get(name) for weight in table.graph_weight)
                for alpha in table.alpha
            )

        label_free = {name: of(name) for name in (*LABEL_FREE, "n_connected_components")}
        has_labels = dataset.entry.n_classes > 0
        return HeatMapEntry(
            dataset=dataset.entry.name,
            method=table.method,
            alpha=tuple(table.alpha),
            graph_weight=tuple(table.graph_weight),
            with_labels={name: of(name) for name in SCORES} if has_labels else {},
            label_free=label_free,
            best={name: place for name in LABEL_FREE if (place := _largest(label_free[name]))},
            fixed=_fixed(table),
        )


def sweep_parameters(
    table: SweepTable, dataset: Dataset, alpha: float, graph_weight: float
) -> Parameters:
    """Return the parameters of one point of the grid."""
    return Parameters(
        n_clusters=dataset.entry.n_clusters,
        model=table.method,
        alpha=alpha,
        graph_weight=graph_weight,
        scale=table.scale,
        n_neighbors=table.n_neighbors,
        max_iter=table.max_iter,
        seed=table.seed,
    )


def sweep_trials(table: SweepTable, dataset: Dataset) -> dict[tuple[float, float], Trial]:
    """Return the cell of every point (alpha, graph weight) of the grid."""
    return {
        (alpha, graph_weight): Trial(
            dataset=dataset.entry.name,
            method=table.method,
            data=dataset.of(table.seed),
            n_clusters=dataset.entry.n_clusters,
            seed=table.seed,
            shuffled=False,
            parameters={
                "sweep": True,
                **_fixed(table),
                "alpha": alpha,
                "graph_weight": graph_weight,
            },
        )
        for alpha, graph_weight in itertools.product(table.alpha, table.graph_weight)
    }


def _fixed(table: SweepTable) -> dict[str, Any]:
    return {
        "scale": table.scale,
        "n_neighbors": table.n_neighbors,
        "max_iter": table.max_iter,
        "seed": table.seed,
    }


def _executor(cluster: OpenCluster) -> Executor:
    if cluster.client is None:
        return SerialExecutor()
    from mscam_dask.engine.executors.dask import DaskExecutor

    return DaskExecutor(cluster.client)


def _scored(fit: SweepFit, labels: np.ndarray[Any, Any] | None) -> TrialFit:
    scores: dict[str, float | None] = {
        name: value if math.isfinite(value := float(getattr(fit, name))) else None
        for name in LABEL_FREE
    }
    scores["n_connected_components"] = float(fit.n_connected_components)
    if labels is not None:
        found = score_partition(labels, fit.labels)
        scores |= {name: float(getattr(found, name)) for name in SCORES}
    return TrialFit(
        outcome="ok",
        scores=scores,
        n_found=len(np.unique(fit.labels)),
        seconds=fit.seconds,
    )


def _largest(values: Sequence[Sequence[float | None]]) -> tuple[int, int] | None:
    """Position of the largest value, the first of a tie; None when none is known."""
    known = [
        (value, (row, column))
        for row, line in enumerate(values)
        for column, value in enumerate(line)
        if value is not None
    ]
    return max(known, key=lambda item: item[0])[1] if known else None
