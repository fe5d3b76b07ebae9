"""One run of a pipeline: ingest, validate, start, cluster, evaluate, write, report."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from mscam_dask.data.results import write_result
from mscam_dask.errors import MscamError, TemporaryFailure, system_limit, without_credentials
from mscam_dask.monitor.events import Event, FitResumed, StepFinished, StepStarted
from mscam_dask.monitor.messages import plural
from mscam_dask.pipeline.config.settings import Settings
from mscam_dask.pipeline.run import steps
from mscam_dask.pipeline.run.cluster import check_workers, observers_of, open_cluster, page_of
from mscam_dask.pipeline.run.fingerprints import clustering_fingerprint
from mscam_dask.pipeline.run.graceful_shutdown import GracefulShutdown
from mscam_dask.pipeline.run.ingestion import ingest_data
from mscam_dask.pipeline.run.open_data import OpenData
from mscam_dask.pipeline.run.previous_runs import (
    ClusteringOutput,
    previous_runs,
    reusable_clustering,
)
from mscam_dask.pipeline.run.report import report_step
from mscam_dask.pipeline.run.retention import retain_step
from mscam_dask.pipeline.run.run_checkpoints import RunCheckpoints, check_reach, place_of
from mscam_dask.pipeline.run.run_directory import RunDirectory
from mscam_dask.pipeline.run.run_record import ErrorRecord, ResumeEntry, RunRecord
from mscam_dask.pipeline.run.source_changes import changes_are_temporary
from mscam_dask.pipeline.run.versions import blas_libraries
from mscam_dask.pipeline.run.warm_start import WarmStart, drift_of, named_as_before, warm_start_from

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["EXIT_NOT_CONVERGED", "Observer", "Run", "now"]

EXIT_NOT_CONVERGED = 5
"""The results are written, but the graph has not the components asked for."""

Observer = Callable[[Event], None]
"""Called with each event of a run, in order."""


def now() -> str:
    """Return the time (UTC) as records have it."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


class Run:
    """The steps of one run, and the record that grows with them."""

    def __init__(
        self,
        settings: Settings,
        directory: RunDirectory,
        record: RunRecord,
        observers: Sequence[Observer],
    ) -> None:
        self.record = record
        self._settings = settings
        self.directory = directory
        self._observers = observers
        self._started = time.perf_counter()
        self._runs = previous_runs(settings, directory)
        self._opened: OpenData | None = None
        self._checkpoints: RunCheckpoints | None = None
        self.fresh = False
        self.interruption = GracefulShutdown(self.on_deadline)

    def all_steps(self, opened: OpenData | None) -> None:
        """Run every step; the record is written after each."""
        check_reach(self._settings)
        self._opened = opened
        with changes_are_temporary(self._settings.data, lambda: self._opened):
            self._all_steps()

    def _all_steps(self) -> None:
        opened = self._opened
        if self.record.resumed:
            self._say_resumed(opened)
        if opened is None:
            self._opened = opened = self._ingest()
        self._validate(opened)
        clusters = self._taken_over(opened) or self._cluster(opened)
        labels = opened.data.labels
        if labels is not None and self._settings.evaluate.enabled:
            self._evaluate(labels, clusters.labels)
        self._write(opened, clusters)
        self._end("finished", 0 if clusters.fit.has_requested_components else EXIT_NOT_CONVERGED)
        with contextlib.suppress(OSError):  # what stays behind is removed with the next run here
            self.directory.remove(self.directory.checkpoints)
        if self._checkpoints is not None:
            with contextlib.suppress(MscamError, OSError):  # and elsewhere it costs space only
                self._checkpoints.clear()
        if self._settings.report.enabled:
            report_step(self.directory, self._tell)
        if self._settings.output.keep is not None:
            retain_step(self._settings, self.directory, self._tell)

    def failed(self, error: BaseException) -> None:
        """Say in run.json how the run ended, if that can be written."""
        if self.record.state == "finished":
            return  # the results are there; only the report was cut short
        interrupted = isinstance(error, KeyboardInterrupt)
        typed = error if isinstance(error, MscamError) else system_limit(error)
        exit_code = 1 if typed is None else typed.exit_code
        message = f"stopped by {self._signal}" if interrupted else str(error)
        message = without_credentials(message, os.environ)
        self._update(error=ErrorRecord(type=type(error).__name__, message=message))
        with contextlib.suppress(MscamError, OSError):
            self._end(
                "interrupted" if interrupted else "failed",
                self.interruption.exit_code if interrupted else exit_code,
            )

    def on_deadline(self) -> str:
        """Say in run.json that the run was interrupted, and here; the process is about to end."""
        self.failed(KeyboardInterrupt())
        return f"Stopped by {self._signal}. {self._remedy}"

    def interrupted(self) -> BaseException:
        """The exception to leave with after a signal."""
        if self.interruption.exit_code == TemporaryFailure.exit_code:
            return TemporaryFailure(f"Stopped by {self._signal}. {self._remedy}")
        return KeyboardInterrupt(self._remedy)

    def record_resume(self, iteration: int, damage: tuple[str, ...]) -> None:
        """Record from where the clustering goes on, and what was passed over for it."""
        if not self.record.resumed:  # begun in another run directory, which is gone
            assert self._checkpoints is not None
            found = f"Goes on from checkpoints of the same fit at {self._checkpoints.place}."
            entry = ResumeEntry(time=now(), state="running", warnings=(found,))
            self._update(resumed=(entry,))
            damage = (found, *damage)
        entry = msgspec.structs.replace(
            self.record.resumed[-1],
            after_iteration=iteration,
            warnings=tuple(dict.fromkeys(self.record.resumed[-1].warnings + damage)),
        )
        self._update(resumed=(*self.record.resumed[:-1], entry))
        self._tell(FitResumed(after_iteration=iteration, notes=damage))

    @property
    def _remedy(self) -> str:
        return f"mscam-dask resume {self.directory.path} continues the run."

    @property
    def _signal(self) -> str:
        return self.interruption.signal_name or "an interrupt"

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

    def _update(self, **changes: Any) -> None:
        self.record = msgspec.structs.replace(self.record, **changes)

    def _tell(self, event: Event) -> None:
        for observer in self._observers:
            observer(event)

    @contextlib.contextmanager
    def _step(self, name: str) -> Iterator[steps.StepSummary]:
        started = time.perf_counter()
        self._tell(StepStarted(step=name))
        said = steps.StepSummary()
        yield said
        seconds = time.perf_counter() - started
        self._update(seconds={**self.record.seconds, name: seconds})
        self.directory.write_record(self.record)
        self._tell(StepFinished(step=name, summary=said.summary, notes=said.notes, seconds=seconds))

    def _ingest(self) -> OpenData:
        with self._step("ingest") as said:
            ingested = ingest_data(
                self._settings,
                self.directory.data,
                self._runs,
                run=self.record.run_fingerprint,
                is_resumed=bool(self.record.resumed),
            )
            self._update(sources=ingested.sources, data_fingerprint=ingested.identity)
            opened = ingested.opened
            record = opened.record()
            self._update(data=record)
            views = ", ".join(f"{view.name} ({view.shape[1]})" for view in record.views)
            counted = f"{record.n_samples} samples, {plural(len(record.views), 'view')}"
            said.summary = f"{counted}: {views}"
            said.notes = record.notes
        return opened

    def _say_resumed(self, opened: OpenData | None) -> None:
        """Say what a run that goes on starts from."""
        with self._step("resume") as said:
            said.notes = self.record.resumed[-1].warnings
            said.summary = "from the beginning: there are no data yet"
            if opened is not None:
                views = plural(len(opened.data.views), "view")
                said.summary = (
                    f"{opened.data.n_samples} samples in {views}, unchanged since "
                    f"{self.record.started}"
                )

    def _validate(self, opened: OpenData) -> None:
        with self._step("validate") as said:
            report = steps.validate_data(opened.data, self._settings.cluster)
            said.notes = tuple(finding.message for finding in report.issues)
            said.summary = steps.findings_summary(len(said.notes))
            self._update(data=opened.record(said.notes))

    def _taken_over(self, opened: OpenData) -> ClusteringOutput | None:
        """The clusters of an earlier run that had the same views and settings."""
        assert self.record.data is not None
        clustering = clustering_fingerprint(self._settings, self.record.data.digest)
        self._update(clustering_fingerprint=clustering)
        data, is_followed = opened.data, self._settings.incremental.enabled
        samples = data.sample_ids or [str(index) for index in range(data.n_samples)]
        found = reusable_clustering(self._runs, clustering, samples if is_followed else None)
        if found is None:
            return None
        earlier, clusters = found
        with self._step("cluster") as said:
            executor = earlier.record.executor
            self._update(fit=clusters.fit, executor=executor, drift=clusters.drift)
            said.summary = f"taken from {earlier.name}, which had the same views and settings"
            if clusters.moved is not None:
                said.notes = steps.drift_notes(clusters.drift)
        return clusters

    def _started_from(self, opened: OpenData) -> WarmStart | None:
        """The run that this one starts from: the same one after an interruption."""
        runs = [run for run in self._runs if self.record.started_from in (None, run.name)]
        start = warm_start_from(runs, self._settings, opened.data)
        self._update(started_from="" if start is None else start.earlier.name)
        return start

    def _cluster(self, opened: OpenData) -> ClusteringOutput:
        settings = self._settings
        start = self._started_from(opened)
        assert self.record.clustering_fingerprint is not None
        self._checkpoints = RunCheckpoints(
            place_of(
                settings,
                self.directory,
                clustering=self.record.clustering_fingerprint,
                start=self.record.started_from,
            ),
            self.record_resume,
            self.interruption.deferred,
        )
        if self.fresh:
            self._checkpoints.clear()
        with contextlib.ExitStack() as stack:
            if settings.execution.in_process:
                cluster = stack.enter_context(open_cluster(settings.execution))
            else:
                with self._step("start") as said:
                    cluster = stack.enter_context(open_cluster(settings.execution))
                    check_workers(cluster, [opened.store])
                    assert cluster.client is not None
                    page, said.notes = page_of(cluster.client)
                    said.summary = f"{cluster.description}, {page}"
            self._update(executor=cluster.description)
            with self._step("cluster") as said:
                solution, notes = steps.cluster(
                    opened.data,
                    settings.cluster,
                    client=cluster.client,
                    n_threads=settings.execution.threads,
                    observers=(*self._observers, *observers_of(cluster, settings.name)),
                    checkpoint_store=self._checkpoints,
                    from_previous_fit=None if start is None else start.arguments,
                )
                solution = named_as_before(start, solution)
                fit = steps.fit_record(solution)
                drift, moved = drift_of(start, solution, fit, opened.data)
                self._update(fit=fit, drift=drift)
                said.notes = (*notes, *steps.drift_notes(drift))
                said.summary = steps.fit_summary(fit)
        return ClusteringOutput(solution.labels, fit, partial(write_result, solution), drift, moved)

    def _evaluate(self, labels_true: NDArray[np.int64], labels_pred: NDArray[np.int64]) -> None:
        with self._step("evaluate") as said:
            self._update(metrics=steps.evaluate(labels_true, labels_pred))
            said.summary = "compared with the labels, which the fit did not see"

    def _write(self, opened: OpenData, clusters: ClusteringOutput) -> None:
        directory = self.directory
        with self._step("write") as said:
            directory.remove(directory.result)  # of a run that was killed before it could say so
            directory.write(directory.labels, steps.labels_text(opened.data, clusters.labels))
            if clusters.moved is not None:
                directory.write(directory.moved, clusters.moved)
            clusters.write(directory.result)
            said.summary = str(directory.path)
