"""`mscam-dask tls`."""

from __future__ import annotations

from pathlib import Path

from mscam_dask.cli.console import fields, relative, results_console, show
from mscam_dask.pipeline.tls.certificates import make_certificates

__all__ = ["make_tls_directory"]


def make_tls_directory(directory: Path, *, hosts: tuple[str, ...], days: float, renew: bool) -> int:
    """Make the certificates, and say how they are used."""
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
    care = (
        f"{where}/ca-key.pem signs new certificates (--renew) and belongs on no other computer; "
        "whoever has a key can run code on every worker."
    )
    pairs = [
        ("Certificates", f"{where}, until {made.expires:%Y-%m-%d}"),
        ("Scheduler", f"dask scheduler --protocol tls {files('scheduler')}"),
        ("Workers", f"dask worker tls://HOST:8786 {files('worker')}"),
        ("Runs", client),
        ("Keep", care),
    ]
    if made.ends_with_authority:
        ends = (
            f"{where}/ca.pem ends on {made.expires:%Y-%m-%d}, before the {days:g} days asked for, and "
            "the certificates end with it. Make a new authority in another directory (mscam-dask tls "
            "DIR) before then, give its files to every computer, and restart the cluster."
        )
        pairs.insert(1, ("Attention", ends))
    show(results_console(), fields(pairs))
    return 0
