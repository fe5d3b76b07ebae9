"""Support for the clusters in a report: their borders, the agreement of the views, and a tree over them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mscam_dask.monitor.report.formatting import count, p_value_text
from mscam_dask.monitor.report.tables import TableCell
from mscam_dask.types.borders import Borders
from mscam_dask.types.result import Assessment
from mscam_dask.types.rules import RULES

__all__ = ["ClusterRow", "ClusterTree", "SupportSection", "support_section"]

_MAX_CLUSTERS = 60
_MAX_BORDERS = 20  # clusters with a table of all borders
_MAX_TOUCHING = 3  # clusters that are listed beside each cluster
_LEFT, _RIGHT, _STEP = 40.0, 348.0, 18.0  # of the tree


@dataclass(frozen=True)
class ClusterRow:
    """Borders of one cluster, and its agreement with each view.

    Attributes
    ----------
    cluster, samples
    separated
        "yes", or the clusters that it is not separated from.
    weakest, p_value, counts
        Cluster on the other side of the border with the largest p-value, that value, and the samples on
        the own side, at the border and on the other side.
    views
    """

    cluster: int
    samples: str
    separated: str
    weakest: str
    p_value: str
    counts: str
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
        One row for each cluster, that with the largest p-value first; empty for trivial clusters.
    names
        All clusters.
    borders
        Cluster and the p-values of its borders; empty for many clusters.
    pairs
        Name of a view and its agreement with each view; empty for one view.
    tree
        None with two clusters, or too many.
    cut
        Sentence about clusters that are not shown; empty if all are.
    n_compared
        Samples with which borders are tested.
    """

    views: tuple[str, ...]
    clusters: tuple[ClusterRow, ...]
    names: tuple[int, ...]
    borders: tuple[tuple[int, tuple[TableCell, ...]], ...]
    pairs: tuple[tuple[str, tuple[TableCell, ...]], ...]
    tree: ClusterTree | None
    cut: str
    n_compared: int


def support_section(assessment: Assessment | None) -> SupportSection | None:
    """Return the content of the section; None where nothing was assessed."""
    if assessment is None:
        return None
    names, views = assessment.cluster_names, assessment.view_names
    pairs = tuple(
        (
            view,
            tuple(
                _support_cell(value, f"{view} and {other}")
                for other, value in zip(views, row, strict=True)
            ),
        )
        for view, row in zip(views, assessment.view_agreement, strict=True)
    )
    rows, matrix = (
        ((), ()) if assessment.borders is None else _borders(assessment, assessment.borders)
    )
    is_shown = 2 < len(names) <= _MAX_CLUSTERS
    return SupportSection(
        views=views,
        clusters=rows,
        names=names,
        borders=matrix,
        pairs=pairs if len(views) > 1 else (),
        tree=_tree(assessment.cluster_tree, names) if is_shown else None,
        cut=""
        if len(names) <= _MAX_CLUSTERS
        else f"The {_MAX_CLUSTERS} of {len(names)} clusters with the largest p-values.",
        n_compared=0 if assessment.borders is None else int(assessment.borders.sizes.sum()),
    )


def _borders(
    assessment: Assessment, borders: Borders
) -> tuple[tuple[ClusterRow, ...], tuple[tuple[int, tuple[TableCell, ...]], ...]]:
    """Rows of the clusters, and of the p-values of all borders of at most 20 clusters."""
    names, p_values = assessment.cluster_names, borders.p_values
    has_border = borders.counts.any(axis=2) | (p_values > 0.0)
    rows = []
    for k in np.argsort(-p_values.max(axis=1), kind="stable")[:_MAX_CLUSTERS]:
        order = np.argsort(-p_values[k], kind="stable")
        touching = [names[j] for j in order if p_values[k, j] > RULES.level]
        more = f" and {len(touching) - _MAX_TOUCHING} more" if len(touching) > _MAX_TOUCHING else ""
        # of equal p-values, that of the border with the most samples
        weakest = int(np.lexsort((borders.counts[k].sum(axis=1), p_values[k]))[-1])
        rows.append(
            ClusterRow(
                cluster=names[k],
                samples=count(int(borders.sizes[k])),
                separated=f"not from {', '.join(map(str, touching[:_MAX_TOUCHING]))}{more}"
                if touching
                else "yes",
                weakest=f"with {names[weakest]}" if has_border[k, weakest] else "\u2013",
                p_value=p_value_text(float(p_values[k, weakest])),
                counts=" | ".join(map(count, borders.counts[k, weakest].tolist()))
                if borders.counts[k, weakest].any()
                else "\u2013",
                views=tuple(
                    _support_cell(value, f"cluster {names[k]} in view {view}")
                    for view, value in zip(
                        assessment.view_names, assessment.cluster_agreement[:, k], strict=True
                    )
                ),
            )
        )
    matrix = tuple(
        (
            names[i],
            tuple(
                _border_cell(
                    f"{names[i]} and {names[j]}", float(p_values[i, j]), borders.counts[i, j]
                )
                if has_border[i, j]
                else TableCell(
                    "", 0, "" if i == j else "clusters without a common border", is_match=False
                )
                for j in range(len(names))
            ),
        )
        for i in range(len(names))
        if len(names) <= _MAX_BORDERS
    )
    return tuple(rows), matrix


def _border_cell(pair: str, p_value: float, counts: NDArray[np.int64]) -> TableCell:
    found = f"{counts[0]} | {counts[1]} | {counts[2]}" if counts.any() else "too few samples"
    shade = min(9, 4 + int(6 * p_value)) if p_value > RULES.level else 0
    text = p_value_text(p_value)
    return TableCell(
        text, shade, f"clusters {pair}: p-value {text}, samples {found}", is_match=False
    )


def _support_cell(value: float, what: str) -> TableCell:
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
