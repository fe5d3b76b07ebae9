"""Speedup of a fit with two worker processes: ``python -m tests.benchmarks.two_workers``.

Clusters one store on one worker and on two, in turn, and prints the seconds of every fit, the ratio of
each pair and the median ratio. A small fit comes before each, so that loading modules is not timed.
With ``--ceiling``, two fits with one worker each also run at the same time. They wait for nothing, so
twice the seconds of one alone, divided by theirs, is the best speedup that the machine allows. The share
is the throughput of one fit on two workers over that of the two fits.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mscam_dask import MSCAM
from mscam_dask.data.store.write import write_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from tests.benchmarks.from_store import worker_processes
from tests.benchmarks.measured import subspace_views


def seconds_with(
    n_workers: int,
    store: Path,
    small: Path,
    memory: str,
    ready: Callable[[], object] | None = None,
) -> tuple[float, NDArray[np.int64]]:
    """Seconds of a fit of the store on a cluster of its own, and the labels.

    `ready` is called, and waited for, after the small fit.
    """
    with worker_processes(n_workers, memory) as client:
        client.wait_for_workers(n_workers)
        MSCAM(10, client=client).fit(str(small))
        if ready is not None:
            ready()
        started = time.perf_counter()
        labels = MSCAM(10, client=client).fit(str(store)).labels_
        return time.perf_counter() - started, labels


def seconds_of_two(store: Path, small: Path, memory: str) -> float:
    """Mean seconds of two fits at the same time, each in its own process with one worker."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(2, mp_context=context) as processes:
        barrier = manager.Barrier(2)
        fits = [
            processes.submit(seconds_with, 1, store, small, memory, barrier.wait) for _ in range(2)
        ]
        return float(np.mean([fit.result()[0] for fit in fits]))


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Print the pairs and the median of their ratios; return the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=30_000)
    parser.add_argument("--dims", type=int, nargs="+", default=[64] * 16, help="of the views")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--memory", default="6GiB", help="limit of a worker")
    parser.add_argument("--ceiling", action="store_true", help="two fits at the same time as well")
    options = parser.parse_args(arguments)
    ratios, ceilings = [], []
    with tempfile.TemporaryDirectory() as scratch:
        store, small = Path(scratch) / "data.zarr", Path(scratch) / "small.zarr"
        for path, n in ((store, options.samples), (small, min(13_000, options.samples))):
            write_store(as_multi_view(subspace_views(n, options.dims)[0]), path)
        for _ in range(options.pairs):
            single, labels = seconds_with(1, store, small, options.memory)
            two, again = seconds_with(2, store, small, options.memory)
            if not np.array_equal(labels, again):
                raise SystemExit("the labels differ")
            ratios.append(single / two)
            line = f"one worker {single:.1f} s, two {two:.1f} s: {ratios[-1]:.2f}"
            if options.ceiling:
                both = seconds_of_two(store, small, options.memory)
                ceilings.append(2 * single / both)
                line += f"; two fits at the same time {both:.1f} s each: {ceilings[-1]:.2f}"
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
    sys.stdout.write(f"median {np.median(ratios):.2f}")
    if ceilings:
        share = np.median(np.divide(ratios, ceilings))
        sys.stdout.write(f", of the machine {np.median(ceilings):.2f}, share of it {share:.2f}")
    sys.stdout.write("\n")
    return ratios


if __name__ == "__main__":
    main()
