"""Selection of the scale and α of each view by neighbor overlap between views, without labels.

Two samples of one cluster tend to be neighbors in every view; samples that a scaling or an α brings
together by accident are neighbors in one view only. For each view, the settings are selected whose
nearest neighbors overlap most with those of the other views. The selection needs no partition, no
number of clusters and no learned graph. A view whose overlap is no more than chance may be
uninformative.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.neighbor_overlap import neighbor_counts, shared_neighbors
from mscam_dask.linalg.neighbors import nearest_neighbors
from mscam_dask.solvers.ridge_view import ViewSVD, ridge_view
from mscam_dask.solvers.row_blocks import ViewShape
from mscam_dask.types.parameters import ViewSettings
from mscam_dask.types.rules import RULES, SIZES

__all__ = [
    "Choice",
    "choose_view_settings",
    "default_settings",
    "embedding_neighbors",
    "has_few_columns",
    "uninformative_views",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """Settings selected for one view.

    Attributes
    ----------
    index : int
        Position of the selected settings.
    agreement : float
        Neighbor overlap: mean share of the neighbors of a sample that are also neighbors in another
        view, minus the share expected by chance.
    ahead : float
        Margin over the default settings in standard errors over samples; 0 if the default was kept.
    error : float
        Standard error of the overlap, over samples.
    """

    index: int
    agreement: float
    ahead: float
    error: float


def has_few_columns(shape: ViewShape) -> bool:
    """Whether scaling rows to unit length loses much of the information of a view."""
    return shape.view_type == "features" and shape.n_features < RULES.few_columns


def default_settings(shape: ViewShape, options: Sequence[ViewSettings]) -> int:
    """Position of the default settings, which are kept unless others are clearly better.

    These are rows of unit length with the largest α, or standardized columns if there are few
    columns, because scaling rows to unit length gives up one of d dimensions.
    """
    preferred = "standard" if has_few_columns(shape) else "unit"
    scales = [option.scale for option in options]
    scale = preferred if preferred in scales else scales[0]
    of_scale = [position for position, one in enumerate(scales) if one == scale]
    return max(of_scale, key=lambda position: options[position].alpha)


def embedding_neighbors(
    view: ViewSVD,
    alpha: float,
    n_neighbors: int,
    rows: slice | NDArray[np.int64] = slice(None),
) -> NDArray[np.int64]:
    """Nearest neighbors (m, k) among some rows in the ridge embedding of one view."""
    anchors: NDArray[Any] = ridge_view(view, alpha=alpha).anchors()
    indices, _ = nearest_neighbors(anchors[rows], n_neighbors)
    return indices


def choose_view_settings(
    neighbors: Sequence[Sequence[NDArray[np.integer[Any]]]], usual: Sequence[int]
) -> tuple[Choice, ...]:
    """Select the settings of each view whose neighbors overlap most with those of the other views.

    Parameters
    ----------
    neighbors : for each of V ≥ 2 views, for each of its settings, (n, k) int
        Neighbors of the same samples throughout.
    usual : sequence of int
        Position of the default settings of each view, which are kept unless others are better by
        more than four standard errors (paired over samples).

    Returns
    -------
    tuple of Choice

    Notes
    -----
    In the first round a view is compared with the mean over all settings of every other view, then
    with those selected in the previous round, until nothing changes. The result does not depend
    on the order of the views. O(V k n) entries of the summed graph are searched for each of the V
    views and each of its settings.
    """
    n = neighbors[0][0].shape[0]
    graphs = [[neighbor_counts(lists, n) for lists in view] for view in neighbors]
    references = [_divided(_sum(view), len(view)) for view in graphs]
    chosen: list[int] | None = None
    choices: tuple[Choice, ...] = ()
    for _ in range(SIZES.max_overlap_rounds):
        total = _sum(references)
        choices = tuple(
            _choose(view, _divided(total - own, len(references) - 1), kept)
            for view, own, kept in zip(neighbors, references, usual, strict=True)
        )
        if [choice.index for choice in choices] == chosen:
            break
        chosen = [choice.index for choice in choices]
        references = [view[index] for view, index in zip(graphs, chosen, strict=True)]
    return choices


def uninformative_views(*scales: Sequence[Choice]) -> tuple[int, ...]:
    """Positions of uninformative views; empty if fewer than two informative views would be left.

    Parameters
    ----------
    *scales : sequence of Choice
        One choice for each view, with few neighbors and with many: samples of one cluster may share
        few nearest neighbors, and samples of many small clusters only these.

    Returns
    -------
    tuple of int
        Views whose overlap is within four standard errors of chance for every number of neighbors, and
        clearly below half of the highest overlap for at least one. These are views of noise, but also
        views with other clusters than the rest; partition scores distinguish the two.
    """
    most = [max(choice.agreement for choice in choices) for choices in scales]
    found = tuple(
        view
        for view, of_view in enumerate(zip(*scales, strict=True))
        if all(one.agreement <= RULES.clear_overlap * one.error for one in of_view)
        and any(
            one.agreement + RULES.clear_overlap * one.error < RULES.uninformative_share * highest
            for one, highest in zip(of_view, most, strict=True)
        )
    )
    return found if len(scales[0]) - len(found) > 1 else ()


def _sum(graphs: Sequence[csr_array[np.float64]]) -> csr_array[np.float64]:
    """Sum of graphs, added pairwise in a tree to avoid one copy of the total for each view."""
    level = list(graphs)
    while len(level) > 1:
        pairs = [first + second for first, second in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(level) - len(level) % 2 :]
    return level[0]


def _divided(graph: csr_array[np.float64], count: int) -> csr_array[np.float64]:
    return csr_array((graph.data / count, graph.indices, graph.indptr), shape=graph.shape)


def _choose(
    view_settings: Sequence[NDArray[np.integer[Any]]], others: csr_array[np.float64], usual: int
) -> Choice:
    shares = [shared_neighbors(lists, others) for lists in view_settings]
    means = [math.fsum(share) / len(share) for share in shares]
    best = max(range(len(means)), key=lambda index: (means[index], index == usual))
    error = _standard_error(shares[best] - shares[usual])
    ahead = (means[best] - means[usual]) / error if error > 0 else 0.0
    if ahead <= RULES.clear_overlap:
        best, ahead = usual, 0.0
    return Choice(best, means[best], ahead, _standard_error(shares[best]))


def _standard_error(values: NDArray[np.float64]) -> float:
    return float(values.std()) / math.sqrt(len(values))
