"""DiMSC: the Sylvester equation, descent, and the limits of its weights."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from mscam_dask.benchmark.baselines.self_representation import DiMSC, solve_view
from mscam_dask.linalg.ridge import basis_from_rows
from tests.synthetic import gaussian_views


@pytest.mark.parametrize("width", [6, 40])
def test_the_view_step_solves_the_sylvester_equation(width: int) -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((25, width))
    root = rng.standard_normal((25, 10))
    coupling = root @ root.T + 0.1 * np.eye(25)
    basis = basis_from_rows(rows)
    Z = basis.vectors @ solve_view(basis, coupling)
    gram = rows @ rows.T
    np.testing.assert_allclose(gram @ Z + Z @ coupling, gram, atol=1e-8)
    if width > 25:  # XᵀX regular: the solution is the only one
        np.testing.assert_allclose(Z, scipy.linalg.solve_sylvester(gram, coupling, gram), atol=1e-8)


@pytest.mark.parametrize("diversity", [0.5, 20.0])
def test_the_objective_never_rises(diversity: float) -> None:
    views, _ = gaussian_views(1, n_samples=60, spread=1.0)
    model = DiMSC(3, diversity=diversity, tol=1e-6, max_iter=3000, random_state=0).fit(views)
    assert len(model.objective_) >= 3
    assert (np.diff(model.objective_) <= 1e-9 * model.objective_[0]).all()


def test_diversity_makes_views_less_alike() -> None:
    (view,), _ = gaussian_views(2, n_samples=50, dims=(10,))
    twins = [view, view.copy()]

    def dependence(diversity: float) -> float:
        model = DiMSC(3, diversity=diversity, tol=1e-4, max_iter=2000, random_state=0).fit(twins)
        return float(model.objective_[-1])

    # the same data twice: without the HSIC twice the cost of one view, with it more, but never
    # more than what the views cost when nothing gives way
    apart, coupled = dependence(0.0), dependence(1.0)
    alone = DiMSC(3, random_state=0).fit([view]).objective_[-1]
    np.testing.assert_allclose(apart, 2 * alone, rtol=1e-9)
    assert coupled > apart


def test_the_affinity_is_symmetric_and_non_negative() -> None:
    views, _ = gaussian_views(3, n_samples=40)
    affinity = DiMSC(3, diversity=1.0, random_state=0).fit(views).affinity_
    assert (affinity >= 0).all()
    np.testing.assert_allclose(affinity, affinity.T)
