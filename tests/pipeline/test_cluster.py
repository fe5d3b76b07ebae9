"""Connecting to a cluster that runs already, and what its workers must have."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from distributed import LocalCluster, Security

from mscam_dask.errors import ClusterError, NoWorkersError
from mscam_dask.pipeline import cluster as module
from mscam_dask.pipeline.cluster import check_workers, open_cluster
from mscam_dask.pipeline.settings import ExecutionTable


def start(**options: Any) -> LocalCluster:
    """A cluster whose workers are threads of this process."""
    options = {"n_workers": 1, "host": "127.0.0.1", "dashboard_address": None} | options
    return LocalCluster(processes=False, threads_per_worker=1, **options)  # type: ignore[no-untyped-call]


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
        with pytest.raises(ClusterError, match=r"worker tcp://.* does not see .*absent.*--output"):
            check_workers(cluster, [tmp_path, tmp_path / "absent"])
        monkeypatch.setattr(module, "_probe", lambda names: ("0.0.1", names))
        with pytest.raises(ClusterError, match=r"has mscam_dask 0\.0\.1"):
            check_workers(cluster, [])

        def not_installed(names: list[str]) -> None:
            raise ModuleNotFoundError("No module named 'mscam_dask'")

        monkeypatch.setattr(module, "_probe", not_installed)
        with pytest.raises(ClusterError, match=r"cannot run mscam_dask: ModuleNotFoundError"):
            check_workers(cluster, [])


def test_a_cluster_without_workers_is_an_error_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_WORKERS_TIMEOUT_S", 0.2)
    with (
        start(protocol="tcp", n_workers=0) as scheduler,
        open_cluster(ExecutionTable(scheduler=scheduler.scheduler_address)) as cluster,
        pytest.raises(NoWorkersError, match="Start workers, for example: dask worker tcp"),
    ):
        check_workers(cluster, [])


def test_in_this_process_there_is_nothing_to_check() -> None:
    with open_cluster(ExecutionTable(in_process=True)) as cluster:
        assert cluster.client is None
        check_workers(cluster, [Path("absent")])


Authority = Callable[[str], dict[str, str]]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Make a certificate authority and a certificate of 127.0.0.1 signed by it."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl on this computer to make certificates with")

    def make(name: str) -> dict[str, str]:
        ca, ca_key, cert, key, request = (
            str(tmp_path / f"{name}-{part}") for part in ("ca", "ca-key", "cert", "key", "request")
        )
        sign = ["x509", "-req", "-set_serial", "1"]
        new_key = ["-newkey", "rsa:2048", "-nodes"]
        for arguments in (
            ["req", "-x509", *new_key, "-subj", f"/CN={name}", "-keyout", ca_key, "-out", ca],
            ["req", *new_key, "-subj", "/CN=127.0.0.1", "-keyout", key, "-out", request],
            [*sign, "-in", request, "-CA", ca, "-CAkey", ca_key, "-out", cert],
        ):
            subprocess.run([openssl, *arguments], check=True, capture_output=True)
        return {"tls_ca": ca, "tls_cert": cert, "tls_key": key}

    return make


def test_encryption_with_the_right_authority_only(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CONNECT_TIMEOUT_S", 1.0)
    ours, foreign = authority("ours"), authority("foreign")
    security = Security(  # type: ignore[no-untyped-call]
        require_encryption=True,
        tls_ca_file=ours["tls_ca"],
        tls_scheduler_cert=ours["tls_cert"],
        tls_scheduler_key=ours["tls_key"],
        tls_worker_cert=ours["tls_cert"],
        tls_worker_key=ours["tls_key"],
        tls_client_cert=ours["tls_cert"],
        tls_client_key=ours["tls_key"],
    )
    with start(protocol="tls", security=security) as scheduler:
        address = scheduler.scheduler_address
        assert address.startswith("tls://")
        execution = ExecutionTable(scheduler=address)
        with open_cluster(msgspec.structs.replace(execution, **ours)) as cluster:
            check_workers(cluster, [])
        plain = ExecutionTable(scheduler=address.replace("tls://", "tcp://"))
        for refused in (msgspec.structs.replace(execution, **foreign), plain):
            with pytest.raises(ClusterError, match="does not answer"), open_cluster(refused):
                pytest.fail(f"connected with {refused}")
