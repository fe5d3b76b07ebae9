"""Values that are given for each sample of a fit or a prediction: batches, known labels, initial labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.errors import ConfigurationError, DataError, DataTypeError
from mscam_dask.solvers.known_labels import UNKNOWN


def sample_values(values: Any, name: str, X: Any, data: MultiViewData) -> NDArray[Any]:
    """One value (n,) for each sample: from an array, a Series (matched by ids), or the name of a column of obs."""
    if isinstance(values, str):
        obs = getattr(X, "obs", None)
        if obs is None:
            raise DataError(
                f"{name}={values!r} is the name of a column, but the data are no AnnData or MuData, which have "
                "columns of samples. Give one value for each sample."
            )
        if values not in obs:
            raise DataError(
                f"{name}={values!r} is not a column of obs, which has {list(map(str, obs.columns))}."
            )
        values = obs[values]
    index = getattr(values, "index", None)
    array = np.asarray(values)
    if array.shape != (data.n_samples,):
        raise DataError(
            f"{name} has shape {array.shape}; allowed is one value for each of the {data.n_samples} samples."
        )
    ids = data.sample_ids
    if ids is None or index is None or callable(index):
        return array
    places = {str(value): place for place, value in enumerate(index)}
    if len(places) != len(ids) or not places.keys() >= set(ids):
        return array
    return np.asarray(array[[places[one] for one in ids]])


def validated_batches(
    batches: Any, X: Any, data: MultiViewData
) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
    """Batch (n,) of each sample as a position in the ascending names of the batches."""
    values = sample_values(batches, "batches", X, data)
    missing = np.flatnonzero(_is_missing(values))
    if missing.size:
        raise DataError(
            f"batches has no value for {missing.size} sample(s), the first {_shown(missing[:5], data)}; allowed is a "
            "batch for each sample. Give these samples a batch of their own, or drop them."
        )
    names, _, codes = _distinct(values, "batches")
    if 2 < len(names) == len(values):
        raise DataError(
            f"batches has another value for each of the {len(values)} samples; allowed are batches of several "
            "samples. Give the column that says which samples were measured together."
        )
    return codes.astype(np.int64), tuple(names.tolist())


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
    has = ~_is_missing(values)
    if values.dtype.kind != "U":
        has[has] = [bool(value != UNKNOWN) for value in values[has]]
    if not has.any():
        raise DataError(
            f"partial_labels has no known label among {len(values)} samples; allowed are labels of some samples, "
            "and -1, None, NaN or empty text for the others. Leave it out if no label is known."
        )
    known = np.full(len(values), UNKNOWN, dtype=np.int64)
    names, first, codes = _distinct(values[has], "partial_labels")
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


def validated_init_labels(
    init_labels: Any, data: MultiViewData, n_clusters: int
) -> NDArray[np.int64]:
    """Initial cluster (n,) of each sample, `UNKNOWN` for some."""
    labels = np.asarray(init_labels)
    if labels.shape != (data.n_samples,) or labels.dtype.kind not in "iu":
        raise DataError(
            f"init_labels has shape {labels.shape} and dtype {labels.dtype}; allowed is one "
            f"whole number for each of the {data.n_samples} samples."
        )
    if labels.min() < UNKNOWN or labels.max() >= n_clusters or labels.max() == UNKNOWN:
        raise DataError(
            f"init_labels range from {labels.min()} to {labels.max()}; allowed are 0 to "
            f"{n_clusters - 1}, and {UNKNOWN} for some, but not all, samples."
        )
    return labels.astype(np.int64)


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
        raise DataError(
            f"partial_labels differs for samples {_shown([other, one], data)}, which are equal in every view: "
            f"{names[known[other]]} and {names[known[one]]}. Give equal samples the same label, or -1."
        )
    return np.where((equal >= 0) & (known < 0), of_group[equal], known)


def _is_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each value (n,) is None, NaN or empty text."""
    from pandas import isna

    missing = np.asarray(isna(values))
    if values.dtype.kind in "OUT":
        missing |= np.array([isinstance(value, str) and not value.strip() for value in values])
    return missing


def _distinct(
    values: NDArray[Any], name: str
) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
    """Different values, ascending, the first place of each, and the position (n,) of each value among them."""
    try:
        return np.unique(values, return_index=True, return_inverse=True)
    except TypeError as error:
        raise DataTypeError(
            f"{name} has values of several types ({error}); allowed are text or numbers, not both. "
            "Convert all to text."
        ) from error


def _shown(rows: Any, data: MultiViewData) -> list[Any]:
    """Ids of samples for a message, or their rows."""
    return [int(row) if data.sample_ids is None else data.sample_ids[row] for row in rows]
