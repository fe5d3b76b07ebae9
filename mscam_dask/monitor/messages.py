"""Formats of numbers, texts about a fit, and templates, which terminal, log, notebook, dashboard and report share."""

from __future__ import annotations

import calendar
import datetime as dt
import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from mscam_dask.monitor.events import Event, FitResumed, FitState
from mscam_dask.monitor.run_record import SettingEntry
from mscam_dask.types.events import (
    CandidateSettings,
    FitFailed,
    FitFinished,
    FitStarted,
    IterationFinished,
    NClustersSelected,
    RefinementFinished,
    SettingsSelected,
)
from mscam_dask.types.rules import RULES

if TYPE_CHECKING:
    from jinja2 import Environment, Template

MAX_NAME = 120  # characters
_NONE = "\u2013"
_THIN = "\u202f"  # narrow no-break space
_MAX_NAMES = 60  # characters of view names in one line; longer lists are counted


def printable(text: str) -> str:
    """Escape control characters, which names from data may contain."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def shortened(text: str, limit: int = MAX_NAME) -> str:
    """Truncate a name."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def duration(seconds: float) -> str:
    """Format a duration.

    >>> duration(0.314), duration(18.66), duration(754), duration(7384)
    ('0.31 s', '18.7 s', '12 min 34 s', '2 h 3 min')
    """
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min"


def eta(fit: FitState) -> str:
    """Upper bound of the time left, such as "<9.0 s"."""
    return "unknown" if fit.eta_s is None else f"<{duration(fit.eta_s)}"


def plural(count: int, noun: str) -> str:
    """Count with its noun: "1 view", "2 views"."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def count(value: int) -> str:
    """Integer in groups of three digits."""
    return f"{value:,}".replace(",", _THIN)


def number(value: float | None, digits: int = 4, *, plain: float = 1e-4) -> str:
    """Return a number with significant digits, a dash if it is not finite, powers of ten below `plain`.

    >>> number(0.28561), number(1234.5678), number(float("nan")), number(2.5e-7, 2), number(1e-5)
    ('0.2856', '1235', '–', '2.5 × 10⁻⁷', '10⁻⁵')
    """
    if value is None or not math.isfinite(value):
        return _NONE
    if value != 0 and not plain <= abs(value) < 10**6:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        mantissa = mantissa.replace("-", "\u2212")
        return f"10{raised}" if mantissa == "1" else f"{mantissa} \u00d7 10{raised}"
    text = f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:.0f}"
    return text.replace("-", "\u2212")


def p_value_text(value: float) -> str:
    """Return a p-value with two digits, or a bound if it is small."""
    return "< 0.001" if value < 0.001 else f"{value:.2g}"


def percent(value: float) -> str:
    """Share as a percentage with one decimal."""
    return "<\u00a00.1\u00a0%" if 0 < value < 0.0005 else f"{100 * value:.1f}\u00a0%"


def moment(text: str | None) -> str:
    """Return an ISO 8601 time in words.

    >>> moment("2026-11-21T02:48:03+00:00")
    '21 Nov 2026, 02:48 UTC'
    """
    if text is None:
        return _NONE
    time = dt.datetime.fromisoformat(text)
    zone = "UTC" if time.utcoffset() == dt.timedelta(0) else time.strftime("%z")
    return f"{time.day} {calendar.month_abbr[time.month]} {time.year}, {time:%H:%M} {zone}".rstrip()


def sentence(text: str) -> str:
    """Return a text with a capital letter and a period; an empty text stays empty."""
    text = text.strip()
    if not text:
        return ""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def largest_residual(record: IterationFinished) -> float:
    """Largest primal residual of the views in an iteration."""
    return max((view.primal_residual for view in record.views), default=0.0)


def format_event(event: Event, fit: FitState) -> list[str]:
    """Lines that describe an event of a fit, after which the state is `fit`; none for other events."""
    match event:
        case FitResumed():
            place = f"after iteration {event.after_iteration}"
            if event.after_iteration == 0:
                place = "with the settings selected before the interruption"
            return [f"resumed {place}", *(f"note: {note}" for note in event.notes)]
        case FitStarted():
            return [f"{format_started(event)}, {event.executor}"]
        case IterationFinished():
            return [_iteration(event, fit)]
        case NClustersSelected():
            lines = [format_n_clusters(event.counts, event.p_values, event.n_clusters)]
        case SettingsSelected():
            lines = format_settings(event)
        case RefinementFinished():
            lines = [format_refinement(event.scores, event.taken)]
        case FitFinished():
            components = plural(event.n_connected_components, "connected component")
            lines = [f"{components} after {plural(event.n_iterations, 'iteration')}"]
            lines += [event.assessment] if event.assessment else []
        case FitFailed():  # a signal is not a failure
            is_signal = event.error == "KeyboardInterrupt"
            lines = ["interrupted" if is_signal else f"failed: {event.error}"]
        case _:
            return []
    return [f"{lines[0]} ({duration(event.seconds)})", *lines[1:]]


def format_started(event: FitStarted) -> str:
    """Size of the problem."""
    views = plural(len(event.views), "view")
    return f"{event.n_samples} samples, {views}, n_clusters={event.n_clusters}"


def format_n_clusters(counts: Sequence[int], p_values: Sequence[float], selected: int) -> str:
    """Why this number was selected, from fields of `mscam_dask.types.events.NClustersSelected`."""
    if selected == 1:
        return (
            f"n_clusters=1 selected: with 2 to {counts[-1]} clusters, some border has a p-value above "
            f"{RULES.level:g}"
        )
    largest = p_values[counts.index(selected)]
    return (
        f"n_clusters={selected} selected from 1 to {counts[-1]}: the largest number with a partition whose "
        f"borders all have p-values up to {RULES.level:g} (here {p_value_text(largest)})"
    )


def format_settings(event: SettingsSelected) -> list[str]:
    """Selected settings: one line, and one more for each scale and alpha where views differ."""
    setting = event.settings[event.chosen]
    best = f"; best of {len(event.settings)} settings" if len(event.settings) > 1 else ""
    views = ((view.view, view.scale, view.alpha) for view in event.view_settings)
    return [format_setting(setting) + best, *format_view_settings(views)]


def format_setting(setting: CandidateSettings | SettingEntry) -> str:
    """One setting, without scale and alpha where views differ."""
    same = setting.alpha is not None
    scale = f"scale={setting.scale}, alpha={setting.alpha:g} (all views); " if same else ""
    graph = format_graph(setting.n_neighbors, setting.initial_graph)
    return scale + graph + format_excluded(setting.exclude_views)


def format_graph(n_neighbors: int, initial_graph: str) -> str:
    """Number of neighbors, and the kind of the initial graph where it is not the default."""
    mixed = ", mixed initial graph" if initial_graph == "mixed" else ""
    return f"n_neighbors={n_neighbors}{mixed}"


def format_excluded(exclude_views: Sequence[str]) -> str:
    """Excluded views after a semicolon; nothing where none is excluded."""
    return f"; excluded views: {_names(exclude_views)}" if exclude_views else ""


def format_view_settings(view_settings: Iterable[tuple[str, str, float]]) -> list[str]:
    """Lines from (view, scale, alpha): the views of each scale and alpha, the most common first."""
    groups: dict[tuple[str, float], list[str]] = {}
    for view, scale, alpha in view_settings:
        groups.setdefault((scale, alpha), []).append(view)
    return [
        f"scale={scale}, alpha={alpha:g}: {_names(views)}"
        for (scale, alpha), views in sorted(groups.items(), key=lambda pair: -len(pair[1]))
    ]


def _names(views: Sequence[str]) -> str:
    names = ", ".join(views)
    return names if len(names) <= _MAX_NAMES else plural(len(views), "view")


def _iteration(event: IterationFinished, fit: FitState) -> str:
    residual = largest_residual(event)
    # the metrics of the refinement have a closed form, without a residual
    accuracy = f" residual={residual:.1e}" if residual else ""
    left = "" if fit.eta_s is None else f" ETA {eta(fit)}"
    return (
        f"iteration {fit.n_done_of_max}: components={event.n_connected_components} "
        f"(target {event.n_clusters}) \u03bb={event.graph_weight:.4g} score={event.score:.4f}{accuracy} "
        f"{duration(event.seconds)}{left}"
    )


def format_refinement(scores: Sequence[float], taken: int) -> str:
    """Result of the refinement, from fields of `mscam_dask.types.events.RefinementFinished`."""
    if not taken:
        return "refinement: no new partition accepted"
    return f"refinement: {plural(taken, 'new partition')} accepted, score {scores[taken - 1]:.4f}"


# templates ---------------------------------------------------------------------------------------


def template(path: str) -> Template:
    """Return a template such as "monitor/report/assets/run.html.j2", which is compiled once."""
    return _environment(is_html=path.endswith(".html.j2")).get_template(path)


@cache
def _environment(*, is_html: bool) -> Environment:
    """Jinja environment of the package; templates of HTML escape what came from data."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("mscam_dask", ""),
        autoescape=is_html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not is_html,
    )
    filters: tuple[Callable[..., Any], ...] = (
        count,
        number,
        percent,
        duration,
        eta,
        sentence,
        moment,
    )
    filters += (p_value_text, shortened, printable, format_graph)
    environment.filters.update({each.__name__: each for each in filters})
    environment.filters["form"] = lambda value, form, none="-": (
        none if value is None else form % value
    )
    dump = {"ensure_ascii": False, "allow_nan": False, "separators": (",", ":")}
    environment.policies["json.dumps_kwargs"] = dump
    environment.globals.update(
        level=RULES.level,
        plural=_plural,
        zip=zip,
        excluded=format_excluded,
        view_settings=format_view_settings,
        refinement=format_refinement,
    )
    return environment


def _plural(value: int, noun: str) -> str:
    """Count in groups of three digits with its noun."""
    return plural(value, noun).replace(str(value), count(value), 1)
