"""One directory for another: whatever ends the writer, the old store or the new one is found."""

from __future__ import annotations

import errno
import itertools
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from mscam_dask.cli.commands import describe_path
from mscam_dask.data.ingest import append, ingest
from mscam_dask.data.store import atomic_replace as replacement
from mscam_dask.data.store.atomic_replace import (
    exclusive_writer,
    new_partial,
    recover,
    replace_directory,
)
from mscam_dask.data.store.dataset import is_store, open_store, write_store
from mscam_dask.data.store.filesystem import LOCAL, LocalFilesystem
from mscam_dask.errors import DataError, TemporaryFailure
from tests.data.stores import counting, numbers
from tests.faults.memory_disk import failing


def moved_aside(folder: Path) -> tuple[Path, Path]:
    """A store that a killed writer moved aside, and its present name."""
    store = write_store(counting(0, 3), folder / "data.zarr")
    aside = new_partial(store).with_suffix(".old")
    store.rename(aside)
    return store, aside


@pytest.mark.parametrize("moment", ["moved aside", "half removed"])
def test_what_a_killed_writer_left_is_repaired_by_every_way_in(tmp_path: Path, moment: str) -> None:
    left = tmp_path / "left"
    store, aside = moved_aside(left)
    if moment == "half removed":
        aside.rename(store)
        shutil.copytree(store / "views", new_partial(store))

    opened = shutil.copytree(left, tmp_path / "opened") / "data.zarr"
    assert is_store(opened)
    assert numbers(opened) == [0, 1, 2]

    described = shutil.copytree(left, tmp_path / "described") / "data.zarr"
    assert describe_path(str(described)) == 0

    copied = shutil.copytree(left, tmp_path / "copied") / "data.zarr"
    ingest(copied, tmp_path / "copy.zarr")
    assert numbers(tmp_path / "copy.zarr") == [0, 1, 2]

    grown = shutil.copytree(left, tmp_path / "grown") / "data.zarr"
    append(counting(3, 4), grown)
    assert numbers(grown) == [0, 1, 2, 3]

    taken = shutil.copytree(left, tmp_path / "taken") / "data.zarr"
    with pytest.raises(DataError):
        write_store(counting(7, 9), taken)
    assert numbers(taken) == [0, 1, 2]
    write_store(counting(7, 9), taken, overwrite=True)
    assert numbers(taken) == [7, 8]

    for path in (grown, taken):
        assert [item.name for item in path.parent.iterdir()] == ["data.zarr"]


@pytest.mark.parametrize("can_exchange", [True, False], ids=["swapped", "renamed"])
def test_a_step_that_fails_leaves_the_name_to_one_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool
) -> None:
    if not can_exchange:
        monkeypatch.setattr(LocalFilesystem, "exchange", lambda *_: False)
    root = tmp_path / "d" / "s"
    partial = new_partial(root)
    for nth in itertools.count(1):
        for path, text in ((root, "old"), (partial, "new")):
            path.mkdir(parents=True)
            (path / "x").write_text(text)
        with failing(root.parent, nth) as counted, suppress(OSError):
            replace_directory(partial, root)
        is_done = counted.n_changes < nth
        assert (root / "x").read_text() in (("new",) if is_done else ("old", "new"))
        if is_done:
            return
        shutil.rmtree(root.parent)


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


def test_a_reader_that_looks_just_before_the_first_rename_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = write_store(counting(0, 3), tmp_path / "data.zarr")
    listed = Path.iterdir

    def moved_after(folder: Path) -> Iterator[Path]:
        found = [*listed(folder)]
        if folder == tmp_path and store.exists():
            store.rename(new_partial(store).with_suffix(".old"))
        return iter(found)

    monkeypatch.setattr(Path, "iterdir", moved_after)
    assert numbers(store) == [0, 1, 2]


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
