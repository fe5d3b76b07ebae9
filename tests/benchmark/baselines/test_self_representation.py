"""SSC and DiMSC: the lasso of each sample, independent subspaces, the Sylvester equation, diversity."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from mscam_dask.benchmark.baselines.self_representation import (
    SSC,
    DiMSC,
    smallest_reach,
    solve_view,
)
from mscam_dask.errors import DataError
from mscam_dask.linalg.orthonormal import basis_from_rows
from mscam_dask.metrics import adjusted_rand_index
from tests.synthetic import gaussian_views


def test_columns_solve_their_lasso() -> None:
    (view,), _ = gaussian_views(0, n_samples=40, dims=(15,))
    model = SSC(3, scale="none", tol=1e-10, max_iter=50_000, random_state=0).fit([view])
    C = model.coefficients_
    np.testing.assert_array_equal(np.diag(C), 0.0)
    fidelity = 20.0 / smallest_reach(view)
    gradient = fidelity * view @ (view.T @ C - view.T)  # of λ_z/2 ‖X − CᵀX‖², samples in rows
    others = ~np.eye(40, dtype=bool)
    used = (np.abs(C) > 1e-7) & others
    np.testing.assert_allclose(gradient[used], -np.sign(C[used]), atol=1e-5)
    assert np.abs(gradient[others]).max() <= 1 + 1e-5


def test_independent_subspaces_have_no_coefficient_between_them() -> None:
    rng = np.random.default_rng(1)
    truth = np.repeat(np.arange(3), 20)
    bases = np.linalg.qr(rng.standard_normal((12, 9)))[0].T.reshape(3, 3, 12)
    rows = np.einsum("nd,ndk->nk", rng.standard_normal((60, 3)), bases[truth])
    model = SSC(3, scale="none", max_iter=5000, random_state=0).fit([rows])
    across = truth[:, None] != truth
    assert np.abs(model.coefficients_[across]).max() <= 1e-3
    assert adjusted_rand_index(truth, model.labels_) == 1.0


def test_samples_that_no_other_can_represent_are_refused() -> None:
    with pytest.raises(DataError):
        SSC(2, scale="none").fit([np.eye(6)])


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


def test_the_objective_never_rises() -> None:
    views, _ = gaussian_views(1, n_samples=60, spread=1.0)
    model = DiMSC(3, diversity=20.0, tol=1e-6, max_iter=3000, random_state=0).fit(views)
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
