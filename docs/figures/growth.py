"""Draw docs/figures/growth.svg: seconds and memory over n, from the table in docs/performance.md.

    python docs/figures/growth.py

Both axes are logarithmic; the dashed line, from the first of MSCAM's points, has slope one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).parent
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 430, 300, 62, 34, 46
COLORS = {"MSCAM": "#003f7a", "SMVSC": "#be4600"}
BESIDE = {"cpu": {"MSCAM": 36, "SMVSC": 36}, "peak": {"MSCAM": -10, "SMVSC": 36}}  # their lines
Point = tuple[float, float]


def table() -> dict[str, list[dict[str, float]]]:
    """Rows "| method | n | seconds | CPU s | peak MiB | ..." by method."""
    runs: dict[str, list[dict[str, float]]] = {}
    for line in (HERE.parent / "performance.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 8 and cells[0] in COLORS:
            n, _, cpu, peak, *_ = (cell.replace(" ", "") for cell in cells[1:])
            row = {"n": float(n), "cpu": float(cpu), "peak": float(peak)}
            runs.setdefault(cells[0], []).append(row)
    return runs


def scale(low: float, high: float, start: float, stop: float) -> Callable[[float], float]:
    """Logarithmic axis from [low, high] to [start, stop]."""
    factor = (stop - start) / math.log(high / low)
    return lambda value: start + factor * math.log(value / low)


def panel(runs: dict[str, list[dict[str, float]]], column: str, title: str, left: int) -> str:
    """One chart, its left edge at `left`."""
    values = [row[column] for rows in runs.values() for row in rows]
    sizes = sorted({row["n"] for rows in runs.values() for row in rows})
    low, high = min(values) / 1.4, max(values) * 1.4
    x = scale(sizes[0] / 1.15, sizes[-1] * 1.15, left + LEFT, left + WIDTH - 12)
    y = scale(low, high, HEIGHT - BOTTOM, TOP)
    parts = [f'<text x="{left + LEFT}" y="20" class="title">{escape(title)}</text>']
    parts += [
        f'<text x="{x(size):.0f}" y="{HEIGHT - 26}" class="x">{size / 1000:g}k</text>'
        for size in sizes
        if size != 100_000  # too near the next
    ]
    parts += [
        f'<path d="M{left + LEFT} {y(tick):.1f}H{left + WIDTH - 12}" class="grid"/>'
        f'<text x="{left + LEFT - 6}" y="{y(tick) + 4:.1f}" class="y">{tick:g}</text>'
        for tick in (factor * 10.0**power for power in range(-1, 5) for factor in (1, 3))
        if low <= tick <= high
    ]
    first = runs["MSCAM"][0]
    reach = min(sizes[-1], high / first[column] * first["n"])
    linear = [(first["n"], first[column]), (reach, first[column] * reach / first["n"])]
    parts.append(f'<path d="{_path(linear, x, y)}" class="linear"/>')
    half = [math.sqrt(one * other) for one, other in zip(*linear, strict=True)]
    parts.append(
        f'<text x="{x(half[0]) - 8:.1f}" y="{y(half[1]) - 8:.1f}" class="y">slope one</text>'
    )
    for name, rows in runs.items():
        points = [(row["n"], row[column]) for row in rows]
        parts.append(f'<path d="{_path(points, x, y)}" class="line" stroke="{COLORS[name]}"/>')
        parts += [
            f'<circle cx="{x(n):.1f}" cy="{y(v):.1f}" r="3" fill="{COLORS[name]}"/>'
            for n, v in points
        ]
        end = points[-1]
        parts.append(
            f'<text x="{x(end[0]) - 6:.1f}" y="{y(end[1]) + BESIDE[column][name]:.1f}" class="name" '
            f'style="fill: {COLORS[name]}">{name}</text>'
        )
    parts.append(f'<text x="{left + WIDTH // 2 + 20}" y="{HEIGHT - 8}" class="x">samples</text>')
    return "\n".join(parts)


def _path(points: list[Point], x: Callable[[float], float], y: Callable[[float], float]) -> str:
    return "M" + "L".join(f"{x(a):.1f} {y(b):.1f}" for a, b in points)


STYLE = """text { font: 12px sans-serif; fill: #333 } .title { font-weight: 600; font-size: 13px }
.x { text-anchor: middle } .y, .name { text-anchor: end } .grid { stroke: #ddd; fill: none }
.name { font-weight: 600 } .line { fill: none; stroke-width: 2 }
.linear { stroke: #888; stroke-dasharray: 5 4; fill: none }"""


def picture(runs: dict[str, list[dict[str, float]]]) -> str:
    """Both charts, as SVG."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {HEIGHT}" '
        f'width="{2 * WIDTH}" height="{HEIGHT}" role="img">\n<style>{STYLE}</style>\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n'
        f"{panel(runs, 'cpu', 'CPU seconds of a fit, one thread', 0)}\n"
        f"{panel(runs, 'peak', 'peak MiB of the process, data included', WIDTH)}\n</svg>\n"
    )


def main() -> None:
    """Read the table and write the picture."""
    (HERE / "growth.svg").write_text(picture(table()), encoding="utf-8")


if __name__ == "__main__":
    main()
