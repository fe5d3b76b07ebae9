"""The store of a data set as cells read it: what was checked, or an error."""

from __future__ import annotations

import hashlib

from mscam_dask.benchmark.trial import StoredData
from mscam_dask.data.store.object_store import Location
from mscam_dask.data.store.read import open_store
from mscam_dask.data.views.as_multi_view import with_view_types
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.errors import TemporaryFailure

__all__ = ["read_stored", "stored_as"]


def stored_as(data: MultiViewData, store: Location) -> StoredData:
    """Return what tasks are told of a store, to read the same from it.

    Parameters
    ----------
    data
        As it is to be clustered: its metrics need not be those that the store recorded.
    store
        Where its values and labels are.
    """
    metrics = tuple(view.view_type for view in data.views)
    return StoredData(path=str(store), metrics=metrics, digest=_digest(data))


def read_stored(stored: StoredData) -> MultiViewData:
    """Open the store, its rows unread.

    Raises
    ------
    TemporaryFailure
        When it holds other data by now.
    DataError, StoreCorruptError, ConfigurationError
        When it cannot be opened.
    """
    data = open_store(stored.path)
    if len(data.views) == len(stored.metrics):
        data = with_view_types(data, stored.metrics)
    if _digest(data) != stored.digest:
        raise TemporaryFailure(
            f"{stored.path} has been replaced or has grown since this experiment began, whose fits "
            "are of the data there were. Start the experiment again: it takes the data there are now."
        )
    return data


def _digest(data: MultiViewData) -> str:
    """SHA-256 of views, as they are clustered, and labels."""
    digest = hashlib.sha256(data.digest().encode())
    if data.labels is not None:
        digest.update(data.labels.astype("<i8").tobytes())
    return digest.hexdigest()
