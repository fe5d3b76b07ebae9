"""The checkpoints of a run: no signal cuts one short, and what they say is recorded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from mscam_dask.data.checkpoint import CheckpointStore
from mscam_dask.model.snapshot import Snapshot

__all__ = ["RunCheckpoints"]


class RunCheckpoints:
    """See `mscam_dask.engine.checkpointing.Checkpointer`.

    Parameters
    ----------
    directory
        Of the checkpoints.
    goes_on
        Told the outer iteration that a loaded checkpoint goes on after, and what was damaged.
    deferred
        Gives a context in which signals wait.
    """

    def __init__(
        self,
        directory: Path,
        goes_on: Callable[[int, tuple[str, ...]], None],
        deferred: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._store = CheckpointStore(directory)
        self._goes_on = goes_on
        self._deferred = deferred

    def load(self) -> Snapshot | None:
        """The state saved last; None when there is none."""
        snapshot = self._store.load()
        if snapshot is not None:
            self._goes_on(int(snapshot.record["iteration"]), self._store.damage)
        return snapshot

    def save(self, snapshot: Snapshot) -> None:
        """Keep a state; when this returns it survives the process."""
        with self._deferred():
            self._store.save(snapshot)
