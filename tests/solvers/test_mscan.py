"""MSCAN's Z-step against the Sylvester equation it solves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.orthonormal import Basis, basis_from_rows
from mscam_dask.solvers.admm import embed_rows, reduced_sums, smoothed_coefficients
from mscam_dask.solvers.graph_update import GraphRows, laplacian_rows
from mscam_dask.solvers.ridge_view import Encoder, RidgeView
from mscam_dask.types.parameters import Constants, Parameters
from tests import oracle

Array = NDArray[np.float64]
N_SAMPLES = 30
NO_ENCODER = Encoder("kernel", None, 0, 1.0, np.zeros(1), np.zeros((1, 1)))


class Smoothed(NamedTuple):
    """Result on a random view and graph, with span(H) all of space: then it is exact."""

    basis: Basis
    gram: Array
    laplacian: Array
    embedding: Array
    mean_distance: float
    objective: float


def smoothed(seed: int, *, n_columns: int, alpha: float, weight: float) -> Smoothed:
    rng = np.random.default_rng(seed)
    basis = basis_from_rows(rng.standard_normal((N_SAMPLES, n_columns)))
    affinity = rng.random((N_SAMPLES, N_SAMPLES))
    np.fill_diagonal(affinity, 0.0)
    graph = GraphRows(0, csr_array(affinity))
    rows = laplacian_rows(graph, [graph], ((0, N_SAMPLES),), precision=np.float64)
    laplacian = oracle.dense_laplacian(affinity)
    vectors = np.linalg.eigh(laplacian)[1]
    parameters = Parameters(n_clusters=N_SAMPLES // 2, constants=Constants(min_shrinkage=0.0))
    view = RidgeView(basis, alpha, 1.0, 1.0, NO_ENCODER)
    sums = reduced_sums([view, view], [vectors, vectors], rows, 0, parameters)
    coefficients, distance, objective = smoothed_coefficients(sums, view, parameters, weight)
    embedding = embed_rows(view, vectors, coefficients, parameters).astype(np.float64)
    gram = (basis.vectors * basis.singular_values_squared) @ basis.vectors.T
    return Smoothed(basis, gram, laplacian, embedding, distance, objective)


@given(st.integers(0, 2**16), st.integers(1, 40), st.floats(1e-2, 1e2), st.floats(1e-2, 1e2))
@settings(max_examples=20)
def test_solves_the_sylvester_equation(seed: int, d: int, alpha: float, weight: float) -> None:
    found = smoothed(seed, n_columns=d, alpha=alpha, weight=weight)
    expected = oracle.mscan_z_step(found.gram, found.laplacian, alpha=alpha, weight=weight)
    assert_allclose(found.basis.vectors @ found.embedding.T, expected, atol=1e-4)
    value = oracle.mscan_objective(
        found.gram, found.laplacian, expected, alpha=alpha, weight=weight
    )
    assert found.objective == pytest.approx(value, rel=1e-4)
    assert found.mean_distance == pytest.approx(
        oracle.pair_distances(found.embedding).sum() / (N_SAMPLES * (N_SAMPLES - 1)), abs=1e-4
    )
