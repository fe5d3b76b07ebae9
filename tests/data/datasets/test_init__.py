"""Digits and synthetic mixtures: shapes, labels and the structure they promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from mscam_dask.data.datasets import digits_views, subspace_mixture
from mscam_dask.data.views.validation import validate
from mscam_dask.errors import ConfigurationError
from tests.messages import quotes

FAMILIES = ("pixels", "profiles", "fourier", "gradients", "zernike")


def test_digits_are_the_bundled_images_in_five_families() -> None:
    from sklearn.datasets import load_digits

    data = digits_views()
    assert data.view_names == FAMILIES
    assert [view.shape for view in data.views] == [(1797, d) for d in (64, 64, 40, 72, 25)]
    assert data.labels is not None
    assert data.labels.tolist() == load_digits().target.tolist()
    assert data.label_names == tuple("0123456789")
    np.testing.assert_array_equal(data.views[0].read(0, 1797) * 16, load_digits().data)
    report = validate(data, n_clusters=10, n_neighbors=9)
    assert not [item for item in report.issues if item.kind == "zero rows"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_tells_digits_apart(family: str) -> None:
    """The nearest other image shows the same digit, far more often than the chance of 0.1."""
    data = digits_views([family], n_samples=500)
    rows = data.views[0].read(0, 500)
    gaps = cdist(rows, rows)
    np.fill_diagonal(gaps, np.inf)
    assert data.labels is not None
    assert (data.labels[gaps.argmin(axis=1)] == data.labels).mean() > 0.7


def test_digits_refuse_unknown_families_and_sizes() -> None:
    with pytest.raises(ConfigurationError, match=quotes(["smell"], "'pixels'", "'zernike'")):
        digits_views(["pixels", "smell"])
    with pytest.raises(ConfigurationError, match=quotes("families=[]", "'pixels'")):
        digits_views([])
    for n_samples in (0, 1798):
        with pytest.raises(ConfigurationError, match=quotes(f"n_samples={n_samples}", 1, 1797)):
            digits_views(n_samples=n_samples)


@settings(max_examples=25)
@given(
    n_clusters=st.integers(1, 4),
    extra=st.integers(0, 9),
    dims=st.lists(st.integers(4, 9), min_size=1, max_size=3),
    subspace_dim=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_clusters_are_flat_alike_in_every_view_and_of_equal_size(
    n_clusters: int, extra: int, dims: list[int], subspace_dim: int, seed: int
) -> None:
    n_samples = 6 * n_clusters + extra
    data = subspace_mixture(
        n_samples,
        n_clusters,
        dims,
        rng=np.random.default_rng(seed),
        subspace_dim=subspace_dim,
        noise=0.0,
    )
    assert data.labels is not None
    assert np.ptp(np.bincount(data.labels, minlength=n_clusters)) <= 1
    for cluster in range(n_clusters):
        members = data.labels == cluster
        grams = []
        for view in data.views:
            rows = view.read(0, n_samples)[members]
            centred = rows - rows.mean(axis=0)
            assert np.linalg.matrix_rank(centred, tol=1e-9) <= subspace_dim
            grams.append(centred @ centred.T)
        for gram in grams[1:]:  # orthonormal bases: one geometry inside a cluster, in all views
            np.testing.assert_allclose(gram, grams[0], atol=1e-9)


def test_separation_is_the_length_of_the_offsets_and_noise_adds_to_every_column() -> None:
    quiet: dict[str, Any] = {"subspace_dim": 1, "separation": 50.0}
    data = subspace_mixture(4000, 2, (6,), rng=np.random.default_rng(0), noise=0.5, **quiet)
    rows = data.views[0].read(0, 4000)
    assert data.labels is not None
    for cluster in range(2):
        members = rows[data.labels == cluster]
        assert np.linalg.norm(members.mean(axis=0)) == pytest.approx(50, abs=0.2)
        spectrum = np.linalg.eigvalsh(np.cov(members.T))
        np.testing.assert_allclose(spectrum[:-1], 0.25, atol=0.05)
        assert spectrum[-1] == pytest.approx(1.25, abs=0.15)


def test_the_generator_decides_everything() -> None:
    def draw(seed: int) -> str:
        return subspace_mixture(20, 2, (4, 5), rng=np.random.default_rng(seed)).digest()

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


@pytest.mark.parametrize(
    ("arguments", "quoted"),
    [
        ((3, 4, (2,)), ["n_clusters=4", "n_samples=3"]),
        ((3, 0, (2,)), ["n_clusters=0"]),
        ((3, 1, ()), ["dims=()"]),
        ((3, 1, (2, 0)), ["dims=(2, 0)"]),
    ],
    ids=["too many clusters", "no cluster", "no view", "empty view"],
)
def test_sizes_that_make_no_data_are_refused(arguments: Any, quoted: list[str]) -> None:
    with pytest.raises(ConfigurationError, match=quotes(*quoted)):
        subspace_mixture(*arguments, rng=np.random.default_rng(0))
