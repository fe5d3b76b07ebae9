"""Previous runs of a pipeline in the same root: reuse, warm start and drift. Files of a finished run never change."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mscam_dask.data.results import read_result
from mscam_dask.data.store import filesystem
from mscam_dask.data.store.dataset import open_store
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import RowSource, ViewDigest, row_ranges
from mscam_dask.errors import DataError
from mscam_dask.metrics import matched_labels
from mscam_dask.monitor.run_record import DataRecord, DriftRecord, FitRecord
from mscam_dask.pipeline.settings import Settings
from mscam_dask.pipeline.stored_run import StoredRun, last_comparable, table_bytes
from mscam_dask.solvers.known_labels import UNKNOWN
from mscam_dask.types.result import Solution, Status


def link_tree(source: Path, target: Path) -> None:
    """Link a tree of files that never change under a second name; copy where links are impossible."""
    try:
        shutil.copytree(source, target, copy_function=os.link)
    except OSError:
        filesystem.remove(target)
        shutil.copytree(source, target)


@dataclass(frozen=True, eq=False)
class ClusteringOutput:
    """Output of the step cluster."""

    labels: NDArray[np.int64]  # (n,)
    fit: FitRecord
    write: Callable[[Path], object]  # the result store at a path
    drift: DriftRecord | None = None  # against the earlier run; None without one
    moved: bytes | None = None  # moved.csv; None without an earlier run


def reusable_store(runs: Sequence[StoredRun], fingerprint: str | None) -> StoredRun | None:
    """Return a run whose own store was made from the same sources in the same way."""
    for run in runs:
        if run.record.data_fingerprint == fingerprint and run.store == run.directory.data:
            with contextlib.suppress(DataError):  # gone, damaged, or of another version
                open_store(run.directory.data)
                return run
    return None


def reusable_clustering(
    runs: list[StoredRun], fingerprint: str, samples: Sequence[str] | None = None
) -> tuple[StoredRun, ClusteringOutput] | None:
    """Return the clusters of an intact run with the same views and settings; with `samples`, also their drift."""
    for run in runs:
        if run.record.clustering_fingerprint != fingerprint or run.integrity_problem():
            continue
        earlier, drift, moved = run.labels(), None, None
        labels = earlier.to_numpy()
        if samples is not None:
            renamed = list(earlier.index) != list(samples)
            known = earlier.reindex(samples, fill_value=UNKNOWN).to_numpy()
            if renamed:
                moved = _moved_text(samples, known, labels)
            if renamed or run.record.drift is not None:
                drift = _drift(run, known, labels, run.fit, "unchanged")
        write = partial(link_tree, run.directory.result)
        return run, ClusteringOutput(labels, run.fit, write, drift, moved)
    return None


@dataclass(frozen=True, eq=False)
class WarmStart:
    """Start from a previous run."""

    earlier: StoredRun
    known: NDArray[np.int64]  # (n,) previous label of each sample; -1 for new samples
    arguments: dict[str, Any]  # of the estimator: previous settings; empty for a cold start
    reason: str = ""  # of a cold start although there is a previous run; empty otherwise
    init_labels: NDArray[np.int64] | None = None  # (n,) `known` from 0; None for a cold start

    @property
    def is_warm(self) -> bool:
        """Whether the fit starts from the previous settings and clusters."""
        return not self.reason


def warm_start_from(
    runs: list[StoredRun], settings: Settings, data: MultiViewData
) -> WarmStart | None:
    """Return how the last run with the same method and number of clusters starts this one."""
    earlier = last_comparable(runs, settings)
    if earlier is None:
        return None
    try:
        labels = earlier.labels()
        result = read_result(earlier.directory.result)
    except DataError as error:
        known = np.full(data.n_samples, UNKNOWN, dtype=np.int64)
        return WarmStart(earlier, known, {}, f"the previous run cannot be read: {error}")
    known, reason = _known(data, labels, earlier.data)
    common = np.count_nonzero(known != UNKNOWN) / data.n_samples
    drift, table = earlier.record.drift, settings.incremental
    if not reason and earlier.fit.status == Status.NO_STRUCTURE.name:
        reason = "the last run found no cluster structure"
    if not reason and common < table.min_overlap:
        reason = f"only {common:.0%} of the samples were in the previous run"
    if not reason and drift is not None and drift.warm_runs >= table.max_warm_runs:
        reason = f"{drift.warm_runs} consecutive runs started from a previous run"
    if reason:
        return WarmStart(earlier, known, {}, reason)
    arguments = _previous_arguments(earlier.fit, result, settings)
    # from 0 to c - 1, since names of clusters may have gaps
    numbered = np.where(known == UNKNOWN, UNKNOWN, np.searchsorted(np.unique(labels), known))
    return WarmStart(earlier, known, arguments, init_labels=numbered.astype(np.int64))


def _known(
    data: MultiViewData, labels: pd.Series[int], then: DataRecord
) -> tuple[NDArray[np.int64], str]:
    """Return the previous labels of the samples, or a reason why there are none."""
    known = np.full(data.n_samples, UNKNOWN, dtype=np.int64)
    if tuple(view.name for view in then.views) != data.view_names:
        return known, "the views are not those of the last run"
    if data.sample_ids is not None and then.has_sample_ids:
        return labels.reindex(list(data.sample_ids), fill_value=UNKNOWN).to_numpy(), ""
    if data.sample_ids is not None or then.has_sample_ids:
        return known, "only one of the two runs has sample ids"
    n_before = len(labels)
    if n_before > data.n_samples or any(
        _first_rows(view, n_before) != old.digest
        for view, old in zip(data.views, then.views, strict=True)
    ):
        return known, "samples have no ids, and the first rows are not those of the last run"
    known[:n_before] = labels
    return known, ""


def _first_rows(view: RowSource, n_rows: int) -> str:
    """Return the digest of the first rows of a view."""
    digest = ViewDigest()
    for start, stop in row_ranges(view):
        if start < n_rows:
            digest.update(view.read(start, min(stop, n_rows)))
    return digest.hexdigest((n_rows, view.shape[1]))


def _previous_arguments(fit: FitRecord, result: Solution, settings: Settings) -> dict[str, Any]:
    """Return the settings of a run and the graph weight to start from."""
    setting, requested = fit.setting, settings.cluster.parameters
    arguments: dict[str, Any] = {
        name: getattr(setting, name) for name in ("scale", "alpha", "n_neighbors", "exclude_views")
    }
    if setting.views is not None:
        for name in ("scale", "alpha"):
            arguments[name] = {view: getattr(own, name) for view, own in setting.views.items()}
    given = {name: requested[name] for name in arguments if requested.get(name) is not None}
    if result.history:
        best = max(result.history, key=lambda record: record.score)
        last = result.history[-1] if result.status is Status.CONVERGED else best
        arguments["constants"] = {**requested["constants"], "graph_weight": last.graph_weight}
    if settings.cluster.n_clusters is None:
        arguments |= {"n_clusters": fit.n_clusters, "max_clusters": None}
    return arguments | given


def named_as_before(start: WarmStart | None, solution: Solution) -> Solution:
    """Return the solution with its clusters named after those of the previous run that they match best.

    A cluster keeps its name also when there are fewer now, so that names may have gaps.
    """
    if start is None or not (start.known != UNKNOWN).any():
        return solution
    labels, common = solution.labels, start.known != UNKNOWN
    n_names = int(max(labels.max(), start.known.max())) + 1
    names = np.full(n_names, UNKNOWN, dtype=np.int64)
    matched = matched_labels(start.known[common], labels[common])
    names[labels[common]] = np.where(matched < n_names, matched, UNKNOWN)
    free = np.setdiff1d(np.arange(n_names), names)
    names[names == UNKNOWN] = free[: np.count_nonzero(names == UNKNOWN)]
    first = np.unique(labels, return_index=True)[1]
    assessment = solution.assessment.renamed(names[labels[first]].tolist())
    return dataclasses.replace(solution, labels=names[labels], assessment=assessment)


def drift_of(
    start: WarmStart | None, solution: Solution, fit: FitRecord, data: MultiViewData
) -> tuple[DriftRecord | None, bytes | None]:
    """Return the drift since the previous run and the content of moved.csv."""
    if start is None:
        return None, None
    names = data.sample_ids or [str(index) for index in range(data.n_samples)]
    how = "warm" if start.is_warm else "cold"
    drift = _drift(start.earlier, start.known, solution.labels, fit, how, start.reason)
    return drift, _moved_text(names, start.known, solution.labels)


def _drift(
    earlier: StoredRun,
    known: NDArray[np.int64],
    labels: NDArray[np.int64],
    fit: FitRecord,
    start: str,
    reason: str = "",
) -> DriftRecord:
    """Return the drift since an earlier run; `labels` have their final names, as those of that run."""
    before, drift = earlier.fit, earlier.record.drift
    warm_runs = 0 if drift is None else drift.warm_runs
    names = tuple(sorted(before.sizes.keys() | fit.sizes.keys()))
    common = known != UNKNOWN
    n_common = int(np.count_nonzero(common))
    return DriftRecord(
        earlier=earlier.name,
        start=start,
        reason=reason,
        warm_runs={"warm": warm_runs + 1, "cold": 0, "unchanged": warm_runs}[start],
        n_common=n_common,
        n_new=len(labels) - n_common,
        n_gone=sum(before.sizes.values()) - n_common,
        n_moved=int(np.count_nonzero(known[common] != labels[common])),
        cluster_names=names,
        sizes_before=tuple(before.sizes.get(name, 0) for name in names),
        sizes_after=tuple(fit.sizes.get(name, 0) for name in names),
    )


def _moved_text(names: Sequence[str], known: NDArray[np.int64], labels: NDArray[np.int64]) -> bytes:
    """Return moved.csv: the samples that changed cluster, with both labels."""
    moved = np.flatnonzero((known >= 0) & (known != labels)).tolist()
    samples = [names[index] for index in moved]
    return table_bytes(
        pd.DataFrame({"sample": samples, "before": known[moved], "after": labels[moved]})
    )
