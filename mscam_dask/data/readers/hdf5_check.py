"""Check of an HDF5 file before its values are read (MATLAB v7.3, NetCDF-4).

An HDF5 file can name other files: external raw storage, external links, and virtual datasets. They are
refused, since they copy bytes of files that the user never named into a store.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn

from mscam_dask.data.readers.base import Source, check_lazy_size
from mscam_dask.errors import DataError

__all__ = ["check_hdf5"]


def check_hdf5(node: Any, source: Source) -> None:
    """Refuse a file, group or dataset that reads other files, or whose declared sizes are too large.

    Parameters
    ----------
    node
        h5py file, group or dataset. What a reference leads to need not be linked from the root: it is
        checked when it is reached.
    source
        The file, for messages and its limit.

    Raises
    ------
    DataError
        With the name of the dataset or link.
    """
    import h5py

    seen: set[int] = set()
    waiting = [node]
    while waiting:
        current = waiting.pop()
        address = int(h5py.h5o.get_info(current.id).addr)
        if address in seen:
            continue
        seen.add(address)
        if isinstance(current, h5py.Dataset):
            _check_dataset(current, source)
        elif isinstance(current, h5py.Group):
            waiting.extend(_members(current, source))


def _members(group: Any, source: Source) -> list[Any]:
    """The objects of a group; soft links lead to these or to nothing."""
    members = []
    for name in list(group):
        kind = group.id.links.get_info(name.encode("utf-8", "surrogateescape")).type
        if kind == _link_type("TYPE_HARD"):
            members.append(group[name])
        elif kind != _link_type("TYPE_SOFT"):
            _refuse(source, f"{group.name.rstrip('/')}/{name}", "is a link to another file")
    return members


def _link_type(name: str) -> int:
    import h5py

    return int(getattr(h5py.h5l, name))


def _check_dataset(dataset: Any, source: Source) -> None:
    import h5py

    name = dataset.name or "a dataset without a name"
    plan = dataset.id.get_create_plist()
    if plan.get_external_count():
        files = sorted(plan.get_external(i)[0].decode() for i in range(plan.get_external_count()))
        _refuse(source, name, f"has its values in another file ({', '.join(files[:3])})")
    if plan.get_layout() == h5py.h5d.VIRTUAL:
        _refuse(source, name, "is a virtual dataset, whose values are in other datasets or files")
    if dataset.shape is None:
        return
    chunks = dataset.chunks
    check_lazy_size(
        source,
        repr(name),
        shape=dataset.shape,
        item_bytes=dataset.dtype.itemsize,
        chunks=chunks,
        stored_bytes=dataset.id.get_storage_size(),
    )
    if chunks is None and dataset.id.get_storage_size() > source.file.stat().st_size:
        raise DataError(
            f"{source.path}: {name!r} declares {math.prod(dataset.shape)} values, more than the file "
            "holds. Restore it from a copy."
        )


def _refuse(source: Source, name: str, fault: str) -> NoReturn:
    raise DataError(
        f"{source.path}: {name!r} {fault}; a file is read without what lies elsewhere. Copy its values "
        "into the file (in Python: new[name] = old[name][()])."
    )
