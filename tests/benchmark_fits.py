"""Fits with default parameters on the benchmark sets, each done once in a test session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask import MSCAM
from tests.benchmark_sets import BenchmarkData

_FITS: dict[str, MSCAM] = {}


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
    kinds = dict(zip(data.names, data.kinds, strict=True))
    return MSCAM(data.n_clusters, view_type=kinds, n_jobs=1, **parameters).fit(views)
