"""Imputed values are those of scikit-learn's imputers, which nothing in a fit calls."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.impute import KNNImputer, SimpleImputer

from mscam_dask.linalg.incomplete import IMPUTE_METHODS, ImputeMethod, fit_imputer


def _rows(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((40, 6))
    rows[rng.random(rows.shape) < 0.3] = np.nan
    rows[0] = np.arange(6.0)  # every column has a value
    rows[1, 1:] = np.nan
    rows[2, :-1] = np.nan  # at no finite distance from row 1
    return rows


@pytest.mark.parametrize("method", IMPUTE_METHODS)
@pytest.mark.parametrize("block_bytes", [1, 2**20])
def test_values_are_those_of_scikit_learn(method: ImputeMethod, block_bytes: int) -> None:
    rows, others = _rows(0), _rows(1)[:7]
    reference = KNNImputer() if method == "knn" else SimpleImputer(strategy=method)
    reference.fit(rows)
    imputer = fit_imputer(rows, method)
    for given in (rows, others):
        found = imputer(given, block_bytes=block_bytes)
        assert_allclose(found, reference.transform(given), rtol=1e-12)
        assert_array_equal(found[~np.isnan(given)], given[~np.isnan(given)])


def test_fewer_donors_than_neighbors_are_averaged() -> None:
    rows = np.array([[1.0, 2.0], [2.0, np.nan], [3.0, 6.0]])
    assert_array_equal(fit_imputer(rows, "knn")(rows), [[1, 2], [2, 4], [3, 6]])


def test_donors_at_no_finite_distance_give_nothing() -> None:
    rows = np.array([[1.0, np.nan, np.nan], [2.0, np.nan, 4.0], [np.nan, 3.0, 8.0]])
    assert_array_equal(fit_imputer(rows, "knn")(rows)[0], [1, 3, 4])
