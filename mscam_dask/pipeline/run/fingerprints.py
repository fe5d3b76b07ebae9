"""Fingerprints of runs: digests of the data, the settings and this package's version.

Each fingerprint covers everything that its step depends on, and nothing else. A run with the
fingerprint of a previous one has nothing to compute; one that shares the fingerprint of the data or
of the clustering reuses the previous store or clusters.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from mscam_dask import __version__
from mscam_dask.data.store.object_store import Location, ObjectPath, as_location
from mscam_dask.data.store.read import is_store, open_store
from mscam_dask.errors import DataError
from mscam_dask.pipeline.config.settings import BUILT_IN_SOURCES, DataTable, Settings

__all__ = [
    "NAME_DIGITS",
    "clustering_fingerprint",
    "data_fingerprint",
    "fit_fingerprint",
    "run_fingerprint",
]

NAME_DIGITS = 12
"""Hexadecimal digits of a digest in the name of a run directory."""


def data_fingerprint(table: DataTable) -> str:
    """Return the fingerprint of the sources, their reading options and the ground truth.

    Raises
    ------
    DataError
        When a source is missing or cannot be read.
    """
    options = msgspec.to_builtins(table)
    for key in ("source", "path", "cache", "labels", "max_bytes"):
        options.pop(key)  # the data do not depend on their path, nor on the limit
    if table.source in BUILT_IN_SOURCES:
        names = [str(table.source)]
        content = [] if table.path is None else [_content(Path(table.path))]
    else:
        names = [Path(source).name for source in table.sources]
        content = [_content(as_location(source)) for source in table.sources]
    labels = table.labels
    if labels is not None and Path(labels).is_file():
        labels = _content(Path(labels))
    return _digest("ingest", __version__, options, names, content, labels)


def clustering_fingerprint(settings: Settings, data: str) -> str:
    """Return the fingerprint of everything that the clusters depend on.

    Parameters
    ----------
    settings
    data
        `MultiViewData.digest` of the views; ground truth never enters a fit.
    """
    incremental = msgspec.structs.replace(settings.incremental, max_drift=None)
    return _digest("clustering", __version__, data, settings.cluster, incremental)


def fit_fingerprint(clustering: str, start: str | None) -> str:
    """Return the fingerprint of a clustering and of the run that it starts from, if any."""
    return _digest("fit", clustering, start)


def run_fingerprint(settings: Settings, data: str | None = None) -> str:
    """Return the fingerprint of a run: everything except its place and its executor.

    Parameters
    ----------
    settings
    data
        `data_fingerprint`, where it is known.

    Raises
    ------
    DataError
        When a source is missing or cannot be read.
    """
    parts = msgspec.to_builtins(settings)
    for elsewhere in ("data", "execution", "output"):
        parts.pop(elsewhere)
    if data is None:
        data = data_fingerprint(settings.data)
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
        raise DataError(f"There is no {path}. Check [data] source.") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error


def _file(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _digest(*parts: Any) -> str:
    """Return the SHA-256 of values, from their JSON with sorted keys."""
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()
