"""Draw docs/figures/scale_out.svg: speed-up over workers, from the table in docs/performance.md.

    python docs/figures/scale_out.py

Both axes are logarithmic; the dashed line is a speed-up equal to the number of workers.
"""

from __future__ import annotations

import math
from pathlib import Path

HERE = Path(__file__).parent
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 520, 340, 62, 108, 34, 46
COLORS = ("#999999", "#003f7a", "#be4600")
HEAD = "| simulated workers |"


def table() -> tuple[list[str], list[list[float]]]:
    """Names of the columns after the first, and the rows."""
    lines = (HERE.parent / "performance.md").read_text(encoding="utf-8").splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith(HEAD))
    names = [cell.strip() for cell in lines[first].split("|")[2:-1]]
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([float(cell) for cell in line.split("|")[1:-1]])
    return names, rows


def x(workers: float) -> float:
    """Horizontal position of a number of workers."""
    return LEFT + (WIDTH - LEFT - RIGHT) * math.log2(workers) / 8


def y(speed_up: float) -> float:
    """Vertical position of a speed-up."""
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * math.log2(speed_up) / 7


STYLE = """text { font: 12px sans-serif; fill: #333 } .title { font-weight: 600; font-size: 13px }
.x { text-anchor: middle } .y { text-anchor: end } .grid { stroke: #ddd; fill: none }
.line { fill: none; stroke-width: 2 } .linear { stroke: #888; stroke-dasharray: 5 4; fill: none }"""


def picture(names: list[str], rows: list[list[float]]) -> str:
    """The chart, as SVG."""
    parts = [f'<text x="{LEFT}" y="20" class="title">Simulated speed-up of a fit</text>']
    for power in range(8):
        at = y(2**power)
        parts.append(
            f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" class="grid"/>'
            f'<text x="{LEFT - 6}" y="{at + 4:.1f}" class="y">{2**power}</text>'
        )
    parts += [
        f'<text x="{x(row[0]):.0f}" y="{HEIGHT - 26}" class="x">{row[0]:g}</text>' for row in rows
    ]
    parts.append(f'<path d="M{x(1)} {y(1):.1f}L{x(128):.1f} {y(128):.1f}" class="linear"/>')
    for column, (name, color) in enumerate(zip(names, COLORS, strict=False), start=1):
        points = [(x(row[0]), y(row[column])) for row in rows]
        path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
        parts.append(f'<path d="{path}" class="line" stroke="{color}"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{color}"/>' for a, b in points]
        a, b = points[-1]
        parts.append(f'<text x="{a + 8:.1f}" y="{b + 4:.1f}" style="fill: {color}">{name}</text>')
    middle = (LEFT + WIDTH - RIGHT) // 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 8}" class="x">workers</text>')
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img">\n<style>{STYLE}</style>\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n{body}\n</svg>\n'
    )


def main() -> None:
    """Read the table and write the picture."""
    (HERE / "scale_out.svg").write_text(picture(*table()), encoding="utf-8")


if __name__ == "__main__":
    main()
