"""A checkpointer in memory."""

from __future__ import annotations

from mscam_dask.data.checkpoints import Checkpoint

__all__ = ["Memory"]


class Memory:
    """Keeps every state, and hands out the one it is told to."""

    def __init__(self, snapshot: Checkpoint | None = None) -> None:
        self.start = snapshot
        self.saved: list[Checkpoint] = []

    def load(self) -> Checkpoint | None:
        return self.start

    def save(self, snapshot: Checkpoint) -> None:
        self.saved.append(snapshot)
