"""Thresholds of the rules that decide without labels, constants of the method, and sizes of samples.

Nothing here depends on the data. Every threshold and constant was chosen by comparing labels with
results on the data sets of its decision record (docs/decisions); sizes and limits bound time and memory.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SelectionRules:
    """Tuned thresholds of the label-free rules."""

    # Standard errors by which view settings must beat the default, and by which a neighbor overlap
    # must exceed chance. Settings of each view by this rule: ACC 0.65 to 0.86 on a mixture with two
    # columns per view (0014).
    clear_overlap: float = 4.0
    # Significance level of the border between two clusters. Also the share that counts as few: of the
    # samples that may be in clusters without support (docs/method.md); of the information that a
    # nearly perfect partition may lack, which other graphs, cuts or metrics do not improve (0057); of
    # a score, which does not decide where reference graphs favor one of two partitions (0059) or views
    # are uninformative (0014); of the variance that the discriminants of two views share where they do
    # not separate two clusters (0087).
    level: float = 0.05
    # A valley between two clusters has less than this share of the density on its sides
    # (docs/method.md; 0087, docs/confidence.md).
    depth: float = 0.8
    # Cuts of one graph are scored if their k-means objective is at most this multiple of the
    # lowest. ARI +0.006 in the mean of 45 sets, none worse by more than 0.01 (0057).
    near_optimal: float = 1.1
    # Outer iterations of each kind in a fit with a refinement: by ADMM, then of the refinement. With
    # weak views, more of these drift (0059).
    max_iterations: int = 3


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class MethodConstants:
    """Tuned constants in the quantities that the rules compare."""

    # k of the consensus graph if settings are selected view by view (0014).
    n_neighbors: int = 20
    # k of the reference graphs and of the neighbor overlaps: the same for every candidate, so that
    # none is favored (0011, 0014). With known labels, the cluster of a sample counts as much as one of
    # so many neighbors in the walks.
    validation_neighbors: int = 9
    # Weights of the graph by the mean distance and of the mean of the view graphs in a mixed graph.
    # ARI 0.525 to 0.560 on 45 sets (0057).
    graph_weights: tuple[float, float] = (2.0, 1.0)
    # Rate at which a random walk ends, as a share of λ_{c+1}: ARI 0.47 to 0.52 on halves of sets,
    # together with `min_pairs` (0057).
    stopping_share: float = 0.5
    # Eigenpairs of the walk embedding: those after the c-th often separate a few clusters (0057).
    min_pairs: int = 20
    # Part of the covariance within clusters that is replaced by a multiple of the identity in the
    # linear discriminants (0059).
    shrinkage: float = 0.3
    # Weight, in the distance of two samples, of a view that does not have both: it counts at its
    # mean distance. ARI 0.83 to 0.96 on a set without 30 % of the samples of each view (0077).
    unknown_view_weight: float = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SampleSizes:
    """Sizes of samples and limits, which bound time and memory."""

    # Largest number of samples for which every search is exhaustive (0075).
    exact_samples: int = 12_000
    # The same for incomplete views, and the most that are fitted (0077).
    max_incomplete_samples: int = 100_000
    # Rows on which neighbor overlaps are measured; their standard error is then below 0.01.
    n_compared: int = 3000
    # Rows for coarse overlaps (0014).
    n_coarsely_compared: int = 1000
    # With more views, fewer rows of each are compared and scored, at least `n_coarsely_compared`,
    # so that the searches in all views take as long as in so many (0014).
    few_views: int = 8
    # Samples on which batch effects are estimated, the same number of each large batch.
    n_batched: int = 2000
    # Samples of large data on which settings and partitions are scored (0075).
    n_scored: int = 4000
    # Samples of large data that suffice to place c centers of a spectral cut.
    n_cut: int = 20_000
    # The same for the cuts into every number of clusters.
    n_cut_by_number: int = 5000
    # Directions of a view of large data (0075), of its linear discriminants (0059), and of borders.
    max_rank: int = 64
    # Directions of all views together in which borders are tested.
    max_joint_rank: int = 512
    # Views of which a mixed graph has the edges: with hundreds it would be a dense matrix.
    max_view_graphs: int = 16
    # Lists of neighbors of the view graphs: one for each sample and view, and one by the mean
    # distance (0057).
    max_view_lists: int = 2**19
    # Neighbors kept in the graph of a view, in units of k, if many samples are at one distance.
    max_ties: int = 4
    # Starts of k-means for the cuts of one graph (0057).
    n_random_starts: int = 30
    # Near-optimal cuts that are scored (0057).
    max_cuts: int = 10
    # Rounds of the selection of view settings, which may alternate.
    max_overlap_rounds: int = 4
    # Default upper limit of the selected number of clusters (0087).
    max_clusters: int = 30
    # Outer iterations on large data without a better partition (0075).
    large_patience: int = 2


RULES = SelectionRules()
CONSTANTS = MethodConstants()
SIZES = SampleSizes()
