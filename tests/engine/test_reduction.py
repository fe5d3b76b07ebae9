"""The sum over views: one binary tree, however its terms are grouped into tasks."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from mscam_dask.engine.tasks.graph import added


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


def test_the_terms_are_left_as_they_were() -> None:
    terms = [np.ones(3), np.ones(3), np.ones(3)]
    assert added(terms).tolist() == [3.0, 3.0, 3.0]
    assert all(term.tolist() == [1.0, 1.0, 1.0] for term in terms)
