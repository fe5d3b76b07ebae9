"""Clones and pickles of estimators that have a cluster, callbacks or a checkpointer."""

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
    """Part of an estimator: clones share its cluster, callbacks and checkpointer; pickles do not.

    Notes
    -----
    A client is a connection of this process and is never pickled. Callbacks and a checkpointer
    are, unless they cannot be. What was left behind is None after loading, or missing among the
    callbacks; the model fits in its process then, with the same result.
    """

    client: Client | None
    callbacks: Sequence[Observer] | None
    checkpoint_store: CheckpointStore | None

    def __sklearn_clone__(self) -> Self:
        """An estimator of the same parameters, not fitted; see `sklearn.base.clone`."""
        bare = self.__copy__()
        for name in _SHARED:
            setattr(bare, name, None)
        cloned: Self = super(SharedResourcesMixin, bare).__sklearn_clone__()  # type: ignore[misc]
        for name in _SHARED:
            setattr(cloned, name, getattr(self, name))
        return cloned

    def __copy__(self) -> Self:
        """The same estimator once more, with all that it has: this process has it still."""
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled, and copied deeply."""
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
