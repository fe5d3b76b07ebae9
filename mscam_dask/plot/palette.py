"""Colors of clusters and of properties of the samples."""

from __future__ import annotations

from dataclasses import dataclass

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

    given = pd.Series(np.asarray(values).tolist(), dtype=object)
    known = given.dropna()
    kinds = set(map(type, known))  # truth values are no numbers
    are_whole = kinds <= {int} and known.nunique() <= len(CLUSTER_COLORS)
    if kinds <= {int, float} and not are_whole:
        return SampleProperty(given.astype(float).to_numpy(), None)
    texts = known.map(str)
    ordered = [str(value) for value in sorted(set(known if are_whole else texts))]
    if len(ordered) > len(CLUSTER_COLORS):
        counts = texts.value_counts().sort_index().sort_values(ascending=False, kind="stable")
        frequent = set(counts.index[: len(CLUSTER_COLORS) - 1])
        ordered = [*sorted(frequent - {_OTHER}), _OTHER]
        texts = texts.where(texts.isin(frequent), _OTHER)
    codes = pd.Categorical(texts, categories=ordered).codes
    positions = pd.Series(codes, known.index, dtype=float).reindex(given.index)
    return SampleProperty(positions.to_numpy(), tuple(ordered))
