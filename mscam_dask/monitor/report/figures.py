"""Figures of the report of a run, from its result."""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.results import StoredResult
from mscam_dask.monitor.report.charts import Axes, LineChart, line_chart
from mscam_dask.monitor.report.formatting import sentence
from mscam_dask.monitor.report.scatter import (
    DRAW_SEED,
    Drawing,
    EdgePath,
    Scatter,
    contracted_graph,
    edge_paths,
    graph_layout,
    principal_planes,
    scatter,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = [
    "BlockMatrix",
    "MatrixFigure",
    "ViewFigure",
    "block_matrix",
    "cluster_order",
    "convergence_charts",
    "encode_png",
    "graph_figure",
    "matrix_figure",
    "png_url",
    "view_figures",
]

_VIEW_LIMIT = 12
_NAMED_BLOCKS = 30
_TIP_BLOCKS = 60


@dataclass(frozen=True, eq=False)
class MatrixFigure:
    """Block matrix of the learned graph: image, grid lines and cluster numbers.

    Attributes
    ----------
    matrix
    url
        Data URL of the image.
    lines
        Boundaries between clusters, from 0 to 1; empty if there are too many.
    middles
        (cluster, position) of the cluster numbers along the sides.
    between
        Rounded weights between clusters, for tooltips; empty if there are too many.
    """

    matrix: BlockMatrix
    url: str
    lines: tuple[float, ...]
    middles: tuple[tuple[int, float], ...]
    between: list[list[float]]


def matrix_figure(result: StoredResult) -> MatrixFigure:
    """Return the learned graph as a block matrix."""
    matrix = block_matrix(result.learned_graph, result.labels)
    edges = matrix.edges
    n_clusters = len(edges) - 1
    widths = np.diff(edges)
    middles = [
        (int(cluster), float(edge + width / 2))
        for cluster, edge, width in zip(matrix.clusters, edges, widths, strict=False)
        if width > 0.025 and n_clusters <= _NAMED_BLOCKS
    ]
    few = n_clusters <= _TIP_BLOCKS
    return MatrixFigure(
        matrix=matrix,
        url=png_url(matrix.levels, _ramp()),
        lines=tuple(edges[1:-1].tolist()) if few else (),
        middles=tuple(middles),
        between=np.round(matrix.between.toarray(), 3).tolist() if few else [],
    )


def _ramp() -> NDArray[np.uint8]:
    """Palette from white to dark blue with even steps of lightness, also in print."""
    stops = np.array([[255, 255, 255], [158, 202, 225], [49, 130, 189], [8, 48, 107]])
    at = np.linspace(0, len(stops) - 1, 256)
    channels = [np.interp(at, np.arange(len(stops)), column) for column in stops.T]
    return np.asarray(np.rint(np.column_stack(channels)), dtype=np.uint8)


@dataclass(frozen=True, eq=False)
class GraphFigure:
    """Learned graph in the plane."""

    plot: Scatter
    edges: tuple[EdgePath, ...]
    n_edges_drawn: int
    n_edges: int


def graph_figure(result: StoredResult, drawing: Drawing) -> GraphFigure:
    """Return the learned graph of the drawn samples, with a force-directed layout."""
    graph = contracted_graph(result.learned_graph, drawing.rows)
    labels = result.labels[drawing.rows]
    positions = graph_layout(graph, rng=np.random.default_rng(DRAW_SEED))
    plot = scatter([positions], labels, ("",))
    paths, n_drawn, n_edges = edge_paths(graph, plot, labels)
    return GraphFigure(plot, paths, n_drawn, n_edges)


@dataclass(frozen=True, eq=False)
class ViewFigure:
    """Plot of the principal coordinates of one view."""

    key: str
    name: str
    plot: Scatter


def view_figures(result: StoredResult, drawing: Drawing) -> tuple[tuple[ViewFigure, ...], int]:
    """Return plots of the ridge embeddings of the first views, and the number of views."""
    labels = result.labels[drawing.rows]
    figures = []
    for index, (name, values) in enumerate(result.view_coordinates.items()):
        if index == _VIEW_LIMIT:
            break
        planes, names = principal_planes(values[drawing.rows].astype(np.float64))
        figures.append(ViewFigure(f"view{index}", name, scatter(planes, labels, names)))
    return tuple(figures), len(result.view_coordinates)


def convergence_charts(result: StoredResult, n_clusters: int) -> tuple[LineChart, ...]:
    """Return charts of the outer iterations."""
    history = result.history
    iterations = tuple(float(value) + 1 for value in history["outer_iteration"].values)
    single = (
        ("n_connected_components", "Connected components", "components", False, True),
        ("graph_weight", "Graph weight \u03bb", "\u03bb", True, False),
        ("score", "Score (cross-view information)", "nats", False, False),
    )
    by_view = (
        ("view_score", "Information by view", "nats", False),
        ("primal_residual", "Primal residual", "residual", True),
        ("dual_residual", "Dual residual", "residual", True),
    )
    charts = []
    for name, title, unit, log, whole in single:
        if name in history:
            level = ("target", float(n_clusters)) if whole else None
            axes = Axes(
                x="iteration", y=unit, log=log, whole=whole, level=level, at=iterations or None
            )
            values = [float(value) for value in history[name].values]
            caption = sentence(str(history[name].attrs.get("long_name", "")))
            charts.append(line_chart(name, [("", 0, values)], axes, title=title, caption=caption))
    views = [str(view) for view in history["view"].values][:_VIEW_LIMIT]
    for name, title, unit, log in by_view:
        if name in history:
            table = np.asarray(history[name].values, dtype=np.float64)
            lines = [(view, i, table[:, i].tolist()) for i, view in enumerate(views)]
            caption = sentence(str(history[name].attrs.get("long_name", "")))
            axes = Axes(x="iteration", y=unit, log=log, at=iterations or None)
            charts.append(line_chart(name, lines, axes, title=title, caption=caption))
    return tuple(chart for chart in charts if chart is not None)


_PIXELS = 480


@dataclass(frozen=True, eq=False)
class BlockMatrix:
    """Density of the edge weights, with samples in the order of clusters.

    Attributes
    ----------
    levels : (p, p) uint8
        0 for a pixel without an edge, 255 for the densest.
    clusters, sizes : (c,)
        Numbers of the clusters, ascending, and their numbers of samples.
    edges : (c + 1,)
        Boundaries of the clusters along a side of length 1.
    samples_per_pixel : float
    between : (c, c) CSR
        Weight of (A + Aᵀ)/2 within and between clusters.
    """

    levels: NDArray[np.uint8]
    clusters: NDArray[np.int64]
    sizes: NDArray[np.int64]
    edges: NDArray[np.float64]
    samples_per_pixel: float
    between: csr_array[np.float64]

    @property
    def weight_across(self) -> float:
        """Share of the weight that lies between different clusters."""
        weights = self.between.tocoo()
        first, second = weights.coords
        total = float(weights.data.sum())
        # total - trace would not be exactly zero, because of rounding
        across = float(weights.data[first != second].sum())
        return across / total if total > 0 else 0.0


def cluster_order(graph: csr_array[np.float64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Samples by cluster, and in reverse Cuthill-McKee order within each cluster."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    order = reverse_cuthill_mckee(graph, symmetric_mode=True)
    return np.asarray(order[np.argsort(labels[order], kind="stable")], dtype=np.int64)


def block_matrix(graph: csr_array[np.float64], labels: NDArray[np.int64]) -> BlockMatrix:
    """Sum the weights of (A + Aᵀ)/2 in pixels and in pairs of clusters.

    Parameters
    ----------
    graph : (n, n) CSR
    labels : (n,)

    Notes
    -----
    The level of a pixel is the square root of its mean weight, relative to the 99.5th percentile
    of the pixels with edges. Sparse and dense clusters are both visible this way.
    """
    from scipy.sparse import coo_array, csr_array

    symmetric: csr_array[np.float64] = csr_array(0.5 * graph + 0.5 * graph.T)
    n_samples = len(labels)
    clusters, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    n_clusters = len(clusters)
    side = min(n_samples, _PIXELS)
    place = np.empty(n_samples, dtype=np.int64)
    place[cluster_order(symmetric, labels)] = np.arange(n_samples)
    entries = symmetric.tocoo()
    row, column = (place[index] * side // n_samples for index in entries.coords)
    mass = np.bincount(row * side + column, weights=entries.data, minlength=side * side)
    pixels = np.bincount(np.arange(n_samples) * side // n_samples, minlength=side)
    density = mass.reshape(side, side) / np.outer(pixels, pixels)
    positive = density[density > 0]
    top = float(np.quantile(positive, 0.995)) if len(positive) else 1.0
    levels = np.ceil(255 * np.sqrt(np.minimum(density / top, 1.0))).astype(np.uint8)
    first, second = (codes[index] for index in entries.coords)
    pairs = coo_array((entries.data, (first, second)), shape=(n_clusters, n_clusters))
    return BlockMatrix(
        levels=levels,
        clusters=clusters,
        sizes=sizes,
        edges=np.concatenate(([0.0], np.cumsum(sizes) / n_samples)),
        samples_per_pixel=n_samples / side,
        between=csr_array(pairs),
    )


def encode_png(levels: NDArray[np.uint8], palette: NDArray[np.uint8]) -> bytes:
    """Encode an image with a palette as PNG.

    Parameters
    ----------
    levels : (height, width) uint8
    palette : (at most 256, 3) uint8
        Red, green, blue of each level.

    References
    ----------
    PNG specification, third edition, https://www.w3.org/TR/png-3/ (color type 3, depth 8).
    """
    height, width = levels.shape
    rows = np.zeros((height, width + 1), dtype=np.uint8)  # filter type 0 before each row
    rows[:, 1:] = levels
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", palette.tobytes()),
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)


def png_url(levels: NDArray[np.uint8], palette: NDArray[np.uint8]) -> str:
    """Return an image as a data URL."""
    return "data:image/png;base64," + base64.b64encode(encode_png(levels, palette)).decode()
