"""k-means gives the bits of scikit-learn's estimator."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans

from mscam_dask.solvers.spectral_cut import canonical_labels, k_means_starts, least, lloyd


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", ["overlapping", "separate", "repeated rows"])
@pytest.mark.parametrize("n_init", [1, 30])
def test_the_bits_are_those_of_the_estimator(kind: str, n_init: int) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 7))
    if kind == "separate":
        rows += 20 * np.eye(7)[rng.integers(7, size=400)]
    if kind == "repeated rows":
        rows = rows[rng.integers(5, size=400)]
    for seed in range(2):
        model = KMeans(7, n_init=n_init, max_iter=100, tol=0.0, random_state=seed).fit(rows)
        labels, squares = least(k_means_starts(rows, 7, seed, n_init), 7)
        np.testing.assert_array_equal(labels, model.labels_)
        assert squares == model.inertia_


def test_given_centers_lead_to_the_bits_of_the_estimator() -> None:
    rng = np.random.default_rng(1)
    rows, centers = rng.normal(size=(300, 4)), rng.normal(size=(6, 4))
    model = KMeans(6, init=centers, n_init=1, max_iter=100, tol=0.0).fit(rows)
    kept = centers.copy()
    labels, squares = lloyd(rows, centers)
    np.testing.assert_array_equal(labels, model.labels_)
    assert squares == model.inertia_
    np.testing.assert_array_equal(centers, kept)


def test_a_later_minimum_is_taken_if_it_is_lower_and_another_partition() -> None:
    rng = np.random.default_rng(3)
    for _ in range(60):
        first = rng.integers(0, 3, 5)
        kind = rng.integers(3)
        renamed, merged = np.array([2, 0, 1])[first], np.minimum(first, 1)
        second = (renamed, merged, rng.integers(0, 3, 5))[kind]
        squares = float(rng.integers(0, 3))
        differ = bool((canonical_labels(first) != canonical_labels(second)).any())
        for one, other in ((first, second), (second, first)):
            found, value = least([(one, 1.0), (other, squares)], 3)
            taken = squares < 1.0 and differ
            np.testing.assert_array_equal(found, other if taken else one)
            assert value == (squares if taken else 1.0)
