"""`mscam-dask runs`: a list of runs, their comparison, and an index page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import RenderableType

from mscam_dask.cli.console import key_values, relative, results_console, show, table
from mscam_dask.pipeline.run.list_runs import (
    Comparison,
    ListedRun,
    compare_runs,
    list_runs,
    write_index,
)

__all__ = ["describe_runs", "show_runs"]

_TIME = len("2026-11-24T09:28")  # of a time: the date, hours and minutes


def describe_runs(runs: Sequence[ListedRun], unreadable: dict[str, str]) -> list[RenderableType]:
    """Return a table with one line for each run, and the errors of unreadable ones."""
    titles = ("run", "state", "started", "n", "c", "support", "score", "ACC", "moved")
    rows = [(run.name, *_overview(run)) for run in runs]
    parts: list[RenderableType] = [table(titles, rows, numbers=("n", "c", "score", "ACC", "moved"))]
    return [*parts, key_values([*unreadable.items()])] if unreadable else parts


def _overview(run: ListedRun) -> tuple[str, ...]:
    """State, start, samples, clusters, scores and drift of a run, each "-" where it has none."""
    record = run.record
    accuracy = (record.metrics or {}).get("accuracy")
    score = None if record.fit is None else record.fit.score
    assessment = None if record.fit is None else record.fit.assessment
    return (
        run.state,
        record.started[:_TIME].replace("T", " "),
        "-" if record.data is None else str(record.data.n_samples),
        "-" if record.fit is None else str(record.fit.n_clusters),
        "-" if assessment is None else assessment.structure.lower(),
        "-" if score is None else f"{score:.4f}",
        "-" if accuracy is None else f"{accuracy:.4f}",
        "-" if record.drift is None else f"{record.drift.share_moved:.1%}",
    )


def show_runs(
    directory: Path,
    *,
    status: tuple[str, ...],
    since: str | None,
    names: tuple[str, ...],
    compare: bool,
    html: Path | None,
) -> int:
    """List and compare runs, write the index page if requested, and return the exit code."""
    runs, unreadable = list_runs(directory, status=status, since=since, names=names)
    parts = describe_runs(runs, unreadable)
    if compare:
        parts += _comparison(compare_runs(runs))
    if html is not None:
        parts.append(key_values([("Index", relative(write_index(directory, runs, html)))]))
    show(results_console(), *parts)
    return 0


def _comparison(compared: Comparison) -> list[RenderableType]:
    """Return tables of a comparison, whose columns are the runs by number."""
    numbers = [str(index + 1) for index in range(len(compared.names))]
    shared = [
        (name, *("-" if value is None else str(value) for value in values))
        for name, values in compared.settings.items()
    ]
    shared += [
        (name, *("-" if value is None else f"{value:.4g}" for value in values))
        for name, values in compared.scores.items()
    ]
    agreement = [
        (f"{number} {name}", *("-" if value is None else f"{value:.3f}" for value in row))
        for number, name, row in zip(numbers, compared.names, compared.agreement, strict=True)
    ]
    return [
        table(("agreement (ARI)", *numbers), agreement, numbers=numbers),
        table(("settings that differ, scores", *numbers), shared, numbers=numbers),
    ]
