"""The checkpoints of a run: where they lie, no signal cuts one short, what they say is recorded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from mscam_dask.data.checkpoint_objects import ObjectCheckpointStore
from mscam_dask.data.checkpoints import FileCheckpointStore
from mscam_dask.data.store.object_store import Location, as_location
from mscam_dask.pipeline.config.settings import Settings
from mscam_dask.pipeline.run.fingerprints import NAME_DIGITS, fit_fingerprint
from mscam_dask.pipeline.run.run_directory import RunDirectory
from mscam_dask.types.checkpoint import Checkpoint

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
        `mscam_dask.pipeline.run.fingerprints.clustering_fingerprint`.
    start
        Name of the run that the fit starts from, which decides on its result too.
    """
    root = settings.output.checkpoints
    if root is None:
        return directory.checkpoints
    return as_location(root) / f"{settings.name}-{fit_fingerprint(clustering, start)[:NAME_DIGITS]}"


def check_reach(settings: Settings) -> None:
    """Refuse a place for checkpoints that cannot be reached, before anything is computed.

    Raises
    ------
    ConfigurationError, DataError, TemporaryFailure
        See `mscam_dask.data.store.object_store.translate_errors`.
    """
    root = settings.output.checkpoints
    if root is not None:
        _store(as_location(root) / "reach").load()


class RunCheckpoints:
    """See `mscam_dask.engine.checkpoint.CheckpointStore`.

    Parameters
    ----------
    place
        Of the checkpoints.
    record_resume
        Told the outer iteration that a loaded checkpoint goes on after, and what was damaged.
    deferred
        Gives a context in which signals wait.
    """

    def __init__(
        self,
        place: Location,
        record_resume: Callable[[int, tuple[str, ...]], None],
        deferred: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.place = place
        self._store = _store(place)
        self._goes_on = record_resume
        self._deferred = deferred

    def load(self) -> Checkpoint | None:
        """The state saved last; None when there is none."""
        snapshot = self._store.load()
        if snapshot is not None:
            self._goes_on(int(snapshot.record["iteration"]), self._store.damage)
        return snapshot

    def save(self, snapshot: Checkpoint) -> None:
        """Keep a state; when this returns it survives the process."""
        with self._deferred():
            self._store.save(snapshot)

    def clear(self) -> None:
        """Remove every state."""
        self._store.clear()


def _store(place: Location) -> FileCheckpointStore | ObjectCheckpointStore:
    return FileCheckpointStore(place) if isinstance(place, Path) else ObjectCheckpointStore(place)
