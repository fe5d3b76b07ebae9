"""Missing cells: refused together by default, imputed where asked, and told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from sklearn.impute import KNNImputer, SimpleImputer

from mscam_dask.errors import ConfigurationError, DataError
from tests.estimators.small import pair_views, quick
from tests.messages import quotes
from tests.synthetic import gaussian_views


def holed(seed: int = 0) -> list[NDArray[np.float64]]:
    """Views of 72 samples; cells of the first and the last are missing."""
    views, _ = gaussian_views(seed, n_samples=72, spread=1.5, dims=(4, 7, 3))
    views[0][[3, 3, 9], [0, 2, 1]] = np.nan
    views[2][5, 1] = np.nan
    return views


def test_missing_cells_of_all_views_are_refused_together() -> None:
    with pytest.raises(
        DataError,
        match=quotes("'view_0'", 3, "1.04%", [3, 9], [0, 1, 2], "'view_2'", [5], "impute"),
    ):
        quick().fit(holed())
    frames = [
        pd.DataFrame(
            view,
            index=[f"s{row}" for row in range(72)],
            columns=[f"v{index}f{column}" for column in range(view.shape[1])],
        )
        for index, view in enumerate(holed())
    ]
    with pytest.raises(DataError):
        quick().fit(frames)


@pytest.mark.parametrize("method", ["mean", "median", "knn"])
def test_a_fit_is_that_of_the_imputed_views(method: str) -> None:
    views = holed()
    reference = KNNImputer() if method == "knn" else SimpleImputer(strategy=method)
    filled = [reference.fit_transform(view) for view in views]
    model = quick(impute=method).fit(views)
    expected = quick().fit(filled)
    assert_array_equal(model.labels_, expected.labels_)
    assert all(map(np.array_equal, views, holed(), [True] * 3))  # as the caller gave them
    assert set(model.imputed_shares_) == {"view_0", "view_2"}
    shares = np.zeros(72)
    shares[[3, 9]] = 2 / 4, 1 / 4
    assert_allclose(model.imputed_shares_["view_0"], shares)
    assert_array_equal(model.predict(views), expected.predict(filled))
    new = [view[:12].copy() for view in views]
    new[1][4, 3] = np.nan  # a column without missing cells in the fit
    by_reference = [
        reference.fit(view).transform(one) for view, one in zip(views, new, strict=True)
    ]
    assert_array_equal(model.predict(new), expected.predict(by_reference))
    assert_allclose(model.predict_proba(new), expected.predict_proba(by_reference))


def test_absent_samples_are_not_imputed() -> None:
    views = holed()
    views[0][20:30] = np.nan
    model = quick(impute="mean").fit(views)
    assert not model.view_presence_[20:30, 0].any()
    assert not model.imputed_shares_["view_0"][20:30].any()
    filled = [view.copy() for view in views]
    means = np.nanmean(views[0], axis=0)
    filled[0][:20] = np.where(np.isnan(views[0][:20]), means, views[0][:20])
    filled[2] = SimpleImputer().fit_transform(views[2])
    assert_array_equal(model.labels_, quick().fit(filled).labels_)


@pytest.mark.parametrize("impute", ["zero", 3, {"view_9": "mean"}, {"view_1": "zero"}])
def test_unknown_methods_and_views_are_refused(impute: Any) -> None:
    with pytest.raises(ConfigurationError):
        quick(impute=impute).fit(holed())


def test_views_that_are_mostly_missing_are_refused() -> None:
    views = holed()
    views[1][:, :4] = np.nan
    with pytest.raises(DataError):
        quick(impute="mean").fit(views)
    views = holed()
    views[1][:, 4] = np.nan
    with pytest.raises(DataError):
        quick(impute="knn").fit(views)


def test_infinite_values_and_pairwise_views_are_not_imputed() -> None:
    views = holed()
    views[1][2, 2] = np.inf
    with pytest.raises(DataError):
        quick(impute="mean").fit(views)
    features, distances, _, _ = pair_views()
    distances = distances.copy()
    distances[3, 5] = distances[5, 3] = np.nan
    with pytest.raises(DataError):
        quick(impute="mean", view_type=["features", "distance"]).fit([features, distances])
