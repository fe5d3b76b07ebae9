"""A disk in memory that forgets what was not synced, filled from the changes of a real directory."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from mscam_dask.data.store.filesystem import LocalFilesystem

Loss = Literal["nothing", "contents", "everything", "some"]

_ROOT = Path("/")
_WRITING = os.O_WRONLY | os.O_RDWR


# -- the disk ----------------------------------------------------------------------------------


@dataclass(eq=False)
class _File:
    content: bytes = b""
    on_disk: bytes = b""


@dataclass(eq=False)
class _Directory:
    entries: dict[str, _File | _Directory] = field(default_factory=dict)
    on_disk: dict[str, _File | _Directory] = field(default_factory=dict)
    since_sync: list[dict[str, _File | _Directory]] = field(default_factory=list)


class MemoryDisk:
    """Files that know what is on the disk: a content after its file was synced, a name after its directory was."""

    def __init__(self, root: _Directory | None = None) -> None:
        self.root = root or _Directory()

    @classmethod
    def of(cls, root: Path) -> MemoryDisk:
        """The files of a directory, all of them synced."""
        disk = cls()
        for path in sorted(root.rglob("*")):
            inside = _ROOT / path.relative_to(root)
            if path.is_dir():
                disk.mkdir(inside)
            else:
                disk.write(inside, path.read_bytes())
        return disk.after_power_cut("nothing")

    def after_changes(self, changes: Sequence[Change]) -> MemoryDisk:
        """A copy after these changes, which still knows what was synced."""
        disk = self.after_power_cut("nothing")
        for name, *arguments in changes:
            getattr(disk, name)(*arguments)
        return disk

    def after_power_cut(self, loss: Loss, *, seed: int = 0) -> MemoryDisk:
        """The disk as the next process finds it.

        Parameters
        ----------
        loss
            What of all that was not synced is gone: "nothing" (the process was killed, the
            computer runs on), "contents" (names are there, files are empty), "everything", or
            "some": each file is as before, torn or written, and each directory has any first
            few of its changes, so that changes of different directories are reordered.
        seed
            Of "some".
        """
        rng = np.random.default_rng(seed)

        def kept(node: Any) -> Any:
            if isinstance(node, _File):
                content = node.content if loss == "nothing" else node.on_disk
                if loss == "some":
                    torn = node.content[: (len(node.on_disk) + len(node.content)) // 2]
                    content = (node.on_disk, torn, node.content)[rng.integers(3)]
                return _File(content, content)
            names = node.on_disk if loss == "everything" else node.entries
            if loss == "some":
                states = [node.on_disk, *node.since_sync]
                names = states[rng.integers(len(states))]
            entries = {name: kept(child) for name, child in names.items()}
            return _Directory(entries, dict(entries))

        return MemoryDisk(kept(self.root))

    def files(self) -> dict[Path, bytes | None]:
        """Contents by path; None for a directory, which comes before its files."""
        found: dict[Path, bytes | None] = {}

        def visit(path: Path, node: _Directory) -> None:
            for name, child in sorted(node.entries.items()):
                found[path / name] = child.content if isinstance(child, _File) else None
                if isinstance(child, _Directory):
                    visit(path / name, child)

        visit(_ROOT, self.root)
        return found

    def restore(self, root: Path) -> None:
        """Make a directory hold these files, and nothing else."""
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(mode=0o700)
        for path, content in self.files().items():
            real = root / path.relative_to(_ROOT)
            if content is None:
                real.mkdir(mode=0o700)
            else:
                real.write_bytes(content)

    def mkdir(self, path: Path) -> None:
        if path.name not in self._directory(path.parent).entries:  # another thread made it first
            self._enter(path, _Directory())

    def write(self, path: Path, content: bytes) -> None:
        if path.name not in self._directory(path.parent).entries:
            self._enter(path, _File())
        node = self._node(path)
        assert isinstance(node, _File)
        node.content = content

    def sync(self, path: Path) -> None:
        node = self._node(path)
        if isinstance(node, _File):
            node.on_disk = node.content
        else:
            node.on_disk = dict(node.entries)
            node.since_sync.clear()

    def link(self, source: Path, target: Path) -> None:
        if target.name not in self._directory(target.parent).entries:  # else it failed
            self._enter(target, self._node(source))

    def rename(self, source: Path, target: Path) -> None:
        node, old = self._node(source), self._directory(source.parent)
        del old.entries[source.name]
        self._enter(target, node)
        if source.parent != target.parent:
            old.since_sync.append(dict(old.entries))

    def exchange(self, first: Path, second: Path) -> None:
        entries = self._directory(first.parent).entries
        entries[first.name], entries[second.name] = entries[second.name], entries[first.name]
        self._enter(first, entries[first.name])

    def remove(self, path: Path) -> None:
        parent = self._directory(path.parent)
        del parent.entries[path.name]
        parent.since_sync.append(dict(parent.entries))

    def _enter(self, path: Path, node: _File | _Directory) -> None:
        parent = self._directory(path.parent)
        parent.entries[path.name] = node
        parent.since_sync.append(dict(parent.entries))

    def _node(self, path: Path) -> _File | _Directory:
        node: _File | _Directory = self.root
        for part in path.parts[1:]:
            assert isinstance(node, _Directory)
            node = node.entries[part]
        return node

    def _directory(self, path: Path) -> _Directory:
        """A directory, made if another thread makes it at the same moment."""
        node = self.root
        for part in path.parts[1:]:
            if part not in node.entries:
                node.entries[part] = _Directory()
                node.since_sync.append(dict(node.entries))
            child = node.entries[part]
            assert isinstance(child, _Directory)
            node = child
        return node


# -- changes of a real directory ---------------------------------------------------------------


_active: list[_Trace | _Failing] = []
"""Told of each audit event before it happens (`see`) and of each sync afterwards (`synced`)."""

_hooks: list[str] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _active and (event == "open" or event.startswith("os.")):
        _active[-1].see(event, arguments)


@contextmanager
def _observed(observer: _Trace | _Failing) -> Iterator[None]:
    if not _hooks:
        sys.addaudithook(_audit)  # for the rest of the process
        _hooks.append("added")
    fsync = os.fsync

    def observed_fsync(descriptor: int) -> None:
        fsync(descriptor)
        observer.synced(Path(f"/proc/self/fd/{descriptor}").readlink())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", observed_fsync)
        _active.append(observer)
        try:
            yield
        finally:
            _active.remove(observer)


Change = tuple[Any, ...]
"""Name of a method of `MemoryDisk`, and its arguments."""

_REMOVALS = ("os.remove", "os.rmdir")


class _Trace:
    """Changes below a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.changes: list[Change] = []
        self._written: dict[Path, bytes | None] = {}
        self._lock = threading.RLock()
        self._is_busy = False

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """False where an event is caused by reading files here."""
        with self._lock:
            is_first, self._is_busy = not self._is_busy, True
            try:
                yield is_first
            finally:
                self._is_busy = not is_first

    def see(self, event: str, arguments: tuple[Any, ...]) -> None:
        with self._alone() as is_first:
            if is_first:
                self._record(event, arguments)

    def synced(self, path: Path) -> None:
        with self._alone():
            inside = self._inside(path)
            if inside is not None:
                self.note_contents()
                self.changes.append(("sync", inside))

    def exchanged(self, first: Path, second: Path) -> None:
        one, other = self._inside(first), self._inside(second)
        self._move({one: other, other: one})
        self.changes.append(("exchange", one, other))

    def _move(self, targets: dict[Path, Path]) -> None:
        """Follow open files to their new paths."""

        def moved(path: Path) -> Path:
            for source, target in targets.items():
                if path.is_relative_to(source):
                    return target / path.relative_to(source)
            return path

        self._written = {moved(path): content for path, content in self._written.items()}

    def note_contents(self) -> None:
        """Record what was written to open files since the last time."""
        for path, before in list(self._written.items()):
            with suppress(OSError):
                content = self._real(path).read_bytes()
                if content != before:
                    self._written[path] = content
                    self.changes.append(("write", path, content))

    def _record(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            inside = self._inside(path) if isinstance(path, str | bytes | os.PathLike) else None
            if inside is not None and flags & _WRITING:
                self._written.setdefault(inside, None)
        elif event in ("os.rename", "os.link"):
            source = self._inside(arguments[0], arguments[2])
            target = self._inside(arguments[1], arguments[3])
            if source is not None and target is not None and self._real(source).exists():
                self.note_contents()
                self.changes.append((event[3:], source, target))
                if event == "os.rename" and self._written.pop(source, None) is None:
                    self._move({source: target})  # else the file is complete
        elif event == "os.mkdir" or event in _REMOVALS:
            path = self._inside(arguments[0], arguments[-1])
            if path is not None and os.path.lexists(self._real(path)) == (event in _REMOVALS):
                self.note_contents()
                self.changes.append(("remove" if event in _REMOVALS else "mkdir", path))
                self._written.pop(path, None)

    def _real(self, path: Path) -> Path:
        return self.root / path.relative_to(_ROOT)

    def _inside(self, path: Any, descriptor: int = -1) -> Path | None:
        """The path below the root, as of a disk of its own; None for others."""
        given = os.fsdecode(path)
        if descriptor >= 0:
            given = str(Path(f"/proc/self/fd/{descriptor}").readlink() / given)
        absolute = Path(os.path.abspath(given))  # noqa: PTH100  # links are not followed
        if not absolute.is_relative_to(self.root):
            return None
        return _ROOT / absolute.relative_to(self.root)


LOSSES: tuple[tuple[Loss, int], ...] = (
    ("nothing", 0), ("contents", 0), ("everything", 0), ("some", 0), ("some", 1), ("some", 2),
)  # fmt: skip


@dataclass
class Traced:
    """Changes to a directory `root`, which `cuts` fills again and again, and its files before them."""

    root: Path
    before: MemoryDisk
    changes: list[Change]

    def cuts(self, *, most: int | None = None, kills: bool = False) -> Iterator[str]:
        """Fill the directory as a power cut leaves it after each change; yield which one it was.

        At most `most` cuts, around renames, are made. After kills nothing is lost.
        """
        ends = list(range(len(self.changes) + 1))
        cases = [(end, *loss) for end in ends for loss in LOSSES[: 1 if kills else None]]
        if most is not None:
            names = [change[0] for change in self.changes]
            telling = {"rename", "exchange", "remove"}
            cases = [
                case for case in cases if telling & set(names[max(0, case[0] - 2) : case[0] + 1])
            ]
            cases = [cases[index] for index in np.linspace(0, len(cases) - 1, most).astype(int)]
        for end, loss, seed in cases:
            disk = self.before.after_changes(self.changes[:end])
            disk.after_power_cut(loss, seed=10 * end + seed).restore(self.root)
            last = self.changes[end - 1][:2] if end else "nothing"
            yield f"{loss} {seed} lost after change {end} of {ends[-1]}, {last}"

    def synced(self) -> None:
        """Fill the directory with what is on the disk after all changes."""
        self.before.after_changes(self.changes).after_power_cut("everything").restore(self.root)


def traced(root: Path, change: Callable[[], object], *, can_exchange: bool = True) -> Traced:
    """Record the changes that a function makes below a directory, in this process.

    With `can_exchange=False` the disk exchanges no names, as some file systems do not.
    """
    before, trace = MemoryDisk.of(root), _Trace(root)
    exchange = LocalFilesystem.exchange

    def recorded(self: LocalFilesystem, first: Path, second: Path) -> bool:
        trace.note_contents()
        done = can_exchange and exchange(self, first, second)
        if done:
            trace.exchanged(first, second)
        return done

    with _observed(trace), pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalFilesystem, "exchange", recorded)
        change()
    trace.note_contents()
    after, real = before.after_changes(trace.changes).files(), MemoryDisk.of(root).files()
    differs = [path for path in after.keys() | real.keys() if after.get(path) != real.get(path)]
    assert differs == [], f"the trace is not whole: {differs}"
    return Traced(root, before, trace.changes)


class _Failing:
    """Changes below a directory, of which the n-th fails once; n counts from 1."""

    def __init__(self, root: Path, nth: int, error: int) -> None:
        self.root, self.nth, self.error = str(root), nth, error
        self.n_changes = 0

    def see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("os.mkdir", "os.rename", *_REMOVALS) or (
            event == "open" and arguments[2] & _WRITING
        ):
            self.synced(arguments[0])

    def synced(self, path: object) -> None:
        if isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self.root):
            self.n_changes += 1
            if self.n_changes == self.nth:
                raise OSError(self.error, os.strerror(self.error), str(path))


@contextmanager
def failing(root: Path, nth: int, error: int = errno.EIO) -> Iterator[_Failing]:
    """Let the n-th change below a directory fail; 0 for none."""
    observer = _Failing(root, nth, error)
    with _observed(observer):
        yield observer
