"""Draw docs/figures/scale_out.svg: speed-up over workers, from the table in docs/performance.md.

    python docs/figures/scale_out.py

Both axes are logarithmic; the dashed line is a speed-up equal to the number of workers.
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

HERE = Path(__file__).parent
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


def picture(names: list[str], rows: list[list[float]]) -> Figure:
    """The chart."""
    figure = Figure(figsize=(5.8, 3.8), layout="constrained")
    ax = figure.add_subplot()
    ax.set_title("Simulated speed-up of a fit", loc="left", fontsize=11, fontweight="bold")
    workers = [row[0] for row in rows]
    for column, (name, color) in enumerate(zip(names, COLORS, strict=False), start=1):
        values = [row[column] for row in rows]
        ax.plot(workers, values, marker="o", markersize=4, color=color, label=name)
    ax.plot([1, 128], [1, 128], color="#888888", linestyle="--", linewidth=1, label="ideal")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.set_xticks(workers, [f"{count:g}" for count in workers])
    ax.set_yticks([2**power for power in range(8)], [str(2**power) for power in range(8)])
    ax.set(xlabel="workers")
    ax.minorticks_off()
    ax.grid(axis="y", color="#dddddd")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    return figure


def main() -> None:
    """Read the table and write the picture, which has the table as its description."""
    names, rows = table()
    about = {"Date": None, "Description": json.dumps(rows)}
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "scale_out"}):
        picture(names, rows).savefig(HERE / "scale_out.svg", metadata=about)


if __name__ == "__main__":
    main()
