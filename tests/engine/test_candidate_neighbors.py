"""Candidate neighbors are the same bits, however many tasks search them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.engine import neighbors
from mscam_dask.engine.blocks import Stage, View
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.solvers.graph_update import candidate_neighbors
from mscam_dask.solvers.ridge_view import RidgeView, joint_embedding, ridge_view, view_svd
from mscam_dask.solvers.row_blocks import ViewShape
from mscam_dask.types.parameters import Parameters


def ridge_views(n_views: int, n_samples: int) -> list[RidgeView]:
    rng = np.random.default_rng(0)
    points = rng.standard_normal((n_samples, 6)).round(1)  # some distances are tied
    points[1::7] = points[::7][: len(points[1::7])]
    shape = ViewShape(n_samples, 6, "features")
    views = [points + 0.1 * rng.standard_normal(points.shape) for _ in range(n_views - 1)]

    def embedded(rows: NDArray[np.float64]) -> RidgeView:
        read = ArrayRows(rows, "v").read
        return ridge_view(
            view_svd(read, shape, scale="none", name="v", dtype=np.float32), alpha=1.0
        )

    return [embedded(rows) for rows in (points, *views)]


def ridge(view: RidgeView) -> RidgeView:
    return view


@given(st.integers(1, 10**7))
def test_row_ranges_depend_on_the_samples_alone_and_cover_them(n: int) -> None:
    ranges = neighbors.row_parts(n)
    assert ranges[0][0] == 0
    assert ranges[-1][1] == n
    assert all(left[1] == right[0] for left, right in pairwise(ranges))
    assert all(0 < stop - start <= 8192 for start, stop in ranges)


@pytest.mark.parametrize("n_views", [1, 20])
def test_bits_do_not_depend_on_the_tasks(n_views: int) -> None:
    n = 700
    views = ridge_views(n_views, n)
    executor = SerialExecutor()
    stage = Stage(executor, "k")
    handles = [stage.submit(ridge, view) for view in views]
    of_one_block = [View((handle,), handle) for handle in handles]
    _, candidates = neighbors.ordered_candidates(
        stage, of_one_block, ((0, n),), Parameters(n_clusters=2, n_candidates=50)
    )
    assert candidates.links == ((0,),) * len(candidates.parts)
    found = executor.gather(candidates.parts)
    whole = candidate_neighbors(joint_embedding(views), 50, 0, n)
    assert_array_equal(np.concatenate([part.indices for part in found]), whole.indices)
    squared = np.concatenate([part.squared_distances for part in found])
    assert_array_equal(squared, whole.squared_distances)
    assert [part.row_start for part in found] == [start for start, _ in neighbors.row_parts(n)]
