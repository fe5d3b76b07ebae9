"""The commands of experiments; imports Click and nothing heavier."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from mscam_dask.cli.errors import guarded

__all__ = ["compare", "sweep"]


def _with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that every experiment has."""
    options = (
        click.option(
            "--set",
            "assignments",
            multiple=True,
            metavar="TABLE.KEY=VALUE",
            help="Override a setting of the file, for example compare.runs=3; repeat.",
        ),
        click.option(
            "-o",
            "--output",
            type=click.Path(path_type=Path),
            help="Directory; by default runs/<pipeline>. What is finished in it is kept.",
        ),
        click.option(
            "--workers", type=click.IntRange(min=1), help="Worker processes; one per core."
        ),
        click.option("--memory-limit", metavar="SIZE", help="Memory of a worker."),
        click.option("--in-process", is_flag=True, help="No cluster: one fit at a time."),
        click.option(
            "--scheduler", metavar="ADDRESS", help="Use the cluster at tls:// or tcp://host:port."
        ),
        click.option("--tls-ca", type=click.Path(), help="Certificate authority, for tls://."),
        click.option("--tls-cert", type=click.Path(), help="Your certificate, for tls://."),
        click.option("--tls-key", type=click.Path(), help="Its key, for tls://."),
        click.option("--insecure", is_flag=True, help="Allow tcp:// to another computer."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.argument(
    "pipeline", metavar="[PIPELINE.toml]", required=False, type=click.Path(path_type=Path)
)
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    metavar="NAME|PATH",
    help="Compare on this data instead of the file's; repeat.",
)
@click.option(
    "--method",
    "methods",
    multiple=True,
    metavar="NAME",
    help="Compare this method instead of the file's; repeat.",
)
@click.option("--runs", type=click.IntRange(min=1), help="Runs of each method.")
@_with_options
@guarded
def compare(**options: Any) -> int:
    """Compare methods on data sets: scores, seconds and memory over several runs.

    Without a file: pipelines/comparison.toml when it is there, or every method on what --dataset
    names. Each fit is a task of its own; started again with the same output directory, the
    command computes what is missing. Results are tables (results.md, results.csv) and one
    document (experiment.json).
    """
    from mscam_dask.cli.run_experiment import compare_methods

    return compare_methods(**options)


@click.command()
@click.argument("pipeline", metavar="PIPELINE.toml", type=click.Path(path_type=Path))
@_with_options
@guarded
def sweep(**options: Any) -> int:
    """Fit a grid of alpha and graph weight, each view factored once.

    Results are heat maps of scores with and without labels, and the best label-free choice.
    Started again with the same output directory, the command computes what is missing.
    """
    from mscam_dask.cli.run_experiment import sweep_parameters

    return sweep_parameters(**options)
