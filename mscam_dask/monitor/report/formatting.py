"""Formats of numbers, times and sentences in reports."""

from __future__ import annotations

import calendar
import datetime as dt
import math

_NONE = "\u2013"
_THIN = "\u202f"  # narrow no-break space


def count(value: int) -> str:
    """Integer in groups of three digits."""
    return f"{value:,}".replace(",", _THIN)


def plural(value: int, noun: str) -> str:
    """Count with its noun: "1 view", "2 views"."""
    return f"{count(value)} {noun}" + ("" if value == 1 else "s")


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


def percent(value: float, digits: int = 1) -> str:
    """Share as a percentage."""
    return f"{100 * value:.{digits}f}\u00a0%"


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
