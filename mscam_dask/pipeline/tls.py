"""TLS of a cluster: checks of its files and connection, and certificates of its own authority.

Dask retries a refused connection until its timeout, and then reports a timeout. The handshake here
is made once, before, and reports which side refused the other and why. Certificates are written to

    DIR/
        ca.pem              certificate of the authority, for every computer of the cluster
        ca-key.pem          its key, which signs new certificates; do not copy it
        scheduler.pem, scheduler-key.pem
        worker.pem, worker-key.pem
        client.pem, client-key.pem

Dask accepts every peer with a certificate of the authority, so anyone with a key can run code on
every worker. Only their owner can read the keys.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import re
import shlex
import socket
import ssl
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mscam_dask.errors import ClusterError, ConfigurationError, SchedulerLostError
from mscam_dask.pipeline.config.settings import ExecutionTable

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey


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
    """Refuse unusable certificate files before a connection."""
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
    """Connect once to a scheduler, with or without TLS as in its address."""
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


ROLES = ("scheduler", "worker", "client")
"""Roles with a certificate each."""

_AUTHORITY = "ca"
_CLOCK_SKEW = dt.timedelta(minutes=5)  # between computers of a cluster

_MAX_HOST = 253
_LABEL = r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)"
_NAME = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*\.?")


@dataclass(frozen=True)
class CertificateSet:
    """Certificates in a directory.

    Attributes
    ----------
    directory
    expires
        Time (UTC) when the certificates expire, at the latest together with the authority.
    ends_with_authority
        Whether they expire earlier than requested, because the authority does.
    """

    directory: Path
    expires: dt.datetime
    ends_with_authority: bool = False

    @property
    def authority(self) -> Path:
        """Certificate of the authority."""
        return self.directory / f"{_AUTHORITY}.pem"

    def certificate(self, role: str) -> Path:
        """Certificate of one of `ROLES`."""
        return self.directory / f"{role}.pem"

    def key(self, role: str) -> Path:
        """Private key of one of `ROLES`."""
        return self.directory / f"{role}-key.pem"


def make_certificates(
    directory: str | Path,
    *,
    hosts: Sequence[str] = ("localhost", "127.0.0.1", "::1"),
    days: float = 365.0,
    renew: bool = False,
    now: dt.datetime | None = None,
) -> CertificateSet:
    """Write an authority, and a certificate and a key for scheduler, workers and client."""
    from_when = (now or dt.datetime.now(dt.UTC)) - _CLOCK_SKEW
    if not 0 < days <= 36500:
        raise ConfigurationError(
            f"days = {days:g} is out of range. Give a number above 0, at most 36500."
        )
    _check_hosts(hosts)
    root = Path(directory).absolute()
    made = CertificateSet(root, from_when + _CLOCK_SKEW + dt.timedelta(days=days))
    _check_directory(made, renew=renew)
    if not root.is_dir():
        root.mkdir(parents=True)
        root.chmod(0o700)
    if renew:
        authority, authority_key = _read_authority(made, from_when + _CLOCK_SKEW)
        if made.expires > authority.not_valid_after_utc:
            made = replace(made, expires=authority.not_valid_after_utc, ends_with_authority=True)
    else:
        lifetime = (from_when, from_when + _CLOCK_SKEW + dt.timedelta(days=10 * days))
        authority_key = _new_key()
        authority = _authority(authority_key, lifetime)
        _write(made.key(_AUTHORITY), _key_bytes(authority_key), mode=0o600)
        _write(made.authority, _pem(authority), mode=0o644)
    for role in ROLES:
        key = _new_key()
        certificate = _signed(role, key, (from_when, made.expires), hosts, authority, authority_key)
        _write(made.key(role), _key_bytes(key), mode=0o600)
        _write(made.certificate(role), _pem(certificate), mode=0o644)
    return made


def _check_directory(made: CertificateSet, *, renew: bool) -> None:
    root = made.directory
    if root.exists() and not root.is_dir():
        raise ConfigurationError(f"{root} is a file. Give a directory.")
    if root.is_dir() and root.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigurationError(
            f"{root} is writable by its group or by everybody, who could replace the certificates. "
            f"Run chmod go-w {shlex.quote(str(root))}, or give another directory."
        )
    existing = [name for name in (_AUTHORITY, *ROLES) if made.certificate(name).exists()]
    if renew and _AUTHORITY not in existing:
        raise ConfigurationError(
            f"{made.authority} does not exist, so nothing can be renewed. Run without --renew."
        )
    if existing and not renew:
        raise ConfigurationError(
            f"{root} contains certificates ({', '.join(f'{name}.pem' for name in existing)}). Use "
            "--renew for new ones of the same authority, or give another directory."
        )


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _name(common_name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "mscam_dask"),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: EllipticCurvePrivateKey,
    lifetime: tuple[dt.datetime, dt.datetime],
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(lifetime[0])
        .not_valid_after(lifetime[1])
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _authority(
    key: EllipticCurvePrivateKey, lifetime: tuple[dt.datetime, dt.datetime]
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    name = _name("authority")
    return (
        _builder(name, name, key, lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _signed(
    role: str,
    key: EllipticCurvePrivateKey,
    lifetime: tuple[dt.datetime, dt.datetime],
    hosts: Sequence[str],
    authority: x509.Certificate,
    authority_key: EllipticCurvePrivateKey,
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID

    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    return (
        _builder(_name(role), authority.subject, key, lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(issuer, critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _read_authority(
    made: CertificateSet, now: dt.datetime
) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        authority = x509.load_pem_x509_certificate(made.authority.read_bytes())
        key = load_pem_private_key(made.key(_AUTHORITY).read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigurationError(
            f"the authority in {made.directory} cannot be read ({type(error).__name__}). Make new "
            "certificates in another directory, and copy them to every computer."
        ) from error
    if not isinstance(key, EllipticCurvePrivateKey) or key.public_key() != authority.public_key():
        raise ConfigurationError(
            f"{made.key(_AUTHORITY)} is not the key of {made.authority}. Make new certificates "
            "in another directory, and copy them to every computer."
        )
    if authority.not_valid_after_utc <= now:
        raise ConfigurationError(
            f"{made.authority} expired on {authority.not_valid_after_utc:%Y-%m-%d}. Make new "
            "certificates in another directory, and copy them to every computer."
        )
    return authority, key


def _key_bytes(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM)


def _write(file: Path, content: bytes, *, mode: int) -> None:
    """Write a new file with exactly this mode, whatever the umask."""
    file.unlink(missing_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as stream:
        os.fchmod(descriptor, mode)
        stream.write(content)


def _check_hosts(hosts: Sequence[str]) -> None:
    """Refuse texts that are not a host name (RFC 1123) or an IP address.

    Underscores and a leading ``*.`` are allowed.
    """
    allowed = "Give host names (letters, digits, '-' and '.') or IP addresses."
    if not hosts:
        raise ConfigurationError(f"hosts = [] is empty. {allowed}")
    for host in hosts:
        if _is_address(host) or (len(host) <= _MAX_HOST and _NAME.fullmatch(host)):
            continue
        ascii_form = _ascii_form(host)
        remedy = f"Give it as {ascii_form!r}." if ascii_form else allowed
        raise ConfigurationError(f"{host!r} in hosts is not a host name or IP address. {remedy}")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _ascii_form(host: str) -> str:
    """ASCII form (IDNA) of an international host name, or an empty text."""
    try:
        encoded = host.encode("idna").decode("ascii")
    except UnicodeError:
        return ""
    return encoded if encoded != host and _NAME.fullmatch(encoded) else ""
