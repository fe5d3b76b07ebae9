"""Messages between driver and scheduler: events as plain values, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from mscam_dask.monitor.events import Event, event_name
from mscam_dask.types.events import FitEvent

__all__ = ["RunAnnounced", "decode", "encode"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RunAnnounced:
    """First message of a run, before any of its tasks.

    Attributes
    ----------
    name : str
        Display name, not necessarily unique.
    client : str
        Id of the Dask client of its tasks.
    views : tuple of str
    n_samples : int
    n_clusters : int
        Number of clusters; the maximum until `FitStarted`, if it is selected.
    """

    name: str
    client: str
    views: tuple[str, ...]
    n_samples: int
    n_clusters: int


_KINDS = {event_name(kind): kind for kind in (RunAnnounced, *get_args(FitEvent))}


def encode(event: Event | RunAnnounced) -> dict[str, Any] | None:
    """Return an event as a message of plain values; None for events that are not sent."""
    kind = event_name(type(event))
    if kind not in _KINDS:
        return None
    return {"event": kind, **msgspec.to_builtins(event)}


def decode(payload: object) -> tuple[str, Any]:
    """Return the run id and the event of a message; None for an unknown event."""
    if not isinstance(payload, Mapping):
        return "", None
    kind = _KINDS.get(str(payload.get("event")))
    if kind is None:
        return "", None
    fields = {name: value for name, value in payload.items() if name not in ("event", "run")}
    try:
        return str(payload.get("run")), msgspec.convert(fields, type=kind)
    except msgspec.ValidationError:
        return "", None
