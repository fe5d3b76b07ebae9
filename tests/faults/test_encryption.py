"""A real encrypted scheduler: who gets in, and the errors of everyone else."""

from __future__ import annotations

import dataclasses
import datetime as dt
import errno
import os
import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mscam_dask.errors import ClusterError, ConfigurationError
from mscam_dask.pipeline.config.settings import ExecutionTable
from mscam_dask.pipeline.run.cluster import check_workers, open_cluster
from mscam_dask.pipeline.tls import CertificateSet, make_certificates
from tests.clusters import scheduler_process, worker_process
from tests.messages import quotes

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(120),  # a refusal is an answer, not a wait
]


def dask_options(made: CertificateSet, role: str) -> list[str]:
    files = {
        "--tls-ca-file": made.authority,
        "--tls-cert": made.certificate(role),
        "--tls-key": made.key(role),
    }
    return [str(part) for pair in files.items() for part in pair]


def client_of(address: str, made: CertificateSet) -> ExecutionTable:
    return ExecutionTable(
        scheduler=address,
        tls_ca=str(made.authority),
        tls_cert=str(made.certificate("client")),
        tls_key=str(made.key("client")),
    )


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
    foreign = make_certificates(root / "foreign")
    # of our authority, but of last year
    (root / "expired").mkdir()
    for name in ("ca.pem", "ca-key.pem"):
        (root / "expired" / name).write_bytes((root / "ours" / name).read_bytes())
    year_ago = dt.datetime.now(dt.UTC) - dt.timedelta(days=365)
    expired = make_certificates(root / "expired", days=30, now=year_ago, renew=True)
    options = dask_options(ours, "scheduler")
    with scheduler_process(root, "--protocol", "tls", *options) as (_, address):
        yield Site(address, ours, foreign, expired, root / "log")


def refused(execution: ExecutionTable) -> ClusterError:
    assert execution.scheduler is not None
    with (
        pytest.raises(ClusterError, match=quotes(execution.scheduler)) as caught,
        open_cluster(execution),
    ):
        pytest.fail(f"connected with {execution}")
    return caught.value


def by_this_side(error: ClusterError) -> bool:
    """Whether this client refused the scheduler's certificate, not the scheduler ours."""
    return isinstance(error.__cause__, ssl.SSLCertVerificationError)


def test_the_right_authority_is_accepted_and_tasks_run(site: Site, tmp_path: Path) -> None:
    assert site.address.startswith("tls://")
    with (
        worker_process(site.address, tmp_path, *dask_options(site.ours, "worker")),
        open_cluster(client_of(site.address, site.ours)) as cluster,
    ):
        check_workers(cluster, [tmp_path])
        assert cluster.client is not None
        assert cluster.client.submit(sum, [1, 2], pure=False).result() == 3


def test_no_certificate(site: Site, tmp_path: Path) -> None:
    # the scheduler itself insists, whatever the client
    nothing = ssl.create_default_context(cafile=str(site.ours.authority))
    host, port = site.address.removeprefix("tls://").split(":")
    with (
        pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"),
        socket.create_connection((host, int(port)), timeout=5) as plain,
        nothing.wrap_socket(plain, server_hostname=host) as stream,
    ):
        stream.recv(1)
    empty = tmp_path / "empty.pem"
    empty.touch()
    execution = msgspec.structs.replace(client_of(site.address, site.ours), tls_cert=str(empty))
    with (
        pytest.raises(ConfigurationError, match=quotes("tls_cert", empty)),
        open_cluster(execution),
    ):
        pytest.fail("connected")


def test_a_certificate_of_another_authority(site: Site) -> None:
    knows_ours = {"tls_ca": str(site.ours.authority)}
    error = refused(msgspec.structs.replace(client_of(site.address, site.foreign), **knows_ours))
    assert not by_this_side(error)
    assert "unknown ca" in str(error)  # as OpenSSL calls it


def test_a_scheduler_of_another_authority(site: Site) -> None:
    assert by_this_side(refused(client_of(site.address, site.foreign)))


def test_an_expired_certificate(site: Site) -> None:
    error = refused(client_of(site.address, site.expired))
    assert not by_this_side(error)
    assert "expired" in str(error)


def test_an_expired_scheduler(site: Site, tmp_path: Path) -> None:
    options = dask_options(site.expired, "scheduler")
    with scheduler_process(tmp_path, "--protocol", "tls", *options) as (_, address):
        error = refused(client_of(address, site.ours))
    assert by_this_side(error)
    assert "expired" in str(error)


def test_plain_tcp(site: Site) -> None:
    plain = ExecutionTable(scheduler=site.address.replace("tls://", "tcp://"))
    assert re.search(quotes("tls://", "--tls-ca", "--tls-cert", "--tls-key"), str(refused(plain)))


def test_a_scheduler_that_does_not_encrypt(site: Site, tmp_path: Path) -> None:
    with scheduler_process(tmp_path) as (_, address):
        assert address.startswith("tcp://")
        error = refused(client_of(address.replace("tcp://", "tls://"), site.ours))
    assert re.search(quotes("--protocol tls", "tcp://"), str(error))


def test_nobody_there(site: Site) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]  # bound, not listening
        for scheme in ("tcp", "tls"):
            error = refused(client_of(f"{scheme}://127.0.0.1:{port}", site.ours))
            assert isinstance(error.__cause__, ConnectionRefusedError)
            assert os.strerror(errno.ECONNREFUSED) in str(error)


def test_keys_that_cannot_be_used(site: Site, tmp_path: Path) -> None:
    execution = client_of(site.address, site.ours)
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("-----BEGIN PRIVATE KEY-----\nc2VjcmV0c2VjcmV0\n-----END PRIVATE KEY-----\n")
    other = str(site.foreign.key("client"))
    for changes in ({"tls_key": str(garbage)}, {"tls_key": other}, {"tls_ca": str(garbage)}):
        with (
            pytest.raises(ConfigurationError, match=quotes("tls_", *changes.values())) as caught,
            open_cluster(msgspec.structs.replace(execution, **changes)),
        ):
            pytest.fail("connected")
        assert "c2VjcmV0" not in str(caught.value)


def test_keys_are_neither_in_the_log_nor_in_the_errors(site: Site) -> None:
    lines = site.ours.key("client").read_text().splitlines()[1:-1]
    said = str(refused(client_of(site.address, site.expired))) + site.log.read_text()
    assert lines
    assert not [line for line in lines if line in said]
