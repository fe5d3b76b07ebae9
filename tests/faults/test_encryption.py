"""A real encrypted scheduler: who gets in, and the errors of everyone else."""

from __future__ import annotations

import dataclasses
import datetime as dt
import errno
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mscam_dask.errors import ClusterError, ConfigurationError
from mscam_dask.pipeline.cluster import check_workers, open_cluster
from mscam_dask.pipeline.settings import ExecutionTable
from mscam_dask.pipeline.tls import CertificateSet, make_certificates
from tests.clusters import scheduler_process, tls_options, worker_process
from tests.messages import quotes, raises

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(120),  # a refusal is an answer, not a wait
]


def client_of(address: str, made: CertificateSet, **changes: Any) -> ExecutionTable:
    table = ExecutionTable(
        scheduler=address, tls_ca=str(made.authority), tls_cert=str(made.certificate("client")),
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
    nothing = ssl.create_default_context(cafile=str(site.ours.authority))
    host, port = site.address.removeprefix("tls://").split(":")
    with (
        pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"),
        socket.create_connection((host, int(port)), timeout=5) as plain,
        nothing.wrap_socket(plain, server_hostname=host) as stream,
    ):
        stream.recv(1)


def test_certificates_of_another_authority_or_of_last_year(site: Site) -> None:
    ours = str(site.ours.authority)
    refused(client_of(site.address, site.foreign, tls_ca=ours), "unknown ca")  # OpenSSL's words
    refused(client_of(site.address, site.foreign), by_this_side=True)
    refused(client_of(site.address, site.expired), "expired")


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


def test_keys_are_neither_in_the_log_nor_in_the_errors(site: Site) -> None:
    lines = site.ours.key("client").read_text().splitlines()[1:-1]
    said = str(refused(client_of(site.address, site.expired))) + site.log.read_text()
    assert lines
    assert not [line for line in lines if line in said]
