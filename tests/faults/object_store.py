"""Objects in memory whose n-th operation fails: undone, half done, or done and not answered."""

from __future__ import annotations

import errno
from typing import Any, Literal

from tests.data.object_servers import MemoryFiles

__all__ = ["RESET", "FailingFiles", "How"]

RESET = "the connection was reset"
How = Literal["undone", "half done", "done", "killed"]


class FailingFiles(MemoryFiles):
    """Objects of which operation `position` (from 0) fails, and with "killed" all after it.

    Attributes
    ----------
    done : int
        Operations so far.
    """

    def __init__(
        self,
        content: dict[str, bytes] | None = None,
        position: int | None = None,
        how: How = "undone",
    ) -> None:
        super().__init__()
        self.content = dict(content or {})
        self._position = position
        self._how = how
        self.done = 0

    def cat_file(self, path: str, start: Any = None, end: Any = None, **options: Any) -> bytes:
        if self._fails():
            raise self._error(path)
        return super().cat_file(path, start, end, **options)

    def pipe_file(self, path: str, value: bytes, **options: Any) -> None:
        fails = self._fails()
        if not fails or self._how == "done":  # a PUT is whole or nothing
            super().pipe_file(path, value, **options)
        if fails:
            raise self._error(path)

    def find(self, path: str, **options: Any) -> dict[str, Any]:
        if self._fails():
            raise self._error(path)
        return super().find(path, **options)

    def info(self, path: str, **options: Any) -> dict[str, str]:
        if self._fails():
            raise self._error(path)
        return super().info(path, **options)

    def rm(self, path: list[str], **options: Any) -> None:
        if not self._fails():
            super().rm(path, **options)
            return
        share = {"done": len(path), "half done": len(path) // 2}.get(self._how, 0)
        super().rm(path[:share], **options)
        raise self._error(path[0])

    def _fails(self) -> bool:
        number = self.done
        self.done += 1
        if self._position is None:
            return False
        return number >= self._position if self._how == "killed" else number == self._position

    @staticmethod
    def _error(name: str) -> OSError:
        return OSError(errno.EIO, RESET, name)
