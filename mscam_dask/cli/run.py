"""`mscam-dask run` and `resume`: overrides by options, progress, the plan of a dry run, a summary."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from importlib import resources
from pathlib import Path
from typing import Any

from dask.utils import parse_bytes
from msgspec import Struct
from rich.console import RenderableType

from mscam_dask.cli.console import (
    fit_pairs,
    key_values,
    progress_console,
    relative,
    results_console,
    score_text,
    show,
    views_table,
)
from mscam_dask.cli.options import extension_of_directory, installed_extensions
from mscam_dask.data.store.dataset import open_store
from mscam_dask.engine.memory import plan_memory
from mscam_dask.errors import ConfigurationError
from mscam_dask.monitor.messages import duration, plural
from mscam_dask.monitor.progress import PlainProgress, Progress, progress_on
from mscam_dask.pipeline import cluster
from mscam_dask.pipeline.open_data import clustering_fingerprint, columns_of, open_data
from mscam_dask.pipeline.previous_runs import (
    reusable_clustering,
    reusable_store,
    warm_start_from,
)
from mscam_dask.pipeline.read_config import read_config, type_of
from mscam_dask.pipeline.resume import resolve_target, resume_run, run_pipeline
from mscam_dask.pipeline.run import EXIT_DRIFT, RunOutcome, validate_data
from mscam_dask.pipeline.run_directory import RunDirectory
from mscam_dask.pipeline.security import check_execution
from mscam_dask.pipeline.settings import ExecutionTable, PipelineTables, Settings
from mscam_dask.pipeline.stored_run import StoredRun, last_started, siblings_of
from mscam_dask.pipeline.toml_document import (
    Override,
    environment_overrides,
    parse_override,
    read_document,
    shown,
)

_GIB = 2.0**30
_MIB = 2.0**20

_PIPELINE_TABLES = {"data", "cluster"}
_TLS = ("tls_ca", "tls_cert", "tls_key")
# Keys of a file that stay beside an option for where the tasks run, which replaces all others.
_KEPT = {
    "in_process": ("threads",),
    "scheduler": _TLS,
    "scheduler_file": _TLS,
    "cluster": ("workers", "threads", "memory_limit", *_TLS),
}


def run_file(
    pipeline: Path,
    *,
    assignments: tuple[str, ...],
    output: Path | None,
    overwrite: bool,
    dry_run: bool,
    insecure: bool,
    plain: bool,
    max_bytes: str | None = None,
    **execution: object,
) -> int:
    """Run a pipeline file, or print the plan of a dry run, and return the exit code."""
    document = read_document(pipeline)
    tables = document.tables.keys()
    extensions = () if tables & _PIPELINE_TABLES else installed_extensions()
    extension = next((each for each in extensions if each.owns_tables(tables)), None)
    if extension is not None:
        if max_bytes is not None:
            raise ConfigurationError(
                f"--max-bytes is for a pipeline with [data], not for the experiment {pipeline}. Set "
                "max_bytes in the table of each data set."
            )
        code: int = extension.run(
            document,
            assignments=assignments,
            output=output,
            overwrite=overwrite,
            dry_run=dry_run,
            insecure=insecure,
            **execution,
        )
        return code
    overrides = option_overrides(assignments, execution)
    if max_bytes is not None:
        overrides.append(Override(("data", "max_bytes"), max_bytes, f"--max-bytes {max_bytes}"))
    settings = read_config(document, overrides, dask_defaults=True)
    if dry_run:
        show(results_console(), key_values(plan_run(settings, output, insecure=insecure)))
        return 0
    cluster.serve_in_slurm(settings.execution, insecure=insecure)
    with _progress(plain=plain) as progress:
        outcome = run_pipeline(
            settings,
            output,
            overwrite=overwrite,
            insecure=insecure,
            observers=(progress,),
        )
    return _summarize(outcome)


def run_quickstart(**execution: Any) -> int:
    """Write the pipeline file of the quickstart unless it is there, run it, return the exit code."""
    pipeline = Path("quickstart.toml")
    if not pipeline.exists():
        content = resources.files("mscam_dask.cli").joinpath("quickstart.toml").read_bytes()
        pipeline.write_bytes(content)
        show(progress_console(), f"Wrote {pipeline}.")
    return run_file(
        pipeline, assignments=(), output=None, overwrite=False, dry_run=False, **execution
    )


def resume_directory(
    run_directory: Path, *, insecure: bool, plain: bool, **execution: object
) -> int:
    """Resume a run, and return the exit code: 0 where nothing was to do."""
    is_run = RunDirectory(run_directory).record.is_file()
    extension = None if is_run else extension_of_directory(run_directory)
    if extension is not None:
        code: int = extension.resume(run_directory)
        return code
    with _progress(plain=plain) as progress:
        outcome = resume_run(
            run_directory,
            execution=list(execution_overrides(execution)),
            insecure=insecure,
            observers=(progress,),
        )
    exit_code = _summarize(outcome)
    return exit_code if outcome.resumed else 0


def _progress(*, plain: bool) -> Progress:
    console = progress_console()
    return PlainProgress(console.file) if plain else progress_on(console)


def _summarize(outcome: RunOutcome) -> int:
    """Print the results, and return the exit code."""
    record, directory = outcome.record, outcome.directory
    fit, data = record.fit, record.data
    if not outcome.resumed:
        show(
            results_console(),
            f"Nothing to do: {relative(directory.path)} holds this run, finished at {record.ended}. "
            "mscam-dask run --overwrite runs it again.",
        )
    assert fit is not None
    assert data is not None
    results = []
    if record.metrics is not None:
        scores = score_text(record.metrics)
        results.append(("Scores", f"{scores} (ground truth was not used in the fit)"))
    if record.exit_code == EXIT_DRIFT and record.drift is not None:
        moved = f"{record.drift.share_moved:.1%} of the samples of {record.drift.earlier} moved"
        results.append(
            ("Drift", f"{moved}, more than [incremental] max_drift: exit code {EXIT_DRIFT}")
        )
    report = "report.html, " if directory.report.is_file() else ""
    files = f"{report}labels.csv, samples.csv, result.zarr, run.json"
    results.append(("Results", f"{relative(directory.path)} ({files})"))
    parts: list[RenderableType] = [key_values(fit_pairs(fit)), views_table(data, fit)]
    show(results_console(), *parts, key_values(results))
    return record.exit_code or 0


def option_overrides(
    assignments: Sequence[str],
    execution: Mapping[str, object],
    *,
    others: Sequence[Override] = (),
    kind: type[Struct] = PipelineTables,
) -> list[Override]:
    """Return the overrides of the environment, of `others`, of --set and of [execution], for tables of a kind; later ones win."""
    assigned = [parse_override(text) for text in assignments]
    for key, count in Counter(override.key for override in assigned).items():
        if count > 1:
            values = " and ".join(shown(each.value) for each in assigned if each.key == key)
            raise ConfigurationError(
                f"--set {'.'.join(key)} is given {count} times, with the values {values}. Keep one."
            )
    return [
        *environment_overrides(os.environ, kind),
        *others,
        *assigned,
        *execution_overrides(execution),
    ]


def execution_overrides(options: Mapping[str, object]) -> Iterator[Override]:
    """Yield overrides of [execution]. An option for one kind of cluster removes keys of the others."""
    values = {name: value for name, value in options.items() if value not in (None, False, ())}
    for name in sorted(_removed_by(values.keys()) - values.keys()):
        yield Override(("execution", name), None, "the command line")
    for name, value in values.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, tuple):  # --cluster-option
            for text in value:
                key_value = f"execution.cluster_options.{text}"
                yield parse_override(key_value, f"--cluster-option {text}")
            continue
        setting = value
        if name == "adapt":  # MIN:MAX; the settings refuse what is no number
            bounds = [int(part) if part.isdecimal() else part for part in str(value).split(":", 1)]
            setting = dict(zip(("minimum", "maximum"), bounds, strict=False))
        yield Override(
            ("execution", name), setting, option if value is True else f"{option} {value}"
        )


def _removed_by(given: Set[str]) -> set[str]:
    """Return the keys of [execution] that some options replace."""
    removed = set()
    place = next((option for option in _KEPT if option in given), None)
    if place is not None:
        removed = set(ExecutionTable.__struct_fields__) - {"workers_timeout", *_KEPT[place]}
    elif others := given - {"workers_timeout", *_TLS}:
        removed = {"scheduler", "scheduler_file", *_TLS}
        if others != {"threads"}:  # which are those of workers, or of this process
            removed.add("in_process")
    if "adapt" in given:
        removed.add("workers")
    return removed | {"adapt"} if "workers" in given else removed


def plan_run(
    settings: Settings, output: Path | None = None, *, insecure: bool = False
) -> list[tuple[str, str]]:
    """Plan a run, as names and values. Nothing is started or left behind; sources are read for their shapes."""
    check_execution(settings.execution, insecure=insecure)
    place = resolve_target(settings, output)
    directory = RunDirectory(place.directory)
    runs = siblings_of(place.settings, directory).finished
    own = last_started(directory, place.run_fingerprint)
    earlier = reusable_store(
        runs if own is None or own.record.data is None else [own, *runs], place.data_fingerprint
    )
    with tempfile.TemporaryDirectory(prefix="mscam-dry-run-") as aside:
        if earlier is None:
            data = open_data(place.settings.data, Path(aside) / "data.zarr").data
        else:
            data = open_store(earlier.directory.data)
        validate_data(data, settings.cluster)
        columns, _ = columns_of(settings.data, data)
        same = reusable_clustering(runs, clustering_fingerprint(settings, data.digest(), columns))
        start = warm_start_from(runs, settings, data)
        estimator = settings.cluster.estimator(**(start.arguments if start else {}))
        tried = estimator.candidate_settings(data)
        candidates = plural(len(tried), "candidate")
        view_graphs = tried[0].constants.auto_settings
        if view_graphs and len(data.views) > 1:
            selects = [name for name in ("scale", "alpha") if getattr(estimator, name) is None]
            selected = ", ".join((*selects, "the initial graph"))
            candidates += f"; selected during the fit: {selected}"
        plans = [plan_memory(data, one, view_graphs=view_graphs) for one in tried]
        workers = cluster.worker_counts(settings.execution)[1]
        largest = max(plans, key=lambda plan: plan.worker_bytes(workers))
        need, limit = largest.worker_bytes(workers), limit_of(settings.execution, workers)
        memory = f"each needs up to {need / _GIB:.2f} GiB"
        if limit is not None and need <= limit:
            memory += f" and has {limit / _GIB:.2f} GiB"
        elif limit is not None:
            is_large = all(one.is_large(data.n_samples) for one in tried)
            spills = is_large and largest.may_spill(limit, cluster.spill_threshold_bytes(limit))
            result = "it spills results to its disk" if spills else "the fit would be refused"
            memory += f" and HAS ONLY {limit / _GIB:.2f} GiB: {result}"
        to_do = "cluster"
        if place.action == "nothing":
            to_do = "nothing: this run has finished"
        elif place.action == "resume":
            to_do = "resume an interrupted run"
        elif same is not None:
            to_do = f"reuse the clustering of {same[0].name}, evaluate and write"
        elif start is not None and start.is_warm:
            to_do = f"cluster, starting from {start.earlier.name}"
        elif start is not None:
            to_do = f"cluster without a previous run: {start.reason}"
        views = ", ".join(f"{view.name} ({view.shape[1]})" for view in data.views)
        held = f"at most {largest.held_bytes / _MIB:.1f} MiB of results on all workers together"
        return [
            ("Run", relative(place.directory)),
            ("To do", to_do),
            ("Data", f"{data.n_samples} samples, {plural(len(data.views), 'view')}: {views}"),
            ("Bytes", f"{data.nbytes / _MIB:.1f} MiB of data, {held}"),
            ("Settings", candidates),
            ("Workers", f"{workers}, {memory}"),
            *_last_time(runs),
        ]


def _last_time(runs: list[StoredRun]) -> list[tuple[str, str]]:
    """Time of the last clustering that was not reused, if there is one."""
    for run in runs:
        if run.record.started_from is not None:
            taken = duration(run.record.seconds.get("cluster", 0.0))
            return [("Last time", f"{taken} for {run.data.n_samples} samples in {run.name}")]
    return []


def limit_of(execution: ExecutionTable, workers: int) -> int | None:
    """Return the memory of each worker in bytes; None where the cluster decides."""
    if execution.in_process or (execution.memory_limit is None and type_of(execution) != "local"):
        return None
    if execution.memory_limit is None:
        return cluster.smallest_memory_bytes() // workers
    return parse_bytes(execution.memory_limit)
