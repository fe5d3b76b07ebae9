"""An object store in memory whose n-th operation fails: undone, half done, or done and not answered."""

from __future__ import annotations

import errno
from typing import Literal

__all__ = ["RESET", "FailingObjects", "How", "MemoryObjects"]

RESET = "the connection was reset"
How = Literal["undone", "half done", "done", "killed"]


class MemoryObjects:
    """Objects by name; see `mscam_dask.data.checkpoints.Objects`."""

    def __init__(self, content: dict[str, bytes] | None = None) -> None:
        self.content = dict(content or {})

    def put(self, name: str, content: bytes) -> None:
        self.content[name] = content

    def get(self, name: str) -> bytes:
        try:
            return self.content[name]
        except KeyError as error:
            raise FileNotFoundError(name) from error

    def names(self) -> list[str]:
        return sorted(self.content)

    def remove(self, names: list[str]) -> None:
        for name in names:
            self.content.pop(name, None)


class FailingObjects:
    """Objects of which operation `position` (from 0) fails, and with "killed" all after it.

    Attributes
    ----------
    done : int
        Operations so far.
    """

    def __init__(self, store: MemoryObjects, position: int | None, how: How = "undone") -> None:
        self._store = store
        self._position = position
        self._how = how
        self.done = 0

    def put(self, name: str, content: bytes) -> None:
        if not self._fails():
            self._store.put(name, content)
            return
        if self._how == "done":  # a PUT is whole or nothing
            self._store.put(name, content)
        raise self._error(name)

    def get(self, name: str) -> bytes:
        if self._fails():
            raise self._error(name)
        return self._store.get(name)

    def names(self) -> list[str]:
        if self._fails():
            raise self._error("")
        return self._store.names()

    def remove(self, names: list[str]) -> None:
        if not self._fails():
            self._store.remove(names)
            return
        share = {"done": len(names), "half done": len(names) // 2}.get(self._how, 0)
        self._store.remove(names[:share])
        raise self._error(names[0])

    def _fails(self) -> bool:
        number = self.done
        self.done += 1
        if self._position is None:
            return False
        return number >= self._position if self._how == "killed" else number == self._position

    @staticmethod
    def _error(name: str) -> OSError:
        return OSError(errno.EIO, RESET, name)
