"""The work of one cell: read, shuffle, fit, score. Runs in a process of its own."""

from __future__ import annotations

import dataclasses
import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.mixtures import corrupted_mixture
from mscam_dask.data.multiview import MultiViewData
from mscam_dask.data.sources import ArrayRows, RowSource
from mscam_dask.engine.pinned_blas import PinnedBlas
from mscam_dask.errors import DataError
from mscam_dask.metrics import score_partition
from mscam_dask.pipeline.experiments.cells import Cell, CellFit, MixtureData
from mscam_dask.pipeline.experiments.methods import METHODS, make_estimator
from mscam_dask.pipeline.experiments.results import SCORES
from mscam_dask.pipeline.experiments.stored import read_stored

__all__ = ["cell_data", "fit_cell", "shuffled_data"]


def fit_cell(cell: Cell) -> CellFit:
    """Fit and score one cell, on one thread.

    Returns
    -------
    CellFit
        Without the peak memory, which is known from outside.

    Raises
    ------
    MscamError
        Whatever the method says against data or parameters.
    """
    data = cell_data(cell, shuffle=cell.shuffled)
    if data.labels is None:
        raise DataError(
            f"data set {cell.dataset!r} has no labels, so methods cannot be compared on it. Name "
            "them with labels = ... in its table."
        )
    estimator = make_estimator(METHODS[cell.method], cell.n_clusters, cell.seed, cell.parameters)
    with PinnedBlas(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the result is worth, its scores say
        started = time.perf_counter()
        found: NDArray[Any] = np.asarray(estimator.fit(data).labels_)
        seconds = time.perf_counter() - started
    scores = score_partition(data.labels, found)
    return CellFit(
        outcome="ok",
        scores={name: float(getattr(scores, name)) for name in SCORES},
        n_found=scores.n_clusters,
        seconds=seconds,
    )


def cell_data(cell: Cell, *, shuffle: bool) -> MultiViewData:
    """Return what a cell clusters; in the order of the store, unread, without `shuffle`."""
    if isinstance(cell.data, MixtureData):
        return corrupted_mixture(
            cell.data.n_samples,
            rng=np.random.default_rng(cell.seed),
            corrupted=cell.data.corrupted,
            noise_variance=cell.data.noise_variance,
            covariance_scale=cell.data.covariance_scale,
        )
    data = read_stored(cell.data)
    return shuffled_data(data, cell.seed) if shuffle else data


def shuffled_data(data: MultiViewData, seed: int) -> MultiViewData:
    """Return the samples in memory, in an order drawn with `seed`.

    Distance and kernel views have rows and columns moved alike.
    """
    order = np.random.default_rng(seed).permutation(data.n_samples)
    views = tuple(_moved(view, order) for view in data.views)
    ids, labels = data.sample_ids, data.labels
    return dataclasses.replace(
        data,
        views=views,
        sample_ids=None if ids is None else tuple(ids[index] for index in order),
        labels=None if labels is None else labels[order],
    )


def _moved(view: RowSource, order: NDArray[np.int64]) -> ArrayRows:
    rows = view.read(0, view.shape[0])[order]
    if view.metric != "features":
        rows = np.ascontiguousarray(rows[:, order])
    return ArrayRows(rows, view.name, view.metric)
