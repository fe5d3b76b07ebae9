"""One directory for another: whatever ends the writer, the old store or the new one is found."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest

from mscam_dask.cli.describe import describe_path
from mscam_dask.data.ingest import append, ingest
from mscam_dask.data.store import atomic_replace as replacement
from mscam_dask.data.store.atomic_replace import (
    exclusive_writer,
    new_partial,
    recover,
    replace_directory,
)
from mscam_dask.data.store.filesystem import LOCAL, LocalFilesystem
from mscam_dask.data.store.read import is_store, open_store, verify_store
from mscam_dask.data.store.write import write_store
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.errors import ConfigurationError, DataError, TemporaryFailure


def counting(start: int, stop: int) -> MultiViewData:
    return MultiViewData((ArrayRows(np.arange(float(start), stop)[:, None], "v"),))


def numbers(path: Path) -> list[float]:
    view = verify_store(path).views[0]
    return view.read(0, view.shape[0]).ravel().tolist()


# Appends sample 3 to a store of samples 0, 1, 2 and is gone after so many steps of replacing it.
KILLED = """
import os, shutil, sys
import numpy as np
from mscam_dask.data.store.filesystem import LocalFilesystem
from mscam_dask.data.ingest import append
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ArrayRows

root, can_exchange, last = sys.argv[1], sys.argv[2] == "True", int(sys.argv[3])
steps = 0

def then_killed(step):
    def call(*arguments):
        global steps
        result = step(*arguments)
        steps += 1
        if steps == last:
            os._exit(9)
        return result
    return call

def first_removed(path):
    next(file for file in path.rglob("*") if file.is_file()).unlink()

remove, shutil.rmtree = shutil.rmtree, lambda path, **_: (then_killed(first_removed)(path), remove(path))
for name in ("rename", *(["exchange"] if can_exchange else [])):
    setattr(LocalFilesystem, name, then_killed(getattr(LocalFilesystem, name)))
if not can_exchange:
    LocalFilesystem.exchange = lambda *_: False
append(MultiViewData((ArrayRows(np.array([[3.0]]), "v"),)), root)
"""


@pytest.mark.parametrize(
    ("can_exchange", "last", "missing", "found"),
    [
        pytest.param(True, 2, False, 4, id="swapped and half removed"),
        pytest.param(False, 1, True, 3, id="moved aside"),
        pytest.param(False, 4, False, 4, id="renamed and half removed"),
    ],
)
def test_a_writer_that_is_killed_leaves_the_old_store_or_the_new_one(
    tmp_path: Path, can_exchange: bool, last: int, missing: bool, found: int
) -> None:
    left = tmp_path / "left"
    store = write_store(counting(0, 3), left / "data.zarr")
    command = [sys.executable, "-c", KILLED, str(store), str(can_exchange), str(last)]
    assert subprocess.run(command, check=False, timeout=100).returncode == 9
    assert store.exists() is not missing
    assert len(list(left.iterdir())) > 1
    expected = [float(i) for i in range(found)]

    opened = shutil.copytree(left, tmp_path / "opened") / "data.zarr"
    assert is_store(opened)
    assert numbers(opened) == expected

    described = shutil.copytree(left, tmp_path / "described") / "data.zarr"
    assert describe_path(str(described)) == 0

    copied = shutil.copytree(left, tmp_path / "copied") / "data.zarr"
    ingest(copied, tmp_path / "copy.zarr")
    assert numbers(tmp_path / "copy.zarr") == expected

    grown = shutil.copytree(left, tmp_path / "grown") / "data.zarr"
    append(counting(found, found + 1), grown)
    assert numbers(grown) == [*expected, found]

    taken = shutil.copytree(left, tmp_path / "taken") / "data.zarr"
    with pytest.raises(DataError):
        write_store(counting(7, 9), taken)
    assert numbers(taken) == expected
    write_store(counting(7, 9), taken, overwrite=True)
    assert numbers(taken) == [7, 8]

    for path in (grown, taken):
        assert [item.name for item in path.parent.iterdir()] == ["data.zarr"]


@pytest.mark.parametrize("error", [OSError(errno.EIO, "failed"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("can_exchange", [True, False], ids=["swapped", "renamed"])
def test_a_step_that_fails_leaves_the_name_to_one_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool, error: BaseException
) -> None:
    root = tmp_path / "s"
    partial = new_partial(root)
    for nth in range(1, 20):
        for path in (root, partial):
            path.mkdir()
            (path / "x").write_text("old" if path == root else "new")
        n_steps = 0

        def failing(step: Callable[..., Any], nth: int = nth) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                nonlocal n_steps
                n_steps += 1
                if n_steps == nth:
                    raise error
                return step(*arguments)

            return call

        with monkeypatch.context() as patch:
            for name in ("sync", "rename"):
                patch.setattr(LocalFilesystem, name, failing(getattr(LocalFilesystem, name)))
            if not can_exchange:
                patch.setattr(LocalFilesystem, "exchange", lambda *_: False)
            try:
                replace_directory(partial, root)
            except (OSError, KeyboardInterrupt):
                assert nth == n_steps or not can_exchange
        assert (root / "x").read_text() in (("old", "new") if nth <= n_steps else ("new",))
        for path in tmp_path.iterdir():
            shutil.rmtree(path)
        if nth > n_steps:
            return
    pytest.fail("it never ended")


def kind_of_file_system(path: Path) -> str:
    """Kind of the mount on which a path is."""
    mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return max((point, kind) for point, kind in mounts if path.is_relative_to(point))[1]


def test_names_are_swapped_in_one_step_where_the_system_can(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    can = sys.platform == "linux" and kind_of_file_system(tmp_path) in (
        "btrfs", "ext4", "tmpfs", "xfs",
    )  # fmt: skip
    assert LOCAL.exchange(tmp_path / "a", tmp_path / "b") or not can
    if not can:
        pytest.skip("this system, or the file system of temporary files, cannot")
    assert (tmp_path / "a" / "b").exists()
    assert (tmp_path / "b" / "a").exists()
    assert not LOCAL.exchange(tmp_path / "a", tmp_path / "c")
    assert (tmp_path / "a").exists()


def test_a_second_writer_is_refused_and_readers_are_not(tmp_path: Path) -> None:
    store = write_store(counting(0, 3), tmp_path / "data.zarr")
    with exclusive_writer(store):
        with pytest.raises(TemporaryFailure):
            write_store(counting(5, 9), store, overwrite=True)
        assert numbers(store) == [0, 1, 2]
    write_store(counting(5, 9), store, overwrite=True)
    assert numbers(store) == [5, 6, 7, 8]


def test_a_file_system_without_locks_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(ConfigurationError):
        write_store(counting(0, 3), tmp_path / "data.zarr")
    assert not any(tmp_path.glob("*.zarr"))


def no_locks(_descriptor: int, _operation: int) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


def moved_aside(tmp_path: Path) -> tuple[Path, Path]:
    store = write_store(counting(0, 3), tmp_path / "data.zarr")
    aside = new_partial(store).with_suffix(".old")
    store.rename(aside)
    return store, aside


def test_a_reader_between_the_renames_waits_for_the_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, aside = moved_aside(tmp_path)
    aside.rename(store)
    partial = new_partial(store)
    pauses: list[float] = []

    def renamed_meanwhile(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 20:
            partial.rename(store)

    monkeypatch.setattr(replacement, "time", SimpleNamespace(sleep=renamed_meanwhile))
    with exclusive_writer(store):  # as a writer that got that far
        store.rename(aside)
        write_store(counting(5, 9), tmp_path / "other.zarr").rename(partial)
        assert numbers(store) == [5, 6, 7, 8]
    assert len(pauses) == 20
    assert min(pauses) > 0


def test_a_reader_that_may_not_rename_says_where_the_store_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, aside = moved_aside(tmp_path)

    opened = os.open

    def read_only(path: Path, flags: int, *rest: Any) -> int:
        if flags & os.O_CREAT:
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, flags, *rest)

    with monkeypatch.context() as patch:
        patch.setattr("os.open", read_only)
        with pytest.raises(DataError, match=re.escape(str(aside))):
            open_store(store)
    assert numbers(store) == [0, 1, 2]


@pytest.mark.parametrize("kind", ["damaged", "another's", "of another store"])
def test_only_a_whole_store_gets_its_name_back(
    tmp_path: Path, kind: Literal["damaged", "another's", "of another store"]
) -> None:
    store, aside = moved_aside(tmp_path)
    if kind == "damaged":
        (aside / "views" / "0" / "values" / "zarr.json").unlink()
    elif kind == "another's":
        shutil.rmtree(aside)
        aside.mkdir()
    else:
        aside = aside.rename(aside.with_name(f".other-{aside.name[1:]}"))
    recover(store)
    with pytest.raises(DataError):
        open_store(store)
    assert aside.exists()


def test_a_link_to_a_store_is_replaced_and_what_it_led_to_stays(tmp_path: Path) -> None:
    store = write_store(counting(0, 3), tmp_path / "far" / "data.zarr")
    link = tmp_path / "near" / "data.zarr"
    link.parent.mkdir()
    link.symlink_to(store)
    append(counting(3, 4), link)
    assert numbers(link) == [0, 1, 2, 3]
    assert numbers(store) == [0, 1, 2]
    assert list(link.parent.iterdir()) == [link]
