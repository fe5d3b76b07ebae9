"""NumPy archives (.npz) and arrays (.npy); pickled objects are refused, never loaded."""

from __future__ import annotations

import math
import re
import zipfile
from contextlib import ExitStack
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.array_labels import find_labels
from mscam_dask.data.readers.base import (
    Selection,
    Source,
    SourceContents,
    check_row_size,
    check_size,
    oriented,
    unreadable,
    view_type_named,
)
from mscam_dask.data.sparse import sparse_from_parts
from mscam_dask.data.views.conversion import rows_of
from mscam_dask.data.views.labels import as_text
from mscam_dask.data.views.sources import RowSource
from mscam_dask.errors import DataError

__all__ = ["read_npy", "read_npz"]

_NUMBERED = re.compile(r"view_(\d+)")
_DESCRIPTIVE = ("view_names", "kind", "label_names", "sample_ids", "digests")

# Bytes that one byte of deflate can stand for; other methods are not limited by their format.
_MAX_DEFLATE = 1032


def read_npy(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:  # noqa: ARG001 - a reader's signature
    """Read one (n, d) array, mapped into memory rather than loaded."""
    with unreadable(source, "a NumPy array (.npy) of numbers"):
        with source.file.open("rb") as stream:
            _check_header(source, source.file.name, stream, source.file.stat().st_size)
        values = np.load(source.file, mmap_mode="r", allow_pickle=False)
    views = (rows_of(oriented(values, source), name=source.view_name),)
    return SourceContents(where=str(source.path), views=views)


def read_npz(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:
    """Read an archive with view_0, view_1, ... (and labels, view_names, kind, sample_ids).

    An archive without view_0 gives one view per two-dimensional array, named by its key, that is not
    labels (`find_labels`); one written by scipy.sparse.save_npz gives one view.
    """
    with unreadable(source, "a NumPy archive (.npz) of numbers"):
        # Opened here: np.load leaves a damaged archive open.
        stream = stack.enter_context(source.file.open("rb"))
        archive = stack.enter_context(np.load(stream, allow_pickle=False))
        keys: list[str] = list(archive.files)
        if {"format", "shape", "data"} <= set(keys) and not _array(archive, "format", source).ndim:
            matrix = _sparse_matrix(archive, source)
            views = (rows_of(oriented(matrix, source), name=source.view_name),)
            return SourceContents(where=str(source.path), views=views)
        if any(_NUMBERED.fullmatch(key) for key in keys):
            return _read_numbered(archive, source, selection)
        return _read_named(archive, source, selection)


def _sparse_matrix(archive: Any, source: Source) -> Any:
    """The matrix of an archive that scipy.sparse.save_npz wrote."""
    names = ("data", "indices", "indptr", "coords", "offsets")
    parts: dict[str, Any] = {
        name: _array(archive, name, source) for name in names if name in archive.files
    }
    if {"row", "col"} <= set(archive.files):
        parts["coords"] = (_array(archive, "row", source), _array(archive, "col", source))
    form = as_text(_array(archive, "format", source).item())
    shape = _array(archive, "shape", source)
    return check_row_size(sparse_from_parts(form, parts, shape, str(source.path)), source)


def _read_numbered(archive: Any, source: Source, selection: Selection) -> SourceContents:
    keys = sorted(
        (key for key in archive.files if _NUMBERED.fullmatch(key)), key=lambda key: int(key[5:])
    )
    names = _texts(archive, "view_names", len(keys), source) or tuple(keys)
    kinds = _texts(archive, "kind", len(keys), source) or ("features",) * len(keys)
    views: list[RowSource] = [
        rows_of(
            oriented(_array(archive, key, source), source),
            name=name,
            view_type=view_type_named(kind, name, source),
        )
        for key, name, kind in zip(keys, names, kinds, strict=True)
        if selection.wants(name)
    ]
    labels_key = _labels_key(archive.files, selection, but=keys)
    ids = _sample_ids(archive, source)
    used = {*keys, *_DESCRIPTIVE, labels_key} - ({"sample_ids"} if ids is None else set())
    ignored = [key for key in archive.files if key not in used]
    return SourceContents(
        where=str(source.path),
        views=tuple(views),
        labels=None if labels_key is None else _array(archive, labels_key, source),
        label_names=_texts(archive, "label_names", None, source),
        sample_ids=ids,
        labels_explicit=labels_key is not None and selection.labels is not None,
        notes=(f"{source.path}: left out {ignored}.",) if ignored else (),
        skipped=tuple(name for name in names if not selection.wants(name)),
    )


def _read_named(archive: Any, source: Source, selection: Selection) -> SourceContents:
    labels = find_labels(
        archive.files, lambda key: _array(archive, key, source), source=source, selection=selection
    )
    views: list[RowSource] = []
    ignored: list[str] = []
    skipped: list[str] = []
    is_view = selection.views is not None and "sample_ids" in selection.views
    ids = None if is_view else _sample_ids(archive, source)
    for key in archive.files:
        if key in labels.names or (key == "sample_ids" and ids is not None):
            continue
        if not selection.wants(key):
            skipped.append(key)
            continue
        values = _array(archive, key, source)
        if values.ndim == 2 or selection.views is not None:
            views.append(rows_of(oriented(values, source), name=key))
        else:
            ignored.append(f"{key} {values.shape}")
    notes = labels.notes
    if ignored:
        notes += (f"{source.path}: left out {ignored}, which are not (n, d).",)
    if not views and not skipped and labels.values is None:
        raise DataError(
            f"{source.path} has no view: its keys are {list(archive.files)}; allowed are view_0, "
            "view_1, ..., or two-dimensional arrays under any name."
        )
    return SourceContents(
        where=str(source.path),
        views=tuple(views),
        labels=labels.values,
        sample_ids=ids,
        labels_explicit=labels.values is not None and selection.labels is not None,
        notes=notes,
        skipped=tuple(skipped),
    )


def _sample_ids(archive: Any, source: Source) -> tuple[str, ...] | None:
    """Numbers or text under "sample_ids", one for each sample; None where there is no such vector."""
    if "sample_ids" not in archive.files:
        return None
    values = _array(archive, "sample_ids", source)
    if values.size != max(values.shape, default=0):
        return None
    return tuple(map(as_text, values.ravel().tolist()))


def _labels_key(keys: list[str], selection: Selection, *, but: list[str]) -> str | None:
    by_name = Selection(labels=selection.labels)  # no key but view_0, view_1, ... is a view
    found = [key for key in keys if by_name.is_labels(key) and key not in (*but, *_DESCRIPTIVE)]
    return found[0] if found else None


def _check_header(source: Source, name: str, stream: IO[bytes], nbytes: int) -> None:
    """Refuse an array whose header declares more values than its bytes hold."""
    version = np.lib.format.read_magic(stream)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version, np.lib.format.read_array_header_2_0)  # 3.0 is 2.0 with names in UTF-8
    shape, _, dtype = read(stream)
    declared = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or (not dtype.hasobject and declared > nbytes):
        raise DataError(
            f"{source.path}: {name!r} declares shape {shape} of {dtype}, {declared} bytes, and holds "
            f"{nbytes}. Restore the file from a copy."
        )


def _check_member(archive: Any, key: str, source: Source) -> None:
    """Refuse an array of an archive whose declared sizes do not fit it, before it is read."""
    files: zipfile.ZipFile = archive.zip
    names = set(files.namelist())
    member = files.getinfo(key if key in names else f"{key}.npy")
    stored = source.file.stat().st_size
    deflated = member.compress_type == zipfile.ZIP_DEFLATED
    if member.compress_size > stored or (
        deflated and member.file_size > _MAX_DEFLATE * (member.compress_size + 1)
    ):
        raise DataError(
            f"{source.path}: {key!r} declares {member.compress_size} bytes that unpack to "
            f"{member.file_size}, and the file has {stored}. Restore the file from a copy."
        )
    check_size(source, repr(key), member.file_size)
    with files.open(member) as stream:
        if stream.read(len(np.lib.format.MAGIC_PREFIX)) != np.lib.format.MAGIC_PREFIX:
            return  # which NumPy gives as bytes
    with files.open(member) as stream:
        _check_header(source, key, stream, member.file_size)


def _array(archive: Any, key: str, source: Source) -> NDArray[Any]:
    _check_member(archive, key, source)
    try:
        values: NDArray[Any] = np.asarray(archive[key])
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise DataError(
            f"{source.path} holds Python objects under {key!r}; they are refused, since loading "
            "them can run code of the person who wrote the file. Save numbers or text arrays only."
        ) from error
    return values


def _texts(archive: Any, key: str, count: int | None, source: Source) -> tuple[str, ...] | None:
    if key not in archive.files:
        return None
    values = np.atleast_1d(_array(archive, key, source))
    if values.ndim != 1 or (count is not None and len(values) != count):
        raise DataError(
            f"{source.path} has {values.size} entries under {key!r} for {count} views; there must "
            "be one for each."
        )
    return tuple(map(as_text, values.tolist()))
