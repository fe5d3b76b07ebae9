"""`mscam-dask run` and `resume`: overrides by options, progress, a dry run, a summary."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

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
from mscam_dask.cli.options import extension_of_directory, extension_of_file
from mscam_dask.errors import ConfigurationError
from mscam_dask.monitor.messages import duration, plural
from mscam_dask.monitor.progress import PlainProgress, Progress, progress_on
from mscam_dask.pipeline.config.parse import shown
from mscam_dask.pipeline.config.read_config import read_config
from mscam_dask.pipeline.config.toml_document import (
    Override,
    environment_overrides,
    parse_override,
    read_document,
)
from mscam_dask.pipeline.run.cluster import serve_in_slurm
from mscam_dask.pipeline.run.dry_run import RunPlan, plan_run
from mscam_dask.pipeline.run.resume import resume_run, run_pipeline
from mscam_dask.pipeline.run.run import EXIT_DRIFT, RunOutcome
from mscam_dask.pipeline.run.run_directory import RunDirectory

_GIB = 2.0**30
_MIB = 2.0**20

_PIPELINE_TABLES = {"data", "cluster"}
_PROCESS_OPTIONS = ("workers", "memory_limit")
_TLS_OPTIONS = ("tls_ca", "tls_cert", "tls_key")
# Options of a cluster that runs already, and of one that the run starts.
_RUNNING_OPTIONS = ("scheduler", "scheduler_file")
_STARTED_OPTIONS = (
    "cluster",
    "cluster_options",
    "adapt",
    "lifetime",
    "lifetime_stagger",
    "start_timeout",
)


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
    extension = None if tables & _PIPELINE_TABLES else extension_of_file(tables)
    if extension is not None:
        if max_bytes is not None:
            raise ConfigurationError(
                f"--max-bytes is for a pipeline with [data], not for the experiment {pipeline}. Set "
                "max_bytes in the table of each data set."
            )
        return extension.run(
            document,
            assignments=assignments,
            output=output,
            overwrite=overwrite,
            dry_run=dry_run,
            insecure=insecure,
            **execution,
        )
    overrides = option_overrides(assignments, execution)
    if max_bytes is not None:
        overrides.append(Override(("data", "max_bytes"), max_bytes, f"--max-bytes {max_bytes}"))
    settings = read_config(document, overrides, dask_defaults=True)
    if dry_run:
        _show_plan(plan_run(settings, output, insecure=insecure))
        return 0
    serve_in_slurm(settings.execution, insecure=insecure)
    with _progress(plain=plain) as progress:
        outcome = run_pipeline(
            settings,
            output,
            overwrite=overwrite,
            insecure=insecure,
            observers=(progress,),
        )
    if not outcome.resumed:
        show(
            results_console(),
            f"Nothing to do: {relative(outcome.directory.path)} holds this run, finished at "
            f"{outcome.record.ended}. --overwrite runs it again.",
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
    """Resume a run, and return the exit code."""
    is_run = RunDirectory(run_directory).record.is_file()
    extension = None if is_run else extension_of_directory(run_directory)
    if extension is not None:
        return extension.resume(run_directory)
    with _progress(plain=plain) as progress:
        outcome = resume_run(
            run_directory,
            execution=list(execution_overrides(execution)),
            insecure=insecure,
            observers=(progress,),
        )
    if not outcome.resumed:
        show(
            results_console(),
            f"Nothing to resume: {relative(outcome.directory.path)} holds a run that finished at "
            f"{outcome.record.ended}.",
        )
        return 0
    return _summarize(outcome)


def _progress(*, plain: bool) -> Progress:
    console = progress_console()
    return PlainProgress(console.file) if plain else progress_on(console)


def _summarize(outcome: RunOutcome) -> int:
    """Print the results, and return the exit code."""
    record, directory = outcome.record, outcome.directory
    fit, data = record.fit, record.data
    assert fit is not None
    assert data is not None
    assert record.exit_code is not None
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
    return record.exit_code


def option_overrides(
    assignments: Sequence[str], execution: Mapping[str, object], *, others: Sequence[Override] = ()
) -> list[Override]:
    """Return the overrides of the environment, of `others`, of --set and of [execution]; later ones win."""
    assigned = [parse_override(text) for text in assignments]
    for key, count in Counter(override.key for override in assigned).items():
        if count > 1:
            values = " and ".join(shown(each.value) for each in assigned if each.key == key)
            raise ConfigurationError(
                f"--set {'.'.join(key)} is given {count} times, with the values {values}. Keep one."
            )
    return [
        *environment_overrides(os.environ),
        *others,
        *assigned,
        *execution_overrides(execution),
    ]


def execution_overrides(options: Mapping[str, object]) -> Iterator[Override]:
    """Yield overrides of [execution]. An option for one kind of cluster removes keys of the others."""
    values = {name: value for name, value in options.items() if value not in (None, False, ())}
    for name in _removed_by(values.keys()):
        if name not in values:
            yield Override(("execution", name), None, "the command line")
    for name, value in values.items():
        option = f"--{name.replace('_', '-')}"
        if name == "cluster_options":
            yield from map(_cluster_option, value if isinstance(value, tuple) else ())
        elif name == "adapt":
            yield Override(("execution", name), _bounds(str(value)), f"{option} {value}")
        else:
            origin = option if value is True else f"{option} {value}"
            yield Override(("execution", name), value, origin)


def _removed_by(given: Collection[str]) -> tuple[str, ...]:
    """Return the keys of [execution] that some options replace without giving them."""
    removed: tuple[str, ...] = ()
    if "in_process" in given:
        removed = (*_RUNNING_OPTIONS, *_TLS_OPTIONS, *_PROCESS_OPTIONS, *_STARTED_OPTIONS)
    elif any(name in given for name in _RUNNING_OPTIONS):
        others = ("in_process", "threads", *_PROCESS_OPTIONS)
        removed = (*_RUNNING_OPTIONS, *others, *_STARTED_OPTIONS)
    elif "cluster" in given:
        removed = (*_RUNNING_OPTIONS, "in_process", *_STARTED_OPTIONS)
    elif any(name in given for name in (*_PROCESS_OPTIONS, *_STARTED_OPTIONS)):
        removed = (*_RUNNING_OPTIONS, *_TLS_OPTIONS, "in_process")
    elif "threads" in given:  # of workers, or of this process
        removed = (*_RUNNING_OPTIONS, *_TLS_OPTIONS)
    if "workers" in given:
        removed += ("adapt",)
    return (*removed, "workers") if "adapt" in given else removed


def _cluster_option(text: str) -> Override:
    """Return the override of --cluster-option KEY=VALUE."""
    origin = f"--cluster-option {text}"
    try:
        parsed = parse_override(f"execution.cluster_options.{text}")
    except ConfigurationError as error:
        raise ConfigurationError(
            f"{origin} is not of the form KEY=VALUE with a value in TOML. Example: --cluster-option "
            "queue=long."
        ) from error
    return Override(parsed.key, parsed.value, origin)


def _bounds(text: str) -> dict[str, int]:
    """Return the bounds of --adapt MIN:MAX."""
    least, _, most = text.partition(":")
    try:
        return {"minimum": int(least), "maximum": int(most)}
    except ValueError as error:
        raise ConfigurationError(
            f"--adapt {text} is not of the form MIN:MAX. Example: --adapt 0:8."
        ) from error


def _show_plan(plan: RunPlan) -> None:
    """Print the plan of a dry run."""
    data = plan.data
    views = ", ".join(f"{view.name} ({view.shape[1]})" for view in data.views)
    held = f"at most {plan.held_bytes / _MIB:.1f} MiB of results on all workers together"
    pairs = [
        ("Run", relative(plan.place.directory)),
        ("To do", _action(plan)),
        ("Data", f"{data.n_samples} samples, {plural(len(data.views), 'view')}: {views}"),
        ("Bytes", f"{plan.read_bytes / _MIB:.1f} MiB of data, {held}"),
        ("Settings", _settings(plan)),
        ("Workers", f"{plan.n_workers}, {_memory(plan)}"),
        ("Time", f"about {duration(plan.seconds)} ({plan.basis})"),
    ]
    show(results_console(), key_values(pairs))


def _settings(plan: RunPlan) -> str:
    count = len(plan.settings)
    if not plan.selected:
        return f"{count} candidates" if count > 1 else "1"
    *others, last = plan.selected
    names = f"{', '.join(others)} and {last} are" if others else f"{last} is"
    return f"{count} ({names} selected during the fit)"


def _memory(plan: RunPlan) -> str:
    need = f"each needs up to {plan.worker_bytes / _GIB:.2f} GiB"
    if plan.limit_bytes is None:
        return need
    limit = f"{plan.limit_bytes / _GIB:.2f} GiB"
    if plan.worker_bytes <= plan.limit_bytes:
        return f"{need} and has {limit}"
    result = "it spills results to its disk" if plan.spills else "the fit would be refused"
    return f"{need} and HAS ONLY {limit}: {result}"


def _action(plan: RunPlan) -> str:
    if plan.place.action == "nothing":
        return "nothing: this run has finished"
    if plan.place.action == "resume":
        return "resume an interrupted run"
    if plan.same_as is not None:
        return f"reuse the clustering of {plan.same_as.name}, evaluate and write"
    if plan.start is not None and plan.start.is_warm:
        return f"cluster, starting from {plan.start.earlier.name}"
    if plan.start is not None:
        return f"cluster without a previous run: {plan.start.reason}"
    return "cluster"
