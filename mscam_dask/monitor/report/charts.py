"""Line charts: positions, ticks and tooltips."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mscam_dask.monitor.report.formatting import count, number

__all__ = [
    "HEIGHT",
    "WIDTH",
    "Axes",
    "Line",
    "LineChart",
    "Mark",
    "Tick",
    "line_chart",
    "ticks",
]

WIDTH, HEIGHT = 360, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 14, 14, 34


@dataclass(frozen=True)
class Mark:
    """Point of a line: its place, a tooltip, and its values on the two axes."""

    x: float
    y: float
    tip: str
    at: float
    value: float


@dataclass(frozen=True)
class Tick:
    """Tick of an axis."""

    at: float
    text: str


@dataclass(frozen=True)
class Line:
    """Line with a style (0, 1, ...) and points, interrupted at missing values."""

    name: str
    style: int
    marks: tuple[Mark, ...]
    path: str


@dataclass(frozen=True)
class LineChart:
    """Chart with positions in pixels.

    Attributes
    ----------
    key
        Unique on the page.
    title, caption
    x_title
    lines
    x_ticks, y_ticks
    level
        Horizontal line at a value, or None.
    chosen
        Vertical line at a selected x, or None.
    """

    key: str
    title: str
    caption: str
    x_title: str
    lines: tuple[Line, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    level: Tick | None
    chosen: Tick | None = None
    left: float = _LEFT
    right: float = WIDTH - _RIGHT
    top: float = _TOP
    bottom: float = HEIGHT - _BOTTOM

    @property
    def n_points(self) -> int:
        """Number of points of all lines."""
        return sum(len(line.marks) for line in self.lines)


def ticks(low: float, high: float, wanted: int = 5, *, whole: bool = False) -> list[float]:
    """Round numbers from at most `low` to at least `high`, about `wanted` of them.

    Examples
    --------
    >>> ticks(0.13, 0.94), ticks(1, 4, whole=True)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [1.0, 2.0, 3.0, 4.0])
    """
    if high - low <= 1e-9 * abs(high):
        high = low + (1.0 if whole else (abs(low) or 1.0) / 10)
    raw = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * base for base in (1, 2, 5, 10) if power * base >= raw * (1 - 1e-9))
    step = max(step, 1.0) if whole else step
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten around positive numbers, with finer steps within two decades."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    last = max(last, first + 1)
    if last - first > 2:
        every = math.ceil((last - first) / 5)
        n_steps = math.ceil((last - first) / every)
        return [10.0 ** (first + index * every) for index in range(n_steps + 1)]
    if last - first == 1 and high < 3 * low:
        return [value for value in ticks(low, high, 4) if value > 0]
    steps = [base * 10.0**power for power in range(first, last + 1) for base in (1, 2, 5)]
    inner = [step for step in steps if low * 0.99 <= step <= high * 1.01]
    below = max(step for step in steps if step <= low * 1.0000001)
    above = min(step for step in steps if step >= high * 0.9999999)
    return sorted({below, *inner, above})


@dataclass(frozen=True, kw_only=True)
class Axes:
    """Axes of a chart.

    Attributes
    ----------
    x, y
        Titles, also for tooltips.
    log
        Whether y is logarithmic; values that are not positive are missing.
    least
        Smaller values of a logarithmic y are drawn at this one.
    whole
        Whether y is an integer.
    level
        Name and value of a horizontal line.
    chosen
        Name and x of a vertical line.
    at
        Ascending x of the values; 0, 1, ... by default.
    shared
        Further values within the y axis, for a common scale of several charts.
    """

    x: str
    y: str
    log: bool = False
    least: float = 0.0
    whole: bool = False
    level: tuple[str, float] | None = None
    chosen: tuple[str, float] | None = None
    at: tuple[float, ...] | None = None
    shared: tuple[float, ...] = ()


def line_chart(
    key: str,
    lines: Sequence[tuple[str, int, Sequence[float]]],
    axes: Axes,
    *,
    title: str,
    caption: str = "",
) -> LineChart | None:
    """Return a chart with positions and ticks.

    Parameters
    ----------
    key
    lines
        Name, style and values of each line; the first value is iteration 0.
    axes
    title, caption

    Returns
    -------
    LineChart or None
        None without a value to show.
    """
    shown = [
        max(value, axes.least) for _, _, values in lines for value in values if _usable(value, axes)
    ]
    length = max((len(values) for _, _, values in lines), default=0)
    if not shown:
        return None
    extended = [*shown, *axes.shared, *([axes.level[1]] if axes.level else [])]
    y_values = (
        log_ticks(min(extended), max(extended))
        if axes.log
        else ticks(min(extended), max(extended), whole=axes.whole)
    )
    y_scale = _Scale(y_values[0], y_values[-1], HEIGHT - _BOTTOM, _TOP, log=axes.log)
    first, last = (0.0, float(length - 1)) if axes.at is None else (axes.at[0], axes.at[-1])
    whole = axes.at is None or _whole(axes.at)
    x_values = [
        value
        for value in ticks(first, last, 7 if whole else 5, whole=whole)
        if first <= value <= max(last, first)
    ]
    end = last if last > first else first + 1
    x_scale = _Scale(first, end, _LEFT + 6, WIDTH - _RIGHT - 6, log=False)
    return LineChart(
        key=key,
        title=title,
        caption=caption,
        x_title=axes.x,
        lines=tuple(
            _line(name, style, values, (x_scale, y_scale), axes) for name, style, values in lines
        ),
        x_ticks=tuple(Tick(x_scale(value), number(value)) for value in x_values),
        y_ticks=tuple(
            Tick(y_scale(value), _tick_text(value, y_values, log=axes.log)) for value in y_values
        ),
        level=Tick(y_scale(axes.level[1]), axes.level[0]) if axes.level else None,
        chosen=Tick(x_scale(axes.chosen[1]), axes.chosen[0]) if axes.chosen else None,
    )


def _tick_text(value: float, values: Sequence[float], *, log: bool) -> str:
    """Text of a tick, different from those of the other ticks of its axis."""
    if log and min(values) < 1e-4 and math.isclose(value, 10.0 ** round(math.log10(value))):
        raised = str(round(math.log10(value)))
        return "10" + raised.translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    digits = next(
        (n for n in range(4, 12) if len({number(other, n) for other in values}) == len(values)), 12
    )
    return number(value, digits)


def _whole(values: Sequence[float]) -> bool:
    return all(value == round(value) for value in values)


def _usable(value: float, axes: Axes) -> bool:
    return math.isfinite(value) and (not axes.log or max(value, axes.least) > 0)


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    start: float
    end: float
    log: bool

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return round(self.start + (value - low) / (high - low) * (self.end - self.start), 1)


def _line(
    name: str,
    style: int,
    values: Sequence[float],
    scales: tuple[_Scale, _Scale],
    axes: Axes,
) -> Line:
    marks: list[Mark] = []
    path: list[str] = []
    pen = "M"
    for index, value in enumerate(values):
        if not _usable(value, axes):
            pen = "M"
            continue
        where = float(index) if axes.at is None else axes.at[index]
        x, y = scales[0](where), scales[1](max(value, axes.least) if axes.log else value)
        text = count(int(value)) if axes.whole else number(value)
        prefix = f"{name}, " if name else ""
        marks.append(Mark(x, y, f"{prefix}{axes.x} {number(where)}: {axes.y} {text}", where, value))
        path.append(f"{pen}{x:g} {y:g}")
        pen = "L"
    return Line(name, style, tuple(marks), "".join(path))
