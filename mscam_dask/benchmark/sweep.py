"""Sweeps: fits of one method over a grid of α and λ, and their scores.

Everything that does not depend on α and λ (the SVD of each view and the reference graphs) is
computed once, as tasks of its own. Each fit is then one task that uses these results. A grid of
any size therefore reads and factors every view once, and its fits run in parallel.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from mscam_dask.benchmark.config import ExperimentSettings, SweepTable
from mscam_dask.benchmark.datasets import Dataset, open_datasets
from mscam_dask.benchmark.experiment import Experiment
from mscam_dask.benchmark.methods import METHODS
from mscam_dask.benchmark.results import (
    SCORES,
    ExperimentRecord,
    HeatMapEntry,
    MethodEntry,
    TrialEntry,
)
from mscam_dask.benchmark.trial import Limits, Trial, TrialFit, trial_entry
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.validation import validate
from mscam_dask.engine.executors.base import Executor, Handle, SerialExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.engine.memory import check_memory
from mscam_dask.engine.prepare import precompute_views
from mscam_dask.engine.stage import Stage
from mscam_dask.errors import ConfigurationError
from mscam_dask.linalg.eigensolver import bottom_eigenpairs
from mscam_dask.linalg.laplacian import laplacian
from mscam_dask.linalg.neighbor_information import modularity
from mscam_dask.metrics import score_partition
from mscam_dask.pipeline.run.cluster import OpenCluster
from mscam_dask.solvers.partition_score import ReferenceGraphs
from mscam_dask.solvers.spectral_cut import sampled_rows
from mscam_dask.types.parameters import Constants, Model, Parameters
from mscam_dask.types.result import Solution

__all__ = ["LABEL_FREE", "SweepFit", "run_sweep", "sweep_fits", "sweep_parameters", "sweep_trials"]


LABEL_FREE = ("cross_view_information", "eigengap", "modularity")
"""Label-free scores; larger is better."""
_NO_LIMITS = Limits()


class SweepFit(NamedTuple):
    """Result of one fit of a sweep.

    Attributes
    ----------
    labels : (n,) int64
    scores : dict of str to float
        "cross_view_information" of the partition, in nats, by which `MSCAM` selects settings;
        "eigengap" λ_{c+1} − λ_c of the consensus graph's Laplacian, NaN when there are only c
        samples; "modularity" of the partition, averaged over the reference graphs of a view and over
        views; "n_connected_components" of the consensus graph.
    seconds : float
        Time of the fit without the shared results.
    """

    labels: NDArray[np.int64]
    scores: dict[str, float]
    seconds: float


def sweep_fits(
    data: MultiViewData, settings: Sequence[Parameters], executor: Executor
) -> Iterator[SweepFit]:
    """Fit `data` with each of the settings, in order.

    Parameters
    ----------
    data : MultiViewData
        Validated views.
    settings : sequence of Parameters
        All with the same scale.
    executor : Executor
        Entered here, and left when the iterator ends or is closed.

    Yields
    ------
    SweepFit
        Bit-identical to a fit outside a sweep.

    Raises
    ------
    ConfigurationError
        If the settings have several scales.
    ClusterError
        If the cluster fails.
    DataError
        If a view cannot be clustered.
    """
    scales = {parameters.scale for parameters in settings}
    if len(scales) > 1:
        raise ConfigurationError(
            f"the settings of a sweep must have the same scale; got {sorted(scales)}."
        )
    if not settings:
        return
    with executor:
        recorder = _RecordingExecutor(executor)
        scales_of_views = [settings[0].scales(len(data.views))]
        exact = settings[0].exact_samples
        recording = cast(Executor, recorder)
        stage = Stage(recording, "views")  # as in a fit, so that the keys are the same
        precomputed = precompute_views(stage, data, scales_of_views, exact_samples=exact)
        precomputed.scorer.graphs(precomputed.names)
        keys, handles = list(recorder.handles), list(recorder.handles.values())
        fits = [
            executor.submit(_fit, data, parameters, keys, handles, key=f"sweep_fit/{index}")
            for index, parameters in enumerate(settings)
        ]
        for fit in fits:
            (result,) = executor.gather([fit])
            yield result


class _RecordingExecutor:
    """Executor that records the tasks submitted to another one, whose results the fits need."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.handles: dict[str, Handle] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def submit(self, function: Callable[..., Any], /, *args: Any, key: str) -> Handle:
        handle = self._executor.submit(function, *args, key=key)
        self.handles[key] = handle
        return handle


class _PrecomputedExecutor(SerialExecutor):
    """Serial executor that already has the results of some tasks."""

    def __init__(self, results: dict[str, Any]) -> None:
        super().__init__()
        self._results = results

    def submit(self, function: Callable[..., Any], /, *args: Any, key: str) -> Handle:
        if key in self._results:
            return super().submit(self._results.get, key, key=key)
        return super().submit(function, *args, key=key)


def _fit(
    data: MultiViewData, parameters: Parameters, keys: list[str], results: list[Any]
) -> SweepFit:
    """Fit with one setting, given the shared results, as one task."""
    started = time.perf_counter()
    executor = _PrecomputedExecutor(dict(zip(keys, results, strict=True)))
    solution = run_fit(data, parameters, executor)
    reference_graphs = [value for value in results if isinstance(value, ReferenceGraphs)]
    scores = {
        "cross_view_information": solution.score,
        "eigengap": _eigengap(solution, parameters),
        "modularity": _mean_modularity(reference_graphs, solution.labels),
        "n_connected_components": float(solution.n_connected_components),
    }
    return SweepFit(solution.labels, scores, time.perf_counter() - started)


def _eigengap(solution: Solution, parameters: Parameters) -> float:
    c, n = parameters.n_clusters, len(solution.labels)
    if c >= n:
        return float("nan")
    spectrum = bottom_eigenpairs(
        laplacian(solution.consensus_graph),
        c + 1,
        relative_tolerance=1e-6,
        rng=np.random.default_rng(parameters.seed),
    )
    return float(spectrum.values[c] - spectrum.values[c - 1])


def _mean_modularity(
    reference_graphs: Sequence[ReferenceGraphs], labels: NDArray[np.int64]
) -> float:
    n_validation_samples = reference_graphs[0].graphs[0].shape[0]
    if n_validation_samples < len(labels):  # large data are scored on a sample
        labels = labels[sampled_rows(len(labels), n_validation_samples)]
    by_view = [
        float(np.mean([modularity(graph, labels) for graph in view.graphs]))
        for view in reference_graphs
    ]
    return float(np.mean(by_view))


def run_sweep(
    settings: ExperimentSettings, output: str | Path | None = None, **options: Any
) -> ExperimentRecord:
    """Fit every α × λ on every data set; trials that have a result are not repeated.

    Parameters, result and errors are those of `mscam_dask.benchmark.compare.run_comparison`.
    """
    table = settings.table
    assert isinstance(table, SweepTable)
    with Experiment.open(settings, output, **options) as experiment:
        experiment.notify("reading the data")
        datasets = open_datasets(settings.datasets, experiment.directory.stores)
        for dataset in datasets.values():
            validate(
                dataset.read(),
                n_clusters=dataset.entry.n_clusters,
                n_neighbors=table.n_neighbors,
            )
        experiment.update(
            seeds=(table.seed,),
            varies="Every trial is run once.",
            datasets=tuple(dataset.entry for dataset in datasets.values()),
            methods=(MethodEntry.from_method(METHODS[table.method]),),
        )
        stores = [location for each in datasets.values() if (location := each.location) is not None]
        for dataset in datasets.values():
            missing = experiment.missing(list(sweep_trials(table, dataset).values()), _NO_LIMITS)
            if missing:
                executor = _executor(experiment.cluster(stores))
                _fit_missing(missing, dataset, executor, experiment)
        entries = experiment.entries
        experiment.finish(
            heat_maps=tuple(_heat_map(table, each, entries) for each in datasets.values()),
            trials=tuple(entries.values()),
        )
        return experiment.record


def _fit_missing(
    trials: Sequence[Trial], dataset: Dataset, executor: Executor, experiment: Experiment
) -> None:
    """Run the trials of a data set that have no result."""
    data = dataset.read()
    settings = [sweep_parameters(trial) for trial in trials]
    check_memory(data, settings[0], executor, whole_fits=True)
    experiment.notify(f"{dataset.entry.name}: {len(trials)} fits to run")
    fits = sweep_fits(data, settings, executor)
    for done, (trial, fit) in enumerate(zip(trials, fits, strict=True), start=1):
        entry = trial_entry(trial, _scored(fit, data.labels), _NO_LIMITS)
        experiment.add(entry, done, len(trials))


def _heat_map(table: SweepTable, dataset: Dataset, entries: dict[str, TrialEntry]) -> HeatMapEntry:
    keys = {point: trial.key for point, trial in sweep_trials(table, dataset).items()}

    def scores(name: str) -> tuple[tuple[float | None, ...], ...]:
        return tuple(
            tuple(entries[keys[alpha, weight]].scores.get(name) for weight in table.graph_weight)
            for alpha in table.alpha
        )

    label_free = {name: scores(name) for name in (*LABEL_FREE, "n_connected_components")}
    return HeatMapEntry(
        dataset=dataset.entry.name,
        method=table.method,
        alpha=tuple(table.alpha),
        graph_weight=tuple(table.graph_weight),
        with_labels={name: scores(name) for name in SCORES} if dataset.entry.n_classes else {},
        label_free=label_free,
        best={name: point for name in LABEL_FREE if (point := _argmax(label_free[name]))},
        fixed=_fixed(table),
    )


def sweep_trials(table: SweepTable, dataset: Dataset) -> dict[tuple[float, float], Trial]:
    """Return the trial of every point (alpha, graph weight) of the grid."""
    return {
        (alpha, graph_weight): Trial(
            dataset=dataset.entry.name,
            method=table.method,
            data=dataset.data_of(table.seed),
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
    """Parameters that all trials share."""
    return {name: getattr(table, name) for name in ("scale", "n_neighbors", "max_iter", "seed")}


def sweep_parameters(trial: Trial) -> Parameters:
    """Return the parameters of the fit of a trial."""
    given = {name: value for name, value in trial.parameters.items() if name != "sweep"}
    constants = Constants.paper(graph_weight=given.pop("graph_weight"))
    model = cast(Model, trial.method)
    return Parameters(n_clusters=trial.n_clusters, model=model, constants=constants, **given)


def _executor(cluster: OpenCluster) -> Executor:
    if cluster.client is None:
        return SerialExecutor()
    from mscam_dask.engine.executors.dask import DaskExecutor

    return DaskExecutor(cluster.client)


def _scored(fit: SweepFit, labels_true: NDArray[Any] | None) -> TrialFit:
    scores = {name: value if math.isfinite(value) else None for name, value in fit.scores.items()}
    if labels_true is not None:
        with_labels = score_partition(labels_true, fit.labels)
        scores |= {name: float(getattr(with_labels, name)) for name in SCORES}
    n_found = len(np.unique(fit.labels))
    return TrialFit(outcome="ok", scores=scores, n_found=n_found, seconds=fit.seconds)


def _argmax(values: Sequence[Sequence[float | None]]) -> tuple[int, int] | None:
    """Position of the largest value, the first of a tie; None if every value is null."""
    array = np.array(values, dtype=np.float64)
    if np.isnan(array).all():
        return None
    i, j = np.unravel_index(np.nanargmax(array), array.shape)
    return int(i), int(j)
