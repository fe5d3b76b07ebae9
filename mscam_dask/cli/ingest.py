"""`mscam-dask ingest`."""

from __future__ import annotations

from functools import partial
from typing import Any

from mscam_dask.cli.console import (
    key_values,
    origin_tables,
    relative,
    results_console,
    show,
    stored_views_table,
)
from mscam_dask.data.ingest import IngestReport, append, ingest
from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.config.settings import DataTable
from mscam_dask.pipeline.run.open_data import write_store


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
    data = DataTable(
        source=[*sources],
        views=[*views] or None,
        view_type=_by_view("--view-type", view_type),
        samples_in=_by_view("--samples-in", samples_in),
        id_column=_position(id_column),
        delimiter="\t" if delimiter == r"\t" else delimiter,
        **options,
    )
    write = append if append_samples else partial(ingest, overwrite=overwrite)
    _show(write_store(data, output, write))
    return 0


def _position(text: str | None) -> str | int | None:
    """Name or position of the column of the ids; False for "none"."""
    if text == "none":
        return False
    return int(text) if text is not None and text.isdecimal() else text


def _by_view(option: str, texts: tuple[str, ...]) -> Any:
    """Value for all views, or a mapping from names; a name may contain "="."""
    by_view = {}
    plain = [text for text in texts if "=" not in text]
    for text in texts:
        name, equals, value = text.rpartition("=")
        if equals:
            by_view[name] = value
    if not plain:
        return by_view or None
    if by_view or len(plain) > 1:
        raise ConfigurationError(
            f"{' '.join(f'{option} {text}' for text in texts)} is not allowed. Give one value for all "
            "views, or VIEW=VALUE for each view that differs from the default."
        )
    return plain[0]


def _show(report: IngestReport) -> None:
    classes = "none" if report.n_classes is None else f"{report.n_classes} classes"
    rest = [
        ("Ground truth", classes),
        ("Sample ids", "yes" if report.has_sample_ids else "none, samples are identified by row"),
        ("Digest", report.digest),
        *(("Note", note) for note in report.notes),
        ("Store", f"{relative(report.output)} ({report.stored_bytes / 2**20:.1f} MiB)"),
    ]
    views = stored_views_table(report.views)
    show(results_console(), views, *origin_tables(report.origin), key_values(rest))
