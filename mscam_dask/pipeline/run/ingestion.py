"""The data of a run, as they were at one moment: the run is named after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mscam_dask.errors import DataError, MscamError
from mscam_dask.pipeline.config.settings import Settings
from mscam_dask.pipeline.run.fingerprints import data_fingerprint, run_fingerprint
from mscam_dask.pipeline.run.open_data import (
    OpenData,
    open_again,
    open_data,
    settled,
    source_records,
)
from mscam_dask.pipeline.run.previous_runs import PreviousRun, link_tree, reusable_store
from mscam_dask.pipeline.run.run_record import SourceRecord
from mscam_dask.pipeline.run.source_changes import changed_data, stamps_of

__all__ = ["Ingested", "ingest_data"]


@dataclass(frozen=True, eq=False)
class Ingested:
    """Data, open, and what they were made of.

    Attributes
    ----------
    sources
    identity
        `mscam_dask.pipeline.run.fingerprints.data_fingerprint`.
    opened
    """

    sources: tuple[SourceRecord, ...]
    identity: str
    opened: OpenData


def ingest_data(
    settings: Settings,
    output: Path,
    runs: Sequence[PreviousRun],
    *,
    run: str | None,
    is_resumed: bool,
) -> Ingested:
    """Open the store that a run reads, make one of its sources, or take an earlier run's over.

    Parameters
    ----------
    settings
    output
        Where a store is written, when one is.
    runs
        Earlier ones.
    run
        Digest that the run is named after; None for none.
    is_resumed
        Whether the run began earlier, with the data of that time.

    Raises
    ------
    TemporaryFailure
        When the data changed since the run was named, or while they were read.
    DataError
        The same, of a run that is resumed.
    """
    table = settings.data
    stamps = stamps_of(table)
    sources = source_records(table)
    identity = settled(lambda: data_fingerprint(table))
    if run is not None and run != run_fingerprint(settings, identity):
        raise _changed(sources, is_resumed=is_resumed)
    earlier = reusable_store(list(runs), identity)
    if earlier is not None:
        link_tree(earlier.directory.data, output)
        return Ingested(sources, identity, open_again(table, output, earlier.data))
    opened = open_data(table, output)
    is_same = stamps_of(table) == stamps if opened.is_new else data_fingerprint(table) == identity
    if not is_same:
        raise _changed(sources, is_resumed=is_resumed)
    return Ingested(sources, identity, opened)


def _changed(sources: Sequence[SourceRecord], *, is_resumed: bool) -> MscamError:
    names = ", ".join(item.source for item in sources)
    if not is_resumed:
        return changed_data(names)
    return DataError(
        f"{names} changed since the run began. Put the old data back, or start a new run."
    )
