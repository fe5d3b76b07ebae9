"""Clusters that a run starts or uses, of every type that works on this computer, and what their workers must have."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask.config
import pytest
import yaml
from distributed import Client, LocalCluster, Security, Status

import mscam_dask
from mscam_dask import MSCAM, __version__
from mscam_dask.errors import (
    ClusterError,
    ClusterStartError,
    ConfigurationError,
    NoWorkersError,
    SchedulerLostError,
)
from mscam_dask.pipeline.cluster import (
    check_workers,
    open_cluster,
    page_of,
    serve_in_slurm,
    start_errors,
)
from mscam_dask.pipeline.settings import AdaptTable, ExecutionTable
from tests.clusters import listening
from tests.deploy.files import DEPLOY, documents
from tests.messages import raises
from tests.synthetic import gaussian_views

THREADS = f"{__name__}:Threads"


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
        yield cluster


@pytest.fixture
def address() -> Iterator[str]:
    """Scheduler of a cluster that runs already."""
    with Threads(protocol="tcp", n_workers=1) as cluster:
        yield cluster.scheduler_address


# --------------------------------------------------------------------------- running clusters


def test_a_running_cluster_is_used_and_left_running(address: str, tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps({"address": address}))
    for way in ({"scheduler": address}, {"scheduler_file": str(file)}):
        with opened(**way) as cluster:
            assert address in cluster.description
            check_workers(cluster, [tmp_path])
            assert cluster.client.submit(sum, [1, 2], pure=False).result() == 3


def test_workers_that_do_not_see_the_data_or_differ_are_named(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(scheduler=address) as cluster:
        with raises(ClusterError, "tcp://", tmp_path / "absent", "--output"):
            check_workers(cluster, [tmp_path, tmp_path / "absent"])
        # workers are threads of this process
        monkeypatch.setattr(mscam_dask, "__version__", "9.8.7")
        with raises(ClusterError, "tcp://", "9.8.7", __version__):
            check_workers(cluster, [])
        views = gaussian_views(0, n_samples=60)[0]
        with (
            Client(address, set_as_default=False) as client,
            raises(ClusterError, "tcp://", "9.8.7", __version__),
        ):
            MSCAM(3, client=client).fit(views)
        monkeypatch.delattr(mscam_dask, "__version__")
        with raises(ClusterError, "tcp://", "AttributeError", "'mscam_dask'"):
            check_workers(cluster, [])


def test_a_cluster_without_workers_or_scheduler_is_an_error_with_the_remedy() -> None:
    with Threads(protocol="tcp") as scheduler:
        address = scheduler.scheduler_address
        with (
            opened(scheduler=address, workers_timeout=0.2) as cluster,
            raises(NoWorkersError, f"dask worker {address}", "0.2 s"),
        ):
            check_workers(cluster, [])
    with (
        raises(NoWorkersError, THREADS, "--memory-limit", "0.2 s"),
        opened(cluster=THREADS, workers=1, start_timeout=30, workers_timeout=0.2) as cluster,
    ):
        cluster.client.cluster.scale(0)
        while cluster.client.scheduler_info()["workers"]:
            time.sleep(0.01)
        check_workers(cluster, [])
    with raises(SchedulerLostError, address), opened(scheduler=address):
        pass


# --------------------------------------------------------------------------- start and stop


@pytest.mark.parametrize(("kind", "running"), [("scheduler", False), ("client", True)])
def test_a_signal_while_a_cluster_is_opened_waits_and_closes_it(
    address: str, monkeypatch: pytest.MonkeyPatch, kind: str, running: bool
) -> None:
    events: list[str] = []
    servers: list[Any] = []

    def dask_setup(server: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.2)  # the main thread waits for the scheduler or client and could handle it
        events.append("made")
        servers.append(server)

    def handle(number: int, frame: object) -> None:
        events.append("handled")
        raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "signals", SimpleNamespace(dask_setup=dask_setup))
    previous = signal.signal(signal.SIGTERM, handle)
    try:
        with (
            dask.config.set({f"distributed.{kind}.preload": ["signals"]}),
            pytest.raises(KeyboardInterrupt),
            opened(**({"scheduler": address} if running else {"workers": 1})),
        ):
            pytest.fail("it went on")
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert events == ["made", "handled"]
    assert servers[0].status in ("closed", Status.closed)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("n_deaths", [1, pytest.param(9, marks=pytest.mark.thorough)])
def test_a_worker_that_dies_while_it_starts_is_started_again(tmp_path: Path, n_deaths: int) -> None:
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
            with opened(workers=1) as cluster:
                assert cluster.client.submit(abs, -1, pure=False).result() == 1
        else:
            with raises(ClusterStartError, 1, "--in-process"), opened(workers=1):
                pass


def test_a_cluster_of_a_run_listens_on_loopback_alone(tmp_path: Path) -> None:
    before = listening()
    options = {"local_directory": str(tmp_path)}
    with opened(cluster="local", workers=1, cluster_options=options) as cluster:
        assert cluster.client.scheduler.address.startswith("tls://127.0.0.1")
        assert list(tmp_path.iterdir()) != []
        opened_ports = {port: found for port, found in listening().items() if port not in before}
        assert len(opened_ports) >= 4  # scheduler, dashboard, the worker and its nanny
        assert set().union(*opened_ports.values()) <= {"127.0.0.1", "::1"}


def test_an_adaptive_cluster_on_this_computer_starts_from_no_worker(tmp_path: Path) -> None:
    with opened(adapt=AdaptTable(minimum=0, maximum=2)) as cluster:
        assert cluster.client.scheduler_info(n_workers=-1)["workers"] == {}
        assert cluster.description == "0 to 2 worker processes on this computer"
        check_workers(cluster, [tmp_path])
        views = gaussian_views(0, n_samples=60)[0]
        assert len(MSCAM(3, client=cluster.client, max_iter=1).fit(views).labels_) == 60


# --------------------------------------------------------------------------- page


def test_an_address_is_named_only_where_a_page_is_behind_it(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    pytest.importorskip("bokeh", reason="bokeh is an extra")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        options = {"dashboard_address": f"127.0.0.1:{taken}"}
        with opened(cluster="local", workers=1, cluster_options=options) as cluster:
            words, notes = page_of(cluster.client)
            assert f":{taken}/" not in cluster.client.dashboard_link  # replaced without a word
            assert cluster.client.dashboard_link.replace("/status", "/mscam") in words
            assert notes == ()
    assert [str(item.message) for item in recwarn if str(taken) in str(item.message)] == []
    monkeypatch.setitem(sys.modules, "bokeh", None)
    with opened(workers=1) as cluster:
        words, notes = page_of(cluster.client)
    assert "pip install 'mscam-dask[dashboard]'" in words
    assert "/mscam" not in words
    assert notes == ()


# --------------------------------------------------------------------------- other types


def test_a_class_of_ones_own_is_scaled_and_closed(tmp_path: Path) -> None:
    with opened(cluster=THREADS, workers=2) as cluster:
        assert cluster.description == f"2 workers of a {THREADS} cluster"
        check_workers(cluster, [tmp_path])
        cluster.client.wait_for_workers(2, timeout=30)
        port = int(cluster.client.scheduler.address.rpartition(":")[2])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    with opened(cluster=THREADS, adapt=AdaptTable(minimum=0, maximum=1)) as cluster:
        assert cluster.client.submit(abs, -1, pure=False).result(30) == 1


@pytest.mark.parametrize(
    ("name", "keys", "error", "code", "says"),
    [
        ("Threads", {"cluster_options": {"protocol": "tcp"}}, ConfigurationError, 2, "--scheduler"),
        ("Unavailable", {"cluster_options": {"no_option": 1}}, ConfigurationError, 2, "no_option"),
        ("Unavailable", {}, ClusterStartError, 75, "cluster.example"),
        ("Threads", {"start_timeout": 0.3}, NoWorkersError, 75, "0.3 s"),
    ],
)
def test_a_class_that_cannot_start(
    name: str, keys: dict[str, Any], error: type[Exception], code: int, says: str
) -> None:
    with raises(error, name, says) as caught, opened(cluster=f"{__name__}:{name}", **keys):
        pass
    assert getattr(caught.value, "exit_code", None) == code


def test_the_runner_is_for_tasks_of_srun(monkeypatch: pytest.MonkeyPatch) -> None:
    execution = ExecutionTable(cluster="slurm-runner")
    for name in ("SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    with raises(ConfigurationError, "srun"):
        serve_in_slurm(execution, insecure=True)
    with raises(ConfigurationError, "mscam-dask run"), open_cluster(execution):
        pass
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    with raises(ConfigurationError, "2 task(s)", "--ntasks"):
        serve_in_slurm(execution, insecure=True)
    monkeypatch.setenv("SLURM_NTASKS", "3")
    with raises(ConfigurationError, "--insecure"):
        serve_in_slurm(execution, insecure=False)
    serve_in_slurm(execution, insecure=True)  # the task of the run goes on
    late = {"cluster": "slurm-runner", "start_timeout": 0.3}
    with raises(SchedulerLostError, "0.3 s"), opened(**late):
        pass


def test_the_reason_of_a_batch_scheduler_is_told_without_the_job_script() -> None:
    text = (
        "Command exited with non-zero exit code.\nExit code: 248\nCommand:\noarsub -q long "
        + "worker " * 200
        + "\nstdout:\n\nstderr:\nERROR : The queue long does not exist.\n"
    )
    with (
        raises(ClusterError, "'oar'", "The queue long does not exist") as caught,
        start_errors("oar"),
    ):
        raise RuntimeError(text)
    assert "worker worker" not in str(caught.value)
    assert caught.value.exit_code == 4


# --------------------------------------------------------------------------- Kubernetes

MANIFEST = DEPLOY / "k8s/cluster.yaml"


def manifest_of(file: Path, **options: Any) -> Any:
    pytest.importorskip("dask_kubernetes")
    from mscam_dask.pipeline import manifest_cluster

    return manifest_cluster.manifest_of(file, **options)


def test_a_manifest_gets_a_name_workers_and_an_image_of_its_own() -> None:
    theirs = next(item for item in documents(MANIFEST) if item["kind"] == "DaskCluster")
    first, second = (manifest_of(MANIFEST, n_workers=3) for _ in range(2))
    name = first["metadata"]["name"]
    assert name.startswith("mscam-")
    assert name != second["metadata"]["name"]
    selector = first["spec"]["scheduler"]["service"]["selector"]
    assert selector["dask.org/cluster-name"] == name
    assert first["spec"]["worker"]["replicas"] == 3
    first["metadata"]["name"] = selector["dask.org/cluster-name"] = "mscam"
    first["spec"]["worker"]["replicas"] = 2
    assert first == theirs
    text = yaml.safe_dump(manifest_of(MANIFEST, n_workers=0, image="example.com/mscam@sha256:0"))
    assert "image: mscam-dask" not in text
    assert text.count("image: example.com/mscam@sha256:0") == 2
    assert "replicas: 1" in text


def test_a_file_without_a_cluster_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    with raises(ConfigurationError, file, "No such file"):
        manifest_of(file, n_workers=1)
    for text, says in (
        ("kind: [", "cannot be read"),
        ("kind: DaskCluster\n---\nkind: DaskCluster\n", "2 documents"),
        ("kind: DaskCluster\n", "metadata"),
        ("kind: DaskCluster\nmetadata: {name: mscam}\nspec: {scheduler: 3}\n", "not complete"),
    ):
        file.write_text(text)
        with raises(ConfigurationError, file, says):
            manifest_of(file, n_workers=1)
