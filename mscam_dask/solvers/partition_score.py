"""Partition scores and their comparison, from the reference graphs of the views.

See docs/decisions/0011, 0068 and 0069.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from mscam_dask.linalg.neighbor_information import adjusted_information, reliability
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.rules import RULES

__all__ = ["PartitionScore", "argbest", "is_better", "is_nearly_perfect", "is_worse", "mean_score"]


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionScore:
    """Information of the views on a partition.

    Attributes
    ----------
    view_scores : tuple of float
        Information of the reference graphs of each view, in nats.
    entropy : float
        Entropy of the clusters, the upper limit of the information.
    joint : float
        Information of the reference graphs of all views together.
    """

    view_scores: tuple[float, ...]
    entropy: float
    joint: float

    @property
    def score(self) -> float:
        """Cross-view information, in nats."""
        return mean_score(self.view_scores)

    @property
    def reliability(self) -> float:
        """Uncertainty coefficient U: share of the entropy that neighbors in all views explain, 0 … 1."""
        return reliability(self.joint, self.entropy)

    @property
    def reliable(self) -> float:
        """Adjusted information, in nats: the score times (1 + U³) / 2."""
        return adjusted_information(self.score, self.joint, self.entropy)


def is_better(later: PartitionScore, earlier: PartitionScore, parameters: Parameters) -> bool:
    """Whether the later partition is better by more than the share `tol`."""
    now, before = _compared(later, earlier)
    return now > before + parameters.tol * abs(before)


def is_worse(later: PartitionScore, earlier: PartitionScore, share: float) -> bool:
    """Whether the later partition is worse by more than a share of the score of the earlier one."""
    now, before = _compared(later, earlier)
    return now < before - share * abs(before)


def argbest(partition_scores: Sequence[PartitionScore]) -> int:
    """Index of the best partition, by adjusted information if it differs clearly, else by information."""
    told = max(range(len(partition_scores)), key=lambda i: partition_scores[i].score)
    reliable = max(range(len(partition_scores)), key=lambda i: partition_scores[i].reliable)
    now, before = _compared(partition_scores[reliable], partition_scores[told])
    return reliable if now > before else told


def _compared(later: PartitionScore, earlier: PartitionScore) -> tuple[float, float]:
    """Adjusted information of both if it differs clearly, otherwise information: docs/decisions/0069."""
    lower, higher = sorted((later.reliable, earlier.reliable))
    if higher > (1.0 + RULES.clear_difference) * lower:
        return later.reliable, earlier.reliable
    return later.score, earlier.score


def is_nearly_perfect(score: float, parameters: Parameters) -> bool:
    """Whether a partition has nearly the information log c, the most that c clusters can have."""
    return score >= RULES.nearly_perfect * math.log(parameters.n_clusters)


def mean_score(view_scores: Sequence[float]) -> float:
    """Exactly rounded mean over views, independent of their order."""
    return math.fsum(view_scores) / len(view_scores)
