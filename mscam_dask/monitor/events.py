"""Events of the steps of a run, and all events as JSON lines and as messages to the scheduler."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Mapping
from typing import IO, Any, get_args

import msgspec

from mscam_dask.types.events import FitEvent


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class StepStarted:
    """Start of a step: resume, ingest, validate, start, cluster, evaluate, write, report or retain."""

    step: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class StepFinished:
    """End of a step: its result in a few words, and notes and warnings for the user."""

    step: str
    summary: str
    notes: tuple[str, ...] = ()
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class FitResumed:
    """Resume of a fit from a checkpoint, after iteration 0 with the settings only; previous events are sent again."""

    after_iteration: int
    notes: tuple[str, ...] = ()


Event = StepStarted | StepFinished | FitResumed | FitEvent


def event_name(kind: type) -> str:
    """Return the name of an event in files and messages: ``FitStarted`` is "fit_started"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind.__name__).lower()


class JsonLines:
    """Observer that writes every event as a line of JSON: name, time (UTC) and fields.

    Parameters
    ----------
    stream : binary file
        Flushed after each event. Numbers that are not finite become null.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def __call__(self, event: Event) -> None:
        record = {
            "event": event_name(type(event)),
            "time": dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"),
            **msgspec.to_builtins(event),
        }
        self._stream.write(msgspec.json.encode(record) + b"\n")
        self._stream.flush()


@dataclasses.dataclass(frozen=True, slots=True)
class RunAnnounced:
    """First message of a run, before its tasks: name, id of the Dask client, and the maximum of `n_clusters`."""

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
