"""Result of a fit, its assessment, and the borders between its clusters."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.types import events
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.rules import RULES

if TYPE_CHECKING:
    from scipy.sparse import csr_array


# In nats; one sample apart from a million others has information 1e-5.
_ROUNDING = 1e-7

_NAMED = 3


class Status(enum.Enum):
    """Status of a fit; the value, `message`, is the origin of the labels and, if there is one, a remedy."""

    CONVERGED = (
        "converged: the consensus graph has exactly the requested number of connected components, "
        "which are the clusters"
    )
    PARTITION_GRAPH = (
        "the best partition is not that of the connected components of the learned graph; the returned "
        "graph was rebuilt so that its components are exactly these clusters"
    )
    MERGED_COMPONENTS = (
        "the nearest-neighbor graph of the data already has more connected components than "
        "n_clusters; components were merged with Ward linkage. Consider a larger n_neighbors or "
        "n_clusters"
    )
    SINGLE_CLUSTER = "one cluster was requested; every sample belongs to it"
    NO_STRUCTURE = (
        "no cluster structure was found, so all samples form one cluster; set n_clusters to force a "
        "number"
    )
    SINGLETONS = "as many clusters as samples were requested; every sample is its own cluster"

    @property
    def message(self) -> str:
        """Sentence for the user."""
        return self.value

    @property
    def is_trivial(self) -> bool:
        """True if the partition needed no outer iterations: one cluster, or one for each sample."""
        return self in (Status.SINGLE_CLUSTER, Status.NO_STRUCTURE, Status.SINGLETONS)

    @property
    def is_learned(self) -> bool:
        """True if the consensus graph is the learned one, not one rebuilt from the partition."""
        return self.is_trivial or self is Status.CONVERGED


@dataclasses.dataclass(frozen=True, slots=True)
class BatchShares:
    """Share of the nearest neighbors of a sample in one view that are of its batch, in the mean over samples."""

    before: float  # in the view as given
    after: float  # without batch effects
    # If batches make no difference: that of samples with similar values in all views.
    expected: float


class Structure(enum.Enum):
    """Support of the data for the clusters of a fit, assessed without labels; values are texts of tables."""

    CLEAR = "separated clusters"
    PARTLY = "clusters separated in part"
    NONE = "no cluster structure"
    TRIVIAL = "trivial clusters"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Assessment:
    """Support of the data for a partition, without labels and without another fit."""

    borders: Borders | None  # None for trivial partitions
    view_names: tuple[str, ...]  # compared views, at most 16
    cluster_agreement: NDArray[np.float64]  # (V, c) of each view with each cluster
    # (V, c) cluster with which each view puts each cluster, or −1.
    contradictions: NDArray[np.int64]
    view_agreement: NDArray[np.float64]  # (V, V)
    cluster_tree: NDArray[np.float64]  # (c − 1, 4) linkage matrix of SciPy
    cluster_names: tuple[int, ...]  # numbers of the clusters, those of `Solution.labels`
    # Largest number of clusters that was tried; 0 if the number was given, or labels that may give it.
    n_tried: int = 0
    # Whether some cluster has correlated discriminants in the views: `solvers.partition_score.views_agree`.
    views_agree: bool = True
    # Whether the data tell which clusters of the batches are the same: `solvers.batch_effects.batch_cells`.
    batches_matched: bool = True

    @classmethod
    def trivial(
        cls,
        n_clusters: int,
        view_names: Sequence[str],
        view_agreement: NDArray[np.float64],
        *,
        n_tried: int = 0,
        views_agree: bool = True,
    ) -> Assessment:
        """Assessment of one cluster, or of one for each sample, which every graph has."""
        merges = np.arange(n_clusters - 1.0)
        tree = np.stack([merges + 1, n_clusters + merges - 1, merges**0, merges + 2], axis=1)
        tree[:1, :2] = 0, 1  # one cluster after the other, all at the same distance
        return cls(
            borders=None,
            view_names=tuple(view_names),
            cluster_agreement=np.full((len(view_names), n_clusters), np.nan),
            contradictions=np.full((len(view_names), n_clusters), -1),
            view_agreement=view_agreement,
            cluster_tree=tree,
            cluster_names=tuple(range(n_clusters)),
            n_tried=n_tried,
            views_agree=views_agree,
        )

    def renamed(self, names: Sequence[int]) -> Assessment:
        """Return the assessment with other numbers (c,) of the clusters, in ascending order of these."""
        order = np.argsort(names)
        tree = self.cluster_tree.copy()
        leaves = tree[:, :2] < len(order)
        place = np.argsort(order)
        tree[:, :2][leaves] = place[tree[:, :2][leaves].astype(np.int64)]
        tree[:, :2].sort(axis=1)
        return dataclasses.replace(
            self,
            borders=None if self.borders is None else self.borders.in_order(order),
            cluster_agreement=self.cluster_agreement[:, order],
            contradictions=np.append(place, -1)[self.contradictions[:, order]],
            cluster_tree=tree,
            cluster_names=tuple(int(names[k]) for k in order),
        )

    @property
    def structure(self) -> Structure:
        """`Structure` that the data have."""
        if self.borders is None:
            return Structure.NONE if self.n_tried else Structure.TRIVIAL
        if not self.views_agree or not self.borders.stand.any():
            return Structure.NONE
        is_clear = (
            self.batches_matched and self.borders.support and self.borders.sizes.min() >= SMALLEST
        )
        return Structure.CLEAR if is_clear else Structure.PARTLY

    @property
    def standing_clusters(self) -> tuple[int, ...]:
        """Clusters that a border with fewer samples separates from each other cluster."""
        if self.borders is None:
            return ()
        return tuple(
            name
            for name, stands in zip(self.cluster_names, self.borders.stand, strict=True)
            if stands
        )

    @property
    def message(self) -> str:
        """Sentence for the user: what the data support, and which clusters they do not separate."""
        if not self.views_agree:
            return (
                "the directions that separate a cluster in each view are correlated no more than by chance, "
                "so the views share no clusters"
            )
        if self.borders is not None:
            return self._message_of_borders(self.borders)
        if self.n_tried:
            return (
                f"for each number of clusters from 2 to {self.n_tried}, some clusters have no border "
                "with fewer samples between them, so the data show no clusters"
            )
        return "one cluster, or one for each sample, fits any data, so its support is not assessed"

    def _message_of_borders(self, borders: Borders) -> str:
        names, stand = self.cluster_names, self.standing_clusters
        if not self.batches_matched and stand:
            return (
                "the data do not tell which clusters of the batches are the same: too few clusters are in several "
                "batches, or other offsets between batches are as likely"
            )
        if len(stand) == len(names):
            return (
                "between any two clusters there is a border with fewer samples (largest p-value "
                f"{borders.p_values.max():.2g}; {RULES.level:g} or less is significant)"
            )
        if self.structure is Structure.CLEAR:
            small = [name for name in names if name not in stand]
            return (
                "between clusters there are borders with fewer samples, except for "
                f"{_clusters(small)}, with few samples"
            )
        untested = borders.sizes < SMALLEST
        pairs = [
            f"{names[i]} and {names[j]}"
            for i, j in borders.unseparated
            if not (untested[i] or untested[j])
        ]
        reasons = []
        if pairs:
            listed = _listed(pairs[:_NAMED], " or ")
            reasons = [f"there is no border with fewer samples between clusters {listed}"]
        if untested.any():
            small = [names[cluster] for cluster in np.flatnonzero(untested)]
            reasons += [f"{_clusters(small)} would need {SMALLEST} samples for a test of borders"]
        found = "no cluster is"
        if stand:
            found = f"{len(stand)} of {len(names)} clusters {'are' if len(stand) > 1 else 'is'}"
        message = f"{found} separated from all others: {', and '.join(reasons)}"
        if not self.n_tried:
            return message
        return (
            f"{message}. The number of clusters was selected by the borders of another partition, which does not "
            "meet all conditions of the choice among partitions"
        )


@dataclasses.dataclass(frozen=True)
class ArraysInMemory:
    """Arrays of a fit that have a row for each sample; `data.results.StoredArrays` has the same of a store."""

    # A (n, n) with rows on the simplex; a sample alone in its cluster has an empty row
    consensus_graph: csr_array[np.float64]
    # last one (n, n) of the outer iterations, before it was rebuilt from the partition
    learned_graph: csr_array[np.float64]
    # F_v = Z_vᵀP_v (n, c) of each view given the final graph (MSCAN: C_v, (n, r_v)), NaN for absent samples
    view_embeddings: dict[str, NDArray[np.float64]]
    # first principal coordinates (n, m ≤ 6) of the ridge embedding of each view, NaN for absent samples
    view_coordinates: dict[str, NDArray[np.float32]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitRecords:
    """Records of a fit, stored with its result as they are declared here."""

    n_connected_components: int  # of the consensus graph
    score: float  # cross-view information of the labels, in nats
    n_neighbors: int  # more than requested if k neighbors leave more components than clusters
    view_contributions: dict[str, float]  # shares of the score, 0 for excluded views
    parameters: Parameters  # of the selected setting
    settings: tuple[events.CandidateSettings, ...]  # all that were tried
    prepared: tuple[events.ViewPrepared, ...]
    history: tuple[events.IterationFinished, ...]
    assessment: Assessment
    # None and empty if the user set them
    n_clusters_selection: events.NClustersSelected | None = None
    selected_view_settings: tuple[events.ViewSettingsSelected, ...] = ()
    refinement: events.RefinementFinished | None = None
    chosen: int = -1  # position in `settings`; −1 if none was tried

    @property
    def exclude_views(self) -> tuple[str, ...]:
        """Names of the excluded views."""
        return tuple(self.prepared[view].view for view in self.parameters.exclude_views)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Solution(FitRecords):
    """Result of a fit, in memory or read from a store; its `arrays` are attributes too."""

    labels: NDArray[np.int64]  # (n,) numbered by first appearance
    status: Status
    arrays: Any  # `ArraysInMemory`, or those of a store
    # Maps of rows to ridge embeddings (`solvers.ridge_view.Encoder`) by view, without excluded views; none of a
    # result that was read, whose model has them.
    encoders: Mapping[str, Any]

    consensus_graph = property(attrgetter("arrays.consensus_graph"))
    learned_graph = property(attrgetter("arrays.learned_graph"))
    view_embeddings = property(attrgetter("arrays.view_embeddings"))
    view_coordinates = property(attrgetter("arrays.view_coordinates"))


def _clusters(names: Sequence[int]) -> str:
    """Names of some clusters in a sentence, the first ones of many."""
    return f"cluster{'s' if len(names) > 1 else ''} {_listed([*map(str, names[:_NAMED])])}"


def _listed(items: Sequence[str], last: str = " and ") -> str:
    *others, end = items
    return f"{', '.join(others)}{last}{end}" if others else end


def shares_of_views(names: Sequence[str], scores: Sequence[float]) -> dict[str, float]:
    """Shares of nonnegative scores (nats) in their sum, or equal shares if the sum is only rounding error."""
    positive = np.maximum(np.asarray(scores, dtype=np.float64), 0.0)
    if not positive.sum() > _ROUNDING:
        positive = np.ones(len(names))
    shares = positive / positive.sum()
    return {name: float(share) for name, share in zip(names, shares, strict=True)}


# borders -----------------------------------------------------------------------------------------


SMALLEST = 5
"""Samples of the smallest cluster whose border can hold: 2⁻⁵ is below the level of 0.05."""


@dataclasses.dataclass(frozen=True, eq=False)
class Borders:
    """Tests for a valley in the density of the samples between each pair of clusters."""

    # (c, c) largest over the parts of two clusters: 0 on the diagonal and for pairs with a dozen nearer
    # clusters each, 1 for clusters of fewer than 5 samples
    p_values: NDArray[np.float64]
    # (c, c, 3) samples on the side of the first, at the border, and opposite.
    counts: NDArray[np.int64]
    sizes: NDArray[np.int64]  # (c,) compared samples

    @property
    def stand(self) -> NDArray[np.bool_]:
        """Clusters (c,) that borders separate from all other clusters, up to much smaller ones.

        A border may fail with a cluster of up to 5 % of the samples. None if none are left to be separated.
        """
        minor = self.sizes <= RULES.level * self.sizes[:, None]
        holds = (self.p_values <= RULES.level) | minor
        return np.asarray(holds.all(axis=1)) & (self.n_supported > 1)

    @property
    def merged(self) -> NDArray[np.int64]:
        """Cluster (c,) into which each is merged until all borders hold, numbered 0, 1, ….

        The smallest cluster with a border that does not hold joins the one across its weakest border.
        """
        p, sizes = self.p_values.copy(), self.sizes.astype(np.float64)
        into = np.arange(len(sizes))
        while p.max() > RULES.level:
            failing = np.flatnonzero(p.max(axis=1) > RULES.level)
            small = failing[np.argmin(sizes[failing])]
            other = int(np.lexsort((-sizes, -p[small]))[0])
            into[into == small] = other
            sizes[other] += sizes[small]
            p[small] = p[:, small] = 0.0
        return np.asarray(np.unique(into, return_inverse=True)[1], dtype=np.int64)

    @property
    def n_supported(self) -> int:
        """Number of clusters that are left then."""
        return int(self.merged.max()) + 1

    @property
    def support(self) -> bool:
        """Whether all borders hold once few samples are merged: at most 5 %, with two and more than half of the clusters left."""
        left = np.zeros(self.n_supported)
        np.maximum.at(left, self.merged, self.sizes)  # the largest of those that are merged stays
        is_few = self.sizes.sum() - left.sum() <= RULES.level * self.sizes.sum()
        return bool(is_few and len(left) > 1 and 2 * len(left) > len(self.sizes))

    @property
    def unseparated(self) -> list[tuple[int, int]]:
        """Pairs of clusters whose border does not hold, the one with the largest p-value first."""
        i, j = np.nonzero(np.triu(self.p_values, 1) > RULES.level)
        order = np.argsort(-self.p_values[i, j], kind="stable")
        return list(zip(i[order].tolist(), j[order].tolist(), strict=True))

    def of_several(self, n_tested: int) -> Borders:
        """Borders of one of several tested partitions: p-values by Bonferroni."""
        return dataclasses.replace(self, p_values=np.minimum(1.0, n_tested * self.p_values))

    def in_order(self, order: NDArray[np.int64]) -> Borders:
        """Borders of the clusters in another order."""
        pairs = np.ix_(order, order)
        return Borders(self.p_values[pairs], self.counts[pairs], self.sizes[order])
