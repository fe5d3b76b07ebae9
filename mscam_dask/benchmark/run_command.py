"""`mscam-dask compare` and `sweep`: from options to settings, the estimate of `--dry-run`, and progress."""

from __future__ import annotations

import hashlib
import math
import os
import shlex
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from mscam_dask.benchmark.config import (
    Command,
    ExperimentSettings,
    SweepTable,
    read_experiment,
)
from mscam_dask.benchmark.datasets import open_datasets
from mscam_dask.benchmark.experiment import (
    Progress,
    kept_trials,
    limits_of,
    output_of,
    run_experiment,
)
from mscam_dask.benchmark.report import show_results
from mscam_dask.benchmark.results import TrialEntry, read_record
from mscam_dask.benchmark.rows import method_runs
from mscam_dask.benchmark.trial import Trial
from mscam_dask.cli.console import (
    key_values,
    progress_console,
    relative,
    results_console,
    show,
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
from mscam_dask.pipeline.run.cluster_classes import worker_counts
from mscam_dask.pipeline.run.dry_run import limit_of
from mscam_dask.pipeline.run.lock import is_locked
from mscam_dask.pipeline.run.security import check_execution

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
    is_swept = {"alpha", "graph_weight", "auto_settings"} <= entry.parameters.keys()
    if is_swept:  # all trials have the same method and seed
        weight = entry.parameters["graph_weight"]
        name = f"{entry.dataset} alpha {entry.parameters['alpha']:g} weight {weight:g}"
    if entry.outcome != "ok":
        return f"{name} {entry.outcome}: {entry.reason}"
    parts = [name]
    if (accuracy := entry.scores.get("accuracy")) is not None:
        parts.append(f"ACC {accuracy:.4f}")
    if entry.seconds is not None:
        parts.append(f"{entry.seconds:.{0 if entry.seconds >= 100 else 1}f} s")
    if entry.peak_memory_bytes is not None and not is_swept:
        parts.append(f"{entry.peak_memory_bytes / _MIB:.0f} MiB")
    return " ".join(parts)


def show_experiment(directory: Path) -> None:
    """Print the command, state and results of an experiment."""
    record = read_record(directory)
    outcomes = Counter(trial.outcome for trial in record.trials)
    fits = ", ".join(f"{n} {outcome}" for outcome, n in outcomes.items())
    if not fits:  # the record has none before all have ended
        fits = f"{sum(1 for _ in directory.glob('trials/*/*.json'))} ended so far"
    place, state = shlex.quote(relative(directory)), str(record.state)
    if state == "running" and not is_locked(directory):
        state = f"interrupted (no process is running it); resume with: {record.command} -o {place}"
    data = ", ".join(f"{entry.name} ({entry.n_samples} samples)" for entry in record.datasets)
    pairs = [
        ("Experiment", f"{record.kind} in {relative(directory)}"),
        ("State", state),
        ("Started", record.started + ("" if record.ended is None else f", ended {record.ended}")),
        ("Command", record.command),
        ("Data", data),
        ("Methods", ", ".join(method.name for method in record.methods)),
        ("Fits", fits),
        ("Ran", record.executor or ""),
        ("Report", f"mscam-dask report {place} writes report.html"),
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
    """Compare methods, and return the exit code; for the options see `run_file`."""
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
    overrides = [
        Override((table, key), value, shlex.join(words)) for key, value, words in given if value
    ]
    return run_file("compare", document, table_options=overrides, **options)


def run_file(
    command: Command,
    document: Document,
    *,
    typed: str = "",
    assignments: tuple[str, ...],
    output: Path | None,
    overwrite: bool,
    dry_run: bool,
    insecure: bool,
    table_options: Sequence[Override] = (),
    **execution: object,
) -> int:
    """Run an experiment or print its estimate, and return the exit code; `typed` is the command if it is "run"."""
    overrides = option_overrides(assignments, execution, others=table_options)
    settings = read_experiment(document, overrides, command=command)
    if any(override.key[-1] == "datasets" for override in table_options):
        settings = msgspec.structs.replace(settings, name=_name_of_data(settings))
    directory = output_of(settings, output) if output is None else output
    if dry_run:
        check_execution(settings.execution, insecure=insecure)
        pairs = plan_experiment(settings, directory, overwrite=overwrite)
        show(results_console(), key_values(pairs))
        return 0
    words = [override.origin for override in table_options]
    words += [f"--set {shlex.quote(text)}" for text in assignments]
    record = run_experiment(
        settings,
        directory,
        command=_command(typed or command, document, words),
        overwrite=overwrite,
        insecure=insecure,
        observer=ProgressLines(),
    )
    if record.trials and record.n_reused == len(record.trials):
        results_console().file.write(
            f"Nothing to run: every fit had ended by {record.ended}. Use --overwrite to run them "
            "again.\n"
        )
    show_results(record, directory)
    are_known = [row.n_failed < row.n_runs for row in record.rows]
    are_known += [bool(entry.best) for entry in record.heat_maps]
    return 0 if all(are_known) else _EXIT_WITHOUT_RESULT


def _name_of_data(settings: ExperimentSettings) -> str:
    """Name of an experiment whose data are not those of its file."""
    names = "+".join(settings.dataset)
    if len(names.encode()) > _MAX_NAME_BYTES:
        digest = hashlib.sha256(names.encode()).hexdigest()[:8]
        names = f"{len(settings.dataset)}-data-sets-{digest}"
    return f"{settings.name}-{names}"


def _command(name: str, document: Document, words: Sequence[str]) -> str:
    """Command that repeats the experiment from the current directory."""
    file = [] if document is COMMAND_LINE else [shlex.quote(relative(document.path))]
    environment = []
    for override in environment_overrides(os.environ):
        key, _, value = override.origin.removesuffix(" (environment)").partition("=")
        environment.append(f"{key}={shlex.quote(value)}")
    return " ".join([*environment, "mscam-dask", name, *file, *words])


def plan_experiment(
    settings: ExperimentSettings, directory: Path, *, overwrite: bool = False
) -> list[tuple[str, str]]:
    """Estimate an experiment; its fits are at most so many while the best of several settings is not known."""
    path, table, limits = output_of(settings, directory), settings.table, limits_of(settings)
    needs = limits.memory_bytes if getattr(table, "memory_limit", None) else None
    with tempfile.TemporaryDirectory(prefix="mscam-dry-run-") as temporary:
        datasets = open_datasets(settings, path / "data", Path(temporary))
        runs = method_runs(settings, datasets)
        for run in runs:
            run.check()
            if isinstance(table, SweepTable):
                data = run.dataset.data.open(run.seeds[0])
                setting = run.estimator(run.settings[0]).candidate_settings(data)[0]
                needs = max(needs or 0, plan_memory(data, setting).worker_bytes(1))
    trials = [trial for run in runs for trial in run.search_trials()]
    entries = {} if overwrite else kept_trials(path, trials, limits)
    n_open = 0
    for run in runs:
        if all(trial.key in entries for trial in run.search_trials()):
            trials += run.final_trials(entries)
        elif len(run.settings) == 1:
            trials += [run.trial(run.settings[0], seed) for seed in run.seeds]
        else:
            n_open += len(run.seeds) - run.n_search_seeds
    entries = {} if overwrite else kept_trials(path, trials, limits)
    missing = {trial.key: trial for trial in trials if trial.key not in entries}
    sets = [dataset.entry for dataset in datasets.values()]
    views = [f"{each.name} ({each.n_samples} samples, {len(each.views)} views)" for each in sets]
    n_values = sum(math.prod(view.shape) for each in sets for view in each.views)
    n_workers = worker_counts(settings.execution)[1]
    limit_s = None if isinstance(table, SweepTable) else table.time_limit_s
    memory, has = "", limit_of(settings.execution, n_workers)
    if (size := needs or has) is not None:
        memory = f", {'a fit may use' if limit_s else 'each needs'} {size / _GIB:.2f} GiB"
        if has is not None and size != has:
            memory += f" and a worker has {'' if size <= has else 'only '}{has / _GIB:.2f} GiB"
    n_missing = len(missing) + n_open
    reused = f", {len(entries)} reused from an earlier run" if entries else ""
    to_run = f"{n_missing} fits{reused}"
    return [
        ("Experiment", f"{settings.table.kind} in {relative(directory)}"),
        ("To run", to_run if n_missing else f"nothing: all {len(entries)} fits have ended"),
        ("Data", ", ".join(views)),
        ("Bytes", f"{8 * n_values / _MIB:.1f} MiB of values"),
        ("Methods", ", ".join(dict.fromkeys(run.method for run in runs))),
        ("Workers", f"{n_workers}{memory}"),
        ("Time", _time(entries, missing, n_open, limit_s, n_workers)),
    ]


def _time(
    entries: dict[str, TrialEntry],
    missing: dict[str, Trial],
    n_open: int,
    limit_s: float | None,
    n_parallel: int,
) -> str:
    """Time of the missing trials, from the mean of their method on the same data."""
    seconds: dict[tuple[str, str], list[float]] = {}
    for entry in entries.values():
        if entry.seconds is not None:
            seconds.setdefault((entry.method, entry.dataset), []).append(entry.seconds)
    places = [(trial.method, trial.dataset) for trial in missing.values()]
    known = [statistics.fmean(seconds[place]) for place in places if place in seconds]
    n_unknown = len(places) - len(known) + n_open
    parts = []
    if known:
        total = duration(math.fsum(known) / n_parallel)
        parts.append(f"about {total} for {len(known)} fits, from those that have ended")
    if n_unknown:
        limit = "" if limit_s is None else f"; limit {limit_s:g} s each"
        parts.append(f"unknown for {n_unknown} fits (no comparable fit has run yet{limit})")
    return "; ".join(parts) or "none"
