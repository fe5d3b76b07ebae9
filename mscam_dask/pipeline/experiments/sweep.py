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

from mscam_dask.data.validation import validate
from mscam_dask.engine.executor import Executor
from mscam_dask.engine.local import SerialExecutor
from mscam_dask.engine.plan import check_memory
from mscam_dask.engine.sweep import SweepFit, sweep_fits
from mscam_dask.metrics import score_partition
from mscam_dask.model.parameters import Parameters
from mscam_dask.pipeline.cluster import OpenCluster, check_workers, open_cluster
from mscam_dask.pipeline.execution import check_execution
from mscam_dask.pipeline.experiments.cells import Cell, CellFit, Limits, entry_of
from mscam_dask.pipeline.experiments.course import Course, Observer, default_output
from mscam_dask.pipeline.experiments.datasets import Dataset, open_datasets
from mscam_dask.pipeline.experiments.results import (
    SCORES,
    CellEntry,
    ExperimentRecord,
    HeatMapEntry,
)
from mscam_dask.pipeline.experiments.settings import ExperimentSettings, SweepTable
from mscam_dask.pipeline.experiments.summary import method_entry

__all__ = ["LABEL_FREE", "run_sweep", "sweep_cells", "sweep_parameters"]

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
        As for `mscam_dask.pipeline.experiments.compare.run_comparison`.

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
    with Course.entered(
        settings,
        output or default_output(settings),
        command=command,
        overwrite=overwrite,
        observers=observers,
    ) as course:
        _Sweep(settings, course).run()
        return course.record


class _Sweep:
    """The steps of one sweep."""

    def __init__(self, settings: ExperimentSettings, course: Course) -> None:
        assert isinstance(settings.table, SweepTable)
        self._settings = settings
        self._table = settings.table
        self._course = course
        self._found: dict[str, CellEntry] = {}

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
            cells=tuple(self._found.values()),
        )

    def _take_kept(self, dataset: Dataset) -> list[tuple[float, float]]:
        """Take over what is kept; the points that remain to be fitted."""
        cells = sweep_cells(self._table, dataset)
        kept = self._course.directory.kept_of(list(cells.values()), _NO_LIMITS)
        self._found.update(kept)
        self._course.update(n_reused=self._course.record.n_reused + len(kept))
        return [point for point, cell in cells.items() if cell.key not in kept]

    def _fit(
        self, dataset: Dataset, points: Sequence[tuple[float, float]], executor: Executor
    ) -> None:
        data = dataset.read()
        settings = [sweep_parameters(self._table, dataset, *point) for point in points]
        check_memory(data, settings[0], executor, whole_fits=True)
        self._course.tell(f"{len(points)} fits to do on {dataset.entry.name}, views factored once")
        cells = sweep_cells(self._table, dataset)
        fits = sweep_fits(data, settings, executor)
        for count, (point, fit) in enumerate(zip(points, fits, strict=True), start=1):
            ended = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
            entry = entry_of(cells[point], _scored(fit, data.labels), _NO_LIMITS, ended)
            self._course.directory.keep(entry)
            self._found[entry.key] = entry
            self._course.tell(entry=entry, done=count, total=len(points))

    def _heat_map(self, dataset: Dataset) -> HeatMapEntry:
        table = self._table
        cells = sweep_cells(table, dataset)
        entries = {point: self._found[cell.key] for point, cell in cells.items()}

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
        max_outer_iter=table.max_outer_iter,
        seed=table.seed,
    )


def sweep_cells(table: SweepTable, dataset: Dataset) -> dict[tuple[float, float], Cell]:
    """Return the cell of every point (alpha, graph weight) of the grid."""
    return {
        (alpha, graph_weight): Cell(
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
        "max_outer_iter": table.max_outer_iter,
        "seed": table.seed,
    }


def _executor(cluster: OpenCluster) -> Executor:
    if cluster.client is None:
        return SerialExecutor()
    from mscam_dask.engine.dask import DaskExecutor

    return DaskExecutor(cluster.client)


def _scored(fit: SweepFit, labels: np.ndarray[Any, Any] | None) -> CellFit:
    scores: dict[str, float | None] = {
        name: value if math.isfinite(value := float(getattr(fit, name))) else None
        for name in LABEL_FREE
    }
    scores["n_connected_components"] = float(fit.n_connected_components)
    if labels is not None:
        found = score_partition(labels, fit.labels)
        scores |= {name: float(getattr(found, name)) for name in SCORES}
    return CellFit(
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
