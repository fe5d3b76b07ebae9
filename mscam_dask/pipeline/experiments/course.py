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

from mscam_dask.errors import MscamError
from mscam_dask.pipeline.experiment_report import write_experiment_report
from mscam_dask.pipeline.experiments.directory import ExperimentDirectory
from mscam_dask.pipeline.experiments.results import CellEntry, ExperimentRecord
from mscam_dask.pipeline.experiments.settings import ExperimentSettings
from mscam_dask.pipeline.experiments.tables import csv_text, markdown_text
from mscam_dask.pipeline.record import blas_libraries, software_versions
from mscam_dask.pipeline.toml_text import toml_text

__all__ = ["Course", "Observer", "Progress", "default_output"]


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
    entry: CellEntry | None = None
    done: int = 0
    total: int = 0


Observer = Callable[[Progress], None]


def default_output(settings: ExperimentSettings) -> Path:
    """Return runs/<name> in the working directory, or what [output] says.

    The same for every start, so that a second one goes on where the first one was.
    """
    if settings.output.directory is not None:
        return Path(settings.output.directory)
    return Path.cwd() / "runs" / settings.name


class Course:
    """An experiment under way.

    Attributes
    ----------
    directory
    record
        The document as far as it is known.
    """

    def __init__(
        self,
        directory: ExperimentDirectory,
        record: ExperimentRecord,
        observers: Sequence[Observer],
    ) -> None:
        self.directory = directory
        self.record = record
        self._observers = observers
        self._started = time.perf_counter()

    @classmethod
    @contextmanager
    def entered(
        cls,
        settings: ExperimentSettings,
        output: str | Path,
        command: str,
        observers: Sequence[Observer],
    ) -> Iterator[Course]:
        """Hold the directory and keep its document true, however the experiment ends."""
        with ExperimentDirectory.hold(output) as directory:
            record = ExperimentRecord(
                kind=settings.kind,
                name=settings.name,
                state="running",
                command=command,
                started=_now(),
                versions=software_versions(),
            )
            course = cls(directory, record, observers)
            directory.write_record(record)
            directory.write(directory.pipeline, _settings_text(settings).encode())
            try:
                yield course
            except BaseException as error:
                course.end("interrupted" if isinstance(error, KeyboardInterrupt) else "failed")
                raise

    def update(self, **changes: Any) -> None:
        """Change the document."""
        self.record = msgspec.structs.replace(self.record, **changes)

    def tell(
        self, text: str = "", *, entry: CellEntry | None = None, done: int = 0, total: int = 0
    ) -> None:
        """Tell the observers."""
        for observer in self._observers:
            observer(Progress(text=text, entry=entry, done=done, total=total))

    def end(self, state: str) -> None:
        """Say in the document how it ended, if that can be written."""
        self._close(state)
        with contextlib.suppress(MscamError, OSError):
            self.directory.write_record(self.record)

    def finish(self, **results: Any) -> None:
        """Write the results, the document after the tables, and its report."""
        self.update(**results)
        self._close("finished")
        directory = self.directory
        directory.write(directory.csv, csv_text(self.record).encode())
        directory.write(directory.markdown, markdown_text(self.record).encode())
        directory.write_record(self.record)
        try:
            write_experiment_report(directory.path)
        except (MscamError, OSError) as error:
            self.tell(f"the results are complete, but not their report: {error}")

    def _close(self, state: str) -> None:
        seconds = time.perf_counter() - self._started
        self.update(state=state, ended=_now(), seconds=seconds, blas=blas_libraries())


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
