"""Views without shared samples are refused whichever way they come in; views with few are warned of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mscam_dask.data.ingest import ingest
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.validation import validate
from mscam_dask.errors import DataError

N = 120
IDS = [f"s{i}x" for i in range(N)]


def tables(n_shared: int) -> dict[str, pd.DataFrame]:
    """Two views; each has the shared samples and half of the others."""
    rng = np.random.default_rng(0)
    half = (N - n_shared) // 2
    rows = {"rna": range(half + n_shared), "prot": range(half, N)}
    return {
        name: pd.DataFrame(rng.standard_normal((len(own), 6)), [IDS[row] for row in own])
        for name, own in rows.items()
    }


def _arrays(views: dict[str, pd.DataFrame], _: Path) -> Any:
    return {name: view.reindex(IDS).to_numpy() for name, view in views.items()}


def _files(views: dict[str, pd.DataFrame], folder: Path) -> Any:
    for name, view in views.items():
        view.to_csv(folder / f"{name}.csv", index_label="id")
    paths = [folder / f"{name}.csv" for name in views]
    return ingest(paths, folder / "f.zarr", join="outer", overwrite=True).output


@pytest.mark.parametrize("way", [_arrays, _files])
def test_views_without_a_shared_sample_are_refused(way: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"share (at most 0 of|no sample)"):
        validate(as_multi_view(way(tables(0), tmp_path)), n_clusters=2, n_neighbors=3)
    validate(as_multi_view(way(tables(12), tmp_path)), n_clusters=2, n_neighbors=3)


@pytest.mark.parametrize(("n_clusters", "n_shared"), [(1, 0), (3, 2), (8, 6)])
def test_each_cluster_needs_a_shared_sample(n_clusters: int, n_shared: int) -> None:
    data = as_multi_view(_arrays(tables(n_shared), Path()))
    with pytest.raises(DataError):
        validate(data, n_clusters=n_clusters, n_neighbors=3)


@pytest.mark.parametrize(("n_shared", "is_few"), [(4, True), (8, True), (10, False)])
def test_few_shared_samples_are_reported(n_shared: int, *, is_few: bool) -> None:
    data = as_multi_view(_arrays(tables(n_shared), Path()))
    found = validate(data, n_clusters=2, n_neighbors=3).issues
    assert [issue.kind for issue in found] == ["few shared samples"] * is_few
    for issue in found:
        assert (issue.view, issue.others, issue.count) == ("prot", ("rna",), n_shared)
        assert all(text in issue.message for text in ("'prot'", "'rna'", f"only {n_shared} of {N}"))


def test_samples_of_a_view_that_are_all_in_another_are_not_few() -> None:
    whole, few = np.random.default_rng(0).standard_normal((2, N, 6))
    few[5:] = np.nan
    assert validate(as_multi_view([whole, few]), n_clusters=4, n_neighbors=3).issues == ()
