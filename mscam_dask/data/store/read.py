"""Read a store: every chunk is verified by its checksum, and a missing chunk is an error."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.store.arrays import (
    CHECKSUMS,
    DATASET,
    METADATA,
    METADATA_ERRORS,
    corrupt_store,
    digest_of,
    get_array,
    missing,
    open_array,
    read_chunk,
    read_metadata,
    root_attributes,
    usable_attributes,
)
from mscam_dask.data.store.atomic_replace import resolve_current
from mscam_dask.data.store.object_store import Location, as_location, translate_errors
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.rows import PresentRows
from mscam_dask.data.views.sources import RowSource, ViewType, view_digest
from mscam_dask.errors import DataError, StoreCorruptError
from mscam_dask.types.parameters import ImputeMethod

LABELS = "labels"
SAMPLE_ID_BYTES, SAMPLE_ID_OFFSETS = "sample_ids/bytes", "sample_ids/offsets"

# Attributes, of a view's group (its array's metadata are read with every block), its values, the root.
FEATURE_NAMES, IMPUTE = "feature_names", "impute"
N_PRESENT = "n_present"
ORIGIN = "origin"


def view_key(index: int) -> str:
    """Path of the values of the view at a position."""
    return f"views/{index}/values"


def presence_key(index: int) -> str:
    """Path of the presence of the samples in the view at a position."""
    return f"views/{index}/presence"


@dataclass(frozen=True, eq=False)
class ZarrRows(RowSource):
    """A view in a store at an absolute `path` or URL, opened by the process that reads it."""

    path: str
    key: str
    name: str
    view_type: ViewType
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    metadata_sha256: str
    chunk_size: int = 1
    recorded_digest: str = ""

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns, None where they have none; read when asked for."""
        names = self._group_attribute(FEATURE_NAMES)
        return None if names is None else tuple(names)

    @property
    def impute(self) -> ImputeMethod | None:
        method: ImputeMethod | None = self._group_attribute(IMPUTE)
        return method

    def _group_attribute(self, name: str) -> Any:
        file = as_location(self.path) / self.key.rpartition("/")[0] / METADATA
        with translate_errors(file):
            try:
                return json.loads(read_metadata(file))["attributes"].get(name)
            except (OSError, *METADATA_ERRORS) as error:
                raise corrupt_store(file, f"no usable group metadata: {error}") from error

    def _rows(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows, if the array is still the one that was opened."""
        root = as_location(self.path)
        self._check_unreplaced(root)
        array = open_array(root, self.key)
        rows = np.empty((stop - start, self.shape[1]), dtype=np.float64)
        for first in range(start - start % self.chunk_size, stop, self.chunk_size):
            begin, end = max(first, start), min(first + self.chunk_size, stop)
            rows[begin - start : end - start] = read_chunk(
                array, root / self.key, slice(begin, end)
            )
        if isinstance(root, Path):  # what lies at a URL is never replaced in its place
            self._check_unreplaced(root)
        return rows

    def _check_unreplaced(self, root: Location) -> None:
        file = root / self.key / METADATA
        try:
            content = read_metadata(file)
        except FileNotFoundError as error:
            raise missing(file, "it is missing") from error
        if digest_of(content) != self.metadata_sha256:
            raise StoreCorruptError(
                f"View {self.name!r} in {self.path} is not what it was when the store was opened: {file} "
                "is damaged, or another program replaced the store. Open the store again."
            )


def is_store(path: str | Location) -> bool:
    """Return whether a place is a store of this package, of any version, damaged or not."""
    root = as_location(path)
    try:
        root = resolve_current(root)
    except StoreCorruptError:
        return True  # nobody else has such a pointer
    try:
        return DATASET.is_at(root)
    except StoreCorruptError:
        return (root / view_key(0)).is_dir()
    except DataError:
        return False


def open_store(path: str | Location) -> MultiViewData:
    """Open a store; its views, `ZarrRows` or a `PresentRows` of one, are read at their first use."""
    root = resolve_current(as_location(path).absolute())
    attributes = DATASET.attributes(root)
    with usable_attributes(root):
        names, ids = attributes["label_names"], None
        if attributes["has_sample_ids"]:
            buffer = get_array(root, SAMPLE_ID_BYTES).tobytes()
            edges = get_array(root, SAMPLE_ID_OFFSETS).tolist()
            ids = tuple(buffer[start:stop].decode() for start, stop in pairwise(edges))
        return MultiViewData(
            views=tuple(
                _view(root, index, attributes[CHECKSUMS]) for index in range(attributes["n_views"])
            ),
            sample_ids=ids,
            labels=get_array(root, LABELS) if attributes["has_labels"] else None,
            label_names=None if names is None else tuple(names),
        )


def _view(root: Location, index: int, checksums: dict[str, str]) -> ZarrRows | PresentRows:
    """Return a view, restricted to the samples that it has."""
    key, presence = view_key(index), presence_key(index)
    array = open_array(root, key)
    view = ZarrRows(
        path=str(root),
        key=key,
        name=array.attrs["name"],
        view_type=array.attrs["view_type"],
        shape=array.shape,
        dtype=array.dtype,
        chunk_size=array.chunks[0],
        recorded_digest=array.attrs["digest"],
        metadata_sha256=checksums[key],
    )
    n_present = array.attrs.get(N_PRESENT)
    if n_present is None:
        return view
    samples = np.flatnonzero(get_array(root, presence))
    if len(samples) != n_present:
        raise corrupt_store(
            root / presence / METADATA, f"{len(samples)} samples, {n_present!r} expected"
        )
    return PresentRows(view, samples)


def read_origin(path: str | Location) -> tuple[dict[str, str], ...]:
    """Return what the readers decided about the files of a store; empty for one that was written without it."""
    root = resolve_current(as_location(path).absolute())
    rows = root_attributes(root).get(ORIGIN, ())
    return tuple({str(name): str(value) for name, value in row.items()} for row in rows)


def verify_store(path: str | Location) -> MultiViewData:
    """Open a store and compare the digest of every view with the recorded one."""
    data = open_store(path)
    for view in data.views:
        stored = view.whole
        assert isinstance(stored, ZarrRows)
        found = view_digest(view)
        if found != stored.recorded_digest:
            raise corrupt_store(
                as_location(stored.path) / stored.key,
                f"view {view.name!r} has digest {found[:16]}..., recorded is "
                f"{stored.recorded_digest[:16]}...",
            )
    return data
