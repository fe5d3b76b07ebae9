"""Growth of a cluster with the number of fits on it: ``python -m tests.benchmarks.soak --fits 2000``.

Fits small data again and again on one scheduler and one worker, each a process, with one client. Prints the resident memory
(MiB) of client, scheduler and worker and the number of task groups, spans, topics, tasks and timers, and the growth of each
after the first hundred fits. The logs of scheduler and worker are as long as those of a cluster that a run starts.
``--quick`` takes seconds and only shows that the script works.
"""

from __future__ import annotations

import argparse
import gc
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from distributed import Client

from mscam_dask import MSCAM, Constants
from mscam_dask.pipeline.cluster import LOG_LENGTHS
from tests.benchmarks.tables import write_head, write_row
from tests.clusters import scheduler_process, worker_process
from tests.synthetic import gaussian_views

STEP = 100
_MIB = 2**20


def held(client: Client) -> dict[str, int]:
    """Memory and numbers of entries of the processes, by name."""

    def of_scheduler(dask_scheduler: Any) -> dict[str, int]:
        gc.collect()
        return {
            "scheduler_mib": psutil.Process().memory_info().rss // _MIB,
            "task_groups": len(dask_scheduler.task_groups),
            "spans": len(dask_scheduler.extensions["spans"].spans),
            "topics": len(dask_scheduler._broker._topics),
            "tasks": len(dask_scheduler.tasks),
        }

    def of_worker(dask_worker: Any) -> dict[str, int]:
        gc.collect()
        size = psutil.Process().memory_info().rss // _MIB
        return {"worker_mib": size, "timers": len(dask_worker.digests_total)}

    gc.collect()
    (worker,) = client.run(of_worker).values()
    scheduler: dict[str, int] = client.run_on_scheduler(of_scheduler)
    return {"client_mib": psutil.Process().memory_info().rss // _MIB, **scheduler, **worker}


def soak(client: Client, n_fits: int) -> dict[str, float]:
    """Fit again and again, print the table, and return the growth of each after the first hundred fits."""
    views = gaussian_views(0, n_samples=20)[0]
    step = min(STEP, max(1, n_fits // 2))
    settled = end = held(client)
    write_head("fits", *end)
    for done in range(1, n_fits + 1):
        MSCAM(3, constants=Constants.paper(), max_iter=1, client=client).fit(views)
        if done % step == 0:
            end = held(client)
            settled = end if done == step else settled
            write_row(done, *end.values())
    shares = {name: (end[name] - size) / max(1, size) for name, size in settled.items()}
    told = ", ".join(f"{name} {share:+.1%}" for name, share in shares.items())
    sys.stdout.write(f"\ngrowth after the first {step}: {told}\n")
    return shares


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Start a scheduler and a worker, each a process, and fit on them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=2000)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    environment = {
        "DASK_" + name.replace(".", "__").replace("-", "_").upper(): str(value)
        for name, value in LOG_LENGTHS.items()
    }
    with (
        warnings.catch_warnings(),
        TemporaryDirectory() as folder,
        scheduler_process(Path(folder), environment=environment) as (_, address),
        worker_process(address, Path(folder), environment=environment),
        Client(address, set_as_default=False) as client,
    ):
        warnings.simplefilter("ignore")
        client.wait_for_workers(1, timeout=60)
        return soak(client, 20 if options.quick else options.fits)


if __name__ == "__main__":
    main()
