"""Growth of a cluster with the number of fits on it: ``python -m tests.benchmarks.soak --fits 2000``.

Fits small data again and again on one scheduler and one worker, each a process, with one client. Prints, as a Markdown table, the
resident memory of client, scheduler and worker and the number of task groups, spans and topics, and
the growth of each after the first hundred fits. The logs of scheduler and worker are as long as those of a cluster that a
run starts; ``--log-length 1000`` is Dask's own. ``--quick`` takes seconds and only shows that the script works.
"""

from __future__ import annotations

import argparse
import gc
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from distributed import Client

from mscam_dask import MSCAM, Constants
from mscam_dask.pipeline.run.cluster_classes import LOG_LENGTHS
from tests.clusters import scheduler_process, worker_process
from tests.synthetic import gaussian_views

STEP = 100


@dataclass(frozen=True)
class Held:
    """What the processes hold after a number of fits."""

    # Resident memory
    client_mib: float
    scheduler_mib: float
    worker_mib: float
    # Entries of the scheduler, and of the worker's totals
    task_groups: int
    spans: int
    topics: int
    tasks: int
    timers: int


NAMES = tuple(field.name for field in fields(Held))


def held(client: Client) -> Held:
    """Ask each process what it holds."""

    def of_scheduler(dask_scheduler: Any) -> tuple[int, int, int, int, int]:
        import gc

        import psutil

        gc.collect()
        spans = dask_scheduler.extensions["spans"].spans
        return (
            psutil.Process().memory_info().rss,
            len(dask_scheduler.task_groups),
            len(spans),
            len(dask_scheduler._broker._topics),
            len(dask_scheduler.tasks),
        )

    def of_worker(dask_worker: Any) -> tuple[int, int]:
        import gc

        import psutil

        gc.collect()
        return psutil.Process().memory_info().rss, len(dask_worker.digests_total)

    gc.collect()
    scheduler_bytes, groups, spans, topics, tasks = client.run_on_scheduler(of_scheduler)
    ((worker_bytes, timers),) = client.run(of_worker).values()
    mib = 2.0**20
    return Held(
        psutil.Process().memory_info().rss / mib,
        scheduler_bytes / mib,
        worker_bytes / mib,
        groups,
        spans,
        topics,
        tasks,
        timers,
    )


def row(n_fits: int, now: Held) -> str:
    """One line of the table."""
    values = (getattr(now, name) for name in NAMES)
    return f"| {n_fits} | {' | '.join(f'{value:.0f}' for value in values)} |\n"


def growth(settled: Held, end: Held) -> dict[str, float]:
    """Growth of each quantity, as a share of what was held before."""
    return {
        name: (getattr(end, name) - getattr(settled, name)) / max(1, getattr(settled, name))
        for name in NAMES
    }


def soak(client: Client, n_fits: int) -> dict[str, float]:
    """Fit again and again, print the table, and return the growth after the first hundred fits."""
    views = gaussian_views(0, n_samples=20)[0]
    write = sys.stdout.write
    write(f"| fits | {' | '.join(NAMES)} |\n|{'---|' * (len(NAMES) + 1)}\n")
    step = min(STEP, max(1, n_fits // 2))
    settled = end = held(client)
    for done in range(1, n_fits + 1):
        MSCAM(3, constants=Constants.paper(), max_iter=1, client=client).fit(views)
        if done % step == 0:
            end = held(client)
            settled = end if done == step else settled
            write(row(done, end))
            sys.stdout.flush()
    shares = growth(settled, end)
    write(f"\ngrowth after the first {step}: ")
    write(", ".join(f"{name} {share:+.1%}" for name, share in shares.items()) + "\n")
    return shares


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Start a scheduler and a worker, each a process, and fit on them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=2000)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--log-length", type=int, default=LOG_LENGTHS["distributed.admin.low-level-log-length"]
    )
    options = parser.parse_args(arguments)
    lengths = LOG_LENGTHS | {"distributed.admin.low-level-log-length": options.log_length}
    environment = {
        "DASK_" + name.replace(".", "__").replace("-", "_").upper(): str(value)
        for name, value in lengths.items()
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
