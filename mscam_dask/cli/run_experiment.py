"""`mscam-dask compare` and `sweep`: options to settings, progress, a summary at the end."""

from __future__ import annotations

import hashlib
import os
import shlex
import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from mscam_dask.cli.run_file import execution_overrides
from mscam_dask.cli.terminal import progress_console, relative, results_console, show, table
from mscam_dask.errors import ConfigurationError
from mscam_dask.monitor.pace import printable
from mscam_dask.pipeline.document import Override, parse_override, read_document
from mscam_dask.pipeline.environment import environment_overrides
from mscam_dask.pipeline.experiments.compare import run_comparison
from mscam_dask.pipeline.experiments.config import Command, read_experiment
from mscam_dask.pipeline.experiments.course import Progress, default_output
from mscam_dask.pipeline.experiments.results import ExperimentRecord, MeanStd
from mscam_dask.pipeline.experiments.settings import ExperimentSettings
from mscam_dask.pipeline.experiments.sweep import run_sweep

__all__ = ["Asked", "compare_methods", "options_asked", "run_experiment", "sweep_parameters"]

_EXIT_WITHOUT_RESULT = 5
_DEFAULT = Path("pipelines") / "comparison.toml"
_MIB = 2**20
_LONGEST_NAME = 100  # bytes, of 255 that a directory's name may have


@dataclass(frozen=True, kw_only=True)
class Asked:
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


def options_asked(
    *,
    assignments: tuple[str, ...],
    output: Path | None,
    overwrite: bool,
    dry_run: bool,
    insecure: bool,
    **execution: object,
) -> Asked:
    """Options of the command line as one value."""
    return Asked(
        assignments=assignments,
        output=output,
        overwrite=overwrite,
        dry_run=dry_run,
        insecure=insecure,
        execution=execution,
    )


def compare_methods(
    pipeline: Path | None,
    asked: Asked,
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


def sweep_parameters(pipeline: Path, asked: Asked) -> int:
    """Sweep alpha and graph weight; the exit code."""
    return run_experiment("sweep", pipeline, asked, named="sweep")


def run_experiment(
    command: Command,
    pipeline: Path | None,
    asked: Asked,
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
    environment = environment_overrides(os.environ)
    overrides = [*environment, *(override for override, _ in said)]
    overrides += [parse_override(text) for text in asked.assignments]
    overrides += execution_overrides(asked.execution)
    settings = read_experiment(pipeline, overrides, command=command)
    if is_of_data:
        settings = msgspec.structs.replace(settings, name=_name_of_data(settings))
    directory = default_output(settings) if asked.output is None else asked.output
    if asked.dry_run:
        from mscam_dask.cli.show_plan import show_experiment_plan
        from mscam_dask.pipeline.experiments.preview import plan_experiment

        show_experiment_plan(
            plan_experiment(settings, directory, overwrite=asked.overwrite, insecure=asked.insecure)
        )
        return 0
    words = [word for _, given in said for word in given]
    words += [word for text in asked.assignments for word in ("--set", text)]
    record = (run_sweep if command == "sweep" else run_comparison)(
        settings,
        directory,
        command=_command(named, pipeline, words, environment),
        overwrite=asked.overwrite,
        insecure=asked.insecure,
        observers=(_Lines(),),
    )
    if record.cells and record.n_reused == len(record.cells):
        results_console().file.write(
            f"Nothing to do: every fit of this experiment had ended by {record.ended}. "
            "--overwrite runs them again.\n"
        )
    if command == "sweep":
        _show_best(record, directory)
        return 0
    _show_rows(record, directory)
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


def _command(
    name: str, pipeline: Path | None, words: list[str], environment: list[Override]
) -> str:
    """What makes it again, as people type it where they are now."""
    file = [] if pipeline is None else [relative(pipeline)]
    variables = [override.said.removesuffix(" (environment)") for override in environment]
    return " ".join([*map(_assignment, variables), shlex.join(["mscam-dask", name, *file, *words])])


def _assignment(variable: str) -> str:
    name, _, value = variable.partition("=")
    return f"{name}={shlex.quote(value)}"


class _Lines:
    """A line on standard error for each stage and each cell."""

    def __init__(self) -> None:
        self._console = progress_console()
        self._started = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        if progress.text:
            self._started = time.monotonic()
            self._write(progress.text)
            return
        entry = progress.entry
        assert entry is not None
        if entry.outcome == "ok":
            accuracy = entry.scores.get("accuracy")
            parts = [] if accuracy is None else [f"ACC {accuracy:.4f}"]
            if entry.seconds is not None:
                parts.append(f"{entry.seconds:.{0 if entry.seconds >= 100 else 1}f} s")
            if entry.peak_memory_bytes is not None:
                parts.append(f"{entry.peak_memory_bytes / _MIB:.0f} MiB")
            said = " ".join(parts)
        else:
            said = f"{entry.outcome}: {entry.reason}"
        elapsed = time.monotonic() - self._started
        left = elapsed / progress.done * (progress.total - progress.done)
        done = f"{progress.done:>{len(str(progress.total))}}/{progress.total}"
        which = f"{entry.method:<10} {entry.dataset} seed {entry.seed}"
        if "sweep" in entry.parameters:  # of one method with one seed
            weight = entry.parameters["graph_weight"]
            which = f"{entry.dataset} alpha {entry.parameters['alpha']:g} weight {weight:g}"
        # 80 columns hold it with the names and numbers of the paper's tables
        self._write(f"{done} {which} {said}, {_duration(left)} left")

    def _write(self, text: str) -> None:
        self._console.file.write(printable(text) + "\n")
        self._console.file.flush()


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _show_rows(record: ExperimentRecord, directory: Path) -> None:
    rows = [
        [
            row.dataset,
            row.method + (" (view chosen with labels)" if row.note else ""),
            row.protocol,
            *(
                _text(row.scores[name])
                for name in ("accuracy", "normalized_mutual_information", "adjusted_rand_index")
            ),
            _text(row.scores["seconds"], digits=1),
            f"{row.n_runs - row.n_failed} of {row.n_runs}",
        ]
        for row in record.rows
    ]
    titles = ("Data", "Method", "Protocol", "ACC", "NMI", "ARI", "Seconds", "Runs")
    console = results_console()
    show(console, table(titles, rows, numbers=titles[3:]))
    for name, sentence in record.protocols.items():
        console.file.write(f"{name}: {sentence}.\n")
    _show_where(record, directory)


def _text(value: MeanStd, *, digits: int = 4) -> str:
    if value.mean is None:
        return "-"
    return f"{value.mean:.{digits}f}" + ("" if value.std is None else f" ± {value.std:.{digits}f}")


def _show_best(record: ExperimentRecord, directory: Path) -> None:
    rows = []
    for heat_map in record.heat_maps:
        for name, (row, column) in heat_map.best.items():
            accuracy = heat_map.with_labels.get("accuracy", ())
            value = accuracy[row][column] if accuracy else None
            rows.append(
                [
                    heat_map.dataset,
                    name.replace("_", " "),
                    f"{heat_map.alpha[row]:g}",
                    f"{heat_map.graph_weight[column]:g}",
                    "-" if value is None else f"{value:.4f}",
                ]
            )
    titles = ("Data", "Best by (no label seen)", "alpha", "graph weight", "ACC there")
    show(results_console(), table(titles, rows, numbers=titles[2:]))
    _show_where(record, directory)


def _show_where(record: ExperimentRecord, directory: Path) -> None:
    kept = f", {record.n_reused} kept from an earlier start" if record.n_reused else ""
    results_console().file.write(
        f"{len(record.cells)} fits{kept}. Results: {relative(directory)} (report.html, results.md, "
        "results.csv, experiment.json)\n"
    )
