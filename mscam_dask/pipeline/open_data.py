"""Data of a pipeline, opened or made from the sources that [data] names, and fingerprints of runs.

Fingerprints are digests of the data, the settings and this package's version. Each covers everything that
its step depends on, and nothing else: runs that share one reuse each other's store, clusters or results.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import pandas as pd
from dask.utils import parse_bytes
from numpy.typing import NDArray

from mscam_dask import __version__
from mscam_dask.data.ingest import IngestReport, Source, ingest
from mscam_dask.data.readers.base import MAX_BYTES, Selection, oriented_sources
from mscam_dask.data.readers.combine import labels_of_file
from mscam_dask.data.readers.registry import read_sources
from mscam_dask.data.store.dataset import ZarrRows, is_store, open_store
from mscam_dask.data.store.object_store import Location, ObjectPath, as_location
from mscam_dask.data.views.as_multi_view import ViewTypeSpec, with_view_types
from mscam_dask.data.views.conversion import labeled_samples
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.errors import DataError, MscamError, StoreCorruptError, TemporaryFailure
from mscam_dask.estimators._sample_values import has_label
from mscam_dask.monitor.run_record import DataRecord, RunRecord, SourceRecord, ViewEntry
from mscam_dask.pipeline.settings import BUILT_IN_SOURCES, DataTable, Settings

_ATTEMPTS = 3
_SHOWN = 5
_PAUSE_S = 0.2  # a store takes the place of another within milliseconds

_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class OpenData:
    """Open store and its origin."""

    data: MultiViewData
    store: Location
    is_new: bool  # whether this run wrote it
    notes: tuple[str, ...] = ()  # how readers understood the sources

    def record(self, notes: tuple[str, ...] = ()) -> DataRecord:
        """Return the entry of the data in run.json."""
        labels = self.data.labels
        return DataRecord(
            store=self.store.name if self.is_new else str(self.store),
            digest=self.data.digest(),
            n_samples=self.data.n_samples,
            views=view_entries(self.data),
            n_classes=None if labels is None else len(np.unique(labels[labeled_samples(labels)])),
            has_sample_ids=self.data.sample_ids is not None,
            notes=tuple(dict.fromkeys(self.notes + notes)),
        )

    def was_replaced(self, table: DataTable) -> bool:
        """Whether the store that [data] names is another one now, and no damaged one."""
        if not self.is_new:
            with suppress(DataError, OSError):
                return open_data(table, Path())._held() != self._held()
        return False

    def _held(self) -> tuple[str, list[str]]:
        held = [view.whole for view in self.data.views]
        return self.data.digest(), [view.path for view in held if isinstance(view, ZarrRows)]


def view_entries(data: MultiViewData) -> tuple[ViewEntry, ...]:
    """Return the entries of the views in a record."""
    return tuple(
        ViewEntry(
            name=view.name,
            view_type=view.view_type,
            shape=view.shape,
            dtype=view.dtype.name,
            digest=view.recorded_digest,
        )
        for view in data.views
    )


def open_data(table: DataTable, output: Path, earlier: DataRecord | None = None) -> OpenData:
    """Open the store that [data] names, or make one of its sources, or open the one that an earlier run made."""
    if earlier is not None and not as_location(earlier.store).is_absolute():
        return OpenData(open_store(output), output, is_new=True, notes=earlier.notes)
    view_type: ViewTypeSpec | None = table.view_type
    is_as_stored = (table.views, table.labels, table.chunk_size, table.join) == (None,) * 4
    if is_as_stored and len(table.sources) == 1 and is_store(table.sources[0]):
        store = as_location(table.sources[0])
        data = retry_if_replaced(lambda: open_store(store))
        return OpenData(
            data if view_type is None else with_view_types(data, view_type), store, is_new=False
        )
    report = write_store(table, output, ingest)
    return OpenData(open_store(report.output), report.output, is_new=True, notes=report.notes)


def write_store(
    table: DataTable, output: str | Path, write: Callable[..., IngestReport]
) -> IngestReport:
    """Write the sources that [data] names into a store, by `ingest` or `append`."""
    return write(
        _built_in(table) if table.source in BUILT_IN_SOURCES else files_of(table, table.sources),
        output,
        views=table.views,
        view_type=table.view_type,
        labels=table.labels,
        chunk_size=table.chunk_size,
        join=table.join,
        impute=table.impute,
    )


def columns_of(
    table: DataTable, data: MultiViewData
) -> tuple[dict[str, NDArray[Any] | None], tuple[str, ...]]:
    """Return batches and known labels of the samples of `data`, (n,) or None, by their keys in [data]; notes."""
    columns: dict[str, NDArray[Any] | None] = {}
    notes: tuple[str, ...] = ()
    for key, kind in (("batches", "batch"), ("partial_labels", "known label")):
        place: str | None = getattr(table, key)
        columns[key] = None
        if place is None:
            continue
        values, of_file = sample_column(Path(place), files_of(table, table.sources), data, key)
        named = values[has_label(values)] if key == "partial_labels" else values
        counts = pd.Series(named).replace("", None).value_counts()
        shown = ", ".join(map("{} ({})".format, counts.index[:_SHOWN], counts))
        more = f" and {len(counts) - _SHOWN} more" if len(counts) > _SHOWN else ""
        note = f"{place}: {counts.sum()} of {len(values)} samples have a {kind}: {shown}{more}."
        columns[key], notes = values, (*notes, *of_file, note)
    return columns, notes


def clusters_of_known(known: NDArray[Any] | None, labels: NDArray[np.int64]) -> tuple[str, ...]:
    """Return a note that names the cluster of each label in `known` (n,), and none without known labels."""
    if known is None:
        return ()
    has = has_label(known)
    clusters = dict(zip(map(str, known[has]), labels[has].tolist(), strict=True))
    named = [
        f"{name} is cluster {cluster}"
        for name, cluster in sorted(clusters.items(), key=itemgetter(1))
    ]
    return (f"Known labels: {', '.join(named)}.",)


def sample_column(
    place: Path, files: Sequence[Source], data: MultiViewData, key: str = "batches"
) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Return a value (n,) for each sample of `data` from a file, or from a column of obs of one of the files; notes.

    Missing values are NaN, None, -1 or empty text.
    """
    notes: tuple[str, ...] = ()
    if place.is_file():
        values, notes = labels_of_file(
            place, data.sample_ids, data.n_samples, may_be_missing=True, what=key
        )
    else:
        of_obs = [file for file in files if str(file.path).endswith((".h5ad", ".h5mu"))]
        with ExitStack() as stack:
            found = read_sources(of_obs, Selection((), str(place)), stack)
        named = [pd.Series(one.labels, one.sample_ids) for one in found if one.labels_explicit]
        if not named:
            raise DataError(
                f"{key}={str(place)!r} is neither a file nor a column of obs of an .h5ad or .h5mu file among the sources. "
                "Give a file with sample ids and values in two columns."
            )
        column = pd.concat(named).rename_axis("id").dropna().reset_index().drop_duplicates()
        if column["id"].duplicated().any():
            raise DataError(
                f"{key}={str(place)!r} has several values for {column['id'].duplicated().sum()} of the samples. Give one for "
                "each, in a file with sample ids and values in two columns."
            )
        ids = list(found[0].sample_ids or () if data.sample_ids is None else data.sample_ids)
        values = column.set_index("id")[0].reindex(ids).to_numpy()
    if values.dtype.kind == "f" and not (np.nan_to_num(values, posinf=0.5, neginf=0.5) % 1).any():
        values = np.array([None if np.isnan(one) else int(one) for one in values], dtype=object)
    return values, notes


def retry_if_replaced(read: Callable[[], _T]) -> _T:
    """Read from a store; retry where it may have been replaced meanwhile."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return read()
        except StoreCorruptError:
            time.sleep(_PAUSE_S)
    return read()


def files_of(table: DataTable, paths: Sequence[str]) -> list[Source]:
    """Return files, to be read as [data] says."""
    limit = MAX_BYTES if table.max_bytes is None else parse_bytes(table.max_bytes)
    files = {
        path: Source(
            path,
            header=table.header,
            id_column=table.id_column,
            delimiter=table.delimiter,
            decimal=table.decimal,
            comment=table.comment,
            skip=table.skip or 0,
            max_bytes=limit,
        )
        for path in (*paths, *table.sources)
    }
    listed, named = ([files[path] for path in names] for names in (paths, table.sources))
    return oriented_sources(listed, table.samples_in, named)


def _built_in(table: DataTable) -> MultiViewData:
    from mscam_dask.data.datasets import digits_views
    from mscam_dask.data.datasets.published import fetch_mfeat, load_mfeat

    if table.source == "digits":
        return digits_views() if table.families is None else digits_views(table.families)
    if table.path is not None:
        return load_mfeat(table.path)
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return fetch_mfeat(table.cache or Path(caches, "mscam_dask"))


def source_records(table: DataTable) -> tuple[SourceRecord, ...]:
    """Return the SHA-256 of each file that [data] names; the views of a directory have digests of their own."""
    files = [named for named in _of_samples(table) if named is not None and Path(named).is_file()]
    return tuple(
        SourceRecord(source=str(path), n_bytes=path.stat().st_size, sha256=_content(path))
        if isinstance(path, Path) and path.is_file() and str(path) not in BUILT_IN_SOURCES
        else SourceRecord(source=str(path))
        for path in map(as_location, (*table.sources, *files))
    )


def _of_samples(table: DataTable) -> tuple[str | None, ...]:
    """Return the files or columns of values of the samples that [data] names, None for others."""
    return table.labels, table.batches, table.partial_labels


def _places(table: DataTable) -> list[Location]:
    """Return the files, directories and stores that [data] names."""
    if table.source in BUILT_IN_SOURCES:
        return [] if table.path is None else [Path(table.path)]
    return [as_location(source) for source in table.sources]


def stamps_of(table: DataTable) -> list[tuple[str, int, int, int]]:
    """Return path, size, modification time and inode of the files that [data] names, which show writing."""
    local = [place for place in _places(table) if isinstance(place, Path)]
    files = [file for path in local for file in ([path] if path.is_file() else path.rglob("*"))]
    stats = [(str(file), file.stat()) for file in sorted(files) if file.is_file()]
    return [(name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in stats]


def changed_data(source: str, *, is_resumed: bool = False) -> MscamError:
    """Return the error for data that changed during a run, or since the start of one that is resumed."""
    if is_resumed:
        return DataError(
            f"{source} changed since the run was started. Restore the old data, or start a new run."
        )
    return TemporaryFailure(
        f"{source} changed while the run read it. Run the same command again to use the new data."
    )


NAME_DIGITS = 12
"""Hexadecimal digits of a digest in the name of a run directory."""


def data_fingerprint(table: DataTable) -> str:
    """Return the fingerprint of the sources, their reading options and the ground truth."""
    options = msgspec.to_builtins(table)
    for key in ("source", "path", "cache", "labels", "batches", "partial_labels", "max_bytes"):
        options.pop(key)  # the data do not depend on their path, nor on the limit
    names = [Path(source).name for source in table.sources]
    content = [_content(place) for place in _places(table)]
    of_samples = [
        _content(Path(named)) if named is not None and Path(named).is_file() else named
        for named in _of_samples(table)
    ]
    return _digest("ingest", __version__, options, names, content, *of_samples)


def clustering_fingerprint(
    settings: Settings, data: str, columns: Mapping[str, NDArray[Any] | None]
) -> str:
    """Return the fingerprint of everything that the clusters depend on."""
    incremental = msgspec.structs.replace(settings.incremental, max_drift=None)
    of_samples = {
        key: None if values is None else [*map(str, values)] for key, values in columns.items()
    }
    return _digest("clustering", __version__, data, settings.cluster, incremental, of_samples)


def fit_fingerprint(record: RunRecord) -> str:
    """Return the fingerprint of a clustering and of the run that it starts from, if any."""
    return _digest("fit", record.clustering_fingerprint, record.started_from)


def run_fingerprint(settings: Settings, data: str) -> str:
    """Return the fingerprint of a run: everything except its place and its executor."""
    parts = msgspec.to_builtins(settings)
    for elsewhere in ("data", "execution", "output"):
        parts.pop(elsewhere)
    return _digest("run", __version__, data, parts)


def _content(path: Location) -> str:
    """Return the digest of a store, a file or a directory of files."""
    if isinstance(path, ObjectPath) or is_store(path):
        data = open_store(path)
        labels = None if data.labels is None else data.labels.tolist()
        ids = None if data.sample_ids is None else list(data.sample_ids)
        return _digest("store", data.digest(), labels, data.label_names, ids)
    try:
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file())
            return _digest([(str(file.relative_to(path)), _file(file)) for file in files])
        return _file(path)
    except FileNotFoundError as error:
        raise DataError(f"There is no {path}. Check the source.") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error


def _file(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _digest(*parts: Any) -> str:
    """Return the SHA-256 of values, from their JSON with sorted keys."""
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()
