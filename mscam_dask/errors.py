"""Exceptions and warnings of the package.

A message states the problem (what was got, what is allowed, and where) and the remedy.
`exit_code` is the exit code of the command line. Credentials are removed from messages.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from typing import ClassVar

__all__ = [
    "ClusterError",
    "ClusterStartError",
    "ConfigurationError",
    "ConvergenceWarning",
    "DataError",
    "DataTypeError",
    "DataWarning",
    "MemoryPlanError",
    "MemoryPlanWarning",
    "MscamError",
    "NoWorkersError",
    "SchedulerLostError",
    "StoreCorruptError",
    "TemporaryFailure",
    "UnstableClustersWarning",
    "WorkerLostError",
    "WorkersPausedError",
]

EXIT_INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells expect; after SIGTERM it is that of `TemporaryFailure`."""

_HIDDEN = "***"

_SECRET_NAME = re.compile(
    r"SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIAL|ACCESS_?KEY|API_?KEY|PRIVATE_?KEY|CONNECTION_STRING"
)
_MIN_SECRET = 8  # shorter values occur in any text

# No pattern reads a character twice, so the time is linear in the length of the text.
_CREDENTIALS = (
    # scheme://user:password@host and scheme://token@host
    (re.compile(r"(?<=://)[^\s/?#\"'<>@]{1,512}@"), f"{_HIDDEN}@"),
    # ?token=..., &X-Amz-Signature=..., password = ..., "secret_access_key": "..."
    (
        re.compile(
            r"((?:password|passwd|secret|token|signature|credential|api[-_]?key|access[-_]?key)"
            r"[\w-]{0,32}(?:\s?=\s?[\"']?|[\"']\s?:\s?[\"']))(?!\*\*\*)[^\s&\"',;)\]}]+",
            re.IGNORECASE,
        ),
        rf"\g<1>{_HIDDEN}",
    ),
    (re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{16,}"), rf"\g<1> {_HIDDEN}"),
    (
        re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.DOTALL),
        rf"-----BEGIN \g<1>----- {_HIDDEN}",
    ),
)


def redacted(text: str) -> str:
    """Return a text without credentials: users in addresses, values of secrets, private keys."""
    for pattern, replacement in _CREDENTIALS:
        text = pattern.sub(replacement, text)
    return text


def holds_a_secret(name: str, value: object, environment: Mapping[str, str]) -> bool:
    """Return whether a setting has the name of a secret, or a text with credentials in it."""
    if _SECRET_NAME.search(name.upper().replace("-", "_")):
        return True
    return isinstance(value, str) and without_credentials(value, environment) != value


def without_credentials(text: str, environment: Mapping[str, str]) -> str:
    """Return a text of another package without credentials and values of secret environment variables."""
    for name, value in environment.items():
        if len(value) >= _MIN_SECRET and _SECRET_NAME.search(name.upper()) and value in text:
            text = text.replace(value, f"${name}")
    return redacted(text)


class MscamError(Exception):
    """Base class of all exceptions of this package."""

    exit_code: ClassVar[int] = 1

    def __init__(self, *args: object) -> None:
        super().__init__(*(redacted(arg) if isinstance(arg, str) else arg for arg in args))


class ConfigurationError(MscamError, ValueError):
    """A parameter, option or configuration file cannot be used as given."""

    exit_code = 2


class DataError(MscamError, ValueError):
    """The data cannot be clustered as given: shape, dtype, ids or values."""

    exit_code = 3


class DataTypeError(DataError, TypeError):
    """A table does not hold numbers; also a TypeError, as in scikit-learn."""


class StoreCorruptError(DataError):
    """A stored file is truncated, altered or missing."""


class ClusterError(MscamError, RuntimeError):
    """The Dask cluster cannot run the tasks."""

    exit_code = 4


class MemoryPlanError(ClusterError):
    """A fit needs more memory than a worker has; raised before the fit starts."""


class NoWorkersError(ClusterError):
    """No worker connected in time; a later attempt may find one."""

    exit_code = 75


class WorkersPausedError(NoWorkersError):
    """Dask has paused every worker because its memory is full."""

    exit_code = 4


class WorkerLostError(ClusterError):
    """Several workers died while running the same task."""


class SchedulerLostError(ClusterError):
    """The connection to the scheduler is lost, or it does not answer; checkpoints are kept."""

    exit_code = 75


class ClusterStartError(ClusterError):
    """Worker processes on this computer did not start; a later attempt may succeed."""

    exit_code = 75


class TemporaryFailure(MscamError, RuntimeError):
    """Stopped by a temporary condition: signal, lock, full disk, limit of threads."""

    exit_code = 75


class DataWarning(UserWarning):
    """A property of the data is unusual; the message names it and the remedy."""


class UnstableClustersWarning(UserWarning):
    """Borders separate some of the clusters only; the message names those that are not separated."""


class MemoryPlanWarning(UserWarning):
    """Results of a fit do not fit in the memory of the workers, which write some of them to their disks."""


class ConvergenceWarning(UserWarning):
    """A fit did not converge; the message names the remedy."""


def system_limit(error: BaseException) -> MscamError | None:
    """Return the typed error for a limit of threads, processes, memory or disk; None for other errors."""
    number = error.errno if isinstance(error, OSError) else None
    is_unmapped = isinstance(error, ImportError) and "failed to map segment" in str(error)
    if isinstance(error, MemoryError) or number == errno.ENOMEM or is_unmapped:
        return ClusterError(
            f"not enough memory ({str(error) or 'MemoryError'}). Use a computer with more memory or "
            "fewer workers, or raise the limit (ulimit -v)."
        )
    no_thread = isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    if no_thread or number == errno.EAGAIN:
        return TemporaryFailure(
            f"the operating system refused another thread or process ({error}). Use fewer workers "
            "or threads, or raise the limits (ulimit -u, ulimit -v)."
        )
    if number in (errno.ENOSPC, errno.EDQUOT):
        return TemporaryFailure(f"no space left on the disk ({error}). Free space and rerun.")
    return None
