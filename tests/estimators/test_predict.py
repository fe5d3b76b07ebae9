"""Prediction: of samples that were fitted, of others, one by one, from distances and kernels."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_array_equal
from sklearn.metrics import adjusted_rand_score

from mscam_dask import MSCAM, MSCAN
from mscam_dask.errors import DataError
from tests.blocks import small_blocks
from tests.estimators.small import integer_views, pair_views, quick
from tests.synthetic import gaussian_views


@pytest.mark.parametrize("estimator", [MSCAM, MSCAN])
@pytest.mark.parametrize("scale", ["standard", "unit", "minmax", "none", None])
def test_prediction_on_training_and_held_out_samples(estimator: Any, scale: str | None) -> None:
    views, labels = gaussian_views(1, n_samples=240, n_clusters=4, spread=1.3)
    train, test = slice(0, 160), slice(160, 240)
    model = estimator(4, scale=scale, max_iter=3, n_jobs=1).fit([v[train] for v in views])
    assert adjusted_rand_score(labels[train], model.labels_) > 0.95
    again = model.predict([view[train] for view in views])
    assert again.dtype == np.int64
    assert np.mean(again == model.labels_) >= 0.95
    held_out = model.predict([view[test] for view in views])
    # in the numbering of the fit: class by class the same cluster as in training
    numbering = {int(y): int(label) for y, label in zip(labels[train], model.labels_, strict=True)}
    assert np.mean(held_out == [numbering[int(y)] for y in labels[test]]) >= 0.95


def test_prediction_of_one_sample_and_by_small_blocks() -> None:
    views, _ = gaussian_views(2, n_samples=90, spread=1.0)
    model = quick().fit(views)
    together = model.predict(views)
    for i in (0, 17, 89):
        assert model.predict([view[i : i + 1] for view in views]) == together[i]
    with small_blocks(8 * 47 * 11):
        assert_array_equal(model.predict(views), together)


@pytest.mark.parametrize("value", [7.5, np.nan, 1e308])
@pytest.mark.parametrize("form", ["array", "sparse", "dask", "table"])
def test_training_samples_that_were_written_to_since_the_fit_are_refused(
    form: str, value: float
) -> None:
    views = integer_views()
    held = views[1]
    if form == "sparse":
        table: Any = scipy.sparse.csr_array(views[1])
        held = table.data
    elif form == "dask":
        table = da.map_blocks(lambda rows: rows + held[:18], da.zeros((18, 7), chunks=18))
        table = da.concatenate([table, da.from_array(views[1][18:].copy(), chunks=18)])
    else:
        table = views[1]
    one = form == "table"
    given = table if one else {"a": views[0].copy(), "b": table}
    new = views[1].copy() if one else {"a": views[0].copy(), "b": views[1].copy()}
    model = quick().fit(given)
    expected = model.predict(new)
    before = held[3].copy()
    held[3] = value
    with pytest.raises(DataError):
        model.predict(new)
    held[3] = before
    assert_array_equal(model.predict(new), expected)


def test_prediction_from_distances_and_kernel_values_to_the_training_samples() -> None:
    a, distances, kernel, _ = pair_views()
    view_type = {"d": "distance", "k": "kernel"}
    train, test = np.arange(60), np.arange(60, 75)
    model = quick(view_type=view_type).fit(
        {
            "f": a[train],
            "d": distances[np.ix_(train, train)],
            "k": kernel[np.ix_(train, train)],
        }
    )
    new = {
        "f": a[test],
        "d": distances[np.ix_(test, train)],
        "k": kernel[np.ix_(test, train)],
    }
    whole = quick(view_type=view_type).fit({"f": a, "d": distances, "k": kernel})
    assert adjusted_rand_score(whole.labels_[test], model.predict(new)) == 1.0
