"""The work of one trial: open its data, shuffle, fit and score."""

from __future__ import annotations

import dataclasses
import hashlib
import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.benchmark.methods import METHODS
from mscam_dask.benchmark.results import SCORES
from mscam_dask.benchmark.trial import MixtureData, StoredData, Trial, TrialFit
from mscam_dask.data.datasets.mixtures import corrupted_mixture
from mscam_dask.data.store.object_store import Location
from mscam_dask.data.store.read import open_store
from mscam_dask.data.views.as_multi_view import with_view_types
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ArrayRows, RowSource
from mscam_dask.engine.executors._process import PinnedBlas
from mscam_dask.errors import TemporaryFailure
from mscam_dask.estimators._describe import label_free_scores
from mscam_dask.metrics import score_partition

__all__ = ["fit_trial", "read_stored", "shuffled_data", "stored_as", "trial_data"]


def stored_as(data: MultiViewData, store: Location) -> StoredData:
    """Describe data in a store, so that a trial can open the same data.

    Parameters
    ----------
    data
        Data as they are clustered; their view types can differ from those of the store.
    store
        Store with their values and labels.
    """
    view_types = tuple(view.view_type for view in data.views)
    return StoredData(path=str(store), view_types=view_types, digest=_digest(data))


def read_stored(stored: StoredData) -> MultiViewData:
    """Open the data in a store, without reading rows.

    Raises
    ------
    TemporaryFailure
        If the store holds other data now.
    DataError, StoreCorruptError, ConfigurationError
        If it cannot be opened.
    """
    data = open_store(stored.path)
    if len(data.views) == len(stored.view_types):
        data = with_view_types(data, stored.view_types)
    if _digest(data) != stored.digest:
        raise TemporaryFailure(
            f"the data in {stored.path} have changed since this experiment started. "
            "Rerun the experiment to use the new data."
        )
    return data


def _digest(data: MultiViewData) -> str:
    """SHA-256 digest of the views as they are clustered, and the labels."""
    digest = hashlib.sha256(data.digest().encode())
    if data.labels is not None:
        digest.update(data.labels.astype("<i8").tobytes())
    return digest.hexdigest()


def fit_trial(trial: Trial) -> TrialFit:
    """Fit and score one trial on one thread.

    Returns
    -------
    TrialFit
        Without the peak memory, which the process measures.

    Raises
    ------
    MscamError
        If the method rejects data or parameters.
    """
    data = trial_data(trial, shuffle=trial.shuffled)
    method = METHODS[trial.method]
    estimator = method.make(trial.n_clusters, trial.seed, trial.parameters)
    views: Any = data
    if method.takes_arrays:
        views = [np.array(view.read(0, data.n_samples)) for view in data.views]
    with PinnedBlas(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the scores show how good a result is
        started = time.perf_counter()
        labels: NDArray[Any] = np.asarray(estimator.fit(views).labels_)
        seconds = time.perf_counter() - started
    if data.labels is None:
        return TrialFit(
            outcome="ok",
            scores={**label_free_scores(data, labels)},
            n_found=len(np.unique(labels)),
            seconds=seconds,
        )
    scores = score_partition(data.labels, labels)
    return TrialFit(
        outcome="ok",
        scores={name: float(getattr(scores, name)) for name in SCORES},
        n_found=scores.n_clusters,
        seconds=seconds,
    )


def trial_data(trial: Trial, *, shuffle: bool) -> MultiViewData:
    """Return the data of a trial; without `shuffle` in the order of the store, rows unread."""
    if isinstance(trial.data, MixtureData):
        return corrupted_mixture(
            trial.data.n_samples,
            rng=np.random.default_rng(trial.seed),
            corruption_rate=trial.data.corruption_rate,
            noise_variance=trial.data.noise_variance,
            within_variance=trial.data.within_variance,
        )
    data = read_stored(trial.data)
    return shuffled_data(data, trial.seed) if shuffle else data


def shuffled_data(data: MultiViewData, seed: int) -> MultiViewData:
    """Return the samples in memory, in a random order.

    Rows and columns of distance and kernel views are permuted alike.
    """
    order = np.random.default_rng(seed).permutation(data.n_samples)
    views = tuple(_permuted(view, order) for view in data.views)
    ids, labels = data.sample_ids, data.labels
    return dataclasses.replace(
        data,
        views=views,
        sample_ids=None if ids is None else tuple(ids[index] for index in order),
        labels=None if labels is None else labels[order],
    )


def _permuted(view: RowSource, order: NDArray[np.int64]) -> ArrayRows:
    rows = view.read(0, view.shape[0])[order]
    if view.view_type != "features":
        rows = np.ascontiguousarray(rows[:, order])
    return ArrayRows(rows, view.name, view.view_type)
