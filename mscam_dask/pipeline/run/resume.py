"""Going on with a run that was interrupted, failed or killed, from what its directory says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from mscam_dask.data.store.object_store import as_location
from mscam_dask.data.store.read import verify_store
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.pipeline.config.file_names import check_name
from mscam_dask.pipeline.config.read_config import read_config
from mscam_dask.pipeline.config.settings import ExecutionTable, OutputTable, Settings, settings_text
from mscam_dask.pipeline.config.toml_document import Override
from mscam_dask.pipeline.config.validate import check_execution
from mscam_dask.pipeline.run.open_data import OpenData, open_again, source_records
from mscam_dask.pipeline.run.previous_runs import PreviousRun
from mscam_dask.pipeline.run.run import RunOutcome, execute
from mscam_dask.pipeline.run.run_directory import RunDirectory
from mscam_dask.pipeline.run.run_record import ResumeEntry, RunRecord, SourceRecord
from mscam_dask.pipeline.run.running import Observer, now
from mscam_dask.pipeline.run.versions import blas_libraries, software_versions

__all__ = ["resume_run"]


def resume_run(
    path: str | Path,
    *,
    execution: Sequence[Override] | ExecutionTable = (),
    output: OutputTable | None = None,
    insecure: bool = False,
    observers: Sequence[Observer] = (),
) -> RunOutcome:
    """Continue a run to the results that it would have had undisturbed.

    Parameters
    ----------
    path
        Its run directory.
    execution
        Changes of [execution], or all of it: what runs the tasks changes nothing in the result.
    output
        In place of the recorded [output]: where checkpoints go on, what is kept; None for no change.
    insecure
        Allow a scheduler on another computer without encryption.
    observers
        Called with each event, those of iterations done earlier included.

    Returns
    -------
    RunOutcome
        At once, as it was, for a run that has finished and whose results are whole.

    Raises
    ------
    ConfigurationError
        When there is no run at the path.
    DataError
        When the data are not those the run began with; the message says what changed.
    TemporaryFailure
        When another driver holds the directory.
    """
    root = Path(path).absolute()
    if not root.is_dir():
        raise ConfigurationError(
            f"There is no run directory {root}. Give one that mscam-dask run wrote."
        )
    with RunDirectory.hold(root) as directory:
        record, settings = _read(directory)
        lost = ""
        if record.state == "finished":
            lost = PreviousRun(directory, record).damage()
            if not lost:
                return RunOutcome(directory, record, resumed=False)
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
        directory.sweep()
        if not directory.pipeline.exists():
            directory.write(directory.pipeline, settings_text(settings).encode())
        said = (f"The results of {record.ended} are made again: {lost}.",) if lost else ()
        entry = ResumeEntry(time=now(), state=record.state, warnings=said + _differences(record))
        record = msgspec.structs.replace(
            record,
            state="running",
            exit_code=None,
            ended=None,
            error=None,
            fit=None,
            metrics=None,
            drift=None,
            resumed=(*record.resumed, entry),
            versions=software_versions(),
            blas=blas_libraries(),
        )
        opened, notes = _data(directory, settings, record, anew=bool(lost))
        entry = msgspec.structs.replace(entry, warnings=entry.warnings + notes)
        record = msgspec.structs.replace(record, resumed=(*record.resumed[:-1], entry))
        directory.write_record(record)
        return execute(settings, directory, record, observers=observers, opened=opened)


def _read(directory: RunDirectory) -> tuple[RunRecord, Settings]:
    if not directory.record.exists():
        raise ConfigurationError(
            f"{directory.path} holds no run: it was killed before it began, or never was one. "
            "Run the pipeline again with this directory as its output."
        )
    record = directory.read_record()
    if record.settings is None:
        raise ConfigurationError(
            f"The run in {directory.path} did not record its settings: it was written by a version "
            "that could not resume. Run the pipeline again."
        )
    try:
        settings = msgspec.convert(record.settings, Settings)
    except msgspec.ValidationError as error:
        raise DataError(
            f"{directory.record} holds no settings of this version ({error}). Run the pipeline "
            "again with --overwrite, or continue with the version that began it."
        ) from error
    check_name(settings.name, f"{directory.record}: the pipeline's name", "Run the pipeline again.")
    return record, settings


def _data(
    directory: RunDirectory, settings: Settings, record: RunRecord, *, anew: bool
) -> tuple[OpenData | None, tuple[str, ...]]:
    """The data as the run began with them, read once and compared; None when there are none yet.

    Where `anew`, a store of the run's own that is not whole is one that is made again.
    """
    earlier = record.data
    if earlier is None:  # killed while they were ingested: that step begins again
        directory.remove(directory.data)
        return None, ()
    notes = _check_sources(record.sources, settings)
    try:
        opened = open_again(settings.data, directory.data, earlier)
        verify_store(opened.store)
    except DataError:
        if not anew or as_location(earlier.store).is_absolute():
            raise
        directory.remove(directory.data)
        return None, notes
    found = opened.record()
    if found.digest != earlier.digest:
        changes = [
            f"view {now_.name!r}" if now_.name == then.name else f"{then.name!r} -> {now_.name!r}"
            for then, now_ in zip(earlier.views, found.views, strict=False)
            if then != now_
        ]
        if len(found.views) != len(earlier.views):
            changes.append(f"{len(found.views)} views instead of {len(earlier.views)}")
        raise DataError(
            f"The data in {opened.store} are not those the run began with: {', '.join(changes)} "
            "changed. Put them back, or start a new run with the data there are now."
        )
    return opened, notes


def _check_sources(earlier: tuple[SourceRecord, ...], settings: Settings) -> tuple[str, ...]:
    """Refuse sources with other content than at the start; note those that are gone."""
    notes = []
    current: dict[str, Any] = {item.source: item for item in source_records(settings.data)}
    for then in earlier:
        if then.sha256 is None:
            continue
        present = current.get(then.source)
        if present is None or present.sha256 is None:
            notes.append(f"{then.source} is gone; the run's own copy of its data is used.")
        elif present.sha256 != then.sha256:
            raise DataError(
                f"{then.source} changed since the run began ({then.n_bytes} bytes, SHA-256 "
                f"{then.sha256[:16]}... then; {present.n_bytes} bytes, {present.sha256[:16]}... "
                "now). Put the old file back, or start a new run."
            )
    return tuple(notes)


def _differences(record: RunRecord) -> tuple[str, ...]:
    """What may change the last bits of the result, compared with the start of the run."""
    warnings = []
    versions = software_versions()
    changed = [
        f"{name} {then} -> {versions.get(name, 'none')}"
        for name, then in record.versions.items()
        if versions.get(name) != then
    ]
    then_blas, now_blas = _blas(record.blas), _blas(blas_libraries())
    if then_blas != now_blas:
        changed.append(f"BLAS {', '.join(then_blas)} -> {', '.join(now_blas)}")
    if changed:
        warnings.append(
            "The software is not that of the start of the run, so the result may differ from an "
            f"undisturbed one within rounding: {'; '.join(changed)}."
        )
    return tuple(warnings)


def _blas(libraries: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(
        {
            f"{library.get('internal_api')} {library.get('version')} "
            f"({library.get('architecture')})"
            for library in libraries
            if library.get("user_api") == "blas"
        }
    )
