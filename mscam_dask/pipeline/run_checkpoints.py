"""The checkpoints of a run: where they lie, no signal cuts one short, what they say is recorded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from mscam_dask.data.checkpoint import CheckpointStore
from mscam_dask.data.checkpoint_objects import ObjectCheckpoints
from mscam_dask.data.objects import Location, location
from mscam_dask.model.snapshot import Snapshot
from mscam_dask.pipeline.identity import ID_LENGTH, fit_id
from mscam_dask.pipeline.run_directory import RunDirectory
from mscam_dask.pipeline.settings import Settings

__all__ = ["RunCheckpoints", "check_reach", "place_of"]


def place_of(
    settings: Settings, directory: RunDirectory, *, clustering: str, start: str | None
) -> Location:
    """Return where the checkpoints of a fit lie.

    Parameters
    ----------
    settings, directory
        Of the run; below [output] checkpoints, a fit has a place of its own, which a run of the
        same fit in another directory finds again.
    clustering
        `mscam_dask.pipeline.identity.clustering_id`.
    start
        Name of the run that the fit starts from, which decides on its result too.
    """
    root = settings.output.checkpoints
    if root is None:
        return directory.checkpoints
    return location(root) / f"{settings.name}-{fit_id(clustering, start)[:ID_LENGTH]}"


def check_reach(settings: Settings) -> None:
    """Refuse a place for checkpoints that cannot be reached, before anything is computed.

    Raises
    ------
    ConfigurationError, DataError, TemporaryFailure
        See `mscam_dask.data.objects.reaching`.
    """
    root = settings.output.checkpoints
    if root is not None:
        _store(location(root) / "reach").load()


class RunCheckpoints:
    """See `mscam_dask.engine.checkpointing.Checkpointer`.

    Parameters
    ----------
    place
        Of the checkpoints.
    goes_on
        Told the outer iteration that a loaded checkpoint goes on after, and what was damaged.
    deferred
        Gives a context in which signals wait.
    """

    def __init__(
        self,
        place: Location,
        goes_on: Callable[[int, tuple[str, ...]], None],
        deferred: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.place = place
        self._store = _store(place)
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

    def clear(self) -> None:
        """Remove every state."""
        self._store.clear()


def _store(place: Location) -> CheckpointStore | ObjectCheckpoints:
    return CheckpointStore(place) if isinstance(place, Path) else ObjectCheckpoints(place)
