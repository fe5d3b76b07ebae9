"""What scikit-learn asks of an estimator: its own checks, parameters, copies, numbers of NumPy."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from mscam_dask import MSCAM, MSCAN
from tests.estimators.small import quick
from tests.synthetic import gaussian_views

Labels = NDArray[np.int64]


class TwoViewsMSCAM(MSCAM):
    """MSCAM with any table cut into two views, so that scikit-learn's checks reach that form."""

    def _halved(self, X: Any, call: Callable[[Any], Any]) -> Any:
        shape = getattr(X, "shape", None) or np.shape(X)
        if len(shape) == 2 and shape[1] > 1:
            self.view_sizes = (shape[1] // 2, shape[1] - shape[1] // 2)
        try:
            return call(X)
        finally:
            self.view_sizes = None

    def fit(self, X: Any, y: object = None) -> Self:
        self._halved(X, super().fit)
        return self

    def predict(self, X: Any) -> Labels:
        return np.asarray(self._halved(X, super().predict))


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        MSCAM(max_outer_iter=1, n_jobs=1),
        MSCAN(max_outer_iter=1, n_jobs=1, selection=None),
        TwoViewsMSCAM(max_outer_iter=1, n_jobs=1, selection=None),
    ]
)
def test_scikit_learns_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def test_get_params_set_params_and_clone() -> None:
    model = MSCAM(4, alpha=2.0, scale="unit", metric={"a": "kernel"}, random_state=3)
    copy = clone(model)
    assert copy is not model
    assert copy.get_params() == model.get_params()
    assert copy.set_params(alpha=5.0, n_clusters=2) is copy
    assert (copy.alpha, copy.n_clusters, model.alpha) == (5.0, 2, 2.0)
    with pytest.raises(ValueError, match="Invalid parameter"):
        copy.set_params(no_such_parameter=1)


@pytest.mark.parametrize("random_state", [0, 7, None, np.int64(3), np.random.RandomState(1)])
def test_any_random_state_of_scikit_learn(random_state: Any) -> None:
    views, labels = gaussian_views(8, n_samples=60, spread=2.0)
    model = quick(random_state=random_state).fit(views)
    assert adjusted_rand_score(labels, model.labels_) == 1.0


def test_numbers_of_numpy_are_numbers() -> None:
    views, _ = gaussian_views(8, n_samples=60)
    model = quick(np.int64(3), alpha=np.float32(1.0), n_neighbors=np.int32(9), tol=np.float64(0.0))
    assert_array_equal(model.fit(views).labels_, quick(tol=0.0).fit(views).labels_)


def test_a_fitted_model_survives_pickling() -> None:
    views, _ = gaussian_views(5, n_samples=90)
    model = quick().fit(views)
    back = pickle.loads(pickle.dumps(model))
    assert_array_equal(back.labels_, model.labels_)
    assert_array_equal(back.predict(views), model.predict(views))
    assert back.history_.equals(model.history_)
    assert (back.consensus_graph_ != model.consensus_graph_).nnz == 0
