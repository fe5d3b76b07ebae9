"""`mscam-dask run` and `resume`: overrides by options, progress, a dry run, a summary."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
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
from mscam_dask.pipeline.cluster import serve_in_slurm
from mscam_dask.pipeline.dry_run import RunPlan, plan_run
from mscam_dask.pipeline.read_config import read_config
from mscam_dask.pipeline.resume import resume_run, run_pipeline
from mscam_dask.pipeline.run import EXIT_DRIFT, RunOutcome
from mscam_dask.pipeline.run_directory import RunDirectory
from mscam_dask.pipeline.settings import ExecutionTable
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
    extension = None if tables & _PIPELINE_TABLES else extension_of_file(tables)
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
    return EXIT_DRIFT if record.exit_code == EXIT_DRIFT else 0  # earlier versions had a 5


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


def _show_plan(plan: RunPlan) -> None:
    """Print the plan of a dry run."""
    data = plan.data
    views = ", ".join(f"{view.name} ({view.shape[1]})" for view in data.views)
    held = f"at most {plan.held_bytes / _MIB:.1f} MiB of results on all workers together"
    selected = f"; selected during the fit: {', '.join(plan.selected)}" if plan.selected else ""
    pairs = [
        ("Run", relative(plan.place.directory)),
        ("To do", _action(plan)),
        ("Data", f"{data.n_samples} samples, {plural(len(data.views), 'view')}: {views}"),
        ("Bytes", f"{plan.read_bytes / _MIB:.1f} MiB of data, {held}"),
        ("Settings", plural(len(plan.settings), "candidate") + selected),
        ("Workers", f"{plan.n_workers}, {_memory(plan)}"),
        ("Time", f"about {duration(plan.seconds)} ({plan.basis})"),
    ]
    show(results_console(), key_values(pairs))


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
