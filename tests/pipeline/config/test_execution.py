"""What a run may talk to, decided from the settings alone."""

from __future__ import annotations

from pathlib import Path

import dask.config
import pytest

from mscam_dask.errors import ConfigurationError, redacted
from mscam_dask.pipeline.config.settings import ExecutionTable
from mscam_dask.pipeline.run.security import check_execution
from mscam_dask.pipeline.tls import make_certificates
from tests.messages import quotes


@pytest.mark.parametrize(
    "address",
    ["tcp://127.0.0.1:8786", "tcp://127.1.2.3:1", "tcp://[::1]:8786", "tcp://localhost:8786"],
)
def test_this_computer_needs_no_encryption(address: str) -> None:
    check_execution(ExecutionTable(scheduler=address), insecure=False)


@pytest.mark.parametrize(
    "address",
    [
        "tcp://192.0.2.1:8786",
        "tcp://0.0.0.0:8786",
        "tcp://[2001:db8::1]:8786",
        "tcp://cluster.example:8786",
        "tcp://127.0.0.1.example:8786",
        "tcp://[::ffff:192.0.2.1]:8786",
        # other spellings of a loopback address, which libraries read differently
        "tcp://127.1:8786",
        "tcp://2130706433:8786",
        "tcp://localhost.:8786",
    ],
)
def test_another_computer_does_unless_somebody_insists(address: str) -> None:
    with pytest.raises(ConfigurationError, match=quotes(f"'{address}'", "--insecure")):
        check_execution(ExecutionTable(scheduler=address), insecure=False)
    check_execution(ExecutionTable(scheduler=address), insecure=True)


@pytest.mark.parametrize("insecure", [True, False])
@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:8786",
        "tcp://127.0.0.1",
        "tcp://:8786",
        "tcp://127.0.0.1:port",
        "tcp://127.0.0.1:99999",
        "tcp://[::1:8786",
        "tcp://cluster.example:1@127.0.0.1:8786",
        "tcp://127.0.0.1@cluster.example:8786",
        "tcp://127.0.0.1:8786/x",
        "ws://127.0.0.1:8786",
        "inproc://10.0.0.1/1/1",
        "TCP://192.0.2.1:8786",
        "tcp://127.0.0.1:8786\n",
        "tcp://127.0.0.1\t.example:8786",
        "tcp://127.0.0.1:8786#@192.0.2.1:1",
        "tcp://127.0.0.1\0.example:8786",
        "tcp://",
    ],
)
def test_what_is_no_scheduler_address(address: str, insecure: bool) -> None:
    with pytest.raises(
        ConfigurationError, match=quotes(repr(redacted(address)), "tls://host:port")
    ):
        check_execution(ExecutionTable(scheduler=address), insecure=insecure)


def test_encryption_needs_certificates_that_exist(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    ca, cert = str(made.authority), str(made.certificate("client"))
    key = str(made.key("client"))
    address = "tls://cluster.example:8786"
    with (
        dask.config.set({"distributed.comm.tls.ca-file": None}),
        pytest.raises(
            ConfigurationError,
            match=quotes(address, "--tls-ca FILE", "distributed.comm.tls.ca-file"),
        ),
    ):
        check_execution(ExecutionTable(scheduler=address), insecure=True)
    missing = ExecutionTable(scheduler=address, tls_ca=ca, tls_cert=str(tmp_path / "x.pem"))
    with pytest.raises(ConfigurationError, match=quotes("tls_cert", tmp_path / "x.pem")):
        check_execution(missing, insecure=False)
    check_execution(
        ExecutionTable(scheduler=address, tls_ca=ca, tls_cert=cert, tls_key=key), insecure=False
    )
    setting = "distributed.comm.tls"
    with dask.config.set(
        {f"{setting}.ca-file": ca, f"{setting}.client.cert": cert, f"{setting}.client.key": key}
    ):
        check_execution(ExecutionTable(scheduler=address), insecure=False)
    both = tmp_path / "both.pem"  # certificate and key in one file
    both.write_bytes(Path(cert).read_bytes() + Path(key).read_bytes())
    check_execution(
        ExecutionTable(scheduler=address, tls_ca=ca, tls_cert=str(both)), insecure=False
    )


@pytest.mark.parametrize("amount", ["4 GiB", "500MB", "1e9", 2**30])
def test_amounts_of_memory(amount: str | int) -> None:
    check_execution(ExecutionTable(memory_limit=amount), insecure=False)


@pytest.mark.parametrize("amount", ["4 gigs", "GiB of", "-"])
def test_what_is_no_amount_of_memory(amount: str) -> None:
    with pytest.raises(ConfigurationError, match=quotes("memory_limit", f"'{amount}'", "'4 GiB'")):
        check_execution(ExecutionTable(memory_limit=amount), insecure=False)
