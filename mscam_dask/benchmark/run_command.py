"""`mscam-dask compare` and `sweep`: from options to settings, the estimate of `--dry-run`, and what is printed."""

from __future__ import annotations

import hashlib
import math
import os
import shlex
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from mscam_dask.benchmark.compare import (
    comparison_datasets,
    method_runs,
    run_comparison,
    trial_limits,
)
from mscam_dask.benchmark.config import (
    Command,
    ExperimentSettings,
    RunsTable,
    SweepTable,
    read_experiment,
)
from mscam_dask.benchmark.datasets import Dataset, open_datasets
from mscam_dask.benchmark.experiment import ExperimentDirectory, Progress, default_output
from mscam_dask.benchmark.methods import METHODS
from mscam_dask.benchmark.results import (
    LABEL_FREE_SCORES,
    TITLES,
    DatasetEntry,
    ExperimentRecord,
    Kind,
    TrialEntry,
)
from mscam_dask.benchmark.sweep import run_sweep, sweep_parameters, sweep_trials
from mscam_dask.benchmark.trial import Limits, Trial
from mscam_dask.cli.console import (
    key_values,
    progress_console,
    relative,
    results_console,
    show,
    table,
)
from mscam_dask.cli.run import option_overrides
from mscam_dask.engine.memory import plan_memory
from mscam_dask.errors import ConfigurationError
from mscam_dask.monitor.messages import duration, printable
from mscam_dask.pipeline.config.toml_document import (
    COMMAND_LINE,
    Document,
    Override,
    environment_overrides,
    read_document,
)
from mscam_dask.pipeline.run.dry_run import limit_of, workers_of
from mscam_dask.pipeline.run.lock import is_locked
from mscam_dask.pipeline.run.security import check_execution

__all__ = [
    "ExperimentPlan",
    "ProgressLines",
    "compare_methods",
    "plan_experiment",
    "run_experiment",
    "show_best",
    "show_experiment",
    "show_experiment_plan",
    "show_rows",
]

_GIB = 2.0**30
_MIB = 2**20

_EXIT_WITHOUT_RESULT = 5
_DEFAULT = Path("pipelines") / "comparison.toml"
_MAX_NAME_BYTES = 100  # of the 255 that the name of a directory can have


class ProgressLines:
    """Print a line on standard error for each stage and each trial."""

    def __init__(self) -> None:
        self._file = progress_console().file
        self._started = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        text = progress.text
        if progress.entry is None:
            self._started = time.monotonic()
        else:
            elapsed = time.monotonic() - self._started
            left = elapsed / progress.done * (progress.total - progress.done)
            shown = f"{left:.0f} s" if left < 100 else f"{left / 60:.0f} min"
            done = f"{progress.done:>{len(str(progress.total))}}/{progress.total}"
            text = f"{done} {_entry_text(progress.entry)}, {shown} left"
        self._file.write(printable(text) + "\n")
        self._file.flush()


def _entry_text(entry: TrialEntry) -> str:
    """Trial and its result; a line with it has at most 80 columns for the paper's tables."""
    name = f"{entry.method:<10} {entry.dataset} seed {entry.seed}"
    if "sweep" in entry.parameters:  # all trials have the same method and seed
        weight = entry.parameters["graph_weight"]
        name = f"{entry.dataset} alpha {entry.parameters['alpha']:g} weight {weight:g}"
    if entry.outcome != "ok":
        return f"{name} {entry.outcome}: {entry.reason}"
    parts = [name]
    if (accuracy := entry.scores.get("accuracy")) is not None:
        parts.append(f"ACC {accuracy:.4f}")
    if entry.seconds is not None:
        parts.append(f"{entry.seconds:.{0 if entry.seconds >= 100 else 1}f} s")
    if entry.peak_memory_bytes is not None:
        parts.append(f"{entry.peak_memory_bytes / _MIB:.0f} MiB")
    return " ".join(parts)


_COLUMNS = ("accuracy", "normalized_mutual_information", "adjusted_rand_index", *LABEL_FREE_SCORES)


def show_rows(record: ExperimentRecord, directory: Path) -> None:
    """Print the rows of a comparison and the place of its results."""
    scores = [name for name in _COLUMNS if any(name in row.scores for row in record.rows)]
    rows = [
        [
            row.dataset,
            row.method + (" (view chosen with labels)" if row.note else ""),
            row.protocol,
            *(row.scores[name].text() if name in row.scores else "-" for name in scores),
            row.scores["seconds"].text(1),
            row.runs,
        ]
        for row in record.rows
    ]
    numbers = (*(TITLES[name] for name in scores), "Seconds", "Runs")
    console = results_console()
    show(console, table(("Data", "Method", "Protocol", *numbers), rows, numbers=numbers))
    for name, sentence in record.protocols.items():
        console.file.write(f"{name}: {sentence}.\n")
    _show_where(record, directory)


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


def compare_methods(
    pipeline: Path | None,
    *,
    datasets: tuple[str, ...],
    methods: tuple[str, ...],
    runs: int | None,
    **options: Any,
) -> int:
    """Compare methods, and return the exit code; for the options see `run_experiment`."""
    if pipeline is None and not datasets:
        if not _DEFAULT.is_file():
            raise ConfigurationError(
                f"{_DEFAULT} does not exist here. Give a pipeline file, or data: "
                "mscam-dask compare --dataset mine.npz"
            )
        pipeline = _DEFAULT
    document = COMMAND_LINE if pipeline is None else read_document(pipeline)
    table = "robustness" if "robustness" in document.tables else "compare"
    given = (
        ("datasets", list(datasets), [word for each in datasets for word in ("--dataset", each)]),
        ("methods", list(methods), [word for each in methods for word in ("--method", each)]),
        ("runs", runs, ["--runs", str(runs)]),
    )
    return run_experiment(
        "compare",
        document,
        typed="compare",
        table_options=[
            (Override((table, key), value, shlex.join(words)), words)
            for key, value, words in given
            if value
        ],
        name_by_data=bool(datasets),
        **options,
    )


def run_experiment(
    command: Command,
    document: Document,
    *,
    typed: str,
    assignments: tuple[str, ...],
    output: Path | None,
    overwrite: bool,
    dry_run: bool,
    insecure: bool,
    table_options: Sequence[tuple[Override, list[str]]] = (),
    name_by_data: bool = False,
    **execution: object,
) -> int:
    """Run an experiment or print its estimate, and return the exit code.

    Parameters
    ----------
    command
        Command for the file.
    document
        Text of the file, or `COMMAND_LINE`.
    typed
        Command as typed: `command`, or run.
    assignments
        Values of --set.
    output, overwrite, dry_run, insecure
        Options of the command line.
    table_options
        Overrides by other options, with their words on the command line.
    name_by_data
        Whether to name the experiment after its data, because they are not those of the file.
    **execution
        Options of [execution] by key.
    """
    others = [override for override, _ in table_options]
    overrides = option_overrides(assignments, execution, others=others)
    settings = read_experiment(document, overrides, command=command)
    if name_by_data:
        settings = msgspec.structs.replace(settings, name=_name_of_data(settings))
    directory = default_output(settings) if output is None else output
    if dry_run:
        show_experiment_plan(
            plan_experiment(settings, directory, overwrite=overwrite, insecure=insecure)
        )
        return 0
    words = [word for _, option_words in table_options for word in option_words]
    words += [word for text in assignments for word in ("--set", text)]
    record = (run_sweep if command == "sweep" else run_comparison)(
        settings,
        directory,
        command=_command(typed, document, words),
        overwrite=overwrite,
        insecure=insecure,
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


def _command(name: str, document: Document, words: list[str]) -> str:
    """Command that repeats the experiment from the current directory."""
    file = [] if document is COMMAND_LINE else [relative(document.path)]
    environment = []
    for override in environment_overrides(os.environ):
        key, _, value = override.origin.removesuffix(" (environment)").partition("=")
        environment.append(f"{key}={shlex.quote(value)}")
    return " ".join([*environment, shlex.join(["mscam-dask", name, *file, *words])])


_ITEM_BYTES = 8


@dataclass(frozen=True)
class ExperimentPlan:
    """Estimate of an experiment that has not run.

    Attributes
    ----------
    directory
    kind
    datasets
        Data sets to cluster.
    methods
        Names.
    n_cached
        Trials that have a result.
    n_missing
        Trials to run; a maximum if the best of several settings is not known yet.
    read_bytes
        Bytes of the views of all data sets, as float64.
    worker_bytes
        Memory that a worker needs (sweep), or that a trial may use (other experiments).
    limit_bytes
        Memory of a worker; None if the cluster decides.
    n_workers
    time_limit_s
        Time limit of a trial; None without.
    seconds
        Estimated time of those missing trials whose method has run on the same data here, divided
        by the number of workers if trials run in parallel.
    n_unknown
        Missing trials without an estimate.
    """

    directory: Path
    kind: Kind
    datasets: tuple[DatasetEntry, ...]
    methods: tuple[str, ...]
    n_cached: int
    n_missing: int
    read_bytes: int
    worker_bytes: int | None
    limit_bytes: int | None
    n_workers: int
    time_limit_s: float | None
    seconds: float
    n_unknown: int


def plan_experiment(
    settings: ExperimentSettings,
    output: str | Path | None = None,
    *,
    overwrite: bool = False,
    insecure: bool = False,
) -> ExperimentPlan:
    """Estimate an experiment without running it; sources are read for their digests.

    Parameters
    ----------
    settings, output, overwrite, insecure
        As for `mscam_dask.benchmark.compare.run_comparison`.

    Raises
    ------
    MscamError
        If settings, sources or data are invalid.
    """
    check_execution(settings.execution, insecure=insecure)
    directory = ExperimentDirectory(Path(output or default_output(settings)).absolute())
    work = _Work(directory, reuses=not overwrite)
    table, n_workers = settings.table, workers_of(settings.execution)
    limit_bytes = limit_of(settings.execution, n_workers)
    methods: tuple[str, ...]
    with tempfile.TemporaryDirectory(prefix="mscam-dry-run-") as temporary:
        if isinstance(table, SweepTable):
            datasets = open_datasets(settings.datasets, directory.stores, write_to=Path(temporary))
            worker_bytes: int | None = _add_sweep(work, table, datasets)
            methods, n_parallel, time_limit_s = (table.method,), 1, None
        else:
            datasets = comparison_datasets(settings, directory.stores, write_to=Path(temporary))
            worker_bytes = _add_comparison(work, settings, table, datasets)
            methods = tuple(dict.fromkeys(table.methods or METHODS))
            n_parallel, time_limit_s = n_workers, table.time_limit_s
    seconds, n_unknown = work.estimate()
    shapes = [view.shape for dataset in datasets.values() for view in dataset.entry.views]
    return ExperimentPlan(
        directory=directory.path,
        kind=settings.kind,
        datasets=tuple(dataset.entry for dataset in datasets.values()),
        methods=methods,
        n_cached=len(work.entries),
        n_missing=len(work.missing) + work.n_open,
        read_bytes=_ITEM_BYTES * sum(math.prod(shape) for shape in shapes),
        worker_bytes=limit_bytes if worker_bytes is None else worker_bytes,
        limit_bytes=limit_bytes,
        n_workers=n_workers,
        time_limit_s=time_limit_s,
        seconds=seconds / n_parallel,
        n_unknown=n_unknown + work.n_open,
    )


class _Work:
    """Trials of an experiment.

    Attributes
    ----------
    entries
        Trials that have a result, by key.
    missing
        Trials to run, by key.
    n_open
        Number of trials of settings that are not known yet.
    """

    def __init__(self, directory: ExperimentDirectory, *, reuses: bool) -> None:
        self._directory, self._reuses = directory, reuses
        self.entries: dict[str, TrialEntry] = {}
        self.missing: dict[str, Trial] = {}
        self.n_open = 0

    def add(self, trials: Iterable[Trial], limits: Limits) -> None:
        """Add trials, each key once."""
        new = {trial.key: trial for trial in trials if trial.key not in self.entries}
        if self._reuses:
            self.entries |= self._directory.cached(list(new.values()), limits)
        self.missing |= {key: trial for key, trial in new.items() if key not in self.entries}

    def estimate(self) -> tuple[float, int]:
        """Sum of the mean seconds of each method on each data set, and the number of unknown trials."""
        seconds: dict[tuple[str, str], list[float]] = {}
        for entry in self.entries.values():
            if entry.seconds is not None:
                seconds.setdefault((entry.method, entry.dataset), []).append(entry.seconds)
        means = {key: statistics.fmean(values) for key, values in seconds.items()}
        estimates = [means.get((one.method, one.dataset)) for one in self.missing.values()]
        known = [value for value in estimates if value is not None]
        return math.fsum(known), len(estimates) - len(known)


def _add_comparison(
    work: _Work,
    settings: ExperimentSettings,
    table: RunsTable,
    datasets: Mapping[str, Dataset],
) -> int | None:
    """Add the trials of a comparison, and return the memory limit of the file, if it has one."""
    limits = trial_limits(table, None)
    runs = method_runs(settings, datasets)
    for run in runs:
        run.check()
        work.add(run.search_trials(), limits)
    for run in runs:
        if not any(trial.key in work.missing for trial in run.search_trials()):
            work.add(run.final_trials(work.entries), limits)
        elif len(run.settings) == 1:
            work.add([run.trial(run.settings[0], seed) for seed in run.seeds], limits)
        else:
            work.n_open += len(run.seeds) - run.n_search_seeds
    return None if table.memory_limit is None else limits.memory_bytes


def _add_sweep(work: _Work, table: SweepTable, datasets: Mapping[str, Dataset]) -> int:
    """Add the trials of a sweep, and return the memory that a whole fit needs."""
    worker_bytes = 0
    for dataset in datasets.values():
        trials = list(sweep_trials(table, dataset).values())
        work.add(trials, Limits())
        plan = plan_memory(dataset.read(), sweep_parameters(trials[0]))
        worker_bytes = max(worker_bytes, plan.worker_bytes(1))
    return worker_bytes
