"""Scores of a partition against a reference: accuracy, NMI, ARI, purity and pairwise F.

Every score takes two label vectors of the same length: integers, booleans or strings. Only the
partitions count, not the values or the order of the labels; a negative label is a cluster like
any other. Every score is 1 when the two partitions are the same.

Every function raises `DataError` when the label vectors are empty, not one-dimensional, of
different lengths, or of another type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix, pair_confusion_matrix

from mscam_dask.errors import DataError

__all__ = ["PartitionScores", "adjusted_rand_index", "matched_labels", "score_partition"]


@dataclass(frozen=True)
class PartitionScores:
    """All scores of a partition against a reference.

    Attributes
    ----------
    accuracy : float
        In [0, 1]: share of samples in agreement with the best one-to-one assignment of clusters
        to classes [1]_. Samples of clusters without a class, and of classes without a cluster,
        disagree.
    normalized_mutual_information : float
        In [0, 1]: 2 I(T; P) / (H(T) + H(P)) [2]_, 0 when only one of the partitions has a single
        cluster. Other means of the entropies (geometric, maximum) give other values: compare only
        with published values of the same mean.
    adjusted_rand_index : float
        In [-0.5, 1]: agreement on pairs of samples, corrected for chance [3]_; 0 is the
        expectation of a random partition.
    purity : float
        In [0, 1]: share of samples that belong to the most frequent class of their cluster. Not
        symmetric, never below the accuracy, and 1 when every sample is its own cluster: compare
        only partitions with the same number of clusters.
    pairwise_f_score : float
        In [0, 1]: harmonic mean of precision and recall over pairs of samples in the same
        cluster, ``2 |T ∩ P| / (|T| + |P|)``; 1 when neither partition has such a pair.
    n_samples, n_classes, n_clusters : int
        Number of samples, of distinct reference labels, and of distinct labels.

    References
    ----------
    .. [1] H. W. Kuhn, "The Hungarian method for the assignment problem", 1955,
       doi:10.1002/nav.3800020109.
    .. [2] N. X. Vinh, J. Epps, J. Bailey, "Information theoretic measures for clusterings
       comparison", JMLR 11, 2010, https://jmlr.org/papers/v11/vinh10a.html.
    .. [3] L. Hubert, P. Arabie, "Comparing partitions", Journal of Classification 2, 1985,
       doi:10.1007/BF01908075.
    """

    accuracy: float
    normalized_mutual_information: float
    adjusted_rand_index: float
    purity: float
    pairwise_f_score: float
    n_samples: int
    n_classes: int
    n_clusters: int


def score_partition(labels_true: ArrayLike, labels_pred: ArrayLike) -> PartitionScores:
    """All scores of a partition.

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n_samples,)
        Reference labels and the labels to score.

    Examples
    --------
    >>> score_partition([0, 0, 1, 1], [0, 0, 0, 1]).accuracy
    0.75
    """
    true, pred = _two_partitions(labels_true, labels_pred)
    counts, pairs = contingency_matrix(true, pred), pair_confusion_matrix(true, pred)
    in_either = pairs[0, 1] + pairs[1, 0] + 2 * pairs[1, 1]
    return PartitionScores(
        accuracy=float(counts[linear_sum_assignment(counts, maximize=True)].sum() / true.size),
        normalized_mutual_information=float(normalized_mutual_info_score(true, pred)),
        adjusted_rand_index=float(adjusted_rand_score(true, pred)),
        purity=float(counts.max(axis=0).sum() / true.size),
        pairwise_f_score=float(2 * pairs[1, 1] / in_either) if in_either else 1.0,
        n_samples=true.size,
        n_classes=counts.shape[0],
        n_clusters=counts.shape[1],
    )


def adjusted_rand_index(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    """Agreement of two partitions on pairs of samples, corrected for chance.

    Examples
    --------
    >>> adjusted_rand_index([0, 0, 1, 1], [0, 1, 0, 1])
    -0.5
    """
    return score_partition(labels_true, labels_pred).adjusted_rand_index


def matched_labels(reference: ArrayLike, labels: ArrayLike) -> NDArray[np.int64]:
    """Partition `labels`, with each cluster renamed to the class that it matches best.

    Parameters
    ----------
    reference, labels : array-like of shape (n_samples,), integer
        Reference labels and the labels to rename.

    Returns
    -------
    array of shape (n_samples,), int64
        Clusters without a class are named max(reference) + 1, + 2, ... in ascending order of
        their label. The share of entries equal to `reference` is the clustering accuracy.

    Raises
    ------
    DataError
        As for the scores, when the labels are not integers, and when a new name does not fit int64.

    Examples
    --------
    >>> matched_labels([0, 0, 1, 1], [5, 5, 3, 4])
    array([0, 0, 1, 2])
    """
    true, pred = _two_partitions(reference, labels, kinds="biu")
    classes, (clusters, codes) = np.unique(true), np.unique(pred, return_inverse=True)
    matrix = contingency_matrix(true, pred)
    class_codes, cluster_codes = linear_sum_assignment(matrix, maximize=True)
    unmatched = np.setdiff1d(np.arange(clusters.size), cluster_codes)
    largest = int(classes[-1])
    if largest + unmatched.size > np.iinfo(np.int64).max:
        raise DataError(
            f"the first label vector has the label {largest}; it, and the names of {unmatched.size} "
            "clusters without a class, which follow it, must fit int64. Number the classes from 0."
        )
    names = np.empty(clusters.size, dtype=np.int64)
    names[cluster_codes] = classes[class_codes]
    names[unmatched] = largest + np.arange(1, unmatched.size + 1)
    return names[codes]


def _two_partitions(
    labels_true: ArrayLike, labels_pred: ArrayLike, *, kinds: str = "biuU"
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Labels (n_samples,) of two partitions."""
    true = _labels(labels_true, "the first label vector", kinds)
    pred = _labels(labels_pred, "the second label vector", kinds)
    if true.size != pred.size:
        raise DataError(
            f"the first label vector has {true.size} entries and the second {pred.size}. "
            "Give labels of the same samples in the same order."
        )
    return true, pred


def _labels(values: ArrayLike, where: str, kinds: str) -> NDArray[Any]:
    labels = np.asarray(values)
    if labels.ndim != 1 or labels.size == 0 or labels.dtype.kind not in kinds:
        allowed = "integers, booleans or strings" if "U" in kinds else "integers"
        raise DataError(
            f"{where} has shape {labels.shape} and dtype {labels.dtype}; allowed is one label for each sample, {allowed}. "
            "Number the classes of others, e.g. numpy.unique(labels, return_inverse=True)[1]."
        )
    return labels
