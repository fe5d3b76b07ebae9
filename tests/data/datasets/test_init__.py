"""Digits and synthetic mixtures: shapes, labels and the structure they promise."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mscam_dask.data.datasets import (
    MIXTURE,
    corrupted_mixture,
    digits_views,
    gradient_orientations,
    profiles,
    subspace_mixture,
    zernike_magnitudes,
)
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.validation import validate
from mscam_dask.errors import ConfigurationError

FAMILY_NAMES = ("pixels", "profiles", "fourier", "gradients", "zernike")


def test_digits_are_the_bundled_images_in_five_families() -> None:
    from sklearn.datasets import load_digits

    data = digits_views()
    assert data.view_names == FAMILY_NAMES
    assert [view.shape for view in data.views] == [(1797, d) for d in (64, 64, 40, 72, 25)]
    assert data.labels.tolist() == load_digits().target.tolist()
    assert data.label_names == tuple("0123456789")
    np.testing.assert_array_equal(data.views[0].read(0, 1797) * 16, load_digits().data)
    report = validate(data, n_clusters=10, n_neighbors=9)
    assert not [item for item in report.issues if item.kind == "zero rows"]


@settings(max_examples=10)
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
    for cluster in range(2):
        members = rows[data.labels == cluster]
        assert np.linalg.norm(members.mean(axis=0)) == pytest.approx(50, abs=0.2)
        spectrum = np.linalg.eigvalsh(np.cov(members.T))
        np.testing.assert_allclose(spectrum[:-1], 0.25, atol=0.05)
        assert spectrum[-1] == pytest.approx(1.25, abs=0.15)


RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        *((digits_views, {"families": families}) for families in (["pixels", "smell"], [])),
        *((digits_views, {"n_samples": n}) for n in (0, 1798)),
        (partial(subspace_mixture, 3, rng=RNG), {"n_clusters": 4, "dims": (2,)}),
        (partial(subspace_mixture, 3, rng=RNG), {"n_clusters": 0, "dims": (2,)}),
        (partial(subspace_mixture, 3, 1, rng=RNG), {"dims": ()}),
        (partial(subspace_mixture, 3, 1, rng=RNG), {"dims": (2, 0)}),
        (partial(corrupted_mixture, rng=RNG), {"n_samples": 1}),
        (partial(corrupted_mixture, rng=RNG), {"corruption_rate": 30}),
        (partial(corrupted_mixture, rng=RNG), {"noise_variance": -1}),
        (partial(corrupted_mixture, rng=RNG), {"within_variance": 0}),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_what_makes_no_data_is_refused(
    make: Callable[..., object], options: dict[str, object]
) -> None:
    with pytest.raises(ConfigurationError):
        make(**options)


SIDE = 8


def outline(line: list[bool]) -> int:
    return line.index(True) if any(line) else len(line)


def test_profiles_by_definition() -> None:
    stack = np.random.default_rng(0).integers(0, 17, (9, SIDE, SIDE)) / 16
    stack[0], stack[1, 2:] = 0, 0  # no ink, and columns and rows without
    for image, row in zip(stack, profiles(stack), strict=True):
        ink = (image >= image.max() / 2) & (image.max() > 0)
        expected = [image[i].mean() for i in range(SIDE)]
        expected += [image[:, j].mean() for j in range(SIDE)]
        expected += [outline(ink[i].tolist()) for i in range(SIDE)]
        expected += [outline(ink[i].tolist()[::-1]) for i in range(SIDE)]
        expected += [outline(ink[:, j].tolist()) for j in range(SIDE)]
        expected += [outline(ink[:, j].tolist()[::-1]) for j in range(SIDE)]
        expected += [
            image[i : i + 2, j : j + 2].mean() for i in range(0, SIDE, 2) for j in range(0, SIDE, 2)
        ]
        np.testing.assert_allclose(row, expected, atol=1e-15)


@pytest.mark.parametrize("orientation", range(8))
def test_a_ramp_has_all_its_gradient_in_one_orientation(orientation: int) -> None:
    angle = 2 * np.pi * orientation / 8
    down, right = np.mgrid[:SIDE, :SIDE]
    ramp = np.cos(angle) * right + np.sin(angle) * down
    histograms = gradient_orientations(ramp[None]).reshape(9, 8)
    np.testing.assert_allclose(histograms, np.tile(np.eye(8)[orientation], (9, 1)), atol=1e-5)


RADIAL: dict[tuple[int, int], Callable[[float], float]] = {
    (0, 0): lambda r: 1.0,
    (1, 1): lambda r: r,
    (2, 0): lambda r: 2 * r**2 - 1,
    (2, 2): lambda r: r**2,
    (3, 1): lambda r: 3 * r**3 - 2 * r,
    (3, 3): lambda r: r**3,
    (4, 0): lambda r: 6 * r**4 - 6 * r**2 + 1,
    (4, 2): lambda r: 4 * r**4 - 3 * r**2,
    (4, 4): lambda r: r**4,
}


def test_zernike_magnitudes_by_definition() -> None:
    image = np.random.default_rng(2).random((SIDE, SIDE))
    (row,) = zernike_magnitudes(image[None], max_order=4)
    assert len(row) == len(RADIAL)
    circle = SIDE / math.sqrt(2)  # radius of the circle through the corners, in pixels
    for found, ((order, repetition), radial) in zip(row, RADIAL.items(), strict=True):
        moment = 0j
        for i in range(SIDE):
            for j in range(SIDE):
                y, x = (i - (SIDE - 1) / 2) / circle, (j - (SIDE - 1) / 2) / circle
                kernel = radial(math.hypot(x, y)) * cmath.exp(-1j * repetition * math.atan2(y, x))
                moment += image[i, j] * kernel / circle**2
        assert found == pytest.approx(abs(moment) * (order + 1) / math.pi, abs=1e-12)


def rows(data: MultiViewData) -> list[np.ndarray]:
    return [view.read(0, data.n_samples) for view in data.views]


def test_each_cluster_has_the_mean_and_the_covariance_of_the_mixture() -> None:
    data = corrupted_mixture(100_000, rng=np.random.default_rng(3), within_variance=1.5)
    for view, (means, covariances) in zip(rows(data), MIXTURE, strict=True):
        for cluster in (0, 1):
            members = view[data.labels == cluster]
            np.testing.assert_allclose(members.mean(axis=0), means[cluster], atol=0.03)
            np.testing.assert_allclose(
                np.cov(members.T), 1.5 * np.asarray(covariances[cluster]), atol=0.05
            )


def test_noise_has_a_variance_of_the_length_times_0_3() -> None:
    n = 100_000
    clean = rows(corrupted_mixture(n, rng=np.random.default_rng(0)))
    noisy = rows(corrupted_mixture(n, rng=np.random.default_rng(0), corruption_rate=1.0))
    for before, after in zip(clean, noisy, strict=True):
        standard = (after - before) / np.sqrt(0.3 * np.linalg.norm(before, axis=1))[:, None]
        np.testing.assert_allclose(standard.mean(axis=0), 0, atol=0.02)
        np.testing.assert_allclose(np.cov(standard.T), np.eye(2), atol=0.03)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**32 - 1),
    small=st.floats(0, 1),
    large=st.floats(0, 1),
    n=st.integers(2, 60),
)
def test_a_larger_share_corrupts_the_same_samples_and_more(
    seed: int, small: float, large: float, n: int
) -> None:
    small, large = sorted((small, large))
    clean, some, more = (
        corrupted_mixture(n, rng=np.random.default_rng(seed), corruption_rate=share)
        for share in (0.0, small, large)
    )
    np.testing.assert_array_equal(clean.labels, more.labels)
    for before, first, second in zip(rows(clean), rows(some), rows(more), strict=True):
        in_first, in_second = (np.any(before != after, axis=1) for after in (first, second))
        assert in_first.sum() == round(small * n)
        assert in_second.sum() == round(large * n)
        assert not np.any(in_first & ~in_second)
        np.testing.assert_array_equal(first[in_first], second[in_first])
