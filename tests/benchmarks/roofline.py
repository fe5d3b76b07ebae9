"""Ratio of a fit to a lower bound of its work: ``python -m tests.benchmarks.roofline``.

The lower bound is reading the views once from a store, the Gram matrices and the projections of all
rows, and the products of the neighbor search, at the speed of matrix products of this machine on one
thread. Prints each of them and the CPU seconds of a whole fit, measured in one run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from mscam_dask import MSCAM
from mscam_dask.data.store.read import open_store
from mscam_dask.data.store.write import write_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.types.rules import SIZES
from tests.benchmarks.growth import DIMS
from tests.benchmarks.measured import subspace_views

# Points that each point is compared with, and points of an inverted list: see linalg/ivf.py.
_POOL, _CELL = 4000, 500


def seconds_of(function: Callable[[], Any], repeats: int = 3) -> float:
    """CPU seconds of the fastest of some calls."""
    best = float("inf")
    for _ in range(repeats):
        started = time.process_time()
        function()
        best = min(best, time.process_time() - started)
    return best


def flops_per_second(dtype: Any, size: int = 1500) -> float:
    """Speed of a square matrix product."""
    matrix = np.random.default_rng(0).standard_normal((size, size)).astype(dtype)
    return 2.0 * size**3 / seconds_of(lambda: matrix @ matrix)


def read_all(store: Path) -> None:
    """Every row of every view, in blocks of 8192."""
    for source in open_store(store).views:
        for start in range(0, source.shape[0], 8192):
            source.read(start, min(start + 8192, source.shape[0]))


def main(arguments: Sequence[str] | None = None) -> float:
    """Measure, print, and return the ratio of the fit to the lower bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--dims", type=int, nargs="+", default=list(DIMS))
    options = parser.parse_args(arguments)
    n, dims = options.samples, options.dims
    rank = sum(min(d, SIZES.max_rank) for d in dims)
    views, _ = subspace_views(n, dims)
    with threadpool_limits(1), tempfile.TemporaryDirectory() as scratch:
        store = Path(scratch) / "data.zarr"
        write_store(as_multi_view(views), store)
        del views
        double, single = flops_per_second(np.float64), flops_per_second(np.float32)
        gram = sum(2.0 * n * d * (d + min(d, SIZES.max_rank)) for d in dims)
        search = 2.0 * n * rank * (min(_POOL, n) + n / _CELL)
        least = {
            "reading the store once": seconds_of(lambda: read_all(store), 1),
            f"{gram / 1e9:.0f} Gflop of Gram matrices and projections, double": gram / double,
            f"{search / 1e9:.0f} Gflop of the neighbor search, single": search / single,
        }
        fit = seconds_of(lambda: MSCAM(10, n_jobs=1).fit(str(store)), 1)
    write = sys.stdout.write
    write(f"n = {n}; {double / 1e9:.0f} and {single / 1e9:.0f} Gflop/s in double and single\n")
    for what, seconds in least.items():
        write(f"{seconds:8.2f} s  {what}\n")
    total = sum(least.values())
    write(f"{total:8.2f} s  together\n{fit:8.2f} s  the whole fit: {fit / total:.1f} times that\n")
    return float(fit / total)


if __name__ == "__main__":
    main()
