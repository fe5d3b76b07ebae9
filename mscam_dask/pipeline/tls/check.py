"""Checks of the certificate files and of the connection to a scheduler.

Dask retries a refused connection until its timeout, and then reports a timeout. The handshake here
is made once, before, and reports which side refused the other and why.
"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from mscam_dask.errors import ClusterError, ConfigurationError, SchedulerLostError
from mscam_dask.pipeline.config.settings import ExecutionTable

__all__ = ["check_certificates", "check_handshake"]

_TIMEOUT_S = 5.0
_GREETING_S = 2.0  # a Dask scheduler sends the first bytes

_FILES = (
    ("tls_ca", "distributed.comm.tls.ca-file"),
    ("tls_cert", "distributed.comm.tls.client.cert"),
    ("tls_key", "distributed.comm.tls.client.key"),
)

_REMEDY = (
    "Use valid certificates of one authority for scheduler, workers and client (mscam-dask tls DIR "
    "makes them)."
)


def check_certificates(execution: ExecutionTable) -> None:
    """Refuse unusable certificate files before a connection.

    Raises
    ------
    ConfigurationError
        When a file is not given, does not exist, is not a certificate, has a passphrase, or is the
        key of another certificate.
    """
    _context(execution)


def _context(execution: ExecutionTable) -> ssl.SSLContext:
    """TLS context of Dask's client: it checks the authority, but not host names."""
    files = {option: _file(execution, option, setting) for option, setting in _FILES}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    assert files["tls_ca"] is not None
    assert files["tls_cert"] is not None
    try:
        context.load_verify_locations(files["tls_ca"])
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"tls_ca = {files['tls_ca']!r} is not a certificate in PEM form: {_reason(error)}. "
            "Give the certificate of the authority."
        ) from error
    try:
        context.load_cert_chain(files["tls_cert"], files["tls_key"], password=_no_passphrase)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"tls_cert = {files['tls_cert']!r} and tls_key = {files['tls_key']!r} are not a "
            f"certificate and its private key in PEM form: {_reason(error)}. Give a key without a "
            "passphrase, in a file that only you can read."
        ) from error
    return context


def _file(execution: ExecutionTable, option: str, setting: str) -> str | None:
    import dask.config

    file: str | None = getattr(execution, option) or dask.config.get(setting, None)
    if file is None:
        if option == "tls_key":
            return None  # may be in the file of the certificate
        raise ConfigurationError(
            f"scheduler = {execution.scheduler!r} needs {option}. Give "
            f"--{option.replace('_', '-')} FILE, [execution] {option}, or Dask's setting {setting}."
        )
    if not Path(file).is_file():
        raise ConfigurationError(f"{option} = {str(file)!r} is not a file. Check the path.")
    return str(file)


def _no_passphrase() -> str:
    raise ValueError("it has a passphrase")


def check_handshake(execution: ExecutionTable) -> None:
    """Connect once to a scheduler, with or without TLS as in its address.

    Parameters
    ----------
    execution
        Contains the address of a scheduler, checked by `mscam_dask.pipeline.config.validate`.

    Raises
    ------
    SchedulerLostError
        When nothing listens there.
    ClusterError
        When only one side uses TLS, or one side refuses the certificate of the other.
    ConfigurationError
        As `check_certificates`.
    """
    address = execution.scheduler or ""
    parts = urlsplit(address)
    assert parts.hostname is not None
    assert parts.port is not None
    context = _context(execution) if parts.scheme == "tls" else None
    try:
        if context is None:
            _plain(address, parts.hostname, parts.port)
        else:
            _encrypted(address, context, parts.hostname, parts.port)
    except TimeoutError as error:
        raise SchedulerLostError(
            f"no answer from the scheduler at {address} within {_TIMEOUT_S:g} s. Check that it "
            "runs, the address, and firewalls."
        ) from error
    except OSError as error:
        raise SchedulerLostError(
            f"no connection to the scheduler {address}: {_reason(error)}. Check that it runs, and "
            "the address."
        ) from error


def _encrypted(address: str, context: ssl.SSLContext, host: str, port: int) -> None:
    with socket.create_connection((host, port), timeout=_TIMEOUT_S) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=host) as stream:
                # with TLS 1.3 the scheduler may refuse the certificate after the handshake; if it
                # accepts, it sends a greeting
                greeting = stream.recv(1)
        except ssl.SSLCertVerificationError as error:
            raise ClusterError(
                f"the certificate of the scheduler {address} is refused: {error.verify_message}. "
                f"{_REMEDY}"
            ) from error
        except ssl.SSLError as error:
            if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
                raise ClusterError(
                    f"the scheduler {address} does not use TLS. Start it with --protocol tls and "
                    "its certificates, or use tcp:// on this computer."
                ) from error
            raise ClusterError(_refused(address, _reason(error))) from error
        except ConnectionError as error:
            raise ClusterError(_refused(address, _reason(error))) from error
    if not greeting:
        raise ClusterError(_refused(address, "it closed the connection"))


def _refused(address: str, reason: str) -> str:
    return f"the scheduler {address} refuses the certificate of this client: {reason}. {_REMEDY}"


def _plain(address: str, host: str, port: int) -> None:
    with socket.create_connection((host, port), timeout=_TIMEOUT_S) as stream:
        stream.settimeout(_GREETING_S)
        try:
            stream.recv(1)
        except TimeoutError:
            pass  # with TLS the client speaks first; or the scheduler is busy
        else:
            return
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # no data is sent on this connection
        try:
            with context.wrap_socket(stream, server_hostname=host):
                encrypts = True
        except ssl.SSLError as error:
            encrypts = "ALERT" in (error.reason or "")
        except OSError:
            encrypts = False
    if encrypts:
        raise ClusterError(
            f"the scheduler {address} uses TLS. Use a tls:// address with --tls-ca, --tls-cert and "
            "--tls-key."
        )


def _reason(error: Exception) -> str:
    """Reason of an error, without the file and line of OpenSSL."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
