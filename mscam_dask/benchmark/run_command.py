"""`mscam-dask compare` and `sweep`: options to settings, progress, a summary at the end."""

from __future__ import annotations

import hashlib
import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from mscam_dask.benchmark.compare import run_comparison
from mscam_dask.benchmark.config import Command, read_experiment
from mscam_dask.benchmark.dry_run import plan_experiment
from mscam_dask.benchmark.experiment import default_output
from mscam_dask.benchmark.printing import (
    ProgressLines,
    show_best,
    show_experiment_plan,
    show_rows,
)
from mscam_dask.benchmark.settings import ExperimentSettings
from mscam_dask.benchmark.sweep import run_sweep
from mscam_dask.cli.console import relative, results_console
from mscam_dask.cli.run import option_overrides
from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.config.toml_document import Override, environment_overrides, read_document

__all__ = [
    "ExperimentOptions",
    "compare_methods",
    "experiment_options",
    "run_experiment",
    "sweep_parameters",
]

_EXIT_WITHOUT_RESULT = 5
_DEFAULT = Path("pipelines") / "comparison.toml"
_LONGEST_NAME = 100  # bytes, of 255 that a directory's name may have


@dataclass(frozen=True, kw_only=True)
class ExperimentOptions:
    """The options that every command of experiments has.

    Attributes
    ----------
    assignments
        Of --set.
    execution
        Options of [execution] by key.
    """

    assignments: tuple[str, ...] = ()
    output: Path | None = None
    overwrite: bool = False
    dry_run: bool = False
    insecure: bool = False
    execution: dict[str, object] = field(default_factory=dict)


def experiment_options(
    *,
    assignments: tuple[str, ...],
    output: Path | None,
    overwrite: bool,
    dry_run: bool,
    insecure: bool,
    **execution: object,
) -> ExperimentOptions:
    """Options of the command line as one value."""
    return ExperimentOptions(
        assignments=assignments,
        output=output,
        overwrite=overwrite,
        dry_run=dry_run,
        insecure=insecure,
        execution=execution,
    )


def compare_methods(
    pipeline: Path | None,
    asked: ExperimentOptions,
    *,
    datasets: tuple[str, ...],
    methods: tuple[str, ...],
    runs: int | None,
) -> int:
    """Compare methods; the exit code."""
    if pipeline is None and not datasets:
        if not _DEFAULT.is_file():
            raise ConfigurationError(
                f"There is no {_DEFAULT} here. Give a pipeline file, or name the data: "
                "mscam-dask compare --dataset mine.npz"
            )
        pipeline = _DEFAULT
    is_robustness = pipeline is not None and "robustness" in read_document(pipeline).tables
    said = _options("robustness" if is_robustness else "compare", datasets, methods, runs)
    return run_experiment(
        "compare", pipeline, asked, named="compare", said=said, is_of_data=bool(datasets)
    )


def sweep_parameters(pipeline: Path, asked: ExperimentOptions) -> int:
    """Sweep alpha and graph weight; the exit code."""
    return run_experiment("sweep", pipeline, asked, named="sweep")


def run_experiment(
    command: Command,
    pipeline: Path | None,
    asked: ExperimentOptions,
    *,
    named: str,
    said: list[tuple[Override, list[str]]] | None = None,
    is_of_data: bool = False,
) -> int:
    """Carry an experiment out, or show what would be done; the exit code.

    Parameters
    ----------
    command
        What the file is for.
    pipeline
    asked
    named
        What was typed: `command`, or run.
    said
        Overrides by other options, with the words they were given in.
    is_of_data
        Whether the data are of the command line: the experiment is named after them, so that it does
        not take the place of one on others.
    """
    said = said or []
    others = [override for override, _ in said]
    overrides = option_overrides(asked.assignments, asked.execution, others=others)
    settings = read_experiment(pipeline, overrides, command=command)
    if is_of_data:
        settings = msgspec.structs.replace(settings, name=_name_of_data(settings))
    directory = default_output(settings) if asked.output is None else asked.output
    if asked.dry_run:
        show_experiment_plan(
            plan_experiment(settings, directory, overwrite=asked.overwrite, insecure=asked.insecure)
        )
        return 0
    words = [word for _, given in said for word in given]
    words += [word for text in asked.assignments for word in ("--set", text)]
    record = (run_sweep if command == "sweep" else run_comparison)(
        settings,
        directory,
        command=_command(named, pipeline, words),
        overwrite=asked.overwrite,
        insecure=asked.insecure,
        observers=(ProgressLines(),),
    )
    if record.trials and record.n_reused == len(record.trials):
        results_console().file.write(
            f"Nothing to do: every fit of this experiment had ended by {record.ended}. "
            "--overwrite runs them again.\n"
        )
    if command == "sweep":
        show_best(record, directory)
        return 0
    show_rows(record, directory)
    return 0 if all(row.n_failed < row.n_runs for row in record.rows) else _EXIT_WITHOUT_RESULT


def _name_of_data(settings: ExperimentSettings) -> str:
    names = "+".join(settings.datasets)
    if len(names.encode()) > _LONGEST_NAME:
        digest = hashlib.sha256(names.encode()).hexdigest()[:8]
        names = f"{len(settings.datasets)}-data-sets-{digest}"
    return f"{settings.name}-{names}"


def _options(
    name: str, datasets: tuple[str, ...], methods: tuple[str, ...], runs: int | None
) -> list[tuple[Override, list[str]]]:
    """Overrides of a table by the options of compare, with the words they were given in."""
    said = []
    for key, option, values in (
        ("datasets", "--dataset", datasets),
        ("methods", "--method", methods),
    ):
        if values:
            words = [word for value in values for word in (option, value)]
            said.append((Override((name, key), list(values), shlex.join(words)), words))
    if runs is not None:
        words = ["--runs", str(runs)]
        said.append((Override((name, "runs"), runs, shlex.join(words)), words))
    return said


def _command(name: str, pipeline: Path | None, words: list[str]) -> str:
    """What makes it again, as people type it where they are now."""
    file = [] if pipeline is None else [relative(pipeline)]
    environment = environment_overrides(os.environ)
    variables = [override.origin.removesuffix(" (environment)") for override in environment]
    return " ".join([*map(_assignment, variables), shlex.join(["mscam-dask", name, *file, *words])])


def _assignment(variable: str) -> str:
    name, _, value = variable.partition("=")
    return f"{name}={shlex.quote(value)}"
