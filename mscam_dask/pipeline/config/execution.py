"""Whether [execution] can and may be used, before anything is started.

What a run talks to is on the loopback interface or encrypted, unless somebody insists.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.config.settings import ExecutionTable
from mscam_dask.pipeline.tls.check import check_certificates

__all__ = ["check_execution"]


def check_execution(execution: ExecutionTable, *, insecure: bool) -> None:
    """Refuse, before any work, a cluster that cannot or must not be used.

    Raises
    ------
    ConfigurationError
        When the memory limit or the scheduler's address is malformed, the address is neither
        encrypted nor on this computer and `insecure` is off, or a certificate file is missing.
    """
    if isinstance(execution.memory_limit, str):
        from dask.utils import parse_bytes

        try:
            parse_bytes(execution.memory_limit)
        except ValueError as error:
            raise ConfigurationError(
                f"memory_limit = {execution.memory_limit!r} is no amount of memory; allowed is a "
                "number of bytes or such as '4 GiB'."
            ) from error
    if execution.scheduler is not None:
        _check_address(execution, insecure=insecure)


def _check_address(execution: ExecutionTable, *, insecure: bool) -> None:
    address = execution.scheduler or ""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    is_plain = (
        address == f"{parts.scheme}://{parts.netloc}"
        and address.isascii()
        and address.isprintable()
        and not set(address) & set("@ \\")
    )
    if parts.scheme not in ("tcp", "tls") or not is_plain or not host or port is None:
        raise ConfigurationError(
            f"scheduler = {address!r} is no scheduler address; allowed are tls://host:port and "
            "tcp://host:port, as the scheduler printed it when it started."
        )
    if parts.scheme == "tls":
        check_certificates(execution)
    elif not (_is_loopback(host) or insecure):
        raise ConfigurationError(
            f"scheduler = {address!r} is another computer, without encryption: whoever reaches "
            "that port can run code as you, here and there. Use tls:// with certificates "
            "(mscam-dask tls DIR makes them), or a tunnel to 127.0.0.1, or say --insecure on a "
            "network that you trust. Names other than localhost are not looked up: this computer "
            "is 127.0.0.1 or [::1]."
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        # what a name stands for may change between this question and the connection
        return host == "localhost"
