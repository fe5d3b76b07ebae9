"""One driver at a time in a run directory, also when the last one was killed.

The lock is the operating system's, on a file that the driver holds open: it is gone the moment
the process is, however it ended, so there is no stale lock to judge or to remove. What the file
says is for people.
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

from mscam_dask.data.store.filesystem import take_lock
from mscam_dask.errors import ConfigurationError, TemporaryFailure

__all__ = ["LOCK_NAME", "LockHolder", "RunLock", "is_locked", "raise_if_locked"]

LOCK_NAME = ".lock"
"""File of a run directory; it stays when the run has ended."""

_REMEDY = "Put the run directory on one that has."


class LockHolder(Struct, frozen=True, kw_only=True):
    """Who took a lock last.

    Attributes
    ----------
    host
        Name of the computer.
    pid
        Process there.
    since
        Time (UTC).
    """

    host: str
    pid: int
    since: str


class RunLock:
    """Exclusive right to write in a run directory; entered for the length of a run.

    Parameters
    ----------
    directory
        Of the run; it exists.

    Raises
    ------
    TemporaryFailure
        On entering, at once, when another process holds the lock; says which.
    ConfigurationError
        On entering, when the file system has no locks.

    Notes
    -----
    Child processes do not inherit it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        file = self._directory / LOCK_NAME
        descriptor = _opened(file)
        try:
            if not take_lock(descriptor, file, remedy=_REMEDY):
                raise TemporaryFailure(_held(self._directory))
            _write(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _opened(file: Path) -> int:
    """Descriptor to lock; for reading alone where no more is allowed: the run may be finished."""
    try:
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        with contextlib.suppress(OSError):
            return os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        raise


def raise_if_locked(directory: Path) -> None:
    """Refuse a run directory that another driver holds, before anything large is imported.

    Parameters
    ----------
    directory
        May be missing; nothing in it is changed. The lock still has to be taken afterwards.

    Raises
    ------
    TemporaryFailure
        Saying who holds it.
    """
    if is_locked(directory):
        raise TemporaryFailure(_held(directory))


def is_locked(directory: Path) -> bool:
    """Tell whether another driver holds a run directory; nothing in it is changed."""
    file = directory / LOCK_NAME
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        with contextlib.suppress(OSError, ConfigurationError):  # taking it to write says why
            return not take_lock(descriptor, file, remedy=_REMEDY, is_shared=True)
    finally:
        os.close(descriptor)
    return False


def _write(descriptor: int) -> None:
    holder = LockHolder(
        host=socket.gethostname(),
        pid=os.getpid(),
        since=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
    )
    with contextlib.suppress(OSError):  # on a full disk the lock is as good without a name
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, msgspec.json.encode(holder), 0)


def _held(directory: Path) -> str:
    try:
        holder = msgspec.json.decode((directory / LOCK_NAME).read_bytes(), type=LockHolder)
    except (OSError, msgspec.DecodeError):  # between the lock and what is written in it
        by = "another process"
    else:
        by = f"process {holder.pid} on {holder.host}, since {holder.since}"
    return (
        f"What runs in {directory} is still going on: it is held by {by}. Wait for it, or end that "
        "process; the command that began it then goes on from there."
    )
