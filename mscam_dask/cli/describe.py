"""`mscam-dask describe`: a store, a run or an experiment, on one screen."""

from __future__ import annotations

import shlex
from collections import Counter

from rich.console import Console, RenderableType
from rich.table import Table

from mscam_dask.cli.console import (
    components_text,
    fields,
    relative,
    results_console,
    score_text,
    setting_text,
    share_text,
    show,
    sizes_text,
    table,
)
from mscam_dask.cli.extensions import extension_of_directory
from mscam_dask.data.store.current_pointer import resolve_current
from mscam_dask.data.store.object_store import Location, ObjectPath, as_location, size_of
from mscam_dask.data.store.read import is_store, verify_store
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import recorded_digest
from mscam_dask.data.views.validation import validate
from mscam_dask.errors import DataError
from mscam_dask.monitor.messages import duration, plural
from mscam_dask.pipeline.run.lock import is_locked
from mscam_dask.pipeline.run.run_directory import RunDirectory
from mscam_dask.pipeline.run.run_record import DataRecord, RunRecord

__all__ = ["describe_path"]

_SHORT = 16  # hexadecimal digits of a digest that are shown


def describe_path(place: str) -> int:
    """Describe whatever is at a path or URL; the exit code."""
    console = results_console()
    path = as_location(place)
    if isinstance(path, ObjectPath):
        _describe_store(console, path)
        return 0
    directory = RunDirectory(path.absolute())
    if directory.record.is_file():
        _describe_run(console, directory)
    elif is_store(path):
        _describe_store(console, path)
    elif (extension := extension_of_directory(path)) is not None:
        extension.describe(path)
    elif not path.exists():
        raise DataError(
            f"There is no {path}. Give a store, or the directory of a run or an experiment."
        )
    else:
        raise DataError(
            f"{path} is neither a store (written by mscam-dask ingest) nor the directory of a run or "
            "an experiment (written by mscam-dask run, compare or sweep)."
        )
    return 0


def _describe_store(console: Console, path: Location) -> None:
    """Show a store; every value is read and compared with its digest."""
    with console.status("reading every value ..."):
        data = verify_store(path)
        notes = _findings(data)
    views = table(
        ("view", "samples", "columns", "view_type", "stored as", "digest"),
        [
            (
                view.name,
                str(view.shape[0]),
                str(view.shape[1]),
                view.view_type,
                view.dtype.name,
                recorded_digest(view)[:_SHORT],
            )
            for view in data.views
        ],
        numbers=("samples", "columns"),
    )
    stored_bytes = size_of(resolve_current(path))
    rest = [
        ("Samples", f"{data.n_samples}, {_ids(data)}"),
        ("Labels", _classes(data)),
        ("Size", f"{stored_bytes / 2**20:.1f} MiB, {data.nbytes / 2**20:.1f} MiB in memory"),
        ("Digest", f"{data.digest()} (every view agrees with its own)"),
        *(("DataIssue", note) for note in notes or ["none: finite, consistent"]),
    ]
    show(console, views, fields(rest))


def _findings(data: MultiViewData) -> list[str]:
    if data.n_samples < 2:
        return ["one sample: nothing can be clustered"]
    report = validate(data, n_clusters=1, n_neighbors=1)
    return [finding.message for finding in report.issues]


def _ids(data: MultiViewData) -> str:
    if data.sample_ids is None:
        return "known by row"
    return f"ids {data.sample_ids[0]!r} to {data.sample_ids[-1]!r}"


def _classes(data: MultiViewData) -> str:
    if data.labels is None:
        return "none"
    sizes = sorted(Counter(data.labels.tolist()).values())
    return f"{len(sizes)} classes of {sizes[0]} to {sizes[-1]} samples"


def _describe_run(console: Console, directory: RunDirectory) -> None:
    record = directory.read_record()
    parts: list[RenderableType] = [fields(_summary(directory, record))]
    if record.data is not None:
        parts.append(_views(record.data, record))
        if record.data.notes:
            parts.append(fields([("Note", note) for note in record.data.notes]))
    rest = [
        ("Seconds", ", ".join(f"{k} {v:.1f}" for k, v in record.seconds.items()) or "-"),
        ("Versions", ", ".join(f"{k} {v}" for k, v in record.versions.items())),
        ("Files", ", ".join(_files(directory))),
    ]
    show(console, *parts, fields(rest))


def _state(directory: RunDirectory, record: RunRecord) -> str:
    """How far a run is; what was killed could not write that down itself."""
    if record.state == "running" and not is_locked(directory.path):
        resume = f"mscam-dask resume {shlex.quote(relative(directory.path))}"
        return f"running, but no process holds it: it was cut off; {resume} continues it"
    return record.state + ("" if record.exit_code is None else f", exit code {record.exit_code}")


def _summary(directory: RunDirectory, record: RunRecord) -> list[tuple[str, str]]:
    pairs = [
        ("Run", relative(directory.path)),
        ("State", _state(directory, record)),
        ("Pipeline", f"{record.pipeline}, method {record.method}, seed {record.seed}"),
        ("Started", record.started),
    ]
    if record.ended is not None:
        pairs.append(("Ended", f"{record.ended}, after {duration(record.seconds.get('total', 0))}"))
    if record.executor is not None:
        pairs.append(("Ran", record.executor))
    if record.error is not None:
        pairs.append(("Error", f"{record.error.type}: {record.error.message}"))
    if record.data is not None:
        pairs.append(("Data", f"{record.data.n_samples} samples, digest {record.data.digest}"))
    if record.fit is not None:
        fit = record.fit
        pairs += [
            ("Clusters", components_text(fit)),
            (
                "Setting",
                f"{setting_text(fit.setting)}; {plural(fit.n_outer_iterations, 'outer iteration')}",
            ),
            ("Status", f"{fit.message[:1].upper()}{fit.message[1:]}."),
            ("Sizes", sizes_text(fit)),
            ("Views", share_text(fit.view_contributions)),
        ]
    if record.metrics is not None:
        pairs.append(("Scores", score_text(record.metrics)))
    return pairs


def _views(data: DataRecord, record: RunRecord) -> Table:
    shares = {} if record.fit is None else record.fit.view_contributions
    return table(
        ("view", "samples", "columns", "view_type", "share", "digest"),
        [
            (
                view.name,
                str(view.shape[0]),
                str(view.shape[1]),
                view.view_type,
                f"{shares[view.name]:.1%}" if view.name in shares else "-",
                view.digest[:_SHORT],
            )
            for view in data.views
        ],
        numbers=("samples", "columns", "share"),
    )


def _files(directory: RunDirectory) -> list[str]:
    named = (
        directory.report,
        directory.pipeline,
        directory.events,
        directory.labels,
        directory.result,
        directory.data,
    )
    return [file.name for file in named if file.exists()]
