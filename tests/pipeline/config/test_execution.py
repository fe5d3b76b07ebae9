"""What a run may talk to, decided from the settings alone."""

from __future__ import annotations

from pathlib import Path

import dask.config
import distributed  # noqa: F401  # its defaults are there before a test sets others
import pytest

from mscam_dask.errors import ConfigurationError, SchedulerLostError, redacted
from mscam_dask.pipeline.security import check_execution
from mscam_dask.pipeline.settings import ExecutionTable
from mscam_dask.pipeline.tls import make_certificates
from tests.messages import raises

HERE = ["127.0.0.1", "127.1.2.3", "[::1]", "localhost"]
ELSEWHERE = [
    *("192.0.2.1", "0.0.0.0", "[2001:db8::1]", "cluster.example", "127.0.0.1.example"),
    "[::ffff:192.0.2.1]",
    *("127.1", "2130706433", "localhost."),  # spellings of loopback that libraries read differently
]
NO_ADDRESS = [
    *("127.0.0.1:8786", "tcp://127.0.0.1", "tcp://:8786", "tcp://127.0.0.1:port", "tcp://"),
    *("tcp://127.0.0.1:99999", "tcp://[::1:8786", "tcp://cluster.example:1@127.0.0.1:8786"),
    *("tcp://127.0.0.1@cluster.example:8786", "tcp://127.0.0.1:8786/x", "ws://127.0.0.1:8786"),
    *("inproc://10.0.0.1/1/1", "TCP://192.0.2.1:8786", "tcp://127.0.0.1:8786\n"),
    *("tcp://127.0.0.1\t.example:8786", "tcp://127.0.0.1:8786#@192.0.2.1:1"),
    "tcp://127.0.0.1\0.example:8786",
]


def refusal(execution: ExecutionTable, *, insecure: bool = False) -> str:
    with pytest.raises(ConfigurationError) as caught:
        check_execution(execution, insecure=insecure)
    return str(caught.value)


def test_another_computer_needs_encryption_unless_somebody_insists() -> None:
    for host in HERE:
        check_execution(ExecutionTable(scheduler=f"tcp://{host}:8786"), insecure=False)
    for host in ELSEWHERE:
        execution = ExecutionTable(scheduler=f"tcp://{host}:8786")
        said = refusal(execution)
        assert f"'tcp://{host}:8786'" in said
        assert "--insecure" in said
        check_execution(execution, insecure=True)


@pytest.mark.parametrize("insecure", [True, False])
def test_what_is_no_scheduler_address(insecure: bool) -> None:
    for address in NO_ADDRESS:
        said = refusal(ExecutionTable(scheduler=address), insecure=insecure)
        assert repr(redacted(address)) in said
        assert "tls://host:port" in said


@pytest.mark.parametrize(
    "execution",
    [
        ExecutionTable(cluster="ssh", cluster_options={"hosts": ["127.0.0.1", "n1.example"]}),
        ExecutionTable(cluster="slurm-runner"),
    ],
)
def test_a_cluster_of_several_computers_without_encryption_is_refused(
    execution: ExecutionTable,
) -> None:
    assert "--insecure" in refusal(execution)
    check_execution(execution, insecure=True)
    if execution.cluster == "ssh":
        hosts = {"hosts": ["127.0.0.1", "localhost"]}
        check_execution(ExecutionTable(cluster="ssh", cluster_options=hosts), insecure=False)


def test_a_scheduler_file_is_checked_like_an_address(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    execution = ExecutionTable(scheduler_file=str(file))
    with raises(SchedulerLostError, file) as caught:
        check_execution(execution, insecure=False)
    assert caught.value.exit_code == 75
    file.write_text('{"address": "tcp://192.0.2.1:8786"}')
    assert "'tcp://192.0.2.1:8786'" in refusal(execution)
    file.write_text("{}")
    assert str(file) in refusal(execution)
    file.write_text('{"address": "tcp://127.0.0.1:8786"}')
    check_execution(execution, insecure=False)


def test_encryption_needs_certificates_that_exist(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    ca, cert = str(made.authority), str(made.certificate("client"))
    key = str(made.key("client"))
    address = "tls://cluster.example:8786"
    with dask.config.set({"distributed.comm.tls.ca-file": None}):
        said = refusal(ExecutionTable(scheduler=address), insecure=True)
    assert "--tls-ca FILE" in said
    assert "distributed.comm.tls.ca-file" in said
    missing = str(tmp_path / "x.pem")
    said = refusal(ExecutionTable(scheduler=address, tls_ca=ca, tls_cert=missing))
    assert f"tls_cert = '{missing}'" in said
    both = tmp_path / "both.pem"  # certificate and key in one file
    both.write_bytes(Path(cert).read_bytes() + Path(key).read_bytes())
    for certificate, own_key in ((cert, key), (str(both), None)):
        execution = ExecutionTable(
            scheduler=address, tls_ca=ca, tls_cert=certificate, tls_key=own_key
        )
        check_execution(execution, insecure=False)
    setting = "distributed.comm.tls"
    with dask.config.set(
        {f"{setting}.ca-file": ca, f"{setting}.client.cert": cert, f"{setting}.client.key": key}
    ):
        check_execution(ExecutionTable(scheduler=address), insecure=False)
