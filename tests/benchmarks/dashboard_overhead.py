"""Seconds that watching adds to a fit: ``python -m tests.benchmarks.dashboard_overhead [--repeats 5] [--windows 3]``.

- reported: events, page and metrics, without a viewer (the default of an estimator);
- viewed: browser-like sessions on the page (windows), and a scrape of /metrics every second.

Wall times of fits scatter by a tenth on a shared machine, more than watching takes. So the seconds spent in the code that
watches are counted: how long the driver waits when it reports, and the event loop's processor time for taking in tasks and
events, for drawing and sending to windows, and for our part of the scrapes. Bokeh keeps the session of a closed window for
half a minute, so the next fit waits until it has been dropped. The viewers run in their own process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import inspect
import multiprocessing
import statistics
import sys
import threading
import time
import types
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
from bokeh.server.views.ws import WSHandler
from distributed import Client
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from mscam_dask import MSCAM, Constants
from mscam_dask.data.datasets import subspace_mixture
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.monitor.dashboard.metrics import RunMetrics
from mscam_dask.monitor.dashboard.page import Page
from mscam_dask.monitor.dashboard.plugin import (
    PLUGIN,
    ClusterEvents,
    MonitorPlugin,
    ensure_page,
    page_address,
)
from tests.clusters import local_client


class Watching(threading.local):
    """Seconds of timed functions over all threads, without counting nested calls twice."""

    seconds: ClassVar[float] = 0.0
    _lock: ClassVar[threading.Lock] = threading.Lock()
    _inside: bool = False

    @contextlib.contextmanager
    def counted(self, clock: Callable[[], float]) -> Iterator[None]:
        """Count the time of the block."""
        if self._inside:
            yield
            return
        self._inside, started = True, clock()
        try:
            yield
        finally:
            self._inside = False
            with self._lock:
                Watching.seconds += clock() - started


_WATCHING = Watching()


def count(owner: Any, name: str, clock: Callable[[], float]) -> None:
    """Time a function, a whole generator, or the steps of a coroutine."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _WATCHING.counted(clock):
            result = function(*args, **kwargs)
            return list(result) if inspect.isgeneratorfunction(function) else result

    @types.coroutine
    def steps(*args: Any, **kwargs: Any) -> Any:
        running, answer = function(*args, **kwargs), None
        while True:
            try:
                with _WATCHING.counted(clock):
                    waited_for = running.send(answer)
            except StopIteration as end:
                return end.value
            answer = yield waited_for

    setattr(owner, name, steps if inspect.iscoroutinefunction(function) else call)


def count_watching() -> None:
    """Time the waits of the driver, and the work of the scheduler's event loop for viewers."""
    for method in ("new_run", "__call__"):
        count(ClusterEvents, method, time.perf_counter)
    for method in ("transition", "log_event"):
        count(MonitorPlugin, method, time.thread_time)
    count(Page, "update", time.thread_time)  # within it Bokeh makes the messages
    count(WSHandler, "send_message", time.thread_time)
    count(RunMetrics, "collect", time.thread_time)


def fit(client: Client, data: MultiViewData) -> tuple[float, float]:
    """Wall seconds of one fit, and those of the dashboard."""
    model = MSCAM(n_clusters=8, constants=Constants.paper(), client=client, max_iter=12)
    started, before = time.perf_counter(), Watching.seconds
    model.fit(data)
    return time.perf_counter() - started, Watching.seconds - before


async def window(page: str, opened: Any, over: Any) -> int:
    """Read the messages of the page in one open window; their number."""
    with urllib.request.urlopen(page, timeout=60) as answer:
        token = answer.read().decode().partition('"token":"')[2].partition('"')[0]
    address = page.replace("http", "ws") + "/ws"
    request = HTTPRequest(address, headers={"Sec-WebSocket-Protocol": f"bokeh, {token}"})
    socket = await websocket_connect(request, subprotocols=["bokeh", token])
    await socket.read_message()  # the server's acknowledgement
    opened.release()
    received, reading = 0, asyncio.ensure_future(socket.read_message())
    while not over.is_set():
        await asyncio.wait([reading], timeout=0.05)
        if reading.done():
            received, reading = received + 1, asyncio.ensure_future(socket.read_message())
    socket.close()
    return received


def look(page: str, n_windows: int, opened: Any, over: Any) -> None:
    """Open several windows, and scrape the metrics every second."""

    async def all_windows() -> list[int]:
        return await asyncio.gather(*(window(page, opened, over) for _ in range(n_windows)))

    def scrape() -> None:
        while not over.wait(1.0):
            urllib.request.urlopen(page.replace("/mscam", "/metrics"), timeout=60).read()

    threading.Thread(target=scrape, daemon=True).start()
    if min(asyncio.run(all_windows())) == 0:
        raise RuntimeError("a window saw no message")


@contextlib.contextmanager
def viewers(client: Client, n_windows: int) -> Iterator[None]:
    """Windows on the page in their own process; their sessions are forgotten at the end."""
    context = multiprocessing.get_context("spawn")
    opened, over = context.Semaphore(0), context.Event()
    page = page_address(client.dashboard_link)
    process = context.Process(target=look, args=(page, n_windows, opened, over))
    process.start()
    try:
        if not all(opened.acquire(timeout=120) for _ in range(n_windows)):
            raise RuntimeError("the page did not open")
        yield
        time.sleep(1.0)
    finally:
        over.set()
        process.join(60)
    if process.exitcode != 0:
        raise RuntimeError("the viewers failed")

    def n_sessions(dask_scheduler: Any) -> int:
        return len(dask_scheduler.plugins[PLUGIN]._page.get_sessions("/mscam"))

    while client.run_on_scheduler(n_sessions):
        time.sleep(1.0)


def main() -> None:
    """Print the seconds of every fit, and their medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--samples", type=int, default=3000)
    parser.add_argument("--windows", type=int, default=3)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    size = (options.samples, 8, (60, 80, 100, 40))
    data = subspace_mixture(*size, rng=rng, separation=1.5, noise=0.8)
    taken: dict[str, list[tuple[float, float]]] = {"reported": [], "viewed": []}
    count_watching()
    with local_client(2) as client:
        fit(client, data)  # imports on the workers
        ensure_page(client)
        for _ in range(options.repeats):
            taken["reported"].append(fit(client, data))
            with viewers(client, options.windows):
                taken["viewed"].append(fit(client, data))
    for name, times in taken.items():
        wall, watching = (statistics.median(column) for column in zip(*times, strict=True))
        sys.stdout.write(
            f"{name:<10} wall {wall:7.3f} s   watching {watching:6.3f} s = {watching / wall:.2%}\n"
        )


if __name__ == "__main__":
    main()
