"""Directory of one run: locked, claimed, written file by file, and replaced as a whole.

`FILES` lists what it holds. RUN_DIR.next/ is a run that takes the place of the one in RUN_DIR when it has
finished. Every file but events.jsonl is written under another name, synced and renamed, so it is complete
or absent. Links in the path of a run directory are followed once, when it is locked: one driver at a time, also
after the last one was killed, by the operating system's lock of the file .lock, which ends with the process.
"""

from __future__ import annotations

import datetime as dt
import errno
import os
import re
import shlex
import shutil
import socket
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast
from urllib.parse import quote

import msgspec

from mscam_dask.data.store import filesystem
from mscam_dask.errors import ConfigurationError, DataError, StoreCorruptError, TemporaryFailure
from mscam_dask.monitor.run_record import RunRecord, decode_record, encode_record

NEXT_SUFFIX = ".next"
"""End of the name of a directory whose run replaces another one's."""

_NEXT_INSIDE = "next"
_RECORD = "run.json"
_PARTIAL = re.compile(r"\.[a-z]+\.[a-z]+\.[0-9a-f]{8}\.(partial|old)")

FILES = {
    "labels.csv": "each sample and its cluster",
    "samples.csv": "each sample: cluster, confidence, next best cluster, vote of each view",
    "samples.parquet": "the same as a Parquet file",
    "moved.csv": "samples that changed cluster since the previous run",
    "result.zarr": "labels, consensus graph, view embeddings, history, model",
    _RECORD: "this record, for programs",
    "pipeline.toml": "the settings, defaults included; runs again",
    "events.jsonl": "events with their times, one JSON record a line",
    "data.zarr": "clustered data",
}
"""Files of a run that its report lists, and what they hold. The first one is moved first."""

# Others: checkpoints are removed when the run has finished.
_OWN = (*(name for name in FILES if name != _RECORD), "metrics.prom", "report.html", "checkpoints")

_PRIVATE = 0o700


def _inside(name: str) -> Path:
    """Path of a file of a run directory, as a property."""
    return cast("Path", property(lambda directory: directory.path / name))


@dataclass(frozen=True)
class RunDirectory:
    """Paths inside a run directory, and how its files are written."""

    path: Path
    """Absolute."""
    replaced: Path | None = None
    """Directory that this one takes the place of at the end; None for itself."""
    held: RunLock | None = field(default=None, compare=False, repr=False)
    """Lock of the directory; None when it is only read."""

    # One path for each file of the module's list.
    pipeline = _inside("pipeline.toml")
    record = _inside(_RECORD)
    events = _inside("events.jsonl")
    labels = _inside("labels.csv")
    samples = _inside("samples.csv")
    moved = _inside("moved.csv")
    metrics = _inside("metrics.prom")
    data = _inside("data.zarr")
    checkpoints = _inside("checkpoints")
    result = _inside("result.zarr")
    report = _inside("report.html")

    @property
    def place(self) -> Path:
        """Path that the directory has when its run has finished."""
        return self.replaced or self.path

    def command(self, name: str) -> str:
        """Return a command on the run, as a shell reads it."""
        return f"mscam-dask {name} {shlex.quote(str(self.place))}"

    @classmethod
    @contextmanager
    def lock(cls, path: str | Path) -> Iterator[RunDirectory]:
        """Make a directory, or take one that a run made, and keep other drivers out of it."""
        root = resolved(path)
        with ExitStack() as stack:
            held = stack.enter_context(lock_directory(root, record=_RECORD, kind="a run"))
            directory = cls(root, held=held)
            directory._remove_replaced()
            following = directory.next()
            if following is not None and following.read_record().state == "finished":
                directory = directory.replace_with(stack.enter_context(directory.lock_next()))
            yield directory

    def claim(self, record: RunRecord, *, overwrite: bool) -> None:
        """Start a run here: remove the files of an earlier one. The caller holds the lock."""
        occupied = os.path.lexists(self.record)
        try:
            earlier = self.read_record() if occupied else None
        except DataError as error:
            if not (overwrite and isinstance(error, StoreCorruptError)):
                raise ConfigurationError(
                    f"{self.path} cannot be replaced: {error} Or choose another output directory (-o)."
                ) from error
            earlier = None
        if earlier is not None and not overwrite:
            is_done, killed = earlier.state == "finished", earlier.state == "running"
            how = "was killed" if killed else f"{earlier.state} at {earlier.ended}"
            remedy = "" if is_done else "continue it with mscam-dask resume, "
            raise ConfigurationError(
                f"{self.path} holds a run that {how}. Choose another output directory, {remedy}or "
                "give --overwrite to replace it."
            )
        self.write_record(record)
        self.remove_partial_files()
        if occupied:
            for name in _OWN:
                filesystem.remove(self.path / name)

    def holds_results(self) -> bool:
        """Return whether a run has finished here, or may have: its record is damaged."""
        try:
            return self.read_record().state == "finished"
        except DataError as error:
            return isinstance(error, StoreCorruptError)

    def _next_path(self) -> Path:
        """Return where the next run is written: inside a directory that cannot be renamed."""
        if os.path.ismount(self.path) or not os.access(self.path.parent, os.W_OK):
            return self.path / _NEXT_INSIDE
        return self.path.with_name(self.path.name + NEXT_SUFFIX)

    def next(self) -> RunDirectory | None:
        """Return the directory of the run that is to take this one's place; None without one."""
        path = self._next_path()
        directory = RunDirectory(path, replaced=self.path)
        with suppress(DataError, OSError):
            if directory.read_record().replaces == self.path.name and not path.is_symlink():
                return directory
        return None

    @contextmanager
    def lock_next(self) -> Iterator[RunDirectory]:
        """Make or take the directory of the run that is to take this one's place."""
        if not os.access(self.path, os.W_OK):
            raise ConfigurationError(
                f"{self.path} holds results, and this user cannot replace them: the directory is not writable. Change "
                "its permissions, or choose another output directory (-o)."
            )
        path = self._next_path()
        is_free = not path.exists() or not any(path.glob("run.json"))
        if path.is_symlink() or not (is_free or self.next() is not None):
            raise ConfigurationError(
                f"{path} is not the directory of a run that replaces {self.path}, which keeps its "
                "results until then. Move it away, or choose another output directory."
            )
        with lock_directory(path, record=_RECORD, kind="a run") as held:
            yield RunDirectory(path, replaced=self.path, held=held)

    def replace_with(self, following: RunDirectory) -> RunDirectory:
        """Give the directory of a finished run the name of this one, whose run is removed.

        Files that no run writes are kept. A mount point, and any directory where the file system cannot
        swap two names in one step, gets file after file, run.json last.
        """
        shutil.copymode(self.path, following.path)
        is_inside = following.path.parent == self.path
        is_begun = not following.labels.exists()  # maybe by a computer that cannot swap names
        if is_inside or is_begun or not filesystem.LOCAL.exchange(self.path, following.path):
            return self._move_from(following)
        filesystem.LOCAL.sync(self.path.parent)
        directory = RunDirectory(self.path, held=following.held)
        directory._remove_replaced()
        return directory

    def _move_from(self, following: RunDirectory) -> RunDirectory:
        record = msgspec.structs.replace(following.read_record(), replaces=None)
        if following.labels.exists():  # moved first, so that nothing moved is removed after a kill
            for name in _OWN:
                if not (following.path / name).exists():
                    filesystem.remove(self.path / name)
        for name in _OWN:
            if (following.path / name).exists():
                filesystem.remove(self.path / name)
                (following.path / name).replace(self.path / name)
        self.write_record(record)
        shutil.rmtree(following.path, ignore_errors=True)  # NFS keeps its lock until that is closed
        return self

    def _remove_replaced(self) -> None:
        """Remove the run that this one took the place of, also after a kill in the middle."""
        with suppress(DataError, OSError):
            record = self.read_record()
            if record.replaces != self.path.name:
                return
            old = self._next_path()
            if old.is_dir() and not old.is_symlink():
                for item in sorted(old.iterdir()):
                    if _is_own(item.name):
                        filesystem.remove(item)
                    elif not (self.path / item.name).exists():
                        item.rename(self.path / item.name)
                with suppress(OSError):  # a file of the same name is in the way
                    old.rmdir()
            self.write_record(msgspec.structs.replace(record, replaces=None))

    def check_lock(self) -> None:
        """Raise when the directory is no longer the one that was locked."""
        if self.held is not None:
            self.held.check(self.path)

    def remove_partial_files(self) -> None:
        """Remove files that a killed run was writing; no finished run has their names."""
        for item in self.path.iterdir():
            if _PARTIAL.fullmatch(item.name):
                filesystem.remove(item)

    def holds_only_own(self) -> bool:
        """Return whether everything in it was written by runs."""
        return all(_is_own(item.name) for item in self.path.iterdir())

    def remove(self, item: Path) -> None:
        """Remove one file or tree of the directory, if it is there."""
        assert item.parent == self.path
        self.check_lock()
        filesystem.remove(item)

    @contextmanager
    def append_events(self) -> Iterator[IO[bytes]]:
        """Open events.jsonl to append to; a line that a kill cut short is removed."""
        self.check_lock()
        with (
            filesystem.full_disk_is_temporary(self.events),
            os.fdopen(
                filesystem.open_regular(self.events, os.O_RDWR | os.O_CREAT | os.O_APPEND), "a+b"
            ) as stream,
        ):
            stream.seek(0)
            complete = stream.read().rfind(b"\n") + 1
            stream.truncate(complete)
            yield stream

    def write(self, file: Path, content: bytes) -> None:
        """Write one file of the directory under another name, sync it and rename it."""
        self.check_lock()
        write_whole(file, content)

    def write_record(self, record: RunRecord) -> None:
        """Write run.json."""
        self.write(self.record, encode_record(record))

    def read_record(self) -> RunRecord:
        """Read run.json of a directory whose own files are no links, pipes, sockets or devices."""
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    if _is_own(entry.name):
                        filesystem.check_entry(entry)
            content = filesystem.read_regular(self.record)
        except OSError as error:
            raise DataError(
                f"{self.path} is not a run directory: {_RECORD} cannot be read ({error.strerror}). Give "
                "the directory that mscam-dask run, compare or sweep wrote."
            ) from error
        return decode_record(content, str(self.record))


def resolved(path: str | Path) -> Path:
    """Return the directory that a path leads to, links followed."""
    absolute = Path(path).absolute()
    target = Path(os.path.realpath(absolute))
    if absolute.is_symlink() and not target.exists():
        raise ConfigurationError(
            f"{absolute} is a link to {target}, which does not exist. Make that directory (or mount "
            "its disk), or choose another output directory."
        )
    return target


@contextmanager
def lock_directory(root: Path, *, record: str, kind: str) -> Iterator[RunLock]:
    """Make a directory (mode 0700, whatever the umask), or take one that has a record, and keep other drivers out."""
    if root.exists() and not root.is_dir():
        raise ConfigurationError(
            f"{root} is a file; the output of {kind} is a directory. Choose another (-o)."
        )
    # a driver that was killed before its first record leaves no more than these
    own = re.compile(rf"{re.escape(LOCK_NAME)}|\.{re.escape(record)}\.[0-9a-f]{{8}}\.partial")
    is_taken = root.is_dir() and not os.path.lexists(root / record)
    if is_taken and not all(own.fullmatch(item.name) for item in root.iterdir()):
        raise ConfigurationError(
            f"{root} is not empty and is not the directory of {kind} (it has no {record}). Choose "
            "another output directory (-o)."
        )
    is_new = not root.exists()
    with filesystem.full_disk_is_temporary(root):
        filesystem.make_directory(root, mode=_PRIVATE)
        if is_new:
            root.chmod(_PRIVATE)
    with hold_lock(root) as held:
        yield held


def relative_url(file: Path, page: Path) -> str:
    """Return the URL of a file in a page that is written beside it or elsewhere."""
    return quote(Path(os.path.relpath(file, page.parent)).as_posix())


def write_whole(file: Path, content: bytes) -> None:
    """Write a file under another name, sync it and rename it: it is complete or absent."""
    if file.is_dir():
        raise DataError(f"{file} is a directory. Give a file name.")
    partial = file.with_name(f".{file.name}.{uuid.uuid4().hex[:8]}.partial")
    try:
        with filesystem.full_disk_is_temporary(file):
            filesystem.make_directory(file.parent)
            with partial.open("xb") as stream:
                stream.write(content)
            filesystem.LOCAL.sync(partial)
            filesystem.rename_durably(partial, file)
    finally:
        partial.unlink(missing_ok=True)


def _is_own(name: str) -> bool:
    return name in (*_OWN, _RECORD, LOCK_NAME, _NEXT_INSIDE) or bool(_PARTIAL.fullmatch(name))


# lock --------------------------------------------------------------------------------------------


LOCK_NAME = ".lock"
"""File of a run directory, with the process that locked it last; it stays when the run has ended."""

_HOLDER = re.compile(r"process \d+ on \S+, since \S+")

_REMEDY = "Put the run directory on one that has."


@dataclass
class RunLock:
    """Exclusive right to write in a run directory; child processes do not inherit it."""

    file: int | None  # descriptor; None when it was given back

    def check(self, directory: Path) -> None:
        """Refuse to write where the lock is no longer the one that is held: another process may write there."""
        if self.file is None:
            return
        with suppress(OSError):
            if os.path.samestat(os.fstat(self.file), (directory / LOCK_NAME).stat()):
                return
        raise TemporaryFailure(
            f"{directory} was moved or deleted while a run wrote in it, or its {LOCK_NAME} was removed or "
            "replaced. Move it back and resume the run; otherwise run the same command again when no other "
            "process writes there."
        )


@contextmanager
def hold_lock(directory: Path) -> Iterator[RunLock]:
    """Lock a run directory for the length of a run; refuse one that another process holds."""
    file = directory / LOCK_NAME
    with _opened(file, os.O_RDWR | os.O_CREAT) as descriptor:
        if not filesystem.take_lock(descriptor, file, remedy=_REMEDY):
            raise TemporaryFailure(_locked_message(directory))
        held = RunLock(descriptor)
        held.check(directory)
        since = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        holder = f"process {os.getpid()} on {socket.gethostname()}, since {since}"
        with suppress(OSError):  # on a full disk the lock is as good without a name
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, holder.encode(), 0)
        try:
            yield held
        finally:
            held.file = None


def is_locked(directory: Path) -> bool:
    """Return whether another driver holds a run directory; nothing in it is changed."""
    file = directory / LOCK_NAME
    with suppress(OSError, DataError, ConfigurationError), _opened(file) as descriptor:
        return not filesystem.take_lock(descriptor, file, remedy=_REMEDY, is_shared=True)
    return False  # taking it says what is wrong


@contextmanager
def _opened(file: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    """Open the file to lock; to read where writing is not allowed, as in a finished run."""
    try:
        descriptor = filesystem.open_regular(file, flags)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS) or not file.exists():
            raise
        descriptor = filesystem.open_regular(file)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _locked_message(directory: Path) -> str:
    holder = ""
    with suppress(OSError, ValueError):  # damaged, or not written yet
        holder = filesystem.read_regular(directory / LOCK_NAME).decode()
    if not _HOLDER.fullmatch(holder):
        holder = "another process"
    return (
        f"{directory} is locked by {holder}. Wait for it to finish or stop it; running the command "
        "again then resumes."
    )
