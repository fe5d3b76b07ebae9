"""A disk that is full, or loses power: a typed error or the state before or after, and the run goes on."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mscam_dask.data.ingest import append
from mscam_dask.data.store.dataset import verify_store, write_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.errors import DataError, StoreCorruptError, TemporaryFailure
from mscam_dask.monitor.events import Event
from mscam_dask.pipeline.load_run import load_run
from mscam_dask.pipeline.read_config import read_config
from mscam_dask.pipeline.resume import resume_run, run_pipeline
from mscam_dask.pipeline.run_directory import RunDirectory
from mscam_dask.types.events import IterationFinished
from tests.data.stores import counting, numbers
from tests.faults.kill_driver import outcome_of, write_pipeline
from tests.faults.memory_disk import traced
from tests.messages import raises
from tests.pipeline.runs import QUIET, again, write_tiny
from tests.processes import mscam, run
from tests.synthetic import gaussian_views

pytestmark = pytest.mark.faults


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = run("mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk)
    if mounted.returncode:
        pytest.skip(f"a small tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Take all the room there is."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as stream:
        size = 2**20
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
    command = mscam("run", file, "-o", root)
    done = run("bash", "-c", f'ulimit -f {kib}; exec "$@"', "bash", *command)
    assert done.returncode == 75, done.stderr
    assert str(root) in done.stderr
    assert "ulimit -f" in done.stderr
    assert run(*command).returncode == 0
    assert outcome_of(root) == whole


# Some cuts, or all of them.
of_cuts = pytest.mark.parametrize(
    "most",
    [8, pytest.param(None, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])],
    ids=["some", "all"],
)


# -- stores ------------------------------------------------------------------------------------


def numbers_if_any(store: Path) -> list[float] | None:
    """Values of a store; None where there is none."""
    try:
        return numbers(store)
    except DataError:
        assert not store.exists(), "a store that is there is damaged"
        return None


STORED: dict[str, tuple[Callable[[Path], object], list[float] | None, list[float]]] = {
    "written": (lambda store: write_store(counting(0, 3), store), None, [0, 1, 2]),
    "written over": (
        lambda store: write_store(counting(5, 7), store, overwrite=True),
        [0, 1, 2],
        [5, 6],
    ),
    "appended to": (lambda store: append(counting(3, 4), store), [0, 1, 2], [0, 1, 2, 3]),
}


@of_cuts
@pytest.mark.parametrize("how", STORED)
@pytest.mark.parametrize("can_exchange", [True, False], ids=["swapped", "renamed"])
def test_a_store_is_the_old_one_or_the_new_one(
    how: str, most: int | None, can_exchange: bool, tmp_path: Path
) -> None:
    change, before, after = STORED[how]
    root = tmp_path / "d"
    root.mkdir()
    store = root / "data.zarr"
    if before is not None:
        write_store(counting(0, 3), store)
    trace = traced(root, lambda: change(store), can_exchange=can_exchange)
    for cut in trace.cuts(most=most):
        assert numbers_if_any(store) in (before, after), cut
    trace.synced()
    assert numbers(store) == after, "it returned before it was on the disk"


# -- runs --------------------------------------------------------------------------------------


def labels(path: Path) -> list[int]:
    """Labels of a whole run: load_run compares its files with their checksums."""
    found: list[int] = load_run(path).labels_.tolist()
    text = np.loadtxt(path / "labels.csv", delimiter=",", skiprows=1, usecols=1, dtype=np.int64)
    assert text.tolist() == found
    return found


def labels_if_any(path: Path) -> list[int] | None:
    """Labels of the run in a directory; None without a finished run.

    The directory is locked first, as by every command that writes, which repairs a kill between
    two renames.
    """
    if not path.exists():
        return None
    try:
        with RunDirectory.lock(path):
            pass
        return labels(path)
    except StoreCorruptError:
        raise
    except DataError:  # nothing is damaged
        return None


@of_cuts
@pytest.mark.parametrize("is_first", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_a_run_that_is_the_first_or_replaces_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int | None, is_first: bool
) -> None:
    views, _ = gaussian_views(3, n_samples=30, spread=1.0, dims=(3, 4))
    np.savez(tmp_path / "tiny.npz", allow_pickle=False, a=views[0], b=views[1])
    root = tmp_path / "d"
    root.mkdir()
    monkeypatch.chdir(tmp_path)
    path = root / "out"

    def run_tiny(more: str = "", *, overwrite: bool = False) -> list[int]:
        file = write_tiny(tmp_path, f"{more}\n{QUIET}")
        return labels(again(file, output=path, overwrite=overwrite).directory.path)

    def start() -> list[int]:
        return run_tiny("alpha = 0.01\nscale = 'none'", overwrite=not is_first)

    before = None if is_first else run_tiny()
    trace = traced(root, start)
    after = labels(path)
    assert before != after, "a test that cannot tell the two"
    for number, cut in enumerate(trace.cuts(most=most)):
        assert labels_if_any(path) in (before, after), cut
        if number % 25 == 0:  # and the same command again ends in the new run
            assert start() == after, cut
    trace.synced()
    assert labels(path) == after, "it returned before it was on the disk"
