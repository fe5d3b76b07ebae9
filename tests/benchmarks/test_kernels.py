"""Where a fit spends its time, piece by piece: ``pytest tests/benchmarks/test_kernels.py``.

Small sizes and few rounds; ``--benchmark-min-rounds`` and ``--benchmark-json`` for more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mscam_dask.linalg.distances import as_weighted_blocks, squared_distances_on_edges
from mscam_dask.linalg.eigensolver import Spectrum, bottom_eigenpairs
from mscam_dask.linalg.ivf import ivf_search
from mscam_dask.linalg.laplacian import graph_from_neighbors, laplacian
from mscam_dask.linalg.neighbors import nearest_neighbors
from mscam_dask.linalg.ridge import basis_from_rows
from mscam_dask.solvers.admm import solve_view
from mscam_dask.solvers.graph_update import select_neighbors
from mscam_dask.types.parameters import AdmmSettings
from tests.cells import build_ivf
from tests.solvers.whole_rows import reduced_problem

N = 1500


@pytest.fixture(scope="module")
def points() -> NDArray[np.float32]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, N)
    centers = 2.0 * rng.standard_normal((5, 30))
    return (centers[labels] + rng.standard_normal((N, 30))).astype(np.float32)


@pytest.fixture(scope="module")
def neighbors(points: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    return nearest_neighbors(points, 30)


@pytest.fixture(scope="module")
def graph(neighbors: Any) -> Any:
    indices, squared = neighbors
    return laplacian(graph_from_neighbors(*select_neighbors(indices, squared, 9)))


def spectrum_of(graph: Any) -> Spectrum:
    return bottom_eigenpairs(graph, 10, relative_tolerance=1e-6, rng=np.random.default_rng(0))


def test_exhaustive_search(benchmark: Any, points: Any) -> None:
    indices, _ = benchmark.pedantic(nearest_neighbors, (points, 30), rounds=2)
    assert indices.shape == (N, 30)


def test_search_in_cells(benchmark: Any, points: Any) -> None:
    coordinates = as_weighted_blocks(points)

    def search() -> Any:
        cells = build_ivf(coordinates.stacked(slice(None), np.float32), n_candidates=30, seed=0)
        return ivf_search(
            coordinates.take(cells.order.astype(np.int64)), cells, 30, start=0, stop=N
        )

    indices, _ = benchmark.pedantic(search, rounds=2)
    assert indices.shape == (N, 30)


def test_distances_on_edges(benchmark: Any, points: Any, neighbors: Any) -> None:
    squared = benchmark.pedantic(squared_distances_on_edges, (points, neighbors[0]), rounds=2)
    np.testing.assert_allclose(squared, neighbors[1], rtol=1e-4)


def test_spectrum(benchmark: Any, graph: Any) -> None:
    spectrum = benchmark.pedantic(spectrum_of, (graph,), rounds=2)
    assert spectrum.converged


def test_admm(benchmark: Any, points: Any, graph: Any) -> None:
    basis = basis_from_rows(points - points.mean(axis=0, dtype=np.float64))
    vectors = spectrum_of(graph).vectors

    def solve() -> Any:
        problem = reduced_problem(
            basis, vectors, graph, alpha=1.0, metric_ridge=1.0, graph_weight=10.0
        )
        return solve_view(problem, vectors[:, :5], AdmmSettings())

    solution = benchmark.pedantic(solve, rounds=2)
    assert np.isfinite(solution.objective)
