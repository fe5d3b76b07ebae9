"""Write a store: under a temporary name, verified, synced, then renamed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.store.arrays import (
    DATASET,
    ArrayPieces,
    new_group,
    put_array,
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
from mscam_dask.data.store.read import (
    FEATURE_NAMES,
    IMPUTE,
    LABELS,
    N_PRESENT,
    ORIGIN,
    SAMPLE_ID_BYTES,
    SAMPLE_ID_OFFSETS,
    presence_key,
    verify_store,
    view_key,
)
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.rows import LiftedRows
from mscam_dask.data.views.sources import RowSource, ViewDigest, row_ranges
from mscam_dask.data.views.validation import check_not_empty, check_values
from mscam_dask.errors import ConfigurationError, DataError, MscamError
from mscam_dask.types.parameters import ImputeMethod

_Place = TypeVar("_Place", bound=str | Location)


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
            ORIGIN: [dict(row) for row in origin],
        }
    )
    for index, view in enumerate(data.views):
        key = view_key(index)
        _write_view(group, key, view, chunk_size)
        attributes: dict[str, Any] = {}
        if view.feature_names is not None:
            attributes[FEATURE_NAMES] = list(view.feature_names)
        if view.name in impute and view.view_type == "features":
            attributes[IMPUTE] = impute[view.name]
        group[key.rpartition("/")[0]].update_attributes(attributes)
        present = view.present
        if present is not None:
            put_array(group, presence_key(index), present.positions >= 0, ("sample",))
    if data.labels is not None:
        put_array(group, LABELS, data.labels.astype("<i8"), ("sample",))
    if data.sample_ids is not None:
        encoded = [item.encode() for item in data.sample_ids]
        offsets = [0, *accumulate(len(item) for item in encoded)]
        buffer = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        put_array(group, SAMPLE_ID_BYTES, buffer, ("byte",))
        put_array(group, SAMPLE_ID_OFFSETS, np.array(offsets, dtype="<i8"), ("edge",))
    write_checksums(group, directory)


def _write_view(group: Any, key: str, view: RowSource, chunk_size: int | None) -> None:
    """Write a view, read once by blocks of rows, and its name, view_type and digest."""
    present, whole = view.present, view
    dtype = _stored_dtype(view.dtype)
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
        array.update_attributes({N_PRESENT: len(present)})
    array.update_attributes(
        {
            "name": view.name,
            "view_type": view.view_type,
            "source_dtype": (view.dtype if present is None else dtype).str,
            "digest": digest.hexdigest(view.shape),
        }
    )


def _stored_dtype(source: np.dtype[Any]) -> np.dtype[Any]:
    """Little-endian type in which values are stored: their own if float64 holds it exactly, else float64."""
    exact = source.itemsize < 8 or source.newbyteorder("=") == np.float64
    return source.newbyteorder("<") if exact else np.dtype("<f8")
