"""The commands of experiments; imports Click and nothing heavier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mscam_dask.cli.errors import guarded
from mscam_dask.cli.options import execution_options, no_url, with_options

__all__ = ["compare", "sweep"]


_with_options = with_options(
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
        callback=no_url,
        help="Directory; by default runs/<pipeline>, of a comparison with --dataset "
        "runs/<pipeline>-<data>. What is finished in it is kept.",
    ),
    click.option("--overwrite", is_flag=True, help="Run every fit again."),
    click.option(
        "--dry-run", is_flag=True, help="Show fits, bytes, memory and time; start nothing."
    ),
    *execution_options(in_process="one fit at a time"),
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
def compare(
    pipeline: Path | None,
    datasets: tuple[str, ...],
    methods: tuple[str, ...],
    runs: int | None,
    **options: Any,
) -> int:
    """Compare methods on data sets: scores, seconds and memory over several runs.

    Without a file: pipelines/comparison.toml when it is there, or every method on what --dataset
    names. Each fit is a task of its own; started again with the same output directory, the
    command computes what is missing. Results are tables (results.md, results.csv) and one
    document (experiment.json).
    """
    from mscam_dask.cli.run_experiment import compare_methods, options_asked

    asked = options_asked(**options)
    return compare_methods(pipeline, asked, datasets=datasets, methods=methods, runs=runs)


@click.command()
@click.argument("pipeline", metavar="PIPELINE.toml", type=click.Path(path_type=Path))
@_with_options
@guarded
def sweep(pipeline: Path, **options: Any) -> int:
    """Fit a grid of alpha and graph weight, each view factored once.

    Results are heat maps of scores with and without labels, and the best label-free choice.
    Started again with the same output directory, the command computes what is missing.
    """
    from mscam_dask.cli.run_experiment import options_asked, sweep_parameters

    return sweep_parameters(pipeline, options_asked(**options))
