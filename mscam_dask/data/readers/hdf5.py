"""HDF5 files (MATLAB v7.3, NetCDF-4, AnnData, MuData), checked before anything of them is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from importlib import import_module
from typing import Any

from mscam_dask.data.readers.base import Source, check_lazy_size, check_size, needing
from mscam_dask.data.views.sources import BLOCK_BYTES
from mscam_dask.errors import DataError


def open_hdf5(
    source: Source,
    stack: ExitStack,
    *,
    extra: str,
    needs: Sequence[str] = ("h5py",),
    instead: str = "convert it",
) -> Any:
    """Open a file that `check_hdf5` passes; else say which `extra` installs what it needs, or what to do `instead`."""
    with needing(source, f"'mscam-dask[{extra}]'", instead):
        h5py, *_ = map(import_module, needs)
    file = stack.enter_context(h5py.File(source.file, "r"))
    check_hdf5(file, source)
    return file


def check_hdf5(node: Any, source: Source) -> None:
    """Refuse a group or dataset that reads other files, or whose declared sizes are too large."""
    import h5py

    if isinstance(node, h5py.Dataset):
        _check_dataset(node, source)
    if not isinstance(node, h5py.Group):
        return
    links: list[tuple[str, Any]] = []
    node.visititems_links(lambda name, link: links.append((name, link)))
    for name, link in links:
        if isinstance(link, h5py.HardLink) and isinstance(node[name], h5py.Dataset):
            _check_dataset(node[name], source)
        elif not isinstance(link, h5py.HardLink | h5py.SoftLink):
            raise _elsewhere(source, name, "is a link to another file")


def _check_dataset(dataset: Any, source: Source) -> None:
    import h5py

    name, plan = dataset.name or "a dataset without a name", dataset.id.get_create_plist()
    if plan.get_external_count():
        raise _elsewhere(source, name, f"has its values in {plan.get_external(0)[0].decode()}")
    if plan.get_layout() == h5py.h5d.VIRTUAL:
        raise _elsewhere(source, name, "is virtual, with its values in other datasets or files")
    for attribute in ("DIMENSION_LIST", "REFERENCE_LIST"):
        if attribute in dataset.attrs and not _are_scales(dataset, attribute):
            raise DataError(
                f"{source.path}: attribute {attribute} of {name!r} is no list of dimension scales. "
                "Restore the file from a copy."
            )
    if dataset.shape is None:
        return
    stored = dataset.id.get_storage_size()
    check_lazy_size(source, repr(name), dataset, chunks=dataset.chunks, stored_bytes=stored)
    if dataset.chunks is None and stored > source.file.stat().st_size:
        raise DataError(
            f"{source.path}: {name!r} declares {math.prod(dataset.shape)} values, more than the file "
            "holds. Restore it from a copy."
        )


def _are_scales(dataset: Any, attribute: str) -> bool:
    """Return whether HDF5 can read an attribute of dimension scales: else it writes past a buffer."""
    import h5py

    found = dataset.attrs.get_id(attribute)
    if attribute == "DIMENSION_LIST":
        item = h5py.check_vlen_dtype(found.dtype)
        is_right = item is not None and found.shape == (dataset.ndim,)
    else:
        fields = found.dtype.fields or {}
        item = fields["dataset"][0] if list(fields) == ["dataset", "dimension"] else None
        is_right = len(found.shape) == 1 and item and fields["dimension"][0].kind in "iu"
    return bool(is_right) and h5py.check_ref_dtype(item) is not None


def _elsewhere(source: Source, name: str, fault: str) -> DataError:
    return DataError(
        f"{source.path}: {name!r} {fault}; what refers to another file is refused. Copy its values "
        "into the file (in Python: new[name] = old[name][()])."
    )


def in_memory(dataset: Any, source: Source) -> Any:
    """All values of a dataset, if they fit into the source's limit."""
    check_size(source, repr(dataset.name), dataset.size * dataset.dtype.itemsize)
    return dataset[()]


def by_blocks(dataset: Any, axis: int = 0) -> Any:
    """A dataset as a Dask array, in whole chunks of the file along the `axis` of the samples."""
    import dask.array as da

    row_bytes = dataset.dtype.itemsize * dataset.size // max(1, dataset.shape[axis])
    rows = max(1, min(dataset.shape[axis], BLOCK_BYTES // max(1, row_bytes)))
    in_chunk = dataset.chunks[axis] if dataset.chunks else 1
    shape = list(dataset.shape)
    shape[axis] = max(in_chunk, rows - rows % in_chunk)
    return da.from_array(dataset, chunks=tuple(shape), name=False)
