"""How far a fit is and how long it can still take, and the words in which it is said."""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Iterable, Sequence

from mscam_dask.monitor.events import Event, FitResumed
from mscam_dask.types.events import (
    FitFailed,
    FitFinished,
    FitStarted,
    IterationFinished,
    NClustersSelected,
    SettingsSelected,
)

__all__ = [
    "ProgressTracker",
    "by_view_words",
    "count_sentence",
    "duration",
    "end_sentence",
    "failure_sentence",
    "fit_sentence",
    "largest_residual",
    "learning_sentence",
    "neighbors_words",
    "plural",
    "printable",
    "resumed_sentence",
    "setting_sentence",
    "without_words",
]

_RECENT = 5  # iterations whose mean time is taken for the next ones'
_NAMED = 40  # characters of names of views of which the same is said; more are counted


class ProgressTracker:
    """How far a fit is, and how long it can still take."""

    def __init__(self) -> None:
        self.started: FitStarted | None = None
        self.n_done = 0
        self._recent: deque[float] = deque(maxlen=_RECENT)

    def add(self, event: Event) -> None:
        if isinstance(event, FitStarted):
            self.started, self.n_done = event, 0
            self._recent.clear()
        elif isinstance(event, IterationFinished):
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
        left = self.started.max_iter - self.n_done
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


def largest_residual(record: IterationFinished) -> float:
    """Return the largest primal residual of the views."""
    return max((view.primal_residual for view in record.views), default=0.0)


def fit_sentence(event: FitStarted) -> str:
    """Say what is being clustered."""
    views = f"{len(event.views)} view" + ("s" if len(event.views) != 1 else "")
    return f"{event.n_samples} samples, {views}, {event.n_clusters} clusters"


def count_sentence(event: NClustersSelected) -> str:
    """Say how many clusters were chosen, why, and what the curves would take by themselves."""
    at = event.counts.index(event.n_clusters)
    return (
        f"{event.n_clusters} clusters chosen from {event.counts[0]} to {event.counts[-1]}: the "
        f"widest eigengap ({event.eigengap[at]:.2f}) where reliable modularity "
        f"({event.adjusted_modularity[at]:.3f}) is nearly the highest; stability "
        f"{event.stability[at]:.2f}; by itself eigengap is highest at "
        f"{_peak(event, event.eigengap)}, modularity at {_peak(event, event.modularity)}, reliable "
        f"modularity at {_peak(event, event.adjusted_modularity)}, "
        f"stability at {_peak(event, event.stability)}"
    )


def _peak(event: NClustersSelected, curve: tuple[float, ...]) -> int:
    """Where a curve is highest; of equal values at the larger number."""
    return max(zip(curve, event.counts, strict=True))[1]


def setting_sentence(event: SettingsSelected) -> str:
    """Say which setting the path is walked with."""
    setting = event.settings[event.chosen]
    tried = f", best of {len(event.settings)}" if len(event.settings) > 1 else ""
    neighbors = neighbors_words(setting.n_neighbors, setting.initial_graph)
    without = without_words(setting.exclude_views)
    if setting.alpha is None:
        views = by_view_words((one.view, one.scale, one.alpha) for one in event.view_settings)
        return f"scale and alpha by view{views}, {neighbors}{without}{tried}"
    return f"scale {setting.scale}, alpha {setting.alpha:g}, {neighbors}{without}{tried}"


def without_words(exclude_views: Sequence[str]) -> str:
    """Say which views do not count, after a comma; nothing where all do.

    Examples
    --------
    >>> without_words(["pix", "mor"])
    ', without pix, mor'
    >>> without_words([])
    ''
    """
    return f", without {_named(exclude_views)}" if exclude_views else ""


def neighbors_words(n_neighbors: int, initial_graph: str) -> str:
    """Say how many neighbours a sample has in the first graph, and by what."""
    own = ", and as many in each view" if initial_graph == "distances and views" else ""
    return f"{n_neighbors} neighbours{own}"


def by_view_words(view_settings: Iterable[tuple[str, str, float]]) -> str:
    """Say which views have which scale and alpha, in parentheses; the most common first.

    Parameters
    ----------
    view_settings : iterable of (view, scale, alpha)

    Examples
    --------
    >>> by_view_words([("pix", "unit", 10.0), ("mor", "standard", 1.0), ("fac", "unit", 10.0)])
    ' (unit, 10: pix, fac; standard, 1: mor)'
    >>> by_view_words([])
    ''
    """
    alike: dict[tuple[str, float], list[str]] = {}
    for view, scale, alpha in view_settings:
        alike.setdefault((scale, alpha), []).append(view)
    said = []
    for (scale, alpha), views in sorted(alike.items(), key=lambda pair: -len(pair[1])):
        said.append(f"{scale}, {alpha:g}: {_named(views)}")
    return f" ({'; '.join(said)})" if said else ""


def _named(views: Sequence[str]) -> str:
    names = ", ".join(views)
    return names if len(names) <= _NAMED else plural(len(views), "view")


def resumed_sentence(event: FitResumed) -> str:
    """Say from where a fit goes on."""
    if event.after_iteration == 0:
        return "goes on with the setting chosen before"
    return f"goes on after {plural(event.after_iteration, 'outer iteration')} done before"


def learning_sentence(scores: Sequence[float], taken: int) -> str:
    """Say what the distances learned from the best partition gave.

    Parameters
    ----------
    scores, taken
        As in `mscam_dask.types.events.RefinementFinished`.

    Examples
    --------
    >>> learning_sentence((1.84, 1.85, 1.85), 2)
    'distances learned from the best partition: another one taken twice, score 1.8500'
    >>> learning_sentence((1.7,), 0)
    'distances learned from the best partition: no other taken'
    """
    said = "distances learned from the best partition"
    if not taken:
        return f"{said}: no other taken"
    often = {1: "once", 2: "twice"}.get(taken, f"{taken} times")
    return f"{said}: another one taken {often}, score {scores[taken - 1]:.4f}"


def end_sentence(event: FitFinished) -> str:
    """Say how a fit ended."""
    return (
        f"{plural(event.n_connected_components, 'connected component')} after "
        f"{plural(event.n_iterations, 'outer iteration')}"
    )


def failure_sentence(event: FitFailed) -> str:
    """Say that a fit ended without a result; a signal is no failure of it."""
    return "interrupted" if event.error == "KeyboardInterrupt" else f"failed: {event.error}"


def plural(count: int, noun: str) -> str:
    """A number and its noun, with "s" where it is not one."""
    return f"{count} {noun}" + ("" if count == 1 else "s")
