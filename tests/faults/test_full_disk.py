"""A disk that is really full: a typed error, and the run goes on once there is room again."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mscam_dask.data.store.read import verify_store
from mscam_dask.data.store.write import write_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.errors import TemporaryFailure
from mscam_dask.monitor.events import Event
from mscam_dask.pipeline.read_config import read_config
from mscam_dask.pipeline.resume import resume_run, run_pipeline
from mscam_dask.types.events import IterationFinished
from tests.faults.kill_driver import outcome_of, write_pipeline
from tests.messages import raises

pytestmark = pytest.mark.faults

MIB = 2**20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)],
        check=False,
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"a small tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Take all the room there is."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as stream:
        size = MIB
        while size:
            try:
                if stream.write(b"x" * size) < size:
                    size //= 2
            except OSError:
                size //= 2
    return filler


def is_full(error: BaseException | None) -> bool:
    """Whether an error is, or comes from, the system's that there is no room."""
    if error is None:
        return False
    return getattr(error, "errno", None) == errno.ENOSPC or is_full(error.__cause__)


def test_a_store_on_a_full_disk(small_disk: Path) -> None:
    data = as_multi_view([np.random.default_rng(0).standard_normal((1000, 100))])
    filler = fill(small_disk)
    with raises(TemporaryFailure, small_disk / "data.zarr") as caught:
        write_store(data, small_disk / "data.zarr")
    assert is_full(caught.value)
    assert [item.name for item in small_disk.iterdir()] == ["filler"]
    filler.unlink()
    assert verify_store(write_store(data, small_disk / "data.zarr")).digest() == data.digest()


@pytest.mark.thorough
def test_a_run_on_a_full_disk_goes_on_when_there_is_room(
    small_disk: Path, tmp_path: Path, whole: Any
) -> None:
    file, root = write_pipeline(tmp_path), small_disk / "run"
    filled: list[Path] = []

    def fill_after_the_second(event: Event) -> None:
        if isinstance(event, IterationFinished) and event.iteration == 1 and not filled:
            filled.append(fill(small_disk))

    with raises(TemporaryFailure, root) as caught:
        run_pipeline(read_config(file), root, observers=[fill_after_the_second])
    assert is_full(caught.value)
    with raises(TemporaryFailure, root) as caught:
        resume_run(root)
    assert is_full(caught.value)
    filled[0].unlink()
    outcome = resume_run(root)
    assert outcome.record.resumed[-1].after_iteration == 2
    assert outcome_of(root) == whole


@pytest.mark.parametrize("kib", [1, 40], ids=["run.json", "checkpoint"])
@pytest.mark.thorough
def test_a_run_whose_files_grow_over_a_limit_goes_on_without_it(
    tmp_path: Path, kib: int, whole: Any
) -> None:
    file, root = write_pipeline(tmp_path), tmp_path / "run"
    command = [sys.executable, "-m", "mscam_dask.cli", "run", str(file), "-o", str(root)]
    limited = ["bash", "-c", f'ulimit -f {kib}; exec "$@"', "bash", *command]
    done = subprocess.run(limited, check=False, capture_output=True, text=True)
    assert done.returncode == 75, done.stderr
    assert str(root) in done.stderr
    assert "ulimit -f" in done.stderr
    subprocess.run(command, check=True, capture_output=True)
    assert outcome_of(root) == whole
