"""Two partitions of the same samples, counted against each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from mscam_dask.errors import DataError

__all__ = ["ContingencyTable", "best_assignment", "contingency_table", "integer_labels"]


@dataclass(frozen=True)
class ContingencyTable:
    """Two partitions of the same samples, renumbered from 0 in the order of their labels.

    Attributes
    ----------
    true_codes, pred_codes : arrays of shape (n_samples,)
    classes, clusters : arrays of shape (n_classes,), (n_clusters,)
        The labels behind the codes, ascending.
    counts : array of shape (n_classes, n_clusters)
        Samples of each class in each cluster; rows and columns are never all zero.
    """

    true_codes: NDArray[np.int64]
    pred_codes: NDArray[np.int64]
    classes: NDArray[Any]
    clusters: NDArray[Any]
    counts: NDArray[np.int64]


def contingency_table(labels_true: ArrayLike, labels_pred: ArrayLike) -> ContingencyTable:
    """Count the samples of every class in every cluster; `DataError` where that has no meaning."""
    true = _labels(labels_true, "the first label vector")
    pred = _labels(labels_pred, "the second label vector")
    if true.size != pred.size:
        raise DataError(
            f"the first label vector has {true.size} entries and the second {pred.size}; "
            "both must describe the same samples in the same order."
        )
    classes, true_codes = np.unique(true, return_inverse=True)
    clusters, pred_codes = np.unique(pred, return_inverse=True)
    cells = np.bincount(
        true_codes * clusters.size + pred_codes, minlength=classes.size * clusters.size
    )
    counts = cells.reshape(classes.size, clusters.size).astype(np.int64)
    return ContingencyTable(true_codes, pred_codes, classes, clusters, counts)


def best_assignment(agreement: ContingencyTable) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Classes and clusters, pairwise, that share the most samples in total."""
    class_codes, cluster_codes = linear_sum_assignment(agreement.counts, maximize=True)
    return class_codes.astype(np.int64), cluster_codes.astype(np.int64)


def integer_labels(values: ArrayLike, where: str) -> NDArray[np.int64]:
    """Labels as int64; `DataError`, which calls them `where`, when they are not integers."""
    labels = _labels(values, where)
    if labels.dtype.kind == "U":
        raise DataError(
            f"{where} holds strings; matching names clusters by integers. "
            "Number the classes first, e.g. numpy.unique(labels, return_inverse=True)[1]."
        )
    if int(labels.max()) > np.iinfo(np.int64).max:
        raise DataError(
            f"{where} has the label {labels.max()}, above the int64 range; "
            "number the classes from 0."
        )
    return labels.astype(np.int64)


def _labels(values: ArrayLike, where: str) -> NDArray[Any]:
    labels = np.asarray(values)
    if labels.ndim != 1:
        raise DataError(
            f"{where} has shape {labels.shape}; one label a sample is needed, shape (n_samples,)."
        )
    if labels.size == 0:
        raise DataError(f"{where} is empty; at least one sample is needed.")
    if labels.dtype.kind not in "biuU":
        raise DataError(
            f"{where} has dtype {labels.dtype}; labels are integers, booleans or strings. "
            "Convert with numpy.asarray(labels, dtype=int) or dtype=str."
        )
    return labels
