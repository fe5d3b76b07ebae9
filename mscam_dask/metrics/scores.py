"""The scores; see `mscam_dask.metrics`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from mscam_dask.metrics.contingency import ContingencyTable, best_assignment, contingency_table

__all__ = [
    "PartitionScores",
    "adjusted_rand_index",
    "clustering_accuracy",
    "normalized_mutual_information",
    "pairwise_f_score",
    "purity",
    "score_partition",
]


@dataclass(frozen=True)
class PartitionScores:
    """All scores of one partition against one reference.

    Attributes
    ----------
    accuracy, normalized_mutual_information, purity, pairwise_f_score : float
        In [0, 1].
    adjusted_rand_index : float
        In [-0.5, 1]; 0 is the expectation of a random partition.
    n_samples, n_classes, n_clusters : int
        Size of the problem: samples, distinct reference labels, distinct labels found.
    """

    accuracy: float
    normalized_mutual_information: float
    adjusted_rand_index: float
    purity: float
    pairwise_f_score: float
    n_samples: int
    n_classes: int
    n_clusters: int


def clustering_accuracy(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    """Share of samples in agreement under the best one-to-one naming of clusters by classes.

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n_samples,)
        Reference and found labels; their numbers of distinct labels may differ, and samples
        of clusters left without a class (or of classes left without a cluster) disagree.

    Returns
    -------
    float
        In (0, 1].

    Raises
    ------
    DataError
        The labels are empty, not one-dimensional, of different lengths, or not names.

    Notes
    -----
    max over injections pi of (1/n) |{i : pi(pred_i) = true_i}|, a linear assignment on the
    table of counts, which is dense: n_classes x n_clusters numbers of 8 bytes.

    References
    ----------
    H. W. Kuhn, "The Hungarian method for the assignment problem", 1955,
    doi:10.1002/nav.3800020109.

    Examples
    --------
    >>> clustering_accuracy([0, 0, 1, 1], [5, 5, 5, 3])
    0.75
    """
    return _accuracy(contingency_table(labels_true, labels_pred))


def normalized_mutual_information(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    """Mutual information over the arithmetic mean of the two entropies.

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n_samples,)
        Reference and found labels.

    Returns
    -------
    float
        In [0, 1]; 1 when both have a single cluster, 0 when only one of them has.

    Raises
    ------
    DataError
        The labels are empty, not one-dimensional, of different lengths, or not names.

    Notes
    -----
    2 I(T; P) / (H(T) + H(P)). Other normalisations (geometric, maximum) give other numbers:
    published figures compare only where the same mean was used.

    References
    ----------
    N. X. Vinh, J. Epps, J. Bailey, "Information theoretic measures for clusterings comparison",
    JMLR 11, 2010, https://jmlr.org/papers/v11/vinh10a.html.

    Examples
    --------
    >>> normalized_mutual_information([0, 0, 1, 1], [1, 1, 0, 0])
    1.0
    """
    return _normalized_mutual_information(contingency_table(labels_true, labels_pred))


def adjusted_rand_index(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    """Agreement on pairs of samples, corrected so that a random partition expects 0.

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n_samples,)
        Reference and found labels.

    Returns
    -------
    float
        In [-0.5, 1].

    Raises
    ------
    DataError
        The labels are empty, not one-dimensional, of different lengths, or not names.

    References
    ----------
    L. Hubert, P. Arabie, "Comparing partitions", Journal of Classification 2, 1985,
    doi:10.1007/BF01908075.

    Examples
    --------
    >>> adjusted_rand_index([0, 0, 1, 1], [0, 1, 0, 1])
    -0.5
    """
    return _adjusted_rand_index(contingency_table(labels_true, labels_pred))


def purity(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    """Share of samples whose class is the commonest of their cluster.

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n_samples,)
        Reference and found labels; not symmetric in the two.

    Returns
    -------
    float
        In (0, 1]; never below the accuracy, and 1 when every sample is its own cluster, so it
        compares only partitions with the same number of clusters.

    Raises
    ------
    DataError
        The labels are empty, not one-dimensional, of different lengths, or not names.

    Examples
    --------
    >>> purity([0, 0, 1, 1], [0, 0, 0, 1])
    0.75
    """
    return _purity(contingency_table(labels_true, labels_pred))


def pairwise_f_score(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    """Harmonic mean of precision and recall over pairs of samples put together.

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n_samples,)
        Reference and found labels.

    Returns
    -------
    float
        In [0, 1]; 1 when neither puts any two samples together.

    Raises
    ------
    DataError
        The labels are empty, not one-dimensional, of different lengths, or not names.

    Notes
    -----
    2 |T and P| / (|T| + |P|), where T and P are the sets of pairs i < j with equal reference
    and with equal found labels.

    Examples
    --------
    >>> pairwise_f_score([0, 0, 1, 1], [0, 0, 1, 2])
    0.6666666666666666
    """
    return _pairwise_f_score(contingency_table(labels_true, labels_pred))


def score_partition(labels_true: ArrayLike, labels_pred: ArrayLike) -> PartitionScores:
    """All scores from one table of counts.

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n_samples,)
        Reference and found labels.

    Returns
    -------
    PartitionScores
        Each score as the function of its name returns it.

    Raises
    ------
    DataError
        The labels are empty, not one-dimensional, of different lengths, or not names.

    Examples
    --------
    >>> score_partition([0, 0, 1, 1], [0, 0, 0, 1]).accuracy
    0.75
    """
    agreement = contingency_table(labels_true, labels_pred)
    return PartitionScores(
        accuracy=_accuracy(agreement),
        normalized_mutual_information=_normalized_mutual_information(agreement),
        adjusted_rand_index=_adjusted_rand_index(agreement),
        purity=_purity(agreement),
        pairwise_f_score=_pairwise_f_score(agreement),
        n_samples=agreement.true_codes.size,
        n_classes=agreement.classes.size,
        n_clusters=agreement.clusters.size,
    )


def _accuracy(agreement: ContingencyTable) -> float:
    return float(agreement.counts[best_assignment(agreement)].sum() / agreement.true_codes.size)


def _normalized_mutual_information(agreement: ContingencyTable) -> float:
    score = normalized_mutual_info_score(
        agreement.true_codes, agreement.pred_codes, average_method="arithmetic"
    )
    return float(score)


def _adjusted_rand_index(agreement: ContingencyTable) -> float:
    return float(adjusted_rand_score(agreement.true_codes, agreement.pred_codes))


def _purity(agreement: ContingencyTable) -> float:
    return float(agreement.counts.max(axis=0).sum() / agreement.true_codes.size)


def _pairwise_f_score(agreement: ContingencyTable) -> float:
    together_in_both = _n_pairs(agreement.counts)
    together_in_either = _n_pairs(agreement.counts.sum(axis=1)) + _n_pairs(
        agreement.counts.sum(axis=0)
    )
    if together_in_either == 0:  # all singletons on both sides: the same partition
        return 1.0
    return 2 * together_in_both / together_in_either


def _n_pairs(sizes: NDArray[np.int64]) -> int:
    """Pairs i < j within groups of the given sizes."""
    return int((sizes * (sizes - 1) // 2).sum())
