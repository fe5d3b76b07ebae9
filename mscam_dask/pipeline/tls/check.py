"""The encrypted way to a scheduler: its certificate files, and a first handshake.

Dask tries a refused connection again until its time is up, and then says that time was up. The
handshake made here before asks once and says who refused whom, and why.
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
_SILENCE_S = 2.0  # a Dask scheduler speaks first

_FILES = (
    ("tls_ca", "distributed.comm.tls.ca-file"),
    ("tls_cert", "distributed.comm.tls.client.cert"),
    ("tls_key", "distributed.comm.tls.client.key"),
)

_REMEDY = (
    "Certificates of scheduler, workers and client have to be valid and of one authority; "
    "mscam-dask tls DIR makes a set."
)


def check_certificates(execution: ExecutionTable) -> None:
    """Refuse, before any connection, certificate files that cannot be used.

    Raises
    ------
    ConfigurationError
        When one is not given, missing, no certificate, encrypted with a passphrase, or the key
        is that of another certificate.
    """
    _context(execution)


def _context(execution: ExecutionTable) -> ssl.SSLContext:
    """What Dask's client will use: the authority's signature counts, names do not."""
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
            f"tls_ca = {files['tls_ca']!r} cannot be used as an authority's certificate in PEM "
            f"form: {_reason(error)}."
        ) from error
    try:
        context.load_cert_chain(files["tls_cert"], files["tls_key"], password=_no_passphrase)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"tls_cert = {files['tls_cert']!r} and tls_key = {files['tls_key']!r} cannot be used "
            f"as a certificate and its private key in PEM form: {_reason(error)}. Keys with a "
            "passphrase cannot be used; protect the file instead."
        ) from error
    return context


def _file(execution: ExecutionTable, option: str, setting: str) -> str | None:
    import dask.config

    file: str | None = getattr(execution, option) or dask.config.get(setting, None)
    if file is None:
        if option == "tls_key":
            return None  # it may be in the certificate's file
        raise ConfigurationError(
            f"scheduler = {execution.scheduler!r} needs a certificate file for {option}; give "
            f"--{option.replace('_', '-')} FILE, or [execution] {option}, or Dask's own setting "
            f"{setting}."
        )
    if not Path(file).is_file():
        raise ConfigurationError(f"{option} = {str(file)!r}: there is no such file.")
    return str(file)


def _no_passphrase() -> str:
    raise ValueError("it has a passphrase")


def check_handshake(execution: ExecutionTable) -> None:
    """Ask a running scheduler once whether it talks to us the way its address says.

    Parameters
    ----------
    execution
        With the address of a scheduler, checked by `mscam_dask.pipeline.config.execution`.

    Raises
    ------
    SchedulerLostError
        When nothing listens there.
    ClusterError
        When one side encrypts and the other does not, or one refuses the
        other's certificate.
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
            f"nothing answers at the scheduler's address {address} within {_TIMEOUT_S:g} s. Check "
            "that it runs, the address, and whether a firewall is between."
        ) from error
    except OSError as error:
        raise SchedulerLostError(
            f"the scheduler {address} does not answer as a Dask scheduler should: "
            f"{_reason(error)}. Check that it runs, and the address."
        ) from error


def _encrypted(address: str, context: ssl.SSLContext, host: str, port: int) -> None:
    with socket.create_connection((host, port), timeout=_TIMEOUT_S) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=host) as stream:
                # with TLS 1.3 the other side may refuse our certificate after the handshake;
                # a scheduler that takes it greets
                greeting = stream.recv(1)
        except ssl.SSLCertVerificationError as error:
            raise ClusterError(
                f"the certificate of the scheduler {address} is refused: {error.verify_message}. "
                f"{_REMEDY}"
            ) from error
        except ssl.SSLError as error:
            if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
                raise ClusterError(
                    f"the scheduler {address} does not encrypt. Start it with --protocol tls and "
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
        stream.settimeout(_SILENCE_S)
        try:
            stream.recv(1)
        except TimeoutError:
            pass  # it waits for us to speak, as who encrypts does, or it is very busy
        else:
            return
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # nothing is sent: the question is who is there
        try:
            with context.wrap_socket(stream, server_hostname=host):
                encrypts = True
        except ssl.SSLError as error:
            encrypts = "ALERT" in (error.reason or "")
        except OSError:
            encrypts = False
    if encrypts:
        raise ClusterError(
            f"the scheduler {address} encrypts and does not talk over plain tcp://. Use tls:// with "
            f"--tls-ca, --tls-cert and --tls-key. {_REMEDY}"
        )


def _reason(error: Exception) -> str:
    """OpenSSL's reason in words, without its file and line."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
