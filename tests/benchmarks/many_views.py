"""Many views on worker processes: ``python -m tests.benchmarks.many_views``.

Prints the time of an outer iteration and of the ADMM of its views alone (measured in the same run), the
bytes between the driver and the scheduler, and the seconds before and after the iterations.
``--alone N`` also fits N of the views separately.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from distributed import Client
from distributed.deploy.subprocess import SubprocessCluster

from mscam_dask import MSCAM, Constants
from mscam_dask.types.events import IterationFinished
from tests.benchmarks.measured import subspace_views

_MIB = 2**20


class CountingRelay:
    """Relay on loopback to a TCP server that counts the bytes of both directions."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._counting = threading.Lock()
        self.port = int(self._listener.getsockname()[1])
        self.n_bytes = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for connection in [self._listener, *self._sockets]:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:  # closed
                return
            far = socket.create_connection(self._target)
            self._sockets += [near, far]
            threading.Thread(target=self._pump, args=(near, far), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                with self._counting:
                    self.n_bytes += len(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:  # the peer has closed
            return


class _Watch:
    """Bytes and seconds at the end of each outer iteration."""

    def __init__(self, relay: CountingRelay) -> None:
        self._relay = relay
        self._last = 0
        self.bytes: list[int] = []
        self.records: list[IterationFinished] = []

    def __call__(self, event: object) -> None:
        now = self._relay.n_bytes
        if isinstance(event, IterationFinished):
            self.bytes.append(now - self._last)
            self.records.append(event)
        self._last = now


def fit_together(views: list[Any], n_workers: int) -> None:
    """Fit all views on worker processes, and print the measurements."""
    with SubprocessCluster(
        n_workers=n_workers, worker_kwargs={"nthreads": 1, "memory_limit": "8GiB"}
    ) as cluster:
        address = urlsplit(cluster.scheduler_address)
        assert address.hostname is not None
        assert address.port is not None
        with (
            contextlib.closing(CountingRelay(address.hostname, address.port)) as relay,
            Client(f"tcp://127.0.0.1:{relay.port}") as client,
        ):
            watch = _Watch(relay)
            started = time.perf_counter()
            model = MSCAM(10, constants=Constants.paper(), client=client, callbacks=[watch]).fit(
                views
            )
            seconds = time.perf_counter() - started
    on_the_way = sum(record.seconds for record in watch.records)
    ratios = []
    for record, n_bytes in zip(watch.records, watch.bytes, strict=True):
        solves = sum(view.seconds for view in record.views)
        ratios.append(record.seconds / (solves / n_workers))
        sys.stdout.write(
            f"iteration {record.iteration}: {record.seconds:.1f} s, its {len(record.views)} "
            f"ADMM {solves:.1f} s on {n_workers} cores, ratio {ratios[-1]:.2f}; "
            f"{n_bytes / _MIB:.2f} MiB between driver and scheduler\n"
        )
    sys.stdout.write(
        f"V = {len(views)}, n = {len(views[0])}: {seconds:.1f} s in all, {on_the_way:.1f} s of them in {len(ratios)} iterations, "
        f"median ratio {statistics.median(ratios):.2f}; {model.n_connected_components_} components\n"
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
