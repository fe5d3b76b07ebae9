"""Changes to a real directory as they happen, and the directory as a power cut may leave it."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mscam_dask.data.store.filesystem import LocalFilesystem
from tests.faults.memory_disk import MemoryDisk

__all__ = ["Change", "after_changes", "restore", "tracing"]

Change = tuple[Any, ...]
"""Name of a method of `MemoryDisk`, and its arguments."""

_ROOT = Path("/")
_WRITING = os.O_WRONLY | os.O_RDWR


class _Trace:
    """Changes below a directory, from Python's audit events and calls of fsync."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.changes: list[Change] = []
        self._written: dict[Path, bytes | None] = {}
        self._lock = threading.RLock()
        self._is_busy = False

    def see(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Record an event, which comes before what it tells of."""
        with self._lock:
            if self._is_busy:
                return  # caused by reading files here
            self._is_busy = True
            try:
                self._record(event, arguments)
            finally:
                self._is_busy = False

    def synced(self, descriptor: int) -> None:
        with self._lock:
            self._is_busy = True
            path = self._inside(f"/proc/self/fd/{descriptor}")
            if path is not None:
                self.note_contents()
                self.changes.append(("sync", path))
            self._is_busy = False

    def exchanged(self, first: Path, second: Path) -> None:
        one, other = self._inside(first), self._inside(second)
        assert one is not None
        assert other is not None
        self._move({one: other, other: one})
        self.changes.append(("exchange", one, other))

    def _move(self, targets: dict[Path, Path]) -> None:
        """Follow open files to their new paths."""
        written = {}
        for path, content in self._written.items():
            for source, target in targets.items():
                if path.is_relative_to(source):
                    path = target / path.relative_to(source)  # noqa: PLW2901
                    break
            written[path] = content
        self._written = written

    def note_contents(self) -> None:
        """Record what was written to open files since the last time."""
        for path, before in list(self._written.items()):
            try:
                content = self._real(path).read_bytes()
            except OSError:
                continue
            if content != before:
                self._written[path] = content
                self.changes.append(("write", path, content))

    def _record(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            inside = self._inside(path) if isinstance(path, str | bytes | os.PathLike) else None
            if inside is not None and flags & _WRITING:
                self._written.setdefault(inside, None)
            return
        if event in ("os.rename", "os.link"):
            source, target = (
                self._inside(*pair) for pair in zip(arguments[:2], arguments[2:4], strict=True)
            )
            if source is not None and target is not None and self._real(source).exists():
                self.note_contents()
                self.changes.append((event[3:], source, target))
                if source in self._written and event == "os.rename":
                    del self._written[source]  # complete
                elif event == "os.rename":
                    self._move({source: target})
            return
        name = {"os.mkdir": "mkdir", "os.remove": "unlink", "os.rmdir": "rmdir"}.get(event)
        if name is None:
            return
        path = self._inside(arguments[0], arguments[-1])
        if path is not None and self._can_be_done(name, self._real(path)):
            self.note_contents()
            self.changes.append((name, path))
            self._written.pop(path, None)

    @staticmethod
    def _can_be_done(name: str, path: Path) -> bool:
        if name == "mkdir":
            return path.parent.is_dir() and not os.path.lexists(path)
        return os.path.lexists(path)

    def _real(self, path: Path) -> Path:
        return self.root / path.relative_to(_ROOT)

    def _inside(self, path: Any, descriptor: int = -1) -> Path | None:
        """The path below the root, as of a disk of its own; None for others."""
        given = os.fsdecode(path)
        if given.startswith("/proc/self/fd/"):
            given = str(Path(given).readlink())
        elif descriptor >= 0:
            given = str(Path(f"/proc/self/fd/{descriptor}").readlink() / given)
        absolute = Path(os.path.abspath(given))  # noqa: PTH100  # links are not followed
        return (
            _ROOT / absolute.relative_to(self.root) if absolute.is_relative_to(self.root) else None
        )


_active: list[_Trace] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _active and (event == "open" or event.startswith("os.")):
        _active[-1].see(event, arguments)


_hooks: list[str] = []


@contextmanager
def tracing(root: Path) -> Iterator[list[Change]]:
    """Record the changes below a directory, in this process."""
    if not _hooks:
        sys.addaudithook(_audit)  # for the rest of the process
        _hooks.append("added")
    trace = _Trace(root)
    fsync, exchange = os.fsync, LocalFilesystem.exchange

    def recorded_fsync(descriptor: int) -> None:
        fsync(descriptor)
        trace.synced(descriptor)

    def recorded_exchange(self: LocalFilesystem, first: Path, second: Path) -> bool:
        trace.note_contents()
        done = exchange(self, first, second)
        if done:
            trace.exchanged(first, second)
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", recorded_fsync)
        patch.setattr(LocalFilesystem, "exchange", recorded_exchange)
        _active.append(trace)
        try:
            yield trace.changes
        finally:
            _active.remove(trace)
            trace.note_contents()


def on_disk(root: Path) -> MemoryDisk:
    """A disk with the files of a directory, all of them synced."""
    disk = MemoryDisk()
    for path in sorted(root.rglob("*")):
        inside = _ROOT / path.relative_to(root)
        if path.is_dir():
            disk.mkdir(inside)
        else:
            disk.write(inside, path.read_bytes())
    return disk.copy()


def after_changes(before: MemoryDisk, changes: Sequence[Change]) -> MemoryDisk:
    """The disk after these changes, which still knows what was synced."""
    disk = before.copy()
    for name, *arguments in changes:
        made = {"mkdir": 0, "link": 1}.get(name)
        if made is not None and arguments[made].name in disk.names(arguments[made].parent):
            continue  # another thread made it first
        if name in ("mkdir", "write"):
            _make_missing(disk, arguments[0].parent)  # by another thread, at the same moment
        getattr(disk, name)(*arguments)
    return disk


def _make_missing(disk: MemoryDisk, path: Path) -> None:
    if not disk.is_directory(path):
        _make_missing(disk, path.parent)
        disk.mkdir(path)


def restore(disk: MemoryDisk, root: Path) -> None:
    """Make a directory hold the files of a disk, and nothing else."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(mode=0o700)

    def write(path: Path) -> None:
        for name in disk.names(path):
            inside = path / name
            real = root / inside.relative_to(_ROOT)
            if disk.is_directory(inside):
                real.mkdir(mode=0o700)
                write(inside)
            else:
                real.write_bytes(disk.read(inside))

    write(_ROOT)
