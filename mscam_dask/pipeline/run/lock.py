"""Lock of a run directory: one driver at a time, also after the last one was killed.

The operating system's lock is taken on the file .lock and, where the file system allows it, on the
directory itself, so that removing or replacing .lock lets nobody else in. Both end with the process.
"""

from __future__ import annotations

import datetime as dt
import errno
import os
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self

from mscam_dask.data.store.filesystem import open_regular, read_regular, take_lock
from mscam_dask.errors import ConfigurationError, DataError, TemporaryFailure

LOCK_NAME = ".lock"
"""File of a run directory, with the process that locked it last; it stays when the run has ended."""

_HOLDER = re.compile(r"process \d+ on \S+, since \S+")

_REMEDY = "Put the run directory on one that has."


class RunLock:
    """Exclusive right to write in a run directory, for the length of a run; child processes do not inherit it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._exits = ExitStack()
        self._root: int | None = None
        self._file: int | None = None  # None where locking the directory is enough

    def __enter__(self) -> Self:
        root, file = self._directory, self._directory / LOCK_NAME
        with ExitStack() as stack:
            self._root = stack.enter_context(_opened(root))
            is_free = _lock_directory(self._root, root)
            descriptor = None if is_free is False else stack.enter_context(_opened(file))
            if descriptor is None or not take_lock(descriptor, file, remedy=_REMEDY):
                raise TemporaryFailure(_locked_message(root))
            self._file = descriptor if is_free is None else None
            self.check(root)
            since = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
            holder = f"process {os.getpid()} on {socket.gethostname()}, since {since}"
            with suppress(OSError):  # on a full disk the lock is as good without a name
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, holder.encode(), 0)
            self._exits = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()
        self._root = None

    def check(self, directory: Path) -> None:
        """Refuse to write in a directory that is no longer the locked one."""
        if self._root is None:
            return
        if not _is_at(self._root, directory):
            raise TemporaryFailure(
                f"{directory} was moved or deleted while a run wrote in it. Move it back and "
                "resume the run, or run the same command again."
            )
        if self._file is not None and not _is_at(self._file, directory / LOCK_NAME):
            raise TemporaryFailure(
                f"{directory / LOCK_NAME} was removed or replaced while a run held it, so another "
                "process may write there. Run the same command again when none does."
            )


def is_locked(directory: Path) -> bool:
    """Return whether another driver holds a run directory; nothing in it is changed."""
    for path in (directory / LOCK_NAME, directory):
        with (  # taking it says what is wrong
            suppress(OSError, DataError, ConfigurationError),
            _opened(path, os.O_RDONLY) as descriptor,
        ):
            if not take_lock(descriptor, path, remedy=_REMEDY, is_shared=True):
                return True
    return False


@contextmanager
def _opened(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> Iterator[int]:
    """Open a directory, or a file to lock: to read where writing is not allowed, as in a finished run."""
    if path.name != LOCK_NAME:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    else:
        try:
            descriptor = open_regular(path, flags)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS) or not path.exists():
                raise
            descriptor = open_regular(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _lock_directory(descriptor: int, path: Path) -> bool | None:
    """Lock a directory itself; None where the file system cannot (NFS)."""
    try:
        return take_lock(descriptor, path, remedy=_REMEDY)
    except (OSError, ConfigurationError):
        return None


def _is_at(descriptor: int, path: Path) -> bool:
    """Return whether a path leads to the open file or directory."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _locked_message(directory: Path) -> str:
    by = ""
    with suppress(OSError, ValueError):  # damaged, or not written yet
        by = read_regular(directory / LOCK_NAME).decode()
    if not _HOLDER.fullmatch(by):
        by = "another process"
    return (
        f"{directory} is locked by {by}. Wait for it to finish or stop it; running the command "
        "again then resumes."
    )
