"""Colors of clusters and of properties of the samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

# The ten colors of M. A. Petroff (arXiv:2107.02270), and fourteen more: each is the color of a grid, of contrast
# 1.9 to 12 with white, that is farthest from those before it in OKLab, with a quarter of that distance under
# simulated protanopia and deuteranopia added. No two are closer in OKLab than the closest of the first ten.
CLUSTER_COLORS = (
    *("#3f90da", "#ffa90e", "#bd1f01", "#7d8d8b", "#832db6", "#a96b59", "#e76300", "#a39a56"),
    *("#50535c", "#43b3b8", "#f070f0", "#1010f0", "#10d010", "#108010", "#701010", "#103080"),
    *("#d01090", "#d0b0d0", "#104010", "#c030f0", "#601070", "#a070c0", "#f06090", "#1060c0"),
)
LEAST_P_VALUE = 1e-4  # smaller p-values are drawn here
_OTHER = "other"


def cluster_color(cluster: int) -> str:
    """Color of a cluster; the colors repeat after the last."""
    return CLUSTER_COLORS[cluster % len(CLUSTER_COLORS)]


@dataclass(frozen=True, eq=False)
class SampleProperty:
    """Values (n,) of the samples: numbers, or positions in `categories`; NaN where missing."""

    values: NDArray[np.float64]
    categories: tuple[str, ...] | None


def sample_property(values: ArrayLike) -> SampleProperty:
    """Text, truth values and whole numbers of at most 24 values as categories (of more texts the 23 most frequent)."""
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
    texts = pd.Series(list(map(str, known)), dtype=object)
    ordered = list(map(str, sorted(distinct)))
    if len(ordered) > len(CLUSTER_COLORS):
        found, counts = np.unique(texts.to_numpy(dtype=np.str_), return_counts=True)
        frequent = found[np.argsort(-counts, kind="stable")[: len(CLUSTER_COLORS) - 1]].tolist()
        ordered = [*sorted(set(frequent) - {_OTHER}), _OTHER]
        texts = texts.where(texts.isin(frequent), _OTHER)
    result[~missing] = pd.Categorical(texts, categories=ordered).codes
    return SampleProperty(result, tuple(ordered))
