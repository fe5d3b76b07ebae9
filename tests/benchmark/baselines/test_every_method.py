"""Requirements of every baseline, and figures on the benchmark sets, loosely: labels are looked at here, never by a fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from mscam_dask.benchmark.methods import BASELINES, METHODS, Method
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.errors import ConfigurationError, ConvergenceWarning, DataError, MemoryPlanError
from mscam_dask.metrics import adjusted_rand_index, score_partition
from mscam_dask.solvers.spectral_cut import canonical_labels
from tests.benchmark_sets import BenchmarkData
from tests.processes import printed
from tests.synthetic import gaussian_views

SPREAD = 6.0  # between centers, in standard deviations within clusters: no method may fail


@pytest.fixture(params=list(BASELINES))
def entry(request: pytest.FixtureRequest) -> Method:
    return BASELINES[request.param]


def made(entry: Method, n_clusters: int = 3, *, seed: int = 0, **parameters: Any) -> Any:
    if entry.label_aware_view_choice:
        parameters = {"view": 0, **parameters}
    if entry.name == "dimsc":  # its published weights have no unit: these suit small Gaussian sets
        parameters = {"smoothness": 100.0, "diversity": 10.0, **parameters}
    return entry.make(n_clusters, seed, parameters)


def test_well_separated_clusters_are_found_in_any_order_of_samples_and_views(entry: Method) -> None:
    views, truth = gaussian_views(1, n_samples=90, spread=SPREAD)
    named = dict(zip("abc", views, strict=True))
    parameters: dict[str, Any] = {"view": "a"} if entry.label_aware_view_choice else {}
    model = made(entry, **parameters).fit(named)
    assert model.labels_.dtype == np.int64
    np.testing.assert_array_equal(model.labels_, canonical_labels(model.labels_))
    assert adjusted_rand_index(truth, model.labels_) == 1.0
    order = np.random.default_rng(0).permutation(90)
    labels = made(entry).fit_predict([view[order] for view in views][::-1])
    assert adjusted_rand_index(truth[order], labels) == 1.0


@pytest.mark.filterwarnings("ignore::mscam_dask.errors.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
@pytest.mark.parametrize("n_clusters", [1, 24])
def test_one_cluster_and_as_many_as_samples(entry: Method, n_clusters: int) -> None:
    views, _ = gaussian_views(3, n_samples=24, dims=(4, 5))
    labels = made(entry, n_clusters).fit(views).labels_
    assert labels.shape == (24,)
    np.testing.assert_array_equal(labels, canonical_labels(labels))
    assert labels.max() < n_clusters


@pytest.mark.filterwarnings("ignore:.*SSC.*max_iter:mscam_dask.errors.ConvergenceWarning")
def test_one_seed_one_result_and_labels_given_change_nothing(entry: Method) -> None:
    views, truth = gaussian_views(3, n_samples=80, n_clusters=4, spread=1.5)
    copies = [view.copy() for view in views]
    first = made(entry, 4, seed=5).fit(views).labels_
    again = made(entry, 4, seed=5).fit(views, truth).labels_
    np.testing.assert_array_equal(first, again)
    for view, before in zip(views, copies, strict=True):
        np.testing.assert_array_equal(view, before)


def test_distance_views_are_clustered_by_their_distances() -> None:
    views, truth = gaussian_views(5, n_samples=60, spread=SPREAD)
    distances = [squareform(pdist(view)) for view in views]
    data = as_multi_view(distances, view_type="distance")
    labels = made(BASELINES["knn-sc"]).fit_predict(data)
    assert adjusted_rand_index(truth, labels) == 1.0


def test_parameters_are_checked_against_their_types_and_the_data(entry: Method) -> None:
    views, _ = gaussian_views(8, n_samples=120)
    data = as_multi_view(views)
    for name, values in entry.grid.items():
        for value in values:
            made(entry, **{name: value}).check_parameters(data)
    for name in set(entry.parameters()) - {"view_type"}:
        for value in (-1, "much", float("nan"), True):
            with pytest.raises(ConfigurationError) as caught:
                made(entry).set_params(**{name: value}).fit(views)
            assert f"{name}={value!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("knn-sc", {"n_clusters": 31}),
        ("knn-sc", {"n_clusters": 2.0}),
        ("knn-sc", {"random_state": -1}),
        ("knn-sc", {"view_type": "cosine"}),
        ("mlan", {"n_neighbors": 29}),
        ("mmsc", {"n_neighbors": 30}),
        ("lmvsc", {"n_anchors": 31}),
        ("smvsc", {"anchors_per_cluster": 11}),
        ("lmvsc", {"n_anchors": 1, "n_clusters": 5}),
        ("sc-bsv", {"view": 3}),
        ("sc-bsv", {"view": "view_9"}),
    ],
)
def test_parameters_that_do_not_fit_the_data_are_named(
    name: str, parameters: dict[str, Any]
) -> None:
    views, _ = gaussian_views(4, n_samples=30)
    with pytest.raises(ConfigurationError) as caught:
        made(BASELINES[name]).set_params(**parameters).fit(views)
    assert any(f"{key}={value!r}" in str(caught.value) for key, value in parameters.items())


@pytest.mark.parametrize("name", ["ssc-concat", "coreg", "mmsc", "dimsc", "lmvsc", "smvsc"])
def test_a_fit_that_does_not_converge_warns(name: str) -> None:
    views, _ = gaussian_views(3, n_samples=60, spread=0.5)
    with pytest.warns(ConvergenceWarning):
        made(BASELINES[name], max_iter=1, tol=1e-12).fit(views)


def test_a_fit_that_does_not_fit_into_memory_is_refused() -> None:
    views, _ = gaussian_views(10, n_samples=60)
    for name in ("coreg", "lmvsc"):
        with pytest.raises(MemoryPlanError) as caught:
            made(BASELINES[name], memory_limit_bytes=2000).fit(views)
        assert ("60 x 60" in str(caught.value)) == (name == "coreg")


def test_data_with_nan_and_no_view_are_refused() -> None:
    views, _ = gaussian_views(9, n_samples=30)
    views[1][7, 2] = np.nan
    with pytest.raises(DataError):
        made(BASELINES["smvsc"]).fit(views)
    with pytest.raises(ConfigurationError):
        BASELINES["sc-bsv"].make(3, 0, {})


def test_the_list_of_methods_is_light_to_import() -> None:
    code = (
        "import sys, mscam_dask.benchmark.methods as r; r.method('mlan'); "
        "print(sorted({'numpy', 'scipy', 'sklearn', 'distributed'} & set(sys.modules)))"
    )
    assert printed(code).strip() == "[]"


Loader = Callable[[str], BenchmarkData]

CASES = [
    # method, parameters, data set, ACC, NMI; docs/baselines.md has the commands
    ("knn-sc", {}, "handwritten", 0.9750, 0.942),
    ("smvsc", {}, "handwritten", 0.8205, 0.789),
    ("smvsc", {}, "msrcv1", 0.8143, 0.708),
    ("mlan", {}, "msrcv1", 0.7762, 0.739),
    ("mmsc", {}, "msrcv1", 0.7714, 0.706),
    ("sc-concat", {}, "handwritten", 0.7965, 0.741),
    ("sc-bsv", {"view": "fou", "scale": "none"}, "handwritten", 0.7140, 0.645),
]

slow = (pytest.mark.slow, pytest.mark.timeout(900))

SLOW: list[Any] = [
    ("mlan", {}, "handwritten", 0.9735, 0.942),
    ("coreg", {}, "handwritten", 0.9185, 0.848),
    ("lmvsc", {"n_anchors": 50, "alpha": 10.0}, "handwritten", 0.9210, 0.862),
    ("mmsc", {}, "handwritten", 0.8495, 0.860),
    ("mmsc", {"alpha": 0.1}, "handwritten", 0.8325, 0.8945),
    ("ssc-concat", {}, "handwritten", 0.8120, 0.855),
    ("ssc-bsv", {"view": "pix", "scale": "none"}, "handwritten", 0.6705, 0.788),
    ("dimsc", {}, "handwritten", 0.9435, 0.892),
]


@pytest.mark.parametrize(
    ("name", "parameters", "data_set", "accuracy", "information"),
    [*CASES, *(pytest.param(*case, marks=slow) for case in SLOW)],
)
def test_the_figure_is_reached(
    name: str,
    parameters: dict[str, Any],
    data_set: str,
    accuracy: float,
    information: float,
    benchmark_data: Loader,
) -> None:
    data = benchmark_data(data_set)
    views = as_multi_view(dict(zip(data.names, data.views, strict=True)), view_type=data.kinds)
    model = METHODS[name].make(len(np.unique(data.labels)), 0, parameters)
    scores = score_partition(data.labels, model.fit(views).labels_)
    assert abs(scores.accuracy - accuracy) <= 0.02
    assert abs(scores.normalized_mutual_information - information) <= 0.02
