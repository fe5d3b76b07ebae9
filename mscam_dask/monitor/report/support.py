"""Section of a report on how far the data support the clusters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mscam_dask.monitor.report.tables import TableCell
from mscam_dask.types.result import Assessment, unseparated_pairs

__all__ = ["ClusterRow", "ClusterTree", "SupportSection", "support_section"]

_MAX_CLUSTERS = 60
_LEFT, _RIGHT, _STEP = 40.0, 348.0, 18.0  # of the tree


@dataclass(frozen=True)
class ClusterRow:
    """Stability of one cluster, the clusters it is not separated from, and its agreement with each view."""

    cluster: int
    stability: TableCell
    touching: str
    views: tuple[TableCell, ...]


@dataclass(frozen=True)
class ClusterTree:
    """Tree over the clusters as one path.

    Attributes
    ----------
    width, height, left
        Size of the picture, and where the leaves end.
    path
        Branches.
    leaves
        (cluster, y) of each leaf.
    text
        Merges in order, for readers who do not see the picture.
    merges
        The same as a CSV table: clusters on both sides of each merge, and its distance.
    """

    width: float
    height: float
    left: float
    path: str
    leaves: tuple[tuple[int, float], ...]
    text: str
    merges: str


@dataclass(frozen=True)
class SupportSection:
    """Tables and tree of the section.

    Attributes
    ----------
    views
        Compared views.
    clusters
        One row for each cluster, the least stable first.
    pairs
        Name of a view and its agreement with each view; empty for one view.
    tree
        None with two clusters, or too many.
    cut
        Sentence about clusters that are not shown; empty if all are.
    """

    views: tuple[str, ...]
    clusters: tuple[ClusterRow, ...]
    pairs: tuple[tuple[str, tuple[TableCell, ...]], ...]
    tree: ClusterTree | None
    cut: str


def support_section(assessment: Assessment | None) -> SupportSection | None:
    """Return the content of the section; None where nothing was assessed."""
    if assessment is None:
        return None
    names, views = assessment.cluster_names, assessment.view_names
    touching: list[list[int]] = [[] for _ in names]
    for i, j in unseparated_pairs(assessment.co_clustering):
        touching[i].append(names[j])
        touching[j].append(names[i])
    order = np.argsort(np.nan_to_num(assessment.cluster_stability, nan=2.0), kind="stable")
    rows = tuple(
        ClusterRow(
            cluster=names[k],
            stability=_cell(assessment.cluster_stability[k], f"cluster {names[k]}, stability"),
            touching=", ".join(map(str, touching[k])),
            views=tuple(
                _cell(value, f"cluster {names[k]} in view {view}")
                for view, value in zip(views, assessment.cluster_agreement[:, k], strict=True)
            ),
        )
        for k in order[:_MAX_CLUSTERS]
    )
    pairs = tuple(
        (
            view,
            tuple(
                _cell(value, f"{view} and {other}") for other, value in zip(views, row, strict=True)
            ),
        )
        for view, row in zip(views, assessment.view_agreement, strict=True)
    )
    is_shown = 2 < len(names) <= _MAX_CLUSTERS
    return SupportSection(
        views=views,
        clusters=rows,
        pairs=pairs if len(views) > 1 else (),
        tree=_tree(assessment.cluster_tree, names) if is_shown else None,
        cut=""
        if len(names) <= _MAX_CLUSTERS
        else f"The {_MAX_CLUSTERS} least stable of {len(names)} clusters.",
    )


def _cell(value: float, what: str) -> TableCell:
    if np.isnan(value):
        return TableCell("-", 0, f"{what}: not compared", is_match=False)
    shade = int(np.clip(np.floor(10 * value), 0, 9))
    return TableCell(f"{value:.2f}", shade, f"{what}: {value:.3f}", is_match=False)


def _tree(merges: NDArray[np.float64], names: tuple[int, ...]) -> ClusterTree:
    """Draw a linkage matrix from left to right, leaves in the order of the branches."""
    c = len(names)
    below: list[list[int]] = [[k] for k in range(c)]
    for first, second, *_ in merges:
        below.append([*below[int(first)], *below[int(second)]])
    y = np.empty(2 * c - 1)
    y[below[-1]] = _STEP * (np.arange(c) + 0.5)
    heights = np.log(np.maximum(merges[:, 2], 1e-300))
    low, span = heights[0], max(float(heights[-1] - heights[0]), 1e-9)
    # the first merge is a tenth of the way from the leaves
    x = np.concatenate(
        (np.full(c, _LEFT), _LEFT + (_RIGHT - _LEFT) * (0.1 + 0.9 * (heights - low) / span))
    )
    path, text, lines = [], [], ["first,second,distance"]
    for merge, (first, second, distance, _) in enumerate(merges):
        i, j, node = int(first), int(second), c + merge
        y[node] = 0.5 * (y[i] + y[j])
        path.append(f"M{x[i]:.1f} {y[i]:.1f}H{x[node]:.1f}V{y[j]:.1f}H{x[j]:.1f}")
        groups = [" and ".join(str(names[k]) for k in below[one]) for one in (i, j)]
        text.append(f"{groups[0]} with {groups[1]}")
        sides = [" ".join(str(names[k]) for k in below[one]) for one in (i, j)]
        lines.append(f"{sides[0]},{sides[1]},{distance:.9g}")
    leaves = tuple((names[k], round(float(y[k]), 1)) for k in below[-1])
    joined = "; ".join(text)
    return ClusterTree(
        _RIGHT + 12.0,
        _STEP * c,
        _LEFT,
        "".join(path),
        leaves,
        f"Merged clusters: {joined}.",
        "\n".join(lines),
    )
