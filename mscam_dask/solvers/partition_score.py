"""Which of two partitions is better, by what the views' neutral graphs tell of each.

See docs/decisions/0011, 0068 and 0069.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from mscam_dask.linalg.neighbor_information import adjusted_information, reliability
from mscam_dask.types.parameters import Parameters

__all__ = ["PartitionScore", "argbest", "is_better", "is_nearly_perfect", "is_worse", "mean_score"]

# A partition with this share of the information that c equal clusters have at most is clear.
_CLEAR = 0.9

# By how much of it reliable information has to differ to count instead of information.
_CLEARLY = 0.08


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionScore:
    """What is found on a partition.

    Attributes
    ----------
    view_scores : tuple of float
        Information of each view's neutral graphs, in nats.
    entropy : float
        The most that there could be.
    joint : float
        Information of the same graphs together.
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
        """Share of the entropy that neighbours in all views tell, 0 … 1."""
        return reliability(self.joint, self.entropy)

    @property
    def reliable(self) -> float:
        """The same, of which half counts as far as neighbours in all views tell the whole cluster."""
        return adjusted_information(self.score, self.joint, self.entropy)


def is_better(later: PartitionScore, earlier: PartitionScore, parameters: Parameters) -> bool:
    """Whether a partition is better by more than `tol`: within noise the earlier one stays."""
    now, before = _compared(later, earlier)
    return now > before + parameters.tol * abs(before)


def is_worse(later: PartitionScore, earlier: PartitionScore, share: float) -> bool:
    """Whether a partition is worse by more than a share of what the earlier one has."""
    now, before = _compared(later, earlier)
    return now < before - share * abs(before)


def argbest(partition_scores: Sequence[PartitionScore]) -> int:
    """Which has the most information or, if that puts another clearly ahead, the most reliable."""
    told = max(range(len(partition_scores)), key=lambda i: partition_scores[i].score)
    reliable = max(range(len(partition_scores)), key=lambda i: partition_scores[i].reliable)
    now, before = _compared(partition_scores[reliable], partition_scores[told])
    return reliable if now > before else told


def _compared(later: PartitionScore, earlier: PartitionScore) -> tuple[float, float]:
    """Reliable information of both, where it tells them clearly apart, else information: docs/decisions/0069."""
    lower, higher = sorted((later.reliable, earlier.reliable))
    if higher > (1.0 + _CLEARLY) * lower:
        return later.reliable, earlier.reliable
    return later.score, earlier.score


def is_nearly_perfect(score: float, parameters: Parameters) -> bool:
    """Whether a partition has nearly the information that c equal clusters have at most."""
    return score >= _CLEAR * math.log(parameters.n_clusters)


def mean_score(view_scores: Sequence[float]) -> float:
    """The exactly rounded mean over views, whatever their order."""
    return math.fsum(view_scores) / len(view_scores)
