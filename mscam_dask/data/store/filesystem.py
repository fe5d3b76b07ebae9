"""File operations for durable writing.

Code whose files must survive a kill or a full disk takes a `Files`: `LOCAL`, and in tests one whose
n-th operation fails or that loses data that were not synced.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from mscam_dask.errors import ConfigurationError, TemporaryFailure

__all__ = [
    "LOCAL",
    "Files",
    "LocalFilesystem",
    "failures_are_typed",
    "full_disk_is_temporary",
    "remove_tree",
    "rename_durably",
    "sync_tree",
    "take_lock",
    "unlink_quietly",
    "write_durably",
]

# Why there is no room, and what to do, by the number of the system's error.
_FULL = ("the disk is full, or the quota used up", "Make room")
_TOO_LARGE = ("a file would be larger than the limit of this process", "Raise it (ulimit -f)")
_NO_ROOM = {errno.ENOSPC: _FULL, errno.EDQUOT: _FULL, errno.EFBIG: _TOO_LARGE}

# Of Linux's renameat2(2): paths are relative to the working directory; swap both names.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


class Files(Protocol):
    """A file system; every operation raises OSError when it cannot be done."""

    def mkdir(self, path: Path) -> None:
        """Make a directory whose parent exists."""
        ...

    def write(self, path: Path, content: bytes) -> None:
        """Write a whole file; it may be left cut short when this fails."""
        ...

    def sync(self, path: Path) -> None:
        """Wait until a file's content, or a directory's entries, are on the disk."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Give a file or directory a new name; a file of that name is replaced."""
        ...

    def exchange(self, first: Path, second: Path) -> bool:
        """Swap two names in one step; False, and nothing is done, where that cannot be."""
        ...

    def unlink(self, path: Path) -> None:
        """Remove a file or a link."""
        ...

    def rmdir(self, path: Path) -> None:
        """Remove an empty directory."""
        ...

    def read(self, path: Path) -> bytes:
        """Content of a file."""
        ...

    def names(self, path: Path) -> list[str]:
        """Entries of a directory, sorted; none when there is no such directory."""
        ...

    def is_directory(self, path: Path) -> bool:
        """Whether there is a directory of that name, and not a link to one."""
        ...


class LocalFilesystem:
    """Files of the operating system; see `Files`."""

    def mkdir(self, path: Path) -> None:
        """See `Files.mkdir`."""
        path.mkdir()

    def write(self, path: Path, content: bytes) -> None:
        """See `Files.write`."""
        path.write_bytes(content)

    def sync(self, path: Path) -> None:
        """See `Files.sync`."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """See `Files.rename`."""
        source.replace(target)

    def exchange(self, first: Path, second: Path) -> bool:
        """See `Files.exchange`: on Linux, where the file system can (ext4, XFS, Btrfs, not NFS)."""
        if sys.platform != "linux":
            return False
        renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)  # glibc 2.28 and later
        if renameat2 is None:
            return False
        renameat2.argtypes = (
            ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint,
        )  # fmt: skip
        names = os.fsencode(first), os.fsencode(second)
        return bool(renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0)

    def unlink(self, path: Path) -> None:
        """See `Files.unlink`."""
        path.unlink()

    def rmdir(self, path: Path) -> None:
        """See `Files.rmdir`."""
        path.rmdir()

    def read(self, path: Path) -> bytes:
        """See `Files.read`."""
        return path.read_bytes()

    def names(self, path: Path) -> list[str]:
        """See `Files.names`."""
        try:
            return sorted(item.name for item in path.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def is_directory(self, path: Path) -> bool:
        """See `Files.is_directory`."""
        return path.is_dir() and not path.is_symlink()


LOCAL = LocalFilesystem()


def remove_tree(files: Files, path: Path) -> None:
    """Remove a file, a link, or a directory with everything in it."""
    if not files.is_directory(path):
        files.unlink(path)
        return
    for name in files.names(path):
        remove_tree(files, path / name)
    files.rmdir(path)


def unlink_quietly(files: Files, path: Path) -> None:
    """Remove a file or directory, ignoring errors."""
    with suppress(OSError):
        remove_tree(files, path)


def sync_tree(files: Files, directory: Path) -> None:
    """Wait until every file, then every directory, of a tree is on the disk."""
    for name in files.names(directory):
        if files.is_directory(directory / name):
            sync_tree(files, directory / name)
        else:
            files.sync(directory / name)
    files.sync(directory)


def rename_durably(files: Files, source: Path, target: Path) -> None:
    """Rename a synced file or directory within its directory, and sync the directory."""
    files.rename(source, target)
    files.sync(target.parent)


def write_durably(files: Files, path: Path, content: bytes, *, partial: Path | None = None) -> None:
    """Replace a small file: afterwards it is the new one, before and on failure the old one.

    It is written as `partial` first, beside it; a failure may leave that.
    """
    partial = partial or path.with_name(f".{path.name}.partial")
    files.write(partial, content)
    files.sync(partial)
    rename_durably(files, partial, path)


@contextmanager
def full_disk_is_temporary(root: Path) -> Iterator[None]:
    """Turn errors of a full disk, quota or file size limit into `TemporaryFailure`."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        reason, first = _NO_ROOM[error.errno]
        raise TemporaryFailure(
            f"{reason[0].upper()}{reason[1:]}, while writing {root}. {first} and run the same command "
            "again."
        ) from error


@contextmanager
def failures_are_typed(what: str, remedy: str) -> Iterator[None]:
    """Turn every OSError into `TemporaryFailure`.

    Parameters
    ----------
    what
        Subject of the message: the thing that is being written.
    remedy
        Closing sentence of the message.
    """
    try:
        yield
    except OSError as error:
        other = (f"{error.strerror or error}", "Check the disk")
        reason, first = _NO_ROOM.get(error.errno or 0, other)
        where = f" ({error.filename})" if error.filename else ""
        raise TemporaryFailure(
            f"{what} could not be written: {reason}{where}. {first}, then {remedy}"
        ) from error


_BUSY = (errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK)
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


def take_lock(descriptor: int, file: Path, *, remedy: str, is_shared: bool = False) -> bool:
    """Try to take a lock without waiting; return whether it was taken.

    Parameters
    ----------
    descriptor
        The file, opened; closing it gives the lock back.
    file
        Its name, for messages.
    remedy
        Sentence for the error on a file system without locks.
    is_shared
        Whether others may hold it in the same way beside this one.

    Raises
    ------
    ConfigurationError
        When the file system has no locks.
    OSError
        When the system fails otherwise.

    Notes
    -----
    `flock`, which Linux and macOS have; over NFS it excludes other computers too where the
    server keeps locks.
    """
    try:
        import fcntl
    except ImportError:
        raise ConfigurationError(
            f"{file} cannot be locked: run directories and checkpoints on disk need POSIX file locks, "
            f"which {sys.platform} does not have. Use the estimators without a checkpoint store, or run on Linux."
        ) from None
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        if error.errno in _NO_LOCKS:
            raise ConfigurationError(
                f"{file} cannot be locked ({error.strerror}): this file system has no file locks. "
                f"{remedy}"
            ) from error
        raise
    return True
