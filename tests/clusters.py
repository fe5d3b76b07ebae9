"""Dask clusters for tests: on loopback, any free port, gone at the end of the block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Client, LocalCluster

__all__ = ["local_client"]


@contextmanager
def local_client(
    n_workers: int, *, threads_per_worker: int = 1, processes: bool = True, **options: Any
) -> Iterator[Client]:
    """A client of a new cluster; `options` go to LocalCluster."""
    with (
        LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=n_workers,
            threads_per_worker=threads_per_worker,
            processes=processes,
            dashboard_address=":0",
            **options,
        ) as cluster,
        # as the default client it would change how xarray and Dask behave in other tests
        Client(cluster, set_as_default=False) as client,  # type: ignore[no-untyped-call]
    ):
        yield client
