"""State of a fit from its events, for terminal, notebook, log, dashboard and metrics."""

from __future__ import annotations

from collections import deque

from mscam_dask.monitor.events import Event
from mscam_dask.types.events import (
    FitFailed,
    FitFinished,
    FitStarted,
    IterationFinished,
    NClustersSelected,
    RefinementFinished,
    SettingsSelected,
)

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
