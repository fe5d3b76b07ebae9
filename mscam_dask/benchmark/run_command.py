"""`mscam-dask compare` and `sweep`: from options to settings, and what is printed."""

from __future__ import annotations

import hashlib
import os
import shlex
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from mscam_dask.benchmark.compare import run_comparison
from mscam_dask.benchmark.config import Command, ExperimentSettings, read_experiment
from mscam_dask.benchmark.experiment import Progress, default_output
from mscam_dask.benchmark.results import ExperimentRecord, MeanStd
from mscam_dask.benchmark.schedule import ExperimentPlan, plan_experiment
from mscam_dask.benchmark.sweep import run_sweep
from mscam_dask.cli.console import (
    key_values,
    progress_console,
    relative,
    results_console,
    show,
    table,
)
from mscam_dask.cli.run import option_overrides
from mscam_dask.errors import ConfigurationError
from mscam_dask.monitor.messages import duration, printable
from mscam_dask.pipeline.config.toml_document import (
    COMMAND_LINE,
    Document,
    Override,
    environment_overrides,
    read_document,
)
from mscam_dask.pipeline.run.lock import is_locked

__all__ = [
    "ExperimentOptions",
    "ProgressLines",
    "compare_methods",
    "experiment_options",
    "run_experiment",
    "show_best",
    "show_experiment",
    "show_experiment_plan",
    "show_rows",
    "sweep_parameters",
]

_GIB = 2.0**30
_MIB = 2**20

_EXIT_WITHOUT_RESULT = 5
_DEFAULT = Path("pipelines") / "comparison.toml"
_MAX_NAME_BYTES = 100  # of the 255 that the name of a directory can have


class ProgressLines:
    """Print a line on standard error for each stage and each trial."""

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
            result = " ".join(parts)
        else:
            result = f"{entry.outcome}: {entry.reason}"
        elapsed = time.monotonic() - self._started
        left = elapsed / progress.done * (progress.total - progress.done)
        done = f"{progress.done:>{len(str(progress.total))}}/{progress.total}"
        name = f"{entry.method:<10} {entry.dataset} seed {entry.seed}"
        if "sweep" in entry.parameters:  # all trials have the same method and seed
            weight = entry.parameters["graph_weight"]
            name = f"{entry.dataset} alpha {entry.parameters['alpha']:g} weight {weight:g}"
        # At most 80 columns with the names and numbers of the paper's tables.
        self._write(f"{done} {name} {result}, {_duration(left)} left")

    def _write(self, text: str) -> None:
        self._console.file.write(printable(text) + "\n")
        self._console.file.flush()


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


_COLUMNS = {
    "accuracy": "ACC",
    "normalized_mutual_information": "NMI",
    "adjusted_rand_index": "ARI",
    "adjusted_modularity": "Adj. modularity",
    "cross_view_information": "Information",
}


def show_rows(record: ExperimentRecord, directory: Path) -> None:
    """Print the rows of a comparison and the place of its results."""
    shown = [
        (name, title)
        for name, title in _COLUMNS.items()
        if any(name in row.scores for row in record.rows)
    ]
    rows = [
        [
            row.dataset,
            row.method + (" (view chosen with labels)" if row.note else ""),
            row.protocol,
            *(_text(row.scores[name]) if name in row.scores else "-" for name, _ in shown),
            _text(row.scores["seconds"], digits=1),
            f"{row.n_runs - row.n_failed} of {row.n_runs}",
        ]
        for row in record.rows
    ]
    titles = ("Data", "Method", "Protocol", *(title for _, title in shown), "Seconds", "Runs")
    console = results_console()
    show(console, table(titles, rows, numbers=titles[3:]))
    for name, sentence in record.protocols.items():
        console.file.write(f"{name}: {sentence}.\n")
    _show_where(record, directory)


def _text(value: MeanStd, *, digits: int = 4) -> str:
    if value.mean is None:
        return "-"
    return f"{value.mean:.{digits}f}" + ("" if value.std is None else f" ± {value.std:.{digits}f}")


def show_best(record: ExperimentRecord, directory: Path) -> None:
    """Print the best points of a sweep and the place of its results."""
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
    titles = ("Data", "Best by (label-free)", "alpha", "graph weight", "ACC")
    show(results_console(), table(titles, rows, numbers=titles[2:]))
    _show_where(record, directory)


def _show_where(record: ExperimentRecord, directory: Path) -> None:
    reused = f", {record.n_reused} reused from an earlier run" if record.n_reused else ""
    results_console().file.write(
        f"{len(record.trials)} fits{reused}. Results: {relative(directory)} (report.html, results.md, "
        "results.csv, experiment.json)\n"
    )


def show_experiment_plan(plan: ExperimentPlan) -> None:
    """Print the estimate of an experiment."""
    data = ", ".join(
        f"{entry.name} ({entry.n_samples} samples, {len(entry.views)} views)"
        for entry in plan.datasets
    )
    pairs = [
        ("Experiment", f"{plan.kind} in {relative(plan.directory)}"),
        ("To run", _fits_to_run(plan)),
        ("Data", data),
        ("Bytes", f"{plan.read_bytes / _MIB:.1f} MiB of values"),
        ("Methods", ", ".join(plan.methods)),
        ("Workers", f"{plan.n_workers}{_for_a_fit(plan)}"),
        ("Time", _experiment_time(plan)),
    ]
    show(results_console(), key_values(pairs))


def _fits_to_run(plan: ExperimentPlan) -> str:
    if plan.n_missing == 0:
        return f"nothing: all {plan.n_cached} fits have ended"
    reused = f", {plan.n_cached} reused from an earlier run" if plan.n_cached else ""
    return f"{plan.n_missing} fits{reused}"


def _for_a_fit(plan: ExperimentPlan) -> str:
    if plan.worker_bytes is None:
        return ""
    size = f"{plan.worker_bytes / _GIB:.2f} GiB"
    need = f", each needs {size}" if plan.time_limit_s is None else f", a fit may use {size}"
    if plan.limit_bytes is None or plan.worker_bytes == plan.limit_bytes:
        return need
    has = "has" if plan.worker_bytes <= plan.limit_bytes else "has only"
    return f"{need} and a worker {has} {plan.limit_bytes / _GIB:.2f} GiB"


def _experiment_time(plan: ExperimentPlan) -> str:
    known = plan.n_missing - plan.n_unknown
    parts = []
    if known:
        parts.append(f"about {duration(plan.seconds)} for {known} fits, from those that have ended")
    if plan.n_unknown:
        limit = "" if plan.time_limit_s is None else f"; limit {plan.time_limit_s:g} s each"
        parts.append(f"unknown for {plan.n_unknown} fits (no comparable fit has run yet{limit})")
    return "; ".join(parts) or "none"


def show_experiment(record: ExperimentRecord, directory: Path) -> None:
    """Print the command, state and results of an experiment."""
    outcomes = Counter(trial.outcome for trial in record.trials)
    fits = ", ".join(f"{n} {outcome}" for outcome, n in outcomes.items())
    if not fits:  # the record has none before all have ended
        fits = f"{sum(1 for _ in directory.glob('trials/*/*.json'))} ended so far"
    state = str(record.state)
    if state == "running" and not is_locked(directory):
        command = f"{record.command} -o {shlex.quote(relative(directory))}"
        state = f"interrupted (no process is running it); resume with: {command}"
    ended = "" if record.ended is None else f", ended {record.ended}"
    pairs = [
        ("Experiment", f"{record.kind} in {relative(directory)}"),
        ("State", state),
        ("Started", f"{record.started}{ended}"),
        ("Command", record.command),
        (
            "Data",
            ", ".join(f"{entry.name} ({entry.n_samples} samples)" for entry in record.datasets),
        ),
        ("Methods", ", ".join(method.name for method in record.methods)),
        ("Fits", fits),
        ("Ran", record.executor or ""),
        ("Report", f"mscam-dask report {shlex.quote(relative(directory))} writes report.html"),
    ]
    show(results_console(), key_values([(name, value or "-") for name, value in pairs]))


@dataclass(frozen=True, kw_only=True)
class ExperimentOptions:
    """Options of every command for experiments.

    Attributes
    ----------
    assignments
        Values of --set.
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
    """Return the options of the command line as one value."""
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
    options: ExperimentOptions,
    *,
    datasets: tuple[str, ...],
    methods: tuple[str, ...],
    runs: int | None,
) -> int:
    """Compare methods, and return the exit code."""
    if pipeline is None and not datasets:
        if not _DEFAULT.is_file():
            raise ConfigurationError(
                f"{_DEFAULT} does not exist here. Give a pipeline file, or data: "
                "mscam-dask compare --dataset mine.npz"
            )
        pipeline = _DEFAULT
    document = COMMAND_LINE if pipeline is None else read_document(pipeline)
    table = "robustness" if "robustness" in document.tables else "compare"
    table_options = _options(table, datasets, methods, runs)
    return run_experiment(
        "compare",
        document,
        options,
        typed="compare",
        table_options=table_options,
        name_by_data=bool(datasets),
    )


def sweep_parameters(pipeline: Path, options: ExperimentOptions) -> int:
    """Sweep alpha and graph weight, and return the exit code."""
    return run_experiment("sweep", read_document(pipeline), options, typed="sweep")


def run_experiment(
    command: Command,
    document: Document,
    options: ExperimentOptions,
    *,
    typed: str,
    table_options: Sequence[tuple[Override, list[str]]] = (),
    name_by_data: bool = False,
) -> int:
    """Run an experiment or print its estimate, and return the exit code.

    Parameters
    ----------
    command
        Command for the file.
    document
        Of the file, or `COMMAND_LINE`.
    options
    typed
        Command as typed: `command`, or run.
    table_options
        Overrides by other options, with their words on the command line.
    name_by_data
        Whether to name the experiment after its data, because they are not those of the file.
    """
    others = [override for override, _ in table_options]
    overrides = option_overrides(options.assignments, options.execution, others=others)
    settings = read_experiment(document, overrides, command=command)
    if name_by_data:
        settings = msgspec.structs.replace(settings, name=_name_of_data(settings))
    directory = default_output(settings) if options.output is None else options.output
    if options.dry_run:
        show_experiment_plan(
            plan_experiment(
                settings, directory, overwrite=options.overwrite, insecure=options.insecure
            )
        )
        return 0
    words = [word for _, option_words in table_options for word in option_words]
    words += [word for text in options.assignments for word in ("--set", text)]
    record = (run_sweep if command == "sweep" else run_comparison)(
        settings,
        directory,
        command=_command(typed, document, words),
        overwrite=options.overwrite,
        insecure=options.insecure,
        observers=(ProgressLines(),),
    )
    if record.trials and record.n_reused == len(record.trials):
        results_console().file.write(
            f"Nothing to run: every fit had ended by {record.ended}. Use --overwrite to run them "
            "again.\n"
        )
    if command == "sweep":
        show_best(record, directory)
        return 0
    show_rows(record, directory)
    return 0 if all(row.n_failed < row.n_runs for row in record.rows) else _EXIT_WITHOUT_RESULT


def _name_of_data(settings: ExperimentSettings) -> str:
    names = "+".join(settings.datasets)
    if len(names.encode()) > _MAX_NAME_BYTES:
        digest = hashlib.sha256(names.encode()).hexdigest()[:8]
        names = f"{len(settings.datasets)}-data-sets-{digest}"
    return f"{settings.name}-{names}"


def _options(
    name: str, datasets: tuple[str, ...], methods: tuple[str, ...], runs: int | None
) -> list[tuple[Override, list[str]]]:
    """Overrides of a table by the options of compare, with their words on the command line."""
    overrides = []
    for key, option, values in (
        ("datasets", "--dataset", datasets),
        ("methods", "--method", methods),
    ):
        if values:
            words = [word for value in values for word in (option, value)]
            overrides.append((Override((name, key), list(values), shlex.join(words)), words))
    if runs is not None:
        words = ["--runs", str(runs)]
        overrides.append((Override((name, "runs"), runs, shlex.join(words)), words))
    return overrides


def _command(name: str, document: Document, words: list[str]) -> str:
    """Command that repeats the experiment from the current directory."""
    file = [] if document is COMMAND_LINE else [relative(document.path)]
    environment = environment_overrides(os.environ)
    variables = [override.origin.removesuffix(" (environment)") for override in environment]
    return " ".join([*map(_assignment, variables), shlex.join(["mscam-dask", name, *file, *words])])


def _assignment(variable: str) -> str:
    name, _, value = variable.partition("=")
    return f"{name}={shlex.quote(value)}"
