"""Figures of the report of a run, from its result."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.results import StoredResult
from mscam_dask.monitor.report.block_matrix import BlockMatrix, block_matrix, png_url
from mscam_dask.monitor.report.charts import Axes, LineChart, line_chart
from mscam_dask.monitor.report.formatting import sentence
from mscam_dask.monitor.report.layout import graph_layout
from mscam_dask.monitor.report.scatter import (
    EdgePath,
    Scatter,
    edge_paths,
    principal_planes,
    scatter,
)
from mscam_dask.monitor.report.subsample import DRAW_SEED, Drawing, contracted_graph

__all__ = [
    "MatrixFigure",
    "ViewFigure",
    "convergence_charts",
    "graph_figure",
    "matrix_figure",
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
