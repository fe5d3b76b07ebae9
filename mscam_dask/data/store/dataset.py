"""The store of a data set: written under a temporary name, verified, then renamed; views are read by chunks.

Every chunk is verified by its checksum, and a missing chunk is an error.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.store.arrays import (
    CHECKSUMS,
    DATASET,
    METADATA,
    METADATA_ERRORS,
    ArrayPieces,
    corrupt_store,
    digest_of,
    get_array,
    missing,
    new_group,
    open_array,
    put_array,
    read_chunk,
    read_metadata,
    root_attributes,
    usable_attributes,
    write_checksums,
)
from mscam_dask.data.store.atomic_replace import (
    WRITES,
    exclusive_writer,
    is_taken,
    new_partial,
    recover,
    replace_directory,
    resolve_current,
    set_current,
)
from mscam_dask.data.store.filesystem import full_disk_is_temporary, remove_quietly
from mscam_dask.data.store.object_store import (
    Location,
    ObjectPath,
    as_location,
    translate_errors,
)
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.rows import LiftedRows, PresentRows
from mscam_dask.data.views.sources import (
    RowSource,
    ViewDigest,
    ViewType,
    row_ranges,
    view_digest,
)
from mscam_dask.data.views.validation import check_not_empty, check_values
from mscam_dask.errors import ConfigurationError, DataError, MscamError, StoreCorruptError
from mscam_dask.types.parameters import ImputeMethod

_LABELS = "labels"
_SAMPLE_ID_BYTES, _SAMPLE_ID_OFFSETS = "sample_ids/bytes", "sample_ids/offsets"

# Attributes, of a view's group (its array's metadata are read with every block), its values, the root.
_FEATURE_NAMES, _IMPUTE = "feature_names", "impute"
_N_PRESENT = "n_present"
_ORIGIN = "origin"

_Place = TypeVar("_Place", bound=str | Location)


def _keys(index: int) -> tuple[str, str]:
    """Paths of the values of the view at a position, and of the presence of the samples in it."""
    return f"views/{index}/values", f"views/{index}/presence"


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
        names = self._group_attribute(_FEATURE_NAMES)
        return None if names is None else tuple(names)

    @property
    def impute(self) -> ImputeMethod | None:
        method: ImputeMethod | None = self._group_attribute(_IMPUTE)
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
        return (root / _keys(0)[0]).is_dir()
    except DataError:
        return False


def open_store(path: str | Location) -> MultiViewData:
    """Open a store; its views, `ZarrRows` or a `PresentRows` of one, are read at their first use."""
    root = resolve_current(as_location(path).absolute())
    attributes = DATASET.attributes(root)
    with usable_attributes(root):
        names, ids = attributes["label_names"], None
        if attributes["has_sample_ids"]:
            buffer = get_array(root, _SAMPLE_ID_BYTES).tobytes()
            edges = get_array(root, _SAMPLE_ID_OFFSETS).tolist()
            ids = tuple(buffer[start:stop].decode() for start, stop in pairwise(edges))
        return MultiViewData(
            views=tuple(
                _view(root, index, attributes[CHECKSUMS]) for index in range(attributes["n_views"])
            ),
            sample_ids=ids,
            labels=get_array(root, _LABELS) if attributes["has_labels"] else None,
            label_names=None if names is None else tuple(names),
        )


def _view(root: Location, index: int, checksums: dict[str, str]) -> ZarrRows | PresentRows:
    """Return a view, restricted to the samples that it has."""
    key, presence = _keys(index)
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
    n_present = array.attrs.get(_N_PRESENT)
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
    rows = root_attributes(root).get(_ORIGIN, ())
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


# writing ----------------------------------------------------------------------------------------


def write_store(
    data: MultiViewData,
    output: _Place,
    *,
    chunk_size: int | None = None,
    overwrite: bool = False,
    impute: Mapping[str, ImputeMethod] = MappingProxyType({}),
    origin: Sequence[Mapping[str, str]] = (),
) -> _Place:
    """Write views, ids and labels as one store, complete or not at all, and return its absolute path or URL.

    `chunk_size` are the samples of a chunk, by default 8 MiB of each view; a fit decodes chunks of more
    than 16 MiB as float64 again and again. `overwrite` replaces a store, and nothing else. `impute` are
    the methods by which missing cells of views were filled, and `origin` a table of what the readers
    decided about the files; both are kept.
    """
    if chunk_size is not None and chunk_size < 1:
        raise ConfigurationError(f"chunk_size={chunk_size}; allowed is at least 1 sample.")
    root: Any = check_output(output, overwrite=overwrite)
    for view in data.views:
        check_not_empty(view)

    def fill(place: Location) -> None:
        with translate_errors(place):
            _write(data, place, chunk_size, impute, origin)
        verify_store(place)

    if isinstance(root, ObjectPath):
        version = root / WRITES / uuid.uuid4().hex
        try:
            fill(version)
        except BaseException:
            with suppress(MscamError):  # what stopped the writing may stop this too
                version.remove(list(version.sizes()))
            raise
        set_current(root, version)
        return cast("_Place", root)
    root.parent.mkdir(parents=True, exist_ok=True)
    with full_disk_is_temporary(root), exclusive_writer(root):
        _refuse_taken(root, overwrite=overwrite)  # by a writer that ended meanwhile
        partial = new_partial(root)
        try:
            fill(partial)
            replace_directory(partial, root)
        finally:
            remove_quietly(partial)
    return cast("_Place", root)


def check_output(output: str | Location, *, overwrite: bool) -> Location:
    """Return the absolute path to write to, refusing one that is taken; a store may be overwritten."""
    root = as_location(output).absolute()
    if isinstance(root, Path):
        recover(root)
    _refuse_taken(root, overwrite=overwrite)
    return root


def _refuse_taken(root: Location, *, overwrite: bool) -> None:
    if not is_taken(root):
        return
    try:
        is_ours = DATASET.is_at(resolve_current(root))
    except DataError:
        is_ours = False  # a damaged store may not be ours
    if not is_ours:
        raise DataError(
            f"{root} exists and is not a store of this package; it is never replaced. Choose "
            "another output, or move it away."
        )
    if not overwrite:
        raise DataError(
            f"{root} exists; choose another output, or pass overwrite=True (--overwrite) to "
            "replace it."
        )


def _write(
    data: MultiViewData,
    directory: Location,
    chunk_size: int | None,
    impute: Mapping[str, ImputeMethod],
    origin: Sequence[Mapping[str, str]],
) -> None:
    group = new_group(directory)
    group.attrs.put(
        {
            **DATASET.marks,
            "n_samples": data.n_samples,
            "n_views": len(data.views),
            "has_labels": data.labels is not None,
            "has_sample_ids": data.sample_ids is not None,
            "label_names": None if data.label_names is None else list(data.label_names),
            _ORIGIN: [dict(row) for row in origin],
        }
    )
    for index, view in enumerate(data.views):
        key, presence = _keys(index)
        _write_view(group, key, view, chunk_size)
        attributes: dict[str, Any] = {}
        if view.feature_names is not None:
            attributes[_FEATURE_NAMES] = list(view.feature_names)
        if view.name in impute and view.view_type == "features":
            attributes[_IMPUTE] = impute[view.name]
        group[key.rpartition("/")[0]].update_attributes(attributes)
        present = view.present
        if present is not None:
            put_array(group, presence, present.positions >= 0, ("sample",))
    if data.labels is not None:
        put_array(group, _LABELS, data.labels.astype("<i8"), ("sample",))
    if data.sample_ids is not None:
        encoded = [item.encode() for item in data.sample_ids]
        offsets = [0, *accumulate(len(item) for item in encoded)]
        buffer = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        put_array(group, _SAMPLE_ID_BYTES, buffer, ("byte",))
        put_array(group, _SAMPLE_ID_OFFSETS, np.array(offsets, dtype="<i8"), ("edge",))
    write_checksums(group, directory)


def _write_view(group: Any, key: str, view: RowSource, chunk_size: int | None) -> None:
    """Write a view, read once by blocks of rows, in its own type if float64 holds it exactly, else in float64."""
    present, whole = view.present, view
    is_exact = view.dtype.itemsize < 8 or view.dtype.newbyteorder("=") == np.float64
    dtype = view.dtype.newbyteorder("<") if is_exact else np.dtype("<f8")
    if present is not None:
        whole = LiftedRows(view, present.positions)  # with rows of NaN
        dtype = dtype if dtype.kind == "f" else np.dtype("<f8")
    digest = ViewDigest()

    def blocks() -> Iterator[NDArray[Any]]:
        for start, stop in row_ranges(whole):
            block = own = whole.read(start, stop)
            if present is not None:
                has = present.positions >= 0
                is_pairwise = view.view_type != "features"
                own = block[np.ix_(has[start:stop], has) if is_pairwise else has[start:stop]]
            if not np.isfinite(own).all():
                check_values(view)  # reads on to the end, and raises with counts and rows
            digest.update(own)
            yield block.astype(dtype)

    pieces = ArrayPieces(whole.shape, dtype, blocks)
    array = put_array(group, key, pieces, ("sample", "feature"), chunk_rows=chunk_size)
    if present is not None:
        array.update_attributes({_N_PRESENT: len(present)})
    array.update_attributes(
        {
            "name": view.name,
            "view_type": view.view_type,
            "digest": digest.hexdigest(view.shape),
        }
    )
