"""k-means gives the partition of scikit-learn's estimator."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans

from mscam_dask.solvers.spectral_cut import canonical_labels, k_means_starts, lloyd


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", ["overlapping", "separate", "repeated rows"])
@pytest.mark.parametrize("n_init", [1, 30])
def test_the_partition_is_that_of_the_estimator(kind: str, n_init: int) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 7))
    if kind == "separate":
        rows += 20 * np.eye(7)[rng.integers(7, size=400)]
    if kind == "repeated rows":
        rows = rows[rng.integers(5, size=400)]
    for seed in range(2):
        model = KMeans(7, n_init=n_init, max_iter=100, tol=0.0, random_state=seed).fit(rows)
        found = k_means_starts(rows, 7, seed, n_init)
        labels, squares = min(found, key=lambda minimum: minimum[1])
        np.testing.assert_array_equal(canonical_labels(labels), canonical_labels(model.labels_))
        assert squares == pytest.approx(model.inertia_, rel=1e-12)


def test_given_centers_lead_to_the_bits_of_the_estimator() -> None:
    rng = np.random.default_rng(1)
    rows, centers = rng.normal(size=(300, 4)), rng.normal(size=(6, 4))
    model = KMeans(6, init=centers, n_init=1, max_iter=100, tol=0.0).fit(rows)
    kept = centers.copy()
    labels, squares = lloyd(rows, centers)
    np.testing.assert_array_equal(labels, model.labels_)
    assert squares == model.inertia_
    np.testing.assert_array_equal(centers, kept)
