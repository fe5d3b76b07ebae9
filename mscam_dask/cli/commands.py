"""`mscam-dask describe`, `runs`, `predict`, `report` and `doctor`: stores, runs and this computer."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from mscam_dask.cli.console import (
    fit_pairs,
    key_values,
    origin_tables,
    relative,
    results_console,
    score_text,
    show,
    stored_views_table,
    table,
    views_table,
)
from mscam_dask.cli.options import extension_of_directory
from mscam_dask.data.store.atomic_replace import resolve_current
from mscam_dask.data.store.dataset import is_store, read_origin, verify_store
from mscam_dask.data.store.object_store import Location, ObjectPath, as_location, size_of
from mscam_dask.data.views.conversion import labeled_samples
from mscam_dask.data.views.validation import validate
from mscam_dask.errors import ConfigurationError, DataError, TemporaryFailure
from mscam_dask.monitor.messages import duration, printable
from mscam_dask.pipeline.doctor import CHECKS, Check, check_run
from mscam_dask.pipeline.load_run import predict_files
from mscam_dask.pipeline.report import write_report
from mscam_dask.pipeline.run_directory import FILES, RunDirectory, resolved, write_whole
from mscam_dask.pipeline.stored_run import (
    Comparison,
    StoredRun,
    check_suffix,
    compare_runs,
    list_runs,
    scan,
    table_bytes,
    write_index,
)


def predict_samples(
    run: Path,
    sources: tuple[str, ...],
    *,
    batches: str | None,
    output: Path | None,
    overwrite: bool,
) -> int:
    """Predict the clusters of samples, write or print them, and return the exit code."""
    if output is not None:
        check_suffix(output.suffix)
        if output.exists() and not overwrite:
            raise ConfigurationError(
                f"{output} exists. Give --overwrite to replace it, or another output file (-o)."
            )
    table = predict_files(run, sources, batches)
    for note in table.attrs.pop("notes"):
        click.echo(f"Note: {note}", err=True)
    if output is None:
        click.echo(table_bytes(table, ".csv").decode(), nl=False)
        return 0
    write_whole(output.absolute(), table_bytes(table, output.suffix))
    sizes = sorted(Counter(table["cluster"]).items())
    counted = ", ".join(f"{size} in cluster {name}" for name, size in sizes)
    pairs = [("Samples", f"{len(table['sample'])}: {counted}"), ("Labels", relative(output))]
    show(results_console(), key_values(pairs))
    return 0


def report_run(
    directory: Path, *, output: Path | None, columns: Path | None, show_in_browser: bool
) -> int:
    """Write the report, open it in a browser if requested, and return the exit code."""
    run = RunDirectory(directory.absolute())
    extension = None if run.record.is_file() else extension_of_directory(directory)
    if extension is not None:
        if columns is not None:
            raise ConfigurationError(
                f"--columns {columns} requires the report of a run, but {directory} is not a run "
                "directory. Remove the option."
            )
        file = extension.write_report(directory, output)
    else:
        file = write_report(run, output, columns)
    size = f"{file.stat().st_size / 2**20:.1f} MiB"
    show(results_console(), key_values([("Report", f"{relative(file)} ({size})")]))
    if show_in_browser:
        import webbrowser

        if not webbrowser.open(file.as_uri()):
            raise TemporaryFailure(
                f"No browser can be started here. Open {file.as_uri()} in a browser."
            )
    return 0


_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def run_checks(run: Path | None) -> int:
    """Print the checks of this computer, or of a finished run, and return 1 if one failed."""
    console = results_console()
    if run is None:
        checks = _of_this_computer(console)
        subject, failure = "Ready", "pipelines cannot run here"
    else:
        checks = check_run(run)
        subject, failure = f"{relative(run)} is valid", f"do not use the results of {relative(run)}"
    levels = []
    for name, check in checks:
        levels.append(check.level)
        show(console, _row(name, check))
    failed, warned = levels.count("fail"), levels.count("warn")
    console.print()
    if failed:
        console.print(f"{failed} of {len(levels)} checks failed: {failure}.")
        return 1
    warnings = f", {warned} with a warning" if warned else ""
    console.print(f"{subject}: {len(levels)} checks passed{warnings}.")
    return 0


def _of_this_computer(console: Console) -> Iterator[tuple[str, Check]]:
    for name, check in CHECKS.items():
        with console.status(f"{name} ..."):
            result = check()
        yield name, result


def _row(name: str, check: Check) -> Table:
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_column(width=4, style=_STYLES[check.level])
    row.add_column(width=15, style="bold")
    row.add_column(overflow="fold")
    row.add_row(check.level, name, Text(printable(check.found)))
    if check.level != "ok":
        row.add_row("", "", Text(printable(check.remedy), style=_STYLES[check.level]))
    return row


def describe_path(place: str) -> int:
    """Describe a path or URL, and return the exit code."""
    console = results_console()
    path = as_location(place)
    if isinstance(path, ObjectPath):
        _describe_store(console, path)
        return 0
    directory = RunDirectory(resolved(path))
    if os.path.lexists(directory.record):
        _describe_run(console, StoredRun.read(path))
    elif is_store(path):
        _describe_store(console, path)
    elif (extension := extension_of_directory(path)) is not None:
        extension.describe(path)
    elif path.is_dir() and any(scan(path.iterdir())):
        show(console, *describe_runs(*list_runs(path)))
    else:
        state = "holds no store, run or experiment" if path.exists() else "does not exist"
        raise DataError(
            f"{path} {state}. Make a store of files (mscam-dask ingest), or give what mscam-dask run, "
            "compare or sweep wrote."
        )
    return 0


def _describe_store(console: Console, path: Location) -> None:
    """Print the content of a store, after all values were checked against their digests."""
    with console.status("reading all values ..."):
        data = verify_store(path)
        warnings = ["one sample cannot be clustered; add samples."]
        if data.n_samples > 1:
            found = validate(data, n_clusters=1, n_neighbors=1)
            warnings = [issue.message for issue in found.issues]
    ids = "identified by row"
    if data.sample_ids is not None:
        ids = f"ids {data.sample_ids[0]!r} to {data.sample_ids[-1]!r}"
    classes = "none"
    if data.labels is not None:
        labeled = labeled_samples(data.labels)
        sizes = Counter(data.labels[labeled].tolist()).values()
        n_unlabeled = data.n_samples - int(labeled.sum())
        unlabeled = f"; {n_unlabeled} samples without a label" if n_unlabeled else ""
        classes = f"{len(sizes)} classes of {min(sizes)} to {max(sizes)} samples{unlabeled}"
    stored_bytes = size_of(resolve_current(path))
    rest = [
        ("Samples", f"{data.n_samples}, {ids}"),
        ("Ground truth", classes),
        ("Size", f"{stored_bytes / 2**20:.1f} MiB, {data.nbytes / 2**20:.1f} MiB in memory"),
        ("Digest", f"{data.digest()} (verified for every view)"),
        *(("Warning", warning) for warning in warnings or ["none"]),
    ]
    views = stored_views_table(data.views, digests=True)
    show(console, views, *origin_tables(read_origin(path)), key_values(rest))


def _describe_run(console: Console, run: StoredRun) -> None:
    record = run.record
    parts: list[RenderableType] = [key_values(_summary(run))]
    if record.data is not None:
        parts.append(views_table(record.data, record.fit, digests=True))
        if record.data.notes:
            parts.append(key_values([("Note", note) for note in record.data.notes]))
    files = (run.directory.report.name, *FILES)
    rest = [
        ("Time", ", ".join(f"{k} {duration(v)}" for k, v in record.seconds.items()) or "-"),
        ("Versions", ", ".join(f"{k} {v}" for k, v in record.versions.items())),
        ("Files", ", ".join(name for name in files if (run.directory.path / name).exists())),
    ]
    show(console, *parts, key_values(rest))


def _state(run: StoredRun) -> str:
    """State of a run; a killed run could not record that it was interrupted."""
    record = run.record
    if run.state != record.state:
        resume = f"mscam-dask resume {shlex.quote(relative(run.directory.place))}"
        return f"interrupted (no process is running it); resume with: {resume}"
    return record.state + ("" if record.exit_code is None else f", exit code {record.exit_code}")


def _summary(run: StoredRun) -> list[tuple[str, str]]:
    directory, record = run.directory, run.record
    pairs = [
        ("Run", relative(directory.path)),
        ("State", _state(run)),
        ("Pipeline", f"{record.pipeline}, method {record.method}, seed {record.seed}"),
        ("Started", record.started),
    ]
    if record.ended is not None:
        pairs.append(("Ended", f"{record.ended}, after {duration(record.seconds.get('total', 0))}"))
    if record.executor is not None:
        pairs.append(("Executor", record.executor))
    if record.error is not None:
        pairs.append(("Error", f"{record.error.type}: {record.error.message}"))
    following = directory.next()
    if following is not None:
        later = StoredRun(following, following.read_record())
        error = "" if later.record.error is None else f": {later.record.error.message}"
        pairs.append(("Next run", f"{_state(later)}, in {relative(following.path)}{error}"))
    if record.data is not None:
        pairs.append(("Data", f"{record.data.n_samples} samples, digest {record.data.digest}"))
    if record.fit is not None:
        iterations = ("Iterations", str(record.fit.n_outer_iterations))
        pairs += [*fit_pairs(record.fit), iterations]
    if record.metrics is not None:
        pairs.append(("Scores", score_text(record.metrics)))
    return pairs


def describe_runs(runs: Sequence[StoredRun], unreadable: dict[str, str]) -> list[RenderableType]:
    """Return a table with one line for each run, and the errors of unreadable ones."""
    titles = ("run", "state", "started", "n", "c", "support", "score", "ACC", "moved")
    rows = [(run.name, *_overview(run)) for run in runs]
    parts: list[RenderableType] = [table(titles, rows, numbers=("n", "c", "score", "ACC", "moved"))]
    return [*parts, key_values([*unreadable.items()])] if unreadable else parts


def _cells(values: Iterable[object], form: str) -> list[str]:
    """Values as texts of a format, "-" for those that are absent."""
    return ["-" if value is None else form.format(value) for value in values]


def _overview(run: StoredRun) -> tuple[str, ...]:
    """State, start, samples, clusters, scores and drift of a run, each "-" where it has none."""
    record, fit = run.record, run.record.fit
    assessment = fit and fit.assessment
    return (
        run.state,
        record.started[: len("2026-11-24T09:28")].replace("T", " "),
        *_cells([record.data and record.data.n_samples, fit and fit.n_clusters], "{}"),
        *_cells([assessment and assessment.structure.lower()], "{}"),
        *_cells([fit and fit.score, (record.metrics or {}).get("accuracy")], "{:.4f}"),
        *_cells([record.drift and record.drift.share_moved], "{:.1%}"),
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
    if not runs and not unreadable:
        parts = ["No run matches --status, --since and --name."]
    if compare:
        parts += _comparison(compare_runs(runs))
    if html is not None:
        parts.append(key_values([("Index", relative(write_index(directory, runs, html)))]))
    show(results_console(), *parts)
    return 0


def _comparison(compared: Comparison) -> list[RenderableType]:
    """Return tables of a comparison, whose columns are the runs by number."""
    numbers = [str(index + 1) for index in range(len(compared.names))]
    shared = [(name, *_cells(values, "{}")) for name, values in compared.settings.items()]
    shared += [(name, *_cells(values, "{:.4g}")) for name, values in compared.scores.items()]
    agreement = [
        (f"{number} {name}", *_cells(row, "{:.3f}"))
        for number, name, row in zip(numbers, compared.names, compared.agreement, strict=True)
    ]
    return [
        table(("agreement (ARI)", *numbers), agreement, numbers=numbers),
        table(("settings that differ, scores", *numbers), shared, numbers=numbers),
    ]
