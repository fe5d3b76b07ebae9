"""The package's errors.

Every message says what was got, what is allowed, where (which view, which rows,
which outer iteration), and what to do. `exit_code` is what the command line returns. A message
may quote an address or a setting; credentials in it are left out.
"""

from __future__ import annotations

import re
from typing import ClassVar

__all__ = [
    "ClusterError",
    "ClusterStartError",
    "ConfigurationError",
    "ConvergenceWarning",
    "DataError",
    "DataTypeError",
    "MemoryPlanError",
    "MscamError",
    "NoWorkersError",
    "SchedulerLostError",
    "StoreCorruptError",
    "TemporaryFailure",
    "WorkerLostError",
    "WorkersPausedError",
    "redacted",
]

_HIDDEN = "***"

# No pattern reads a character twice, so that a long text takes time in proportion to its length.
_CREDENTIALS = (
    # scheme://user:password@host, and a token in place of both
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
    """Return a text without the credentials that it quotes.

    Left out are what stands before the @ of an address, values of what is called a password,
    token, secret, signature or key, Authorization headers, and private keys.

    Examples
    --------
    >>> redacted("s3://user:hunter2@host/data?token=abc&part=1 is not there")
    's3://***@host/data?token=***&part=1 is not there'
    """
    for pattern, replacement in _CREDENTIALS:
        text = pattern.sub(replacement, text)
    return text


class MscamError(Exception):
    """Root of everything this package raises on purpose."""

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
    """A table is not of numbers at all; also what scikit-learn calls a TypeError."""


class StoreCorruptError(DataError):
    """A stored file is truncated, altered or missing; the message names it."""


class ClusterError(MscamError, RuntimeError):
    """The Dask cluster cannot carry the work, and could not when tried again."""

    exit_code = 4


class MemoryPlanError(ClusterError):
    """The work needs more memory than a worker has; raised before work starts."""


class NoWorkersError(ClusterError):
    """No worker that can run tasks was there in time; a later attempt may find one."""

    exit_code = 75


class WorkersPausedError(NoWorkersError):
    """Dask has paused every worker because its memory is full."""

    exit_code = 4


class WorkerLostError(ClusterError):
    """Workers kept dying while running one task."""


class SchedulerLostError(ClusterError):
    """The scheduler is gone or does not answer; checkpoints are intact, and a later attempt resumes."""

    exit_code = 75


class ClusterStartError(ClusterError):
    """Worker processes on this computer did not start; a later attempt may succeed."""

    exit_code = 75


class TemporaryFailure(MscamError, RuntimeError):
    """Stopped by a condition that passes by itself: signal, lock, full disk."""

    exit_code = 75


class DataWarning(UserWarning):
    """The data were clustered, but not all of them as may be expected; the message says what to check."""


class ConvergenceWarning(UserWarning):
    """The fit ended without what was asked for; the message says what to try."""
