"""Clusters named after the classes that they match."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mscam_dask.errors import DataError
from mscam_dask.metrics.contingency import best_assignment, contingency_table, integer_labels

__all__ = ["matched_labels"]


def matched_labels(reference: ArrayLike, labels: ArrayLike) -> NDArray[np.int64]:
    """The same partition as `labels`, its clusters named after the classes they match best.

    Parameters
    ----------
    reference, labels : array-like of shape (n_samples,), integer
        Reference labels and the labels to rename.

    Returns
    -------
    array of shape (n_samples,), int64
        Clusters beyond the number of classes are named max(reference) + 1, + 2, ... in
        ascending order of their old label. New array; the share of entries equal to
        `reference` is the clustering accuracy.

    Raises
    ------
    DataError
        As for the scores, and when a label is not an integer that fits int64.

    Examples
    --------
    >>> matched_labels([0, 0, 1, 1], [5, 5, 3, 4])
    array([0, 0, 1, 2])
    """
    agreement = contingency_table(
        integer_labels(reference, "the first label vector"),
        integer_labels(labels, "the second label vector"),
    )
    class_codes, cluster_codes = best_assignment(agreement)
    n_clusters = agreement.clusters.size
    unmatched = np.setdiff1d(np.arange(n_clusters), cluster_codes)
    largest = int(agreement.classes[-1])
    if largest > np.iinfo(np.int64).max - unmatched.size:
        raise DataError(
            f"the first label vector has the label {largest}, which leaves no int64 to name the "
            f"{unmatched.size} clusters without a class; number the classes from 0."
        )
    names = np.empty(n_clusters, dtype=np.int64)
    names[cluster_codes] = agreement.classes[class_codes]
    names[unmatched] = largest + 1 + np.arange(unmatched.size)
    return names[agreement.pred_codes]
