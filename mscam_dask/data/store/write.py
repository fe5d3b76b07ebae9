"""Write a store, or append samples to one: under a temporary name, verified, synced, then renamed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.store import schema
from mscam_dask.data.store.atomic_replace import (
    exclusive_writer,
    is_name_taken,
    new_partial,
    new_version,
    recover,
    replace_directory,
    resolve_current,
    set_current,
)
from mscam_dask.data.store.filesystem import (
    LOCAL,
    full_disk_is_temporary,
    sync_tree,
    unlink_quietly,
)
from mscam_dask.data.store.object_store import (
    Location,
    ObjectPath,
    as_location,
    translate_errors,
    zarr_place,
)
from mscam_dask.data.store.read import verify_store
from mscam_dask.data.store.schema import root_attributes, write_checksums
from mscam_dask.data.views.conversion import UNLABELED
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.presence import (
    LiftedRows,
    PresentRows,
    n_samples_of,
    present_samples,
    restrict_to_present,
)
from mscam_dask.data.views.sources import (
    BLOCK_BYTES,
    RowSource,
    ViewDigest,
    ViewType,
    as_rows,
    check_row_range,
    feature_names_of,
    first_difference,
    is_numbering,
    listed,
)
from mscam_dask.data.views.validation import check_finite, check_not_empty
from mscam_dask.errors import ConfigurationError, DataError, MscamError
from mscam_dask.types.parameters import ImputeMethod

__all__ = [
    "CHUNK_BYTES",
    "JoinedRows",
    "check_output",
    "create_array",
    "joined_samples",
    "write_store",
    "write_view",
]

CHUNK_BYTES = 8 * 2**20
"""Uncompressed bytes of a chunk, unless the number of rows is given."""

_ID_CHUNK = 2**20


@overload
def write_store(
    data: MultiViewData,
    output: Path,
    *,
    chunk_size: int | None = None,
    overwrite: bool = False,
    impute: Mapping[str, ImputeMethod] = ...,
    origin: Sequence[Mapping[str, str]] = ...,
) -> Path: ...


@overload
def write_store(
    data: MultiViewData,
    output: str | Location,
    *,
    chunk_size: int | None = None,
    overwrite: bool = False,
    impute: Mapping[str, ImputeMethod] = ...,
    origin: Sequence[Mapping[str, str]] = ...,
) -> Location: ...


def write_store(
    data: MultiViewData,
    output: str | Location,
    *,
    chunk_size: int | None = None,
    overwrite: bool = False,
    impute: Mapping[str, ImputeMethod] = MappingProxyType({}),
    origin: Sequence[Mapping[str, str]] = (),
) -> Location:
    """Write views, ids and labels as one store (layout: `mscam_dask.data.store.schema`).

    Parameters
    ----------
    data
        Read once, by blocks of about 64 MiB.
    output
        Directory to make. It appears complete or not at all: a sibling directory is written,
        read back against its digests, synced to disk and given the name, in exchange for the
        store that had it (see `mscam_dask.data.store.atomic_replace`). Or a URL (s3://, gs://, az://, file://):
        see `mscam_dask.data.store.atomic_replace`.
    chunk_size
        Samples per chunk; by default as many as make 8 MiB in each view. A fit decodes larger
        chunks, of more than 16 MiB as float64, again and again.
    overwrite
        Replace a store that is there; anything else at `output` is never touched.
    impute
        Method by which missing cells of a view were filled, by view, which fits of the store use for new
        samples; kept for feature views.
    origin
        What the readers decided about the files that the data come from, a table of text by rows;
        `mscam_dask.data.store.read.read_origin` returns it.

    Returns
    -------
    Path or ObjectPath
        Absolute path, or the URL, of the store.

    Raises
    ------
    DataError
        When `output` exists, or a view is empty or has NaN or infinite values, or ids repeat.
    ConfigurationError
        When `chunk_size` is less than 1, or the file system has no locks.
    TemporaryFailure
        When the disk is full, nothing is left behind; another process is writing the same
        directory; or an object store cannot be reached.
    """
    if chunk_size is not None and chunk_size < 1:
        raise ConfigurationError(f"chunk_size={chunk_size}; allowed is at least 1 sample.")
    root = check_output(output, overwrite=overwrite)
    for view in data.views:
        check_not_empty(view)
    if isinstance(root, ObjectPath):
        return _write_objects(data, root, chunk_size, impute, origin)
    root.parent.mkdir(parents=True, exist_ok=True)
    with full_disk_is_temporary(root), exclusive_writer(root):
        _refuse_taken(root, overwrite=overwrite)  # by a writer that ended meanwhile
        partial = new_partial(root)
        try:
            _write(data, partial, chunk_size, impute, origin)
            verify_store(partial)
            sync_tree(LOCAL, partial)
            replace_directory(LOCAL, partial, root)
        finally:
            unlink_quietly(LOCAL, partial)
    return root


def _write_objects(
    data: MultiViewData,
    root: ObjectPath,
    chunk_size: int | None,
    impute: Mapping[str, ImputeMethod],
    origin: Sequence[Mapping[str, str]],
) -> ObjectPath:
    place = new_version(root)
    try:
        with translate_errors(place):
            _write(data, place, chunk_size, impute, origin)
        verify_store(place)
    except BaseException:
        with suppress(MscamError):  # what stopped the writing may stop this too
            place.remove(list(place.sizes()))
        raise
    set_current(root, place)
    return root


def check_output(output: str | Location, *, overwrite: bool) -> Location:
    """Return the absolute path to write to, refusing one that must not be replaced.

    Raises
    ------
    DataError
        When something is there and `overwrite` is off, or it is not a store.
    """
    root = as_location(output).absolute()
    if isinstance(root, Path):
        recover(root)
    _refuse_taken(root, overwrite=overwrite)
    return root


def _refuse_taken(root: Location, *, overwrite: bool) -> None:
    if not _is_in_use(root):
        return
    if not _is_whole_store(root):
        raise DataError(
            f"{root} exists and is not a store of this package; it is never replaced. Choose "
            "another output, or move it away."
        )
    if not overwrite:
        raise DataError(
            f"{root} exists; choose another output, or pass overwrite=True (--overwrite) to "
            "replace it."
        )


def _is_in_use(root: Location) -> bool:
    if isinstance(root, ObjectPath):
        return is_name_taken(root)
    return root.exists() and not (root.is_dir() and not any(root.iterdir()))


def _is_whole_store(root: Location) -> bool:
    """Return whether a location is an undamaged store of this package; a damaged one may not be."""
    try:
        return bool(root_attributes(resolve_current(root)).get("format") == schema.FORMAT)
    except DataError:
        return False


def _write(
    data: MultiViewData,
    directory: Location,
    chunk_size: int | None,
    impute: Mapping[str, ImputeMethod],
    origin: Sequence[Mapping[str, str]],
) -> None:
    import zarr

    group = zarr.open_group(
        zarr_place(directory, writable=True),
        mode="w-",
        zarr_format=3,
        attributes={
            "format": schema.FORMAT,
            "format_version": schema.FORMAT_VERSION,
            "n_samples": data.n_samples,
            "n_views": len(data.views),
            "has_labels": data.labels is not None,
            "has_sample_ids": data.sample_ids is not None,
            "label_names": None if data.label_names is None else list(data.label_names),
            schema.ORIGIN: [dict(row) for row in origin],
        },
    )
    for index, view in enumerate(data.views):
        key = schema.view_key(index)
        write_view(group, key, view, chunk_size)
        if view.name in impute and view.view_type == "features":
            own = group[key.rpartition("/")[0]]
            own.update_attributes({schema.IMPUTE: impute[view.name]})
        present = present_samples(view)
        if present is not None:
            spec = replace(schema.PRESENCE, key=schema.presence_key(index))
            _write_vector(group, spec, present.positions >= 0)
    if data.labels is not None:
        _write_vector(group, schema.LABELS, data.labels.astype("<i8"))
    if data.sample_ids is not None:
        encoded = [item.encode() for item in data.sample_ids]
        offsets = [0, *accumulate(len(item) for item in encoded)]
        buffer = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        _write_vector(group, schema.SAMPLE_ID_BYTES, buffer)
        _write_vector(group, schema.SAMPLE_ID_OFFSETS, np.array(offsets, dtype="<i8"))
    write_checksums(group, directory)


def write_view(
    group: Any,
    key: str,
    view: RowSource,
    chunk_size: int | None,
    *,
    block_bytes: int = BLOCK_BYTES,
    chunk_bytes: int = CHUNK_BYTES,
) -> None:
    """Write one view as an array of a group, and its name, view_type and digest as attributes.

    Parameters
    ----------
    group, key
        Zarr group, and path of the array in it.
    view
        Read once, by blocks of whole chunks.
    chunk_size
        Samples per chunk; None for as many as `chunk_bytes` hold.
    block_bytes
        Float64 bytes that are read at a time, at most, but for a chunk that has more.
    chunk_bytes
        Uncompressed bytes of a chunk.

    Raises
    ------
    DataError
        When the view has NaN or infinite values.
    """
    present, whole = present_samples(view), view.shape
    dtype = schema.stored_dtype(view.dtype)
    if present is not None:
        whole = (present.n_samples, view.shape[1])
        if view.view_type != "features":
            whole = (present.n_samples, present.n_samples)
        if dtype.kind != "f":  # which has no NaN
            dtype = np.dtype("<f8")
    n_samples, n_columns = whole
    rows = chunk_size or max(1, chunk_bytes // (n_columns * dtype.itemsize))
    rows = min(rows, n_samples)
    array = create_array(group, key, whole, (rows, n_columns), dtype, schema.VALUES.dims)
    digest = ViewDigest(view.shape)
    step = rows * max(1, block_bytes // (8 * n_columns * rows))  # whole chunks: one write each
    for start in range(0, n_samples, step):
        stop = min(start + step, n_samples)
        if present is None:
            block = own = view.read(start, stop)
        else:
            first, last = np.searchsorted(present.samples, (start, stop))
            own = view.read(int(first), int(last))
            block = np.full((stop - start, n_columns), np.nan)
            is_pairwise = view.view_type != "features"
            columns = present.samples if is_pairwise else np.arange(n_columns)
            block[np.ix_(present.samples[first:last] - start, columns)] = own
        if not np.isfinite(own).all():
            check_finite(view)  # reads on to the end, and raises with counts and rows
        digest.update(own)
        array[start:stop] = block.astype(dtype)
    if present is not None:
        array.update_attributes({schema.N_PRESENT: len(present)})
    array.update_attributes(
        {
            "name": view.name,
            "view_type": view.view_type,
            "source_dtype": (view.dtype if present is None else dtype).str,
            "digest": digest.hexdigest(),
        }
    )
    names = feature_names_of(view)
    if names is not None:
        group[key.rpartition("/")[0]].update_attributes({schema.FEATURE_NAMES: list(names)})


def _write_vector(group: Any, spec: schema.ArraySpec, values: NDArray[Any]) -> None:
    chunk = max(1, min(_ID_CHUNK, len(values)))
    array = create_array(group, spec.key, values.shape, (chunk,), values.dtype, spec.dims)
    array[:] = values


def create_array(
    group: Any,
    key: str,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    dtype: np.dtype[Any],
    dims: tuple[str, ...],
    *,
    nested: bool = True,
) -> Any:
    """Create an array that is compressed, checksummed and keeps chunks of zeros.

    Chunks lie in nested directories, as Zarr's default is, or beside each other.
    """
    from zarr.codecs import Crc32cCodec, ZstdCodec

    return group.create_array(
        key,
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        compressors=(ZstdCodec(level=3), Crc32cCodec()),
        fill_value=0,
        dimension_names=dims,
        chunk_key_encoding={"name": "default", "separator": "/" if nested else "."},
        config={"write_empty_chunks": True},
    )


_SHOWN = 5


@dataclass(frozen=True, eq=False)
class JoinedRows:
    """View with the rows of one view followed by those of another.

    Parameters
    ----------
    first, second
        Views with the same columns and name, and view type "features".
    """

    first: RowSource
    second: RowSource

    @property
    def name(self) -> str:
        return self.first.name

    @property
    def view_type(self) -> ViewType:
        return self.first.view_type

    @property
    def shape(self) -> tuple[int, int]:
        return self.first.shape[0] + self.second.shape[0], self.first.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.result_type(self.first.dtype, self.second.dtype)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns of the first, which equal those of the second."""
        return feature_names_of(self.first)

    def read(self, start: int, stop: int) -> NDArray[np.float64]:
        """Return rows start..stop-1 as read-only float64."""
        check_row_range(self, start, stop)
        border = self.first.shape[0]
        parts = []
        if start < border:
            parts.append(self.first.read(start, min(stop, border)))
        if stop > border or not parts:
            parts.append(self.second.read(max(start, border) - border, max(stop, border) - border))
        return parts[0] if len(parts) == 1 else as_rows(np.concatenate(parts))


def joined_samples(old: MultiViewData, new: MultiViewData, *, where: str) -> MultiViewData:
    """Return the samples of a store followed by new ones.

    Parameters
    ----------
    old
        Data of the store; its order of views counts.
    new
        The same views of other samples, or some of them.
    where
        Name of the store, for messages.

    Returns
    -------
    MultiViewData
        Views are read lazily.

    Raises
    ------
    DataError
        When views, columns, their names or metrics differ, a view is a distance or kernel matrix, samples with
        and without ids would be mixed, labels are new in the store, an id is there already, or a label
        is neither the position of a name nor -1 (unlabeled).
    """
    by_name = {view.name: view for view in new.views}
    if not set(by_name) <= set(old.view_names):
        raise DataError(
            f"{where} has the views {list(old.view_names)}, the new samples have "
            f"{list(new.view_names)}; allowed are views of the store, of which some may be missing. "
            "Give these (--view NAME)."
        )
    views = tuple(_joined(view, by_name.get(view.name), new.n_samples, where) for view in old.views)
    labels, label_names = _labels(old, new, where)
    return MultiViewData(
        views=views,
        sample_ids=_ids(old, new, where),
        labels=labels,
        label_names=label_names,
    )


def _joined(old: RowSource, new: RowSource | None, n_new: int, where: str) -> RowSource:
    """Return the rows of the old and the new samples, absent samples left out."""
    if new is None:
        new = LiftedRows(old, np.full(n_new, -1, dtype=np.int64))
    both = _joined_rows(_of_all(old), _of_all(new), where)
    samples = [_samples_of(old), _samples_of(new) + n_samples_of(old)]
    return restrict_to_present(
        both, np.setdiff1d(np.arange(both.shape[0]), np.concatenate(samples))
    )


def _of_all(view: RowSource) -> RowSource:
    """Return a view with a row for each sample; rows of absent samples have arbitrary values."""
    return view.source if isinstance(view, PresentRows) else view


def _samples_of(view: RowSource) -> NDArray[np.int64]:
    if isinstance(view, PresentRows):
        return view.samples
    if isinstance(view, LiftedRows):
        return np.flatnonzero(view.places >= 0)
    return np.arange(view.shape[0])


def _joined_rows(old: RowSource, new: RowSource, where: str) -> RowSource:
    if old.view_type != "features" or new.view_type != "features":
        raise DataError(
            f"View {old.name!r} has view_type={old.view_type!r} in {where} and {new.view_type!r} in the new "
            "samples; samples can be appended to feature views only. Ingest a distance or kernel matrix as a whole."
        )
    if old.shape[1] != new.shape[1]:
        raise DataError(
            f"View {old.name!r} has {old.shape[1]} columns in {where} and {new.shape[1]} in the new "
            "samples; the features must be the same, in the same order."
        )
    _check_features(old, new, where)
    return JoinedRows(old, new)


def _check_features(old: RowSource, new: RowSource, where: str) -> None:
    """Refuse columns of other names, or in another order, where both sides have names."""
    before, after = feature_names_of(old), feature_names_of(new)
    if before is None or after is None or before == after:
        return
    column = first_difference(before, after)
    differ = (
        f"column {column} (counted from 0) is {before[column]!r} in {where} and {after[column]!r} in "
        "the new samples"
    )
    if sorted(before) == sorted(after):
        raise DataError(
            f"View {old.name!r} has the same features in another order: {differ}. Put the columns of "
            f"the new samples in the order of the store: [{listed(before)}]."
        )
    if is_numbering(before) or is_numbering(after):
        return
    missing, added = sorted(set(before) - set(after)), sorted(set(after) - set(before))
    raise DataError(
        f"View {old.name!r} has other features: {differ}; only in the store are "
        f"[{listed(missing)}], only in the new samples [{listed(added)}]. Give the same features, in "
        "the same order; if only their names changed, rename the columns as they are in the store."
    )


def _ids(old: MultiViewData, new: MultiViewData, where: str) -> tuple[str, ...] | None:
    if old.sample_ids is None and new.sample_ids is None:
        return None
    if old.sample_ids is None or new.sample_ids is None:
        has, lacks = (
            ("the new samples", where) if old.sample_ids is None else (where, "the new samples")
        )
        raise DataError(
            f"There are sample ids in {has} and none in {lacks}. Give both ids (--id-column), or neither."
        )
    known = set(old.sample_ids)
    repeated = [name for name in new.sample_ids if name in known]
    if repeated:
        raise DataError(
            f"{len(repeated)} of the {len(new.sample_ids)} new samples are in {where} already: "
            f"{listed(repeated)}. Leave them out; to change samples, ingest the whole data again with "
            "--overwrite."
        )
    return (*old.sample_ids, *new.sample_ids)


def _labels(
    old: MultiViewData, new: MultiViewData, where: str
) -> tuple[NDArray[np.int64] | None, tuple[str, ...] | None]:
    """Labels of all; names that are new get the numbers after the old ones, -1 stays unlabeled."""
    if old.labels is None and new.labels is None:
        return None, None
    if old.labels is None:
        raise DataError(
            f"The new samples have labels, but {where} has none. Leave the labels out, or ingest the whole "
            "data again with labels."
        )
    if new.labels is None:
        unlabeled = np.full(new.n_samples, UNLABELED, dtype=np.int64)
        return np.concatenate([old.labels, unlabeled]), old.label_names
    if (old.label_names is None) != (new.label_names is None):
        raise DataError(
            f"Labels are {'numbers' if old.label_names is None else 'text'} in {where} and "
            f"{'numbers' if new.label_names is None else 'text'} in the new samples. Give both in one form."
        )
    if old.label_names is None or new.label_names is None:
        return np.concatenate([old.labels, new.labels]), None
    _check_named(old.labels, old.label_names, where)
    _check_named(new.labels, new.label_names, "the new samples")
    added = [name for name in new.label_names if name not in old.label_names]
    names = (*old.label_names, *added)
    codes = np.array([names.index(name) for name in new.label_names], dtype=np.int64)
    renamed = np.append(codes, UNLABELED)[new.labels]  # whose last entry is that of -1
    return np.concatenate([old.labels, renamed]), names


def _check_named(labels: NDArray[np.int64], names: tuple[str, ...], whose: str) -> None:
    """Refuse labels that are neither the position of a name nor unlabeled."""
    rows = np.flatnonzero((labels < UNLABELED) | (labels >= len(names)))
    if rows.size:
        raise DataError(
            f"{rows.size} label(s) of {whose} have no name, the first {labels[rows[0]]} in row "
            f"{rows[0]}; allowed are 0 to {len(names) - 1}, the positions in label_names "
            f"{list(names[:_SHOWN])}{' ...' if len(names) > _SHOWN else ''}, and {UNLABELED} for "
            "unlabeled samples. Correct the labels, or give them as text."
        )
