"""Connections of a cluster: which must be encrypted, their certificates, and one handshake before Dask's own.

The handshake says which side refused the other, and why; Dask retries until its timeout, and reports only that.
"""

from __future__ import annotations

import ipaddress
import json
import re
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import dask.config
import msgspec

from mscam_dask.errors import ClusterError, ConfigurationError, SchedulerLostError
from mscam_dask.pipeline.settings import ENCRYPTED_BY_FILES, ExecutionTable

if TYPE_CHECKING:
    from distributed import Security

_ADDRESS = re.compile(
    r"(?P<scheme>tcp|tls)://(?P<host>[\w.-]+|\[[\w.:%-]+\]):(?P<port>[0-9]{1,5})", re.ASCII
)
_LAST_PORT = 2**16 - 1
_TIMEOUT_S = 5.0
_GREETING_S = 2.0  # a Dask scheduler sends the first bytes
_REMEDY = (
    "Use valid certificates of one authority for scheduler, workers and client (mscam-dask tls DIR "
    "makes them)."
)


def check_execution(execution: ExecutionTable, *, insecure: bool) -> None:
    """Refuse a cluster that cannot be used, or is not secure, before it is started."""
    execution = with_address(execution)
    if execution.scheduler is not None:
        _check_address(execution, insecure=insecure)
    elif execution.cluster in ENCRYPTED_BY_FILES and not insecure:
        hosts = (execution.cluster_options or {}).get("hosts", [""])
        if has_certificates(execution):
            client_context(execution)
        elif not all(_is_loopback(str(host)) for host in hosts):
            raise ConfigurationError(
                f"cluster = {execution.cluster!r} without certificates is not encrypted: anyone who "
                "reaches a port can run code as this user. Give tls_ca, tls_cert and tls_key, files "
                "that every host has (mscam-dask tls DIR makes them), or --insecure on a trusted "
                "network."
            )


def with_address(execution: ExecutionTable) -> ExecutionTable:
    """Return [execution] with the address in a file that `dask scheduler --scheduler-file` wrote."""
    file = execution.scheduler_file
    if file is None:
        return execution
    try:
        address = str(json.loads(Path(file).read_bytes())["address"])
    except FileNotFoundError as error:
        raise SchedulerLostError(
            f"scheduler_file = {file!r} is not there: no scheduler has written it. Start one with dask "
            f"scheduler --scheduler-file {file}, and repeat the command."
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"scheduler_file = {file!r} has no address of a scheduler ({type(error).__name__}: {error}). "
            "Give the file that dask scheduler --scheduler-file wrote."
        ) from error
    return msgspec.structs.replace(execution, scheduler=address)


def has_certificates(execution: ExecutionTable) -> bool:
    """Whether [execution] or Dask's configuration names an authority for encryption."""
    return bool(execution.tls_ca or dask.config.get("distributed.comm.tls.ca-file", None))


def is_encrypted(address: str) -> bool:
    """Whether a scheduler's address is encrypted, or in this process."""
    return urlsplit(address).scheme in ("tls", "gateway", "inproc", "ucxs", "wss")


def _check_address(execution: ExecutionTable, *, insecure: bool) -> None:
    address = execution.scheduler or ""
    found = _ADDRESS.fullmatch(address)
    if found is None or int(found["port"]) > _LAST_PORT:
        raise ConfigurationError(
            f"scheduler = {address!r} is not a scheduler address. Give tls://host:port or "
            "tcp://host:port, as the scheduler printed it when it started."
        )
    if found["scheme"] == "tls":
        client_context(execution)
    elif not (_is_loopback(found["host"].strip("[]")) or insecure):
        raise ConfigurationError(
            f"scheduler = {address!r} is another computer without encryption (this one is localhost, "
            "127.0.0.1 or [::1]): anyone who reaches the port can run code as this user. Use tls:// "
            "with certificates (mscam-dask tls DIR makes them), a tunnel to 127.0.0.1, or --insecure "
            "on a trusted network."
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        # other names may resolve to another address when the connection is made
        return host == "localhost"


def certificates(execution: ExecutionTable) -> dict[str, str]:
    """Return the settings of Dask with the certificate files of [execution], for every role."""
    files = {"ca-file": execution.tls_ca}
    for role in ("scheduler", "worker", "client"):
        files[f"{role}.cert"] = execution.tls_cert
        files[f"{role}.key"] = execution.tls_key or execution.tls_cert
    return {f"distributed.comm.tls.{key}": file for key, file in files.items() if file}


def security_of(execution: ExecutionTable) -> Security:
    """Certificate files of [execution], or else those of Dask's configuration."""
    from distributed import Security

    with dask.config.set(certificates(execution)):
        return Security(require_encryption=True)


def client_context(execution: ExecutionTable) -> ssl.SSLContext:
    """Return Dask's own TLS context of a client, after checks of its files."""
    security = security_of(execution)
    found = security.get_tls_config_for_role("client")
    files = {
        "tls_ca": (found["ca_file"], "ca-file"),
        "tls_cert": (found["cert"], "client.cert"),
        "tls_key": (found["key"] or found["cert"], "client.key"),
    }
    for option, (file, setting) in files.items():
        if file is None:
            raise ConfigurationError(
                f"scheduler = {execution.scheduler!r} needs {option}. Give --{option.replace('_', '-')} "
                f"FILE, [execution] {option}, or Dask's setting distributed.comm.tls.{setting}."
            )
        if not Path(file).is_file():
            raise ConfigurationError(f"{option} = {str(file)!r} is not a file. Check the path.")
    try:
        if b"ENCRYPTED" in Path(files["tls_key"][0]).read_bytes():
            raise ValueError("the key has a passphrase")
        context: ssl.SSLContext = security.get_connection_args("client")["ssl_context"]
    except (OSError, ValueError) as error:
        given = ", ".join(f"{option} = {str(file)!r}" for option, (file, _) in files.items())
        raise ConfigurationError(
            f"{given} are not the certificate of an authority, a certificate and its private key in PEM "
            f"form: {_reason(error)}. Give a key without a passphrase, in a file that only you can read."
        ) from error
    return context


def check_handshake(execution: ExecutionTable) -> None:
    """Connect once to a scheduler, with or without TLS as in its address."""
    address = execution.scheduler or ""
    parts = urlsplit(address)
    place = (str(parts.hostname), parts.port or 0)
    context = client_context(execution) if parts.scheme == "tls" else None
    try:
        with socket.create_connection(place, timeout=_TIMEOUT_S) as plain:
            if context is not None:
                _encrypted(address, context, plain)
                return
            plain.settimeout(
                _GREETING_S
            )  # a scheduler without TLS speaks first; a busy one is late
            with suppress(TimeoutError):
                plain.recv(1)
                return
        with suppress(OSError):  # it does not use TLS, or is late
            ssl.get_server_certificate(place, timeout=_TIMEOUT_S)
            raise ClusterError(
                f"the scheduler {address} uses TLS. Use a tls:// address with --tls-ca, --tls-cert "
                "and --tls-key."
            )
    except OSError as error:
        raise SchedulerLostError(
            f"no connection to the scheduler {address}: {_reason(error)}. Check that it runs, the "
            "address, and firewalls."
        ) from error


def _encrypted(address: str, context: ssl.SSLContext, plain: socket.socket) -> None:
    try:
        with context.wrap_socket(plain) as stream:
            # with TLS 1.3 the scheduler may refuse the certificate after the handshake; if it
            # accepts, it sends a greeting
            if stream.recv(1):
                return
        raise ConnectionError("it closed the connection")
    except ssl.SSLCertVerificationError as error:
        raise ClusterError(
            f"the certificate of the scheduler {address} is refused: {error.verify_message}. {_REMEDY}"
        ) from error
    except (ssl.SSLError, ConnectionError) as error:
        if getattr(error, "reason", None) in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            raise ClusterError(
                f"the scheduler {address} does not use TLS. Start it with --protocol tls and "
                "its certificates, or use tcp:// on this computer."
            ) from error
        raise ClusterError(
            f"the scheduler {address} refuses the certificate of this client: {_reason(error)}. {_REMEDY}"
        ) from error


def _reason(error: Exception) -> str:
    """Reason of an error, without the file and line of OpenSSL."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return getattr(error, "strerror", None) or str(error)
