"""Certificates of a cluster, of its own authority.

    DIR/
        ca.pem              certificate of the authority, for every computer of the cluster
        ca-key.pem          its key, which signs new certificates; do not copy it
        scheduler.pem, scheduler-key.pem
        worker.pem, worker-key.pem
        client.pem, client-key.pem

Dask accepts every peer with a certificate of the authority, whatever its host, so anyone with a key can run
code on every worker. Only their owner can read the keys.
"""

from __future__ import annotations

import datetime as dt
import inspect
import shlex
import stat
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from mscam_dask.errors import ConfigurationError

ROLES = ("scheduler", "worker", "client")
"""Roles with a certificate each."""

_AUTHORITY = "ca"
_CLOCK_SKEW = dt.timedelta(minutes=5)  # between computers of a cluster
_NO_USE = dict.fromkeys(inspect.signature(x509.KeyUsage).parameters, False)
_SIGNS = x509.KeyUsage(**{**_NO_USE, "key_cert_sign": True, "crl_sign": True})

_Signer = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


@dataclass(frozen=True)
class CertificateSet:
    """Certificates in a directory, with the time at which they, or their authority before them, expire."""

    directory: Path
    expires: dt.datetime
    ends_with_authority: bool = False

    def certificate(self, role: str) -> Path:
        """Certificate of one of `ROLES`, or of the authority, "ca"."""
        return self.directory / f"{role}.pem"

    def key(self, role: str) -> Path:
        """Private key of one of `ROLES`, or of the authority, "ca"."""
        return self.directory / f"{role}-key.pem"

    def write(self, role: str, signed: _Signer) -> None:
        """Write a certificate and its key to new files with exactly these modes, whatever the umask."""
        certificate, key = signed
        pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        private = key.private_bytes(pem, pkcs8, serialization.NoEncryption())
        for file, content, mode in (
            (self.key(role), private, 0o600),
            (self.certificate(role), certificate.public_bytes(pem), 0o644),
        ):
            file.unlink(missing_ok=True)
            file.touch(mode, exist_ok=False)
            file.chmod(mode)
            file.write_bytes(content)


def make_certificates(
    directory: str | Path,
    *,
    days: float = 365.0,
    renew: bool = False,
    now: dt.datetime | None = None,
) -> CertificateSet:
    """Write an authority, valid for ten times `days`, and a certificate and key for each role.

    With `renew`, the existing authority signs them, for at most as long as it is valid itself.
    """
    now = now or dt.datetime.now(dt.UTC)
    if not 0 < days <= 36500:
        raise ConfigurationError(
            f"days = {days:g} is out of range. Give a number above 0, at most 36500."
        )
    root = Path(directory).absolute()
    made = CertificateSet(root, now + dt.timedelta(days=days))
    if root.exists() and not root.is_dir():
        raise ConfigurationError(f"{root} is a file. Give a directory.")
    if root.is_dir() and root.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigurationError(
            f"{root} is writable by its group or by everybody, who could replace the certificates. "
            f"Run chmod go-w {shlex.quote(str(root))}, or give another directory."
        )
    existing = [f"{name}.pem" for name in (_AUTHORITY, *ROLES) if made.certificate(name).exists()]
    if existing and not renew:
        raise ConfigurationError(
            f"{root} contains certificates ({', '.join(existing)}). Use --renew for new ones of the "
            "same authority, or give another directory."
        )
    if renew:
        signer = _read_authority(made, now)
        ends = signer[0].not_valid_after_utc
        if made.expires > ends:
            made = CertificateSet(root, ends, ends_with_authority=True)
    else:
        if not root.is_dir():
            root.mkdir(parents=True)
            root.chmod(0o700)
        signer = _signed("authority", now, now + dt.timedelta(days=10 * days))
        made.write(_AUTHORITY, signer)
    for role in ROLES:
        made.write(role, _signed(role, now, made.expires, signer))
    return made


def _signed(
    name: str, starts: dt.datetime, ends: dt.datetime, signer: _Signer | None = None
) -> _Signer:
    """Certificate of a role, or of the authority itself where there is none yet, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name.from_rfc4514_string(f"CN={name},O=mscam_dask")
    issuer, signing_key = (subject, key) if signer is None else (signer[0].subject, signer[1])
    builder = x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=starts - _CLOCK_SKEW,
        not_valid_after=ends,
    )
    extensions: dict[x509.ExtensionType, bool] = {
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()): False,
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()): False,
        x509.BasicConstraints(ca=signer is None, path_length=0 if signer is None else None): True,
        **({_SIGNS: True} if signer is None else {}),
    }
    for extension, is_critical in extensions.items():
        builder = builder.add_extension(extension, is_critical)
    return builder.sign(signing_key, hashes.SHA256()), key


def _read_authority(made: CertificateSet, now: dt.datetime) -> _Signer:
    file = made.certificate(_AUTHORITY)
    try:
        authority = x509.load_pem_x509_certificate(file.read_bytes())
        key = serialization.load_pem_private_key(made.key(_AUTHORITY).read_bytes(), None)
        own = authority.public_key()
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != own:
            raise ValueError(f"{made.key(_AUTHORITY)} is not its key")
        if authority.not_valid_after_utc <= now:
            raise ValueError(f"it expired on {authority.not_valid_after_utc:%Y-%m-%d}")
    except (OSError, ValueError, TypeError) as error:
        raise ConfigurationError(
            f"{file} cannot be used: {error}. Make new certificates in another directory "
            "without --renew, and copy them to every computer."
        ) from error
    return authority, key
