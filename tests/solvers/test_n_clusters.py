"""The rule for the number of clusters, and the gaps that it looks at."""

from __future__ import annotations

import numpy as np
import pytest

from mscam_dask.solvers.n_clusters import relative_gaps, widest_gap_near_peak


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
