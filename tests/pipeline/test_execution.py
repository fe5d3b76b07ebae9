"""What a run may talk to, decided from the settings alone."""

from __future__ import annotations

from pathlib import Path

import dask.config
import pytest

from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.execution import check_execution
from mscam_dask.pipeline.settings import ExecutionTable


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
        "tcp://localhost.example:8786",
        "tcp://127.0.0.1.example:8786",
    ],
)
def test_another_computer_does_unless_somebody_insists(address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"without encryption.*--insecure"):
        check_execution(ExecutionTable(scheduler=address), insecure=False)
    check_execution(ExecutionTable(scheduler=address), insecure=True)


@pytest.mark.parametrize("insecure", [True, False])
@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:8786",
        "localhost",
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
        "/shared/scheduler.json",
    ],
)
def test_what_is_no_scheduler_address(address: str, insecure: bool) -> None:
    with pytest.raises(ConfigurationError, match="no scheduler address; allowed are tls://"):
        check_execution(ExecutionTable(scheduler=address), insecure=insecure)


def test_encryption_needs_certificates_that_exist(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.touch()
    address = "tls://cluster.example:8786"
    with (
        dask.config.set({"distributed.comm.tls.ca-file": None}),
        pytest.raises(ConfigurationError, match="--tls-ca FILE"),
    ):
        check_execution(ExecutionTable(scheduler=address), insecure=True)
    missing = ExecutionTable(scheduler=address, tls_ca=str(file), tls_cert=str(tmp_path / "x.pem"))
    with pytest.raises(ConfigurationError, match=r"tls_cert = '.*x\.pem': there is no such file"):
        check_execution(missing, insecure=False)
    check_execution(
        ExecutionTable(scheduler=address, tls_ca=str(file), tls_cert=str(file)), insecure=False
    )
    with dask.config.set(
        {"distributed.comm.tls": {"ca-file": str(file), "client": {"cert": str(file), "key": None}}}
    ):
        check_execution(ExecutionTable(scheduler=address), insecure=False)


@pytest.mark.parametrize("amount", ["4 GiB", "500MB", "1e9", 2**30])
def test_amounts_of_memory(amount: str | int) -> None:
    check_execution(ExecutionTable(memory_limit=amount), insecure=False)


@pytest.mark.parametrize("amount", ["4 gigs", "GiB of", "-"])
def test_what_is_no_amount_of_memory(amount: str) -> None:
    with pytest.raises(ConfigurationError, match="no amount of memory"):
        check_execution(ExecutionTable(memory_limit=amount), insecure=False)
