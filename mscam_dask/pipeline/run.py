"""One run of a pipeline in a run directory: its steps, and what these check, record and note."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mscam_dask.data.checkpoints import Checkpoint, FileCheckpointStore
from mscam_dask.data.results import read_model, write_result
from mscam_dask.data.store.atomic_replace import new_partial
from mscam_dask.data.store.filesystem import failures_are_typed
from mscam_dask.data.store.object_store import Location, as_location
from mscam_dask.data.views.conversion import labeled_samples
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.validation import ValidationReport, validate
from mscam_dask.errors import (
    ConvergenceWarning,
    DataError,
    DataWarning,
    MemoryPlanWarning,
    MscamError,
    UnstableClustersWarning,
    system_limit,
    without_credentials,
)
from mscam_dask.estimators._stored import FittedModel, fitted_model
from mscam_dask.estimators.mscam import MSCAM
from mscam_dask.metrics import score_partition
from mscam_dask.monitor import run_record
from mscam_dask.monitor.events import Event, FitResumed, JsonLines, StepFinished, StepStarted
from mscam_dask.monitor.messages import plural
from mscam_dask.pipeline import previous_runs, stored_run
from mscam_dask.pipeline.cluster import (
    OpenCluster,
    check_workers,
    observers_of,
    open_cluster,
    page_of,
)
from mscam_dask.pipeline.graceful_shutdown import GracefulShutdown, defer_signals
from mscam_dask.pipeline.open_data import (
    NAME_DIGITS,
    OpenData,
    changed_data,
    clustering_fingerprint,
    clusters_of_known,
    columns_of,
    data_fingerprint,
    fit_fingerprint,
    open_data,
    retry_if_replaced,
    run_fingerprint,
    source_records,
    stamps_of,
)
from mscam_dask.pipeline.report import write_metrics, write_report
from mscam_dask.pipeline.run_directory import RunDirectory
from mscam_dask.pipeline.settings import ClusterTable, Settings

EXIT_DRIFT = 6
"""Exit code of a run whose results are written, but whose drift is above [incremental] max_drift."""

Observer = Callable[[Event], None]
"""Function that gets each event of a run, in order."""


@dataclass(frozen=True)
class RunOutcome(stored_run.StoredRun):
    """A run that ended with results."""

    resumed: bool = True  # False when the run had finished before


class Run:
    """Steps of one run in a locked directory, and the record that grows with them."""

    def __init__(
        self,
        settings: Settings,
        directory: RunDirectory,
        record: run_record.RunRecord,
        observers: Sequence[Observer],
        *,
        opened: OpenData | None = None,  # the verified data of a run that is resumed
        fresh: bool = False,  # without checkpoints of the same fit in another run directory
    ) -> None:
        self.record = record
        self._settings = settings
        self.directory = directory
        self._observers = tuple(observers)
        self._opened = opened
        self._columns: dict[str, NDArray[Any] | None] = {}  # batches and known labels
        self._fresh = fresh
        self._started = time.perf_counter()
        self._siblings = stored_run.siblings_of(settings, directory)
        self._checkpoints: _Checkpoints | None = None
        self._shutdown = GracefulShutdown(self.on_deadline)

    def execute(self) -> RunOutcome:
        """Run every remaining step; the record is written after each."""
        if self.record.state == "finished":
            if self._settings.report.enabled and not self.directory.report.exists():
                with self._events_appended():
                    self._report()
            return RunOutcome(self.directory, self.record, resumed=False)
        with self._events_appended(), self._shutdown.reported(self.failed, self._remedy):
            try:
                self._compute()
            except (DataError, OSError) as error:
                if self._opened is not None and self._opened.was_replaced(self._settings.data):
                    raise changed_data(f"The store {self._opened.store}") from error
                raise
            directory = self.directory
            if directory.replaced is not None:
                what = f"The run in {directory.replaced}"
                with failures_are_typed(what, "run the same command again."):
                    directory = RunDirectory(directory.replaced).replace_with(directory)
            if self._settings.output.keep is not None:
                with self._last_step("retain") as summary:
                    names = ", ".join(stored_run.remove_old_runs(self._settings, directory))
                    summary.text = f"removed {names}" if names else "nothing to remove"
        return RunOutcome(directory, directory.read_record())

    @contextlib.contextmanager
    def _events_appended(self) -> Iterator[None]:
        """Append the events to events.jsonl."""
        with self.directory.append_events() as stream:
            self._observers = (*self._observers, JsonLines(stream))
            yield

    def _compute(self) -> None:
        """Run the steps up to the results, and the report."""
        self._write_metrics()
        if self._settings.output.checkpoints is not None:  # refused before anything is computed
            FileCheckpointStore(as_location(self._settings.output.checkpoints) / "reach").load()
        if self.record.resumed:
            with self._step("resume") as summary:
                summary.notes = (*self.record.resumed[-1].warnings, *self._siblings.notes)
                summary.text = "from the beginning: no data were ingested yet"
                if self._opened is not None:
                    data = self._opened.data
                    counted = f"{data.n_samples} samples in {plural(len(data.views), 'view')}"
                    summary.text = f"{counted}, unchanged since {self.record.started}"
        self._opened = opened = self._opened or self._ingest()
        self._validate(opened)
        clusters = self._reuse_previous(opened) or self._fit(opened)
        labels = opened.data.labels
        if labels is not None and self._settings.evaluate.enabled:
            self._evaluate(labels, clusters.labels)
        self._write(opened, clusters)
        self._update(number=stored_run.siblings_of(self._settings, self.directory).next_number)
        drift, limit = self.record.drift, self._settings.incremental.max_drift
        is_above = limit is not None and drift is not None and drift.share_moved > limit
        self._end("finished", EXIT_DRIFT if is_above else 0)
        with contextlib.suppress(MscamError, OSError):  # the next run here removes what stays
            self.directory.remove(self.directory.checkpoints)
            if self._checkpoints is not None:
                self._checkpoints.store.clear()
        if self._settings.report.enabled:
            self._report()

    def _report(self) -> None:
        again = f" Try again with {self.directory.command('report')}."
        with self._last_step("report", again) as summary:
            summary.text = str(write_report(self.directory))

    def failed(self, error: BaseException) -> None:
        """Record in run.json how the run ended, if that can be written."""
        if self.record.state == "finished":
            return  # only the report is incomplete
        state, code, message = "failed", 1, str(error)
        if isinstance(error, KeyboardInterrupt):
            state, code = "interrupted", self._shutdown.exit_code
            message = f"stopped by {self._signal}"
        elif (typed := error if isinstance(error, MscamError) else system_limit(error)) is not None:
            code = typed.exit_code
        message = without_credentials(message, os.environ)
        self._update(error=run_record.ErrorRecord(type=type(error).__name__, message=message))
        with contextlib.suppress(MscamError, OSError):
            self._end(state, code)

    def on_deadline(self) -> str:
        """Record that the run was interrupted; return the message for a process that is about to end."""
        self.failed(KeyboardInterrupt())
        return f"Stopped by {self._signal}. {self._remedy}"

    def record_resume(self, place: Location, iteration: int, damage: tuple[str, ...]) -> None:
        """Record the iteration after which a fit resumes, and damaged checkpoints."""
        if not self.record.resumed:  # started in another run directory
            note = f"Resuming from checkpoints of the same fit at {place}."
            self._update(resumed=(run_record.ResumeEntry(time=run_record.now(), state="running"),))
            damage = (note, *damage)
        *earlier, entry = self.record.resumed
        warnings = tuple(dict.fromkeys(entry.warnings + damage))
        entry = msgspec.structs.replace(entry, after_iteration=iteration, warnings=warnings)
        self._update(resumed=(*earlier, entry))
        self._emit(FitResumed(after_iteration=iteration, notes=damage))

    @property
    def _remedy(self) -> str:
        return f"{self.directory.command('resume')} continues the run."

    @property
    def _signal(self) -> str:
        return self._shutdown.signal_name or "an interrupt"

    def _end(self, state: str, exit_code: int) -> None:
        seconds = {**self.record.seconds, "total": time.perf_counter() - self._started}
        ended, blas = run_record.now(), run_record.blas_libraries()
        self._update(state=state, exit_code=exit_code, ended=ended, seconds=seconds, blas=blas)
        self.directory.write_record(self.record)
        with contextlib.suppress(MscamError, OSError):  # results are worth more
            self._write_metrics()

    def _write_metrics(self) -> None:
        write_metrics(self.directory, self.record, self._settings.output.metrics)

    def _update(self, **changes: Any) -> None:
        self.record = msgspec.structs.replace(self.record, **changes)

    def _emit(self, event: Event) -> None:
        for observer in self._observers:
            observer(event)

    @contextlib.contextmanager
    def _step(self, name: str, *, is_recorded: bool = True) -> Iterator[StepSummary]:
        """Emit the events of a step, and write the record when it has ended."""
        self._emit(StepStarted(step=name))
        started, summary = time.perf_counter(), StepSummary()
        yield summary
        seconds = time.perf_counter() - started
        if is_recorded:
            self._update(seconds={**self.record.seconds, name: seconds})
            self.directory.write_record(self.record)
        self._emit(
            StepFinished(step=name, summary=summary.text, notes=summary.notes, seconds=seconds)
        )

    @contextlib.contextmanager
    def _last_step(self, name: str, remedy: str = "") -> Iterator[StepSummary]:
        """Run a step after the results, which are complete whether or not it works."""
        with self._step(name, is_recorded=False) as summary:
            try:
                yield summary
            except (MscamError, OSError) as error:
                summary.text = "failed"
                note = f"The results are complete, but the step {name} failed: {error}{remedy}"
                summary.notes = (note,)

    def _ingest(self) -> OpenData:
        """Open the data, or link those of a previous run; refuse others than those of the fingerprint."""
        table = self._settings.data
        with self._step("ingest") as summary:
            stamps, earlier_data = stamps_of(table), None
            earlier = previous_runs.reusable_store(
                self._siblings.finished, self.record.data_fingerprint
            )
            if earlier is not None:
                previous_runs.link_tree(earlier.directory.data, self.directory.data)
                earlier_data = earlier.data
            opened = self._opened = open_data(table, self.directory.data, earlier_data)
            sources = source_records(table)
            fingerprint = retry_if_replaced(lambda: data_fingerprint(table))
            is_written = opened.is_new and stamps_of(table) != stamps
            present = run_fingerprint(self._settings, fingerprint)
            if is_written or self.record.run_fingerprint not in (None, present):
                names = " or ".join(one.source for one in sources)
                raise changed_data(names, is_resumed=bool(self.record.resumed))
            record = opened.record()
            self._update(sources=sources, data_fingerprint=fingerprint, data=record)
            views = ", ".join(f"{view.name} ({view.shape[1]})" for view in record.views)
            counted = f"{record.n_samples} samples, {plural(len(record.views), 'view')}"
            summary.text = f"{counted}: {views}"
            summary.notes = (*record.notes, *self._siblings.notes)
        return opened

    def _validate(self, opened: OpenData) -> None:
        with self._step("validate") as summary:
            report = validate_data(opened.data, self._settings.cluster)
            self._columns, notes = columns_of(self._settings.data, opened.data)
            summary.notes = (*notes, *(issue.message for issue in report.issues))
            warned = f", {plural(len(report.issues), 'data warning')}" if report.issues else ""
            summary.text = f"OK{warned}"
            self._update(data=opened.record(summary.notes))

    def _reuse_previous(self, opened: OpenData) -> previous_runs.ClusteringOutput | None:
        """Return the clusters of a previous run with the same views and settings, if there is one."""
        assert self.record.data is not None
        digest = self.record.data.digest
        fingerprint = clustering_fingerprint(self._settings, digest, self._columns)
        self._update(clustering_fingerprint=fingerprint)
        data, is_incremental = opened.data, self._settings.incremental.enabled
        samples = data.sample_ids or [str(index) for index in range(data.n_samples)]
        reused = previous_runs.reusable_clustering(
            self._siblings.finished, fingerprint, samples if is_incremental else None
        )
        if reused is None:
            return None
        previous, clusters = reused
        with self._step("cluster") as summary:
            executor = previous.record.executor
            self._update(fit=clusters.fit, executor=executor, drift=clusters.drift)
            summary.text = f"reused from {previous.name}, which had the same views and settings"
            if clusters.moved is not None:
                summary.notes = drift_notes(clusters.drift)
        return clusters

    def _fit(self, opened: OpenData) -> previous_runs.ClusteringOutput:
        """Cluster the data, after an interruption from the same previous run and from checkpoints."""
        finished = self._siblings.finished
        runs = [run for run in finished if self.record.started_from in (None, run.name)]
        start = previous_runs.warm_start_from(runs, self._settings, opened.data)
        self._update(started_from="" if start is None else start.earlier.name)
        place: Location = self.directory.checkpoints
        if self._settings.output.checkpoints is not None:
            fit_digest = fit_fingerprint(self.record)
            name = f"{self._settings.name}-{fit_digest[:NAME_DIGITS]}"
            place = as_location(self._settings.output.checkpoints) / name
        self._checkpoints = _Checkpoints(self, place)
        if self._fresh:
            self._checkpoints.store.clear()
        with self._cluster(opened) as cluster, self._step("cluster") as summary:
            estimator = self._settings.cluster.estimator(
                **(start.arguments if start else {}),
                client=cluster.client,
                n_jobs=self._settings.execution.threads,
                callbacks=(*self._observers, *observers_of(cluster, self._settings.name)),
                checkpoint_store=self._checkpoints,
            )
            estimator._results_directory = new_partial(self.directory.result)
            with warnings_as_notes() as notes:
                estimator.fit(
                    opened.data,
                    **self._columns,
                    init_labels=start.init_labels if start else None,
                )
            solution = previous_runs.named_as_before(start, estimator.solution_)
            estimator.solution_ = solution
            batches = self._columns["batches"]
            counted = None if batches is None else batches_entry(estimator, batches)
            fit = run_record.fit_record(solution, counted)
            drift, moved = previous_runs.drift_of(start, solution, fit, opened.data)
            self._update(fit=fit, drift=drift)
            summary.notes = (*notes, *drift_notes(drift))
            summary.text = fit_summary(fit)
            model = fitted_model(estimator)  # while the workers are there
        write = partial(write_result, solution, model=model)
        return previous_runs.ClusteringOutput(solution.labels, fit, write, drift, moved)

    @contextlib.contextmanager
    def _cluster(self, opened: OpenData) -> Iterator[OpenCluster]:
        """Start or connect to the Dask cluster of [execution]; no step for tasks in this process."""
        with contextlib.ExitStack() as stack:
            cluster: OpenCluster
            if self._settings.execution.in_process:
                cluster = stack.enter_context(open_cluster(self._settings.execution))
            else:
                with self._step("start") as summary:
                    cluster = stack.enter_context(open_cluster(self._settings.execution))
                    check_workers(cluster, [opened.store])
                    assert cluster.client is not None
                    page, summary.notes = page_of(cluster.client)
                    summary.text = f"{cluster.description}, {page}"
            self._update(executor=cluster.description)
            yield cluster

    def _evaluate(self, labels_true: NDArray[np.int64], labels_pred: NDArray[np.int64]) -> None:
        with self._step("evaluate") as summary:
            has_label = labeled_samples(labels_true)
            scores = asdict(score_partition(labels_true[has_label], labels_pred[has_label]))
            shown = {name: score for name, score in scores.items() if not name.startswith("n_")}
            self._update(metrics=shown)
            summary.text = "scored against ground-truth labels"

    def _write(self, opened: OpenData, clusters: previous_runs.ClusteringOutput) -> None:
        directory = self.directory
        with self._step("write") as summary:
            directory.remove(directory.result)  # of a run that was killed while it wrote
            names = opened.data.sample_ids or range(opened.data.n_samples)
            content = stored_run.table_bytes(
                pd.DataFrame({"sample": names, "cluster": clusters.labels})
            )
            directory.write(directory.labels, content)
            clusters.write(directory.result)
            model = read_model(directory.result, FittedModel)
            tables = samples_files(clusters.labels, model, opened.data)
            if clusters.moved is not None:
                tables[directory.moved.name] = clusters.moved
            for file, text in tables.items():
                directory.write(directory.path / file, text)
            tables[directory.labels.name] = content
            digests = {file: hashlib.sha256(text).hexdigest() for file, text in tables.items()}
            self._update(files_sha256=digests)
            summary.text = str(directory.place)
            summary.notes = clusters_of_known(self._columns["partial_labels"], clusters.labels)
            assert self.record.data is not None
            self._update(data=opened.record((*self.record.data.notes, *summary.notes)))


class _Checkpoints:
    """Checkpoint store of a run, which records resumption and defers signals while one is written."""

    def __init__(self, run: Run, place: Location) -> None:
        self._run, self._place = run, place
        self.store = FileCheckpointStore(place)

    def load(self) -> Checkpoint | None:
        """Return the last saved checkpoint; None without one."""
        checkpoint = self.store.load()
        if checkpoint is not None:
            iteration = int(checkpoint.record["iteration"])
            self._run.record_resume(self._place, iteration, self.store.damage)
        return checkpoint

    def save(self, checkpoint: Checkpoint) -> None:
        """Save a checkpoint, which survives the process when this returns."""
        self._run.directory.check_lock()
        with defer_signals():
            self.store.save(checkpoint)


# steps -------------------------------------------------------------------------------------------


_NOTED = (ConvergenceWarning, DataWarning, MemoryPlanWarning, UnstableClustersWarning)


@dataclass
class StepSummary:
    """Text and notes of a step, shown when it ends."""

    text: str = ""
    notes: tuple[str, ...] = ()


def validate_data(data: MultiViewData, table: ClusterTable) -> ValidationReport:
    """Refuse data that cannot be clustered with the settings, before a cluster is started."""
    first = table.estimator().candidate_settings(data)[0]
    return validate(data, n_clusters=first.n_clusters, n_neighbors=first.n_neighbors)


def fit_summary(fit: run_record.FitRecord) -> str:
    """Return the summary of the step cluster."""
    clusters = plural(fit.n_clusters, "cluster")
    summary = (
        f"{plural(fit.n_connected_components, 'connected component')} for {clusters}, "
        f"{plural(fit.n_outer_iterations, 'outer iteration')}"
    )
    standing = None if fit.assessment is None else fit.assessment.standing_clusters
    return summary if standing is None else f"{summary}, {len(standing)} of {clusters} separated"


@contextmanager
def warnings_as_notes() -> Iterator[list[str]]:
    """Yield a list that gets our own warnings on leaving; others stay warnings."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        for category in _NOTED:
            warnings.filterwarnings("always", category=category)
        yield notes
    for each in caught:
        if issubclass(each.category, _NOTED):
            notes.append(str(each.message))
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def drift_notes(drift: run_record.DriftRecord | None) -> tuple[str, ...]:
    """Return what changed since the previous run, as notes."""
    if drift is None:
        return ()
    how = {
        "warm": f"started from {drift.earlier}",
        "cold": f"cold start ({drift.reason}); clusters are named as in {drift.earlier}",
        "unchanged": f"clusters of {drift.earlier}",
    }[drift.start]
    counts = (
        f"{drift.n_new} new samples, {drift.n_gone} removed, {drift.n_moved} of {drift.n_common}"
    )
    return (f"{how}: {counts} moved to another cluster ({drift.share_moved:.1%})",)


def batches_entry(estimator: MSCAM, batches: NDArray[Any]) -> run_record.BatchesEntry:
    """Return the entry of the batches (n,) of a fit in run.json."""
    counts, shares = estimator.cluster_batches(batches), estimator.batch_shares_
    return run_record.BatchesEntry(
        names=tuple(map(str, counts.columns)),
        counts=tuple(map(tuple, counts.to_numpy().tolist())),
        shares={view: (one.before, one.after, one.expected) for view, one in shares.items()},
        is_corrected=any(one.before != one.after for one in shares.values()),
    )


def samples_files(
    labels: NDArray[np.int64], model: FittedModel, data: MultiViewData
) -> dict[str, bytes]:
    """Return samples.csv, and samples.parquet where pyarrow is installed, of labels (n,) and their model."""
    names = np.unique(labels)
    votes = {
        view: np.where(column < 0, column, names[column])
        for view, column in zip(model.encoders, model.view_votes.T, strict=True)
    }
    table = stored_run.sample_table(data.sample_ids, labels, model.membership, names, votes)
    suffixes = stored_run.FORMATS if stored_run.has_parquet() else (".csv",)
    return {f"samples{suffix}": stored_run.table_bytes(table, suffix) for suffix in suffixes}
