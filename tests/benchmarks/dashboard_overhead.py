"""What watching costs: wall time of the same fit unwatched, reported, viewed, and viewed slowly.

    python -m tests.benchmarks.dashboard_overhead [--repeats 5] [--samples 3000] [--workers 2]

- unwatched: tasks on Dask, nothing installed on the scheduler, no events;
- reported: events, page and metrics there, nobody looks (the default of an estimator);
- viewed: three browser-like sessions on the page, and a scrape of /metrics every second;
- stalled: three sessions that never read what the page sends them.

The four take turns, so that a busy spell of the machine hits all; medians are compared. Run it
on a quiet machine: the target is below 2 %.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator

import numpy as np
from distributed import Client
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from mscam_dask import MSCAM
from mscam_dask.data.datasets import subspace_mixture
from mscam_dask.data.multiview import MultiViewData
from mscam_dask.engine.dask import DaskExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.monitor.dashboard.client import ensure_page
from mscam_dask.monitor.dashboard.plugin import page_address
from tests.clusters import local_client

_SESSIONS = 3


def estimator(client: Client) -> MSCAM:
    return MSCAM(n_clusters=8, selection=None, client=client, max_outer_iter=12)


def fit_unwatched(client: Client, data: MultiViewData) -> None:
    """The fit of the estimator without its observer."""
    candidates = estimator(client)._candidates(data)
    run_fit(data, candidates, DaskExecutor(client))


def fit_reported(client: Client, data: MultiViewData) -> None:
    estimator(client).fit(data)


async def session(page: str, *, reads: bool, until: threading.Event) -> int:
    """One open window: what the page sends is read, or left in the socket."""
    with urllib.request.urlopen(page, timeout=20) as answer:
        text = answer.read().decode()
    token = text.partition('"token":"')[2].partition('"')[0]
    address = page.replace("http", "ws") + "/ws"
    request = HTTPRequest(address, headers={"Sec-WebSocket-Protocol": f"bokeh, {token}"})
    socket = await websocket_connect(request, subprotocols=["bokeh", token])
    received = 0
    while not until.is_set():
        if not reads:
            await asyncio.sleep(0.1)
            continue
        with contextlib.suppress(TimeoutError):
            received += await asyncio.wait_for(socket.read_message(), 0.1) is not None
    socket.close()
    return received


@contextlib.contextmanager
def viewers(client: Client, *, reads: bool) -> Iterator[None]:
    """Sessions in a thread of their own, and with readers a scrape every second."""
    page = page_address(client.dashboard_link)
    over = threading.Event()

    async def look() -> None:
        counts = await asyncio.gather(
            *(session(page, reads=reads, until=over) for _ in range(_SESSIONS))
        )
        assert not reads or min(counts) > 0, "the sessions saw nothing"

    def scrape() -> None:
        while not over.wait(1.0):
            urllib.request.urlopen(page.replace("/mscam", "/metrics"), timeout=20).read()

    threads = [threading.Thread(target=lambda: asyncio.run(look()))]
    threads += [threading.Thread(target=scrape)] if reads else []
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def seconds(
    fit: Callable[[Client, MultiViewData], None], client: Client, data: MultiViewData
) -> float:
    started = time.perf_counter()
    fit(client, data)
    return time.perf_counter() - started


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
    taken: dict[str, list[float]] = {"unwatched": [], "reported": [], "viewed": [], "stalled": []}
    with local_client(options.workers) as bare, local_client(options.workers) as watched:
        ensure_page(watched)
        for client in (bare, watched):  # imports on the workers
            fit_unwatched(client, data)
        for _ in range(options.repeats):
            taken["unwatched"].append(seconds(fit_unwatched, bare, data))
            taken["reported"].append(seconds(fit_reported, watched, data))
            with viewers(watched, reads=True):
                taken["viewed"].append(seconds(fit_reported, watched, data))
            with viewers(watched, reads=False):
                taken["stalled"].append(seconds(fit_reported, watched, data))
    base = statistics.median(taken["unwatched"])
    for name, times in taken.items():
        middle = statistics.median(times)
        spread = max(times) - min(times)
        sys.stdout.write(
            f"{name:<10} median {middle:7.3f} s  spread {spread:6.3f} s  {middle / base - 1:+7.2%}\n"
        )


if __name__ == "__main__":
    main()
