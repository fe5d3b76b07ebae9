"""Known labels of some samples, `partial_labels` of `fit`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.estimators._batches import distinct_values, is_missing, sample_values
from mscam_dask.solvers.known_labels import UNKNOWN


def validated_partial_labels(
    partial_labels: Any,
    X: Any,
    data: MultiViewData,
    n_clusters: int | None,
    equal: NDArray[np.int64] | None,
) -> NDArray[np.int64]:
    """Class (n,) of each sample with a known label, from 0 by first appearance, `UNKNOWN` for the others.

    The label of one of `equal` samples is that of all. `n_clusters` is None if it is selected.
    """
    values = sample_values(partial_labels, "partial_labels", X, data)
    has = ~is_missing(values)
    if values.dtype.kind != "U":
        has[has] = [bool(value != UNKNOWN) for value in values[has]]
    if not has.any():
        raise DataError(
            f"partial_labels has no known label among {len(values)} samples; allowed are labels of some samples, "
            "and -1, None, NaN or empty text for the others. Leave it out if no label is known."
        )
    known = np.full(len(values), UNKNOWN, dtype=np.int64)
    names, first, codes = distinct_values(values[has], "partial_labels")
    known[has] = np.argsort(np.argsort(first))[codes]
    if equal is not None:
        known = _shared_by_equal(known, equal, names[np.argsort(first)], data)
    n_classes, n_unknown = len(names), int(np.count_nonzero(known < 0))
    if n_clusters is not None and not n_classes <= n_clusters <= n_classes + n_unknown:
        raise ConfigurationError(
            f"n_clusters is {n_clusters}, but partial_labels has {n_classes} different labels and {n_unknown} samples "
            f"without one; allowed are {n_classes} to {n_classes + n_unknown} clusters. Set n_clusters to a number in "
            "that range, or merge labels."
        )
    return known


def _shared_by_equal(
    known: NDArray[np.int64], equal: NDArray[np.int64], names: NDArray[Any], data: MultiViewData
) -> NDArray[np.int64]:
    """Known labels of samples that are equal in every view, for all of them."""
    rows = np.flatnonzero((equal >= 0) & (known >= 0))
    of_group = np.full(int(equal.max()) + 1, UNKNOWN, dtype=np.int64)
    of_group[equal[rows[::-1]]] = known[rows[::-1]]  # the first
    differ = rows[of_group[equal[rows]] != known[rows]]
    if differ.size:
        one = differ[0]
        other = rows[(equal[rows] == equal[one])][0]
        ids = data.sample_ids
        shown = [int(row) if ids is None else ids[row] for row in (other, one)]
        raise DataError(
            f"partial_labels differs for samples {shown}, which are equal in every view: "
            f"{names[known[other]]} and {names[known[one]]}. Give equal samples the same label, or -1."
        )
    return np.where((equal >= 0) & (known < 0), of_group[equal], known)
