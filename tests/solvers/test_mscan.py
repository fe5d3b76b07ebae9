"""MSCAN's Z-step against the Sylvester equation it solves, and its limits in the graph weight."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.ridge import Basis, basis_from_rows
from mscam_dask.solvers.mscan import SmoothedView, smooth_self_representation
from tests import oracle

Array = NDArray[np.float64]
N_SAMPLES = 30


@dataclasses.dataclass(frozen=True)
class Case:
    basis: Basis
    gram: Array
    laplacian: Array
    vectors: Array


def case(seed: int, *, n_columns: int = 5, n_components: int = 1, n_pairs: int = 4) -> Case:
    rng = np.random.default_rng(seed)
    basis = basis_from_rows(rng.standard_normal((N_SAMPLES, n_columns)))
    group = np.arange(N_SAMPLES) % n_components
    affinity = rng.random((N_SAMPLES, N_SAMPLES)) * (group[:, None] == group)
    np.fill_diagonal(affinity, 0.0)
    laplacian = oracle.dense_laplacian(affinity)
    vectors = np.linalg.eigh(laplacian)[1][:, :n_pairs]
    gram = (basis.vectors * basis.singular_values_squared) @ basis.vectors.T
    return Case(basis, gram, laplacian, vectors)


def smooth(given_case: Case, *, alpha: float = 1.0, graph_weight: float) -> SmoothedView:
    return smooth_self_representation(
        given_case.basis,
        csr_array(given_case.laplacian),
        given_case.vectors,
        alpha=alpha,
        graph_weight=graph_weight,
    )


def dense_z(given_case: Case, smoothed: SmoothedView) -> Array:
    return given_case.basis.vectors @ smoothed.embedding.T


problems = st.tuples(
    st.integers(0, 2**16),
    st.integers(1, 40),
    st.floats(1e-3, 1e3),
    st.floats(1e-3, 1e3),
)


@given(problems)
@settings(max_examples=30)
def test_solves_the_sylvester_equation(problem: tuple[int, int, float, float]) -> None:
    seed, d, alpha, weight = problem
    given_case = case(seed, n_columns=d)
    smoothed = smooth(given_case, alpha=alpha, graph_weight=weight)
    Z = dense_z(given_case, smoothed)
    left = (given_case.gram + alpha * np.eye(N_SAMPLES)) @ Z + weight * Z @ given_case.laplacian
    assert smoothed.converged
    assert np.linalg.norm(left - given_case.gram) <= 1e-5 * np.linalg.norm(given_case.gram)
    expected = oracle.mscan_z_step(
        given_case.gram, given_case.laplacian, alpha=alpha, weight=weight
    )
    # the system's smallest eigenvalue is at least alpha: that is how residuals become errors
    size = 1e-5 * np.linalg.norm(given_case.gram) / alpha
    assert np.linalg.norm(Z - expected) <= size


@given(problems)
@settings(max_examples=30)
def test_objective_is_the_dense_objective(problem: tuple[int, int, float, float]) -> None:
    seed, d, alpha, weight = problem
    given_case = case(seed, n_columns=d)
    smoothed = smooth(given_case, alpha=alpha, graph_weight=weight)
    expected = oracle.mscan_objective(
        given_case.gram,
        given_case.laplacian,
        dense_z(given_case, smoothed),
        alpha=alpha,
        weight=weight,
    )
    assert smoothed.objective == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_a_heavy_graph_makes_rows_constant_on_its_components(n_components: int) -> None:
    given_case = case(2, n_components=n_components)
    smoothed = smooth(given_case, graph_weight=1e7)
    assert smoothed.converged
    group = np.arange(N_SAMPLES) % n_components
    s2 = given_case.basis.singular_values_squared
    for g in range(n_components):
        rows = smoothed.embedding[group == g]
        assert_allclose(rows, np.broadcast_to(rows[0], rows.shape), atol=1e-5)
        # the constant itself: L annihilates it, so (s² + α) c = s² mean(q)
        mean = given_case.basis.vectors[group == g].mean(axis=0)
        assert_allclose(rows[0], s2 / (s2 + 1.0) * mean, atol=1e-5)
