"""The corrupted mixture: its moments, its noise, and what a larger share of it keeps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mscam_dask.data.datasets import MIXTURE, GaussianMixture, corrupted_mixture
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.errors import ConfigurationError
from tests.messages import quotes


def rows(data: MultiViewData) -> list[np.ndarray]:
    return [view.read(0, data.n_samples) for view in data.views]


def test_each_cluster_has_the_mean_and_the_covariance_of_the_mixture() -> None:
    data = corrupted_mixture(100_000, rng=np.random.default_rng(3), within_variance=1.5)
    assert data.labels is not None
    for view, means, covariances in zip(
        rows(data), MIXTURE.means, MIXTURE.covariances, strict=True
    ):
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


def test_each_view_has_corrupted_samples_of_its_own() -> None:
    clean = rows(corrupted_mixture(200, rng=np.random.default_rng(1)))
    noisy = rows(corrupted_mixture(200, rng=np.random.default_rng(1), corruption_rate=0.5))
    changed = [np.any(a != b, axis=1) for a, b in zip(clean, noisy, strict=True)]
    assert not np.array_equal(changed[0], changed[1])
    assert not np.array_equal(changed[1], changed[2])


@pytest.mark.parametrize(
    ("options", "quoted"),
    [
        ({"n_samples": 1}, ["n_samples=1", 2]),
        ({"n_samples": 10.5}, ["n_samples=10.5", 2]),
        ({"corruption_rate": 30}, ["corruption_rate=30", 0.3, "30 %"]),
        ({"corruption_rate": float("nan")}, ["corruption_rate=nan"]),
        ({"noise_variance": -1}, ["noise_variance=-1"]),
        ({"noise_variance": float("inf")}, ["noise_variance=inf", ">= 0"]),
        ({"within_variance": 0}, ["within_variance=0", "> 0"]),
    ],
)
def test_numbers_out_of_range(options: dict[str, float], quoted: list[object]) -> None:
    with pytest.raises(ConfigurationError, match=quotes(*quoted)):
        corrupted_mixture(rng=np.random.default_rng(0), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("means", "covariances", "quoted"),
    [
        ((((0.0,),),), (), [[(1, 1)], [], "(c, d, d)"]),
        ((((0.0,), (1.0,)), ((0.0,),)), ((((1.0,),),) * 2, (((1.0,),),)), [[2, 1]]),
        ((((0.0,),),), ((((-1.0,),),),), [0, [[[-1.0]]]]),
    ],
)
def test_a_mixture_that_is_none(means: object, covariances: object, quoted: list[object]) -> None:
    with pytest.raises(ConfigurationError, match=quotes(*quoted)):
        GaussianMixture(means, covariances)  # type: ignore[arg-type]
