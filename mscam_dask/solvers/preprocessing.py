"""Selection of the scale and α of each view by neighbor overlap between views, without labels.

Two samples of one cluster tend to be neighbors in every view, those that a scaling or an α brings together by accident
in one only: the settings are selected whose nearest neighbors overlap most with those of the other views. A view
whose overlap is no more than chance may be uninformative.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.linalg.distances import WeightedBlocks
from mscam_dask.linalg.neighbor_information import permutation_z, shared_neighbors
from mscam_dask.linalg.neighbors import approximate_neighbors
from mscam_dask.linalg.scaling import BY_ROWS
from mscam_dask.solvers.ridge_view import ViewSVD, ridge_view
from mscam_dask.solvers.row_blocks import ViewShape
from mscam_dask.types.parameters import ViewSettings
from mscam_dask.types.rules import RULES


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """Settings selected for one view."""

    settings: ViewSettings
    agreement: float  # neighbor overlap: share in another view, minus chance
    margin: float  # over the default, in standard errors; 0 if it was kept
    error: float  # standard error of the overlap, over samples
    standardized: float  # overlap in standard errors of independent views


def has_few_columns(shape: ViewShape) -> bool:
    """Whether scaling rows to unit length loses much of the information of a view: one dimension of a few."""
    return shape.view_type == "features" and is_few(shape.n_features, shape.n_samples)


def is_few(n_columns: int, n_samples: int) -> bool:
    """Whether columns are less than log₂ n: each of the 2^d combinations of signs has more than one of the n samples, on average."""
    return n_columns < math.log2(n_samples)


def default_settings(shape: ViewShape, options: Sequence[ViewSettings]) -> ViewSettings:
    """The largest α with rows of unit length, or with standardized columns if there are few."""
    preferred = ("standard",) if has_few_columns(shape) else BY_ROWS
    scales = [option.scale for option in options]
    scale = next((one for one in scales if one in preferred), scales[0])
    of_scale = [option for option in options if option.scale == scale]
    return max(of_scale, key=lambda option: option.alpha)


def embedding_neighbors(
    view: ViewSVD, alpha: float, n_neighbors: int, rows: slice | NDArray[np.int64] = slice(None)
) -> NDArray[np.int32]:
    """Nearest neighbors (m, k) among some rows in the ridge embedding of one view, in any order, to the precision of products."""
    vectors, weights = ridge_view(view, alpha=alpha).coordinates()
    points = WeightedBlocks((vectors[rows],), (weights,))
    return approximate_neighbors(points, n_neighbors).astype(np.int32)


def overlap_of_permutations(
    neighbors: NDArray[np.integer[Any]], votes: NDArray[np.float32]
) -> float:
    """Overlap of one view (m, k) with the votes (m, m), in standard errors over permutations."""
    has = np.flatnonzero(neighbors[:, 0] >= 0)
    if len(has) < len(votes):
        neighbors, votes = np.searchsorted(has, neighbors[has]), votes[np.ix_(has, has)]
    return permutation_z(neighbors, votes) if len(has) > 1 else 0.0


def choose_view_settings(
    views: Sequence[Mapping[ViewSettings, NDArray[np.integer[Any]]]],
    voting: Sequence[Sequence[ViewSettings]],
    usual: Sequence[ViewSettings],
    votes: NDArray[np.float32],
    popularity: NDArray[np.float64],
    n_views: int,
) -> list[Choice]:
    """Select the settings of some views whose neighbors overlap most with those of all other views.

    `views` has the neighbors (m, k) for each view and its settings, −1 for absent samples; `voting` the settings
    whose mean graph is the share of a view in the `votes` (m, n) of all `n_views`, with column means `popularity` (n,);
    `usual` the default settings, kept unless others are better by more than four standard errors (paired over samples).
    Two lists of independent views share k² / m, approximately Poisson: the mean share over m_v rows and V − 1 views has
    a standard error of 1 / √(m m_v (V − 1)).
    """
    choices = []
    for of_all, settings, kept in zip(views, voting, usual, strict=True):
        has = np.flatnonzero(of_all[kept][:, 0] >= 0)
        lists = of_all
        if len(has) < len(votes):
            lists = {setting: neighbors[has] for setting, neighbors in of_all.items()}
        voted = [lists[setting] for setting in settings]
        own = np.zeros((len(has), votes.shape[1]), dtype=np.uint8)
        for neighbors in voted:
            own.ravel()[_flat(np.arange(len(has)), neighbors, own.shape[1])] += 1
        counts = np.bincount(np.concatenate(voted, axis=None), minlength=votes.shape[1])
        of_others = (popularity - counts / (len(votes) * len(voted))) / (n_views - 1)
        shares = {}
        for setting, neighbors in lists.items():
            of_own = own.take(_flat(np.arange(len(has)), neighbors, own.shape[1])) / len(voted)
            weights = votes.take(_flat(has, neighbors, votes.shape[1])) - of_own
            shares[setting] = shared_neighbors(neighbors, weights / (n_views - 1), of_others)
        unit = math.sqrt(len(has) * len(votes) * (n_views - 1))
        choices.append(_best(shares, kept, unit))
    return choices


def _flat(
    rows: NDArray[np.intp], neighbors: NDArray[np.integer[Any]], n_columns: int
) -> NDArray[np.int64]:
    """Positions (m, k) of the neighbors of some rows in a flat matrix, read fastest by `take`."""
    return rows[:, None] * n_columns + neighbors


def uninformative_views(*scales: Sequence[Choice]) -> tuple[int, ...]:
    """Positions of uninformative views; empty if fewer than two informative views would be left.

    Their overlap is within four standard errors of chance for every number of neighbors (each of `scales`), and clearly
    below the highest for at least one: views of noise, but also views with other clusters than the rest.
    """
    most = [max(choice.agreement for choice in choices) for choices in scales]
    found = tuple(
        view
        for view, of_view in enumerate(zip(*scales, strict=True))
        if all(one.agreement <= RULES.clear_overlap * one.error for one in of_view)
        and any(
            one.agreement + RULES.clear_overlap * one.error < highest
            for one, highest in zip(of_view, most, strict=True)
        )
    )
    return found if len(scales[0]) - len(found) > 1 else ()


def _best(
    shares: Mapping[ViewSettings, NDArray[np.float64]], usual: ViewSettings, unit: float
) -> Choice:
    """Settings with the largest mean share, or the default ones unless these are clearly lower."""
    means = {setting: math.fsum(share) / max(1, len(share)) for setting, share in shares.items()}
    best = max(means, key=lambda setting: (means[setting], setting == usual))
    error = _standard_error(shares[best] - shares[usual])
    margin = (means[best] - means[usual]) / error if error > 0 else 0.0
    if margin <= RULES.clear_overlap:
        best, margin = usual, 0.0
    return Choice(best, means[best], margin, _standard_error(shares[best]), unit * means[best])


def _standard_error(values: NDArray[np.float64]) -> float:
    return float(values.std()) / math.sqrt(len(values)) if len(values) else 0.0
