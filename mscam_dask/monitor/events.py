"""Events of the steps of a run, as JSON lines and as messages to the scheduler, and the state of a fit from its events."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections import deque
from collections.abc import Mapping
from typing import IO, Any, get_args

import msgspec

from mscam_dask.types.events import (
    FitEvent,
    FitFailed,
    FitFinished,
    FitStarted,
    IterationFinished,
    NClustersSelected,
    RefinementFinished,
    SettingsSelected,
)


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


# state of a fit ----------------------------------------------------------------------------------


MAX_ITERATIONS = 400
_RECENT = 5  # iterations whose mean time predicts the next ones


class FitState:
    """Start, selections, latest iterations and end of a fit, and an upper bound of the time left."""

    def __init__(self) -> None:
        self.started: FitStarted | None = None
        self.n_clusters_selected: NClustersSelected | None = None
        self.settings_selected: SettingsSelected | None = None
        self.iterations: deque[IterationFinished] = deque(maxlen=MAX_ITERATIONS)
        self.refined: RefinementFinished | None = None
        self.end: FitFinished | FitFailed | None = None

    def add(self, event: Event) -> None:
        """Update the state with an event; after a resume, those of all iterations are sent again."""
        match event:
            case FitStarted():
                self.started = event
                self.n_clusters_selected = self.settings_selected = self.refined = self.end = None
                self.iterations.clear()
            case NClustersSelected():
                self.n_clusters_selected = event
            case SettingsSelected():
                self.settings_selected = event
            case IterationFinished():
                self.iterations.append(event)
            case RefinementFinished():
                self.refined = event
            case FitFinished() | FitFailed():
                self.end = event

    @property
    def n_done(self) -> int:
        """Number of finished iterations."""
        return self.iterations[-1].iteration + 1 if self.iterations else 0

    @property
    def max_iter(self) -> int | None:
        """Maximum number of iterations; None if there is none, or before the settings are selected."""
        return None if self.settings_selected is None else self.settings_selected.max_iter

    @property
    def n_done_of_max(self) -> str:
        """Number of finished iterations and, once it is known, the maximum: "1/6"."""
        return f"{self.n_done}" if self.max_iter is None else f"{self.n_done}/{self.max_iter}"

    @property
    def eta_s(self) -> float | None:
        """Seconds that all iterations up to `max_iter` would take; None without it, or before the first one."""
        recent = [record.seconds for record in [*self.iterations][-_RECENT:]]
        if self.max_iter is None or not recent:
            return None
        return (self.max_iter - self.n_done) * sum(recent) / len(recent)
