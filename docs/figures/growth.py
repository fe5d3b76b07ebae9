"""Draw docs/figures/growth.svg: seconds and memory over n, from the table in docs/performance.md.

    python docs/figures/growth.py

Both axes are logarithmic; the dashed line, from the first of MSCAM's points, has slope one.
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

HERE = Path(__file__).parent
COLORS = {"MSCAM": "#003f7a", "SMVSC": "#be4600"}
TITLES = {
    "cpu": "CPU seconds of a fit, one thread",
    "peak": "peak MiB of the process, data included",
}
TICKS = [factor * 10.0**power for power in range(-1, 5) for factor in (1, 2, 5)]


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


def picture(runs: dict[str, list[dict[str, float]]]) -> Figure:
    """Both charts."""
    figure = Figure(figsize=(9.6, 3.5), layout="constrained")
    for ax, (column, title) in zip(figure.subplots(1, 2), TITLES.items(), strict=True):
        ax.set_title(title, loc="left", fontsize=11, fontweight="bold")
        ax.set(xlabel="samples", xscale="log", yscale="log")
        n = [row["n"] for row in runs["MSCAM"]]
        for name, rows in runs.items():
            values = [row[column] for row in rows]
            ax.plot(n, values, marker="o", markersize=4, color=COLORS[name], label=name)
        low, high = ax.get_ylim()
        first = runs["MSCAM"][0]
        reach = np.array([first["n"], min(n[-1], high / first[column] * first["n"])])
        slope_one = first[column] * reach / first["n"]
        ax.plot(reach, slope_one, color="#888888", linestyle="--", linewidth=1, label="slope one")
        ax.set_xticks(n, [f"{size / 1000:g}k" for size in n])
        inside = [tick for tick in TICKS if low <= tick <= high]
        ax.set_yticks(inside, [f"{tick:g}" for tick in inside])
        ax.minorticks_off()
        ax.set_ylim(low, high)
        ax.grid(axis="y", color="#dddddd")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False)
    return figure


def main() -> None:
    """Read the table and write the picture, which has the table as its description."""
    runs = table()
    about = {"Date": None, "Description": json.dumps(runs)}
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "growth"}):
        picture(runs).savefig(HERE / "growth.svg", metadata=about)


if __name__ == "__main__":
    main()
