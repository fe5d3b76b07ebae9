"""From exceptions to one clear message and an exit code."""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import logging
import os
import signal
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from mscam_dask.errors import ConfigurationError, MscamError, TemporaryFailure
from mscam_dask.pipeline.config.redaction import without_credentials

__all__ = ["handle_errors"]

_INTERRUPTED = 130

_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)
_OF_A_PATH = (
    *_NOT_ALLOWED,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ELOOP,
)


def handle_errors(command: Callable[..., int]) -> Callable[..., None]:
    """Give a command the option --debug, and its errors a message instead of a traceback.

    What this package raises on purpose, and what the operating system refuses, is a message on
    standard error; anything else is a defect and keeps its traceback. Neither shows credentials.
    """

    @click.option("--debug", is_flag=True, help="Show the traceback of an error.")
    @functools.wraps(command)
    def with_messages(*, debug: bool, **options: Any) -> None:
        sys.excepthook = _defect
        _show_what_cannot_be_encoded()
        try:
            with _terminated_softly():
                code = command(**options)
        except MscamError as error:
            code = _said(error, str(error), error.exit_code, debug=debug)
        except BrokenPipeError:
            raise
        except OSError as error:
            code = _said(error, *_refused(error), debug=debug)
        except _Terminated as error:
            logging.disable(logging.CRITICAL)
            code = _said(error, "Ended by SIGTERM.", TemporaryFailure.exit_code, debug=debug)
        except KeyboardInterrupt as error:
            logging.disable(logging.CRITICAL)  # what was under way complains of being cut off
            click.echo(f"Interrupted. {error}".strip(), err=True)
            code = _INTERRUPTED
        sys.exit(code)

    return with_messages


def _show_what_cannot_be_encoded() -> None:
    """Have a terminal that is not UTF-8 show a name of other letters with escapes."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


class _Terminated(KeyboardInterrupt):
    """SIGTERM came while nothing else handled it."""


@contextlib.contextmanager
def _terminated_softly() -> Iterator[None]:
    """Turn SIGTERM into an exit code from the first moment on, as runs do once they are under way."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _terminate(*_: object) -> None:
    raise _Terminated


def _refused(error: OSError) -> tuple[str, int]:
    """What the operating system refused, what to do, and the exit code."""
    reason = f"{type(error).__name__}: {error}"
    if not isinstance(error, PermissionError) and error.errno not in _OF_A_PATH:
        return reason, 1
    if not isinstance(error.filename, str | bytes):
        return f"{reason}. Check what this user may read and write.", ConfigurationError.exit_code
    path = Path(os.fsdecode(error.filename)).absolute()
    why = error.strerror or reason
    if error.errno not in _NOT_ALLOWED:
        return f"{path}: {why}. Check the path.", ConfigurationError.exit_code
    if path.is_file() and not os.access(path, os.R_OK):
        said = f"{path} cannot be read: {why}. Let this user read it, or name another file."
    else:
        at = next(place for place in (path, *path.parents) if place.is_dir())
        said = (
            f"This user may not read and write in {at} ({path.name}: {why}). Change that, or give "
            "another directory (-o)."
        )
    return said, ConfigurationError.exit_code


def _defect(
    kind: type[BaseException], error: BaseException, trace: types.TracebackType | None
) -> None:
    """Show the traceback of a defect, which may quote what it failed on."""
    lines = "".join(traceback.format_exception(kind, error, trace))
    click.echo(without_credentials(lines), err=True, nl=False)


def _said(error: BaseException, message: str, code: int, *, debug: bool) -> int:
    if debug:
        lines = "".join(traceback.format_exception(error))
        click.echo(without_credentials(lines), err=True, nl=False)
    label = click.style("Error:", fg="red", bold=True)
    click.echo(f"{label} {without_credentials(message)}", err=True)
    return code
