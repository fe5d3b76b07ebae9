"""Memberships and confidence of training samples, `predict_proba` of new ones."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import roc_auc_score

from mscam_dask import MSCAM, MSCAN, Constants
from mscam_dask.data.store.write import write_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.errors import DataError
from mscam_dask.types.rules import SIZES
from tests.blocks import other_values, small_blocks
from tests.clusters import local_client
from tests.estimators.small import pair_views, quick
from tests.synthetic import gaussian_views


@pytest.mark.parametrize("estimator", [MSCAM, MSCAN])
def test_rows_sum_to_one_and_confidence_is_the_own_cluster(estimator: Any) -> None:
    views, _ = gaussian_views(0, n_samples=120, n_clusters=4, spread=1.5)
    model = estimator(4, constants=Constants.paper(), max_iter=2, n_jobs=1).fit(views)
    assert model._membership is None  # nothing is computed by the fit
    membership = model.membership_
    assert membership.shape == (120, 4)
    assert membership.min() > 0
    assert_allclose(membership.sum(axis=1), 1.0)
    assert_array_equal(model.confidence_, membership[np.arange(120), model.labels_])
    assert model.membership_ is membership
    loaded = pickle.loads(pickle.dumps(model))
    assert_array_equal(loaded.confidence_, model.confidence_)


def test_wrong_samples_have_less_confidence() -> None:
    views, labels = gaussian_views(3, n_samples=300, n_clusters=3, spread=0.8, dims=(4, 4))
    model = quick().fit(views)
    table = np.zeros((3, 3))
    np.add.at(table, (model.labels_, labels), 1)
    wrong = table.argmax(axis=1)[model.labels_] != labels
    assert 10 < wrong.sum() < 150
    assert roc_auc_score(wrong, 1 - model.confidence_) > 0.75


def test_no_sample_votes_for_itself() -> None:
    views, _ = gaussian_views(0, n_samples=90, spread=3.0)
    model = quick().fit(views)
    moved = 7
    others = np.flatnonzero(model.labels_ != model.labels_[moved])
    model.labels_[moved] = model.labels_[others[0]]  # against all its neighbors
    assert model.confidence_[moved] < 0.1
    assert model.confidence_.mean() > 0.8


def test_new_samples_in_the_numbering_of_the_fit() -> None:
    views, _ = gaussian_views(1, n_samples=240, n_clusters=4, spread=2.0)
    model = quick(4).fit([view[:160] for view in views])
    new = [view[160:] for view in views]
    together = model.predict_proba(new)
    assert_allclose(together.sum(axis=1), 1.0)
    assert_array_equal(together.argmax(axis=1), model.predict(new))
    alone = [model.predict_proba([view[i : i + 1] for view in new]) for i in range(5)]
    assert_allclose(np.concatenate(alone), together[:5])


def test_distance_and_kernel_views() -> None:
    features, distances, kernel, _ = pair_views()
    given = [features, distances, kernel]
    model = quick(view_type=("features", "distance", "kernel")).fit(given)
    assert_allclose(model.membership_.sum(axis=1), 1.0)
    assert_allclose(model.predict_proba(given).sum(axis=1), 1.0)


def test_rows_of_a_large_store_are_read_by_tasks(tmp_path: Path) -> None:
    views, _ = gaussian_views(1, n_samples=300, n_clusters=3, spread=3.0)
    views[0][17] = np.nan  # a sample that one view does not have
    store = write_store(as_multi_view(views), tmp_path / "data.zarr")
    in_memory = quick().fit(views)
    with other_values(SIZES, exact_samples=60), small_blocks(2**12):
        membership, votes = in_memory.membership_, in_memory.view_votes_
    with local_client(2) as client:
        model = quick(client=client).fit(str(store))
        with other_values(SIZES, exact_samples=60):
            assert_array_equal(model.membership_, membership)
    for n_jobs in (1, 2):
        again = quick(client=client, n_jobs=n_jobs)  # which is closed: tasks run in threads
        again._keep_fit(model.solution_, model._training)
        with other_values(SIZES, exact_samples=60):
            assert_array_equal(again.membership_, membership)
            assert again.view_votes_.keys() == votes.keys()
            assert all(np.array_equal(again.view_votes_[view], votes[view]) for view in votes)


def test_refusals() -> None:
    views, _ = gaussian_views(1, n_samples=60)
    model = quick().fit(views)
    views[1][3, 2] += 1.0
    with pytest.raises(DataError):
        _ = model.membership_
    assert not hasattr(quick(), "membership_")
