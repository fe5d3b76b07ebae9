"""Fits with default parameters on the benchmark sets, each done once in a test session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask import MSCAM
from tests.benchmark_sets import BenchmarkData

__all__ = ["default_fit", "fit_views", "view_types_of"]

_FITS: dict[str, MSCAM] = {}


def view_types_of(data: BenchmarkData) -> dict[str, str]:
    """What each view holds, by name."""
    return dict(zip(data.names, data.kinds, strict=True))


def default_fit(name: str, data: BenchmarkData) -> MSCAM:
    """MSCAM with nothing set but the number of clusters; shared, so not to be changed."""
    if name not in _FITS:
        _FITS[name] = fit_views(data, data.names)
    return _FITS[name]


def fit_views(
    data: BenchmarkData,
    names: Sequence[str],
    *,
    samples: NDArray[np.int64] | None = None,
    factors: Sequence[float] | None = None,
    **parameters: Any,
) -> MSCAM:
    """MSCAM on the views in this order, with these samples, each view times its factor."""
    views = {}
    for position, name in enumerate(names):
        view = data.views[data.names.index(name)]
        if samples is not None:
            view = view[samples]
        views[name] = view if factors is None else view * factors[position]
    n_clusters = len(np.unique(data.labels))
    return MSCAM(n_clusters, view_type=view_types_of(data), n_jobs=1, **parameters).fit(views)
