"""What watching costs: wall time of the same fit unwatched, reported, viewed, and viewed slowly.

    python -m tests.benchmarks.dashboard_overhead [--repeats 5] [--samples 3000] [--workers 2]

- unwatched: tasks on Dask, nothing installed on the scheduler, no events;
- reported: events, page and metrics there, nobody looks (the default of an estimator);
- viewed: three browser-like sessions on the page, and a scrape of /metrics every second;
- stalled: three sessions that never read what the page sends them.

The four take turns, so that a busy spell of the machine hits all; medians are compared. The first
two have clusters of their own: Bokeh keeps a closed window's session for a while. Besides
wall time, the processor time of the process that holds driver and scheduler is given, which
other work on the machine hardly changes. The viewers are a process of their own. Run it on a
quiet machine: the target is below 2 % of wall time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
from distributed import Client
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from mscam_dask import MSCAM
from mscam_dask.data.datasets import subspace_mixture
from mscam_dask.data.multiview import MultiViewData
from mscam_dask.engine.fit import Observer
from mscam_dask.monitor.dashboard.client import ensure_page
from mscam_dask.monitor.dashboard.plugin import page_address
from tests.clusters import local_client

_SESSIONS = 3


class Unwatched(MSCAM):
    """The same fit without the observer for the dashboard."""

    def _observers(
        self, data: MultiViewData, n_clusters: int
    ) -> tuple[tuple[Observer, ...], str | None]:
        return (), None


def fit(kind: type[MSCAM], client: Client, data: MultiViewData) -> tuple[float, float]:
    """Wall and processor seconds of one fit."""
    model = kind(n_clusters=8, selection=None, client=client, max_outer_iter=12)
    started, used = time.perf_counter(), time.process_time()
    model.fit(data)
    return time.perf_counter() - started, time.process_time() - used


async def session(page: str, *, reads: bool, opened: Any, over: Any) -> int:
    """One open window: what the page sends is read, or left in the socket; messages seen."""
    with urllib.request.urlopen(page, timeout=60) as answer:
        text = answer.read().decode()
    token = text.partition('"token":"')[2].partition('"')[0]
    address = page.replace("http", "ws") + "/ws"
    request = HTTPRequest(address, headers={"Sec-WebSocket-Protocol": f"bokeh, {token}"})
    socket = await websocket_connect(request, subprotocols=["bokeh", token])
    await socket.read_message()  # the server's acknowledgement
    opened.release()
    received = 0
    reading = asyncio.ensure_future(socket.read_message()) if reads else None
    while not over.is_set():
        await asyncio.sleep(0.05)
        while reading is not None and reading.done() and reading.result() is not None:
            received += 1
            reading = asyncio.ensure_future(socket.read_message())
            await asyncio.sleep(0)
    socket.close()
    return received


def look(page: str, reads: bool, opened: Any, over: Any) -> None:
    """Several windows, and with readers a scrape of the metrics every second."""

    async def all_windows() -> list[int]:
        windows = (session(page, reads=reads, opened=opened, over=over) for _ in range(_SESSIONS))
        return await asyncio.gather(*windows)

    def scrape() -> None:
        while not over.wait(1.0):
            urllib.request.urlopen(page.replace("/mscam", "/metrics"), timeout=60).read()

    scraping = threading.Thread(target=scrape, daemon=True)
    if reads:
        scraping.start()
    counts = asyncio.run(all_windows())
    if reads and min(counts) == 0:
        raise RuntimeError(f"the windows saw {counts} messages")


@contextlib.contextmanager
def viewers(client: Client, *, reads: bool) -> Iterator[None]:
    """Windows on the page, open and settled, in a process of their own."""
    context = multiprocessing.get_context("spawn")
    opened, over = context.Semaphore(0), context.Event()
    page = page_address(client.dashboard_link)
    process = context.Process(target=look, args=(page, reads, opened, over))
    process.start()
    try:
        for _ in range(_SESSIONS):
            if not opened.acquire(timeout=120):
                raise RuntimeError("the page did not open")
        time.sleep(1.0)
        yield
        time.sleep(1.0)
    finally:
        over.set()
        process.join(60)
    if process.exitcode != 0:
        raise RuntimeError("the viewers failed")


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--samples", type=int, default=3000)
    arguments.add_argument("--workers", type=int, default=2)
    options = arguments.parse_args()
    data = subspace_mixture(
        options.samples,
        8,
        (60, 80, 100, 40),
        rng=np.random.default_rng(0),
        separation=1.5,
        noise=0.8,
    )
    taken: dict[str, list[tuple[float, float]]] = {}

    def take(name: str, kind: type[MSCAM], client: Client) -> None:
        wall, used = fit(kind, client, data)
        taken.setdefault(name, []).append((wall, used))
        sys.stdout.write(f"{name:<10} wall {wall:7.3f} s   processor {used:6.3f} s\n")
        sys.stdout.flush()

    with (
        local_client(options.workers) as bare,
        local_client(options.workers) as reporting,
        local_client(options.workers) as watched,
    ):
        for client in (bare, reporting, watched):  # imports on the workers
            fit(Unwatched, client, data)
        for client in (reporting, watched):
            ensure_page(client)
        for _ in range(options.repeats):
            take("unwatched", Unwatched, bare)
            take("reported", MSCAM, reporting)
            with viewers(watched, reads=True):
                take("viewed", MSCAM, watched)
            with viewers(watched, reads=False):
                take("stalled", MSCAM, watched)
    sys.stdout.write("\nmedians\n")
    base = statistics.median(wall for wall, _ in taken["unwatched"])
    for name, times in taken.items():
        walls, used = zip(*times, strict=True)
        wall, spread = statistics.median(walls), max(walls) - min(walls)
        sys.stdout.write(
            f"{name:<10} wall {wall:7.3f} s (spread {spread:6.3f}) {wall / base - 1:+7.2%}"
            f"   processor {statistics.median(used):6.3f} s\n"
        )


if __name__ == "__main__":
    main()
