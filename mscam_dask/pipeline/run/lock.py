"""Lock of a run directory: one driver at a time, also after the last one was killed.

It is the operating system's lock of the file .lock, which ends with the process.
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
        self._file: int | None = None

    def __enter__(self) -> Self:
        file = self._directory / LOCK_NAME
        with ExitStack() as stack:
            self._file = stack.enter_context(_opened(file, os.O_RDWR | os.O_CREAT))
            if not take_lock(self._file, file, remedy=_REMEDY):
                raise TemporaryFailure(_locked_message(self._directory))
            self.check(self._directory)
            since = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
            holder = f"process {os.getpid()} on {socket.gethostname()}, since {since}"
            with suppress(OSError):  # on a full disk the lock is as good without a name
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, holder.encode(), 0)
            self._exits = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()
        self._file = None

    def check(self, directory: Path) -> None:
        """Refuse to write where the lock is no longer the one that is held: another process may write there."""
        if self._file is None:
            return
        with suppress(OSError):
            if os.path.samestat(os.fstat(self._file), (directory / LOCK_NAME).stat()):
                return
        raise TemporaryFailure(
            f"{directory} was moved or deleted while a run wrote in it, or its {LOCK_NAME} was removed or "
            "replaced. Move it back and resume the run; otherwise run the same command again when no other "
            "process writes there."
        )


def is_locked(directory: Path) -> bool:
    """Return whether another driver holds a run directory; nothing in it is changed."""
    file = directory / LOCK_NAME
    with suppress(OSError, DataError, ConfigurationError), _opened(file) as descriptor:
        return not take_lock(descriptor, file, remedy=_REMEDY, is_shared=True)
    return False  # taking it says what is wrong


@contextmanager
def _opened(file: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    """Open the file to lock; to read where writing is not allowed, as in a finished run."""
    try:
        descriptor = open_regular(file, flags)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS) or not file.exists():
            raise
        descriptor = open_regular(file)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


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
