"""Views without shared samples are refused; views with few are warned of."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.validation import validate
from mscam_dask.errors import DataError

N = 120


def tables(n_shared: int) -> dict[str, NDArray[np.float64]]:
    """Two views of N samples; each has the shared ones and half of the others, and NaN for the rest."""
    views = np.random.default_rng(0).standard_normal((2, N, 6))
    half = (N - n_shared) // 2
    views[0, half + n_shared :], views[1, :half] = np.nan, np.nan
    return {"rna": views[0], "prot": views[1]}


def test_views_without_a_shared_sample_are_refused() -> None:
    with pytest.raises(DataError, match="share at most 0 of"):
        validate(as_multi_view(tables(0)), n_clusters=2, n_neighbors=3)
    validate(as_multi_view(tables(12)), n_clusters=2, n_neighbors=3)


@pytest.mark.parametrize(("n_clusters", "n_shared"), [(1, 0), (3, 2), (8, 6)])
def test_each_cluster_needs_a_shared_sample(n_clusters: int, n_shared: int) -> None:
    data = as_multi_view(tables(n_shared))
    with pytest.raises(DataError):
        validate(data, n_clusters=n_clusters, n_neighbors=3)


@pytest.mark.parametrize(("n_shared", "is_few"), [(4, True), (8, True), (10, False)])
def test_few_shared_samples_are_reported(n_shared: int, *, is_few: bool) -> None:
    data = as_multi_view(tables(n_shared))
    found = validate(data, n_clusters=2, n_neighbors=3).issues
    assert [issue.kind for issue in found] == ["few shared samples"] * is_few
    for issue in found:
        assert (issue.view, issue.others, issue.count) == ("prot", ("rna",), n_shared)
        assert all(text in issue.message for text in ("'prot'", "'rna'", f"only {n_shared} of {N}"))


def test_samples_of_a_view_that_are_all_in_another_are_not_few() -> None:
    whole, few = np.random.default_rng(0).standard_normal((2, N, 6))
    few[5:] = np.nan
    assert validate(as_multi_view([whole, few]), n_clusters=4, n_neighbors=3).issues == ()
