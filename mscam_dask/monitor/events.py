"""Events of a run around the fit, and all events as JSON lines."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from typing import IO

import msgspec

from mscam_dask.types.events import FitEvent

__all__ = ["Event", "FitResumed", "JsonLines", "StepFinished", "StepStarted", "event_name"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class StepStarted:
    """A step of a pipeline begins.

    Attributes
    ----------
    step : str
        "resume", "ingest", "validate", "start", "cluster", "evaluate", "write", "report" or
        "retain".
    """

    step: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class StepFinished:
    """A step of a pipeline is done.

    Attributes
    ----------
    step : str
    summary : str
        What came out, in a few words.
    notes : tuple of str
        Sentences the user should read, warnings among them.
    seconds : float
    """

    step: str
    summary: str
    notes: tuple[str, ...] = ()
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class FitResumed:
    """A fit goes on from a checkpoint: `FitStarted` and the records so far follow once more.

    Attributes
    ----------
    after_iteration : int
        Outer iterations that are done; 0 when only the setting is known.
    notes : tuple of str
        Damage that was passed over for an earlier checkpoint.
    """

    after_iteration: int
    notes: tuple[str, ...] = ()


Event = StepStarted | StepFinished | FitResumed | FitEvent


def event_name(kind: type) -> str:
    """Return an event's name in files and messages: ``FitStarted`` is "fit_started"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind.__name__).lower()


class JsonLines:
    """Writes every event as one line of JSON: event, time (UTC), and the event's fields.

    Parameters
    ----------
    stream : binary file
        Written to and flushed once for each event; what is not finite becomes null.
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
