"""A setting of the whole process that a fit needs while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

__all__ = ["RefCountedContext"]


class RefCountedContext:
    """Of fits that overlap the first to enter sets it, the last to leave restores it.

    Parameters
    ----------
    setting
        Gives a context that sets it on entering, or before, and restores it on leaving.
    """

    def __init__(self, setting: Callable[[], AbstractContextManager[Any]]) -> None:
        self._setting = setting
        self._lock = threading.Lock()
        self._depth = 0
        self._set: AbstractContextManager[Any] | None = None
        self._is_for_good = False

    def __enter__(self) -> Self:
        with self._lock:
            if self._depth == 0:
                self._set = self._setting()
                self._set.__enter__()
            self._depth += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0 and self._set is not None:
                self._set.__exit__(None, None, None)
                self._set = None

    def enter_permanently(self) -> None:
        """Set it once in this process and leave it so, unless a fit has it set."""
        if self._is_for_good or self._depth > 0:
            return
        with self._lock:
            if not self._is_for_good and self._depth == 0:
                self._setting().__enter__()
                self._is_for_good = True
