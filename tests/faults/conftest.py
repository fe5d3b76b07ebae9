"""The run that others are compared with."""

from __future__ import annotations

from typing import Any

import pytest

from mscam_dask.pipeline.read_config import read_config
from mscam_dask.pipeline.resume import run_pipeline
from tests.faults.kill_driver import outcome_of, write_pipeline


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Outcome of a run that nothing disturbs."""
    directory = tmp_path_factory.mktemp("whole")
    run_pipeline(read_config(write_pipeline(directory)), directory / "out")
    return outcome_of(directory / "out")
