"""CoReg and MMSC: closed forms of the steps, ascent, the limits of the weights."""

from __future__ import annotations

import numpy as np
import pytest

from mscam_dask.benchmark.baselines.spectral import (
    MMSC,
    CoReg,
    gaussian_affinity,
    leading_eigenvectors,
    neighbor_affinity,
    normalized_affinity,
)
from tests.synthetic import gaussian_views


def test_the_objective_never_falls() -> None:
    views, _ = gaussian_views(0, n_samples=80, n_clusters=4, spread=1.0)
    model = CoReg(4, consensus_weight=0.05, tol=1e-9, max_iter=500, random_state=0).fit(views)
    assert (np.diff(model.objective_) >= -1e-9).all()
    U = model.consensus_embedding_
    np.testing.assert_allclose(U.T @ U, np.eye(4), atol=1e-10)


def test_one_view_is_plain_spectral_clustering() -> None:
    (view,), _ = gaussian_views(2, n_samples=60, dims=(8,))
    U = CoReg(3, scale="none", random_state=0).fit([view]).consensus_embedding_
    V = leading_eigenvectors(normalized_affinity(gaussian_affinity(view)), 3)
    np.testing.assert_allclose(U @ U.T, V @ V.T, atol=1e-8)


def summed_resolvents(views: list[np.ndarray], alpha: float) -> np.ndarray:
    total = np.zeros((len(views[0]),) * 2)
    for view in views:
        similar = normalized_affinity(neighbor_affinity(view, 10).toarray())
        total += np.linalg.solve((1 + alpha) * np.eye(len(view)) - similar, np.eye(len(view)))
    return total


@pytest.mark.parametrize("alpha", [0.1, 10.0])
def test_the_indicator_is_non_negative_orthonormal_and_near_the_bound(alpha: float) -> None:
    views, _ = gaussian_views(0, n_samples=90, spread=4.0)
    model = MMSC(3, alpha=alpha, scale="none", tol=1e-9, max_iter=20_000, random_state=0)
    G = model.fit(views).indicator_
    assert (G >= 0).all()
    np.testing.assert_allclose(G.T @ G, np.eye(3), atol=0.05)
    S = summed_resolvents(views, alpha)
    bound = np.sort(np.linalg.eigvalsh(S))[-3:].sum()
    assert 0.9 * bound <= np.trace(G.T @ S @ G) <= bound * 1.05
    np.testing.assert_array_equal(
        np.argmax(G, axis=1)[:, None] == np.argmax(G, axis=1),
        model.labels_[:, None] == model.labels_,
    )


def test_the_update_ends_where_the_conditions_of_optimality_hold() -> None:
    views, _ = gaussian_views(1, n_samples=80, spread=1.5)
    model = MMSC(3, scale="none", tol=1e-12, max_iter=50_000, random_state=0).fit(views)
    G = model.indicator_
    SG = summed_resolvents(views, 1.0) @ G
    gap = G * (SG - G @ (G.T @ SG))  # G ∘ gradient of the Lagrangian
    assert np.abs(gap).max() <= 1e-4 * np.abs(G * SG).max()
