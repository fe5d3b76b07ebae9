"""Large data by blocks of rows: the result of each step is that of the whole rows, whatever the blocks."""

from __future__ import annotations

import copy
import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.engine import embed, spectrum, views
from mscam_dask.engine import graph as graphs
from mscam_dask.engine.blocks import Graph, Stage, View
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.linalg.eigensolver import bottom_eigenpairs
from mscam_dask.linalg.halos import Ranges
from mscam_dask.linalg.laplacian import laplacian
from mscam_dask.linalg.orthonormal import Basis
from mscam_dask.solvers import admm, graph_update
from mscam_dask.solvers.graph_update import (
    GraphRows,
    candidate_neighbors,
    graph_block,
    projected_weight,
)
from mscam_dask.solvers.ridge_view import RidgeView, ridge_view, view_svd
from mscam_dask.solvers.row_blocks import ViewShape, gram_of_rows, moments_of_rows
from mscam_dask.types.parameters import Parameters, Scale, ViewSettings
from tests.blocks import small_blocks
from tests.solvers.whole_rows import reduced_problem, ridge_points
from tests.synthetic import Array, gaussian_views

N = 600
RANGES: Ranges = ((0, 170), (170, 330), (330, 600))
PARAMETERS = Parameters(n_clusters=3, n_neighbors=6)


@pytest.fixture
def stage() -> Stage:
    return Stage(SerialExecutor(), "blocks")


@pytest.fixture(scope="module")
def view() -> Array:
    (rows,), _ = gaussian_views(3, n_samples=N, n_clusters=3, dims=(12,))
    return np.asarray(rows)


def ridge_rows(view: Array, scale: Scale = "standard") -> list[RidgeView]:
    """Ridge view by blocks."""
    source = ArrayRows(view, "v")
    moments = [moments_of_rows(source.read, *one, view.shape[1]) for one in RANGES]
    transform = views.row_scaling(moments, scale)
    with small_blocks(4096):
        sums = [gram_of_rows(source.read, *one, transform) for one in RANGES]
    ridge = views.ridge_factor(sums, transform, ViewSettings(scale=scale, alpha=1.0), "v", 64)
    return [views.project(source, *one, ridge) for one in RANGES]


def graph_of(view: Array, n_neighbors: int = 6) -> list[GraphRows]:
    """Graph by blocks."""
    return [
        graph_block(
            candidate_neighbors(view, 2 * n_neighbors, *one), None, n_neighbors, 1.0, 0.0, N
        )
        for one in RANGES
    ]


def whole(graph: list[GraphRows]) -> csr_array[np.float64]:
    return graph_update.whole_graph(graph, np.arange(N, dtype=np.int32))


@pytest.mark.parametrize("scale", ["standard", "unit", "log", "minmax", "none"])
def test_the_ridge_view_is_that_of_all_rows(view: Array, scale: Scale) -> None:
    blocks = ridge_rows(view, scale)
    shape = ViewShape(N, view.shape[1], "features")
    svd = view_svd(lambda a, b: view[a:b], shape, scale=scale, name="v", dtype=np.float32)
    expected = ridge_view(svd, alpha=1.0)
    assert_allclose(blocks[0].weight, expected.weight, rtol=1e-5)
    assert_allclose(blocks[0].effective_rank, expected.effective_rank, rtol=1e-6)
    joined = np.concatenate([ridge_points(block) for block in blocks])
    # signs of directions differ
    assert_allclose(np.abs(joined), np.abs(ridge_points(expected)), atol=2e-5)
    encoder = blocks[0].encoder
    assert_allclose(encoder(view), joined, atol=1e-5)


def in_blocks(stage: Stage, view: Array) -> tuple[Graph, View]:
    """Graph and ridge view whose rows are in blocks on the workers."""
    rows = [stage.submit(copy.copy, block) for block in graph_of(view)]
    own = [stage.submit(copy.copy, block) for block in ridge_rows(view)]
    return graphs.connected(stage, rows, RANGES), View(tuple(own), own[0])


def test_eigenpairs_are_those_of_the_whole(stage: Stage, view: Array) -> None:
    graph, own = in_blocks(stage, view)
    prepared: Any = SimpleNamespace(views=[own], parameters=PARAMETERS)
    found = spectrum.bottom_eigenpairs(stage, graph, prepared, n_pairs=8)
    matrix = laplacian(whole(graph_of(view)))
    expected = bottom_eigenpairs(matrix, 3, rng=np.random.default_rng(0))
    bound = 2.0 * matrix.diagonal().max()
    vectors = np.concatenate([stage.value(block) for block in found.vectors])
    assert found.converged
    assert_allclose(found.values[:3], expected.values, atol=1e-4 * bound)
    assert_allclose(vectors.T @ vectors, np.eye(vectors.shape[1]), atol=1e-4)
    angles = np.linalg.svd(vectors[:, :3].T @ expected.vectors, compute_uv=False)
    assert angles.min() > 1 - 1e-3
    residuals = np.linalg.norm(matrix @ vectors - vectors * found.values, axis=0)
    assert residuals[:3].max() < 2e-4 * bound


def test_admm_is_that_of_the_whole(
    stage: Stage, view: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embed, "FAN_IN", 2)  # blocks of a halo of three
    graph, own = in_blocks(stage, view)
    matrix = laplacian(whole(graph_of(view)))
    found = bottom_eigenpairs(matrix, 6, rng=np.random.default_rng(0))
    vectors: NDArray[Any] = found.vectors.astype(np.float32)
    blocks = tuple(stage.submit(np.asarray, vectors[a:b]) for a, b in RANGES)
    given = dataclasses.replace(spectrum.null_spectrum(stage, graph), vectors=blocks)
    assert max(map(len, given.halos)) == 3
    prepared: Any = SimpleNamespace(views=(own,), names=("v",), parameters=PARAMETERS)
    ((rows,), (solved,)) = embed.embed_views(stage, given, 2.0, prepared)
    embedding = np.concatenate([stage.value(block) for block in rows])
    ridge = [stage.value(block) for block in own.rows]
    problem = reduced_problem(
        Basis(
            np.concatenate([one.basis.vectors for one in ridge]),
            ridge[0].basis.singular_values_squared,
        ),
        vectors,
        matrix,
        alpha=1.0,
        metric_ridge=PARAMETERS.constants.metric_ridge,
        graph_weight=2.0 * projected_weight(N, 3),
        min_shrinkage=PARAMETERS.constants.min_shrinkage,
    )
    expected = admm.solve_view(problem, problem.start(vectors[:, :3]), PARAMETERS.constants.admm)
    assert_allclose(stage.value(solved)[2].objective, expected.objective, rtol=1e-4)
    assert_allclose(embedding, problem.subspace @ expected.state.f, atol=2e-4)
