"""Growth with n of MSCAM and a linear-time baseline: ``python -m tests.benchmarks.growth``.

Each fit has one thread in a process of its own, because peak memory needs a fresh one. Prints a Markdown table
line by line, and the exponents between the first and the last size.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from mscam_dask import MSCAM
from mscam_dask.benchmark.methods import method
from mscam_dask.metrics import score_partition
from tests.benchmarks.measured import DIMS, peak_bytes, subspace_views
from tests.benchmarks.tables import write_head, write_row

SIZES = (16_000, 32_000, 64_000, 128_000, 256_000)
HEAD = ("method", "n", "seconds", "CPU s", "peak MiB", "data MiB", "components", "ACC")


class Measured(NamedTuple):
    """Measurements of one fit."""

    seconds: float  # of the fit, without making the data
    cpu_seconds: float  # of all threads
    peak_bytes: int  # largest resident set of the process, data included
    data_bytes: int  # resident before the fit
    components: int  # connected components of the graph; 0 where the method has none
    accuracy: float


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def fit(name: str, n_samples: int) -> Measured:
    """Fit "MSCAM", or the baseline of this name, to `subspace_views` in this process."""
    views, labels = subspace_views(n_samples, DIMS)
    model: Any = MSCAM(10, n_jobs=1) if name == "MSCAM" else method(name).make(10, 0, {})
    data_bytes = peak_bytes()
    started, cpu = time.perf_counter(), _cpu_seconds()
    model.fit(views)
    return Measured(
        time.perf_counter() - started,
        _cpu_seconds() - cpu,
        peak_bytes(),
        data_bytes,
        int(getattr(model, "n_connected_components_", 0)),
        float(score_partition(labels, model.labels_).accuracy),
    )


def measure(name: str, n_samples: int) -> Measured:
    """Measurements of a fit in a new process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(fit, name, n_samples).result()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--methods", nargs="+", default=["MSCAM", "smvsc"])
    options = parser.parse_args(arguments)
    write_head(*HEAD)
    runs: dict[str, list[Measured]] = {name: [] for name in options.methods}
    for n_samples in options.sizes:
        for name in options.methods:  # side by side: the machine's load is then the same
            found = measure(name, n_samples)
            runs[name].append(found)
            times = (f"{found.seconds:.1f}", f"{found.cpu_seconds:.1f}")
            mib = (f"{size / 2**20:.0f}" for size in (found.peak_bytes, found.data_bytes))
            write_row(name, n_samples, *times, *mib, found.components or "-", found.accuracy)
    first, last = options.sizes[0], options.sizes[-1]
    for name, done in runs.items():
        time_growth, memory_growth = (
            np.log(getattr(done[-1], attribute) / getattr(done[0], attribute))
            / np.log(last / first)
            for attribute in ("cpu_seconds", "peak_bytes")
        )
        sys.stdout.write(
            f"\n{name}, n = {first} to {last}: CPU time grows as n^{time_growth:.2f}, "
            f"peak memory as n^{memory_growth:.2f}\n"
        )


if __name__ == "__main__":
    main()
