"""Certificates: what is made, who may read it, and what is refused."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import stat
from pathlib import Path

import pytest
from cryptography import x509

from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.tls import ROLES, make_certificates
from tests.messages import raises


def read(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def test_a_certificate_for_everyone_signed_by_one_authority(tmp_path: Path) -> None:
    made = make_certificates(tmp_path / "tls", hosts=("node-1", "192.0.2.7"), days=30)
    authority = read(made.authority)
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    for role in ROLES:
        certificate = read(made.certificate(role))
        certificate.verify_directly_issued_by(authority)
        assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == ["node-1"]
        assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("192.0.2.7")]
        lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
        assert dt.timedelta(days=30) <= lifetime < dt.timedelta(days=31)


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    made = make_certificates(tmp_path / "tls")
    assert stat.S_IMODE(made.directory.stat().st_mode) == 0o700
    for name in (*ROLES, "ca"):
        assert stat.S_IMODE(made.key(name).stat().st_mode) == 0o600
        assert b"PRIVATE KEY" not in made.certificate(name).read_bytes()


def test_what_is_there_is_not_replaced_unless_asked(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with raises(ConfigurationError, tmp_path, "ca.pem", "--renew"):
        make_certificates(tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    renewed = make_certificates(tmp_path, renew=True)
    assert renewed.authority.read_bytes() == before["ca.pem"]
    assert renewed.key("ca").read_bytes() == before["ca-key.pem"]
    for role in ROLES:
        assert made.key(role).read_bytes() != before[f"{role}-key.pem"]
        read(made.certificate(role)).verify_directly_issued_by(read(made.authority))


def test_an_authority_that_cannot_renew(tmp_path: Path) -> None:
    with raises(ConfigurationError, tmp_path / "none" / "ca.pem", "--renew"):
        make_certificates(tmp_path / "none", renew=True)
    old = tmp_path / "old"
    make_certificates(old, days=1, now=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
    with raises(ConfigurationError, old / "ca.pem", "2020-01-11"):
        make_certificates(old, renew=True)
    mixed = tmp_path / "mixed"
    make_certificates(mixed)
    (mixed / "ca-key.pem").write_bytes((old / "ca-key.pem").read_bytes())
    with raises(ConfigurationError, mixed / "ca-key.pem", mixed / "ca.pem"):
        make_certificates(mixed, renew=True)
    (mixed / "ca-key.pem").write_text("not a key")
    with raises(ConfigurationError, mixed, "ValueError"):
        make_certificates(mixed, renew=True)


def test_no_certificate_outlives_its_authority(tmp_path: Path) -> None:
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    first = make_certificates(tmp_path, days=30, now=now)  # the authority for 300
    ends = read(first.authority).not_valid_after_utc
    assert not first.ends_with_authority
    assert first.expires == now + dt.timedelta(days=30)
    early = make_certificates(tmp_path, days=30, now=now + dt.timedelta(days=270), renew=True)
    assert (early.expires, early.ends_with_authority) == (ends, False)
    late = make_certificates(tmp_path, days=30, now=now + dt.timedelta(days=299), renew=True)
    assert (late.expires, late.ends_with_authority) == (ends, True)
    for role in ROLES:
        assert read(late.certificate(role)).not_valid_after_utc == ends
    with raises(ConfigurationError, tmp_path / "ca.pem", "2026-10-28"):
        make_certificates(tmp_path, days=30, now=ends, renew=True)


@pytest.mark.parametrize("days", [0.0, float("nan"), float("inf")])
def test_days_that_are_none(tmp_path: Path, days: float) -> None:
    with raises(ConfigurationError, "days", f"{days:g}", "36500"):
        make_certificates(tmp_path / "tls", days=days)
    assert not (tmp_path / "tls").exists()


@pytest.mark.parametrize(
    ("hosts", "values"),
    [
        ((), ["[]"]),
        (("",), ["''"]),
        (("node-1", "bad host!"), ["'bad host!'"]),
        (("-node",), ["'-node'"]),
        (("300.1.1.1/8",), ["'300.1.1.1/8'"]),
        (("x" * 64,), [f"'{'x' * 64}'"]),
        (("ünïcode.example",), ["'ünïcode.example'", "'xn--ncode-cta3g.example'"]),
    ],
)
def test_hosts_that_are_none_are_refused_before_anything_is_written(
    tmp_path: Path, hosts: tuple[str, ...], values: list[str]
) -> None:
    with raises(ConfigurationError, "hosts", *values):
        make_certificates(tmp_path / "tls", hosts=hosts)
    assert not (tmp_path / "tls").exists()


def test_hosts_that_networks_have(tmp_path: Path) -> None:
    hosts = ("node_1", "a.b.example.", "*.pool.example", "192.0.2.7", "2001:db8::1", "7")
    make_certificates(tmp_path / "tls", hosts=hosts)


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    file = tmp_path / "tls"
    file.touch()
    with raises(ConfigurationError, file):
        make_certificates(file)


@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_a_directory_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(mode)
    with raises(ConfigurationError, tmp_path / "open", "chmod go-w"):
        make_certificates(tmp_path / "open")
    assert list((tmp_path / "open").iterdir()) == []


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_modes_do_not_depend_on_the_umask(tmp_path: Path, umask: int) -> None:
    previous = os.umask(umask)
    try:
        made = make_certificates(tmp_path / "tls")
    finally:
        os.umask(previous)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in made.directory.iterdir()}
    assert stat.S_IMODE(made.directory.stat().st_mode) == 0o700
    assert {mode for name, mode in modes.items() if "key" in name} == {0o600}
    assert {mode for name, mode in modes.items() if "key" not in name} == {0o644}
