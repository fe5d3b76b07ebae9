"""Standard output and error of a command, whose reader may close the pipe."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["tolerant_streams"]


class _TolerantFile(io.FileIO):
    """File that discards what is written after its first error.

    Parameters
    ----------
    descriptor
    ignores_all
        Ignore every error; otherwise only that the reader has closed the pipe, and the first of
        the others is raised.
    """

    def __init__(self, descriptor: int, *, ignores_all: bool) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._ignores_all = ignores_all
        self._is_lost = False

    def write(self, content: ReadableBuffer, /) -> int:
        """Write, and return the number of bytes."""
        if not self._is_lost:
            try:
                return super().write(content)
            except OSError as error:
                self._is_lost = True
                if error.errno != errno.EPIPE and not self._ignores_all:
                    raise
        return memoryview(content).nbytes


@contextlib.contextmanager
def tolerant_streams() -> Iterator[None]:
    """Let a command go on when its output cannot be written.

    A closed pipe (``| head -1``) ends the output, not the command. For standard error this holds
    for every error, such as a full disk; for standard output such an error is raised. Characters
    that a stream cannot encode are escaped.
    """
    originals = sys.stdout, sys.stderr
    streams = [_tolerant(sys.stdout, ignores_all=False), _tolerant(sys.stderr, ignores_all=True)]
    sys.stdout, sys.stderr = streams
    try:
        yield
    finally:
        for stream in streams:
            with contextlib.suppress(OSError):
                stream.flush()
        sys.stdout, sys.stderr = originals


def _tolerant(stream: TextIO | None, *, ignores_all: bool) -> TextIO:
    """Stream to the same file; the stream itself if it has no file, as in tests."""
    if stream is None:  # the file was closed before the start
        return Path(os.devnull).open("w")
    try:
        descriptor = stream.fileno()
        stream.flush()
    except (OSError, ValueError):
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(_TolerantFile(descriptor, ignores_all=ignores_all)),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=ignores_all or os.isatty(descriptor),
    )
