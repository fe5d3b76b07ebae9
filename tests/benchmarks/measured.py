"""What the measuring scripts share: views of any size, peak memory, worker processes."""

from __future__ import annotations

import contextlib
import dataclasses
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import dask
import numpy as np
from distributed import Client, LocalCluster
from numpy.typing import NDArray

from mscam_dask.data.views.sources import RowSource, ViewType
from mscam_dask.pipeline.cluster import LOG_LENGTHS

DIMS = (100, 200, 64)
"""Columns of the views of `subspace_views`, unless a script says otherwise."""


# Rows whose random numbers are drawn together.
_BLOCK_ROWS = 4096


def subspace_views(
    n_samples: int, dims: Sequence[int], *, n_clusters: int = 10, seed: int = 0
) -> tuple[list[NDArray[np.float32]], NDArray[np.int64]]:
    """Each cluster a five-dimensional affine subspace of every view, with noise of 0.3."""
    labels = np.random.default_rng(seed).integers(0, n_clusters, n_samples)
    views = []
    for number, width in enumerate(dims):
        source = SubspaceRows("", (n_samples, width), labels, n_clusters, seed + number)
        view = np.empty(source.shape, dtype=np.float32)
        for start in range(0, n_samples, _BLOCK_ROWS):
            stop = min(start + _BLOCK_ROWS, n_samples)
            view[start:stop] = source.read(start, stop)
        views.append(view)
    return views, labels


@dataclasses.dataclass(frozen=True)
class SubspaceRows(RowSource):
    """A view of `subspace_views`, of which rows are computed when they are read."""

    name: str
    shape: tuple[int, int]
    labels: NDArray[np.int64]
    n_clusters: int = 10
    seed: int = 0
    view_type: ViewType = "features"

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return np.dtype(np.float32)

    def read(self, start: int, stop: int) -> NDArray[np.float64]:
        """Return rows start..stop-1; they do not depend on the blocks in which rows are read."""
        width = self.shape[1]
        rng = np.random.default_rng(self.seed)
        directions = rng.standard_normal((self.n_clusters, 5, width)) / np.sqrt(5)
        offsets = 0.5 * rng.standard_normal((self.n_clusters, width))
        rows = np.empty((stop - start, width))
        for block in range(start // _BLOCK_ROWS, -(-stop // _BLOCK_ROWS)):
            own = np.random.default_rng((self.seed, 1 + block))
            first = block * _BLOCK_ROWS
            inside = own.standard_normal((_BLOCK_ROWS, 5), dtype=np.float32)
            noise = own.standard_normal((_BLOCK_ROWS, width), dtype=np.float32)
            here = np.arange(max(start, first), min(stop, first + _BLOCK_ROWS))
            clusters = self.labels[here]
            for cluster in range(self.n_clusters):
                some = here[clusters == cluster]
                rows[some - start] = (
                    inside[some - first] @ directions[cluster]
                    + offsets[cluster]
                    + 0.3 * noise[some - first]
                )
        return rows.astype(np.float32).astype(np.float64)


def peak_bytes() -> int:
    """Largest resident set of this process.

    Of its own memory: `ru_maxrss` begins with that of the process that started it.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@contextlib.contextmanager
def worker_processes(n_workers: int, memory: str) -> Iterator[Client]:
    """A client of worker processes with one thread and a memory limit each."""
    with (
        dask.config.set(LOG_LENGTHS),
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            memory_limit=memory,
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client
