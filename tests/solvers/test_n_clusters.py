"""The rule for the number of clusters, and the gaps that it looks at."""

from __future__ import annotations

import numpy as np
import pytest

from mscam_dask.solvers.n_clusters import (
    adjusted_modularity,
    least_near_peak,
    relative_gaps,
    widest_gap_near_peak,
)


def test_the_rule() -> None:
    assert widest_gap_near_peak((2, 3, 4), (0.1, 0.5, 0.49), (0.9, 0.2, 0.3)) == 4
    assert widest_gap_near_peak((2, 3, 4), (0.1, 0.5, 0.4), (0.9, 0.2, 0.3)) == 3
    assert widest_gap_near_peak((2, 3, 4), (0.5, 0.5, 0.5), (0.2, 0.2, 0.2)) == 2
    assert widest_gap_near_peak((2, 3), (-0.1, -0.2), (0.1, 0.2)) == 2


def test_gaps_are_shares_of_the_next_eigenvalue() -> None:
    values = np.array([0.0, 0.1, 0.4, 0.5, 0.5])
    assert relative_gaps(values) == pytest.approx([0.75, 0.2, 0.0])  # of 2, 3 and 4 clusters
    assert relative_gaps(3.0 * values) == pytest.approx(relative_gaps(values))


def test_between_components_there_is_no_gap_and_after_them_the_widest() -> None:
    assert relative_gaps(np.array([0.0, 0.0, 1e-17, 0.6])) == pytest.approx([0.0, 1.0])


def test_numbers_exactly_at_the_bound_are_near_the_peak() -> None:
    least = least_near_peak((0.3, 0.5))
    assert (
        widest_gap_near_peak((2, 3, 4), (least, 0.5, np.nextafter(least, 0)), (0.3, 0.2, 0.9)) == 2
    )


def test_gaps_of_eigenvalues_that_are_rounding_are_zero() -> None:
    eps = np.finfo(np.float64).eps
    # relative to the largest eigenvalue, or to one: row sums of the graph are about one
    for largest, unit in ((1e6, 1e6), (1e-3, 1.0)):
        just_below, just_above = 3.9 * eps * unit, 4.1 * eps * unit
        assert relative_gaps(np.array([0.0, 0.0, just_below, largest]))[0] == 0.0
        assert relative_gaps(np.array([0.0, 0.0, just_above, largest]))[0] == 1.0
    assert relative_gaps(np.zeros(5)) == (0.0, 0.0, 0.0)
    assert relative_gaps(np.array([0.0, -1e-17, 1.0, 1.0])) == (1.0, 0.0)  # a share


def test_modularity_counts_as_far_as_the_views_agree() -> None:
    assert adjusted_modularity(0.6, 1.0) == 0.6
    assert adjusted_modularity(0.6, 0.0) == 0.0
    assert adjusted_modularity(0.6, 0.5) == pytest.approx(0.3)
    assert adjusted_modularity(-0.2, 0.5) == pytest.approx(-0.1)
