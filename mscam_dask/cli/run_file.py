"""`mscam-dask run` and `resume`: options to overrides, progress while it runs, a summary at the end."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from mscam_dask.cli.terminal import (
    components_text,
    fields,
    progress_console,
    relative,
    results_console,
    score_text,
    setting_text,
    share_text,
    show,
    sizes_text,
)
from mscam_dask.monitor.progress import PlainProgress, progress_on
from mscam_dask.pipeline.again import run_again
from mscam_dask.pipeline.config import read_config
from mscam_dask.pipeline.document import Override, parse_override
from mscam_dask.pipeline.environment import environment_overrides
from mscam_dask.pipeline.experiments.config import experiment_command
from mscam_dask.pipeline.resume import resume_run
from mscam_dask.pipeline.run import RunOutcome

__all__ = ["execution_overrides", "resume_directory", "run_file"]

_OF_PROCESSES = ("workers", "memory_limit")
_TLS = ("tls_ca", "tls_cert", "tls_key")


def run_file(
    pipeline: Path,
    *,
    assignments: tuple[str, ...],
    output: Path | None,
    overwrite: bool,
    dry_run: bool,
    insecure: bool,
    plain: bool,
    **execution: object,
) -> int:
    """Run a pipeline file, or show what would be done; the exit code."""
    command = experiment_command(pipeline)
    if command is not None:
        from mscam_dask.cli.run_experiment import options_asked, run_experiment

        asked = options_asked(
            assignments=assignments,
            output=output,
            overwrite=overwrite,
            dry_run=dry_run,
            insecure=insecure,
            **execution,
        )
        return run_experiment(command, pipeline, asked, named="run")
    overrides = environment_overrides(os.environ)
    overrides += [parse_override(text) for text in assignments]
    overrides += execution_overrides(execution)
    settings = read_config(pipeline, overrides)
    if dry_run:
        from mscam_dask.cli.show_plan import show_plan
        from mscam_dask.pipeline.run_plan import plan_run

        show_plan(plan_run(settings, output, insecure=insecure))
        return 0
    console = progress_console()
    progress = PlainProgress(console.file) if plain else progress_on(console)
    with progress:
        outcome = run_again(
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
    _summarise(outcome)
    assert outcome.record.exit_code is not None
    return outcome.record.exit_code


def resume_directory(
    run_directory: Path, *, insecure: bool, plain: bool, **execution: object
) -> int:
    """Continue a run; the exit code."""
    console = progress_console()
    progress = PlainProgress(console.file) if plain else progress_on(console)
    with progress:
        outcome = resume_run(
            run_directory,
            execution=list(execution_overrides(execution)),
            insecure=insecure,
            observers=(progress,),
        )
    if not outcome.resumed:
        show(
            results_console(),
            f"{relative(outcome.directory.path)} holds a run that finished at "
            f"{outcome.record.ended}: there is nothing to resume.",
        )
        return 0
    _summarise(outcome)
    assert outcome.record.exit_code is not None
    return outcome.record.exit_code


def execution_overrides(options: dict[str, object]) -> Iterable[Override]:
    """Options that name another kind of cluster than the file take the file's kind out."""
    given = {name: value for name, value in options.items() if value not in (None, False)}
    out: tuple[str, ...] = ()
    if "in_process" in given:
        out = ("scheduler", *_TLS, *_OF_PROCESSES)
    elif "scheduler" in given:
        out = ("in_process", "threads", *_OF_PROCESSES)
    elif any(name in given for name in _OF_PROCESSES):
        out = ("scheduler", *_TLS, "in_process")
    elif "threads" in given:  # of workers, or of this process
        out = ("scheduler", *_TLS)
    for name in out:
        if name not in given:
            yield Override(("execution", name), None, "the command line")
    for name, value in given.items():
        dashed = name.replace("_", "-")
        said = f"--{dashed}" if value is True else f"--{dashed} {value}"
        yield Override(("execution", name), value, said)


def _summarise(outcome: RunOutcome) -> None:
    """Print what came out, as the last thing on standard output."""
    record, directory = outcome.record, outcome.directory
    fit = record.fit
    assert fit is not None
    count = "exactly " if fit.reached else ""
    pairs = [
        ("Clusters", f"{count}{components_text(fit)}"),
        ("Status", f"{fit.message[:1].upper()}{fit.message[1:]}."),
        ("Setting", setting_text(fit.setting)),
        ("Sizes", sizes_text(fit)),
        ("Views", share_text(fit.view_contributions)),
    ]
    if record.metrics is not None:
        pairs.append(("Scores", f"{score_text(record.metrics)} (labels unseen by the fit)"))
    what = "report.html, " if directory.report.is_file() else ""
    pairs.append(
        ("Results", f"{relative(directory.path)} ({what}labels.csv, result.zarr, run.json)")
    )
    show(results_console(), "", fields(pairs))
