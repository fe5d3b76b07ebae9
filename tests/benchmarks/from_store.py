"""Fits of a store on worker processes: ``python -m tests.benchmarks.from_store``.

Writes n samples of some views to a Zarr store and fits it on local clusters of each of some numbers of workers, in
turn. Prints for each fit its seconds, components and accuracy, the peak resident set of the driver and of the largest
worker, the memory estimate, and the median ratio of an outer iteration to the ADMM of its views on that many cores.
Graphs and embeddings are written to a directory, as in a run. A small fit comes before each, so that loading modules
is not timed. Labels have to be the same on all workers; ``--in-memory`` also compares those of the arrays in this process.

With two numbers of workers, the speed-ups of the second are printed as well. With ``--ceiling``, two fits with one worker
each also run at the same time. They wait for nothing, so twice the seconds of one alone, divided by theirs, is the
best speed-up of two workers that the machine allows.
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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mscam_dask import MSCAM, Constants
from mscam_dask.data.store.dataset import open_store, write_store
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.engine.memory import plan_memory
from mscam_dask.metrics import score_partition
from mscam_dask.types.events import IterationFinished
from tests.benchmarks.measured import DIMS, SubspaceRows, peak_bytes, worker_processes

N_CLUSTERS = 10
_SMALL = 13_000  # more than an exhaustive search has, so that all modules are loaded


class Case(NamedTuple):
    """What is fitted, and how."""

    store: Path
    small: Path
    memory: str
    constants: Constants | None

    def model(self, **more: Any) -> MSCAM:
        """A model that is not fitted."""
        return MSCAM(N_CLUSTERS, constants=self.constants, **more)


def write_subspaces(store: Path, n_samples: int, dims: Sequence[int]) -> None:
    """Write the views of `subspace_views` with their labels by blocks of rows, if the store is missing."""
    if store.exists():
        return
    labels = np.random.default_rng(0).integers(0, N_CLUSTERS, n_samples)
    views = (
        SubspaceRows(f"view_{index}", (n_samples, width), labels, seed=index)
        for index, width in enumerate(dims)
    )
    write_store(MultiViewData(tuple(views), labels=labels), store)


def fit(
    case: Case, n_workers: int, ready: Callable[[], object] = lambda: None
) -> tuple[float, NDArray[np.int64]]:
    """Seconds and labels of a fit on a cluster of its own; `ready` is called after the small fit."""
    iterations: list[IterationFinished] = []

    def observe(event: object) -> None:
        if isinstance(event, IterationFinished):
            iterations.append(event)

    with (
        tempfile.TemporaryDirectory() as scratch,
        worker_processes(n_workers, case.memory) as client,
    ):
        client.wait_for_workers(n_workers)
        case.model(client=client).fit(str(case.small))
        ready()
        model = case.model(client=client, callbacks=[observe])
        model._results_directory = Path(scratch) / "result.zarr"
        started = time.perf_counter()
        model.fit(str(case.store))
        seconds = time.perf_counter() - started
        worker, driver = max(client.run(peak_bytes).values()), peak_bytes()
        solution, labels = model.solution_, np.array(model.labels_)
    data = open_store(case.store)
    joined = any(setting.initial_graph != "mean" for setting in solution.settings)
    plan = plan_memory(data, solution.parameters, view_graphs=joined)
    ratios = [one.seconds * n_workers / sum(v.seconds for v in one.views) for one in iterations]
    sizes = (driver, worker, plan.worker_bytes(n_workers))
    gib = [f"{size / 2**30:.2f}" for size in sizes]
    sys.stdout.write(
        f"{n_workers} workers: {seconds:.1f} s, {solution.n_connected_components} components, "
        f"ACC {score_partition(data.labels, labels).accuracy:.4f}; driver {gib[0]} GiB, "
        f"largest worker {gib[1]} GiB (planned {gib[2]}); "
        f"an iteration over its ADMM {np.median(ratios) if ratios else np.nan:.2f}\n"
    )
    sys.stdout.flush()
    return seconds, labels


def seconds_of_two(case: Case) -> float:
    """Mean seconds of two fits at the same time, each in its own process with one worker."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(2, mp_context=context) as processes:
        barrier = manager.Barrier(2)
        fits = [processes.submit(fit, case, 1, barrier.wait) for _ in range(2)]
        return float(np.mean([one.result()[0] for one in fits]))


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the stores that are missing, fit, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--dims", type=int, nargs="+", default=DIMS, help="of the views")
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--memory", default="8GiB", help="limit of a worker")
    parser.add_argument("--paper", action="store_true", help="with Constants.paper()")
    parser.add_argument("--in-memory", action="store_true", help="fit the arrays as well")
    parser.add_argument("--ceiling", action="store_true", help="two fits at the same time as well")
    parser.add_argument("--store", type=Path, help="written if missing, and kept")
    options = parser.parse_args(arguments)
    speed_ups, ceilings = [], []
    with tempfile.TemporaryDirectory() as scratch:
        store, small = options.store or Path(scratch) / "data.zarr", Path(scratch) / "small.zarr"
        write_subspaces(store, options.samples, options.dims)
        write_subspaces(small, min(_SMALL, options.samples), options.dims)
        case = Case(store, small, options.memory, Constants.paper() if options.paper else None)
        found = []
        for _ in range(options.repeats):
            fits = [fit(case, n_workers) for n_workers in options.workers]
            found += [labels for _, labels in fits]
            speed_ups.append(fits[0][0] / fits[-1][0])
            if options.ceiling:
                ceilings.append(2 * fits[0][0] / seconds_of_two(case))
        if options.in_memory:
            data = open_store(store)
            views = [source.read(0, data.n_samples) for source in data.views]
            found.append(case.model(n_jobs=1).fit(views).labels_)
    if not all(np.array_equal(labels, found[0]) for labels in found):
        raise SystemExit("the labels differ")
    if len(options.workers) > 1:
        sys.stdout.write(f"speed-up {np.median(speed_ups):.2f} of {np.round(speed_ups, 2)}\n")
    if ceilings:
        share = np.median(np.divide(speed_ups, ceilings))
        sys.stdout.write(f"of the machine {np.median(ceilings):.2f}, share of it {share:.2f}\n")


if __name__ == "__main__":
    main()
