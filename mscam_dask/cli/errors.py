"""Conversion of exceptions to one message and an exit code, and output to closed or full streams."""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import logging
import os
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

import click

from mscam_dask.errors import (
    EXIT_INTERRUPTED,
    ClusterError,
    ConfigurationError,
    MscamError,
    system_limit,
    without_credentials,
)
from mscam_dask.pipeline.graceful_shutdown import GracefulShutdown, interrupt_of

# Bytes that the libraries of a run take before its data.
_ADDRESS_SPACE = 3 * 2**29

# Errors that a limit of the operating system may raise.
_LIMITS = (MemoryError, ImportError, RuntimeError)

# Errors of paths, besides those of permissions.
_UNUSABLE = {
    errno.EROFS,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ELOOP,
}


def handle_errors(command: Callable[..., Any], *, calls: str = "") -> Callable[..., None]:
    """Add --debug to a command that returns an exit code, and print messages instead of tracebacks.

    "module:function" in `calls` is imported and called in place of the command, which then only has the docstring.
    Exceptions that are no errors of this package or of the system are defects, and keep their traceback.
    """

    @click.option("--debug", is_flag=True, help="Show the traceback of an error.")
    @functools.wraps(command)
    def with_messages(*, debug: bool, **options: Any) -> None:
        sys.excepthook = lambda *defect: click.echo(_traceback(*defect), err=True)
        shutdown = GracefulShutdown(lambda: "Ended by a signal.")  # a run has its own
        with tolerant_streams():
            try:
                with shutdown:
                    _check_address_space()
                    module, _, name = calls.partition(":")
                    function = getattr(import_module(module), name) if calls else command
                    code = function(**options)
                    sys.stdout.flush()
            except (MscamError, *_LIMITS, OSError, KeyboardInterrupt) as error:
                cause = error if isinstance(error, MscamError) else interrupt_of(error)
                message, code = _message_of(cause, shutdown)
                if debug:
                    click.echo(_traceback(type(error), error, error.__traceback__), err=True)
                click.echo(without_credentials(message, os.environ), err=True)
        sys.exit(code)

    return with_messages


def _check_address_space() -> None:
    """Refuse a limit under which OpenBLAS would end the process, with exit code 1 and no exception."""
    try:
        import resource
    except ImportError:  # no POSIX system
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 <= limit < _ADDRESS_SPACE:
        raise ClusterError(
            f"this process may use {limit / 2**30:.2f} GiB of address space (ulimit -v); allowed are at "
            f"least {_ADDRESS_SPACE / 2**30} GiB. Raise the limit."
        )


def lazy_command(calls: str) -> Callable[[Callable[[], None]], Callable[..., None]]:
    """`handle_errors` for a function that only documents a command, which "module:function" carries out."""
    return functools.partial(handle_errors, calls=calls)


def _message_of(error: BaseException, shutdown: GracefulShutdown) -> tuple[str, int]:
    """Return the message of an error and the exit code; raise what is a defect."""
    label = click.style("Error:", fg="red", bold=True)
    if isinstance(error, KeyboardInterrupt):
        logging.disable(logging.CRITICAL)  # interrupted threads would log their errors
        if shutdown.signal_name == "SIGTERM":
            return f"{label} Ended by SIGTERM.", shutdown.exit_code
        return f"Interrupted. {error}".strip(), EXIT_INTERRUPTED
    typed = error if isinstance(error, MscamError) else system_limit(error) or _path_error(error)
    if typed is not None:
        return f"{label} {typed}", typed.exit_code
    if not isinstance(error, OSError):
        raise error
    return f"{label} {type(error).__name__}: {error}", 1


def _path_error(error: BaseException) -> ConfigurationError | None:
    """Return the typed error for a path that cannot be used; None for other errors."""
    if not isinstance(error, OSError) or not (
        isinstance(error, PermissionError) or error.errno in _UNUSABLE
    ):
        return None
    why = error.strerror or f"{type(error).__name__}: {error}"
    if isinstance(error.filename, str | bytes):
        why = f"{Path(os.fsdecode(error.filename)).absolute()}: {why}"
    return ConfigurationError(
        f"{why}. Check the path and the permissions of this user, or give another path (-o)."
    )


def _traceback(
    kind: type[BaseException], error: BaseException, trace: types.TracebackType | None
) -> str:
    """Traceback without credentials, which it may quote."""
    lines = "".join(traceback.format_exception(kind, error, trace))
    return without_credentials(lines, os.environ).rstrip()


class _TolerantFile(io.FileIO):
    """File that discards what is written after its first error, which it raises unless a pipe is closed."""

    def __init__(self, descriptor: int, *, ignores_all: bool) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._ignores_all = ignores_all
        self._is_lost = False

    def write(self, content: Any, /) -> int:
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
    """Let a command go on when a pipe is closed, or standard error cannot be written; escape what is not encodable."""
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
