"""What a run would do, worked out without doing it: bytes, memory of a worker, time."""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.engine.memory import plan_memory
from mscam_dask.estimators import MSCAM, MSCAN
from mscam_dask.pipeline.config.settings import ExecutionTable, Settings
from mscam_dask.pipeline.config.validate import check_execution
from mscam_dask.pipeline.run.cluster import smallest_memory_bytes
from mscam_dask.pipeline.run.fingerprints import clustering_fingerprint, data_fingerprint
from mscam_dask.pipeline.run.open_data import open_again, open_data
from mscam_dask.pipeline.run.previous_runs import (
    PreviousRun,
    previous_runs,
    reusable_clustering,
    reusable_store,
)
from mscam_dask.pipeline.run.run_directory import RunDirectory
from mscam_dask.pipeline.run.run_or_resume import RunTarget, resolve_target
from mscam_dask.pipeline.run.steps import validate_data
from mscam_dask.pipeline.run.warm_start import WarmStart, warm_start_from
from mscam_dask.types.parameters import Parameters

__all__ = [
    "RunPlan",
    "Work",
    "limit_of",
    "plan_run",
    "work_of",
    "workers_of",
]

# Of fits of eleven data sets of 60 to 70 000 samples, whose times the model meets within a factor of three.
_SHARE_OF_PEAK = 0.25  # of a matrix product's speed that a fit reaches, all its steps together
_SEARCHES = 10  # for neighbours, by each view: comparing preparations, the graph, learned distances
_OF_CUTS = 1.6e6  # operations a sample and cluster: cutting graphs and judging the cuts
_TASK_SECONDS = 0.003


@dataclass(frozen=True)
class Work:
    """Floating-point operations of a fit, as a rough model: set-up, each setting, each iteration."""

    setup: float
    setting: float
    iteration: float

    def total(self, n_settings: int, n_iterations: int) -> float:
        """All of a fit."""
        return self.setup + n_settings * self.setting + n_iterations * self.iteration


@dataclass(frozen=True)
class RunPlan:
    """What a run would do.

    Attributes
    ----------
    place
        Run directory and whether there is anything to do.
    same_as
        Earlier run whose clusters would be taken; None when there is a fit.
    start
        Earlier run that the fit would start from; None for a start afresh.
    data
        Samples and views.
    settings
        What the fit would try.
    selected
        Names of the other things that the fit would select without labels.
    read_bytes, held_bytes, worker_bytes
        Of the views as float64; of results on all workers together; of one worker at its peak.
    limit_bytes
        Memory of a worker; None where the cluster decides.
    n_workers
    seconds
        Rough time of the step cluster.
    basis
        What the time was worked out from.
    """

    place: RunTarget
    same_as: PreviousRun | None
    start: WarmStart | None
    data: MultiViewData
    settings: tuple[Parameters, ...]
    selected: tuple[str, ...]
    read_bytes: int
    held_bytes: int
    worker_bytes: int
    limit_bytes: int | None
    n_workers: int
    seconds: float
    basis: str


def plan_run(settings: Settings, output: Path | None = None, *, insecure: bool = False) -> RunPlan:
    """Plan a run; nothing is started or left behind, sources are read to know their shapes.

    Raises
    ------
    MscamError
        What the run itself would say of its settings, sources or data.
    """
    check_execution(settings.execution, insecure=insecure)
    place = resolve_target(settings, output)
    directory = RunDirectory(place.directory)
    runs = previous_runs(place.settings, directory)
    with _data(place.settings, directory, runs) as data:
        validate_data(data, settings.cluster)
        same = reusable_clustering(runs, clustering_fingerprint(settings, data.digest()))
        start = warm_start_from(runs, settings, data)
        estimator = _estimator(settings, start)
        tried = estimator.candidate_settings(data)
        view_graphs = estimator.chooses_graph
        plans = [plan_memory(data, one, view_graphs=view_graphs) for one in tried]
        n_workers = workers_of(settings.execution)
        largest = max(plans, key=lambda plan: plan.worker_bytes(n_workers))
        seconds, basis = _time(data, tried, n_workers, runs, is_warm=bool(start and start.is_warm))
        return RunPlan(
            place=place,
            same_as=None if same is None else same[0],
            start=start,
            data=data,
            settings=tried,
            selected=_selected(estimator, data),
            read_bytes=data.nbytes,
            held_bytes=largest.held_bytes,
            worker_bytes=largest.worker_bytes(n_workers),
            limit_bytes=limit_of(settings.execution, n_workers),
            n_workers=n_workers,
            seconds=seconds,
            basis=basis,
        )


@contextlib.contextmanager
def _data(
    settings: Settings, directory: RunDirectory, runs: list[PreviousRun]
) -> Iterator[MultiViewData]:
    """The data of a run: where they are, or of a run with the same sources, or read aside."""
    earlier = reusable_store(runs, data_fingerprint(settings.data))
    if earlier is not None:
        yield open_again(settings.data, earlier.directory.data, earlier.data).data
    elif directory.data.is_dir():
        record = directory.read_record()
        assert record.data is not None
        yield open_again(settings.data, directory.data, record.data).data
    else:
        with tempfile.TemporaryDirectory(prefix="mscam-dry-run-") as aside:
            yield open_data(settings.data, Path(aside) / "data.zarr").data


def _estimator(settings: Settings, start: WarmStart | None) -> MSCAM | MSCAN:
    arguments: dict[str, Any] = dict(settings.cluster.parameters)
    if start is not None:
        arguments |= start.arguments
    return (MSCAM if settings.cluster.method == "mscam" else MSCAN)(**arguments)


def _selected(estimator: MSCAM | MSCAN, data: MultiViewData) -> tuple[str, ...]:
    """Names of what the fit selects for all views together or view by view, in the order it does."""
    if not estimator.chooses_graph or estimator.solver == "reference" or len(data.views) < 2:
        return ()
    open_parameters = (name for name in ("scale", "alpha") if getattr(estimator, name) is None)
    return (*open_parameters, "the initial graph")


def workers_of(execution: ExecutionTable) -> int:
    """Return how many worker processes would run the tasks, as far as this process can know."""
    if execution.in_process:
        return 1
    if execution.workers is not None:
        return execution.workers
    from dask.system import CPU_COUNT

    return int(CPU_COUNT)


def limit_of(execution: ExecutionTable, n_workers: int) -> int | None:
    """Return the memory of each worker in bytes; None where the cluster decides."""
    if execution.scheduler is not None or execution.in_process:
        return None
    if execution.memory_limit is None:
        return smallest_memory_bytes() // n_workers
    from dask.utils import parse_bytes

    return int(parse_bytes(execution.memory_limit))


def work_of(data: MultiViewData, parameters: Parameters) -> Work:
    """Model of the work: factoring, neighbour searches, spectra, cuts and their judge, sub-solves."""
    n, c, k = data.n_samples, parameters.n_clusters, parameters.n_neighbors
    ranks = [min(view.shape) for view in data.views]
    searched = math.sqrt(n) if parameters.is_large(n) else n  # a few cells of the others, or all
    setup = sum(
        2.0 * n * view.shape[1] * rank + 10.0 * rank**3 + _SEARCHES * 2.0 * n * searched * rank
        for view, rank in zip(data.views, ranks, strict=True)
    )
    spectrum = 300 * 2.0 * n * 2 * k * 2 * c + 20 * 2.0 * n * (2 * c) ** 2
    solve = sum(20 * 2.0 * n * rank * 2 * c + 100.0 * (rank + 2 * c) ** 2 * c for rank in ranks)
    return Work(setup, spectrum + _OF_CUTS * n * c, spectrum / 3 + solve)


def _time(
    data: MultiViewData,
    tried: tuple[Parameters, ...],
    n_workers: int,
    runs: list[PreviousRun],
    *,
    is_warm: bool,
) -> tuple[float, str]:
    """Seconds of the fit, from the last fit's where there is one."""
    work = work_of(data, tried[0])
    iterations = min(2 if is_warm else tried[0].patience + 1, tried[0].max_iter)
    for run in runs:
        fit, seconds = run.record.fit, run.record.seconds.get("cluster", 0.0)
        was_taken_over = run.record.started_from is None
        if fit is None or was_taken_over or seconds <= 0 or fit.n_outer_iterations == 0:
            continue
        n_before = len(fit.candidate_settings)  # those that the fit compared on its way among them
        n_now = len(tried) if is_warm else max(len(tried), n_before)
        share = work.total(n_now, iterations) / work.total(n_before, fit.n_outer_iterations)
        grown = (data.n_samples / run.data.n_samples) ** 2
        return seconds * grown * share, f"the time of {run.name}"
    at_once = min(n_workers, len(data.views))
    speed = _SHARE_OF_PEAK * _measured_speed()
    tasks = len(data.views) * (20 * len(tried) + 4 * iterations)
    total = work.total(len(tried), iterations) / speed + _TASK_SECONDS * tasks
    return total / at_once, "a matrix product timed just now; a third of it to three times as much"


def _measured_speed() -> float:
    """Floating-point operations a second of a matrix product, best of three."""
    size = 384
    matrix = np.ones((size, size))
    best = math.inf
    for _ in range(3):
        started = time.perf_counter()
        matrix @ matrix
        best = min(best, time.perf_counter() - started)
    return float(2.0 * size**3 / max(best, 1e-6))
