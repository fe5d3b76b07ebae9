"""Colors of clusters and of properties of the samples, in the report and in `mscam_dask.plot`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["CLUSTER_COLORS", "SampleProperty", "cluster_color", "sample_property"]

CLUSTER_COLORS = (
    *("#3f90da", "#ffa90e", "#bd1f01", "#7d8d8b", "#832db6", "#a96b59", "#e76300", "#a39a56"),
    *("#50535c", "#43b3b8", "#f070f0", "#1010f0", "#10d010", "#108010", "#701010", "#103080"),
    *("#d01090", "#d0b0d0", "#104010", "#c030f0", "#601070", "#a070c0", "#f06090", "#1060c0"),
)
"""The ten colors of M. A. Petroff (arXiv:2107.02270), and fourteen more.

Each of the fourteen is the color of a grid, of contrast 1.9 to 12 with white, that is farthest from
those before it in OKLab, with a quarter of that distance under simulated protanopia and deuteranopia
added. No two colors are closer in OKLab than the closest of the first ten.
"""


def cluster_color(cluster: int) -> str:
    """Return the color of a cluster; the colors repeat after the last."""
    return CLUSTER_COLORS[cluster % len(CLUSTER_COLORS)]


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
    import pandas as pd

    items: list[Any] = np.asarray(values).tolist()
    missing = pd.Series(items, dtype=object).isna().to_numpy()
    result = np.full(len(items), np.nan)
    known = [item for item, is_gone in zip(items, missing, strict=True) if not is_gone]
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
