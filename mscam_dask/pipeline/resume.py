"""Starts of runs: an intact finished run is returned, an interrupted or damaged one is resumed, otherwise a new one starts."""

from __future__ import annotations

import contextlib
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from mscam_dask.data.store.dataset import verify_store
from mscam_dask.data.store.filesystem import read_regular
from mscam_dask.data.store.object_store import as_location
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.estimators.mscam import MSCAM
from mscam_dask.monitor import run_record
from mscam_dask.pipeline.open_data import (
    NAME_DIGITS,
    OpenData,
    data_fingerprint,
    open_data,
    retry_if_replaced,
    run_fingerprint,
    source_records,
)
from mscam_dask.pipeline.read_config import read_config, settings_text
from mscam_dask.pipeline.run import Observer, Run, RunOutcome
from mscam_dask.pipeline.run_directory import LOCK_NAME, NEXT_SUFFIX, RunDirectory, resolved
from mscam_dask.pipeline.security import check_execution
from mscam_dask.pipeline.settings import ExecutionTable, OutputTable, Settings
from mscam_dask.pipeline.stored_run import StoredRun, flat, last_started
from mscam_dask.pipeline.toml_document import Override, check_name

# Fields of a record that a run has when it has ended.
_OF_RESULTS = ("exit_code", "ended", "error", "fit", "metrics", "drift", "labels_sha256")


@dataclass(frozen=True)
class RunTarget:
    """Directory of a run, and what is to be done there."""

    directory: Path
    data_fingerprint: str
    run_fingerprint: str
    settings: Settings  # with the directory filled in
    action: Literal["run", "resume", "nothing"]  # "nothing" where the run has finished


def resolve_target(
    settings: Settings, output: str | Path | None = None, *, verify: bool = True
) -> RunTarget:
    """Return the directory of a run and whether the run was done before."""
    table = settings.output
    named = table.directory if output is None else output
    if named is not None and settings.incremental.enabled:
        raise ConfigurationError(
            f"{'[output] directory' if output is None else '-o'} names a single run directory, "
            f"{named}, but with [incremental] a run starts from the previous run in [output] root. Give "
            "that root instead (--set output.root=DIR), or disable warm starts "
            "(--set incremental.enabled=false)."
        )
    data = retry_if_replaced(lambda: data_fingerprint(settings.data))
    fingerprint = run_fingerprint(settings, data)
    if named is not None:
        directory = resolved(named)
        table = msgspec.structs.replace(table, directory=str(directory), root=None)
    else:
        root = resolved("runs" if table.root is None else table.root)
        directory = root / f"{settings.name}-{fingerprint[:NAME_DIGITS]}"
        table = msgspec.structs.replace(table, root=str(root))
    placed = msgspec.structs.replace(settings, output=table)
    run = last_started(RunDirectory(directory), fingerprint)
    if run is None:  # nothing there, another run, or nothing readable, which run_pipeline reports
        return RunTarget(directory, data, fingerprint, placed, "run")
    is_done = run.record.state == "finished" and not (verify and run.integrity_problem())
    return RunTarget(directory, data, fingerprint, placed, "nothing" if is_done else "resume")


def run_pipeline(
    settings: Settings,
    output: str | Path | None = None,
    *,
    overwrite: bool = False,
    insecure: bool = False,
    observers: Sequence[Observer] = (),
) -> RunOutcome:
    """Run a pipeline, resume its interrupted run, or return its finished one; `overwrite` runs it again.

    A finished run that is overwritten keeps its files until the new one has finished.
    """
    target = resolve_target(settings, output, verify=False)
    root, settings = target.directory, target.settings
    if target.action != "run" and not overwrite:
        return resume_run(
            root,
            execution=settings.execution,
            output=settings.output,
            insecure=insecure,
            observers=observers,
            fingerprint=target.run_fingerprint,
        )
    check_execution(settings.execution, insecure=insecure)
    for source in settings.data.sources:
        if Path(source).is_absolute() and Path(source).resolve().is_relative_to(root):
            raise ConfigurationError(
                f"The source {source} lies inside the run directory {root}, whose files a run replaces. Choose "
                "another output directory."
            )
    seed = settings.cluster.parameters.get("random_state")
    record = run_record.RunRecord(
        state="running",
        pipeline=settings.name,
        method=settings.cluster.method,
        seed=seed if isinstance(seed, int) else None,
        started=run_record.now(),
        versions=run_record.software_versions(),
        blas=run_record.blas_libraries(),
        settings=msgspec.to_builtins(settings),
        run_fingerprint=target.run_fingerprint,
        data_fingerprint=target.data_fingerprint,
    )
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(RunDirectory.lock(root))
        if overwrite and directory.holds_results():
            record = msgspec.structs.replace(record, replaces=directory.path.name)
            directory = stack.enter_context(directory.lock_next())
        directory.claim(record, overwrite=overwrite)
        directory.write(directory.pipeline, settings_text(settings).encode())
        return Run(settings, directory, record, observers, fresh=overwrite).execute()


def resume_run(
    path: str | Path,
    *,
    execution: Sequence[Override] | ExecutionTable = (),
    output: OutputTable | None = None,
    insecure: bool = False,
    observers: Sequence[Observer] = (),
    fingerprint: str | None = None,
) -> RunOutcome:
    """Resume a run; it ends with the results of an undisturbed one.

    `output` replaces the recorded [output] (checkpoints, retention). `fingerprint` is that of the run
    to resume; by default it is the last one that was started at the path, which may be one that is to
    replace a finished run.
    """
    root = _place_of(resolved(path))
    is_begun = os.path.lexists(root / LOCK_NAME)  # maybe by a driver that has written no record yet
    if not is_begun and RunDirectory(root).next() is None:
        _check_record(RunDirectory(root))
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(RunDirectory.lock(root))
        started = last_started(directory, fingerprint)
        if started is not None and started.directory != directory:
            directory = stack.enter_context(directory.lock_next())
        record, settings = _read(directory)
        is_done, problem = record.state == "finished", ""
        if is_done and not (problem := StoredRun(directory, record).integrity_problem()):
            return Run(settings, directory, record, observers).execute()
        if output is not None and output != settings.output:
            settings = msgspec.structs.replace(settings, output=output)
            record = msgspec.structs.replace(record, settings=msgspec.to_builtins(settings))
            directory.write(directory.pipeline, settings_text(settings).encode())
        if isinstance(execution, ExecutionTable):
            settings = msgspec.structs.replace(settings, execution=execution)
        elif execution:
            changed = read_config(directory.pipeline, execution)
            settings = msgspec.structs.replace(settings, execution=changed.execution)
        check_execution(settings.execution, insecure=insecure)
        directory.remove_partial_files()
        opened, notes = _data(directory, settings, record, remake=bool(problem))
        if problem:
            notes = (f"The results of {record.ended} are computed again: {problem}.", *notes)
        entry = run_record.ResumeEntry(
            time=run_record.now(), state=record.state, warnings=notes + _differences(record)
        )
        record = msgspec.structs.replace(
            record,
            **dict.fromkeys(_OF_RESULTS),
            state="running",
            files_sha256={},
            resumed=(*record.resumed, entry),
            versions=run_record.software_versions(),
            blas=run_record.blas_libraries(),
        )
        directory.write_record(record)
        return Run(settings, directory, record, observers, opened=opened).execute()


def _place_of(path: Path) -> Path:
    """Return the final path of a run directory that is to take the place of another."""
    with contextlib.suppress(DataError):
        replaced = RunDirectory(path).read_record().replaces
        if replaced is not None and path.name == f"{replaced}{NEXT_SUFFIX}":
            return path.with_name(replaced)
    return path


def _check_record(directory: RunDirectory) -> None:
    if not os.path.lexists(directory.record):
        raise ConfigurationError(
            f"{directory.path} holds no run: it has no run.json. Give a directory that mscam-dask run wrote, or "
            "run the pipeline with this one as its output (-o)."
        )


def _read(directory: RunDirectory) -> tuple[run_record.RunRecord, Settings]:
    _check_record(directory)
    record = directory.read_record()
    try:
        settings = msgspec.convert(record.settings, Settings)
        unknown = sorted(settings.cluster.parameters.keys() - set(MSCAM._get_param_names()))
        if unknown:
            raise msgspec.ValidationError(f"[cluster] {unknown[0]} is not a parameter")
    except msgspec.ValidationError as error:
        raise DataError(
            f"{directory.record} holds no settings of this version ({error}). Run the pipeline "
            "again with --overwrite, or resume with the version that started it."
        ) from error
    check_name(settings.name, f"{directory.record}: the pipeline's name", "Run the pipeline again.")
    _check_pipeline(directory, settings)
    return record, settings


def _check_pipeline(directory: RunDirectory, settings: Settings) -> None:
    """Refuse a pipeline.toml whose settings, but for [execution], are not those of run.json."""
    text = settings_text(settings)
    try:
        present = tomllib.loads(read_regular(directory.pipeline).decode())
    except FileNotFoundError:
        directory.write(directory.pipeline, text.encode())
        return
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"{directory.pipeline} cannot be read: {error}. Delete it; resuming writes it again from "
            "run.json."
        ) from error
    recorded = flat(tomllib.loads(text))
    found = flat(present)
    for key in sorted(recorded.keys() | found.keys()):
        if key.startswith("execution.") or recorded.get(key) == found.get(key):
            continue
        raise ConfigurationError(
            f"{directory.pipeline} has {key} = {found.get(key)!r}, but the run was started with "
            f"{recorded.get(key)!r}. Delete the file to resume with the recorded settings, or start "
            "a new run with the changed ones."
        )


def _data(
    directory: RunDirectory, settings: Settings, record: run_record.RunRecord, *, remake: bool
) -> tuple[OpenData | None, tuple[str, ...]]:
    """Return the verified data of the run; None if they are to be ingested (again, with `remake`)."""
    earlier = record.data
    if earlier is None:  # killed during the step ingest, which is repeated
        directory.remove(directory.data)
        return None, ()
    notes: tuple[str, ...] = ()
    present = {one.source: one for one in source_records(settings.data) if one.sha256}
    for then in record.sources:
        now = present.get(then.source)
        if then.sha256 is None:
            continue
        if now is None:  # batches and known labels are read again
            if then.source not in (settings.data.batches, settings.data.partial_labels):
                notes += (f"{then.source} is missing; the run uses its own copy of the data.",)
        elif now.sha256 != then.sha256:
            raise DataError(
                f"{then.source} changed since the run was started ({then.n_bytes} bytes, SHA-256 "
                f"{then.sha256[:16]}... then; {now.n_bytes} bytes, {str(now.sha256)[:16]}... "
                "now). Restore the old file, or start a new run."
            )
    try:
        opened = open_data(settings.data, directory.data, earlier)
        verify_store(opened.store)
    except DataError:
        is_kept = directory.data.exists() and not remake
        if is_kept or as_location(earlier.store).is_absolute():
            raise
        directory.remove(directory.data)
        return None, notes
    found = opened.record()
    if found.digest != earlier.digest:
        changed = {view.name for view in set(earlier.views) ^ set(found.views)}
        raise DataError(
            f"The data in {opened.store} changed since the run was started: "
            f"{', '.join(map(repr, sorted(changed))) or 'the order of the views, or their samples'}. Restore "
            "them, or start a new run with the present data."
        )
    return opened, notes


def _differences(record: run_record.RunRecord) -> tuple[str, ...]:
    """Return warnings on software that differs from that at the start of the run."""
    then = _software(record.versions, record.blas)
    present = _software(run_record.software_versions(), run_record.blas_libraries())
    changed = "; ".join(
        f"{name} {version} -> {present.get(name, 'none')}"
        for name, version in then.items()
        if present.get(name) != version
    )
    text = "The software has changed since the run started, so the result may differ by rounding"
    return (f"{text}: {changed}.",) if changed else ()


def _software(versions: Mapping[str, str], libraries: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return versions by name, with those of BLAS libraries as one text."""
    blas = {
        f"{library.get('internal_api')} {library.get('version')} ({library.get('architecture')})"
        for library in libraries
        if library.get("user_api") == "blas"
    }
    return {**versions, "BLAS": ", ".join(sorted(blas))}
