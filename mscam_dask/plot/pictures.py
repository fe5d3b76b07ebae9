"""Samples that are drawn and their places, colors, axes, the drawings that plots and reports share, and their SVG."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mscam_dask.linalg.eigensolver import bottom_eigenpairs
from mscam_dask.linalg.laplacian import connected_components, laplacian
from mscam_dask.types.rules import RULES

if TYPE_CHECKING:
    import xarray
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from scipy.sparse import csr_array

# The ten colors of M. A. Petroff (arXiv:2107.02270), and fourteen more: each is the color of a grid, of contrast
# 1.9 to 12 with white, that is farthest from those before it in OKLab, with a quarter of that distance under
# simulated protanopia and deuteranopia added. No two are closer in OKLab than the closest of the first ten.
CLUSTER_COLORS = (
    *("#3f90da", "#ffa90e", "#bd1f01", "#7d8d8b", "#832db6", "#a96b59", "#e76300", "#a39a56"),
    *("#50535c", "#43b3b8", "#f070f0", "#1010f0", "#10d010", "#108010", "#701010", "#103080"),
    *("#d01090", "#d0b0d0", "#104010", "#c030f0", "#601070", "#a070c0", "#f06090", "#1060c0"),
)
LEAST_P_VALUE = 1e-4  # smaller p-values are drawn here
QUANTITIES = {  # of outer iterations: title, unit, and whether y is logarithmic
    "n_connected_components": ("Connected components", "components", False),
    "graph_weight": ("Graph weight λ", "λ", True),
    "score": ("Score (cross-view information)", "nats", False),
    "view_score": ("Information by view", "nats", False),
    "primal_residual": ("Primal residual by view", "‖F - W‖ / √c", True),
    "dual_residual": ("Dual residual by view", "‖ΔF‖ / √c", True),
    "objective": ("Objective by view", "objective", False),
}
Curve = tuple[str, int, Sequence[float]]
"""Name, style (0, 1, ...) and values of a line."""
_OTHER = "other"
BETWEEN = "#9aa5b1"  # edges between clusters
MAX_NUMBERS = 30  # clusters with numbers
_MAX_EDGES = 8000


def cluster_color(cluster: int) -> str:
    """Color of a cluster; the colors repeat after the last."""
    return CLUSTER_COLORS[cluster % len(CLUSTER_COLORS)]


def sample_property(values: ArrayLike) -> tuple[NDArray[np.float64], tuple[str, ...] | None]:
    """Numbers (n,) of the samples, or positions in categories, NaN where missing; and the categories.

    Text, truth values and whole numbers of at most 24 values are categories (of more texts the 23 most frequent).
    """
    import pandas as pd

    given = pd.Series(np.asarray(values).tolist(), dtype=object)
    known = given.dropna()
    kinds = set(map(type, known))  # truth values are no numbers
    are_whole = kinds <= {int} and known.nunique() <= len(CLUSTER_COLORS)
    if kinds <= {int, float} and not are_whole:
        return given.astype(float).to_numpy(), None
    texts = known.map(str)
    ordered = [str(value) for value in sorted(set(known if are_whole else texts))]
    if len(ordered) > len(CLUSTER_COLORS):
        counts = texts.value_counts().sort_index().sort_values(ascending=False, kind="stable")
        frequent = set(counts.index[: len(CLUSTER_COLORS) - 1])
        ordered = [*sorted(frequent - {_OTHER}), _OTHER]
        texts = texts.where(texts.isin(frequent), _OTHER)
    codes = pd.Categorical(texts, categories=ordered).codes
    positions = pd.Series(codes, known.index, dtype=float).reindex(given.index)
    return positions.to_numpy(), tuple(ordered)


def new_axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Return the axes given, or those of a new figure, which pyplot does not know."""
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained").add_subplot() if ax is None else ax


def empty_axes(width: float, height: float, margins: Sequence[float] = (0, 0, 0, 0)) -> Axes:
    """Axes for `svg`: a figure in points, with margins on the left, right, top and bottom, and no frame."""
    from matplotlib.figure import Figure

    left, right, top, bottom = margins
    figure = Figure(figsize=(width / 72, height / 72), dpi=72)
    figure.patch.set_visible(False)
    box = (left, bottom, width - left - right, height - top - bottom)
    ax = figure.add_axes(tuple(np.divide(box, (width, height, width, height))))
    ax.patch.set_visible(False)
    ax.spines[:].set_visible(False)
    ax.tick_params(which="both", length=0, left=False, bottom=False, labelsize=11.5)
    return ax


def add_legend(ax: Axes) -> None:
    """Add a legend on the right of the axes."""
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def draw_clusters(
    ax: Axes, places: NDArray[np.float64], labels: NDArray[np.int64], *, size: float
) -> None:
    """Samples by cluster with its number."""
    for cluster in np.unique(labels).tolist():
        own = places[labels == cluster]
        dots = ax.scatter(*own.T, s=size, color=cluster_color(cluster), linewidths=0)
        tag(dots, f"dots k{cluster % len(CLUSTER_COLORS)}", cluster=cluster)
        if labels.max() < MAX_NUMBERS:
            middle = np.median(own[~np.isnan(own).any(axis=1)], axis=0)
            box = {"boxstyle": "round,pad=0.2", "fc": "white", "ec": "none", "alpha": 0.75}
            style: dict[str, Any] = {"ha": "center", "va": "center", "fontweight": "bold"}
            text = ax.annotate(str(cluster), middle, bbox=box, **style)
            tag(text, "number", cluster=cluster)


def draw_edges(
    ax: Axes,
    places: NDArray[np.float64],
    graph: csr_array[np.float64],
    labels: NDArray[np.int64],
) -> tuple[int, int]:
    """Lines of at most 8000 edges, the heaviest, gray between clusters; their number, and that of all edges."""
    from matplotlib.collections import LineCollection

    entries = graph.tocoo()
    start, end = entries.coords
    upper = np.flatnonzero(start < end)
    heavy = upper[np.argsort(-entries.data[upper], kind="stable")[:_MAX_EDGES]]
    start, end = start[heavy], end[heavy]
    owner = np.where(labels[start] == labels[end], labels[start], -1)
    ends = np.stack((places[start], places[end]), axis=1)
    for cluster in np.unique(owner).tolist():
        color = BETWEEN if cluster < 0 else cluster_color(cluster)
        own = list(ends[owner == cluster])
        lines = LineCollection(own, colors=color, linewidths=0.5, alpha=0.4, zorder=0.5)
        kind = "x" if cluster < 0 else cluster % len(CLUSTER_COLORS)
        tag(ax.add_collection(lines), f"edges k{kind}", cluster=cluster)
    return len(heavy), len(upper)


def draw_curves(
    ax: Axes, at: Sequence[float], curves: Sequence[Curve], *, log: bool = False, least: float = 0.0
) -> None:
    """Lines over `at`; of a logarithmic y, values below `least` are drawn there, and none where it is 0."""
    for name, style, values in curves:
        drawn = np.array(values, dtype=np.float64)
        if log:
            drawn = np.where(np.maximum(drawn, least) > 0, np.maximum(drawn, least), np.nan)
        color = cluster_color(style)
        (line,) = ax.plot(at, drawn, marker="o", markersize=4, color=color, label=name or None)
        tag(line, f"curve k{style % len(CLUSTER_COLORS)} d{style % 6}", line=style)
    if log:
        ax.set_yscale("log")
    beyond = 0.04 * (at[-1] - at[0] or 1.0)
    ax.set_xlim(at[0] - beyond, at[-1] + beyond)
    if all(float(value).is_integer() for value in at):
        ax.locator_params(axis="x", integer=True)


def draw_mark(ax: Axes, name: str, *, x: float | None = None, y: float | None = None) -> None:
    """Dashed line at `x`, with its name above the axes, or at `y`, with its name on their right."""
    style: dict[str, Any] = {"color": "#9a1c1c", "linestyle": "--", "linewidth": 1.4}
    if x is not None:
        tag(ax.axvline(x, **style), "level")
        is_late = x > sum(ax.get_xlim()) / 2
        place, axes, shift = (x, 1.0), ("data", "axes fraction"), (0, 3)
        align = {"ha": "right" if is_late else "left", "va": "bottom"}
    else:
        assert y is not None
        tag(ax.axhline(y, **style), "level")
        place, axes, shift = (1.0, y), ("axes fraction", "data"), (3, 0)
        align = {"ha": "left", "va": "center"}
    text = ax.annotate(name, place, shift, axes, "offset points", color=style["color"], **align)
    tag(text, "level-name")


def draw_history(ax: Axes, history: xarray.Dataset, quantity: str) -> list[Curve]:
    """Lines of one quantity over the outer iterations, one for each view if it has views; return them."""
    _, unit, log = QUANTITIES.get(quantity, ("", quantity.replace("_", " "), False))
    values = history[quantity].values
    names = list(map(str, history["view"].values)) if values.ndim > 1 else [""]
    table = values.reshape(len(values), len(names)).T
    curves: list[Curve] = [(name, i, table[i].tolist()) for i, name in enumerate(names)]
    draw_curves(ax, (history["outer_iteration"].values + 1).tolist(), curves, log=log)
    ax.set(xlabel="outer iteration", ylabel=unit)
    return curves


def draw_p_values(
    ax: Axes, counts: Sequence[int], p_values: Sequence[float], selected: int
) -> list[Curve]:
    """Largest p-value of the borders over the number of clusters, the level, and the selected number if it is above 1."""
    curves: list[Curve] = [("", 0, p_values)]
    draw_curves(ax, counts, curves, log=True, least=LEAST_P_VALUE)
    ax.set_ylim(0.6 * LEAST_P_VALUE, 1.6)
    draw_mark(ax, f"{RULES.level:g}", y=RULES.level)
    if selected > 1:
        draw_mark(ax, f"{selected} selected", x=selected)
    ax.set(xlabel="n_clusters", ylabel="p-value")
    return curves


def tag(drawn: Artist, kind: str, **data: object) -> None:
    """Give an artist a class and data attributes in the SVG."""
    names = {f"data-{name}": str(value) for name, value in data.items()}
    drawn.set_gid(json.dumps({"class": kind, **names}))


_ATTRIBUTES = ("fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "text-anchor")


def svg(figure: Figure) -> str:
    """Elements of the SVG of a figure, without style attributes; a tagged artist is one path or text with its class."""
    import matplotlib as mpl

    stream = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "mscam", "path.simplify": False}):
        figure.savefig(stream, format="svg", dpi=72)
    root = ET.fromstring(stream.getvalue())
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.text, element.tail = (element.text or "").strip(), None
    for group in root.findall(".//g[@id]"):
        given = group.attrib.pop("id")
        if given.startswith("{"):
            _merge(group, json.loads(given))
    for element in root.iter():
        for part in element.attrib.pop("style", "").split(";"):
            name, _, value = part.strip().partition(":")
            if name in _ATTRIBUTES:
                element.set(name, value.strip())
        element.attrib = {name.rpartition("}")[2]: text for name, text in element.attrib.items()}
        if "d" in element.attrib:
            element.set("d", _rounded(element.get("d", "")))
    kept = [child for child in root if child.tag == "g"]
    return "".join(ET.tostring(child, encoding="unicode") for child in kept)


def _merge(group: ET.Element, attributes: dict[str, str]) -> None:
    text, dots = group.find(".//text"), group.findall(".//use")
    paths = group.findall(".//path[@d]")
    for child in list(group):
        group.remove(child)
    if text is not None:
        text.attrib.update(attributes)
        group.append(text)
        return
    d = [path.get("d", "") for path in paths]
    if dots:
        d = [f"M {dot.get('x')} {dot.get('y')}h0" for dot in dots]
    ET.SubElement(group, "path", {"d": "".join(d), **attributes})


def _rounded(path: str) -> str:
    """Coordinates of a path with one digit, and no needless spaces."""
    text = re.sub(r"-?\d+\.\d+", lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), path)
    return re.sub(r"\s*([A-Za-z])\s*", r"\1", text).strip()


def best_order(counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], dict[int, int]]:
    """Columns in the order of their best assignment to rows, unassigned ones last, and that assignment."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(-counts)
    rest = np.setdiff1d(np.arange(counts.shape[1]), columns)
    return np.concatenate((columns, rest)), dict(zip(rows.tolist(), columns.tolist(), strict=True))


# samples and their places ------------------------------------------------------------------------


DRAW_LIMIT = 2000
DRAW_SEED = 0

_PLANES = 3
_SPRING_STEPS = 80
_PUSHING = 256


def draw_samples(
    labels: NDArray[np.int64], *, listed: NDArray[np.int64] | None = None, limit: int = DRAW_LIMIT
) -> NDArray[np.int64]:
    """Rows of all samples, or of a random sample, `listed` and one of each cluster; by cluster."""
    rows = np.arange(len(labels))
    if len(labels) > limit:
        random = np.random.default_rng(DRAW_SEED).choice(len(labels), size=limit, replace=False)
        first = np.unique(labels, return_index=True)[1]
        missing = first[~np.isin(labels[first], labels[random])][:limit]
        rows = np.unique(np.concatenate((random, rows[:0] if listed is None else listed, missing)))
    return rows[np.argsort(labels[rows], kind="stable")]


def principal_planes(values: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Orthogonal projections (m, 2) of samples (m, r) on axes 1 and 2, 3 and 4, 5 and 6; NaN for absent samples."""
    has = ~np.isnan(values).any(axis=1)
    centered = values[has] - values[has].mean(axis=0) if has.any() else np.zeros((0, 2))
    left, lengths, right = np.linalg.svd(centered, full_matrices=False)
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])
    scores = np.full((len(values), max(2, len(lengths))), np.nan)
    scores[has] = 0.0
    scores[has, : len(lengths)] = left * lengths * signs
    starts = range(0, min(2 * _PLANES, scores.shape[1] - 1), 2)
    return [scores[:, start : start + 2] for start in starts]


def contracted_graph(
    graph: csr_array[np.float64], rows: NDArray[np.int64]
) -> csr_array[np.float64]:
    """Total weights (m, m) between the samples that two of the m rows represent, without a diagonal.

    A sample is represented by the row that is the fewest edges away. Connected components stay connected.
    """
    from scipy.sparse import coo_array, csr_array
    from scipy.sparse.csgraph import dijkstra

    symmetric: csr_array[np.float64] = csr_array(0.5 * graph + 0.5 * graph.T)
    size = len(rows)
    position = np.full(
        symmetric.shape[0] + 1, -1
    )  # the last one of a sample that no row represents
    position[rows] = np.arange(size)
    _, _, sources = dijkstra(
        symmetric, indices=rows, min_only=True, unweighted=True, return_predecessors=True
    )
    nearest = position[np.maximum(sources, -1)]
    entries = symmetric.tocoo()
    start, end = nearest[entries.coords[0]], nearest[entries.coords[1]]
    kept = (start >= 0) & (end >= 0) & (start != end)
    pairs = (entries.data[kept], (start[kept], end[kept]))
    return csr_array(coo_array(pairs, shape=(size, size)))


def graph_layout(graph: csr_array[np.float64]) -> NDArray[np.float64]:
    """Places (m, 2) of the nodes of a symmetric graph, connected ones near each other.

    Ranks in eigenvectors of the Laplacian, followed by the forces of Fruchterman and Reingold (Software:
    Practice and Experience 21, 1991, doi:10.1002/spe.4380211102). Each step takes the repulsion of at most
    256 random nodes.
    """
    rng = np.random.default_rng(DRAW_SEED)
    places = _start(graph, rng) + 0.05 * rng.standard_normal((graph.shape[0], 2))
    return _springs(graph, places - places.mean(axis=0), rng)


def _start(graph: csr_array[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Ranks in eigenvectors 2 and 3 of the Laplacian, which a weak node cannot dominate, or components on a circle."""
    size = graph.shape[0]
    count, components = connected_components(graph)
    if size < 4 or count > 1:
        angles = 2 * np.pi * (np.arange(size) / size if size < 4 else components / count)
        return np.column_stack((np.cos(angles), np.sin(angles)))
    spectrum = bottom_eigenpairs(
        laplacian(graph), 3, components=(count, components), relative_tolerance=1e-3, rng=rng
    )
    vectors = spectrum.vectors[:, 1:3]
    vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(axis=0), [0, 1]])
    ranks = vectors.argsort(axis=0, kind="stable").argsort(axis=0)
    return np.asarray(np.sqrt(3.0) * (2.0 * ranks / (size - 1) - 1.0))


def _springs(
    graph: csr_array[np.float64], places: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Move nodes by attraction (weight · d²/l) and repulsion (l²/d), with decreasing steps."""
    size = len(places)
    length = np.float32(2.0 / np.sqrt(size))
    entries = graph.tocoo()
    start, end = entries.coords
    pull = entries.data / max(float(entries.data.mean()), 1e-300) if graph.nnz else entries.data
    pull = np.minimum(pull, 4.0).astype(np.float32)
    at = places.astype(np.float32)
    for step in range(_SPRING_STEPS):
        others = np.arange(size) if size <= _PUSHING else rng.choice(size, _PUSHING, replace=False)
        far = at[others]
        squared = (at**2).sum(axis=1)[:, None] - 2 * at @ far.T + (far**2).sum(axis=1)
        push = 1 / (np.maximum(squared, 0) + np.float32(1e-4))
        push[others, np.arange(len(others))] = 0
        scale = length**2 * np.float32(size / len(others))
        force = scale * (at * push.sum(axis=1)[:, None] - push @ far)
        along = at[end] - at[start]
        stretch = (pull * np.hypot(along[:, 0], along[:, 1]) / length)[:, None] * along
        for axis in (0, 1):
            force[:, axis] += np.bincount(start, weights=stretch[:, axis], minlength=size)
        force -= at * np.float32(0.2)
        norm = np.maximum(np.hypot(force[:, 0], force[:, 1]), 1e-9)[:, None]
        at += force / norm * np.minimum(norm, 0.15 * (1 - step / _SPRING_STEPS))
    return at.astype(np.float64)
