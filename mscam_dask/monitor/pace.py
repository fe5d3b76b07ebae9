"""How far a fit is and how long it can still take, and the words in which it is said."""

from __future__ import annotations

import datetime as dt
from collections import deque

from mscam_dask.model.records import (
    ClusterCountEnded,
    FitEnded,
    FitStarted,
    OuterRecord,
    SelectionEnded,
)
from mscam_dask.monitor.events import Event, FitResumed

__all__ = [
    "Pace",
    "count_sentence",
    "duration",
    "end_sentence",
    "fit_sentence",
    "largest_residual",
    "printable",
    "resumed_sentence",
    "setting_sentence",
]

_RECENT = 5  # iterations whose mean time is taken for the next ones'


class Pace:
    """How far a fit is, and how long it can still take."""

    def __init__(self) -> None:
        self.started: FitStarted | None = None
        self.n_done = 0
        self._recent: deque[float] = deque(maxlen=_RECENT)

    def add(self, event: Event) -> None:
        if isinstance(event, FitStarted):
            self.started, self.n_done = event, 0
            self._recent.clear()
        elif isinstance(event, OuterRecord):
            self.n_done += 1
            self._recent.append(event.seconds)

    @property
    def at_most(self) -> str:
        """What the iterations left would take at the recent pace, if all of them are needed."""
        seconds = self.at_most_s
        return "unknown" if seconds is None else duration(seconds)

    @property
    def at_most_s(self) -> float | None:
        """The same in seconds; None before the first iteration."""
        if self.started is None or not self._recent:
            return None
        left = self.started.max_outer_iter - self.n_done
        return left * sum(self._recent) / len(self._recent)


def printable(text: str) -> str:
    r"""Escape control characters, which names that come from data may hold.

    Examples
    --------
    >>> printable("pix\x1b[31m els")
    'pix\\x1b[31m els'
    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def duration(seconds: float) -> str:
    """Return seconds as h:mm:ss, rounded."""
    return str(dt.timedelta(seconds=round(seconds)))


def largest_residual(record: OuterRecord) -> float:
    """Return the largest primal residual of the views."""
    return max((view.primal_residual for view in record.views), default=0.0)


def fit_sentence(event: FitStarted) -> str:
    """Say what is being clustered."""
    views = f"{len(event.views)} view" + ("s" if len(event.views) != 1 else "")
    return f"{event.n_samples} samples, {views}, {event.n_clusters} clusters"


def count_sentence(event: ClusterCountEnded) -> str:
    """Say how many clusters were chosen, and what the curves say of that number."""
    at = event.counts.index(event.n_clusters)
    return (
        f"{event.n_clusters} clusters chosen from {event.counts[0]} to {event.counts[-1]}: "
        f"stability {event.stability[at]:.2f}, modularity {event.modularity[at]:.3f}, eigengap "
        f"{event.eigengap[at]:.2f}; highest at {_peak(event, event.stability)}, "
        f"{_peak(event, event.modularity)} and {_peak(event, event.eigengap)}"
    )


def _peak(event: ClusterCountEnded, curve: tuple[float, ...]) -> int:
    """Where a curve is highest; of equal values at the larger number."""
    return max(zip(curve, event.counts, strict=True))[1]


def setting_sentence(event: SelectionEnded) -> str:
    """Say which setting the path is walked with."""
    setting = event.settings[event.chosen]
    tried = f", best of {len(event.settings)}" if len(event.settings) > 1 else ""
    if setting.alpha is None:
        return f"scale and alpha by view, {setting.n_neighbors} neighbours{tried}"
    return (
        f"scale {setting.scale}, alpha {setting.alpha:g}, {setting.n_neighbors} neighbours{tried}"
    )


def resumed_sentence(event: FitResumed) -> str:
    """Say from where a fit goes on."""
    if event.after_iteration == 0:
        return "goes on with the setting chosen before"
    return f"goes on after {_plural(event.after_iteration, 'outer iteration')} done before"


def end_sentence(event: FitEnded) -> str:
    """Say how a fit ended."""
    return (
        f"{_plural(event.n_connected_components, 'connected component')} after "
        f"{_plural(event.n_iterations, 'outer iteration')}"
    )


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")
