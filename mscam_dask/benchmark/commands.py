"""Commands `compare` and `sweep`, and experiments in the other commands.

The command line finds `EXPERIMENTS` by its entry point. Only Click is imported at the start.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from mscam_dask.cli.errors import handle_errors
from mscam_dask.cli.options import execution_options, file_options, with_options
from mscam_dask.errors import ConfigurationError

if TYPE_CHECKING:
    from mscam_dask.pipeline.toml_document import Document

_with_options = with_options(
    *file_options(
        "Output directory; default: runs/<pipeline>, of a comparison with --dataset "
        "runs/<pipeline>-<data>. Finished fits in it are reused."
    ),
    *execution_options(),
)


@click.command()
@click.argument(
    "pipeline", metavar="[PIPELINE.toml]", required=False, type=click.Path(path_type=Path)
)
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    metavar="NAME|PATH",
    help="Data set instead of those of the file; repeatable.",
)
@click.option(
    "--method",
    "methods",
    multiple=True,
    metavar="NAME",
    help="Method instead of those of the file; repeatable.",
)
@click.option("--runs", type=click.IntRange(min=1), help="Runs of each method.")
@_with_options
@handle_errors
def compare(**options: Any) -> int:
    """Compare methods on data sets by scores, time and memory.

    Without a file, pipelines/comparison.toml is used if it exists, or every method is run on the
    data of --dataset. Each fit is one task; a rerun with the same output directory runs only the
    missing fits. Results are tables (results.md, results.csv), a record (experiment.json) and a
    page (report.html).
    """
    from mscam_dask.benchmark.run_command import compare_methods

    return compare_methods(**options)


@click.command()
@click.argument("pipeline", metavar="PIPELINE.toml", type=click.Path(path_type=Path))
@_with_options
@handle_errors
def sweep(pipeline: Path, **options: Any) -> int:
    """Fit MSCAM for each point of a grid of alpha and graph weight.

    Results are heat maps of the scores with and without labels, and the point with the best
    label-free score. A rerun with the same output directory runs only the missing fits.
    """
    from mscam_dask.benchmark.run_command import run_file
    from mscam_dask.pipeline.toml_document import read_document

    return run_file("sweep", read_document(pipeline), **options)


class _Experiments:
    """Experiments as an extension of the command line."""

    commands = (compare, sweep)

    def owns_tables(self, tables: Collection[str]) -> bool:
        from mscam_dask.benchmark.config import table_of

        return table_of(tables) is not None

    def owns_directory(self, directory: Path) -> bool:
        return (directory / "experiment.json").is_file()

    def run(self, document: Document, **options: Any) -> int:
        from mscam_dask.benchmark.run_command import run_file

        return run_file("run", document, **options)

    def resume(self, directory: Path) -> NoReturn:
        from mscam_dask.benchmark.results import read_record

        root = directory.absolute()
        command = read_record(root).command or "mscam-dask compare or sweep"
        raise ConfigurationError(
            f"{root} holds an experiment, not a run. Resume it with: {command} "
            f"-o {shlex.quote(str(root))}"
        )

    def describe(self, directory: Path) -> None:
        from mscam_dask.benchmark.run_command import show_experiment

        show_experiment(directory)

    def write_report(self, directory: Path, output: Path | None) -> Path:
        from mscam_dask.benchmark.report import write_experiment_report
        from mscam_dask.benchmark.results import read_record

        return write_experiment_report(directory, read_record(directory), output)


EXPERIMENTS = _Experiments()
"""Extension that the entry point names."""
