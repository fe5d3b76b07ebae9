"""The work of one cell: read, shuffle, fit, score. Runs in a process of its own."""

from __future__ import annotations

import dataclasses
import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.benchmark.methods import METHODS, make_estimator
from mscam_dask.benchmark.results import SCORES
from mscam_dask.benchmark.stored import read_stored
from mscam_dask.benchmark.trial import MixtureData, Trial, TrialFit
from mscam_dask.data.datasets.mixtures import corrupted_mixture
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ArrayRows, RowSource
from mscam_dask.engine.executors._threadpools import PinnedBlas
from mscam_dask.errors import DataError
from mscam_dask.metrics import score_partition

__all__ = ["fit_trial", "shuffled_data", "trial_data"]


def fit_trial(trial: Trial) -> TrialFit:
    """Fit and score one cell, on one thread.

    Returns
    -------
    TrialFit
        Without the peak memory, which is known from outside.

    Raises
    ------
    MscamError
        Whatever the method says against data or parameters.
    """
    data = trial_data(trial, shuffle=trial.shuffled)
    if data.labels is None:
        raise DataError(
            f"data set {trial.dataset!r} has no labels, so methods cannot be compared on it. Name "
            "them with labels = ... in its table."
        )
    estimator = make_estimator(
        METHODS[trial.method], trial.n_clusters, trial.seed, trial.parameters
    )
    with PinnedBlas(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the result is worth, its scores say
        started = time.perf_counter()
        found: NDArray[Any] = np.asarray(estimator.fit(data).labels_)
        seconds = time.perf_counter() - started
    scores = score_partition(data.labels, found)
    return TrialFit(
        outcome="ok",
        scores={name: float(getattr(scores, name)) for name in SCORES},
        n_found=scores.n_clusters,
        seconds=seconds,
    )


def trial_data(trial: Trial, *, shuffle: bool) -> MultiViewData:
    """Return what a cell clusters; in the order of the store, unread, without `shuffle`."""
    if isinstance(trial.data, MixtureData):
        return corrupted_mixture(
            trial.data.n_samples,
            rng=np.random.default_rng(trial.seed),
            corrupted=trial.data.corrupted,
            noise_variance=trial.data.noise_variance,
            within_variance=trial.data.within_variance,
        )
    data = read_stored(trial.data)
    return shuffled_data(data, trial.seed) if shuffle else data


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
    if view.view_type != "features":
        rows = np.ascontiguousarray(rows[:, order])
    return ArrayRows(rows, view.name, view.view_type)
