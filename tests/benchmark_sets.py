"""The benchmark sets as they lie in the folder that MSCAM_DATA names, and their fits with default parameters, each done once in a test session."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mscam_dask import MSCAM

NAMES = (
    "handwritten",
    "msrcv1",
    "flowers17",
    "caltech101_7",
    "caltech101_20",
    "caltech101_nus31",
    "cifar10_nus_3100",
    "landuse21",
    "reuters1200",
    "bbc",
    "ngs",
    "cora",
    "bdgp",
    "mnist4",
    "proteinfold",
    "prokaryotic",
    "ccv",
)
"""Every set but the large one."""


class BenchmarkData(NamedTuple):
    """One benchmark set; arrays are read-only because tests share them."""

    # As stored, neither centred nor scaled; a distance view is (n_samples, n_samples)
    views: tuple[NDArray[Any], ...]
    labels: NDArray[np.int64]  # ground truth, for scoring only
    kinds: tuple[str, ...]  # "features" or "distance", one for each view
    names: tuple[str, ...]  # one for each view

    @property
    def n_clusters(self) -> int:
        """Classes of the ground truth."""
        return len(np.unique(self.labels))


def path_of(name: str) -> Path | None:
    """The file of a set, or None where MSCAM_DATA is not set; it need not be there."""
    folder = os.environ.get("MSCAM_DATA")
    return Path(folder) / f"{name}.npz" if folder else None


@functools.lru_cache(maxsize=4)
def read_set(name: str) -> BenchmarkData:
    """Read a set."""
    path = path_of(name)
    if path is None:
        raise FileNotFoundError(f"{name}.npz: MSCAM_DATA (the folder of benchmark sets) is not set")
    with np.load(path, allow_pickle=False) as archive:
        names = tuple(str(one) for one in archive["view_names"])
        views = tuple(archive[f"view_{index}"] for index in range(len(names)))
        labels = archive["labels"].astype(np.int64)
        kinds = tuple(str(kind) for kind in archive["kind"])
    for array in (*views, labels):
        array.flags.writeable = False
    return BenchmarkData(views, labels, kinds, names)


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
