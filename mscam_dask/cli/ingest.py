"""`mscam-dask ingest`."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from mscam_dask.cli.console import (
    key_values,
    origin_tables,
    relative,
    results_console,
    show,
    table,
)
from mscam_dask.data.ingest import IngestReport, Source, append, ingest
from mscam_dask.data.readers.base import MAX_BYTES, oriented_sources
from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.config.parse import parse_memory


def ingest_files(
    sources: tuple[str, ...],
    *,
    output: str,
    views: tuple[str, ...],
    view_types: tuple[str, ...],
    labels: str | None,
    samples_in: tuple[str, ...],
    header: bool | None,
    id_column: str | None,
    delimiter: str | None,
    decimal: Literal[".", ","] | None,
    comment: str | None,
    skip: int,
    chunk_size: int | None,
    max_bytes: str | None,
    overwrite: bool,
    append_samples: bool,
    join: Literal["inner", "outer"] | None,
    impute: str | None,
) -> int:
    """Write files into one store, print its content, and return the exit code."""
    if append_samples and overwrite:
        raise ConfigurationError(
            "--append adds to a store and --overwrite replaces it. Keep one of them."
        )
    limit = MAX_BYTES if max_bytes is None else parse_memory(max_bytes, "--max-bytes")
    read = append if append_samples else partial(ingest, overwrite=overwrite)
    files = [
        Source(
            path,
            header=header,
            id_column=_position(id_column),
            delimiter="\t" if delimiter == r"\t" else delimiter,
            decimal=decimal,
            comment=comment,
            skip=skip,
            max_bytes=limit,
        )
        for path in sources
    ]
    report = read(
        oriented_sources(files, _by_view("--samples-in", samples_in), files),
        output,
        views=views or None,
        view_type=_by_view("--view-type", view_types),
        labels=labels,
        chunk_size=chunk_size,
        join=join,
        impute=impute,
    )
    _show(report)
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
    views = table(
        ("view", "samples", "features", "type", "stored as"),
        [
            (view.name, str(view.shape[0]), str(view.shape[1]), view.view_type, view.dtype.name)
            for view in report.views
        ],
        numbers=("samples", "features"),
    )
    classes = "none" if report.n_classes is None else f"{report.n_classes} classes"
    rest = [
        ("Ground truth", classes),
        ("Sample ids", "yes" if report.has_sample_ids else "none, samples are identified by row"),
        ("Digest", report.digest),
        *(("Note", note) for note in report.notes),
        ("Store", f"{relative(report.output)} ({report.stored_bytes / 2**20:.1f} MiB)"),
    ]
    show(results_console(), views, *origin_tables(report.origin), key_values(rest))
