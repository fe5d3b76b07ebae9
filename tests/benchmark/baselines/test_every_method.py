"""Requirements of every baseline."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform
from sklearn.base import clone

from mscam_dask.benchmark.methods import BASELINES, Method, method
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.errors import ConfigurationError, ConvergenceWarning, DataError, MemoryPlanError
from mscam_dask.metrics import adjusted_rand_index
from mscam_dask.solvers.spectral_cut import canonical_labels
from tests.messages import quotes
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
    assert model.view_names_ == ("a", "b", "c")
    assert model.labels_.dtype == np.int64
    np.testing.assert_array_equal(model.labels_, canonical_labels(model.labels_))
    assert adjusted_rand_index(truth, model.labels_) == 1.0
    order = np.random.default_rng(0).permutation(90)
    labels = made(entry).fit_predict([view[order] for view in views][::-1])
    assert adjusted_rand_index(truth[order], labels) == 1.0


@pytest.mark.filterwarnings("ignore::mscam_dask.errors.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
@pytest.mark.parametrize("n_clusters", [1, 22, 24])
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


def test_units_of_columns_do_not_matter_under_standard_scale(entry: Method) -> None:
    views, _ = gaussian_views(4, n_samples=80, spread=2.0)
    scaled = [2.0 ** np.arange(view.shape[1]) * view for view in views]
    first = made(entry, scale="standard").fit_predict(views)
    second = made(entry, scale="standard").fit_predict(scaled)
    np.testing.assert_array_equal(first, second)


def test_distance_views_are_clustered_by_their_distances(entry: Method) -> None:
    views, truth = gaussian_views(5, n_samples=60, spread=SPREAD)
    distances = [squareform(pdist(view)) for view in views]
    data = as_multi_view(distances, view_type="distance")
    labels = made(entry).fit_predict(data)
    assert adjusted_rand_index(truth, labels) == 1.0


def test_scikit_learn_can_copy_and_read_the_estimator(entry: Method) -> None:
    model = made(entry, scale="minmax")
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.get_params()["scale"] == "minmax"
    assert pickle.loads(pickle.dumps(model)).get_params() == model.get_params()
    assert copy.set_params(n_clusters=2).n_clusters == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_clusters", 0),
        ("n_clusters", 31),
        ("n_clusters", 2.0),
        ("random_state", -1),
        ("random_state", "now"),
        ("view_type", "cosine"),
    ],
)
def test_wrong_parameters_are_named(entry: Method, name: str, value: object) -> None:
    views, _ = gaussian_views(8, n_samples=30, spread=SPREAD)
    with pytest.raises(ConfigurationError, match=quotes(f"{name}={value!r}")):
        made(entry).set_params(**{name: value}).fit(views)


def test_wrong_values_of_the_methods_own_parameters_are_named(entry: Method) -> None:
    views, _ = gaussian_views(8, n_samples=30, spread=SPREAD)
    for name in set(entry.parameters()) - {"view_type"}:
        for value in (-1, "much", float("nan"), True):
            with pytest.raises(ConfigurationError, match=quotes(f"{name}={value!r}")):
                made(entry).set_params(**{name: value}).fit(views)


@pytest.mark.parametrize(
    ("name", "parameters", "said"),
    [
        ("mlan", {"n_neighbors": 29}, ["n_neighbors=29", 28]),
        ("coreg", {"affinity": "neighbors", "n_neighbors": 30}, ["n_neighbors=30", 29]),
        ("mmsc", {"affinity": "cosine"}, ["affinity='cosine'", "gaussian", "neighbors"]),
        ("lmvsc", {"n_anchors": 31}, ["n_anchors=31", 30]),
        ("lmvsc", {"n_anchors": 1, "n_clusters": 5}, ["n_anchors=1", 3, 5]),
        ("smvsc", {"anchors_per_cluster": 11}, ["anchors_per_cluster=11", 33, 30]),
        ("smvsc", {"start": "last"}, ["start='last'", "first", "random"]),
    ],
)
def test_parameters_that_do_not_fit_the_data_are_named(
    name: str, parameters: dict[str, Any], said: list[Any]
) -> None:
    views, _ = gaussian_views(4, n_samples=30)
    with pytest.raises(ConfigurationError, match=quotes(*said)):
        made(BASELINES[name]).set_params(**parameters).fit(views)


@pytest.mark.parametrize("name", ["ssc-concat", "coreg", "mmsc", "dimsc", "lmvsc", "smvsc"])
def test_a_fit_that_does_not_converge_warns(name: str) -> None:
    views, _ = gaussian_views(3, n_samples=60, spread=0.5)
    with pytest.warns(
        ConvergenceWarning, match=quotes(BASELINES[name].title[:3], "max_iter=1", "tol")
    ):
        made(BASELINES[name], max_iter=1, tol=1e-12).fit(views)


def test_data_that_no_method_can_cluster_are_refused(entry: Method) -> None:
    views, _ = gaussian_views(9, n_samples=30)
    with pytest.raises(DataError, match=quotes(30, 29)):
        made(entry).fit([views[0], views[1][:-1]])
    views[1][7, 2] = np.nan
    with pytest.raises(DataError, match=quotes("'view_1'", [7])):
        made(entry).fit(views)


def test_what_does_not_fit_is_refused_with_numbers(entry: Method) -> None:
    views, _ = gaussian_views(10, n_samples=60)
    limit = 20_000
    with pytest.raises(MemoryPlanError, match=quotes(60, limit)) as caught:
        made(entry, memory_limit_bytes=limit).fit(views)
    assert ("60 x 60" in str(caught.value)) == entry.dense


# SSC's authors stop at 200 iterations, converged or not; the warning has a test of its own
@pytest.mark.filterwarnings("ignore:.*SSC.*max_iter:mscam_dask.errors.ConvergenceWarning")
def test_every_setting_of_the_grid_runs(entry: Method) -> None:
    views, _ = gaussian_views(11, n_samples=120, spread=4.0)
    for name, values in entry.grid.items():
        for value in values:
            parameters: dict[str, Any] = {name: value}
            labels = made(entry, **parameters).fit_predict(views)
            assert len(np.unique(labels)) == 3


def test_a_parameter_that_does_not_exist_is_refused_when_made(entry: Method) -> None:
    with pytest.raises(ConfigurationError, match=quotes(repr(entry.name), "'colour'", "scale")):
        made(entry, colour="red")
    with pytest.raises(ConfigurationError, match=quotes(repr(entry.name), "'random_state'")):
        made(entry, random_state=3)


def test_an_unknown_method_names_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match=quotes("'mlam'", "'mlan'")):
        method("mlam")
    assert method("mlan") is BASELINES["mlan"]


def test_the_registry_cannot_be_changed_and_describes_itself() -> None:
    with pytest.raises(TypeError):
        BASELINES["x"] = BASELINES["mlan"]  # type: ignore[index]
    for name, described in BASELINES.items():
        assert described.name == name
        assert described.title
        assert described.reference
        assert set(described.grid).isdisjoint({"view", "n_clusters", "random_state"})


def test_single_view_methods_ask_for_the_view() -> None:
    single = [entry for entry in BASELINES.values() if entry.label_aware_view_choice]
    assert single
    for entry in single:
        with pytest.raises(ConfigurationError, match=quotes(repr(entry.name), "view")):
            entry.make(3, 0, {})
        views, _ = gaussian_views(12, n_samples=30)
        with pytest.raises(ConfigurationError, match=quotes("view=3", 0, 2)):
            made(entry, view=3).fit(views)
        with pytest.raises(ConfigurationError, match=quotes("'view_9'", "'view_0'")):
            made(entry, view="view_9").fit(views)


def test_the_list_of_methods_is_light_to_import() -> None:
    code = (
        "import sys, mscam_dask.benchmark.methods as r; r.method('mlan'); "
        "print(sorted({'numpy', 'scipy', 'sklearn', 'distributed'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
