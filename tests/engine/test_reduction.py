"""The sum over views: one binary tree, however its terms are grouped into tasks."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from mscam_dask.solvers.admm import EmbeddedRows
from mscam_dask.solvers.graph_update import CandidateEdges, projected_distances
from mscam_dask.solvers.row_blocks import added


def pairwise(terms: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Level by level, the odd one carried to the next level."""
    while len(terms) > 1:
        pairs = [terms[i] + terms[i + 1] for i in range(0, len(terms) - 1, 2)]
        terms = pairs + terms[len(terms) - len(terms) % 2 :]
    return terms[0]


@pytest.mark.parametrize("n_terms", [1, 2, 3, 5, 6, 7, 16, 17, 40, 56, 257])
def test_groups_of_sixteen_are_subtrees_of_one_tree(n_terms: int) -> None:
    rng = np.random.default_rng(n_terms)
    terms = [rng.standard_normal(4) * 10.0 ** rng.integers(-8, 8) for _ in range(n_terms)]
    groups = [added(terms[i : i + 16]) for i in range(0, n_terms, 16)]
    while len(groups) > 1:
        groups = [added(groups[i : i + 16]) for i in range(0, len(groups), 16)]
    np.testing.assert_array_equal(added(terms), pairwise(list(terms)))
    np.testing.assert_array_equal(groups[0], added(terms))


@pytest.mark.parametrize("n", [30, 150_000])  # all five at once, and at most three
def test_views_side_by_side_have_the_sum_of_their_distances(n: int) -> None:
    c, start = 4, 10
    rng = np.random.default_rng(5)
    embeddings = [rng.standard_normal((n, c)) for _ in range(5)]
    embeddings[3][::4] = np.nan  # absent samples
    factors = [1.0, 0.2, 1.0, 3.0, 1.0]
    indices = rng.integers(-1, n, (8, 6))
    part = CandidateEdges(start, indices, np.zeros(indices.shape))
    own = np.arange(start, start + 8)[:, None]
    by_view = [
        np.where(indices < 0, 0.0, factor * np.sum((one[own] - one[indices]) ** 2, axis=2))
        for one, factor in zip(embeddings, factors, strict=True)
    ]
    views = [[EmbeddedRows(one, factor)] for one, factor in zip(embeddings, factors, strict=True)]
    found = projected_distances(views, part, ((0, n),))
    expected = sum(np.nan_to_num(one) for one in by_view)
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    by_blocks = [
        [EmbeddedRows(one.rows[:14], one.factor), EmbeddedRows(one.rows[14:], one.factor)]
        for (one,) in views
    ]
    of_blocks = projected_distances(by_blocks, part, ((0, 14), (14, n)))
    np.testing.assert_allclose(of_blocks, expected, rtol=1e-13)
