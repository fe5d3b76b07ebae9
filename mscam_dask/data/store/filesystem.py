"""Files of runs and stores: durable changes, and no file that is a link or not a regular one."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from mscam_dask.errors import ConfigurationError, StoreCorruptError, TemporaryFailure

MAX_BYTES = 2**28
"""Largest size of a file that is read whole, unless its reader knows better."""

# Why there is no room, and what to do, by the number of the system's error.
_FULL = ("the disk is full, or the quota used up", "Make room")
_TOO_LARGE = ("a file would be larger than the limit of this process", "Raise it (ulimit -f)")
_NO_ROOM = {errno.ENOSPC: _FULL, errno.EDQUOT: _FULL, errno.EFBIG: _TOO_LARGE}

# Arguments of Linux's renameat2(2): paths are relative to the working directory; swap both names.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


class LocalFilesystem:
    """The system calls on which durability rests; tests look at them."""

    def sync(self, path: Path) -> None:
        """Wait until a file's content, or a directory's entries, are on the disk."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def exchange(self, first: Path, second: Path) -> bool:
        """Swap two names in one step; False, and nothing is done, where that cannot be, as on NFS."""
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


LOCAL = LocalFilesystem()


def open_regular(
    file: Path, flags: int = os.O_RDONLY, *, mode: int = 0o644, max_bytes: int = MAX_BYTES
) -> int:
    """Open a regular file; a link, pipe, socket, device or directory, or too large a file, is a `StoreCorruptError`."""
    with suppress(FileNotFoundError):
        _check_kind(file, file.lstat())
    # what takes its place after the check is not followed, and not waited for
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(file, flags, mode)
    try:
        found = os.fstat(descriptor)
        _check_kind(file, found)
        if flags & os.O_RDWR and found.st_nlink > 1:
            raise StoreCorruptError(
                f"{file} is a file with another name (hard link), which would be written too. Put a copy of "
                "the file in its place, or remove it."
            )
        if found.st_size > max_bytes:
            raise StoreCorruptError(
                f"{file} has {found.st_size} bytes; allowed are {max_bytes}. Restore it from a copy, or "
                "remove it."
            )
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(file: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Content of a file that `open_regular` opens."""
    with os.fdopen(open_regular(file, max_bytes=max_bytes), "rb") as stream:
        return stream.read(os.fstat(stream.fileno()).st_size)


def check_tree(directory: Path) -> None:
    """Refuse everything but regular files and directories below a directory, with a `StoreCorruptError`."""
    left = [str(directory)]
    while left:
        # removed meanwhile, or a file, which its reader refuses
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(left.pop()) as entries:
            for entry in entries:
                check_entry(entry)
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)


def check_entry(entry: os.DirEntry[str]) -> None:
    """Refuse an entry of a directory that is neither a regular file nor a directory."""
    if not (entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)):
        with suppress(FileNotFoundError):
            _check_kind(Path(entry.path), entry.stat(follow_symlinks=False))


def _check_kind(file: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "a device")
        raise StoreCorruptError(
            f"{file} is {kind}, which is refused here: allowed are regular files. Put a copy of the file "
            "in its place, or remove it."
        )


_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


def remove(path: Path) -> None:
    """Remove a file, a link (not its target), or a directory with everything in it, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def remove_quietly(path: Path) -> None:
    """Remove as `remove`, as much as is possible, ignoring errors."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def sync_tree(directory: Path) -> None:
    """Wait until every file, then every directory, of a tree is on the disk."""
    for path, _, files in os.walk(directory, topdown=False):
        for name in files:
            LOCAL.sync(Path(path, name))
        LOCAL.sync(Path(path))


def make_directory(path: Path, *, mode: int = 0o777) -> None:
    """Make a directory and its missing parents, whose names are then on the disk."""
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(mode, exist_ok=True)
        LOCAL.sync(path.parent)


def rename_durably(source: Path, target: Path) -> None:
    """Rename a synced file or directory within its directory, and sync the directory."""
    source.replace(target)
    LOCAL.sync(target.parent)


@contextmanager
def failures_are_typed(what: str, remedy: str, *, only_full: bool = False) -> Iterator[None]:
    """Turn every OSError, or those of a full disk, quota or file size limit, into `TemporaryFailure`."""
    try:
        yield
    except OSError as error:
        if only_full and error.errno not in _NO_ROOM:
            raise
        other = (f"{error.strerror or error}", "Check the disk")
        reason, first = _NO_ROOM.get(error.errno or 0, other)
        where = f" ({error.filename})" if error.filename else ""
        raise TemporaryFailure(
            f"{what} could not be written: {reason}{where}. {first}, then {remedy}"
        ) from error


def full_disk_is_temporary(root: Path) -> AbstractContextManager[None]:
    """Turn errors of a full disk while `root` is written into `TemporaryFailure`."""
    return failures_are_typed(str(root), "run the same command again.", only_full=True)


_BUSY = (errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK)
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


def take_lock(descriptor: int, file: Path, *, remedy: str, is_shared: bool = False) -> bool:
    """Try to take the `flock` of an opened file without waiting; return whether it was taken. `remedy` ends errors."""
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
