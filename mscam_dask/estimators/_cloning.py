"""Clones and pickles of estimators with a client, callbacks or a checkpoint store."""

from __future__ import annotations

from collections.abc import Sequence
from pickle import PicklingError, dumps
from typing import TYPE_CHECKING, Any, Self

from mscam_dask.engine.checkpoint import CheckpointStore
from mscam_dask.engine.fit import Observer

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["SharedResourcesMixin"]

_SHARED = ("client", "callbacks", "checkpoint_store")


class SharedResourcesMixin:
    """Mixin for estimators: clones share client, callbacks and checkpoint store; pickles do not.

    Notes
    -----
    A client is a connection of this process and is never pickled. Callbacks and checkpoint store
    are pickled if they can be. After loading, an omitted client or checkpoint store is None and
    omitted callbacks are missing; the model then fits in its own process, with the same result.
    """

    client: Client | None
    callbacks: Sequence[Observer] | None
    checkpoint_store: CheckpointStore | None

    def __sklearn_clone__(self) -> Self:
        """Unfitted estimator with the same parameters; see `sklearn.base.clone`."""
        bare = self.__copy__()
        for name in _SHARED:
            setattr(bare, name, None)
        cloned: Self = super(SharedResourcesMixin, bare).__sklearn_clone__()  # type: ignore[misc]
        for name in _SHARED:
            setattr(cloned, name, getattr(self, name))
        return cloned

    def __copy__(self) -> Self:
        """Shallow copy with client, callbacks and checkpoint store, which are valid in this process."""
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def __getstate__(self) -> dict[str, Any]:
        """State for pickles and deep copies."""
        state: dict[str, Any] = {**super().__getstate__(), "client": None}  # type: ignore[dict-item]
        if self.callbacks is not None:
            state["callbacks"] = tuple(filter(_can_be_pickled, self.callbacks))
        if not _can_be_pickled(self.checkpoint_store):
            state["checkpoint_store"] = None
        return state


def _can_be_pickled(value: object) -> bool:
    try:
        dumps(value)
    except (PicklingError, TypeError, AttributeError):
        return False
    return True
