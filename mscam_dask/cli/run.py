"""`mscam-dask run` and `resume`: options to overrides, progress while it runs, a summary at the end."""

from __future__ import annotations

from pathlib import Path

from mscam_dask.cli.console import (
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
from mscam_dask.cli.extensions import extension_of_directory, extension_of_file
from mscam_dask.cli.overrides import execution_overrides, option_overrides
from mscam_dask.monitor.progress import PlainProgress, progress_on
from mscam_dask.pipeline.config.read_config import read_config
from mscam_dask.pipeline.config.toml_document import read_document
from mscam_dask.pipeline.run.resume import resume_run, run_or_resume
from mscam_dask.pipeline.run.run import RunOutcome
from mscam_dask.pipeline.run.run_directory import RunDirectory

__all__ = ["resume_directory", "run_file"]

_PIPELINE_TABLES = {"data", "cluster"}


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
    """Run a pipeline file, or show what would be done; the exit code.

    A file with [data] or [cluster] is a pipeline, whatever else is in it; others may be those of an
    extension.
    """
    tables = read_document(pipeline).tables.keys()
    extension = None if tables & _PIPELINE_TABLES else extension_of_file(tables)
    if extension is not None:
        return extension.run(
            pipeline,
            assignments=assignments,
            output=output,
            overwrite=overwrite,
            dry_run=dry_run,
            insecure=insecure,
            **execution,
        )
    settings = read_config(pipeline, option_overrides(assignments, execution))
    if dry_run:
        from mscam_dask.cli.dry_run import show_plan
        from mscam_dask.pipeline.run.dry_run import plan_run

        show_plan(plan_run(settings, output, insecure=insecure))
        return 0
    console = progress_console()
    progress = PlainProgress(console.file) if plain else progress_on(console)
    with progress:
        outcome = run_or_resume(
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
    is_run = RunDirectory(run_directory).record.is_file()
    extension = None if is_run else extension_of_directory(run_directory)
    if extension is not None:
        return extension.resume(run_directory)
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


def _summarise(outcome: RunOutcome) -> None:
    """Print what came out, as the last thing on standard output."""
    record, directory = outcome.record, outcome.directory
    fit = record.fit
    assert fit is not None
    count = "exactly " if fit.has_requested_components else ""
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
