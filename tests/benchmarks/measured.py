"""One clustering in a process of its own: seconds, CPU seconds, peak memory, quality.

The other scripts use it, because peak memory needs a fresh process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.sources import RowSource, ViewType


@dataclasses.dataclass(frozen=True)
class Measured:
    """Measurements of one run."""

    method: str
    n_samples: int
    n_views: int
    seconds: float  # of the fit, without making the data
    cpu_seconds: float  # of all threads
    peak_bytes: int  # largest resident set of the process, data included
    data_bytes: int  # resident before the fit
    components: int  # connected components of the graph; 0 where the method has none
    accuracy: float


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


def measure(method: str, n_samples: int, dims: Sequence[int], n_jobs: int = 1) -> Measured:
    """Run `method` ("MSCAM" or the name of a baseline) on `subspace_views` in a new process."""
    task = json.dumps([method, n_samples, list(dims), n_jobs])
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.measured", task],
        check=True,
        capture_output=True,
        text=True,
    )
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def exponent(small: Measured, large: Measured, attribute: str) -> float:
    """Growth of an attribute between two sizes, as a power of n."""
    ratio = getattr(large, attribute) / getattr(small, attribute)
    return float(np.log(ratio) / np.log(large.n_samples / small.n_samples))


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_bytes() -> int:
    """Largest resident set of this process.

    Of its own memory: `ru_maxrss` begins with that of the process that started it.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _run(method: str, n_samples: int, dims: Sequence[int], n_jobs: int) -> Measured:
    from mscam_dask import MSCAM
    from mscam_dask.benchmark.methods import method as baseline
    from mscam_dask.metrics import score_partition

    views, labels = subspace_views(n_samples, dims)
    if method == "MSCAM":
        model: Any = MSCAM(10, n_jobs=n_jobs)
    else:
        model = baseline(method).make(10, 0, {})
    data_bytes = peak_bytes()
    started, cpu = time.perf_counter(), _cpu_seconds()
    model.fit(views)
    return Measured(
        method=method,
        n_samples=n_samples,
        n_views=len(dims),
        seconds=time.perf_counter() - started,
        cpu_seconds=_cpu_seconds() - cpu,
        peak_bytes=peak_bytes(),
        data_bytes=data_bytes,
        components=int(getattr(model, "n_connected_components_", 0)),
        accuracy=float(score_partition(labels, model.labels_).accuracy),
    )


if __name__ == "__main__":
    sys.stdout.write(json.dumps(dataclasses.asdict(_run(*json.loads(sys.argv[1])))) + "\n")
