"""A checkpointer in memory."""

from __future__ import annotations

from mscam_dask.model.snapshot import Snapshot

__all__ = ["Memory"]


class Memory:
    """Keeps every state, and hands out the one it is told to."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self.start = snapshot
        self.saved: list[Snapshot] = []

    def load(self) -> Snapshot | None:
        return self.start

    def save(self, snapshot: Snapshot) -> None:
        self.saved.append(snapshot)
