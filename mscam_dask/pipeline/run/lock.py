"""Lock of a run directory: one driver at a time, also after the last one was killed.

The operating system's lock is taken on the file .lock and, where the file system allows it, on the
directory itself, so that removing or replacing .lock lets nobody else in. Both end with the process.
The content of .lock is for people.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import os
import socket
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from msgspec import Struct

from mscam_dask.data.store.filesystem import open_regular, read_regular, take_lock
from mscam_dask.errors import ConfigurationError, DataError, TemporaryFailure

LOCK_NAME = ".lock"
"""File of a run directory; it stays when the run has ended."""

_REMEDY = "Put the run directory on one that has."


class LockHolder(Struct, frozen=True, kw_only=True):
    """Process that took a lock last."""

    host: str
    """Name of the computer."""
    pid: int
    """Process id there."""
    since: str
    """Time (UTC)."""


class RunLock:
    """Exclusive right to write in a run directory, for the length of a run; child processes do not inherit it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file: int | None = None
        self._root: int | None = None
        self._locks_root = False

    def __enter__(self) -> Self:
        try:
            self._root = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
            is_free = _lock_directory(self._root, self._directory, is_shared=False)
            if is_free is False:
                raise TemporaryFailure(_locked_message(self._directory))
            self._locks_root = is_free is True
            file = self._directory / LOCK_NAME
            self._file = _opened(file)
            if not take_lock(self._file, file, remedy=_REMEDY):
                raise TemporaryFailure(_locked_message(self._directory))
            self.check(self._directory)
            _write_holder(self._file)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def check(self, directory: Path) -> None:
        """Refuse to write in a directory that is no longer the locked one."""
        if self._root is None or self._file is None:
            return
        if not _is_at(self._root, directory):
            raise TemporaryFailure(
                f"{directory} was moved or deleted while a run wrote in it. Move it back and "
                "resume the run, or run the same command again."
            )
        if not self._locks_root and not _is_at(self._file, directory / LOCK_NAME):
            raise TemporaryFailure(
                f"{directory / LOCK_NAME} was removed or replaced while a run held it, so another "
                "process may write there. Run the same command again when none does."
            )

    def _close(self) -> None:
        for descriptor in (self._file, self._root):
            if descriptor is not None:
                os.close(descriptor)
        self._file = self._root = None


def is_locked(directory: Path) -> bool:
    """Return whether another driver holds a run directory; nothing in it is changed."""
    for path in (directory / LOCK_NAME, directory):
        try:
            descriptor = (
                os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                if path == directory
                else open_regular(path)
            )
        except (OSError, DataError):
            continue
        try:
            with contextlib.suppress(OSError, ConfigurationError):  # taking it says why
                if path == directory:
                    if _lock_directory(descriptor, path, is_shared=True) is False:
                        return True
                elif not take_lock(descriptor, path, remedy=_REMEDY, is_shared=True):
                    return True
        finally:
            os.close(descriptor)
    return False


def _lock_directory(descriptor: int, path: Path, *, is_shared: bool) -> bool | None:
    """Lock a directory itself; None where the file system cannot (NFS)."""
    try:
        return take_lock(descriptor, path, remedy=_REMEDY, is_shared=is_shared)
    except (OSError, ConfigurationError):
        return None


def _is_at(descriptor: int, path: Path) -> bool:
    """Return whether a path leads to the open file or directory."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _opened(file: Path) -> int:
    """Return a descriptor to lock; read-only where writing is not allowed, as for a finished run."""
    try:
        return open_regular(file, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        with contextlib.suppress(OSError):
            return open_regular(file)
        raise


def _write_holder(descriptor: int) -> None:
    holder = LockHolder(
        host=socket.gethostname(),
        pid=os.getpid(),
        since=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
    )
    with contextlib.suppress(OSError):  # on a full disk the lock is as good without a name
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, msgspec.json.encode(holder), 0)


def _locked_message(directory: Path) -> str:
    try:
        holder = msgspec.json.decode(read_regular(directory / LOCK_NAME), type=LockHolder)
    except (OSError, ValueError, msgspec.DecodeError):  # damaged, or not written yet
        by = "another process"
    else:
        by = f"process {holder.pid} on {holder.host}, since {holder.since}"
    return (
        f"{directory} is locked by {by}. Wait for it to finish or stop it; running the command "
        "again then resumes."
    )
