"""MATLAB files of both kinds, as MATLAB writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import io, sparse


def cells(*arrays: Any) -> NDArray[np.object_]:
    array = np.empty((1, len(arrays)), dtype=object)
    for index, item in enumerate(arrays):
        array[0, index] = item
    return array


def save_version_5(path: Path, **variables: Any) -> Path:
    io.savemat(path, variables)
    return path


def save_compressed(path: Path, **variables: Any) -> Path:
    """Write as MATLAB does by default (-v7)."""
    io.savemat(path, variables, do_compression=True)
    return path


def save_version_73(path: Path, **variables: Any) -> Path:
    """Write as MATLAB does: a 512-byte header, columns first, cells as references."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w", userblock_size=512) as file:
        references = file.create_group("#refs#")
        for name, value in variables.items():
            _put(file, references, name, value)
    with path.open("r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")
    return path


def _put(file: Any, references: Any, name: str, value: Any, parent: Any = None) -> Any:
    parent = file if parent is None else parent
    if isinstance(value, sparse.csc_array):
        group = parent.create_group(name)
        group.attrs["MATLAB_class"] = np.bytes_("double")
        group.attrs["MATLAB_sparse"] = np.uint64(value.shape[0])
        if value.nnz:
            group["data"], group["ir"] = value.data, value.indices.astype(np.uint64)
        group["jc"] = value.indptr.astype(np.uint64)
        return group
    if isinstance(value, str):
        utf_16 = np.frombuffer(value.encode("utf-16-le"), dtype="<u2")
        node = parent.create_dataset(name, data=utf_16[:, None])
        node.attrs["MATLAB_class"] = np.bytes_("char")
        return node
    if not isinstance(value, dict) and value.dtype.kind == "U":  # rows padded with blanks
        rows = [
            np.frombuffer(text.encode("utf-16-le"), "<u2") for text in np.strings.ljust(value, 9)
        ]
        node = parent.create_dataset(name, data=np.stack(rows, axis=1))
        node.attrs["MATLAB_class"] = np.bytes_("char")
        return node
    if isinstance(value, dict):
        group = parent.create_group(name)
        group.attrs["MATLAB_class"] = np.bytes_("struct")
        for field, item in value.items():
            _put(file, references, field, item, group)
        return group
    if value.dtype == object:
        items = [
            _put(
                file, references, f"{parent.name}{name}_{index}".replace("/", ""), item, references
            ).ref
            for index, item in enumerate(value.ravel(order="F"))
        ]
        h5py = pytest.importorskip("h5py")
        node = parent.create_dataset(
            name, data=np.array(items, dtype=h5py.ref_dtype).reshape(value.shape[::-1])
        )
        node.attrs["MATLAB_class"] = np.bytes_("cell")
        return node
    node = parent.create_dataset(name, data=np.atleast_2d(value).T)
    matlab_class = {"float64": "double", "float32": "single"}.get(
        value.dtype.name, value.dtype.name
    )
    node.attrs["MATLAB_class"] = np.bytes_(matlab_class)
    return node
