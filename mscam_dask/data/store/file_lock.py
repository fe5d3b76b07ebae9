"""The operating system's lock on an open file: it ends with the process, however that ends."""

from __future__ import annotations

import errno
from pathlib import Path

from mscam_dask.errors import ConfigurationError

__all__ = ["take_lock"]

_BUSY = (errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK)
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


def take_lock(descriptor: int, file: Path, *, remedy: str, is_shared: bool = False) -> bool:
    """Whether this process, or thread, got the lock; it never waits.

    Parameters
    ----------
    descriptor
        The file, opened; closing it gives the lock back.
    file
        Its name, for messages.
    remedy
        What to do where there are no locks, in a sentence.
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
    import fcntl

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
