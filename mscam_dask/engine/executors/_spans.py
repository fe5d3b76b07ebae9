"""Dask spans of a fit: one for each setting and outer iteration, by which the dashboard groups tasks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dask.base import get_annotations

_TOP = "mscam"

MAX_CACHED_KEYS = 2000
"""Keys of tasks that Dask's cache of key prefixes may hold before it is emptied."""


def phase_of(first: str) -> str | None:
    """Phase named by the first part of a key after the function: an iteration, a setting, or None."""
    if first.isdecimal():
        return f"outer iteration {int(first) + 1}"
    setting = re.fullmatch(r"setting-\d+-(\d+)", first)
    return None if setting is None else f"setting {int(setting[1]) + 1}"


class Spans:
    """Span annotations of a fit: one span for each outer iteration or setting, "set-up", "result".

    All fits on a cluster share these spans. Dask's scheduler and workers keep totals for every
    span they have seen, so spans of its own for each fit would grow without bound.
    """

    def __init__(self) -> None:
        self._has_iterated = False

    def annotation(self, phase: str | None) -> dict[str, tuple[str, ...]]:
        """Return the annotation of a task in a phase, or of one before or after all phases."""
        self._has_iterated |= phase is not None and phase.startswith("outer")
        name = phase or ("result" if self._has_iterated else "set-up")
        caller = get_annotations().get("span", {"name": (), "ids": ()})
        top = "/".join((*caller["ids"][-1:], _TOP))
        return {
            "name": (*caller["name"], _TOP, name),
            "ids": (*caller["ids"], top, f"{top}/{name}"),
        }


def scheduler_cleaner() -> Callable[..., None]:
    """Return a function for the scheduler that drops what it keeps of the tasks of ended fits.

    Dask's spans keep every task group and one record for each task submitted; its cache of key
    prefixes keeps 100 000 keys. The function is nested so that it is pickled by value: the
    scheduler may not have this package.
    """

    def clean(dask_scheduler: Any, top: str = _TOP, max_keys: int = MAX_CACHED_KEYS) -> None:
        from dask.utils import key_split

        if key_split.cache_info().currsize > max_keys:
            key_split.cache_clear()
        extension = dask_scheduler.extensions.get("spans")
        for span in () if extension is None else list(extension.spans_search_by_tag.get(top, ())):
            ended = [group for group in span.groups if group.name not in dask_scheduler.task_groups]
            span.groups.difference_update(ended)
            metadata = getattr(span, "_metadata", None)
            if metadata:
                del metadata["collections"][1:]

    return clean
