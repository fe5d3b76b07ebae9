"""Style of the page: a palette for all kinds of color vision, line styles, and style sheets."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from html import escape

__all__ = ["ACCENT", "GRID_CSS", "INK", "MUTED", "Mark", "legend_html", "mark_of", "page_css"]

INK = "#1f2933"
MUTED = "#5f6b7a"
ACCENT = "#d55e00"

# Palette of Okabe and Ito without yellow, which has little contrast on white, and with black last.
_COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7a5195", "#000000")
_DASHES: tuple[tuple[int, ...], ...] = ((), (7, 3), (2, 3), (9, 3, 2, 3))
_MARKERS = ("circle", "square", "triangle", "diamond")
_MAX_LEGEND = 32  # views in the legend


@dataclasses.dataclass(frozen=True, slots=True)
class Mark:
    """Line style of a view, different for each of the first 32.

    Attributes
    ----------
    color : str
    dash : tuple of int
        Pixels on and off; empty for a solid line.
    marker : str
        Name of a marker of Bokeh.
    """

    color: str
    dash: tuple[int, ...]
    marker: str


def mark_of(index: int) -> Mark:
    """Return the line style of view `index`, for every plot."""
    style = index // len(_COLORS) % len(_DASHES)
    return Mark(_COLORS[index % len(_COLORS)], _DASHES[style], _MARKERS[style])


def legend_html(views: Sequence[str], *, n_hidden: int = 0) -> str:
    """Return the legend of all plots with a line for each view; names are escaped."""
    items = []
    for index, view in enumerate(views[:_MAX_LEGEND]):
        mark = mark_of(index)
        dash = " ".join(map(str, mark.dash))
        items.append(
            '<span class="item"><svg width="30" height="10" aria-hidden="true">'
            f'<line x1="0" y1="5" x2="30" y2="5" stroke="{mark.color}" stroke-width="3" '
            f'stroke-dasharray="{dash}"/></svg>{escape(view)}</span>'
        )
    more = max(0, len(views) - _MAX_LEGEND) + n_hidden
    if more:
        items.append(f'<span class="item">and {more} more (hover over a line for its name)</span>')
    return f'<div class="legend" role="list" aria-label="views">{"".join(items)}</div>'


GRID_CSS = """
:host { display: grid; width: 100%; gap: 14px;
        grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); }
"""

page_css = f"""
:host {{ width: 100%; }}
.head, .legend, .note {{ font: 14px/1.45 system-ui, "Segoe UI", "DejaVu Sans", sans-serif;
                         color: {INK}; overflow-wrap: anywhere; }}
.head h1 {{ font-size: 20px; margin: 0 0 2px; font-weight: 600; }}
.head p {{ margin: 0 0 4px; color: {MUTED}; }}
.tiles {{ display: flex; flex-wrap: wrap; gap: 10px; margin-top: 10px; }}
.tile {{ border: 1px solid #d3d9e0; border-radius: 6px; padding: 8px 14px; min-width: 118px; }}
.tile b {{ display: block; font-size: 20px; font-weight: 600; font-variant-numeric: tabular-nums; }}
.tile span {{ color: {MUTED}; font-size: 12.5px; }}
.bad {{ border-left: 5px solid {ACCENT}; padding: 6px 12px; margin: 10px 0 0; }}
.legend {{ display: flex; flex-wrap: wrap; gap: 4px 20px; align-items: center; }}
.item {{ display: inline-flex; gap: 7px; align-items: center; }}
.empty {{ max-width: 46em; padding: 24px 4px; }}
code {{ background: #eef1f4; border-radius: 3px; padding: 1px 5px; }}
"""
