"""Connecting to a cluster that runs already, and what its workers must have."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import LocalCluster

from mscam_dask import __version__
from mscam_dask.errors import ClusterError, NoWorkersError
from mscam_dask.monitor.dashboard import plugin
from mscam_dask.pipeline.config.settings import ExecutionTable
from mscam_dask.pipeline.run import cluster as module
from mscam_dask.pipeline.run.cluster import check_workers, open_cluster, page_of
from tests.messages import quotes


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


def test_workers_that_do_not_see_the_data_or_differ_are_named(
    scheduler: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_cluster(ExecutionTable(scheduler=scheduler.scheduler_address)) as cluster:
        with pytest.raises(ClusterError, match=quotes("tcp://", tmp_path / "absent", "--output")):
            check_workers(cluster, [tmp_path, tmp_path / "absent"])
        monkeypatch.setattr(module, "_probe", lambda names: ("9.8.7", names))
        with pytest.raises(ClusterError, match=quotes("tcp://", "9.8.7", __version__)):
            check_workers(cluster, [])

        def not_installed(names: list[str]) -> None:
            raise ModuleNotFoundError("No module named 'mscam_dask'")

        monkeypatch.setattr(module, "_probe", not_installed)
        with pytest.raises(
            ClusterError, match=quotes("tcp://", "ModuleNotFoundError", "'mscam_dask'")
        ):
            check_workers(cluster, [])


def test_a_cluster_without_workers_is_an_error_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_WORKERS_TIMEOUT_S", 0.2)
    with (
        start(protocol="tcp", n_workers=0) as scheduler,
        open_cluster(ExecutionTable(scheduler=scheduler.scheduler_address)) as cluster,
        pytest.raises(NoWorkersError, match=quotes(f"dask worker {scheduler.scheduler_address}")),
    ):
        check_workers(cluster, [])


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
        monkeypatch.setattr(module, "find_spec", lambda name: None)
        monkeypatch.setattr(plugin, "find_spec", lambda name: None)
    with open_cluster(ExecutionTable(workers=1)) as cluster:
        assert cluster.client is not None
        words, notes = page_of(cluster.client)
        address = cluster.client.dashboard_link.replace("/status", "/mscam")
        assert (cluster.dashboard is None) != has_bokeh
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
        monkeypatch.setattr(module, "_dashboard_address", lambda: f"127.0.0.1:{taken}")
        with open_cluster(ExecutionTable(workers=1)) as cluster:
            assert cluster.dashboard is not None
            assert f":{taken}/" not in cluster.dashboard
    assert [str(item.message) for item in recwarn if str(taken) in str(item.message)] == []
