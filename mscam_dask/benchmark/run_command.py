"""`mscam-dask compare` and `sweep`: from options to settings, the estimate of `--dry-run`, and progress."""

from __future__ import annotations

import hashlib
import os
import shlex
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from mscam_dask.benchmark.config import (
    ExperimentSettings,
    ExperimentTables,
    SweepTable,
    read_experiment,
    table_of,
)
from mscam_dask.benchmark.datasets import open_datasets
from mscam_dask.benchmark.experiment import (
    kept_trials,
    limits_of,
    method_runs,
    output_of,
    run_experiment,
)
from mscam_dask.benchmark.report import show_results
from mscam_dask.benchmark.results import read_record
from mscam_dask.cli.console import (
    key_values,
    progress_console,
    relative,
    results_console,
    show,
)
from mscam_dask.cli.run import limit_of, option_overrides
from mscam_dask.engine.memory import plan_memory
from mscam_dask.errors import ConfigurationError
from mscam_dask.monitor.messages import duration
from mscam_dask.monitor.progress import PlainProgress
from mscam_dask.pipeline.cluster import worker_counts
from mscam_dask.pipeline.run_directory import is_locked
from mscam_dask.pipeline.security import check_execution
from mscam_dask.pipeline.toml_document import (
    COMMAND_LINE,
    Document,
    Override,
    environment_overrides,
    read_document,
)

_GIB = 2.0**30

_EXIT_WITHOUT_RESULT = 5
_DEFAULT = Path("pipelines") / "comparison.toml"
_MAX_NAME_BYTES = 100  # of the 255 that the name of a directory can have


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
    table = table_of(document.tables) or "compare"
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
    command: str,
    document: Document,
    *,
    assignments: tuple[str, ...],
    output: Path | None,
    overwrite: bool,
    dry_run: bool,
    insecure: bool,
    table_options: Sequence[Override] = (),
    **execution: object,
) -> int:
    """Run the experiment of a file or print its estimate, and return the exit code; `command` is what was typed."""
    overrides = option_overrides(
        assignments, execution, others=table_options, kind=ExperimentTables
    )
    settings = read_experiment(document, overrides)
    if any(override.key[-1] == "datasets" for override in table_options):
        settings = msgspec.structs.replace(settings, name=_name_of_data(settings))
    directory = output_of(settings, output)
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
        command=_command(command, document, words),
        overwrite=overwrite,
        insecure=insecure,
        observer=PlainProgress(progress_console().file),
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
    for override in environment_overrides(os.environ, ExperimentTables):
        key, _, value = override.origin.removesuffix(" (environment)").partition("=")
        environment.append(f"{key}={shlex.quote(value)}")
    return " ".join([*environment, "mscam-dask", name, *file, *words])


def plan_experiment(
    settings: ExperimentSettings, directory: Path, *, overwrite: bool = False
) -> list[tuple[str, str]]:
    """Estimate an experiment; its fits are at most so many while the best of several settings is not known."""
    table, limits = settings.table, limits_of(settings)
    needs = limits.memory_bytes if getattr(table, "memory_limit", None) else None
    with tempfile.TemporaryDirectory(prefix="mscam-dry-run-") as temporary:
        datasets = open_datasets(settings, directory / "data", Path(temporary))
        runs = method_runs(settings, datasets)
        for run in runs:
            run.check()
            if isinstance(table, SweepTable):
                data = run.dataset.data.open(run.seeds[0])
                setting = run.estimator(run.settings[0]).candidate_settings(data)[0]
                needs = max(needs or 0, plan_memory(data, setting).worker_bytes(1))
    trials = [trial for run in runs for trial in run.search_trials()]
    entries = {} if overwrite else kept_trials(directory, trials, limits)
    n_open = 0
    for run in runs:
        if all(trial.key in entries for trial in run.search_trials()):
            trials += run.final_trials(entries)
        elif len(run.settings) == 1:
            trials += [run.trial(run.settings[0], seed) for seed in run.seeds]
        else:
            n_open += len(run.seeds) - run.n_search_seeds
    entries = {} if overwrite else kept_trials(directory, trials, limits)
    missing = {trial.key: trial for trial in trials if trial.key not in entries}
    sets = [dataset.entry for dataset in datasets.values()]
    views = [f"{each.name} ({each.n_samples} samples, {len(each.views)} views)" for each in sets]
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
        ("Methods", ", ".join(dict.fromkeys(run.method for run in runs))),
        ("Workers", f"{n_workers}{memory}"),
        ("Limit", "none" if limit_s is None else f"{duration(limit_s)} for each fit"),
    ]
