"""Certificates: what is made, who may read it, and what is refused."""

from __future__ import annotations

import datetime as dt
import os
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.tls import ROLES, make_certificates
from tests.messages import raises


def read(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def test_a_certificate_for_everyone_signed_by_one_authority(tmp_path: Path) -> None:
    made = make_certificates(tmp_path / "tls", days=30)
    authority = read(made.certificate("ca"))
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    for role in ROLES:
        certificate = read(made.certificate(role))
        certificate.verify_directly_issued_by(authority)
        assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
        assert dt.timedelta(days=30) <= lifetime < dt.timedelta(days=31)


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_keys_are_for_their_owner_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    previous = os.umask(umask)
    try:
        made = make_certificates(tmp_path / "tls")
    finally:
        os.umask(previous)
    assert stat.S_IMODE(made.directory.stat().st_mode) == 0o700
    for name in (*ROLES, "ca"):
        assert stat.S_IMODE(made.key(name).stat().st_mode) == 0o600
        assert stat.S_IMODE(made.certificate(name).stat().st_mode) == 0o644
        assert b"PRIVATE KEY" not in made.certificate(name).read_bytes()


def test_an_authority_that_cannot_renew(tmp_path: Path) -> None:
    old, mixed = tmp_path / "old", tmp_path / "mixed"
    make_certificates(old, days=1, now=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
    make_certificates(mixed)
    for directory, values in (
        (tmp_path / "none", [tmp_path / "none" / "ca.pem", "--renew"]),
        (old, [old / "ca.pem", "2020-01-11"]),
    ):
        with raises(ConfigurationError, *values):
            make_certificates(directory, renew=True)
    for key in ((old / "ca-key.pem").read_bytes(), b"not a key"):
        (mixed / "ca-key.pem").write_bytes(key)
        with raises(ConfigurationError, mixed):
            make_certificates(mixed, renew=True)
    name, now, other = x509.Name([]), dt.datetime.now(dt.UTC), ed25519.Ed25519PrivateKey.generate()
    ends = now + dt.timedelta(days=400)
    signed = x509.CertificateBuilder(name, name, other.public_key(), 1, now, ends).sign(other, None)
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (mixed / "ca.pem").write_bytes(signed.public_bytes(pem))
    key = other.private_bytes(pem, pkcs8, serialization.NoEncryption())
    (mixed / "ca-key.pem").write_bytes(key)
    with raises(ConfigurationError, mixed):
        make_certificates(mixed, renew=True)


def test_no_certificate_outlives_its_authority(tmp_path: Path) -> None:
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    first = make_certificates(tmp_path, days=30, now=now)  # the authority for 300
    ends = read(first.certificate("ca")).not_valid_after_utc
    assert (first.expires, first.ends_with_authority) == (now + dt.timedelta(days=30), False)
    for day, cut_short in ((270, False), (299, True)):
        later = now + dt.timedelta(days=day)
        renewed = make_certificates(tmp_path, days=30, now=later, renew=True)
        assert (renewed.expires, renewed.ends_with_authority) == (ends, cut_short)
        for role in ROLES:
            assert read(renewed.certificate(role)).not_valid_after_utc == ends
    with raises(ConfigurationError, tmp_path / "ca.pem", "2026-10-28"):
        make_certificates(tmp_path, days=30, now=ends, renew=True)


def test_a_lifetime_that_is_out_of_range_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    for days in (0.0, float("nan"), float("inf")):
        with raises(ConfigurationError, "days", f"{days:g}", "36500"):
            make_certificates(tmp_path / "tls", days=days)
    assert not (tmp_path / "tls").exists()


def test_a_file_or_a_directory_that_others_can_write_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tls"
    file.touch()
    with raises(ConfigurationError, file):
        make_certificates(file)
    (tmp_path / "open").mkdir()
    for mode in (0o770, 0o702):
        (tmp_path / "open").chmod(mode)
        with raises(ConfigurationError, tmp_path / "open", "chmod go-w"):
            make_certificates(tmp_path / "open")
    assert list((tmp_path / "open").iterdir()) == []
