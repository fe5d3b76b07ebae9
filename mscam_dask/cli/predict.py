"""`mscam-dask predict`: clusters of new samples by a finished run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from mscam_dask.cli.console import key_values, relative, results_console, show
from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.run.load_run import predict_files
from mscam_dask.pipeline.run.run_directory import write_whole
from mscam_dask.pipeline.run.sample_tables import check_suffix, table_bytes

__all__ = ["predict_samples"]


def predict_samples(
    run: Path, sources: tuple[str, ...], *, output: Path | None, overwrite: bool
) -> int:
    """Predict the clusters of samples, write or print them, and return the exit code."""
    if output is not None:
        check_suffix(output.suffix)
        if output.exists() and not overwrite:
            raise ConfigurationError(
                f"{output} exists. Give --overwrite to replace it, or another output file (-o)."
            )
    table = predict_files(run, sources)
    if output is None:
        click.echo(table_bytes(table, ".csv").decode(), nl=False)
        return 0
    write_whole(output.absolute(), table_bytes(table, output.suffix))
    sizes = sorted(Counter(table["label"]).items())
    counted = ", ".join(f"{size} in cluster {name}" for name, size in sizes)
    pairs = [("Samples", f"{len(table['id'])}: {counted}"), ("Labels", relative(output))]
    show(results_console(), key_values(pairs))
    return 0
