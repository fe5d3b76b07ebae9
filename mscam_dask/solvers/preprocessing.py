"""Choosing each view's scaling and α without labels: neighbours that the other views confirm.

Two samples of one cluster tend to be neighbours in every view, two that a scaling or a weight
of directions brings together by accident in that view only. Of the preparations of a view the
one is taken whose nearest neighbours occur most often among those of the other views; it takes
no partition, no number of clusters and no graph under learning. A view of which no neighbours are
those of another view by more than chance may tell nothing at all.
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

__all__ = [
    "Choice",
    "choose_view_settings",
    "default_settings",
    "embedding_neighbors",
    "has_few_columns",
    "uninformative_views",
]

# Standard errors by which a preparation must be ahead of the usual one, and an agreement above chance.
_CLEARLY = 4.0

# A view has to agree clearly less than this share of the most that one does, to be nobody's: in few
# samples an agreement that is there may be within its error.
_LITTLE = 0.5

# With fewer columns than this a row's length is too large a share of what it says to be left out.
_FEW_COLUMNS = 10

# The choice seldom changes after the second round; it may alternate for ever.
_MOST_ROUNDS = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen for one view.

    Attributes
    ----------
    index : int
        Of the preparation taken.
    agreement : float
        Mean share of a sample's neighbours that are neighbours in another view too, less what
        chance gives.
    ahead : float
        Of the usual preparation, in standard errors over samples; 0 where that was taken.
    error : float
        Standard error of the agreement, over samples.
    """

    index: int
    agreement: float
    ahead: float
    error: float


def has_few_columns(shape: ViewShape) -> bool:
    """Whether the rows of a view lose much of what they say when they are scaled to unit length."""
    return shape.view_type == "features" and shape.n_features < _FEW_COLUMNS


def default_settings(shape: ViewShape, options: Sequence[ViewSettings]) -> int:
    """Position of the preparation taken where the views say nothing clear.

    Rows of unit length with the largest α; standardised columns where there are few of them,
    since scaling a row to unit length gives up one dimension of d.
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
    """Nearest neighbours (m, k) in the anchor space of one view, of some rows among these."""
    anchors: NDArray[Any] = ridge_view(view, alpha=alpha).anchors()
    indices, _ = nearest_neighbors(anchors[rows], n_neighbors)
    return indices


def choose_view_settings(
    neighbors: Sequence[Sequence[NDArray[np.integer[Any]]]], usual: Sequence[int]
) -> tuple[Choice, ...]:
    """The preparation of each view whose neighbours the other views confirm.

    Parameters
    ----------
    neighbors : for each of V ≥ 2 views, for each of its preparations, (n, k) int
        The same samples throughout.
    usual : sequence of int
        For each view, the preparation to keep unless another is ahead by more than four
        standard errors (paired over samples).

    Returns
    -------
    tuple of Choice

    Notes
    -----
    In the first round a view is compared with the mean over the preparations of every other
    view, then with those chosen in the round before, until nothing changes. The result does not
    depend on the order of the views. O(V k n) entries of the summed graph are searched for each
    of V views and its preparations.
    """
    n = neighbors[0][0].shape[0]
    graphs = [[neighbor_counts(lists, n) for lists in view] for view in neighbors]
    references = [_divided(_sum(view), len(view)) for view in graphs]
    chosen: list[int] | None = None
    choices: tuple[Choice, ...] = ()
    for _ in range(_MOST_ROUNDS):
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
    """Views whose neighbours no other view confirms; none where fewer than two others are left.

    Parameters
    ----------
    *scales : sequence of Choice
        One for each view, by few neighbours and by many: samples of one cluster may have few nearest
        neighbours in common, and samples of many small clusters only these.

    Returns
    -------
    tuple of int
        Positions of the views whose agreement is always within four standard errors of what chance
        gives, and once clearly below half of the highest. A view of noise is one, and so is one whose
        clusters are not those of the other views: which of the two, a partition has to tell.
    """
    most = [max(choice.agreement for choice in choices) for choices in scales]
    found = tuple(
        view
        for view, of_view in enumerate(zip(*scales, strict=True))
        if all(one.agreement <= _CLEARLY * one.error for one in of_view)
        and any(
            one.agreement + _CLEARLY * one.error < _LITTLE * highest
            for one, highest in zip(of_view, most, strict=True)
        )
    )
    return found if len(scales[0]) - len(found) > 1 else ()


def _sum(graphs: Sequence[csr_array[np.float64]]) -> csr_array[np.float64]:
    """By a tree: a sum of many views would be copied once for each of them."""
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
    if ahead <= _CLEARLY:
        best, ahead = usual, 0.0
    return Choice(best, means[best], ahead, _standard_error(shares[best]))


def _standard_error(values: NDArray[np.float64]) -> float:
    return float(values.std()) / math.sqrt(len(values))
