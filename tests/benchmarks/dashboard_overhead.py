"""Overhead of the dashboard: wall time of the same fit unwatched, reported, viewed and stalled.

    python -m tests.benchmarks.dashboard_overhead [--repeats 5] [--samples 3000] [--windows 3]

- unwatched: tasks on Dask, nothing installed on the scheduler, no events;
- reported: events, page and metrics, without a viewer (the default of an estimator);
- viewed: browser-like sessions on the page (windows), and a scrape of /metrics every second;
- stalled: the same number of sessions, which never read the messages of the page.

The four run in turn, so that other load on the machine affects all of them. Each is compared with the
unwatched fit of its round; the results are medians over the rounds. Unwatched fits have their own
cluster. Bokeh keeps the session of a closed window for half a minute, so the next fit waits until
the session has been dropped. The viewers run in their own process.

Wall times of fits scatter by a tenth on a shared machine, more than the 2 % that watching may take
at most. So the seconds spent in the code that watches are counted as well: how long the driver
waits when it reports, and the event loop's processor time for taking in tasks and events, for
drawing and sending to windows, and for our part of the scrapes. Their share of wall time is the
last column.
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
from mscam_dask.engine.executors.base import Executor
from mscam_dask.engine.session import Observer
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


class Unwatched(MSCAM):
    """The same fit without the observer for the dashboard."""

    def _observers(
        self, data: MultiViewData, n_clusters: int, client: Client | None, executor: Executor
    ) -> tuple[Observer, ...]:
        return ()


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


def fit(kind: type[MSCAM], client: Client, data: MultiViewData) -> tuple[float, float]:
    """Wall seconds of one fit, and those of the dashboard."""
    model = kind(n_clusters=8, constants=Constants.paper(), client=client, max_iter=12)
    started, before = time.perf_counter(), Watching.seconds
    model.fit(data)
    return time.perf_counter() - started, Watching.seconds - before


async def session(page: str, *, reads: bool, opened: Any, over: Any) -> int:
    """One open window, which reads the messages of the page or leaves them in the socket."""
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


def look(page: str, n_windows: int, reads: bool, opened: Any, over: Any) -> None:
    """Several windows, and a scrape of the metrics every second if they read."""

    async def all_windows() -> list[int]:
        windows = (session(page, reads=reads, opened=opened, over=over) for _ in range(n_windows))
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
def viewers(client: Client, n_windows: int, *, reads: bool) -> Iterator[None]:
    """Open windows on the page, in their own process."""
    context = multiprocessing.get_context("spawn")
    opened, over = context.Semaphore(0), context.Event()
    page = page_address(client.dashboard_link)
    process = context.Process(target=look, args=(page, n_windows, reads, opened, over))
    process.start()
    try:
        for _ in range(n_windows):
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


def wait_until_forgotten(client: Client) -> None:
    """Wait until Bokeh has dropped the sessions of closed windows."""

    def n_sessions(dask_scheduler: Any) -> int:
        return len(dask_scheduler.plugins[PLUGIN]._page.get_sessions("/mscam"))

    until = time.monotonic() + 120
    while client.run_on_scheduler(n_sessions):
        if time.monotonic() > until:
            raise RuntimeError("sessions of closed windows stay")
        time.sleep(1.0)


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--samples", type=int, default=3000)
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--windows", type=int, default=3)
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
        wall, watching = fit(kind, client, data)
        taken.setdefault(name, []).append((wall, watching))
        sys.stdout.write(f"{name:<10} wall {wall:7.3f} s   watching {watching:6.3f} s\n")
        sys.stdout.flush()

    count_watching()
    with local_client(options.workers) as bare, local_client(options.workers) as watched:
        for client in (bare, watched):  # imports on the workers
            fit(Unwatched, client, data)
        ensure_page(watched)
        for _ in range(options.repeats):
            take("unwatched", Unwatched, bare)
            take("reported", MSCAM, watched)
            for name, reads in (("viewed", True), ("stalled", False)):
                with viewers(watched, options.windows, reads=reads):
                    take(name, MSCAM, watched)
                wait_until_forgotten(watched)
    sys.stdout.write("\nmedians over rounds, and of each round's ratio to its unwatched fit\n")
    for name, times in taken.items():
        ratios = [
            wall / base for (wall, _), (base, _) in zip(times, taken["unwatched"], strict=True)
        ]
        wall, watching = (statistics.median(column) for column in zip(*times, strict=True))
        sys.stdout.write(
            f"{name:<10} wall {wall:7.3f} s   {statistics.median(ratios) - 1:+7.2%} "
            f"({min(ratios) - 1:+.1%} to {max(ratios) - 1:+.1%})   watching {watching:6.3f} s"
            f" = {watching / wall:.2%}\n"
        )


if __name__ == "__main__":
    main()
