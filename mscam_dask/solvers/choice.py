"""Candidate partitions without a preference for equal sizes, and the choice among partitions by their borders.

k-means on a spectral embedding, and the information of the views, prefer clusters of equal sizes. These
candidates do not: cuts of linkages of the points, of their principal scores and of a spectral embedding
of the reference graphs, each with the samples reassigned by discriminants that know the sizes, except with
clusters too small for discriminants. See docs/method.md.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.sparse import csr_array, diags_array

from mscam_dask.linalg.eigensolver import top_eigenpairs
from mscam_dask.linalg.neighbor_information import entropy
from mscam_dask.solvers.borders import (
    JointPoints,
    borders,
    cell_functions,
    largest_p_value,
    reassigned,
)
from mscam_dask.solvers.known_labels import n_missed
from mscam_dask.solvers.partition_score import ReferenceGraphs, explained_share, view_graph
from mscam_dask.solvers.spectral_cut import nearest_mean, sampled_rows
from mscam_dask.types.result import SMALLEST, Borders
from mscam_dask.types.rules import CONSTANTS, RULES, SIZES

# Cuts of a linkage tree that are searched for c clusters of enough samples.
_N_CUTS = 200


def principal_scores(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores (n, q) on the principal directions that noise does not explain, in units of the noise.

    Their eigenvalues are above the edge σ² (1 + √(p/n))² of Marchenko and Pastur, with σ² from the
    median eigenvalue; at least one. Clusters with a share π at distance δσ have the eigenvalue
    σ² (1 + π(1 − π) δ²): 5 samples of 1000 at 8σ have 1.32 σ².
    """
    n, p = points.shape
    centered = points - points.mean(axis=0)
    if p <= n:
        values, vectors = np.linalg.eigh(centered.T @ centered / n)
        scores = centered @ vectors[:, ::-1]
    else:
        values, vectors = np.linalg.eigh(centered @ centered.T / n)
        scores = vectors[:, ::-1] * np.sqrt(np.maximum(values[::-1], 0.0) * n)
    values = np.maximum(values[::-1], 0.0)
    kept, noise = signal_rank(values, n, p)
    numbers = np.finfo(np.float64)
    least = max(float(numbers.eps) * values[0], float(numbers.tiny))  # where columns have no noise
    return np.asarray(scores[:, :kept] / np.sqrt(max(noise, least)))


def signal_rank(values: NDArray[np.float64], n: int, p: int) -> tuple[int, float]:
    """Number of eigenvalues, in descending order, that noise does not explain, and the variance of the noise."""
    ratio = p / n
    expected = _median_of_noise(min(ratio, 1.0 / ratio)) * max(1.0, ratio)
    noise = float(np.median(values[: max(1, min(p, n - 1))]) / expected)
    kept = np.count_nonzero(values > noise * (1.0 + np.sqrt(ratio)) ** 2)
    return max(1, int(kept)), noise


def _median_of_noise(ratio: float) -> float:
    """Median of the law of Marchenko and Pastur with σ = 1 and p/n = ratio ≤ 1."""
    low, high = (1.0 - np.sqrt(ratio)) ** 2, (1.0 + np.sqrt(ratio)) ** 2
    t = np.linspace(low, high, 2001)[1:-1]
    mass = np.cumsum(np.sqrt((high - t) * (t - low)) / t)
    return float(t[np.searchsorted(mass, 0.5 * mass[-1])])


@dataclasses.dataclass(frozen=True, slots=True)
class Linkage:
    """Linkage tree of samples in some coordinates."""

    rows: NDArray[np.float64]  # (n, m) coordinates
    linked: NDArray[np.int64]  # rows in the tree, a sample of many
    tree: NDArray[np.float64]


def linkage_of(rows: NDArray[np.float64], method: Literal["average", "ward"]) -> Linkage:
    """Linkage of rows, or of a sample of many."""
    linked = sampled_rows(len(rows), SIZES.n_compared)
    return Linkage(rows, linked, linkage(rows[linked], method))


def point_linkages(points: JointPoints) -> tuple[Linkage, ...]:
    """Ward linkage of the sphered principal scores of points, and the average linkages of the scores and of the points."""
    scores = principal_scores(points.rows)
    deviations = scores.std(axis=0)
    sphered = scores / np.where(deviations > 0.0, deviations, 1.0)
    return (
        linkage_of(sphered, "ward"),
        linkage_of(scores, "average"),
        linkage_of(points.rows, "average"),
    )


def graph_linkages(views: Sequence[ReferenceGraphs], n_clusters: int) -> tuple[Linkage, ...]:
    """Ward linkage of the diffusion coordinates of the reference graphs, for candidates with up to c clusters."""
    rows = diffusion_coordinates(views, max(n_clusters, CONSTANTS.min_pairs))
    return (linkage_of(rows, "ward"),)


def diffusion_coordinates(views: Sequence[ReferenceGraphs], n_pairs: int) -> NDArray[np.float64]:
    """Coordinates (n, m) D^(−1/2) U Λ^(1/2) of the sum W of the graphs of all views, from top eigenpairs of D^(−1/2) W D^(−1/2).

    Their inner products are the entries of D⁻¹ W D⁻¹, up to the eigenpairs that are left out: a rare cluster is
    as far from the others as a large one.
    """
    graph = csr_array(functools.reduce(operator.add, [view_graph(view) for view in views]))
    degrees = np.asarray(graph.sum(axis=1), dtype=np.float64).ravel()
    roots = 1.0 / np.sqrt(np.where(degrees > 0.0, degrees, np.inf))
    matrix = csr_array(diags_array(roots) @ graph.astype(np.float64) @ diags_array(roots))
    values, vectors = top_eigenpairs(matrix, min(n_pairs, len(roots)))
    return np.asarray(roots[:, None] * vectors * np.sqrt(np.maximum(values, 0.0)))


def candidate_partitions(
    points: JointPoints, linkages: Sequence[Linkage], n_clusters: int
) -> list[NDArray[np.int64]]:
    """Candidates with c clusters: reassigned in three rounds, and those with clusters too small for that."""
    small = [
        labels
        for one in linkages
        for labels in linkage_partition(one, n_clusters, 2)
        if np.bincount(labels).min() < SMALLEST
    ]
    return reassigned_partitions(points, linkages, n_clusters, 3) + small


def reassigned_partitions(
    points: JointPoints, linkages: Sequence[Linkage], n_clusters: int, n_rounds: int
) -> list[NDArray[np.int64]]:
    """Candidates with c clusters, each with some rounds of reassignment."""
    return [
        reassigned(points.rows, labels, n_rounds)
        for one in linkages
        for labels in linkage_partition(one, n_clusters, SMALLEST)
    ]


def linkage_partition(one: Linkage, n_clusters: int, smallest: int) -> list[NDArray[np.int64]]:
    """The c largest groups of the first cut of a linkage that has c groups of enough samples; none without.

    All other rows join the nearest mean.
    """
    rows, linked, tree = one.rows, one.linked, one.tree
    children = tree[:, :2].astype(np.int64)
    is_large = np.concatenate([np.ones(len(linked)), tree[:, 3]]) >= smallest  # of each node
    # a cut into one group more replaces a node by its children, the last merge first
    gained = is_large[children].sum(axis=1, dtype=np.int64) - is_large[len(linked) :]
    n_large = np.concatenate([[0], [1], 1 + np.cumsum(gained[::-1])])  # by number of groups
    enough = np.flatnonzero(n_large[n_clusters : n_clusters + _N_CUTS] >= n_clusters)
    if not enough.size:
        return []
    groups = fcluster(tree, n_clusters + int(enough[0]), "maxclust")
    sizes = np.bincount(groups)
    large = np.flatnonzero(sizes >= smallest)
    large = large[np.argsort(-sizes[large], kind="stable")[:n_clusters]]
    means = np.stack([rows[linked[groups == group]].mean(axis=0) for group in large])
    labels = nearest_mean(rows, means)
    for cluster, group in enumerate(large):
        labels[linked[groups == group]] = cluster
    return [labels]


Search = tuple[JointPoints, Sequence[ReferenceGraphs], Sequence[Linkage]]
"""Points, the graphs of their views, and linkages, in which a better partition is searched."""


def best_by_known(
    partitions: Sequence[NDArray[np.int64]],
    views: Sequence[ReferenceGraphs],
    known: NDArray[np.int64],
) -> int:
    """Position of the partition that misses fewest known samples, and of several the one with the largest explained share.

    It is 0 unless the first misses more by over one standard error of the difference, as counts of Poisson.
    """
    missed = [n_missed(labels, known) for labels in partitions]
    fewest = min(missed)
    if (missed[0] - fewest) ** 2 <= missed[0] + fewest:
        return 0
    shares = [
        (explained_share(views, labels), -index)
        for index, (labels, count) in enumerate(zip(partitions, missed, strict=True))
        if count == fewest
    ]
    return -max(shares)[1]


def best_by_borders(
    points: JointPoints,
    partitions: Sequence[NDArray[np.int64]],
    views: Sequence[ReferenceGraphs],
    own: Borders,
    linkages: Sequence[Linkage],
    earlier: Sequence[Search] = (),
) -> int:
    """Position of the partition that takes the place of the first, which has its `own` borders; 0 if none.

    The linkages give partitions into one cluster more; there are none if the number of clusters was selected by borders.
    If `earlier` searches in other points found none, the share of the first is the largest in any of the points, and the
    partitions into one cluster more are those in all of them.

    A candidate must have no cluster of one sample, and keep as many clusters as the first when both are merged until all
    borders hold. The corrected level is the level divided by the number of candidates. A supported candidate is better in
    one of four cases:

    1. All its borders hold at the corrected level, and the part of its entropy that the neighbors in all views do not
       explain is at most 5 % of that of the first.
    2. All its borders hold at that level, no cluster of the first stands, and no partition into one cluster more has borders
       that all hold: otherwise the candidate would be one choice of several clusters.
    3. The views do not separate all pairs of clusters of the first that have no border, and the neighbors explain a larger
       share of its entropy.
    4. They separate all, and the first is not supported: the neighbors explain a larger share, also in nats, and all its
       borders hold at the corrected level. If no cluster of the first stands, support at that level is enough.

    In case 3, a candidate without support is better too if the first has none either: some clusters of the first stand, at
    least as many of the candidate do, and the neighbors explain at least half as many nats.

    Of several, supported ones come first, then those with most clusters left when they are merged until all borders hold,
    then those with the largest share.
    """
    searches: list[Search] = [(points, views, linkages), *earlier]
    own_share = max(explained_share(graphs, partitions[0]) for _, graphs, _ in searches)
    own_nats = own_share * entropy(partitions[0])
    are_separated = all(views_separate(points, partitions[0], own))
    n_stand = int(own.stand.sum())

    @functools.cache
    def is_finest() -> bool:
        """Whether no partition into one cluster more has borders that all hold."""
        more = (best_by_p_value(each, trees, [], len(own.sizes) + 1) for each, _, trees in searches)
        return all(p_value > RULES.level for p_value, _ in more)

    better = []
    for index, labels in enumerate(partitions[1:], start=1):
        share = explained_share(views, labels)
        nats = share * entropy(labels)
        # the conditions of each case that need no borders, which take most of the time
        in_case_1 = 1.0 - share <= RULES.level * (1.0 - own_share)
        in_case_2 = n_stand == 0
        in_case_3 = share > own_share and not are_separated
        in_case_4 = share > own_share and are_separated and nats > own_nats and not own.support
        if not (in_case_1 or in_case_2 or in_case_3 or in_case_4):
            continue
        found = borders(points, labels, len(own.sizes))
        if found.sizes.min() < 2 or found.n_supported < own.n_supported:
            continue
        corrected = found.of_several(len(partitions) - 1)
        all_hold = corrected.p_values.max() <= RULES.level
        no_less_stand = not own.support and found.stand.sum() >= n_stand > 0
        if (
            (in_case_3 and (found.support or (no_less_stand and 2.0 * nats >= own_nats)))
            or (in_case_4 and (all_hold or (n_stand == 0 and corrected.support)))
            or (all_hold and (in_case_1 or (in_case_2 and is_finest())))
        ):
            better.append((found.support, found.n_supported, share, -index))
    return -max(better)[-1] if better else 0


def views_separate(points: JointPoints, labels: NDArray[np.int64], own: Borders) -> list[bool]:
    """For each pair of clusters that has no border among its `own`, whether views separate the two in the same way.

    The cross-fitted discriminants of each two views share variance (r²) within both clusters; in halves of one cluster they
    share little. Pairs with a cluster of few samples do not count; none does with one view.
    """
    if len(points.widths) == 1 or not own.unseparated:
        return []
    of_views = [cell_functions(rows, labels).values for rows in points.views]
    upper = np.triu_indices(len(of_views), 1)
    separated = []
    for i, j in own.unseparated:
        if min(own.sizes[i], own.sizes[j]) < SMALLEST:
            continue
        rows = np.flatnonzero((labels == i) | (labels == j))
        scores = np.stack([values[rows, i] - values[rows, j] for values in of_views])
        with np.errstate(invalid="ignore", divide="ignore"):
            correlations = np.nan_to_num(np.corrcoef(scores)[upper])
        separated.append(bool(correlations.mean() > math.sqrt(RULES.level)))
    return separated


def best_by_p_value(
    points: JointPoints,
    linkages: Sequence[Linkage],
    cuts: Sequence[NDArray[np.int64]],
    n_clusters: int,
) -> tuple[float, NDArray[np.int64]]:
    """Least of the largest p-values of partitions into c clusters, and its partition.

    The partitions are the cuts and the candidates from linkages, each with one round of reassignment; 1 and zeros without any.
    A cut in which this would move more than a few samples is taken as it is: its clusters may be curved.
    """
    found = []
    for labels in cuts:
        new = reassigned(points.rows, labels, 1)
        found.append(new if np.mean(new != labels) <= RULES.level else labels)
    found += reassigned_partitions(points, linkages, n_clusters, 1)
    if not found:
        return 1.0, np.zeros(len(points.rows), dtype=np.int64)
    p_values = [largest_p_value(points, labels) for labels in found]
    best = int(np.argmin(p_values))
    return p_values[best], found[best]
