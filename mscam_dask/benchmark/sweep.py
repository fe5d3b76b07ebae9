"""Sweeps: fits of one method over a grid of α and λ, and their scores.

Everything that does not depend on α and λ (the SVD of each view and the reference graphs) is
computed once, as tasks of its own. Each fit is then one task that uses these results. A grid of
any size therefore reads and factors every view once, and its fits run in parallel.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from mscam_dask.benchmark.config import SweepTable
from mscam_dask.benchmark.results import SCORES, HeatMapEntry, TrialEntry
from mscam_dask.benchmark.trial import Trial, scores_against
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.engine.executors.base import Executor, Handle, SerialExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.engine.memory import check_memory
from mscam_dask.engine.prepare import precompute_views
from mscam_dask.engine.stage import Stage
from mscam_dask.linalg.eigensolver import bottom_eigenpairs
from mscam_dask.linalg.laplacian import laplacian
from mscam_dask.linalg.neighbor_information import modularity
from mscam_dask.solvers.partition_score import ReferenceGraphs
from mscam_dask.solvers.spectral_cut import sampled_rows
from mscam_dask.types.parameters import Constants, Model, Parameters
from mscam_dask.types.result import Solution

LABEL_FREE = ("cross_view_information", "eigengap", "modularity")
"""Label-free scores; larger is better."""

IS_SWEEP = "sweep"
"""Parameter that marks the trials of a sweep, which `MSCAM` with its selection would fit otherwise."""


class SweepFit(NamedTuple):
    """Result of one fit of a sweep.

    The scores are "cross_view_information" of the partition, in nats, by which `MSCAM` selects
    settings; "eigengap" λ_{c+1} − λ_c of the consensus graph's Laplacian, NaN when there are only c
    samples; "modularity" of the partition, averaged over the reference graphs of a view and over
    views; "n_connected_components" of the consensus graph.
    """

    labels: NDArray[np.int64]
    scores: dict[str, float]
    seconds: float  # without the shared results


def sweep_entries(
    trials: Sequence[Trial], data: MultiViewData, executor: Executor
) -> Iterator[TrialEntry]:
    """Run the trials of a sweep on one data set, and yield the result of each, in order."""
    settings = [sweep_parameters(trial) for trial in trials]
    check_memory(data, settings[0], executor, whole_fits=True)
    for trial, fit in zip(trials, sweep_fits(data, settings, executor), strict=True):
        scores: dict[str, float | None] = {
            name: value if math.isfinite(value) else None for name, value in fit.scores.items()
        }
        if data.labels is not None:
            scores |= scores_against(data.labels, fit.labels)
        n_found = len(np.unique(fit.labels))
        yield trial.entry("ok", scores=scores, n_found=n_found, seconds=fit.seconds)


def sweep_fits(
    data: MultiViewData, settings: Sequence[Parameters], executor: Executor
) -> Iterator[SweepFit]:
    """Fit `data` with each of the settings, which have the same scale, in order.

    Each result is bit-identical to a fit outside a sweep. The executor is entered here, and left
    when the iterator ends or is closed.
    """
    with executor:
        recorder = _RecordingExecutor(executor)
        stage = Stage(
            cast(Executor, recorder), "views"
        )  # as in a fit, so that the keys are the same
        scales, exact = [settings[0].scales(len(data.views))], settings[0].exact_samples
        precomputed = precompute_views(stage, data, scales, exact_samples=exact)
        precomputed.scorer.graphs(precomputed.names)
        keys, handles = list(recorder.handles), list(recorder.handles.values())
        fits = [
            executor.submit(_fit, data, parameters, keys, handles, key=f"sweep_fit/{index}")
            for index, parameters in enumerate(settings)
        ]
        for fit in fits:
            yield from executor.gather([fit])


class _RecordingExecutor:
    """Executor that records the tasks submitted to another one, whose results the fits need."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.handles: dict[str, Handle] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def submit(self, function: Callable[..., Any], /, *args: Any, key: str) -> Handle:
        self.handles[key] = self._executor.submit(function, *args, key=key)
        return self.handles[key]


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
    c = parameters.n_clusters
    if c >= len(solution.labels):
        return float("nan")
    spectrum = bottom_eigenpairs(
        laplacian(solution.consensus_graph),
        c + 1,
        relative_tolerance=1e-6,
        rng=np.random.default_rng(parameters.seed),
    )
    return float(spectrum.values[c] - spectrum.values[c - 1])


def _mean_modularity(views: Sequence[ReferenceGraphs], labels: NDArray[np.int64]) -> float:
    n_validation_samples = views[0].graphs[0].shape[0]
    if n_validation_samples < len(labels):  # large data are scored on a sample
        labels = labels[sampled_rows(len(labels), n_validation_samples)]
    by_view = [np.mean([modularity(graph, labels) for graph in view.graphs]) for view in views]
    return float(np.mean(by_view))


def sweep_parameters(trial: Trial) -> Parameters:
    """Return the parameters of the fit of a trial."""
    given = {name: value for name, value in trial.parameters.items() if name != IS_SWEEP}
    constants = Constants.paper(graph_weight=given.pop("graph_weight"))
    model = cast(Model, trial.method)
    return Parameters(n_clusters=trial.n_clusters, model=model, constants=constants, **given)


def heat_map(
    table: SweepTable, trials: Sequence[Trial], entries: Mapping[str, TrialEntry]
) -> HeatMapEntry:
    """Return the scores of the trials of one data set, of all points of the grid in order."""
    ended = [entries[trial.key].scores for trial in trials]

    def scores(name: str) -> tuple[tuple[float | None, ...], ...]:
        values, width = [each.get(name) for each in ended], len(table.graph_weight)
        return tuple(tuple(values[i : i + width]) for i in range(0, len(values), width))

    label_free = {name: scores(name) for name in (*LABEL_FREE, "n_connected_components")}
    return HeatMapEntry(
        dataset=trials[0].dataset,
        method=table.method,
        alpha=table.alpha,
        graph_weight=table.graph_weight,
        with_labels={name: scores(name) for name in SCORES if name in ended[0]},
        label_free=label_free,
        best={name: point for name in LABEL_FREE if (point := _argmax(label_free[name]))},
        fixed=table.fixed,
    )


def _argmax(values: Sequence[Sequence[float | None]]) -> tuple[int, int] | None:
    """Position of the largest value, the first of a tie; None if every value is null."""
    array = np.array(values, dtype=np.float64)
    if np.isnan(array).all():
        return None
    i, j = np.unravel_index(np.nanargmax(array), array.shape)
    return int(i), int(j)
