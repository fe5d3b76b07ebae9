"""Clusters of every type that start on this computer, opened by [execution]."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster, Security

from mscam_dask.errors import (
    ClusterError,
    ClusterStartError,
    ConfigurationError,
    NoWorkersError,
    SchedulerLostError,
)
from mscam_dask.pipeline.config.settings import AdaptTable, ExecutionTable
from mscam_dask.pipeline.run.cluster import check_workers, open_cluster, serve_in_slurm
from mscam_dask.pipeline.run.cluster_classes import start_errors
from tests.clusters import scheduler_process, worker_process
from tests.messages import quotes

HERE = f"{__name__}:"


class Threads(LocalCluster):
    """A cluster of a site's own: workers are threads of this process."""

    def __init__(self, *, protocol: str = "tls", n_workers: int = 0, **options: Any) -> None:
        super().__init__(  # type: ignore[no-untyped-call]
            n_workers=n_workers,
            processes=False,
            threads_per_worker=1,
            host="127.0.0.1",
            protocol=protocol,
            security=Security.temporary() if protocol == "tls" else None,
            dashboard_address="127.0.0.1:0",
            **options,
        )


class Unavailable(Threads):
    """A cluster whose service does not answer."""

    def __init__(self) -> None:
        raise ConnectionError("no answer from cluster.example")


@contextmanager
def opened(**keys: Any) -> Iterator[Any]:
    with open_cluster(ExecutionTable(**keys)) as cluster:
        assert cluster.client is not None
        yield cluster


def n_workers(cluster: Any) -> int:
    return len(cluster.client.scheduler_info(n_workers=-1)["workers"])


def test_an_adaptive_cluster_on_this_computer_starts_from_no_worker(tmp_path: Path) -> None:
    with opened(adapt=AdaptTable(minimum=0, maximum=2)) as cluster:
        assert n_workers(cluster) == 0
        assert cluster.description == "0 to 2 worker processes on this computer"
        check_workers(cluster, [tmp_path])
        assert cluster.client.submit(sum, [1, 2], pure=False).result(60) == 3


def test_options_of_a_local_cluster(tmp_path: Path) -> None:
    with opened(
        cluster="local", workers=1, cluster_options={"local_directory": str(tmp_path)}
    ) as cluster:
        assert cluster.client.scheduler.address.startswith("tls://127.0.0.1")
        assert list(tmp_path.iterdir()) != []


def test_a_class_of_ones_own_is_scaled_and_closed(tmp_path: Path) -> None:
    with opened(cluster=f"{HERE}Threads", workers=2) as cluster:
        assert cluster.description == f"2 workers of a {HERE}Threads cluster"
        check_workers(cluster, [tmp_path])
        cluster.client.wait_for_workers(2, timeout=30)
        address = cluster.client.scheduler.address
        assert address.startswith("tls://")
        port = int(address.rpartition(":")[2])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_a_class_of_ones_own_adapts() -> None:
    with opened(cluster=f"{HERE}Threads", adapt=AdaptTable(minimum=0, maximum=1)) as cluster:
        assert cluster.client.submit(abs, -1, pure=False).result(30) == 1


def test_a_class_of_ones_own_without_encryption_is_refused() -> None:
    with (
        pytest.raises(ConfigurationError, match=quotes("tcp://127.0.0.1", "--scheduler")),
        opened(cluster=f"{HERE}Threads", cluster_options={"protocol": "tcp"}),
    ):
        pass


@pytest.mark.parametrize(
    ("execution", "error", "code", "says"),
    [
        (
            {"cluster": f"{HERE}Unavailable", "cluster_options": {"no_such_option": 1}},
            ConfigurationError, 2, "no_such_option",
        ),
        ({"cluster": "slurm"}, ConfigurationError, 2, "cores and memory"),
        ({"cluster": f"{HERE}Unavailable"}, ClusterStartError, 75, "cluster.example"),
        (
            {"cluster": f"{HERE}Threads", "start_timeout": 0.3},
            NoWorkersError, 75, "0.3 s",
        ),
    ],
)  # fmt: skip
def test_a_class_that_cannot_start(
    execution: dict[str, Any], error: type[Exception], code: int, says: str
) -> None:
    with (
        pytest.raises(error, match=quotes(execution["cluster"], says)) as caught,
        opened(**execution),
    ):
        pass
    assert getattr(caught.value, "exit_code", None) == code


def test_a_scheduler_file_names_a_running_cluster(tmp_path: Path) -> None:
    with scheduler_process(tmp_path) as (_, address), worker_process(address, tmp_path):
        with opened(scheduler_file=str(tmp_path / "scheduler.json")) as cluster:
            assert address in cluster.description
            check_workers(cluster, [tmp_path])
        with opened(cluster="scheduler", scheduler=address) as cluster:  # it was left running
            assert n_workers(cluster) == 1


def test_the_runner_is_for_tasks_of_srun(monkeypatch: pytest.MonkeyPatch) -> None:
    execution = ExecutionTable(cluster="slurm-runner")
    for name in ("SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match=quotes("srun")):
        serve_in_slurm(execution, insecure=True)
    with pytest.raises(ConfigurationError, match=quotes("mscam-dask run")), open_cluster(execution):
        pass
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    with pytest.raises(ConfigurationError, match=quotes("2 task(s)", "--ntasks")):
        serve_in_slurm(execution, insecure=True)
    monkeypatch.setenv("SLURM_NTASKS", "3")
    with pytest.raises(ConfigurationError, match=quotes("--insecure")):
        serve_in_slurm(execution, insecure=False)
    serve_in_slurm(execution, insecure=True)  # the task of the run goes on
    started = time.monotonic()
    late = ExecutionTable(cluster="slurm-runner", start_timeout=0.3)
    with pytest.raises(SchedulerLostError, match=quotes("0.3 s")), open_cluster(late):
        pass
    assert time.monotonic() - started < 20


def test_the_reason_of_a_batch_scheduler_is_told_without_the_job_script() -> None:
    text = (
        "Command exited with non-zero exit code.\nExit code: 248\nCommand:\noarsub -q long "
        + "worker " * 200
        + "\nstdout:\n\nstderr:\nERROR : The queue long does not exist.\n"
    )
    with (
        pytest.raises(
            ClusterError, match=quotes("'oar'", "The queue long does not exist")
        ) as caught,
        start_errors("oar"),
    ):
        raise RuntimeError(text)
    assert "worker worker" not in str(caught.value)
    assert caught.value.exit_code == 4
