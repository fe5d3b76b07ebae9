"""Many views on worker processes: ``python -m tests.benchmarks.many_views``.

Prints the time of an outer iteration and of the ADMM of its views alone, measured in the same run.
``--alone N`` also fits N of the views separately.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

from distributed import Client
from distributed.deploy.subprocess import SubprocessCluster

from mscam_dask import MSCAM, Constants
from mscam_dask.types.events import IterationFinished
from tests.benchmarks.measured import subspace_views


def fit_together(views: list[Any], n_workers: int) -> None:
    """Fit all views on worker processes, and print the measurements."""
    records: list[IterationFinished] = []

    def watch(event: object) -> None:
        if isinstance(event, IterationFinished):
            records.append(event)

    with (
        SubprocessCluster(
            n_workers=n_workers, worker_kwargs={"nthreads": 1, "memory_limit": "8GiB"}
        ) as cluster,
        Client(cluster) as client,
    ):
        started = time.perf_counter()
        model = MSCAM(10, constants=Constants.paper(), client=client, callbacks=[watch])
        model.fit(views)
        seconds = time.perf_counter() - started
    ratios = []
    for record in records:
        solves = sum(view.seconds for view in record.views)
        ratios.append(record.seconds / (solves / n_workers))
        sys.stdout.write(
            f"iteration {record.iteration}: {record.seconds:.1f} s, its {len(record.views)} "
            f"ADMM {solves:.1f} s on {n_workers} cores, ratio {ratios[-1]:.2f}\n"
        )
    on_the_way = sum(record.seconds for record in records)
    sys.stdout.write(
        f"V = {len(views)}, n = {len(views[0])}: {seconds:.1f} s in all, {on_the_way:.1f} s of them in "
        f"{len(ratios)} iterations, median ratio {statistics.median(ratios):.2f}; "
        f"{model.n_connected_components_} components\n"
    )


def fit_alone(views: list[Any], n_outer: int) -> float:
    """Seconds of one fit for each view, with at most `n_outer` outer iterations."""
    started = time.perf_counter()
    for view in views:
        MSCAM(10, constants=Constants.paper(), max_iter=n_outer, n_jobs=1).fit([view])
    return time.perf_counter() - started


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--views", type=int, default=256)
    parser.add_argument("--samples", type=int, default=5000)
    parser.add_argument("--features", type=int, default=40)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--alone", type=int, default=0, help="number of views to fit separately as well"
    )
    options = parser.parse_args(arguments)
    views, _ = subspace_views(options.samples, [options.features] * options.views)
    fit_together(list(views), options.workers)
    if options.alone:
        seconds = fit_alone(list(views[: options.alone]), 3) / options.alone
        sys.stdout.write(f"one view alone: {seconds:.2f} s, in this process\n")


if __name__ == "__main__":
    main()
