"""What must not matter: order of views, order of samples, unit of a view, seed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from mscam_dask import MSCAM, MSCAN, Constants
from tests.benchmark_sets import BenchmarkData, default_fit, fit_views
from tests.synthetic import gaussian_views

Loader = Callable[[str], BenchmarkData]
Array = NDArray[np.float64]

FACTORS = (1e-7, 3.0, 1e9, 0.2, 41.0, 1e-3)
SEEDS = (1, 2)


def same_partition(left: NDArray[np.int64], right: NDArray[np.int64]) -> bool:
    return bool(adjusted_rand_score(left, right) == 1.0)


# ---------------------------------------------------------------------------------------------
# Synthetic: clusters that overlap a little, so that the whole path is walked
# ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[MSCAM, MSCAN])
def estimator(request: pytest.FixtureRequest) -> Any:
    return request.param


def synthetic_views() -> dict[str, Array]:
    views, _ = gaussian_views(21, n_samples=100, n_clusters=4, spread=1.0, dims=(5, 9, 16))
    return {"a": views[0], "b": views[1], "c": views[2]}


def labels_of(estimator: Any, views: dict[str, Array], **parameters: Any) -> NDArray[np.int64]:
    labels: NDArray[np.int64] = estimator(4, n_jobs=1, max_iter=4, **parameters).fit(views).labels_
    return labels


@pytest.fixture(scope="module")
def plain(estimator: Any) -> NDArray[np.int64]:
    return labels_of(estimator, synthetic_views())


CHANGES: dict[str, Callable[[dict[str, Array]], dict[str, Array]]] = {
    "order of views": lambda views: {name: views[name] for name in "bca"},
    "names of views": lambda views: dict(zip(("a/b", "0/view", " "), views.values(), strict=True)),
    "units": lambda views: {
        name: view * factor for (name, view), factor in zip(views.items(), FACTORS, strict=False)
    },
    "signs and order of columns": lambda views: (
        views | {"a": -views["a"], "b": views["b"][:, ::-1]}
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_views_in_another_form(estimator: Any, plain: NDArray[np.int64], change: str) -> None:
    assert same_partition(labels_of(estimator, CHANGES[change](synthetic_views())), plain)


@pytest.mark.parametrize("seed", SEEDS)
def test_order_of_samples_and_seed(estimator: Any, plain: NDArray[np.int64], seed: int) -> None:
    assert same_partition(labels_of(estimator, synthetic_views(), random_state=seed), plain)
    order = np.random.default_rng(seed).permutation(len(plain))
    views = {name: view[order] for name, view in synthetic_views().items()}
    assert same_partition(labels_of(estimator, views), plain[order])


def test_every_sample_and_every_view_twice(estimator: Any) -> None:
    views, _ = gaussian_views(21, n_samples=60, spread=3.0, dims=(5, 9))
    once = estimator(3, n_jobs=1, max_iter=4).fit({"a": views[0], "b": views[1]})
    doubled = {name: np.vstack([view, view]) for name, view in zip("ab", views, strict=True)}
    twice = estimator(3, n_jobs=1, max_iter=4).fit(
        doubled | {f"{name} again": view for name, view in doubled.items()}
    )
    assert same_partition(twice.labels_[:60], once.labels_)
    assert_array_equal(twice.labels_[60:], twice.labels_[:60])


@pytest.mark.parametrize("constants", [None, Constants.paper()], ids=["default", "paper"])
def test_equal_samples_share_a_cluster(estimator: Any, constants: Any) -> None:
    rng = np.random.default_rng(1)
    views = {
        name: rng.integers(0, 2, (200, 2)) * rng.choice([-1.0, 1.0], (200, 2)) for name in "ab"
    }
    views = {
        name: np.abs(view, out=view, where=view != 0.0) for name, view in views.items()
    }  # -0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = estimator(4, n_jobs=1, constants=constants, max_iter=2).fit(views)
    assert len(np.unique(model.labels_)) == 4
    _, group = np.unique(np.hstack(list(views.values())) + 0.0, axis=0, return_inverse=True)
    predicted = model.predict(views)
    for number in np.unique(group):
        assert len(np.unique(model.labels_[group == number])) == 1
    assert_array_equal(predicted, model.labels_)


# ---------------------------------------------------------------------------------------------
# Real data: everything at once, and on handwritten one by one
# ---------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["msrcv1", pytest.param("handwritten", marks=pytest.mark.slow)])
def test_everything_at_once(benchmark_data: Loader, name: str) -> None:
    data = benchmark_data(name)
    order = np.random.default_rng(0).permutation(len(data.labels))
    model = fit_views(data, data.names[::-1], samples=order, factors=FACTORS, random_state=11)
    assert same_partition(model.labels_, default_fit(name, data).labels_[order])


# ---------------------------------------------------------------------------------------------
# Where clusters overlap, so that another start would end in another partition
# ---------------------------------------------------------------------------------------------


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", ["msrcv1", pytest.param("flowers17", marks=pytest.mark.slow)])
def test_order_of_samples_where_clusters_overlap(benchmark_data: Loader, name: str) -> None:
    data = benchmark_data(name)
    order = np.random.default_rng(3).permutation(len(data.labels))
    shuffled = data._replace(
        views=tuple(
            view[np.ix_(order, order)] if kind == "distance" else view[order]
            for view, kind in zip(data.views, data.kinds, strict=True)
        )
    )
    model = fit_views(shuffled, data.names)
    assert same_partition(model.labels_, default_fit(name, data).labels_[order])
