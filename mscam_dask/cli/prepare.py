"""`mscam-dask ingest` and `tls`: the store and the certificates that runs use."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import Any

from mscam_dask.cli.console import (
    key_values,
    origin_tables,
    relative,
    results_console,
    show,
    stored_views_table,
)
from mscam_dask.data.ingest import append, ingest
from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.open_data import write_store
from mscam_dask.pipeline.settings import DataTable
from mscam_dask.pipeline.tls import make_certificates


def ingest_files(
    sources: tuple[str, ...],
    *,
    output: str,
    views: tuple[str, ...],
    view_type: tuple[str, ...],
    samples_in: tuple[str, ...],
    id_column: str | None,
    delimiter: str | None,
    overwrite: bool,
    append_samples: bool,
    **options: Any,
) -> int:
    """Write files into one store, print its content, and return the exit code; `options` are keys of [data]."""
    if append_samples and overwrite:
        raise ConfigurationError(
            "--append adds to a store and --overwrite replaces it. Keep one of them."
        )
    column: str | int | None = False if id_column == "none" else id_column
    if id_column is not None and id_column.isdecimal():
        column = int(id_column)
    data = DataTable(
        source=[*sources],
        views=[*views] or None,
        view_type=_by_view("--view-type", view_type),
        samples_in=_by_view("--samples-in", samples_in),
        id_column=column,
        delimiter="\t" if delimiter == r"\t" else delimiter,
        **options,
    )
    write = append if append_samples else partial(ingest, overwrite=overwrite)
    report = write_store(data, output, write)
    classes = "none" if report.n_classes is None else f"{report.n_classes} classes"
    rest = [
        ("Ground truth", classes),
        ("Sample ids", "yes" if report.has_sample_ids else "none, samples are identified by row"),
        ("Digest", report.digest),
        *(("Note", note) for note in report.notes),
        ("Store", f"{relative(report.output)} ({report.stored_bytes / 2**20:.1f} MiB)"),
    ]
    table = stored_views_table(report.views)
    show(results_console(), table, *origin_tables(report.origin), key_values(rest))
    return 0


def _by_view(option: str, texts: tuple[str, ...]) -> Any:
    """Value for all views, or a mapping from names; a name may contain "="."""
    if len(texts) == 1 and "=" not in texts[0]:
        return texts[0]
    pairs = [text.rpartition("=") for text in texts]
    if not all(equals for _, equals, _ in pairs):
        raise ConfigurationError(
            f"{' '.join(f'{option} {text}' for text in texts)} is not allowed. Give one value for all "
            "views, or VIEW=VALUE for each view that differs from the default."
        )
    return {name: value for name, _, value in pairs} or None


def make_tls_directory(directory: Path, *, days: float, renew: bool) -> int:
    """Make certificates, print the commands that use them, and return the exit code."""
    made = make_certificates(directory, days=days, renew=renew)
    where = shlex.quote(relative(made.directory))

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
