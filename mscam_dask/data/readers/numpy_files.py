"""NumPy archives (.npz) and arrays (.npy)."""

from __future__ import annotations

import math
import re
from contextlib import ExitStack, nullcontext, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.base import (
    Selection,
    Source,
    SourceContents,
    check_row_size,
    check_size,
    unreadable,
)
from mscam_dask.data.readers.named_arrays import (
    contents_of,
    ids_in,
    labels_in,
    may_be_usual,
    one_table,
)
from mscam_dask.data.sparse import sparse_from_parts
from mscam_dask.data.views.conversion import CERTAIN, as_text, id_strength
from mscam_dask.errors import DataError

_NUMBERED = re.compile(r"view_(\d+)")
_DESCRIPTIVE = ("view_names", "kind")  # of numbered views


def load_npy(source: Source, **options: Any) -> NDArray[Any]:
    """The array of a .npy file of numbers or text."""
    with source.file.open("rb") as stream:
        shape, dtype = _header(stream, source)
        n_bytes = stream.tell() + math.prod(shape) * dtype.itemsize
    if n_bytes < source.file.stat().st_size:
        raise DataError(
            f"{source.path} has data behind its first array, of shape {shape}, which np.load does not read. Save each array in "
            "a file of its own, or all in one with np.savez."
        )
    return np.asanyarray(np.load(source.file, allow_pickle=False, **options))


def _header(stream: Any, source: Source, where: str = "") -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type that an array declares, which are not those of Python objects."""
    is_first = np.lib.format.read_magic(stream) == (1, 0)
    shape, _, dtype = (
        np.lib.format.read_array_header_1_0(stream)
        if is_first
        else np.lib.format.read_array_header_2_0(stream)
    )
    if dtype.hasobject:
        raise DataError(
            f"{source.path} holds Python objects{where}; they are refused, since loading them can run code of the person "
            "who wrote the file. Save numbers or text arrays only (values.astype(float), labels.astype(str))"
            f"{', or name the other arrays as views (--view NAME)' if where else ''}."
        )
    return shape, dtype


def read_npy(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:  # noqa: ARG001 - a reader's signature
    """Read one (n, d) array, or V kernels (n, n, V), mapped into memory rather than loaded."""
    with unreadable(source, "a NumPy array (.npy) of numbers"):
        values = load_npy(source, mmap_mode="r")
        if values.ndim == 3:
            return contents_of({source.view_name: values}, source, selection)
        return one_table(values, source)


def read_npz(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:
    """Read an archive with view_0, view_1, ..., of scipy.sparse.save_npz, or under other names."""
    with unreadable(source, "a NumPy archive (.npz) of numbers", unpacks=True):
        # Opened here: np.load leaves a damaged archive open.
        stream = stack.enter_context(source.file.open("rb"))
        archive = stack.enter_context(np.load(stream, allow_pickle=False))
        keys = list(archive.files)
        if {"format", "shape", "data"} <= set(keys) and not _array(archive, "format", source).ndim:
            return one_table(_sparse_matrix(archive, source), source)
        numbered = sorted(filter(_NUMBERED.fullmatch, keys), key=lambda key: int(key[5:]))
        texts = {
            key: _texts(archive, key, source) for key in _DESCRIPTIVE if key in keys and numbered
        }
        names = texts.get("view_names", numbered)
        kinds = texts.get("kind", ["features"] * len(numbered))
        for key, found in (("view_names", names), ("kind", kinds)):
            if len(found) != len(numbered):
                raise DataError(
                    f"{source.path} has {len(found)} entries under {key!r} for {len(numbered)} views; there must "
                    "be one for each."
                )
        name_of = dict(zip(numbered, names, strict=True))
        variables: dict[str, Any] = {}
        left: list[str] = []
        for key in (*numbered, *(key for key in keys if key not in {*numbered, *texts})):
            name = name_of.get(key, key)
            if name in (*variables, *left):
                raise DataError(
                    f"{source.path} has two arrays called {name!r}; names must be unique. Rename one of them."
                )
            may_be_view = key in name_of or not numbered
            has_role = key == selection.labels or may_be_usual(key)
            has_role = has_role or id_strength(key) == CERTAIN
            is_wanted = not selection.views or any(
                each.startswith(name) for each in selection.views
            )
            if may_be_view and not (has_role or is_wanted):
                left.append(name)
                continue
            value = None
            with (
                nullcontext() if may_be_view or has_role else suppress(DataError)
            ):  # objects are no ids
                value = _array(archive, key, source)
            if may_be_view or labels_in(value) is not None or ids_in(value):
                variables[name] = value
            else:
                variables[name] = f"beside {numbered[0]}"
        is_view = "sample_ids" in (selection.views or ())
        ids = () if is_view else ids_in(variables.get("sample_ids"))
        if ids:  # also repeated ones, or too few, which are refused later
            del variables["sample_ids"]
        types = dict(zip(names, kinds, strict=True))
        return contents_of(
            variables, source, selection, sample_ids=ids or None, skipped=left, view_types=types
        )


def _sparse_matrix(archive: Any, source: Source) -> Any:
    """The matrix of an archive that scipy.sparse.save_npz wrote."""
    known = ("data", "indices", "indptr", "coords", "offsets", "row", "col", "format", "shape")
    parts: dict[str, Any] = {
        name: _array(archive, name, source) for name in known if name in archive.files
    }
    if {"row", "col"} <= set(parts):
        parts["coords"] = (parts["row"], parts["col"])
    form, shape = as_text(parts.pop("format").item()), parts.pop("shape")
    return check_row_size(sparse_from_parts(form, parts, shape, str(source.path)), source)


def _texts(archive: Any, key: str, source: Source) -> list[str]:
    """The texts under a key."""
    return [as_text(item) for item in _array(archive, key, source).ravel().tolist()]


def _array(archive: Any, key: str, source: Source) -> NDArray[Any]:
    """An array of an archive, once its sizes and type have been looked at."""
    names = archive.zip.namelist()
    member = archive.zip.getinfo(key if key in names else f"{key}.npy")
    check_size(source, repr(key), member.file_size)
    with archive.zip.open(member) as stream:
        shape, dtype = _header(stream, source, f" under {key!r}")
    if math.prod(shape) * dtype.itemsize > member.file_size:
        raise ValueError(f"{key!r} declares shape {shape}, more than its {member.file_size} bytes")
    return np.asarray(archive[key])
