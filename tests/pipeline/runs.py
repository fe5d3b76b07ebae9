"""Runs of pipeline files that are safe to do twice, and what they found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mscam_dask.pipeline.config.read_config import read_config
from mscam_dask.pipeline.run.resume import run_or_resume
from mscam_dask.pipeline.run.run import RunOutcome, run_pipeline
from mscam_dask.pipeline.run.run_directory import RunDirectory
from mscam_dask.types.events import IterationFinished

HERE = "[execution]\nin_process = true\nthreads = 1\n"
QUIET = f"{HERE}[report]\nenabled = false\n"


def stopped_run(file: Path, output: Path) -> RunDirectory:
    """A run that was interrupted after its first outer iteration."""

    def stop(event: object) -> None:
        if isinstance(event, IterationFinished):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_pipeline(read_config(file), output, observers=(stop,))
    return RunDirectory(output)


def again(file: Path, **options: Any) -> RunOutcome:
    return run_or_resume(read_config(file), **options)


def labels_of(outcome: RunOutcome) -> NDArray[np.int64]:
    return np.loadtxt(
        outcome.directory.labels, delimiter=",", skiprows=1, usecols=1, dtype=np.int64
    )
