"""Connecting to a cluster that runs already, and what its workers must have."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask.config
import psutil
import pytest
from distributed import Client, LocalCluster, Status

import mscam_dask
from mscam_dask import MSCAM, __version__
from mscam_dask.engine.executors import dask as executor_module
from mscam_dask.errors import (
    ClusterError,
    ClusterStartError,
    NoWorkersError,
    SchedulerLostError,
)
from mscam_dask.monitor.dashboard import plugin
from mscam_dask.pipeline.config.settings import ExecutionTable
from mscam_dask.pipeline.run import cluster_classes
from mscam_dask.pipeline.run.cluster import check_workers, open_cluster, page_of
from tests.messages import quotes
from tests.synthetic import gaussian_views


def start(**options: Any) -> LocalCluster:
    """A cluster whose workers are threads of this process."""
    addresses = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    options = {"n_workers": 1} | addresses | options
    return LocalCluster(processes=False, threads_per_worker=1, **options)


@pytest.fixture
def scheduler() -> Iterator[LocalCluster]:
    with start(protocol="tcp") as cluster:
        yield cluster


def test_a_running_cluster_is_used_and_left_running(
    scheduler: LocalCluster, tmp_path: Path
) -> None:
    execution = ExecutionTable(scheduler=scheduler.scheduler_address)
    for _ in range(2):
        with open_cluster(execution) as cluster:
            assert cluster.client is not None
            assert scheduler.scheduler_address in cluster.description
            check_workers(cluster, [tmp_path])
            assert cluster.client.submit(sum, [1, 2], pure=False).result() == 3


@pytest.mark.parametrize(
    ("kind", "running"), [("scheduler", False), ("client", False), ("client", True)]
)
def test_a_signal_while_a_cluster_is_opened_waits_and_closes_it(
    scheduler: LocalCluster, monkeypatch: pytest.MonkeyPatch, kind: str, running: bool
) -> None:
    events: list[str] = []
    opened: list[Any] = []

    def dask_setup(server: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.2)  # the main thread waits for the scheduler or client and could handle it
        events.append("made")
        opened.append(server)

    def handle(number: int, frame: object) -> None:
        events.append("handled")
        raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "signals", SimpleNamespace(dask_setup=dask_setup))
    address = scheduler.scheduler_address if running else None
    previous = signal.signal(signal.SIGTERM, handle)
    try:
        with (
            dask.config.set({f"distributed.{kind}.preload": ["signals"]}),
            pytest.raises(KeyboardInterrupt),
            open_cluster(ExecutionTable(scheduler=address, workers=None if running else 1)),
        ):
            pytest.fail("it went on")
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert events == ["made", "handled"]
    (server,) = opened
    assert server.status in ("closed", Status.closed)


def test_workers_that_do_not_see_the_data_or_differ_are_named(
    scheduler: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_cluster(ExecutionTable(scheduler=scheduler.scheduler_address)) as cluster:
        with pytest.raises(ClusterError, match=quotes("tcp://", tmp_path / "absent", "--output")):
            check_workers(cluster, [tmp_path, tmp_path / "absent"])
        monkeypatch.setattr(
            mscam_dask, "__version__", "9.8.7"
        )  # workers are threads of this process
        with pytest.raises(ClusterError, match=quotes("tcp://", "9.8.7", __version__)):
            check_workers(cluster, [])
        monkeypatch.setattr(executor_module, "_version_probe", lambda: not_installed)
        with pytest.raises(
            ClusterError, match=quotes("tcp://", "ModuleNotFoundError", "'mscam_dask'")
        ):
            check_workers(cluster, [])


def not_installed() -> str:
    raise ModuleNotFoundError("No module named 'mscam_dask'")


def test_a_fit_refuses_workers_of_another_version(
    scheduler: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = gaussian_views(0, n_samples=60)[0]
    with Client(scheduler.scheduler_address, set_as_default=False) as client:
        MSCAM(3, client=client).fit(views)
        monkeypatch.setattr(mscam_dask, "__version__", "0.0.9")
        with pytest.raises(ClusterError, match=quotes("tcp://", "0.0.9", __version__)):
            MSCAM(3, client=client).fit(views)


def test_a_cluster_without_workers_is_an_error_with_the_remedy() -> None:
    with start(protocol="tcp", n_workers=0) as scheduler:
        address = scheduler.scheduler_address
        with (
            open_cluster(ExecutionTable(scheduler=address, workers_timeout=0.2)) as cluster,
            pytest.raises(
                NoWorkersError, match=quotes(f"dask worker {address}", "0.2 s")
            ) as caught,
        ):
            check_workers(cluster, [])
    assert caught.value.exit_code == 75


def test_nothing_that_answers_is_worth_another_try() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    with (
        pytest.raises(SchedulerLostError, match=quotes(address)) as caught,
        open_cluster(ExecutionTable(scheduler=address)),
    ):
        pass
    assert caught.value.exit_code == 75


@pytest.mark.timeout(120)
@pytest.mark.parametrize("n_deaths", [1, 9])
def test_a_worker_that_dies_while_it_starts_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_deaths: int
) -> None:
    (tmp_path / "deaths").write_text("x" * n_deaths)
    preload = tmp_path / "dies.py"
    preload.write_text(
        "import os, pathlib, signal\n"
        f"left = pathlib.Path({str(tmp_path / 'deaths')!r})\n"
        "n_left = len(left.read_text())\n"
        "if n_left:\n"
        "    left.write_text('x' * (n_left - 1))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with dask.config.set({"distributed.worker.preload": [str(preload)]}):
        if n_deaths == 1:
            with open_cluster(ExecutionTable(workers=1)) as cluster:
                assert cluster.client is not None
                assert cluster.client.submit(abs, -1, pure=False).result() == 1
        else:
            with (
                pytest.raises(ClusterStartError, match=quotes(1, "--in-process")) as caught,
                open_cluster(ExecutionTable(workers=1)),
            ):
                pass
            assert caught.value.exit_code == 75


def test_in_this_process_there_is_nothing_to_check() -> None:
    with open_cluster(ExecutionTable(in_process=True)) as cluster:
        assert cluster.client is None
        check_workers(cluster, [Path("absent")])


def test_a_cluster_of_a_run_listens_on_loopback_alone() -> None:
    def listening(process: psutil.Process) -> list[str]:
        connections = process.net_connections(kind="inet")
        return [item.laddr.ip for item in connections if item.status == psutil.CONN_LISTEN]

    here = psutil.Process()
    before = {child.pid for child in here.children(recursive=True)}
    own = sorted(listening(here))
    with open_cluster(ExecutionTable(workers=2)) as cluster:
        assert cluster.client is not None
        started = [child for child in here.children(recursive=True) if child.pid not in before]
        assert len(started) >= 2
        addresses = [ip for process in (here, *started) for ip in listening(process)]
        for ip in own:
            addresses.remove(ip)
        # scheduler, dashboard, and for each worker itself and its nanny
        assert len(addresses) >= 5
        assert {ip for ip in addresses if ip not in ("127.0.0.1", "::1")} == set()


@pytest.mark.parametrize("has_bokeh", [True, False])
def test_an_address_is_named_only_where_a_page_is_behind_it(
    has_bokeh: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("bokeh", reason="bokeh is an extra")
    if not has_bokeh:
        monkeypatch.setattr(plugin, "find_spec", lambda name: None)
    with open_cluster(ExecutionTable(workers=1)) as cluster:
        assert cluster.client is not None
        words, notes = page_of(cluster.client)
        address = cluster.client.dashboard_link.replace("/status", "/mscam")
    assert (address in words) == has_bokeh
    assert ("pip install 'mscam-dask[dashboard]'" in words) == (not has_bokeh)
    assert notes == ()


def test_a_dashboard_port_that_is_taken_meanwhile_is_replaced_without_a_word(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        monkeypatch.setattr(cluster_classes, "dashboard_address", lambda: f"127.0.0.1:{taken}")
        with open_cluster(ExecutionTable(workers=1)) as cluster:
            assert cluster.client is not None
            assert f":{taken}/" not in cluster.client.dashboard_link
    assert [str(item.message) for item in recwarn if str(taken) in str(item.message)] == []
