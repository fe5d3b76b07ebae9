"""Checkpoints of a run: their place, and a store that defers signals and records resumption."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from mscam_dask.data.checkpoints import Checkpoint, FileCheckpointStore, ObjectCheckpointStore
from mscam_dask.data.store.object_store import Location, as_location
from mscam_dask.pipeline.config.settings import Settings
from mscam_dask.pipeline.run.fingerprints import NAME_DIGITS, fit_fingerprint
from mscam_dask.pipeline.run.run_directory import RunDirectory

__all__ = ["RunCheckpoints", "check_reach", "place_of"]


def place_of(
    settings: Settings, directory: RunDirectory, *, clustering: str, start: str | None
) -> Location:
    """Return the place of the checkpoints of a fit.

    Parameters
    ----------
    settings, directory
        Settings and directory of the run. Below [output] checkpoints each fit has its own place, so a run of the same fit
        in another directory finds it.
    clustering
        `mscam_dask.pipeline.run.fingerprints.clustering_fingerprint`.
    start
        Name of the run that the fit starts from.
    """
    root = settings.output.checkpoints
    if root is None:
        return directory.checkpoints
    return as_location(root) / f"{settings.name}-{fit_fingerprint(clustering, start)[:NAME_DIGITS]}"


def check_reach(settings: Settings) -> None:
    """Refuse an unreachable place for checkpoints before anything is computed.

    Raises
    ------
    ConfigurationError, DataError, TemporaryFailure
        See `mscam_dask.data.store.object_store.translate_errors`.
    """
    root = settings.output.checkpoints
    if root is not None:
        _store(as_location(root) / "reach").load()


class RunCheckpoints:
    """Checkpoint store of a run; see `mscam_dask.engine.checkpoint.CheckpointStore`.

    Parameters
    ----------
    place
        Place of the checkpoints.
    record_resume
        Called with the last outer iteration of a loaded checkpoint, and with damaged files.
    writing
        Returns a context in which signals are deferred.
    """

    def __init__(
        self,
        place: Location,
        record_resume: Callable[[int, tuple[str, ...]], None],
        writing: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.place = place
        self._store = _store(place)
        self._record_resume = record_resume
        self._writing = writing

    def load(self) -> Checkpoint | None:
        """Return the last saved checkpoint; None without one."""
        checkpoint = self._store.load()
        if checkpoint is not None:
            self._record_resume(int(checkpoint.record["iteration"]), self._store.damage)
        return checkpoint

    def save(self, checkpoint: Checkpoint) -> None:
        """Save a checkpoint, which survives the process when this returns."""
        with self._writing():
            self._store.save(checkpoint)

    def clear(self) -> None:
        """Remove every checkpoint."""
        self._store.clear()


def _store(place: Location) -> FileCheckpointStore | ObjectCheckpointStore:
    return FileCheckpointStore(place) if isinstance(place, Path) else ObjectCheckpointStore(place)
