"""Clustering of a store that is larger than the memory of a worker: ``python -m tests.benchmarks.from_store``.

Writes n samples of some views to a Zarr store, clusters it on a local cluster and prints seconds,
components, accuracy, the peak resident set of the driver and of each worker, and the memory
estimate. Graphs and embeddings are written to a directory, as in a run. ``--in-memory`` also
clusters the same arrays in this process and compares labels.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import dask
import numpy as np
from distributed import Client, LocalCluster

from mscam_dask import MSCAM
from mscam_dask.data.store.read import open_store
from mscam_dask.data.store.write import write_store
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.engine.memory import plan_memory
from mscam_dask.metrics import score_partition
from mscam_dask.pipeline.cluster import LOG_LENGTHS
from tests.benchmarks.growth import DIMS
from tests.benchmarks.measured import SubspaceRows, peak_bytes


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


def main(arguments: Sequence[str] | None = None) -> MSCAM:
    """Write the store if it is missing, fit, print the figures, and return the fitted model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", default="8GiB", help="limit of a worker")
    parser.add_argument("--dims", type=int, nargs="+", default=list(DIMS), help="of the views")
    parser.add_argument("--in-memory", action="store_true", help="fit the arrays as well")
    parser.add_argument("--store", type=Path, help="written if missing, with its labels; kept")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        store = options.store or Path(scratch) / "data.zarr"
        truth = store.with_suffix(".labels.npy")
        if not store.exists():
            write_subspaces(store, truth, options.samples, options.dims)
        results = Path(scratch) / "result.zarr"
        model = _fit(store, truth, options.workers, options.memory, results)
        if options.in_memory:
            _compare(model, store)
    return model


def write_subspaces(store: Path, truth: Path, n_samples: int, dims: Sequence[int]) -> None:
    """Write the views of `subspace_views` by blocks of rows, and the labels."""
    labels = np.random.default_rng(0).integers(0, 10, n_samples)
    views = (
        SubspaceRows(f"view_{index}", (n_samples, width), labels, seed=index)
        for index, width in enumerate(dims)
    )
    write_store(MultiViewData(tuple(views)), store)
    np.save(truth, labels)


def _compare(model: MSCAM, store: Path) -> None:
    """Fit the data of the store from memory, in this process."""
    data = open_store(store)
    views = [source.read(0, data.n_samples) for source in data.views]
    again = MSCAM(10, n_jobs=1).fit(views)
    same = np.array_equal(model.labels_, again.labels_)
    sys.stdout.write(f"labels in memory: {'the same' if same else 'DIFFERENT'}\n")
    if not same:
        raise SystemExit(1)


def _fit(store: Path, truth: Path, n_workers: int, memory: str, results: Path) -> MSCAM:
    write = sys.stdout.write

    def tell(event: object) -> None:
        write(f"{time.perf_counter() - started:8.1f} s  {type(event).__name__}\n")
        sys.stdout.flush()

    with worker_processes(n_workers, memory) as client:
        before = peak_bytes()
        started = time.perf_counter()
        model = MSCAM(10, client=client, callbacks=[tell])
        model._results_directory = results
        model.fit(str(store))
        seconds = time.perf_counter() - started
        workers, driver = client.run(peak_bytes), peak_bytes()
    data, labels = open_store(store), np.load(truth)
    solution = model.solution_
    joined = any(setting.initial_graph != "mean" for setting in solution.settings)
    plan = plan_memory(data, solution.parameters, view_graphs=joined)
    planned = plan.worker_bytes(n_workers)
    size = sum(4 * data.n_samples * source.shape[1] for source in data.views)
    accuracy = score_partition(labels, model.labels_).accuracy
    write(
        f"n = {len(labels)}, {size / 2**30:.2f} GiB: {seconds:.0f} s, "
        f"{model.n_connected_components_} components, "
        f"ACC {accuracy:.4f}; driver {driver / 2**30:.2f} GiB "
        f"({before / 2**30:.2f} before; at most {plan.driver_bytes / 2**30:.2f} GiB if it gathers "
        "the solution), workers "
        + ", ".join(f"{used / 2**30:.2f} GiB" for used in workers.values())
        + f"; planned {planned / 2**30:.2f} GiB, {planned / max(workers.values()):.2f} times the "
        "largest\n"
    )
    return model


if __name__ == "__main__":
    main()
