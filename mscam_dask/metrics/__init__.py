"""How well a partition agrees with a reference: accuracy, NMI, ARI, purity, pairwise F.

Every score takes two label vectors of the same length. Labels are names: integers, booleans
or strings, of any value (a negative label is a cluster like any other), and neither their order
nor their values matter. Every score is 1 when the two partitions are the same.
"""

from __future__ import annotations

from mscam_dask.metrics.matching import matched_labels
from mscam_dask.metrics.scores import (
    PartitionScores,
    adjusted_rand_index,
    clustering_accuracy,
    normalized_mutual_information,
    pairwise_f_score,
    purity,
    score_partition,
)

__all__ = [
    "PartitionScores",
    "adjusted_rand_index",
    "clustering_accuracy",
    "matched_labels",
    "normalized_mutual_information",
    "pairwise_f_score",
    "purity",
    "score_partition",
]
