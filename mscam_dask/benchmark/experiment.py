"""An experiment under way: its directory, its document, and who is told of it."""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from mscam_dask.benchmark.directory import ExperimentDirectory
from mscam_dask.benchmark.report import write_experiment_report
from mscam_dask.benchmark.results import ExperimentRecord, TrialEntry, encode_experiment
from mscam_dask.benchmark.settings import ExperimentSettings
from mscam_dask.benchmark.tables import csv_text, markdown_text
from mscam_dask.errors import DataError, MscamError, TemporaryFailure
from mscam_dask.pipeline.config.toml_document import toml_text
from mscam_dask.pipeline.run.graceful_shutdown import GracefulShutdown
from mscam_dask.pipeline.run.versions import blas_libraries, software_versions

__all__ = ["Experiment", "Observer", "Progress", "default_output"]


@dataclass(frozen=True)
class Progress:
    """What is going on.

    Attributes
    ----------
    text
        A stage that begins; "" for a cell.
    entry
        A cell that has ended.
    done, total
        Of the cells of this stage.
    """

    text: str = ""
    entry: TrialEntry | None = None
    done: int = 0
    total: int = 0


Observer = Callable[[Progress], None]

_REMEDY = "The same command goes on: the fits that ended are kept."

# What a start that found every fit done leaves as the one before it, which ran them, said it.
_OF_THE_START = (
    *("command", "started", "ended", "seconds"),
    *("executor", "versions", "blas", "n_reused"),
)


def default_output(settings: ExperimentSettings) -> Path:
    """Return <root>/<name>, or what [output] directory says; root is runs where it is not given.

    The same for every start, so that a second one goes on where the first one was.
    """
    if settings.output.directory is not None:
        return Path(settings.output.directory)
    root = Path.cwd() / "runs" if settings.output.root is None else Path(settings.output.root)
    return root / settings.name


class Experiment:
    """An experiment under way.

    Attributes
    ----------
    directory
    record
        The document as far as it is known.
    settings
    earlier
        The document of a start before this one that finished; None without.
    """

    def __init__(
        self,
        settings: ExperimentSettings,
        directory: ExperimentDirectory,
        command: str,
        observers: Sequence[Observer],
    ) -> None:
        self.settings = settings
        self.directory = directory
        self.earlier = _finished_in(directory)
        self.record = ExperimentRecord(
            kind=settings.kind,
            name=settings.name,
            state="running",
            command=command,
            started=_now(),
            versions=software_versions(),
        )
        self._observers = observers
        self._started = time.perf_counter()
        self._begun = False

    @classmethod
    @contextmanager
    def entered(
        cls,
        settings: ExperimentSettings,
        output: str | Path,
        *,
        command: str,
        overwrite: bool,
        observers: Sequence[Observer],
    ) -> Iterator[Experiment]:
        """Hold the directory and keep its document true, however the experiment ends.

        A finished experiment is left as it is until `begin`: there may be nothing to do.

        Raises
        ------
        TemporaryFailure
            After SIGTERM: the same command goes on.
        KeyboardInterrupt
            After Ctrl-C, likewise.
        """
        with ExperimentDirectory.hold(output) as directory:
            context = cls(settings, directory, command, observers)
            if overwrite or context.earlier is None:
                context.begin()
            if overwrite:
                directory.forget()
            with GracefulShutdown(context._out_of_time) as interruption:
                try:
                    yield context
                except KeyboardInterrupt as error:
                    context.end("interrupted")
                    if interruption.exit_code == TemporaryFailure.exit_code:
                        raise TemporaryFailure(f"Stopped by SIGTERM. {_REMEDY}") from error
                    raise KeyboardInterrupt(_REMEDY) from error
                except BaseException:
                    context.end("failed")
                    raise

    def _out_of_time(self) -> str:
        self.end("interrupted")
        return f"Interrupted. {_REMEDY}"

    def begin(self) -> None:
        """Say in the document that it is running; the first time this is called."""
        if self._begun:
            return
        self._begun = True
        self.directory.write_record(self.record)
        self.directory.write(self.directory.pipeline, _settings_text(self.settings).encode())

    def update(self, **changes: Any) -> None:
        """Change the document."""
        self.record = msgspec.structs.replace(self.record, **changes)

    def tell(
        self, text: str = "", *, entry: TrialEntry | None = None, done: int = 0, total: int = 0
    ) -> None:
        """Tell the observers."""
        for observer in self._observers:
            observer(Progress(text=text, entry=entry, done=done, total=total))

    def end(self, state: str) -> None:
        """Say in the document how it ended, if it had begun and that can be written."""
        if not self._begun:
            return
        self._close(state)
        with contextlib.suppress(MscamError, OSError):
            self.directory.write_record(self.record)

    def finish(self, **results: Any) -> None:
        """Write the results, the document after the tables, and its report.

        Nothing is written when no fit was run and the directory says the same already.
        """
        self.update(**results)
        self._close("finished")
        directory = self.directory
        if not self._begun and self.earlier is not None:
            if self._says_the_same(self.earlier):
                self.record = msgspec.structs.replace(self.earlier, n_reused=self.record.n_reused)
                return
            self.update(executor=self.earlier.executor)
        self.begin()
        directory.write(directory.csv, csv_text(self.record).encode())
        directory.write(directory.markdown, markdown_text(self.record).encode())
        directory.write_record(self.record)
        try:
            write_experiment_report(directory.path, msgspec.to_builtins(self.record))
        except (MscamError, OSError) as error:
            self.tell(f"the results are complete, but not their report: {error}")

    def _says_the_same(self, earlier: ExperimentRecord) -> bool:
        """Whether the files of an earlier start are what this one would write."""
        start = {name: getattr(earlier, name) for name in _OF_THE_START}
        mine = msgspec.structs.replace(self.record, **start)
        files = (self.directory.csv, self.directory.markdown, self.directory.report)
        return encode_experiment(mine) == encode_experiment(earlier) and all(
            file.is_file() for file in files
        )

    def _close(self, state: str) -> None:
        seconds = time.perf_counter() - self._started
        self.update(state=state, ended=_now(), seconds=seconds, blas=blas_libraries())


def _finished_in(directory: ExperimentDirectory) -> ExperimentRecord | None:
    try:
        record = directory.read_record()
    except DataError:
        return None
    return record if record.state == "finished" else None


def _settings_text(settings: ExperimentSettings) -> str:
    """A file that says exactly these settings, defaults included."""
    kind = {"comparison": "compare", "robustness": "robustness", "sensitivity": "sweep"}
    table = msgspec.to_builtins(settings.table)
    if settings.datasets:  # by their names, each with a table that says where it is
        table |= {"datasets": list(settings.datasets), "directory": None}
    tables = {
        kind[settings.kind]: table,
        "dataset": {
            name: _without_none(msgspec.to_builtins(table))
            for name, table in settings.datasets.items()
        },
        "parameters": settings.parameters,
        "grid": settings.grids,
        "execution": msgspec.to_builtins(settings.execution),
        "output": msgspec.to_builtins(settings.output),
    }
    return toml_text({name: table for name, table in tables.items() if table})


def _without_none(table: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if value is not None}


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
