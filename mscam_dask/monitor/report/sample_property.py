"""Properties of the samples by which plots are colored: categories or numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mscam_dask.data.views.labels import is_missing
from mscam_dask.monitor.palette import CLUSTER_COLORS

__all__ = ["SampleProperty", "sample_property"]

_OTHER = "other"


@dataclass(frozen=True, eq=False)
class SampleProperty:
    """One value for each sample.

    Attributes
    ----------
    values : (n,)
        Numbers, or positions in `categories`; NaN where missing.
    categories
        Names of the categories, None for numbers.
    """

    values: NDArray[np.float64]
    categories: tuple[str, ...] | None


def sample_property(values: ArrayLike) -> SampleProperty:
    """Return a property of the samples.

    Parameters
    ----------
    values : (n,) array
        Text, truth values and whole numbers of at most 24 values are categories; other numbers are
        numbers. Of more than 24 texts the 23 most frequent are categories, and one is "other".
    """
    items: list[Any] = np.asarray(values).tolist()
    missing = np.array([is_missing(item) for item in items], dtype=bool)
    result = np.full(len(items), np.nan)
    known = [item for item in items if not is_missing(item)]
    are_numbers = all(type(item) in (int, float) for item in known)  # no truth values
    distinct = set(known) if are_numbers else set(map(str, known))
    are_whole = are_numbers and all(isinstance(item, int) for item in known)
    if are_numbers and not (are_whole and len(distinct) <= len(CLUSTER_COLORS)):
        result[~missing] = known
        return SampleProperty(result, None)
    ordered = [str(item) for item in sorted(distinct)]
    texts = np.array([str(item) for item in known], dtype=np.str_)
    if len(ordered) > len(CLUSTER_COLORS):
        found, counts = np.unique(texts, return_counts=True)
        frequent = found[np.argsort(-counts, kind="stable")[: len(CLUSTER_COLORS) - 1]]
        ordered = [*sorted(set(frequent.tolist()) - {_OTHER}), _OTHER]
        texts = np.where(np.isin(texts, frequent), texts, _OTHER)
    position = {name: index for index, name in enumerate(ordered)}
    result[~missing] = [position[text] for text in texts.tolist()]
    return SampleProperty(result, tuple(ordered))
