"""Dry run: estimated bytes, memory of a worker and time of a run."""

from __future__ import annotations

import math
import tempfile
import timeit
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from dask.utils import parse_bytes

from mscam_dask.data.store.read import open_store
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.engine.memory import plan_memory
from mscam_dask.pipeline.cluster import (
    smallest_memory_bytes,
    spill_threshold_bytes,
    worker_counts,
)
from mscam_dask.pipeline.open_data import clustering_fingerprint, open_data
from mscam_dask.pipeline.previous_runs import (
    WarmStart,
    reusable_clustering,
    reusable_store,
    warm_start_from,
)
from mscam_dask.pipeline.read_config import type_of
from mscam_dask.pipeline.resume import RunTarget, resolve_target
from mscam_dask.pipeline.run import validate_data
from mscam_dask.pipeline.run_directory import RunDirectory
from mscam_dask.pipeline.security import check_execution
from mscam_dask.pipeline.settings import ExecutionTable, Settings
from mscam_dask.pipeline.stored_run import StoredRun, last_started, siblings_of
from mscam_dask.types.parameters import Parameters

# Fitted to eleven data sets of 60 to 70 000 samples; the model is within a factor of three of their times.
_SHARE_OF_PEAK = 0.25  # speed of a fit relative to a matrix product
_N_SEARCHES = 10  # neighbor searches of a view: selection of settings, graph, refinement
_CUT_OPERATIONS = 1.6e6  # of each sample and cluster: spectral cuts and their scores
_TASK_SECONDS = 0.003
_SIDE = 384  # of the matrices whose product is timed


@dataclass(frozen=True)
class RunPlan:
    """Plan of a run."""

    place: RunTarget
    same_as: StoredRun | None  # previous run whose clusters would be reused; None for a fit
    start: WarmStart | None  # from a previous run; None for a cold start without one
    data: MultiViewData
    settings: tuple[Parameters, ...]  # candidates of the fit
    selected: tuple[str, ...]  # names of what the fit would select without labels
    read_bytes: int  # of the views as float64
    held_bytes: int  # of results on all workers together
    worker_bytes: int  # of a worker at peak
    limit_bytes: int | None  # of a worker; None where the cluster decides
    spills: bool  # whether a worker with too little memory spills; otherwise the fit is refused
    n_workers: int
    seconds: float  # estimated, of the step cluster
    basis: str  # of that estimate


def plan_run(settings: Settings, output: Path | None = None, *, insecure: bool = False) -> RunPlan:
    """Plan a run. Nothing is started or left behind; sources are read for their shapes."""
    check_execution(settings.execution, insecure=insecure)
    place = resolve_target(settings, output)
    directory = RunDirectory(place.directory)
    runs = siblings_of(place.settings, directory).finished
    own = last_started(directory, place.run_fingerprint)
    earlier = reusable_store(
        runs if own is None or own.record.data is None else [own, *runs], place.data_fingerprint
    )
    with tempfile.TemporaryDirectory(prefix="mscam-dry-run-") as aside:
        if earlier is None:
            data = open_data(place.settings.data, Path(aside) / "data.zarr").data
        else:
            data = open_store(earlier.directory.data)
        validate_data(data, settings.cluster)
        same = reusable_clustering(runs, clustering_fingerprint(settings, data.digest()))
        start = warm_start_from(runs, settings, data)
        estimator = settings.cluster.estimator(**(start.arguments if start else {}))
        selected: tuple[str, ...] = ()
        tried = estimator.candidate_settings(data)
        view_graphs = tried[0].constants.auto_settings
        if view_graphs and len(data.views) > 1:
            selects = [name for name in ("scale", "alpha") if getattr(estimator, name) is None]
            selected = (*selects, "the initial graph")
        plans = [plan_memory(data, one, view_graphs=view_graphs) for one in tried]
        workers = worker_counts(settings.execution)[1]
        largest = max(plans, key=lambda plan: plan.worker_bytes(workers))
        limit = limit_of(settings.execution, workers)
        is_large = all(one.is_large(data.n_samples) for one in tried)
        seconds, basis = _time(data, tried, workers, runs, is_warm=bool(start and start.is_warm))
        return RunPlan(
            place=place,
            same_as=None if same is None else same[0],
            start=start,
            data=data,
            settings=tried,
            selected=selected,
            read_bytes=data.nbytes,
            held_bytes=largest.held_bytes,
            worker_bytes=largest.worker_bytes(workers),
            limit_bytes=limit,
            spills=is_large
            and limit is not None
            and largest.may_spill(limit, spill_threshold_bytes(limit)),
            n_workers=workers,
            seconds=seconds,
            basis=basis,
        )


def limit_of(execution: ExecutionTable, workers: int) -> int | None:
    """Return the memory of each worker in bytes; None where the cluster decides."""
    if execution.in_process or (execution.memory_limit is None and type_of(execution) != "local"):
        return None
    if execution.memory_limit is None:
        return smallest_memory_bytes() // workers
    return parse_bytes(execution.memory_limit)


def operations(
    data: MultiViewData, parameters: Parameters, n_settings: int, n_iterations: int
) -> float:
    """Estimate the floating-point operations of a fit: SVDs, neighbor searches, spectra, cuts, scores, ADMM."""
    n, c, k = data.n_samples, parameters.n_clusters, parameters.n_neighbors
    ranks = [min(view.shape) for view in data.views]
    searched = (
        math.sqrt(n) if parameters.is_large(n) else n
    )  # searched samples: those of a few index cells, or all
    setup = sum(
        2.0 * n * view.shape[1] * rank + 10.0 * rank**3 + _N_SEARCHES * 2.0 * n * searched * rank
        for view, rank in zip(data.views, ranks, strict=True)
    )
    spectrum = 300 * 2.0 * n * 2 * k * 2 * c + 20 * 2.0 * n * (2 * c) ** 2
    solve = sum(20 * 2.0 * n * rank * 2 * c + 100.0 * (rank + 2 * c) ** 2 * c for rank in ranks)
    setting = spectrum + _CUT_OPERATIONS * n * c
    return setup + n_settings * setting + n_iterations * (spectrum / 3 + solve)


def _time(
    data: MultiViewData,
    tried: tuple[Parameters, ...],
    workers: int,
    runs: list[StoredRun],
    *,
    is_warm: bool,
) -> tuple[float, str]:
    """Estimate the seconds of the fit, from those of the last fit where there is one."""
    iterations = 2 if is_warm else tried[0].constants.patience + 1
    iterations = min(iterations, tried[0].max_iter or iterations)
    for run in runs:
        fit, seconds = run.record.fit, run.record.seconds.get("cluster", 0.0)
        was_reused = run.record.started_from is None
        if fit is None or was_reused or seconds <= 0 or fit.n_outer_iterations == 0:
            continue
        n_before = len(fit.candidate_settings)
        n_now = len(tried) if is_warm else max(len(tried), n_before)
        share = operations(data, tried[0], n_now, iterations) / operations(
            data, tried[0], n_before, fit.n_outer_iterations
        )
        grown = (data.n_samples / run.data.n_samples) ** 2
        return seconds * grown * share, f"the time of {run.name}"
    at_once = min(workers, len(data.views))
    matrix = np.ones((_SIDE, _SIDE))
    product_s = min(timeit.repeat(lambda: matrix @ matrix, number=1, repeat=3))
    speed = _SHARE_OF_PEAK * 2.0 * _SIDE**3 / max(product_s, 1e-6)
    tasks = len(data.views) * (20 * len(tried) + 4 * iterations)
    total = operations(data, tried[0], len(tried), iterations) / speed + _TASK_SECONDS * tasks
    return (
        total / at_once,
        "rough estimate from this machine's matrix-multiply speed; within a factor of 3",
    )
