"""Arrays of a checkpoint as the files of a Zarr v3 group, made and read in memory.

So that the bytes that are digested, written, read back and compared are the same bytes, and every
operation on the disk is the caller's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.store.write import CHUNK_BYTES, create_array

__all__ = ["decode_arrays", "encode_array", "encode_group"]

_KINDS = "iuf"
_NAMES = "arrays"


def encode_group(names: Sequence[str]) -> dict[str, bytes]:
    """Metadata of the root group, which lists the arrays."""
    import zarr

    files: dict[str, Any] = {}
    zarr.open_group(
        _memory(files), mode="w-", zarr_format=3, attributes={_NAMES: [str(name) for name in names]}
    )
    return {path: buffer.to_bytes() for path, buffer in files.items()}


def encode_array(
    name: str, values: NDArray[Any], *, chunk_bytes: int = CHUNK_BYTES
) -> dict[str, bytes]:
    """Files of one array, by path inside the group: metadata and chunks of `chunk_bytes` at most."""
    import zarr

    if values.dtype.kind not in _KINDS:
        raise TypeError(f"array {name!r} has dtype {values.dtype}; a checkpoint holds numbers")
    if not name.isidentifier():
        raise ValueError(f"array name {name!r} is no identifier; it becomes a directory")
    files: dict[str, Any] = {}
    group = zarr.open_group(_memory(files), mode="w-", zarr_format=3)
    width = max(1, int(np.prod(values.shape[1:])) * values.itemsize)
    rows = max(1, min(len(values), chunk_bytes // width))
    chunks = (rows, *(max(1, size) for size in values.shape[1:]))
    dims = tuple(f"dim_{axis}" for axis in range(values.ndim))
    dtype = values.dtype.newbyteorder("<")
    array = create_array(group, name, values.shape, chunks, dtype, dims, nested=False)
    array[:] = values
    return {path: buffer.to_bytes() for path, buffer in files.items() if path != "zarr.json"}


def decode_arrays(files: Mapping[str, bytes]) -> dict[str, NDArray[Any]]:
    """Arrays of a group from its files, whose digests were compared before.

    Raises
    ------
    ValueError
        When the files are no such group.
    """
    import zarr
    from zarr.core.buffer import default_buffer_prototype

    make = default_buffer_prototype().buffer.from_bytes
    store = _memory({path: make(content) for path, content in files.items()})
    group = zarr.open_group(store, mode="r", zarr_format=3, use_consolidated=False)
    arrays = {}
    names: Any = group.attrs[_NAMES]
    for name in names:
        array: Any = group[str(name)]
        arrays[str(name)] = np.asarray(array[...])
    return arrays


def _memory(files: dict[str, Any]) -> Any:
    from zarr.storage import MemoryStore

    return MemoryStore(files)
