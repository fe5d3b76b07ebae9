"""Clusters that a run starts are closed to other users of the computer."""

from __future__ import annotations

import dataclasses
import datetime as dt
import errno
import os
import socket
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from mscam_dask import MSCAM
from mscam_dask.data.datasets import subspace_mixture
from mscam_dask.errors import ClusterError, ConfigurationError
from mscam_dask.pipeline.cluster import check_workers, open_cluster
from mscam_dask.pipeline.settings import ExecutionTable
from mscam_dask.pipeline.tls import CertificateSet, make_certificates
from tests.clusters import listening, local_client, scheduler_process, tls_options, worker_process
from tests.messages import quotes, raises
from tests.processes import run, script_environment, started, text_of, wait_until
from tests.synthetic import gaussian_views, save_npz

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")

# The command line, held while its cluster is open: it writes a file, and goes on when that is gone.
HELD = """
import pathlib, sys, time
from mscam_dask.cli import main
from mscam_dask.pipeline import cluster
sign, opened = pathlib.Path("sign"), cluster.OpenCluster
def held(*arguments):
    sign.write_text("open")
    while sign.exists():
        time.sleep(0.1)
    return opened(*arguments)
cluster.OpenCluster = held
main(sys.argv[1:])
"""


def reached_by_another_user(ports: set[int]) -> list[str]:
    script = Path(__file__).with_name("local_attacker.py")
    done = run(sys.executable, script, *map(str, sorted(ports)), timeout=180)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@needs_root
@pytest.mark.thorough
def test_another_user_reaches_nothing_of_a_cluster_that_a_run_starts() -> None:
    before = set(listening())
    with open_cluster(ExecutionTable(workers=2)) as cluster:
        assert cluster.client.submit(abs, -1, pure=False).result() == 1
        ports = set(listening()) - before
        assert len(ports) >= 2 + 3 * 2  # scheduler and dashboard; workers, their pages, nannies
        assert reached_by_another_user(ports) == []
    before = set(listening())
    with local_client(1):  # without certificates it is reached
        assert len(reached_by_another_user(set(listening()) - before)) >= 3


@needs_root
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "command",
    [
        "run run.toml --workers 1",
        "run run.toml --adapt 1:1",
        "quickstart --workers 1",
        "compare --workers 1 --dataset tiny.npz --method knn-sc --runs 1 -o out",
        "sweep sweep.toml --workers 1",
        "doctor",
    ],
)
def test_another_user_reaches_nothing_of_a_command(tmp_path: Path, command: str) -> None:
    save_npz(tmp_path / "tiny.npz", subspace_mixture(40, 2, (4, 5), rng=np.random.default_rng(0)))
    output = '[output]\ndirectory = "out"\n'
    (tmp_path / "run.toml").write_text(
        f'[data]\nsource = "digits"\nfamilies = ["pixels"]\n[cluster]\nn_clusters = 10\n{output}'
    )
    (tmp_path / "sweep.toml").write_text(
        f'[sweep]\ndatasets = ["tiny.npz"]\nalpha = [1.0]\ngraph_weight = [1.0]\n{output}'
    )
    sign, log = tmp_path / "sign", tmp_path / "log"
    held = (sys.executable, "-c", HELD, *command.split())
    with started(*held, log=log, env=script_environment(), cwd=tmp_path) as driver:
        wait_until(sign.exists, log, seconds=200, alive=driver)
        ports = listening(driver.pid)
        assert len(ports) >= 5  # scheduler and dashboard; worker, its page, nanny
        assert set().union(*ports.values()) <= {"127.0.0.1", "::1"}
        assert reached_by_another_user(set(ports)) == []
        sign.unlink()
        assert driver.wait(300) == 0, text_of(log)


def test_without_worker_processes_nothing_listens() -> None:
    before = set(listening())
    with open_cluster(ExecutionTable(in_process=True)):
        MSCAM(3, n_jobs=2).fit(gaussian_views(0, n_samples=60)[0])
        assert set(listening()) <= before  # those of earlier tests may close meanwhile


def test_the_dashboard_of_a_run_changes_and_forwards_nothing() -> None:
    with open_cluster(ExecutionTable(workers=1)) as cluster:
        services = cluster.client.scheduler_info(n_workers=0)["services"]
        root = f"http://127.0.0.1:{services['dashboard']}"
        assert urllib.request.urlopen(f"{root}/health", timeout=10).status == 200
        for path in ("api/v1/retire_workers", f"proxy/{services['dashboard']}/127.0.0.1/health"):
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(f"{root}/{path}", data=b"{}", timeout=10)
            assert caught.value.code == 404


def client_of(address: str, made: CertificateSet, **changes: Any) -> ExecutionTable:
    table = ExecutionTable(
        scheduler=address, tls_ca=str(made.certificate("ca")), tls_cert=str(made.certificate("client")),
        tls_key=str(made.key("client")),
    )  # fmt: skip
    return msgspec.structs.replace(table, **changes)


@dataclasses.dataclass(frozen=True)
class Site:
    """A running encrypted scheduler and three sets of certificates."""

    address: str
    ours: CertificateSet
    foreign: CertificateSet
    expired: CertificateSet
    log: Path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("tls")
    ours = make_certificates(root / "ours")
    # of our authority, but of last year
    (root / "expired").mkdir()
    for name in ("ca.pem", "ca-key.pem"):
        (root / "expired" / name).write_bytes((root / "ours" / name).read_bytes())
    year_ago = dt.datetime.now(dt.UTC) - dt.timedelta(days=365)
    expired = make_certificates(root / "expired", days=30, now=year_ago, renew=True)
    foreign = make_certificates(root / "foreign")
    options = tls_options(ours, "scheduler")
    with scheduler_process(root, "--protocol", "tls", *options) as (_, address):
        yield Site(address, ours, foreign, expired, root / "log")


def refused(execution: ExecutionTable, *said: object, by_this_side: bool = False) -> ClusterError:
    """The error of a connection that one of the sides, this one or the scheduler, refuses."""
    values = quotes(execution.scheduler, *said)
    with pytest.raises(ClusterError, match=values) as caught, open_cluster(execution):
        pytest.fail(f"connected with {execution}")
    assert isinstance(caught.value.__cause__, ssl.SSLCertVerificationError) == by_this_side
    return caught.value


def test_the_right_authority_is_accepted_and_tasks_run(site: Site, tmp_path: Path) -> None:
    assert site.address.startswith("tls://")
    with (
        worker_process(site.address, tmp_path, *tls_options(site.ours, "worker")),
        open_cluster(client_of(site.address, site.ours)) as cluster,
    ):
        check_workers(cluster, [tmp_path])
        assert cluster.client.submit(sum, [1, 2], pure=False).result() == 3


def test_the_scheduler_itself_insists_on_a_certificate(site: Site) -> None:
    nothing = ssl.create_default_context(cafile=str(site.ours.certificate("ca")))
    nothing.check_hostname = False  # as Dask's own contexts
    host, port = site.address.removeprefix("tls://").split(":")
    with (
        pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"),
        socket.create_connection((host, int(port)), timeout=5) as plain,
        nothing.wrap_socket(plain) as stream,
    ):
        stream.recv(1)


def test_certificates_of_another_authority_or_of_last_year_are_refused_and_no_key_is_told(
    site: Site,
) -> None:
    ours = str(site.ours.certificate("ca"))
    refused(client_of(site.address, site.foreign, tls_ca=ours), "unknown ca")  # OpenSSL's words
    refused(client_of(site.address, site.foreign), by_this_side=True)
    said = str(refused(client_of(site.address, site.expired), "expired")) + site.log.read_text()
    lines = site.ours.key("client").read_text().splitlines()[1:-1]
    assert lines
    assert not [line for line in lines if line in said]


def test_an_expired_scheduler(site: Site, tmp_path: Path) -> None:
    options = tls_options(site.expired, "scheduler")
    with scheduler_process(tmp_path, "--protocol", "tls", *options) as (_, address):
        refused(client_of(address, site.ours), "expired", by_this_side=True)


def test_only_one_of_the_two_encrypts(site: Site, tmp_path: Path) -> None:
    plain = site.address.replace("tls://", "tcp://")
    refused(ExecutionTable(scheduler=plain), "tls://", "--tls-ca", "--tls-cert", "--tls-key")
    with scheduler_process(tmp_path) as (_, address):
        encrypted = address.replace("tcp://", "tls://")
        refused(client_of(encrypted, site.ours), "--protocol tls", "tcp://")


def test_nobody_there(site: Site) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]  # bound, not listening
        for scheme in ("tcp", "tls"):
            where = f"{scheme}://127.0.0.1:{port}"
            error = refused(client_of(where, site.ours), os.strerror(errno.ECONNREFUSED))
            assert isinstance(error.__cause__, ConnectionRefusedError)


def test_keys_that_cannot_be_used(site: Site, tmp_path: Path) -> None:
    empty, garbage = tmp_path / "empty.pem", tmp_path / "garbage.pem"
    empty.touch()
    garbage.write_text("-----BEGIN PRIVATE KEY-----\nc2VjcmV0c2VjcmV0\n-----END PRIVATE KEY-----\n")
    for name, file in (
        ("tls_cert", empty), ("tls_key", garbage), ("tls_key", site.foreign.key("client")),
        ("tls_ca", garbage),
    ):  # fmt: skip
        with (
            raises(ConfigurationError, "tls_", file) as caught,
            open_cluster(client_of(site.address, site.ours, **{name: str(file)})),
        ):
            pytest.fail("connected")
        assert "c2VjcmV0" not in str(caught.value)
