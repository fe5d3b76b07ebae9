"""Sweeps: fits of one method over a grid of α and λ, and their scores.

Everything that does not depend on α and λ (the SVD of each view and the reference graphs) is
computed once, as tasks of its own. Each fit is then one task that uses these results. A grid of
any size therefore reads and factors every view once, and its fits run in parallel.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mscam_dask.benchmark.config import ExperimentSettings, SweepTable
from mscam_dask.benchmark.experiment import Experiment
from mscam_dask.benchmark.load_datasets import Dataset, open_datasets
from mscam_dask.benchmark.methods import METHODS
from mscam_dask.benchmark.results import (
    SCORES,
    ExperimentRecord,
    HeatMapEntry,
    MethodEntry,
    TrialEntry,
)
from mscam_dask.benchmark.trial import Limits, Trial, TrialFit, trial_entry
from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.data.views.validation import validate
from mscam_dask.engine.executors.base import Executor, Handle, SerialExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.engine.memory import check_memory
from mscam_dask.engine.precompute import precompute_views
from mscam_dask.errors import ConfigurationError
from mscam_dask.linalg.eigensolver import bottom_eigenpairs
from mscam_dask.linalg.laplacian import laplacian
from mscam_dask.linalg.neighbor_information import modularity
from mscam_dask.metrics import score_partition
from mscam_dask.pipeline.run.cluster import OpenCluster, check_workers, open_cluster
from mscam_dask.solvers.partition_score import ReferenceGraphs
from mscam_dask.solvers.spectral_cut import sampled_rows
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.result import Solution

__all__ = ["LABEL_FREE", "SweepFit", "run_sweep", "sweep_fits", "sweep_parameters", "sweep_trials"]


LABEL_FREE = ("cross_view_information", "eigengap", "modularity")
"""Label-free scores; larger is better."""
_NO_LIMITS = Limits()


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepFit:
    """Result of one fit of a sweep.

    Attributes
    ----------
    parameters : Parameters
    labels : (n,) int64
    status : str
        Name of a `Status`.
    n_connected_components : int
        Connected components of the consensus graph.
    cross_view_information : float
        Label-free score of the partition, in nats, by which `auto_settings=True` selects.
    eigengap : float
        λ_{c+1} − λ_c of the consensus graph's Laplacian; NaN when there are only c samples.
    modularity : float
        Modularity of the partition on the reference graphs, averaged over the graphs of a view and
        over views.
    seconds : float
        Time of the fit without the shared results.
    """

    parameters: Parameters
    labels: NDArray[np.int64]
    status: str
    n_connected_components: int
    cross_view_information: float
    eigengap: float
    modularity: float
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
        precomputed = precompute_views(data, scales_of_views, recorder, exact_samples=exact)
        precomputed.reference_graphs.handles(recorder, precomputed.names)
        keys, handles = list(recorder.handles), list(recorder.handles.values())
        fits = [
            executor.submit(_fit, data, parameters, keys, handles, key=f"sweep_fit/{index}")
            for index, parameters in enumerate(settings)
        ]
        for fit in fits:
            (result,) = executor.gather([fit])
            executor.release([fit])
            yield result
        executor.release(handles)


class _RecordingExecutor:
    """Executor that records the tasks submitted to another one, and releases none of them.

    Parameters
    ----------
    executor : Executor
        Runs the tasks; the caller enters it.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.handles: dict[str, Handle] = {}

    @property
    def description(self) -> str:
        return self._executor.description

    @property
    def n_workers(self) -> int:
        return self._executor.n_workers

    @property
    def memory_limit_bytes(self) -> int | None:
        return self._executor.memory_limit_bytes

    @property
    def shares_memory(self) -> bool:
        return self._executor.shares_memory

    def submit(self, function: Callable[..., Any], /, *args: Any, key: str) -> Handle:
        handle = self._executor.submit(function, *args, key=key)
        self.handles[key] = handle
        return handle

    def gather(self, handles: Sequence[Handle]) -> list[Any]:
        return self._executor.gather(handles)

    def release(self, handles: Sequence[Handle]) -> None:
        """Release nothing: the fits need the results."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return


class _PrecomputedExecutor(SerialExecutor):
    """Serial executor that already has the results of some tasks."""

    def __init__(self, results: dict[str, Any]) -> None:
        super().__init__()
        self._results = results

    def submit(self, function: Callable[..., Any], /, *args: Any, key: str) -> Handle:
        if key in self._results:
            return super().submit(_identity, self._results[key], key=key)
        return super().submit(function, *args, key=key)


def _identity(value: Any) -> Any:
    return value


def _fit(
    data: MultiViewData, parameters: Parameters, keys: list[str], results: list[Any]
) -> SweepFit:
    """Fit with one setting, given the shared results, as one task."""
    started = time.perf_counter()
    executor = _PrecomputedExecutor(dict(zip(keys, results, strict=True)))
    solution = run_fit(data, parameters, executor)
    reference_graphs = [value for value in results if isinstance(value, ReferenceGraphs)]
    return SweepFit(
        parameters=parameters,
        labels=solution.labels,
        status=solution.status.name,
        n_connected_components=solution.n_connected_components,
        cross_view_information=solution.score,
        eigengap=_eigengap(solution, parameters),
        modularity=_mean_modularity(reference_graphs, solution.labels),
        seconds=time.perf_counter() - started,
    )


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

    Parameters
    ----------
    settings, output, **options
        As for `mscam_dask.benchmark.experiment.Experiment.open`.

    Returns
    -------
    ExperimentRecord
        As in experiment.json.

    Raises
    ------
    MscamError
        If settings or data are invalid, or the cluster is lost; a trial that fails is part of the
        result instead. `TemporaryFailure` after SIGTERM.
    KeyboardInterrupt
        After Ctrl-C.
    """
    with Experiment.open(settings, output, **options) as experiment:
        _Sweep(settings, experiment).run()
        return experiment.record


class _Sweep:
    """Steps of one sweep."""

    def __init__(self, settings: ExperimentSettings, experiment: Experiment) -> None:
        assert isinstance(settings.table, SweepTable)
        self._settings = settings
        self._table = settings.table
        self._experiment = experiment
        self._entries: dict[str, TrialEntry] = {}

    def run(self) -> None:
        """Open and check the data, run the missing trials, write the heat maps."""
        table = self._table
        self._experiment.notify("reading the data")
        datasets = open_datasets(
            self._settings.datasets, self._experiment.directory, need_labels=False
        )
        for dataset in datasets.values():
            data = dataset.read()
            first = sweep_parameters(table, dataset, table.alpha[0], table.graph_weight[0])
            validate(data, n_clusters=first.n_clusters, n_neighbors=first.n_neighbors)
        self._experiment.update(
            seeds=(table.seed,),
            varies="Every trial is run once.",
            datasets=tuple(dataset.entry for dataset in datasets.values()),
            methods=(MethodEntry.from_method(METHODS[table.method]),),
        )
        with contextlib.ExitStack() as stack:
            cluster: OpenCluster | None = None
            for dataset in datasets.values():
                missing = self._load_cached(dataset)
                if missing and cluster is None:
                    self._experiment.begin()
                    self._experiment.notify("starting workers")
                    cluster = stack.enter_context(open_cluster(self._settings.execution))
                    check_workers(cluster, [opened.location for opened in datasets.values()])
                    self._experiment.update(executor=cluster.description)
                if missing and cluster is not None:
                    self._fit(dataset, missing, _executor(cluster))
        self._experiment.finish(
            heat_maps=tuple(self._heat_map(dataset) for dataset in datasets.values()),
            trials=tuple(self._entries.values()),
        )

    def _load_cached(self, dataset: Dataset) -> list[tuple[float, float]]:
        """Load the trials that have a result, and return the points of the others."""
        trials = sweep_trials(self._table, dataset)
        cached = self._experiment.directory.cached_of(list(trials.values()), _NO_LIMITS)
        self._entries.update(cached)
        self._experiment.update(n_reused=self._experiment.record.n_reused + len(cached))
        return [point for point, trial in trials.items() if trial.key not in cached]

    def _fit(
        self, dataset: Dataset, points: Sequence[tuple[float, float]], executor: Executor
    ) -> None:
        data = dataset.read()
        settings = [sweep_parameters(self._table, dataset, *point) for point in points]
        check_memory(data, settings[0], executor, whole_fits=True)
        self._experiment.notify(f"{dataset.entry.name}: {len(points)} fits to run")
        trials = sweep_trials(self._table, dataset)
        fits = sweep_fits(data, settings, executor)
        for count, (point, fit) in enumerate(zip(points, fits, strict=True), start=1):
            entry = trial_entry(trials[point], _scored(fit, data.labels), _NO_LIMITS)
            self._experiment.directory.write_trial(entry)
            self._entries[entry.key] = entry
            self._experiment.notify(entry=entry, done=count, total=len(points))

    def _heat_map(self, dataset: Dataset) -> HeatMapEntry:
        table = self._table
        trials = sweep_trials(table, dataset)
        entries = {point: self._entries[trial.key] for point, trial in trials.items()}

        def table_of(name: str) -> tuple[tuple[float | None, ...], ...]:
            return tuple(
                tuple(entries[alpha, weight].scores.get(name) for weight in table.graph_weight)
                for alpha in table.alpha
            )

        label_free = {name: table_of(name) for name in (*LABEL_FREE, "n_connected_components")}
        has_labels = dataset.entry.n_classes > 0
        return HeatMapEntry(
            dataset=dataset.entry.name,
            method=table.method,
            alpha=tuple(table.alpha),
            graph_weight=tuple(table.graph_weight),
            with_labels={name: table_of(name) for name in SCORES} if has_labels else {},
            label_free=label_free,
            best={name: point for name in LABEL_FREE if (point := _argmax(label_free[name]))},
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
        with_labels = score_partition(labels, fit.labels)
        scores |= {name: float(getattr(with_labels, name)) for name in SCORES}
    return TrialFit(
        outcome="ok",
        scores=scores,
        n_found=len(np.unique(fit.labels)),
        seconds=fit.seconds,
    )


def _argmax(values: Sequence[Sequence[float | None]]) -> tuple[int, int] | None:
    """Position of the largest value, the first of a tie; None if every value is null."""
    points = [
        (value, (row, column))
        for row, row_values in enumerate(values)
        for column, value in enumerate(row_values)
        if value is not None
    ]
    return max(points, key=lambda item: item[0])[1] if points else None
