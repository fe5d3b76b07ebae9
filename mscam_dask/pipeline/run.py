"""One run of a pipeline: ingest, validate, start, cluster, evaluate, write."""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from mscam_dask.data.results import write_result
from mscam_dask.errors import ConfigurationError, MscamError
from mscam_dask.model.solution import Solution
from mscam_dask.monitor.events import Event, JsonLines, StepEnded, StepStarted
from mscam_dask.pipeline import steps
from mscam_dask.pipeline.cluster import check_workers, open_cluster
from mscam_dask.pipeline.execution import check_execution
from mscam_dask.pipeline.record import (
    ErrorRecord,
    RunRecord,
    blas_libraries,
    software_versions,
)
from mscam_dask.pipeline.redaction import without_credentials
from mscam_dask.pipeline.run_directory import RunDirectory
from mscam_dask.pipeline.settings import Settings
from mscam_dask.pipeline.sources import OpenData, open_data, source_records
from mscam_dask.pipeline.toml_text import settings_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["EXIT_INTERRUPTED", "EXIT_NOT_CONVERGED", "RunOutcome", "default_output", "run_pipeline"]

EXIT_NOT_CONVERGED = 5
"""The results are written, but the graph has not the components asked for."""

EXIT_INTERRUPTED = 130

Observer = Callable[[Event], None]


@dataclass(frozen=True)
class RunOutcome:
    """A run that ended with results.

    Attributes
    ----------
    directory
    record
        As in its run.json.
    """

    directory: RunDirectory
    record: RunRecord


def default_output(settings: Settings) -> Path:
    """Return runs/<pipeline>-<time> in the working directory, or what [output] says."""
    if settings.output.directory is not None:
        return Path(settings.output.directory)
    return Path.cwd() / "runs" / f"{settings.name}-{dt.datetime.now().astimezone():%Y%m%d-%H%M%S}"


def run_pipeline(
    settings: Settings,
    output: str | Path,
    *,
    overwrite: bool = False,
    insecure: bool = False,
    observers: Sequence[Observer] = (),
) -> RunOutcome:
    """Do what a pipeline says, in a run directory.

    Parameters
    ----------
    settings
        From `mscam_dask.pipeline.config.read_config`.
    output
        The run directory: missing, empty, or (with `overwrite`) of an earlier run.
    overwrite
        Replace the files of an earlier run.
    insecure
        Allow a scheduler on another computer without encryption.
    observers
        Called with each event, in order.

    Returns
    -------
    RunOutcome

    Raises
    ------
    MscamError
        Of any kind; run.json then says so too, unless the directory could not be claimed.
    """
    check_execution(settings.execution, insecure=insecure)
    _check_sources_outside(settings, Path(output).absolute())
    seed = settings.cluster.parameters.get("random_state")
    record = RunRecord(
        state="running",
        pipeline=settings.name,
        method=settings.cluster.method,
        seed=seed if isinstance(seed, int) else None,
        started=_now(),
        versions=software_versions(),
    )
    with RunDirectory.hold(output) as directory:
        directory.claim(record, overwrite=overwrite)
        directory.write(directory.pipeline, settings_text(settings).encode())
        with directory.events.open("wb") as stream:
            run = _Run(settings, directory, record, (*observers, JsonLines(stream)))
            try:
                run.all_steps()
            except BaseException as error:
                run.failed(error)
                raise
    return RunOutcome(directory, run.record)


def _check_sources_outside(settings: Settings, output: Path) -> None:
    inside = [
        source
        for source in settings.data.sources
        if Path(source).is_absolute() and Path(source).resolve().is_relative_to(output.resolve())
    ]
    if inside:
        raise ConfigurationError(
            f"the source {inside[0]} lies inside the run directory {output}, whose files a run "
            "replaces. Choose another output directory."
        )


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


class _Run:
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
        self._directory = directory
        self._observers = observers
        self._started = time.perf_counter()

    def all_steps(self) -> None:
        """Run every step; the record is written after the last."""
        opened = self._ingest()
        self._validate(opened)
        solution = self._cluster(opened)
        labels = opened.data.labels
        if labels is not None and self._settings.evaluate.enabled:
            self._evaluate(labels, solution.labels)
        self._write(opened, solution)
        self._end("finished", 0 if solution.status.reached else EXIT_NOT_CONVERGED)

    def failed(self, error: BaseException) -> None:
        """Say in run.json how the run ended, if that can be written."""
        interrupted = isinstance(error, KeyboardInterrupt)
        exit_code = error.exit_code if isinstance(error, MscamError) else 1
        message = without_credentials(str(error))
        self._update(error=ErrorRecord(type=type(error).__name__, message=message))
        with contextlib.suppress(MscamError, OSError):
            self._end(
                "interrupted" if interrupted else "failed",
                EXIT_INTERRUPTED if interrupted else exit_code,
            )

    def _end(self, state: str, exit_code: int) -> None:
        seconds = {**self.record.seconds, "total": time.perf_counter() - self._started}
        self._update(
            state=state,
            exit_code=exit_code,
            ended=_now(),
            seconds=seconds,
            blas=blas_libraries(),
        )
        self._directory.write_record(self.record)

    def _update(self, **changes: Any) -> None:
        self.record = msgspec.structs.replace(self.record, **changes)

    def _tell(self, event: Event) -> None:
        for observer in self._observers:
            observer(event)

    @contextlib.contextmanager
    def _step(self, name: str) -> Iterator[_Said]:
        started = time.perf_counter()
        self._tell(StepStarted(step=name))
        said = _Said()
        yield said
        seconds = time.perf_counter() - started
        self._update(seconds={**self.record.seconds, name: seconds})
        self._tell(StepEnded(step=name, summary=said.summary, notes=said.notes, seconds=seconds))

    def _ingest(self) -> OpenData:
        with self._step("ingest") as said:
            self._update(sources=source_records(self._settings.data))
            opened = open_data(self._settings.data, self._directory.data)
            record = opened.record()
            self._update(data=record)
            views = ", ".join(f"{view.name} ({view.shape[1]})" for view in record.views)
            said.summary = f"{record.n_samples} samples, {len(record.views)} views: {views}"
            said.notes = record.notes
        return opened

    def _validate(self, opened: OpenData) -> None:
        with self._step("validate") as said:
            report = steps.validate_data(opened.data, self._settings.cluster)
            said.notes = tuple(finding.message for finding in report.findings)
            n_findings = len(said.notes)
            said.summary = (
                "finite, consistent, nothing odd"
                if not n_findings
                else f"usable, {n_findings} finding{'s' if n_findings > 1 else ''}"
            )
            self._update(data=opened.record(said.notes))

    def _cluster(self, opened: OpenData) -> Solution:
        settings = self._settings
        with contextlib.ExitStack() as stack:
            if settings.execution.in_process:
                cluster = stack.enter_context(open_cluster(settings.execution))
            else:
                with self._step("start") as said:
                    cluster = stack.enter_context(open_cluster(settings.execution))
                    check_workers(cluster, [opened.store])
                    dashboard = cluster.dashboard or "none (pip install 'mscam-dask[dashboard]')"
                    said.summary = f"{cluster.description}, dashboard {dashboard}"
            self._update(executor=cluster.description)
            with self._step("cluster") as said:
                solution, notes = steps.cluster(
                    opened.data,
                    settings.cluster,
                    client=cluster.client,
                    n_threads=settings.execution.threads,
                    observers=self._observers,
                )
                fit = steps.fit_record(solution, settings.cluster)
                self._update(fit=fit)
                said.notes = notes
                said.summary = (
                    f"{fit.n_connected_components} connected components for {fit.n_clusters} "
                    f"clusters, {fit.n_outer_iterations} outer iterations"
                )
        return solution

    def _evaluate(self, labels_true: NDArray[np.int64], labels_pred: NDArray[np.int64]) -> None:
        with self._step("evaluate") as said:
            self._update(metrics=steps.evaluate(labels_true, labels_pred))
            said.summary = "compared with the labels, which the fit did not see"

    def _write(self, opened: OpenData, solution: Solution) -> None:
        directory = self._directory
        with self._step("write") as said:
            directory.write(directory.labels, steps.labels_text(opened.data, solution.labels))
            write_result(solution, directory.result)
            said.summary = str(directory.path)


@dataclass
class _Said:
    """What a step says when it ends."""

    summary: str = ""
    notes: tuple[str, ...] = ()
