"""Figures of reports: line charts with the points that a page marks on them, and pictures of a result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.results import history_dataset
from mscam_dask.monitor.messages import number, sentence
from mscam_dask.plot.pictures import (
    QUANTITIES,
    Curve,
    draw_clusters,
    draw_edges,
    draw_history,
    draw_mark,
    empty_axes,
    principal_planes,
    svg,
    tag,
)
from mscam_dask.types.result import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from scipy.sparse import csr_array

_WIDTH, _HEIGHT = 360, 220
_MARGINS = (64, 42, 22, 40)  # names of marks are above and on the right
_GRID = "#dde2e8"  # as in report.css
_MAX_DECADES = 2.5  # with ticks at 1, 2 and 5
_VIEW_LIMIT = 12
_NAMED_BLOCKS = 30
_TIP_BLOCKS = 60
_PIXELS = 480
_SIDE, _MARGIN = 1000, 30
_RAMP = ("#ffffff", "#9ecae1", "#3182bd", "#08306b")  # even steps of lightness, also in print
_LEFT, _RIGHT, _STEP = 40, 12, 18  # of the tree


@dataclass(frozen=True)
class Mark:
    """Point of a line: its place, a tooltip, and its values on the two axes."""

    x: float
    y: float
    tip: str
    at: float
    value: float


@dataclass(frozen=True)
class LineChart:
    """Picture, and the name, the style (0, 1, ...) and the points of each line; `key` is unique on the page."""

    key: str
    title: str
    caption: str
    x_title: str
    svg: str
    lines: tuple[tuple[str, int, tuple[Mark, ...]], ...]


def chart_axes() -> Axes:
    """Empty axes of a chart."""
    return empty_axes(_WIDTH, _HEIGHT, _MARGINS)


def line_chart(
    key: str, ax: Axes, curves: Sequence[Curve], *, title: str, caption: str = ""
) -> LineChart | None:
    """Chart of axes whose first lines are `curves`; None without a value to show."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    ax.grid(axis="y", color=_GRID)
    low, high = ax.get_ylim()
    if ax.get_yscale() == "log":
        steps = (1.0, 2.0, 5.0) if high < low * 10**_MAX_DECADES else (1.0,)
        is_narrow = high < 3 * low
        ticks = MaxNLocator(4) if is_narrow else LogLocator(subs=steps, numticks=7)
        ax.yaxis.set_major_locator(ticks)
        plain = 0.0 if low > 1e-4 else math.inf
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value, plain=plain)))
        ax.yaxis.set_minor_formatter(NullFormatter())
    else:
        _set_ticks(ax.yaxis, [value for *_, values in curves for value in values])
        ax.ticklabel_format(axis="y", style="plain", useOffset=False)
    if ax.get_xscale() == "linear":
        _set_ticks(ax.xaxis, [at for line in ax.lines[: len(curves)] for at in line.get_xdata()])
    x_title, unit = ax.get_xlabel(), ax.get_ylabel()
    ax.set(ylabel="")
    ax.xaxis.label.set_size(11.5)
    lines = []
    for (name, style, values), line in zip(curves, ax.lines, strict=False):
        line.set_marker("")
        spots, points = ax.transData.transform(line.get_xydata()), []
        for at, value, (x, y) in zip(line.get_xdata(), values, spots, strict=True):
            if np.isfinite(y):
                tip = f"{f'{name}, ' if name else ''}{x_title} {number(at)}: {unit} {number(value)}"
                points.append(Mark(round(x, 1), round(_HEIGHT - y, 1), tip, float(at), value))
        lines.append((name, style, tuple(points)))
    if not any(points for *_, points in lines):
        return None
    return LineChart(key, title, caption, x_title, svg(ax.figure), tuple(lines))


def _set_ticks(axis: Axis, values: Sequence[float]) -> None:
    """Place ticks on an axis, at whole numbers if all its values are."""
    from matplotlib.ticker import MaxNLocator

    whole = all(float(value).is_integer() for value in values)
    axis.set_major_locator(MaxNLocator(5, integer=whole, min_n_ticks=1))


@dataclass(frozen=True, eq=False)
class Scatter:
    """Picture of samples, and for each plane its name, the places x, y, x, y, ... of all samples, and its frame.

    Places of absent samples are negative. A frame is the middle of the picture in coordinates, and the length of its unit.
    """

    svg: str
    names: tuple[str, ...]
    planes: list[list[int]]
    frames: list[list[float]]
    n_edges_drawn: int = 0
    n_edges: int = 0


def scatter(
    planes: list[NDArray[np.float64]],
    labels: NDArray[np.int64],
    graph: csr_array[np.float64] | None = None,
) -> Scatter:
    """Draw the first of the planes (m, 2), whose axes have the same scale, with the edges of a graph."""
    placed, frames = [], []
    for plane in planes:
        known = plane[~np.isnan(plane).any(axis=1)]
        known = known if len(known) else np.zeros((1, 2))
        low, high = known.min(axis=0), known.max(axis=0)
        unit = max(float((high - low).max()), 1e-300) / (_SIDE - 2 * _MARGIN)
        middle = (low + high) / 2
        places = np.rint(_SIDE / 2 + (plane - middle) / unit * [1, -1])
        placed.append(places)
        frames.append([*middle.tolist(), unit])
    ax = empty_axes(_SIDE, _SIDE)
    ax.set(xlim=(0, _SIDE), ylim=(_SIDE, 0), xticks=[], yticks=[])
    edges = (0, 0) if graph is None else draw_edges(ax, placed[0], graph, labels)
    draw_clusters(ax, placed[0], labels, size=1.0)
    names = tuple(f"axes {2 * index + 1} and {2 * index + 2}" for index in range(len(planes)))
    spots = [np.nan_to_num(places, nan=-_SIDE).astype(int).ravel().tolist() for places in placed]
    return Scatter(svg(ax.figure), names if graph is None else ("",), spots, frames, *edges)


def view_figures(result: Solution, rows: NDArray[np.int64]) -> list[tuple[str, str, Scatter]]:
    """Key, name and picture of the ridge embeddings of the first views."""
    return [
        (
            f"view{index}",
            name,
            scatter(principal_planes(values[rows].astype(np.float64)), result.labels[rows]),
        )
        for index, (name, values) in enumerate(list(result.view_coordinates.items())[:_VIEW_LIMIT])
    ]


_CHARTS = (
    *("n_connected_components", "graph_weight", "score"),
    *("view_score", "primal_residual", "dual_residual"),
)


def convergence_charts(result: Solution, n_clusters: int) -> list[LineChart]:
    """Charts of the outer iterations, of the first views."""
    names = list(result.view_contributions)
    history = history_dataset(result.history, names).isel(view=slice(_VIEW_LIMIT))
    charts = []
    for name in _CHARTS if history.sizes["outer_iteration"] else ():
        if name in history:
            ax = chart_axes()
            curves = draw_history(ax, history, name)
            if name == "n_connected_components":
                draw_mark(ax, "target", y=n_clusters)
            caption = sentence(str(history[name].attrs.get("long_name", "")))
            title, *_ = QUANTITIES[name]
            charts.append(line_chart(name, ax, curves, title=title, caption=caption))
    return [chart for chart in charts if chart is not None]


@dataclass(frozen=True, eq=False)
class BlockMatrix:
    """Edge weights by cluster: pixels `levels` (p, p) from 0 to 255, and weights `between` (c, c) of (A + Aᵀ)/2.

    Levels are square roots of the mean weight, relative to the 99.5th percentile, so that sparse clusters are visible.
    """

    levels: NDArray[np.uint8]
    clusters: NDArray[np.int64]
    sizes: NDArray[np.int64]
    between: csr_array[np.float64]

    @property
    def edges(self) -> NDArray[np.float64]:
        """Boundaries (c + 1,) of the clusters along a side of length 1."""
        return np.concatenate(([0.0], np.cumsum(self.sizes) / self.sizes.sum()))

    @property
    def samples_per_pixel(self) -> float:
        """Samples along one side of a pixel."""
        return float(self.sizes.sum() / len(self.levels))

    @property
    def weight_across(self) -> float:
        """Share of the weight that lies between different clusters."""
        weights = self.between.tocoo()
        first, second = weights.coords
        total = float(weights.data.sum())
        # total - trace would not be exactly zero, because of rounding
        across = float(weights.data[first != second].sum())
        return across / total if total > 0 else 0.0

    @property
    def is_small(self) -> bool:
        """Whether there are few enough clusters for tooltips."""
        return len(self.clusters) <= _TIP_BLOCKS

    def svg(self) -> str:
        """Picture with lines between the clusters, and their numbers along the sides."""
        from matplotlib.colors import LinearSegmentedColormap

        ax = empty_axes(_SIDE + 50, _SIDE + 50, (46, 4, 46, 4))
        colors = LinearSegmentedColormap.from_list("ramp", _RAMP)
        ax.imshow(self.levels, colors, interpolation="none", vmin=0, vmax=255, extent=(0, 1, 1, 0))
        edges = self.edges
        if self.is_small:
            tag(ax.hlines(edges[1:-1], 0, 1), "cut")
            tag(ax.vlines(edges[1:-1], 0, 1), "cut")
        for cluster, middle, width in zip(
            self.clusters, (edges[1:] + edges[:-1]) / 2, np.diff(edges), strict=True
        ):
            if width > 0.025 and len(self.clusters) <= _NAMED_BLOCKS:
                for place in ((middle, -0.02), (-0.022, middle)):
                    tag(ax.text(*place, str(cluster), ha="center", va="center"), "number")
        ax.set(xticks=[], yticks=[])
        return svg(ax.figure)


def block_matrix(graph: csr_array[np.float64], labels: NDArray[np.int64]) -> BlockMatrix:
    """Sum the weights of (A + Aᵀ)/2 in pixels, by cluster in reverse Cuthill-McKee order, and in pairs of clusters."""
    from scipy.sparse import coo_array, csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    symmetric: csr_array[np.float64] = csr_array(0.5 * graph + 0.5 * graph.T)
    n_samples = len(labels)
    clusters, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    side = min(n_samples, _PIXELS)
    pixel = np.empty(n_samples, dtype=np.int64)
    order = reverse_cuthill_mckee(symmetric, symmetric_mode=True)
    pixel[order[np.argsort(labels[order], kind="stable")]] = (
        np.arange(n_samples) * side // n_samples
    )
    entries = symmetric.tocoo()
    row, column = (pixel[index] for index in entries.coords)
    mass = np.bincount(row * side + column, weights=entries.data, minlength=side * side)
    pixels = np.bincount(pixel, minlength=side)
    density = mass.reshape(side, side) / np.outer(pixels, pixels)
    positive = density[density > 0]
    top = float(np.quantile(positive, 0.995)) if len(positive) else 1.0
    levels = np.ceil(255 * np.sqrt(np.minimum(density / top, 1.0))).astype(np.uint8)
    pairs = (entries.data, tuple(codes[index] for index in entries.coords))
    between = csr_array(coo_array(pairs, shape=(len(clusters), len(clusters))))
    return BlockMatrix(levels, clusters, sizes, between)


def cluster_tree(merges: NDArray[np.float64], names: tuple[int, ...]) -> dict[str, Any]:
    """Picture of a linkage matrix on a logarithmic scale, its merges for readers who do not see it, and a CSV table."""
    from scipy.cluster.hierarchy import dendrogram

    heights = np.log(np.maximum(merges[:, 2], 1e-300))
    # the first merge is a tenth of the way from the leaves
    scaled = 0.1 + 0.9 * (heights - heights[0]) / max(float(np.ptp(heights)), 1e-9)
    shown = np.column_stack((merges[:, :2], np.maximum(scaled, 0.0), merges[:, 3]))
    width, height = 360, _STEP * len(names)
    ax = empty_axes(width, height, (_LEFT, _RIGHT, 0, 0))
    style: dict[str, Any] = {"color_threshold": 0, "above_threshold_color": "#5a6675"}
    labels = [str(name) for name in names]
    dendrogram(shown, ax=ax, orientation="right", labels=labels, leaf_font_size=11.5, **style)
    ax.collections[0].set(linewidth=1.6, clip_on=False)
    ax.set(xlim=(0, 1), ylim=(10 * len(names), 0), xticks=[])
    below: list[list[str]] = [[str(name)] for name in names]
    for first, second, *_ in merges:
        below.append([*below[int(first)], *below[int(second)]])
    sides = [[below[int(side)] for side in merge[:2]] for merge in merges]
    text = "; ".join(" with ".join(" and ".join(side) for side in pair) for pair in sides)
    rows = [
        f"{' '.join(first)},{' '.join(second)},{distance:.9g}"
        for (first, second), distance in zip(sides, merges[:, 2], strict=True)
    ]
    return {
        "svg": svg(ax.figure),
        "size": (width, height),
        "text": f"Merged clusters: {text}.",
        "csv": "\n".join(["first,second,distance", *rows]),
    }
