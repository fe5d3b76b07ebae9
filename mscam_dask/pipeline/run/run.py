"""One run of a pipeline in a run directory: ingest, validate, start, cluster, evaluate, write, report."""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pandas as pd

from mscam_dask.data.results import write_result
from mscam_dask.data.store.atomic_replace import new_partial
from mscam_dask.data.store.filesystem import failures_are_typed
from mscam_dask.data.store.object_store import Location, as_location
from mscam_dask.data.views.conversion import labeled_samples
from mscam_dask.errors import (
    ConfigurationError,
    MscamError,
    TemporaryFailure,
    system_limit,
    without_credentials,
)
from mscam_dask.estimators._stored import stored_model
from mscam_dask.metrics import score_partition
from mscam_dask.monitor.events import Event, FitResumed, JsonLines, StepFinished, StepStarted
from mscam_dask.monitor.messages import plural
from mscam_dask.monitor.run_record import (
    ErrorRecord,
    FitRecord,
    ResumeEntry,
    RunRecord,
    SourceRecord,
    blas_libraries,
    software_versions,
)
from mscam_dask.pipeline.config.settings import Settings, settings_text
from mscam_dask.pipeline.run import steps
from mscam_dask.pipeline.run.cluster import (
    OpenCluster,
    check_workers,
    observers_of,
    open_cluster,
    page_of,
)
from mscam_dask.pipeline.run.graceful_shutdown import GracefulShutdown, defer_signals
from mscam_dask.pipeline.run.list_runs import remove_old_runs
from mscam_dask.pipeline.run.open_data import (
    NAME_DIGITS,
    OpenData,
    changed_data,
    changes_are_temporary,
    clustering_fingerprint,
    column_of,
    data_fingerprint,
    fit_fingerprint,
    open_data,
    retry_if_replaced,
    run_fingerprint,
    source_records,
    stamps_of,
)
from mscam_dask.pipeline.run.previous_runs import (
    ClusteringOutput,
    WarmStart,
    drift_of,
    link_tree,
    named_as_before,
    reusable_clustering,
    reusable_store,
    warm_start_from,
)
from mscam_dask.pipeline.run.report import (
    metrics_text,
    read_success,
    write_report,
    write_shared,
)
from mscam_dask.pipeline.run.run_directory import RunDirectory, resolved
from mscam_dask.pipeline.run.sample_tables import table_bytes
from mscam_dask.pipeline.run.security import check_execution
from mscam_dask.pipeline.run.steps import RunCheckpoints, check_reach
from mscam_dask.pipeline.run.stored_run import StoredRun, siblings_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mscam_dask.estimators.mscam import MSCAM


EXIT_NOT_CONVERGED = 5
"""Exit code of a run whose results are written, but whose graph lacks the requested components."""

EXIT_DRIFT = 6
"""Exit code of a run whose results are written, but whose drift is above [incremental] max_drift."""

_SCORES = (
    "accuracy",
    "normalized_mutual_information",
    "adjusted_rand_index",
    "purity",
    "pairwise_f_score",
)

Observer = Callable[[Event], None]
"""Function that gets each event of a run, in order."""


def now() -> str:
    """Return the time (UTC) in the format of records."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class RunOutcome(StoredRun):
    """A run that ended with results."""

    resumed: bool = True  # False when the run had finished before


def run_pipeline(
    settings: Settings,
    output: str | Path,
    *,
    fingerprint: str | None = None,
    overwrite: bool = False,
    insecure: bool = False,
    observers: Sequence[Observer] = (),
) -> RunOutcome:
    """Run a pipeline in a run directory that holds no run, or in place of the one there with `overwrite`.

    A finished run that is overwritten keeps its files until the new one has finished.
    """
    check_execution(settings.execution, insecure=insecure)
    root = resolved(output)
    for source in settings.data.sources:
        if Path(source).is_absolute() and Path(source).resolve().is_relative_to(root):
            raise ConfigurationError(
                f"The source {source} lies inside the run directory {root}, whose files a run replaces. Choose "
                "another output directory."
            )
    seed = settings.cluster.parameters.get("random_state")
    record = RunRecord(
        state="running",
        pipeline=settings.name,
        method=settings.cluster.method,
        seed=seed if isinstance(seed, int) else None,
        started=now(),
        versions=software_versions(),
        blas=blas_libraries(),
        settings=msgspec.to_builtins(settings),
        run_fingerprint=fingerprint,
    )
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(RunDirectory.lock(output))
        if overwrite and directory.holds_results():
            record = msgspec.structs.replace(record, replaces=directory.path.name)
            directory = stack.enter_context(directory.lock_next())
        directory.claim(record, overwrite=overwrite)
        directory.write(directory.pipeline, settings_text(settings).encode())
        return Run(settings, directory, record, observers, fresh=overwrite).execute()


class Run:
    """Steps of one run in a locked directory, and the record that grows with them."""

    def __init__(
        self,
        settings: Settings,
        directory: RunDirectory,
        record: RunRecord,
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
        self._fresh = fresh
        self._started = time.perf_counter()
        self._started_at = now()
        self._metrics: Path | None = None
        if settings.output.metrics is not None:
            self._metrics = Path(settings.output.metrics) / f"mscam-{settings.name}.prom"
        self._success = None if self._metrics is None else read_success(self._metrics)
        self._siblings = siblings_of(settings, directory)
        self._checkpoints: RunCheckpoints | None = None
        self._shutdown = GracefulShutdown(self.on_deadline)

    def execute(self) -> RunOutcome:
        """Run every remaining step; the record is written after each."""
        if self.record.state == "finished":
            return self._finished_before()
        with self._events_appended(), self._shutdown:
            try:
                with changes_are_temporary(self._settings.data, lambda: self._opened):
                    opened = self._open()
                    self._validate(opened)
                    clusters = self._reuse_previous(opened)
                    if clusters is None:
                        start = self._warm_start(opened)
                        table = self._settings.data
                        batches = column_of(table, "batches", opened.data)
                        known = column_of(table, "partial_labels", opened.data)
                        checkpoints = self._open_checkpoints()
                        with self._cluster(opened) as cluster, self._step("cluster") as summary:
                            estimator, notes = steps.cluster(
                                opened.data,
                                self._settings.cluster,
                                client=cluster.client,
                                n_threads=self._settings.execution.threads,
                                observers=(
                                    *self._observers,
                                    *observers_of(cluster, self._settings.name),
                                ),
                                checkpoint_store=checkpoints,
                                start=start,
                                results_directory=new_partial(self.directory.result),
                                batches=batches,
                                partial_labels=known,
                            )
                            clusters = self._clusters(opened, start, estimator, batches)
                            summary.notes = (*notes, *steps.drift_notes(clusters.drift))
                            summary.text = steps.fit_summary(clusters.fit)
                    self._finish(opened, clusters)
                directory = self._replace()
                if self._settings.output.keep is not None:
                    self._retain(directory)
            except BaseException as error:
                self.failed(error)
                if isinstance(error, KeyboardInterrupt):
                    raise self._interrupted() from error
                raise
        return RunOutcome(directory, directory.read_record())

    @contextlib.contextmanager
    def _events_appended(self) -> Iterator[None]:
        """Append the events to events.jsonl."""
        with self.directory.append_events() as stream:
            self._observers = (*self._observers, JsonLines(stream))
            yield

    def _finished_before(self) -> RunOutcome:
        """Write the report of a finished run that was killed before its report was complete."""
        if self._settings.report.enabled and not self.directory.report.exists():
            with self._events_appended():
                self._report()
        return RunOutcome(self.directory, self.record, resumed=False)

    def _open(self) -> OpenData:
        """Return the data of a resumed run, or ingest them."""
        self._write_metrics()
        check_reach(self._settings)
        if self.record.resumed:
            self._report_resume(self._opened)
        return self._opened or self._ingest()

    def _report(self) -> None:
        again = f" Try again with mscam-dask report {self.directory.path}."
        with self._last_step("report", "not written", "not their report", again) as summary:
            summary.text = str(write_report(self.directory))

    def _retain(self, directory: RunDirectory) -> None:
        failed = "could not remove all old runs"
        with self._last_step("retain", failed, "old runs could not be removed") as summary:
            names = remove_old_runs(self._settings, directory)
            summary.text = f"removed {', '.join(names)}" if names else "nothing to remove"

    def _finish(self, opened: OpenData, clusters: ClusteringOutput) -> None:
        """Evaluate the clusters, write the results and the report."""
        labels = opened.data.labels
        if labels is not None and self._settings.evaluate.enabled:
            self._evaluate(labels, clusters.labels)
        self._write(opened, clusters)
        self._update(number=siblings_of(self._settings, self.directory).next_number)
        self._end("finished", self._results_code(clusters.fit))
        with contextlib.suppress(MscamError, OSError):  # the next run here removes what stays
            self.directory.remove(self.directory.checkpoints)
            if self._checkpoints is not None:
                self._checkpoints.clear()
        if self._settings.report.enabled:
            self._report()

    def _results_code(self, fit: FitRecord) -> int:
        """Return the exit code of a run whose results are written."""
        if not fit.has_requested_components:
            return EXIT_NOT_CONVERGED
        limit, drift = self._settings.incremental.max_drift, self.record.drift
        if limit is not None and drift is not None and drift.share_moved > limit:
            return EXIT_DRIFT
        return 0

    def _replace(self) -> RunDirectory:
        """Put this run in the place of the one that it replaces."""
        directory = self.directory
        if directory.replaced is None:
            return directory
        with failures_are_typed(f"The run in {directory.replaced}", "run the same command again."):
            return RunDirectory(directory.replaced).replace_with(directory)

    def failed(self, error: BaseException) -> None:
        """Record in run.json how the run ended, if that can be written."""
        if self.record.state == "finished":
            return  # only the report is incomplete
        interrupted = isinstance(error, KeyboardInterrupt)
        typed = error if isinstance(error, MscamError) else system_limit(error)
        exit_code = 1 if typed is None else typed.exit_code
        message = f"stopped by {self._signal}" if interrupted else str(error)
        message = without_credentials(message, os.environ)
        self._update(error=ErrorRecord(type=type(error).__name__, message=message))
        with contextlib.suppress(MscamError, OSError):
            self._end(
                "interrupted" if interrupted else "failed",
                self._shutdown.exit_code if interrupted else exit_code,
            )

    def on_deadline(self) -> str:
        """Record that the run was interrupted; return the message for a process that is about to end."""
        self.failed(KeyboardInterrupt())
        return f"Stopped by {self._signal}. {self._remedy}"

    def _interrupted(self) -> BaseException:
        """Return the exception to raise after a signal."""
        if self._shutdown.exit_code == TemporaryFailure.exit_code:
            return TemporaryFailure(f"Stopped by {self._signal}. {self._remedy}")
        return KeyboardInterrupt(self._remedy)

    def record_resume(self, iteration: int, damage: tuple[str, ...]) -> None:
        """Record the iteration after which a fit resumes, and damaged checkpoints."""
        if not self.record.resumed:  # started in another run directory
            assert self._checkpoints is not None
            note = f"Resuming from checkpoints of the same fit at {self._checkpoints.place}."
            entry = ResumeEntry(time=now(), state="running", warnings=(note,))
            self._update(resumed=(entry,))
            damage = (note, *damage)
        entry = msgspec.structs.replace(
            self.record.resumed[-1],
            after_iteration=iteration,
            warnings=tuple(dict.fromkeys(self.record.resumed[-1].warnings + damage)),
        )
        self._update(resumed=(*self.record.resumed[:-1], entry))
        self._emit(FitResumed(after_iteration=iteration, notes=damage))

    @property
    def _remedy(self) -> str:
        return f"mscam-dask resume {self.directory.place} continues the run."

    @property
    def _signal(self) -> str:
        return self._shutdown.signal_name or "an interrupt"

    def _end(self, state: str, exit_code: int) -> None:
        seconds = {**self.record.seconds, "total": time.perf_counter() - self._started}
        self._update(
            state=state,
            exit_code=exit_code,
            ended=now(),
            seconds=seconds,
            blas=blas_libraries(),
        )
        self.directory.write_record(self.record)
        with contextlib.suppress(MscamError, OSError):  # results are worth more
            self._write_metrics()

    def _write_metrics(self) -> None:
        """Write the metrics of the run so far."""
        text = metrics_text(self.record, started=self._started_at, success=self._success)
        self.directory.write(self.directory.metrics, text.encode())
        if self._metrics is not None:
            write_shared(self._metrics, text)

    def _update(self, **changes: Any) -> None:
        self.record = msgspec.structs.replace(self.record, **changes)

    def _emit(self, event: Event) -> None:
        for observer in self._observers:
            observer(event)

    @contextlib.contextmanager
    def _step(self, name: str, *, is_recorded: bool = True) -> Iterator[steps.StepSummary]:
        """Emit the events of a step, and write the record when it has ended."""
        self._emit(StepStarted(step=name))
        started, summary = time.perf_counter(), steps.StepSummary()
        yield summary
        seconds = time.perf_counter() - started
        if is_recorded:
            self._update(seconds={**self.record.seconds, name: seconds})
            self.directory.write_record(self.record)
        self._emit(
            StepFinished(step=name, summary=summary.text, notes=summary.notes, seconds=seconds)
        )

    @contextlib.contextmanager
    def _last_step(
        self, name: str, failed: str, but: str, remedy: str = ""
    ) -> Iterator[steps.StepSummary]:
        """Run a step after the results, which are complete whether or not it works."""
        with self._step(name, is_recorded=False) as summary:
            try:
                yield summary
            except (MscamError, OSError) as error:
                summary.text = failed
                summary.notes = (f"The results are complete, but {but}: {error}{remedy}",)

    def _ingest(self) -> OpenData:
        with self._step("ingest") as summary:
            opened, sources, fingerprint = self._ingested()
            self._opened = opened
            record = opened.record()
            self._update(sources=sources, data_fingerprint=fingerprint, data=record)
            views = ", ".join(f"{view.name} ({view.shape[1]})" for view in record.views)
            counted = f"{record.n_samples} samples, {plural(len(record.views), 'view')}"
            summary.text = f"{counted}: {views}"
            summary.notes = (*record.notes, *self._siblings.notes)
        return opened

    def _ingested(self) -> tuple[OpenData, tuple[SourceRecord, ...], str]:
        """Open the data, or reuse those of a previous run; with their sources and fingerprint."""
        table, place = self._settings.data, self.directory.data
        expected = self.record.run_fingerprint
        stamps, sources = stamps_of(table), source_records(table)
        fingerprint = retry_if_replaced(lambda: data_fingerprint(table))
        names = ", ".join(each.source for each in sources)
        changed = changed_data(names, is_resumed=bool(self.record.resumed))
        if expected not in (None, run_fingerprint(self._settings, fingerprint)):
            raise changed
        earlier = reusable_store(self._siblings.finished, fingerprint)
        if earlier is not None:
            link_tree(earlier.directory.data, place)
            return open_data(table, place, earlier.data), sources, fingerprint
        opened = open_data(table, place)
        is_same = (
            stamps_of(table) == stamps if opened.is_new else data_fingerprint(table) == fingerprint
        )
        if not is_same:
            raise changed
        return opened, sources, fingerprint

    def _report_resume(self, opened: OpenData | None) -> None:
        """Emit the events of a resumed run: the data it starts from, and warnings."""
        with self._step("resume") as summary:
            summary.notes = (*self.record.resumed[-1].warnings, *self._siblings.notes)
            summary.text = "from the beginning: no data were ingested yet"
            if opened is not None:
                views = plural(len(opened.data.views), "view")
                summary.text = (
                    f"{opened.data.n_samples} samples in {views}, unchanged since "
                    f"{self.record.started}"
                )

    def _validate(self, opened: OpenData) -> None:
        with self._step("validate") as summary:
            report = steps.validate_data(opened.data, self._settings.cluster)
            summary.notes = tuple(issue.message for issue in report.issues)
            warned = f", {plural(len(summary.notes), 'data warning')}" if summary.notes else ""
            summary.text = f"OK{warned}"
            self._update(data=opened.record(summary.notes))

    def _reuse_previous(self, opened: OpenData) -> ClusteringOutput | None:
        """Return the clusters of a previous run with the same views and settings, if there is one."""
        assert self.record.data is not None
        fingerprint = clustering_fingerprint(self._settings, self.record.data.digest)
        self._update(clustering_fingerprint=fingerprint)
        data, is_incremental = opened.data, self._settings.incremental.enabled
        samples = data.sample_ids or [str(index) for index in range(data.n_samples)]
        reused = reusable_clustering(
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
                summary.notes = steps.drift_notes(clusters.drift)
        return clusters

    def _warm_start(self, opened: OpenData) -> WarmStart | None:
        """Return the run that this one starts from: the same one after an interruption."""
        finished = self._siblings.finished
        runs = [run for run in finished if self.record.started_from in (None, run.name)]
        start = warm_start_from(runs, self._settings, opened.data)
        self._update(started_from="" if start is None else start.earlier.name)
        return start

    def _open_checkpoints(self) -> RunCheckpoints:
        """Return the checkpoint store of the fit."""
        assert self.record.clustering_fingerprint is not None
        place: Location = self.directory.checkpoints
        if (root := self._settings.output.checkpoints) is not None:
            fit = fit_fingerprint(self.record.clustering_fingerprint, self.record.started_from)
            place = as_location(root) / f"{self._settings.name}-{fit[:NAME_DIGITS]}"
        self._checkpoints = RunCheckpoints(place, self.record_resume, self._writing)
        if self._fresh:
            self._checkpoints.clear()
        return self._checkpoints

    @contextlib.contextmanager
    def _cluster(self, opened: OpenData) -> Iterator[OpenCluster]:
        """Start or connect to the Dask cluster of [execution]; no step for tasks in this process."""
        execution = self._settings.execution
        with contextlib.ExitStack() as stack:
            if execution.in_process:
                cluster = stack.enter_context(open_cluster(execution))
            else:
                with self._step("start") as summary:
                    cluster = stack.enter_context(open_cluster(execution))
                    check_workers(cluster, [opened.store])
                    assert cluster.client is not None
                    page, summary.notes = page_of(cluster.client)
                    summary.text = f"{cluster.description}, {page}"
            self._update(executor=cluster.description)
            yield cluster

    def _clusters(
        self,
        opened: OpenData,
        start: WarmStart | None,
        estimator: MSCAM,
        batches: NDArray[Any] | None,
    ) -> ClusteringOutput:
        """Return the clusters of a fit, named after those of the run that it started from."""
        solution = named_as_before(start, estimator.solution_)
        estimator.solution_ = solution
        fit = steps.fit_record(solution)
        if batches is not None:
            fit = msgspec.structs.replace(fit, batches=steps.batches_entry(estimator, batches))
        drift, moved = drift_of(start, solution, fit, opened.data)
        self._update(fit=fit, drift=drift)
        model = stored_model(estimator)  # while the workers are there
        write = partial(write_result, solution, model=model)
        return ClusteringOutput(solution.labels, fit, write, drift, moved)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Defer signals while a checkpoint is written, into the locked directory only."""
        self.directory.check_lock()
        with defer_signals():
            yield

    def _evaluate(self, labels_true: NDArray[np.int64], labels_pred: NDArray[np.int64]) -> None:
        with self._step("evaluate") as summary:
            has_label = labeled_samples(labels_true)
            scores = score_partition(labels_true[has_label], labels_pred[has_label])
            self._update(metrics={name: float(getattr(scores, name)) for name in _SCORES})
            summary.text = "scored against ground-truth labels"

    def _write(self, opened: OpenData, clusters: ClusteringOutput) -> None:
        directory = self.directory
        with self._step("write") as summary:
            directory.remove(directory.result)  # of a run that was killed while it wrote
            names = opened.data.sample_ids or range(opened.data.n_samples)
            content = table_bytes(pd.DataFrame({"sample": names, "cluster": clusters.labels}))
            directory.write(directory.labels, content)
            self._update(labels_sha256=hashlib.sha256(content).hexdigest())
            clusters.write(directory.result)
            tables = steps.samples_files(directory.result, opened.data)
            if clusters.moved is not None:
                tables[directory.moved.name] = clusters.moved
            for file, text in tables.items():
                directory.write(directory.path / file, text)
            digests = {file: hashlib.sha256(text).hexdigest() for file, text in tables.items()}
            self._update(files_sha256=digests)
            summary.text = str(directory.place)
