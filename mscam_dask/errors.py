"""The package's errors.

Every message says what was got, what is allowed, where (which view, which rows,
which outer iteration), and what to do. `exit_code` is what the command line returns.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "ClusterError",
    "ConfigurationError",
    "ConvergenceWarning",
    "DataError",
    "MemoryPlanError",
    "MscamError",
    "NoWorkersError",
    "SchedulerLostError",
    "StoreCorruptError",
    "TemporaryFailure",
    "WorkerLostError",
]


class MscamError(Exception):
    """Root of everything this package raises on purpose."""

    exit_code: ClassVar[int] = 1


class ConfigurationError(MscamError, ValueError):
    """A parameter, option or configuration file cannot be used as given."""

    exit_code = 2


class DataError(MscamError, ValueError):
    """The data cannot be clustered as given: shape, dtype, ids or values."""

    exit_code = 3


class StoreCorruptError(DataError):
    """A stored file is truncated, altered or missing; the message names it."""


class ClusterError(MscamError, RuntimeError):
    """The Dask cluster cannot carry the work."""

    exit_code = 4


class MemoryPlanError(ClusterError):
    """The work needs more memory than a worker has; raised before work starts."""


class NoWorkersError(ClusterError):
    """No worker (with what the work needs) appeared in time."""


class WorkerLostError(ClusterError):
    """Workers kept dying while running one task."""


class SchedulerLostError(ClusterError):
    """The connection to the scheduler is gone; checkpoints are untouched."""


class TemporaryFailure(MscamError, RuntimeError):
    """Stopped by a condition that passes by itself: signal, lock, full disk."""

    exit_code = 75


class ConvergenceWarning(UserWarning):
    """The fit ended without what was asked for; the message says what to try."""
