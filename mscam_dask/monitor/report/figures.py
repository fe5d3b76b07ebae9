"""Figures of the report of a run, from its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.results import StoredResult
from mscam_dask.monitor.report.charts import Axes, LineChart, line_chart
from mscam_dask.monitor.report.formatting import sentence
from mscam_dask.plot.pictures import draw_clusters, draw_edges, empty_axes, svg, tag
from mscam_dask.plot.places import principal_planes

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_VIEW_LIMIT = 12
_NAMED_BLOCKS = 30
_TIP_BLOCKS = 60
_PIXELS = 480
_SIDE, _MARGIN = 1000, 30
_RAMP = ("#ffffff", "#9ecae1", "#3182bd", "#08306b")  # even steps of lightness, also in print
_LEFT, _RIGHT, _STEP = 40, 12, 18  # of the tree


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


def view_figures(result: StoredResult, rows: NDArray[np.int64]) -> list[tuple[str, str, Scatter]]:
    """Key, name and picture of the ridge embeddings of the first views."""
    return [
        (
            f"view{index}",
            name,
            scatter(principal_planes(values[rows].astype(np.float64)), result.labels[rows]),
        )
        for index, (name, values) in enumerate(list(result.view_coordinates.items())[:_VIEW_LIMIT])
    ]


_CHARTS = (  # variable of the history, title, unit, and whether y is logarithmic
    ("n_connected_components", "Connected components", "components", False),
    ("graph_weight", "Graph weight \u03bb", "\u03bb", True),
    ("score", "Score (cross-view information)", "nats", False),
    ("view_score", "Information by view", "nats", False),
    ("primal_residual", "Primal residual", "residual", True),
    ("dual_residual", "Dual residual", "residual", True),
)


def convergence_charts(result: StoredResult, n_clusters: int) -> list[LineChart]:
    """Charts of the outer iterations."""
    history = result.history
    iterations = tuple(float(value) + 1 for value in history["outer_iteration"].values)
    if not iterations:
        return []
    views = [str(view) for view in history["view"].values][:_VIEW_LIMIT]
    charts = []
    for name, title, unit, log in _CHARTS:
        if name in history:
            values = np.asarray(history[name].values, dtype=np.float64)
            whole = name == "n_connected_components"
            axes = Axes(
                x="iteration",
                y=unit,
                log=log,
                whole=whole,
                level=("target", float(n_clusters)) if whole else None,
                at=iterations,
            )
            names = [""] if values.ndim == 1 else views
            table = values.reshape(len(iterations), -1).T
            lines = [(view, index, table[index].tolist()) for index, view in enumerate(names)]
            caption = sentence(str(history[name].attrs.get("long_name", "")))
            charts.append(line_chart(name, lines, axes, title=title, caption=caption))
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
