"""What a fitted model holds and tells of its clusters, of the data and of the fit."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.cluster.hierarchy import fcluster
from scipy.spatial.distance import pdist
from sklearn.metrics import adjusted_rand_score

from mscam_dask import MSCAM, MSCAN, Constants, Status
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.errors import ConfigurationError, ConvergenceWarning, DataError, DataWarning
from mscam_dask.estimators._describe import feature_effects
from mscam_dask.estimators._fitted import doubts
from mscam_dask.estimators._sample_values import equal_samples
from mscam_dask.types.events import FitFinished, FitStarted
from mscam_dask.types.result import SMALLEST, Structure
from tests.blocks import small_blocks
from tests.estimators.small import integer_views, quick
from tests.synthetic import Array, Labels, assert_partition_and_graph_agree, gaussian_views


def test_separate_clusters_have_borders() -> None:
    views, _ = gaussian_views(0, n_samples=120, spread=3.0)
    events: list[object] = []
    model = quick(callbacks=[events.append]).fit(views)
    assert model.cluster_borders_.shape == (3, 3)
    assert model.cluster_borders_.max() <= 0.05
    assert model.standing_clusters_ == (0, 1, 2)
    assert model.structure_ is Structure.CLEAR
    np.testing.assert_array_equal(
        model.solution_.assessment.borders.sizes, np.bincount(model.labels_)
    )
    assert isinstance(events[0], FitStarted)
    assert isinstance(events[-1], FitFinished)
    assert events[-1].structure == "CLEAR"
    assert events[-1].assessment == model.solution_.assessment.message


def test_divided_clusters_are_named() -> None:
    views, _ = gaussian_views(1, n_samples=240, n_clusters=2, spread=12.0, dims=(5, 5, 5))
    with pytest.warns(DataWarning) as caught:
        model = MSCAM(5, n_jobs=1).fit(views)
    assert model.structure_ is Structure.NONE
    assert model.standing_clusters_ == ()
    first, second = np.unravel_index(model.cluster_borders_.argmax(), (5, 5))
    # The record holds all warnings of the block, also those of sockets that are collected in it.
    (told,) = [one for one in caught if issubclass(one.category, DataWarning)]
    assert f"clusters {first} and {second}" in str(told.message)


@pytest.mark.parametrize(
    ("sizes", "separation"), [((490, 10), 7.0), ((400, 8, 6), 8.0), ((700, 6, 5, 4), 8.0)]
)
def test_rare_clusters_are_found(sizes: tuple[int, ...], separation: float) -> None:
    """Well separated clusters of very unequal sizes."""
    views, labels = distant_views(np.repeat(np.arange(len(sizes)), sizes), separation)
    model = MSCAM(len(sizes), n_jobs=1).fit(views)
    assert adjusted_rand_score(labels, model.labels_) > 0.9
    few = min(sizes) < SMALLEST  # too few for a border
    assert model.structure_ is (Structure.PARTLY if few else Structure.CLEAR)


@pytest.mark.parametrize(
    ("n_clusters", "sizes"),
    [(3, (240, 40, 20)), ("auto", (270, 20, 10))],
)
def test_clusters_are_found_behind_factors_that_all_views_share(
    n_clusters: Any, sizes: tuple[int, ...]
) -> None:
    """Such as a size and an age, which have more variance than there is between clusters."""
    views, labels = distant_views(np.repeat(np.arange(3), sizes), 8.0)
    rng = np.random.default_rng(1)
    factors = 3.0 * rng.normal(size=(300, 2))
    views = [view + factors @ rng.normal(size=(2, view.shape[1])) for view in views]
    model = MSCAM(n_clusters, n_jobs=1).fit(views)
    assert adjusted_rand_score(labels, model.labels_) > 0.95
    assert model.structure_ is Structure.CLEAR


@pytest.mark.filterwarnings("ignore::mscam_dask.errors.DataWarning")
@pytest.mark.parametrize("kind", ["sheet", "elongated"])
def test_views_that_depend_on_each_other_have_no_clusters(kind: str) -> None:
    """Neighbors in common are no clusters."""
    rng = np.random.default_rng(0)
    plane, long = rng.random((300, 2)) - 0.5, 4.0 * rng.normal(size=(300, 1))
    views = []
    for d in (6, 20):
        shared = {
            "sheet": 4.0 * np.tanh(plane @ rng.normal(0.0, 3.0, (2, d))),
            "elongated": long @ rng.normal(size=(1, d)),
        }[kind]
        views.append(shared + rng.normal(size=(300, d)))
    model = MSCAM("auto", max_clusters=8, n_jobs=1).fit(views)
    assert model.n_clusters_ == 1
    assert model.structure_ is Structure.NONE


def distant_views(labels: Labels, separation: float) -> tuple[list[Array], Labels]:
    """Three views; the closest two centers have this distance in all views together, in standard deviations."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(labels)
    centers = [rng.normal(size=(int(labels.max()) + 1, d)) for d in (6, 12, 20)]
    factor = separation / pdist(np.hstack(centers)).min()
    views = [factor * one[labels] + rng.normal(size=(len(labels), one.shape[1])) for one in centers]
    return views, labels


def test_views_and_tree() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(160) % 4
    centers = 6.0 * np.array([[0, 0], [0, 1], [1, 0], [1, 1.0]])
    halves = [centers[labels][:, [axis]] + rng.normal(size=(160, 3)) * 0.5 for axis in (0, 1)]
    both = np.hstack(halves) + 0.1 * rng.normal(size=(160, 6))
    noise = rng.normal(size=(160, 4))
    views = {"both": both, "first": halves[0], "noise": noise}
    model = MSCAM(4, n_jobs=1, exclude_views=[]).fit(views)
    seen = model.cluster_agreement_
    assert list(seen) == list(views)
    assert seen["both"].min() > seen["first"].max() > 0.2
    assert np.abs(seen["noise"]).max() < 0.2
    pairs = model.view_agreement_
    assert pairs["both"]["both"] == 1.0
    assert pairs["both"]["first"] == pairs["first"]["both"] > 0.05
    assert abs(pairs["both"]["noise"]) < 0.05
    assert model.cluster_tree_.shape == (3, 4)
    groups = fcluster(model.cluster_tree_, 2, "maxclust")[model.labels_]
    assert len(np.unique(groups)) == 2


def test_the_learned_graph_has_the_edges_between_clusters_or_is_the_result() -> None:
    model = MSCAM(3, n_jobs=1).fit(gaussian_views(3, n_samples=150, spread=0.8)[0])
    assert model.status_ is Status.PARTITION_GRAPH
    for graph, has_edges_between in ((model.learned_graph_, True), (model.consensus_graph_, False)):
        rows, columns = graph.nonzero()
        assert (model.labels_[rows] != model.labels_[columns]).any() == has_edges_between
    model = quick().fit(gaussian_views(0, n_samples=120, spread=4.0)[0])
    assert model.status_ is Status.CONVERGED
    np.testing.assert_array_equal(model.learned_graph_.toarray(), model.consensus_graph_.toarray())


@pytest.mark.parametrize("n_clusters", [1, 20])
@pytest.mark.parametrize("n_views", [1, 3])
def test_trivial_partitions_have_every_attribute(n_clusters: int, n_views: int) -> None:
    views = gaussian_views(0, n_samples=20)[0][:n_views]
    model = MSCAM(n_clusters, n_jobs=1).fit(views)
    assert model.structure_ is Structure.TRIVIAL
    assert model.cluster_borders_.shape == (0, 0)
    assert model.standing_clusters_ == ()
    assert model.view_agreement_ == quick(3).fit(views).view_agreement_  # of the data alone
    assert model.cluster_agreement_.keys() == set(model.view_names_)
    assert all(np.isnan(one).all() for one in model.cluster_agreement_.values())
    assert model.neighbor_overlap_ == {}
    assert model.cluster_tree_.shape == (n_clusters - 1, 4)
    assert model.membership_.shape == (20, n_clusters)
    assert model.history_.sizes == {"outer_iteration": 0, "view": n_views}
    assert set(model.predict(views).tolist()) <= set(range(n_clusters))


def cohens_d(own: Array, rest: Array) -> Any:
    pooled = (len(own) - 1) * own.var(axis=0, ddof=1) + (len(rest) - 1) * rest.var(axis=0, ddof=1)
    return (own.mean(axis=0) - rest.mean(axis=0)) / np.sqrt(pooled / (len(own) + len(rest) - 2))


@pytest.mark.parametrize("size", [7, 60, 200])
def test_effects_are_those_of_the_definition_for_all_blocks(size: int) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=200)
    rows = 1e6 + rng.normal(size=(200, 5)) + labels[:, None] * np.arange(5)
    rows[rng.random(rows.shape) < 0.3] = 0.0
    with small_blocks(8 * 5 * size):
        found = feature_effects(ArrayRows(rows, "v"), labels=labels, n_clusters=3)
    for cluster in range(3):
        own, rest = rows[labels == cluster], rows[labels != cluster]
        assert_allclose(found["effect"][cluster], cohens_d(own, rest), rtol=1e-6)
        assert_allclose(found["mean"][cluster], own.mean(axis=0))
        assert_allclose(found["mean_of_rest"][cluster], rest.mean(axis=0))
        assert_allclose(found["share"][cluster], np.mean(own != 0, axis=0))
        assert_allclose(found["share_of_rest"][cluster], np.mean(rest != 0, axis=0))


def test_columns_without_variance() -> None:
    labels = np.repeat([0, 1], 10)
    rows = np.column_stack([np.full(20, 0.1), labels * 0.3 + 7.1, np.arange(20.0) % 2])
    effects = feature_effects(ArrayRows(rows, "v"), labels=labels, n_clusters=2)["effect"]
    assert effects[0].tolist() == [0.0, -np.inf, 0.0]
    assert effects[1].tolist() == [0.0, np.inf, 0.0]


def test_the_planted_features_come_first_by_name() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 3
    frames = {}
    for name in ("genes", "proteins"):
        values = rng.normal(size=(120, 30))
        values[np.arange(120), labels] += 6.0  # column j is high in cluster j
        frames[name] = pd.DataFrame(values, columns=[f"{name}{j}" for j in range(30)])
    model = quick().fit(frames)
    found = model.cluster_features(top=4)
    assert len(found) == 2 * 3 * 4
    for (view, cluster), features in found.groupby(["view", "cluster"]):
        assert features["effect"].abs().is_monotonic_decreasing
        planted = labels[np.flatnonzero(model.labels_ == cluster)[0]]
        first = features.iloc[0]
        assert first["feature"] == f"{view}{planted}"
        assert first["column"] == planted
        assert first["effect"] > 3
        own = frames[view].to_numpy()[model.labels_ == cluster, planted]
        assert first["mean"] == pytest.approx(own.mean())
        assert first["mean"] > first["mean_of_rest"]
        assert (first["share"], first["share_of_rest"]) == (1.0, 1.0)
    wrong: Any
    for wrong in (0, 2.5, True, "all"):
        with pytest.raises(ConfigurationError):
            model.cluster_features(wrong)


@pytest.mark.parametrize("estimator", [MSCAM, MSCAN])
def test_attributes_by_definition(estimator: Any) -> None:
    views, _ = gaussian_views(4, n_samples=100, spread=0.8)
    model = estimator(3, n_jobs=1, max_iter=4).fit(views)
    assert_partition_and_graph_agree(model.solution_, n_clusters=3)
    assert_array_equal(model.labels_, model.solution_.labels)
    assert model.n_connected_components_ == 3
    assert isinstance(model.status_, Status)
    assert model.status_.message.strip()
    assert model.n_iter_ == len(model.history_.outer_iteration) <= 4
    assert model.history_["primal_residual"].dims == ("outer_iteration", "view")
    assert model.history_.sizes["view"] == 3
    assert set(model.history_["n_connected_components"].to_numpy()) <= set(range(1, 101))
    columns = {name: embedding.shape[1] for name, embedding in model.view_embeddings_.items()}
    if estimator is MSCAM:
        assert set(columns.values()) == {3}
    assert list(columns) == list(model.view_names_)


def test_a_fit_that_fails_leaves_the_one_before() -> None:
    table = pd.DataFrame(np.hstack(integer_views())).add_prefix("x")
    model = quick().fit(table)
    labels = model.labels_
    for bad in (np.ones((60, 5)), table.assign(x0=np.nan), table.iloc[:, :3].assign(x1=np.inf)):
        with pytest.raises(DataError):
            model.fit(bad)
    assert_array_equal(model.labels_, labels)
    assert_array_equal(model.predict(table), labels)
    assert list(model.feature_names_in_) == list(table.columns)


@pytest.mark.parametrize("estimator", [MSCAM, MSCAN])
def test_more_clusters_than_samples_that_differ_are_warned_of(
    estimator: type[MSCAM] | type[MSCAN],
) -> None:
    views, _ = gaussian_views(0, n_samples=4)
    repeated = [np.repeat(view, 15, axis=0) for view in views]
    estimator(n_clusters=4, n_jobs=1).fit(repeated)  # a warning would be an error
    with pytest.warns(ConvergenceWarning) as told:
        model = estimator(n_clusters=5, n_jobs=1).fit(repeated)
    raised_at = {one.filename for one in told if issubclass(one.category, ConvergenceWarning)}
    assert raised_at == {__file__}
    assert not any("rows: [" in str(one.message) for one in told)  # each is told once
    assert [finding.kind for finding in model.data_warnings_] == ["repeated samples"]
    chosen = estimator(n_clusters="auto", max_clusters=6, n_jobs=1).fit(repeated)
    assert chosen.n_clusters_ <= 4


def test_a_view_whose_rows_have_one_direction_does_not_stop_the_choice_of_scaling() -> None:
    # unit length makes all rows equal that are multiples of one; other scalings do not
    (plain,), labels = gaussian_views(13, n_samples=60, spread=3.0, dims=(5,))
    views = {"one": (30.0 + 10.0 * labels)[:, None] * np.ones(20), "rest": plain}
    model = MSCAM(3, n_jobs=1).fit(views)
    assert adjusted_rand_score(labels, model.labels_) == 1.0
    assert model.view_settings_["one"].scale == "standard"
    with pytest.raises(DataError):
        quick(scale="unit").fit(views)


def test_eigenvectors_that_did_not_converge_are_told() -> None:
    views, _ = gaussian_views(0, n_samples=60)
    model = quick()
    solution = model.fit(views).solution_  # a warning would be an error
    assert model.history_["spectrum_converged"].values.tolist() == [1] * model.n_iter_
    rough = [dataclasses.replace(one, spectrum_converged=False) for one in solution.history]
    told = doubts(dataclasses.replace(solution, history=tuple(rough)), (), views_selected=True)
    assert ConvergenceWarning in [kind for _, kind in told]


@pytest.mark.thorough
def test_independent_views_are_warned_of() -> None:
    """Normal and uniform ones, without clusters."""
    silent = several = 0
    for seed in range(9):
        rng = np.random.default_rng(seed)
        n_samples, n_views = int(rng.integers(80, 160)), int(rng.integers(2, 4))
        dims = rng.integers(3, 20, size=n_views).tolist()
        draw = (rng.normal, rng.uniform)[seed % 2]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = MSCAM("auto", max_clusters=8, n_jobs=1).fit(
                [draw(size=(n_samples, d)) for d in dims]
            )
        silent += not any(issubclass(one.category, DataWarning) for one in caught)
        assert max(model.neighbor_overlap_.values()) < 5
        several += model.n_clusters_ > 1
    assert silent == 0
    assert several <= 2


def test_common_clusters_are_not_warned_of() -> None:
    views, _ = gaussian_views(0, n_samples=120, spread=2.0)
    model = MSCAM("auto", max_clusters=4, n_jobs=1).fit(views)  # warnings are errors here
    assert min(model.neighbor_overlap_.values()) > 5
    paper = MSCAM(3, constants=Constants.paper(), n_jobs=1).fit(views)
    assert paper.neighbor_overlap_ == {}


@pytest.mark.thorough
def test_clusters_that_overlap_much_are_no_chance() -> None:
    """Few of the nearest neighbors are common, but many of the near ones: two normals in each view."""
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=1500)
    views = [rng.normal(size=(1500, 7)) + 0.9 * (2 * kind[:, None] - 1) / 2 for _ in range(3)]
    model = MSCAM("auto", max_clusters=4, n_jobs=1).fit(views)  # DataWarning is an error here
    assert model.n_clusters_ == 2
    assert min(model.neighbor_overlap_.values()) > 5


class Unreadable(ArrayRows):
    """A view that must not be read."""

    def read(self, start: int, stop: int) -> Any:
        """Fail."""
        raise AssertionError((start, stop))


def test_views_are_read_only_as_long_as_samples_are_equal() -> None:
    rng = np.random.default_rng(0)
    narrow, wide = rng.integers(2, size=(40, 1)) * 1.0, rng.normal(size=(40, 3))
    views = as_multi_view({"wide": wide, "narrow": narrow}).views
    widest = Unreadable(rng.normal(size=(40, 9)), "widest")
    assert equal_samples([widest, *views], SerialExecutor(), zeros=True) is None
    with pytest.raises(AssertionError):
        equal_samples([widest], SerialExecutor(), zeros=True)
