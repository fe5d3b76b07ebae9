"""Stability, structure, tables of views and the tree over the clusters of a fit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, is_valid_linkage

from mscam_dask import MSCAM
from mscam_dask.errors import UnstableClustersWarning
from mscam_dask.types.events import FitFinished
from mscam_dask.types.result import Status, Structure
from tests.estimators.small import quick
from tests.synthetic import gaussian_views


def test_separate_clusters_are_stable() -> None:
    views, _ = gaussian_views(0, n_samples=120, spread=3.0)
    events: list[object] = []
    model = quick(callbacks=[events.append]).fit(views)
    assert model.cluster_stability_.shape == (3,)
    assert model.stability_ == pytest.approx(model.cluster_stability_.mean())
    assert model.stability_ > 0.95
    assert model.structure_ is Structure.STABLE
    assert isinstance(events[-1], FitFinished)
    assert events[-1].structure == "STABLE"
    assert model.solution_.assessment is not None
    assert events[-1].assessment == model.solution_.assessment.message


def test_divided_clusters_are_named() -> None:
    rng = np.random.default_rng(1)
    labels = np.arange(240) % 2
    views = [
        12.0 * np.eye(2)[labels] @ rng.normal(size=(2, 5)) + rng.normal(size=(240, 5))
        for _ in range(3)
    ]
    with pytest.warns(UnstableClustersWarning, match="clusters|stability"):
        model = MSCAM(5, n_jobs=1).fit(views)
    assert model.structure_ is Structure.UNSTABLE
    assert model.stability_ < 0.75


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


def test_the_learned_graph_has_the_edges_between_clusters() -> None:
    views, _ = gaussian_views(3, n_samples=150, spread=0.8)
    model = MSCAM(3, n_jobs=1).fit(views)
    assert model.status_ is Status.PARTITION_GRAPH
    rows = np.repeat(model.labels_, np.diff(model.learned_graph_.indptr))
    assert (rows != model.labels_[model.learned_graph_.indices]).any()
    rows = np.repeat(model.labels_, np.diff(model.consensus_graph_.indptr))
    assert (rows == model.labels_[model.consensus_graph_.indices]).all()


def test_the_learned_graph_is_the_result_where_it_has_the_components() -> None:
    views, _ = gaussian_views(0, n_samples=120, spread=4.0)
    model = quick().fit(views)
    assert model.status_ is Status.CONVERGED
    np.testing.assert_array_equal(model.learned_graph_.toarray(), model.consensus_graph_.toarray())


@pytest.mark.parametrize("n_clusters", [1, 20])
@pytest.mark.parametrize("n_views", [1, 3])
def test_trivial_partitions_have_every_attribute(n_clusters: int, n_views: int) -> None:
    views = gaussian_views(0, n_samples=20)[0][:n_views]
    model = quick(n_clusters).fit(views)
    assert model.structure_ is Structure.TRIVIAL
    assert model.stability_ == 1.0
    np.testing.assert_array_equal(model.cluster_stability_, np.ones(n_clusters))
    assert model.view_agreement_ == quick(3).fit(views).view_agreement_  # of the data alone
    assert model.cluster_agreement_.keys() == set(model.view_names_)
    assert all(np.isnan(one).all() for one in model.cluster_agreement_.values())
    assert model.neighbor_overlap_ == {}
    assert model.cluster_tree_.shape == (n_clusters - 1, 4)
    assert model.membership_.shape == (20, n_clusters)


def test_the_tree_over_single_samples_is_a_linkage() -> None:
    views, _ = gaussian_views(0, n_samples=20)
    tree = quick(20).fit(views).cluster_tree_
    assert is_valid_linkage(tree, throw=True)
    assert len(set(fcluster(tree, 0.5, "distance"))) == 20
    assert set(fcluster(tree, 1, "maxclust")) == {1}
