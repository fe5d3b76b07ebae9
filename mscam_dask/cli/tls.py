"""`mscam-dask tls`: certificates of a cluster."""

from __future__ import annotations

from pathlib import Path

from mscam_dask.cli.console import key_values, relative, results_console, show
from mscam_dask.pipeline.tls import make_certificates


def make_tls_directory(directory: Path, *, hosts: tuple[str, ...], days: float, renew: bool) -> int:
    """Make certificates, print the commands that use them, and return the exit code."""
    local = ("localhost", "127.0.0.1", "::1")
    made = make_certificates(
        directory, hosts=tuple(dict.fromkeys((*local, *hosts))), days=days, renew=renew
    )
    where = relative(made.directory)

    def files(role: str) -> str:
        return (
            f"--tls-ca-file {where}/ca.pem --tls-cert {where}/{role}.pem "
            f"--tls-key {where}/{role}-key.pem"
        )

    client = (
        f"mscam-dask run PIPELINE.toml --scheduler tls://HOST:8786 --tls-ca {where}/ca.pem "
        f"--tls-cert {where}/client.pem --tls-key {where}/client-key.pem"
    )
    secret = (
        f"{where}/ca-key.pem signs new certificates (--renew). Do not copy it to other computers: "
        "anyone with a key can run code on every worker."
    )
    pairs = [
        ("Certificates", f"{where}, until {made.expires:%Y-%m-%d}"),
        ("Scheduler", f"dask scheduler --protocol tls {files('scheduler')}"),
        ("Workers", f"dask worker tls://HOST:8786 {files('worker')}"),
        ("Runs", client),
        ("Secret", secret),
    ]
    if made.ends_with_authority:
        ends = (
            f"{where}/ca.pem and its certificates expire on {made.expires:%Y-%m-%d}, before the "
            f"requested {days:g} days. Before then, make a new authority in another directory "
            "(mscam-dask tls DIR), copy its files to every computer, and restart the cluster."
        )
        pairs.insert(1, ("Warning", ends))
    show(results_console(), key_values(pairs))
    return 0
