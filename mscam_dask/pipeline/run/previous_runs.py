"""Previous runs of a pipeline in the same root: reuse, warm start and drift.

Runs of a pipeline lie in one root, each named after its fingerprint. A run reuses the store or the
clusters of a previous one whole, linked where the file system can, since files of a finished run
never change; or it starts from the previous settings and clusters, sample by sample, and its
clusters are named after those that they share most samples with (`mscam_dask.engine.initialize`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import glob
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mscam_dask.data.results import StoredResult, read_model, read_result
from mscam_dask.data.store.filesystem import MAX_BYTES, read_regular
from mscam_dask.data.store.object_store import as_location
from mscam_dask.data.store.read import open_store
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ViewDigest, row_ranges
from mscam_dask.engine.initialize import UNKNOWN
from mscam_dask.errors import DataError, StoreCorruptError
from mscam_dask.metrics import matched_labels
from mscam_dask.monitor.run_record import DataRecord, DriftRecord, FitRecord, RunRecord
from mscam_dask.pipeline.config.settings import Settings
from mscam_dask.pipeline.run.run_directory import NEXT_SUFFIX, RunDirectory
from mscam_dask.pipeline.run.sample_tables import read_clusters, table_bytes
from mscam_dask.types.result import Solution, Status

_MAX_ROW_BYTES = 2**13
_CLOCK_SKEW = dt.timedelta(days=1)


@dataclass(frozen=True)
class PreviousRun:
    """A finished run."""

    directory: RunDirectory
    record: RunRecord

    @property
    def data(self) -> DataRecord:
        """Record of the clustered data, which a finished run has."""
        assert self.record.data is not None
        return self.record.data

    @property
    def name(self) -> str:
        """Name of its directory."""
        return self.directory.path.name

    def labels(self) -> tuple[list[str], NDArray[np.int64]]:
        """Return the samples and their clusters from labels.csv."""
        file = self.directory.labels
        try:
            content = self.table(file)
            names, labels = read_clusters(content)
        except (OSError, ValueError) as error:
            raise DataError(f"{file} is not a list of samples and clusters: {error}.") from error
        digest = self.record.labels_sha256
        if digest is not None and hashlib.sha256(content).hexdigest() != digest:
            raise DataError(
                f"{file} has changed since the run wrote it (another SHA-256). Resume the run, which "
                "writes it again."
            )
        return names, labels[:, 0]

    def table(self, file: Path) -> bytes:
        """Content of a table with a row for each sample."""
        return read_regular(file, max_bytes=MAX_BYTES + _MAX_ROW_BYTES * self.data.n_samples)

    def integrity_problem(self) -> str:
        """Return how its results are damaged; empty when they are intact."""
        files = (self.directory.labels, self.directory.result, self.directory.samples)
        missing = [file.name for file in files if not file.exists()]
        if missing:
            return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        try:
            for name, digest in self.record.files_sha256.items():
                file = self.directory.path / name
                if file.exists() and hashlib.sha256(self.table(file)).hexdigest() != digest:
                    return f"{file} has changed since the run wrote it (another SHA-256)"
            _, labels = self.labels()
            result = read_result(self.directory.result)
            read_model(self.directory.result)
        except DataError as error:
            return str(error).partition(". ")[0].removesuffix(".")
        if not np.array_equal(labels, result.labels):
            return f"{files[0].name} does not have the clusters of {files[1].name}"
        return ""


def previous_runs(settings: Settings, directory: RunDirectory) -> list[PreviousRun]:
    """Return finished runs of the same pipeline in the root of a run directory, the last one first.

    Directories without a readable run record are skipped. The order is that of `RunRecord.number`,
    which does not depend on the clock.
    """
    runs = [run for run in _siblings(settings, directory)[0] if run.record.state == "finished"]
    runs = [run for run in runs if run.record.data is not None]
    return sorted(
        runs, key=lambda run: (run.record.number, run.record.ended or "", run.name), reverse=True
    )


def next_number(settings: Settings, directory: RunDirectory) -> int:
    """Return the number of a run that finishes now: one more than that of any run beside it."""
    numbers = [run.record.number for run in _siblings(settings, directory)[0]]
    with contextlib.suppress(DataError):
        numbers.append(RunDirectory(directory.place).read_record().number)
    return max(numbers, default=0) + 1


def notes_on_siblings(settings: Settings, directory: RunDirectory) -> tuple[str, ...]:
    """Return a note on each run beside a run that is passed over, or has a date in the future."""
    runs, damaged = _siblings(settings, directory)
    limit = (dt.datetime.now(dt.UTC) + _CLOCK_SKEW).isoformat(timespec="seconds")
    return (
        *(f"A previous run is passed over: {error}" for error in damaged),
        *(
            f"{run.name} ended at {run.record.ended}, which is in the future: the clock was or is "
            "wrong. The order of the runs is not affected, because it follows their numbers."
            for run in runs
            if run.record.state == "finished" and (run.record.ended or "") > limit
        ),
    )


def _siblings(
    settings: Settings, directory: RunDirectory
) -> tuple[list[PreviousRun], list[StoreCorruptError]]:
    """Return runs of the same pipeline, in the root of a run directory, and the errors of damaged ones."""
    runs: list[PreviousRun] = []
    damaged: list[StoreCorruptError] = []
    if settings.output.root is None:
        return runs, damaged
    root = Path(os.path.realpath(settings.output.root))  # as the paths of run directories are
    for path in sorted(root.glob(f"{glob.escape(settings.name)}-*")):
        if path in (directory.path, directory.place) or path.name.endswith(NEXT_SUFFIX):
            continue
        sibling = RunDirectory(path)
        try:
            record = sibling.read_record()
        except StoreCorruptError as error:
            damaged.append(error)
        except (DataError, OSError):
            continue
        else:
            if record.pipeline == settings.name:
                runs.append(PreviousRun(sibling, record))
    return runs, damaged


def link_tree(source: Path, target: Path) -> None:
    """Link a tree of files that never change under a second name; copy where links are impossible."""

    def link(file: str, name: str) -> str:
        try:
            os.link(file, name)
        except OSError:
            shutil.copy2(file, name)
        return name

    shutil.copytree(source, target, copy_function=link)


@dataclass(frozen=True, eq=False)
class ClusteringOutput:
    """Output of the step cluster."""

    labels: NDArray[np.int64]
    """(n,) int64"""
    fit: FitRecord
    """For run.json."""
    write: Callable[[Path], object]
    """Writes the result store at a path."""
    drift: DriftRecord | None = None
    """Against the earlier run; None without one."""
    moved: bytes | None = None
    """moved.csv; None without an earlier run."""


def reusable_store(runs: Sequence[PreviousRun], fingerprint: str | None) -> PreviousRun | None:
    """Return a run whose own store was made from the same sources in the same way."""
    for run in runs:
        if run.record.data_fingerprint != fingerprint or as_location(run.data.store).is_absolute():
            continue
        with contextlib.suppress(DataError):  # gone, damaged, or of another version
            open_store(run.directory.data)
            return run
    return None


def reusable_clustering(
    runs: list[PreviousRun], fingerprint: str, samples: Sequence[str] | None = None
) -> tuple[PreviousRun, ClusteringOutput] | None:
    """Return the clusters of an intact run with the same views and settings, if there is one."""
    for run in runs:
        if run.record.clustering_fingerprint != fingerprint or run.record.fit is None:
            continue
        with contextlib.suppress(DataError):
            result = read_result(run.directory.result)
            drift, moved = (
                (None, None) if samples is None else _drift_since(run, result.labels, samples)
            )
            clusters = ClusteringOutput(
                labels=result.labels,
                fit=run.record.fit,
                write=partial(link_tree, run.directory.result),
                drift=drift,
                moved=moved,
            )
            return run, clusters
    return None


def _drift_since(
    run: PreviousRun, labels: NDArray[np.int64], samples: Sequence[str]
) -> tuple[DriftRecord | None, bytes | None]:
    """Return the drift of reused clusters: none unless samples have other ids."""
    fit, before = run.record.fit, run.record.drift
    assert fit is not None
    names, _ = run.labels()
    renamed = names != list(samples)
    if before is None and not renamed:
        return None, None
    if len(names) != len(labels):
        raise DataError(
            f"{run.directory.labels} does not have the clusters of {run.directory.result}."
        )
    cluster_of = dict(zip(names, labels.tolist(), strict=True))
    known = np.array([cluster_of.get(sample, -1) for sample in samples], dtype=np.int64)
    warm_runs = 0 if before is None else before.warm_runs
    drift = _drift(run, known, labels, score=fit.score, start="unchanged", warm_runs=warm_runs)
    return drift, moved_text(samples, known, labels) if renamed else None


@dataclass(frozen=True, eq=False)
class WarmStart:
    """Start from a previous run."""

    earlier: PreviousRun
    known: NDArray[np.int64]
    """(n,) int64. Previous label of each sample; -1 for new samples."""
    arguments: dict[str, Any]
    """Arguments of the estimator: previous settings. Empty for a cold start."""
    reason: str = ""
    """Reason of a cold start although there is a previous run; empty otherwise."""
    init_labels: NDArray[np.int64] | None = None
    """(n,) int64 or None. `known`, renumbered from 0. None for a cold start."""

    @property
    def is_warm(self) -> bool:
        """Whether the fit starts from the previous settings and clusters."""
        return not self.reason


def warm_start_from(
    runs: list[PreviousRun], settings: Settings, data: MultiViewData
) -> WarmStart | None:
    """Return how the last run with the same method and number of clusters starts this one."""
    if not settings.incremental.enabled:
        return None
    earlier = last_comparable(runs, settings)
    if earlier is None:
        return None
    try:
        names, labels = earlier.labels()
        result = read_result(earlier.directory.result)
    except DataError as error:
        known = np.full(data.n_samples, UNKNOWN, dtype=np.int64)
        return WarmStart(earlier, known, {}, f"the previous run cannot be read: {error}")
    known, reason = _known(data, names, labels, earlier.data)
    common = np.count_nonzero(known != UNKNOWN) / data.n_samples
    drift = earlier.record.drift
    in_a_row = 0 if drift is None else drift.warm_runs
    assert earlier.record.fit is not None
    if not reason and earlier.record.fit.status == Status.NO_STRUCTURE.name:
        reason = "the last run found no cluster structure"
    if not reason and common < settings.incremental.min_overlap:
        reason = f"only {common:.0%} of the samples were in the previous run"
    if not reason and in_a_row >= settings.incremental.max_warm_runs:
        reason = f"{in_a_row} consecutive runs started from a previous run"
    if reason:
        return WarmStart(earlier, known, {}, reason)
    arguments = _previous_arguments(earlier.record, result, settings)
    return WarmStart(earlier, known, arguments, init_labels=_numbered(known, np.unique(labels)))


def last_comparable(runs: list[PreviousRun], settings: Settings) -> PreviousRun | None:
    """Return the run that the next run with these settings starts from; `runs` has the last first."""
    if not settings.incremental.enabled:
        return None
    return next((run for run in runs if _is_comparable(run.record, settings)), None)


def _is_comparable(record: RunRecord, settings: Settings) -> bool:
    fit = record.fit
    return (
        fit is not None
        and fit.has_requested_components
        and record.method == settings.cluster.method
        and _requested_n_clusters(record) == settings.cluster.n_clusters
    )


def _requested_n_clusters(record: RunRecord) -> int | None:
    """Return the number of clusters that a run requested; None where it was selected."""
    assert record.fit is not None
    requested = ((record.settings or {}).get("cluster") or {}).get("parameters") or {}
    return None if requested.get("n_clusters") == "auto" else record.fit.n_clusters


def _known(
    data: MultiViewData, names: list[str], labels: NDArray[np.int64], then: DataRecord
) -> tuple[NDArray[np.int64], str]:
    """Return the previous labels of the samples, or a reason why there are none."""
    known = np.full(data.n_samples, UNKNOWN, dtype=np.int64)
    if tuple(view.name for view in then.views) != data.view_names:
        return known, "the views are not those of the last run"
    if data.sample_ids is not None and then.has_sample_ids:
        place = {name: index for index, name in enumerate(names)}
        for index, sample in enumerate(data.sample_ids):
            if sample in place:
                known[index] = labels[place[sample]]
        return known, ""
    if data.sample_ids is not None or then.has_sample_ids:
        return known, "only one of the two runs has sample ids"
    n_before = len(labels)
    digests = {view.name: view.digest for view in then.views}
    if n_before > data.n_samples or any(
        digest != digests[name] for name, digest in _first_rows(data, n_before)
    ):
        return known, "samples have no ids, and the first rows are not those of the last run"
    known[:n_before] = labels
    return known, ""


def _numbered(known: NDArray[np.int64], names: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return labels renumbered from 0 to c − 1, since names of clusters may have gaps."""
    return np.where(known == UNKNOWN, UNKNOWN, np.searchsorted(names, known)).astype(np.int64)


def _first_rows(data: MultiViewData, n_rows: int) -> Iterator[tuple[str, str]]:
    """Yield the name of each view and the digest of its first rows."""
    for view in data.views:
        digest = ViewDigest((n_rows, view.shape[1]))
        for start, stop in row_ranges(view):
            if start < n_rows:
                digest.update(view.read(start, min(stop, n_rows)))
        yield view.name, digest.hexdigest()


def _previous_arguments(
    record: RunRecord, result: StoredResult, settings: Settings
) -> dict[str, Any]:
    """Return the settings of a run and the graph weight to start from."""
    assert record.fit is not None
    setting, requested = record.fit.setting, settings.cluster.parameters
    arguments: dict[str, Any] = {
        "scale": setting.scale,
        "alpha": setting.alpha,
        "n_neighbors": setting.n_neighbors,
        "exclude_views": setting.exclude_views,
    }
    if setting.views is not None:
        arguments["scale"] = {name: view.scale for name, view in setting.views.items()}
        arguments["alpha"] = {name: view.alpha for name, view in setting.views.items()}
    if len(result.history["graph_weight"]):
        by_score = int(np.argmax(result.history["score"].values))
        index = -1 if result.status == Status.CONVERGED.name else by_score
        weight = float(result.history["graph_weight"].values[index])
        arguments["constants"] = {**requested["constants"], "graph_weight": weight}
    if settings.cluster.n_clusters is None:
        arguments |= {"n_clusters": record.fit.n_clusters, "max_clusters": None}
    for name in ("scale", "alpha", "n_neighbors", "exclude_views"):
        if requested.get(name) is not None:
            arguments[name] = requested[name]
    return arguments


def named_as_before(start: WarmStart | None, solution: Solution) -> Solution:
    """Return the solution with its clusters named after those of the previous run.

    A cluster keeps its name also when there are fewer now, so that names may have gaps.
    """
    if start is None or not (start.known != UNKNOWN).any():
        return solution
    n_clusters = int(max(solution.labels.max(), start.known.max())) + 1
    labels = renamed_clusters(start.known, solution.labels, n_clusters)
    first = np.unique(solution.labels, return_index=True)[1]
    assessment = solution.assessment.renamed(labels[first].tolist())
    return dataclasses.replace(solution, labels=labels, assessment=assessment)


def drift_of(
    start: WarmStart | None, solution: Solution, fit: FitRecord, data: MultiViewData
) -> tuple[DriftRecord | None, bytes | None]:
    """Return the drift since the previous run and the content of moved.csv."""
    if start is None:
        return None, None
    before = start.earlier.record.drift
    warm_runs = 0 if before is None else before.warm_runs
    names = data.sample_ids or [str(index) for index in range(data.n_samples)]
    drift = _drift(
        start.earlier,
        start.known,
        solution.labels,
        score=fit.score,
        start="warm" if start.is_warm else "cold",
        reason=start.reason,
        warm_runs=warm_runs + 1 if start.is_warm else 0,
    )
    return drift, moved_text(names, start.known, solution.labels)


def renamed_clusters(
    known: NDArray[np.int64], labels: NDArray[np.int64], n_clusters: int
) -> NDArray[np.int64]:
    """Return the same clusters, named after the previous ones they match best."""
    common = known >= 0
    names = np.full(n_clusters, -1, dtype=np.int64)
    if common.any():
        matched = matched_labels(known[common], labels[common])
        names[labels[common]] = np.where(matched < n_clusters, matched, -1)
        counts = np.bincount(names[names >= 0], minlength=n_clusters)
        assert counts.max(initial=0) <= 1, "one cluster, one name"
    free = np.setdiff1d(np.arange(n_clusters), names[names >= 0])
    names[names < 0] = free[: np.count_nonzero(names < 0)]
    return np.asarray(names[labels], dtype=np.int64)


def _drift(
    earlier: PreviousRun,
    known: NDArray[np.int64],
    labels: NDArray[np.int64],
    *,
    score: float | None,
    start: str,
    reason: str = "",
    warm_runs: int = 0,
) -> DriftRecord:
    """Return the drift since an earlier run; `labels` have their final names, as those of that run."""
    before = earlier.record.fit
    assert before is not None
    present, sizes = np.unique(labels, return_counts=True)
    sizes_after = dict(zip(present.tolist(), sizes.tolist(), strict=True))
    names = tuple(sorted(before.sizes.keys() | sizes_after.keys()))
    common = known >= 0
    n_common = int(np.count_nonzero(common))
    return DriftRecord(
        earlier=earlier.name,
        start=start,
        reason=reason,
        warm_runs=warm_runs,
        score_before=before.score,
        score_after=score,
        n_common=n_common,
        n_new=len(labels) - n_common,
        n_gone=sum(before.sizes.values()) - n_common,
        n_moved=int(np.count_nonzero(known[common] != labels[common])),
        cluster_names=names,
        sizes_before=tuple(before.sizes.get(name, 0) for name in names),
        sizes_after=tuple(sizes_after.get(name, 0) for name in names),
    )


def moved_text(names: Sequence[str], known: NDArray[np.int64], labels: NDArray[np.int64]) -> bytes:
    """Return moved.csv: the samples that changed cluster, with both labels."""
    moved = np.flatnonzero((known >= 0) & (known != labels)).tolist()
    samples = [names[index] for index in moved]
    return table_bytes(
        pd.DataFrame({"sample": samples, "before": known[moved], "after": labels[moved]})
    )
