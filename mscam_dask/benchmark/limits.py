"""What a cell may take."""

from __future__ import annotations

from mscam_dask.benchmark.settings import RunsTable
from mscam_dask.benchmark.trial import Limits
from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.run.cluster import OpenCluster, smallest_memory_bytes

__all__ = ["trial_limits"]


def trial_limits(table: RunsTable, cluster: OpenCluster | None) -> Limits:
    """Return the limits that a table gives, memory by default a worker thread's share.

    Parameters
    ----------
    table
    cluster
        Where the cells will run; None when that is not known yet.

    Raises
    ------
    ConfigurationError
        When memory_limit is no amount of memory.
    """
    return Limits(time_s=table.time_limit_s, memory_bytes=_memory(table, cluster))


def _memory(table: RunsTable, cluster: OpenCluster | None) -> int | None:
    given = table.memory_limit
    if isinstance(given, int):
        return given
    if isinstance(given, str):
        from dask.utils import parse_bytes

        try:
            return int(parse_bytes(given))
        except ValueError as error:
            raise ConfigurationError(
                f"memory_limit = {given!r} is no amount of memory; allowed is a number of bytes "
                "or such as '4 GiB'."
            ) from error
    if cluster is None or cluster.client is None:
        return smallest_memory_bytes()
    from mscam_dask.engine.executors.dask import DaskExecutor

    return DaskExecutor(cluster.client).memory_limit_bytes
