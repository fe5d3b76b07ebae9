"""Runs of pipeline files, what happens during them, and what they found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from mscam_dask.monitor.events import Event
from mscam_dask.pipeline.read_config import read_config
from mscam_dask.pipeline.resume import run_pipeline
from mscam_dask.pipeline.run import RunOutcome
from mscam_dask.pipeline.run_directory import RunDirectory
from mscam_dask.pipeline.toml_document import parse_override
from mscam_dask.types.events import IterationFinished

Write = Callable[[str], Path]
Observer = Callable[[Any], None]

HERE = "[execution]\nin_process = true\nthreads = 1\n"
THREE = "[cluster]\nn_clusters = 3\nconstants.auto_settings = false\nmax_iter = 3\n"
QUIET = f"{HERE}[report]\nenabled = false\n"


def write_tiny(
    directory: Path, more: str = "", *, data: str = "source = 'tiny.npz'", clusters: str = THREE
) -> Path:
    """The pipeline tiny.toml, by default of the small data; more text follows after its last key."""
    file = directory / "tiny.toml"
    file.write_text(f"[data]\n{data}\n{clusters}{more}\n")
    return file


class Stopped(Exception):
    """What a test stops a run with."""


def at(
    act: Callable[[], object], kind: type[Event] = IterationFinished, step: str | None = None
) -> Observer:
    """Do something at each event of a kind, by default after an outer iteration."""

    def observer(event: Event) -> None:
        if isinstance(event, kind) and step in (None, getattr(event, "step", None)):
            act()

    return observer


def stop(error: type[BaseException] = Stopped) -> None:
    raise error


def stopped_run(file: Path, output: Path) -> RunDirectory:
    """A run that was interrupted after its first outer iteration."""
    with pytest.raises(KeyboardInterrupt):
        again(file, output=output, observers=[at(lambda: stop(KeyboardInterrupt))])
    return RunDirectory(output)


def again(file: Path, *, sets: Sequence[str] = (), **options: Any) -> RunOutcome:
    """Run a pipeline file with these values of `--set`."""
    return run_pipeline(read_config(file, [parse_override(one) for one in sets]), **options)


def labels_of(outcome: RunOutcome) -> NDArray[np.int64]:
    return np.loadtxt(
        outcome.directory.labels, delimiter=",", skiprows=1, usecols=1, dtype=np.int64
    )


def rewritten(directory: RunDirectory, **changes: Any) -> None:
    """Change fields of run.json."""
    directory.write_record(msgspec.structs.replace(directory.read_record(), **changes))


def a_chunk(place: Path) -> Path:
    """A file of values of a store."""
    files = (file for file in sorted(place.rglob("*")) if file.is_file())
    return next(file for file in files if file.name != "zarr.json")
