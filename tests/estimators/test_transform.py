"""Distances to the clusters, the label-free score, and containers of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from mscam_dask import MSCAN, Constants
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.engine.scores import (
    reference_graphs_of_view,
)
from mscam_dask.errors import DataError
from mscam_dask.estimators._describe import label_free_scores
from mscam_dask.estimators._inputs import views_to_predict
from mscam_dask.linalg.neighbor_information import modularity
from mscam_dask.solvers.partition_score import explained_share
from mscam_dask.solvers.spectral_cut import sampled_rows
from mscam_dask.types.rules import CONSTANTS, SIZES
from tests.estimators.small import pair_views, quick
from tests.synthetic import gaussian_views


def test_the_nearest_center_is_the_cluster_of_clear_samples() -> None:
    views, _ = gaussian_views(0, n_samples=150, n_clusters=4, spread=4.0)
    model = quick(4).fit([view[:100] for view in views])
    new = [view[100:] for view in views]
    distances = model.transform(new)
    assert distances.shape == (50, 4)
    assert distances.min() >= 0
    assert_array_equal(distances.argmin(axis=1), model.predict(new))
    assert_array_equal(model.fit_transform(views), model.transform(views))


def test_distances_are_euclidean_in_coordinates_that_are_affine_in_the_data() -> None:
    views, _ = gaussian_views(1, n_samples=90, spread=3.0)
    model = quick(scale="none", alpha=1.0, n_neighbors=9).fit(views)
    ends = [[view[:1], view[1:2]] for view in views]
    along = np.linspace(0.0, 1.0, 5)
    line = [first + along[:, None] * (last - first) for first, last in ends]
    squares = (
        model.transform(line) ** 2
    )  # quadratic in t with the same leading term for each center
    second = np.diff(squares, 2, axis=0)
    assert_allclose(second, second[0, 0], rtol=1e-8)
    assert second[0, 0] > 0


def test_output_as_a_frame_with_names() -> None:
    pandas = pytest.importorskip("pandas")
    views, _ = gaussian_views(0, n_samples=60, dims=(6,))
    frame = pandas.DataFrame(views[0], index=[f"s{i}" for i in range(60)])
    frame.columns = [f"x{i}" for i in range(6)]
    model = quick().set_output(transform="pandas").fit(frame)
    found = model.transform(frame)
    assert found.columns.tolist() == ["mscam0", "mscam1", "mscam2"]
    assert found.columns.tolist() == model.get_feature_names_out().tolist()
    assert found.index.tolist() == frame.index.tolist()
    assert MSCAN(2, constants=Constants.paper(), max_iter=1).fit(
        views
    ).get_feature_names_out().tolist() == [
        *("mscan0", "mscan1"),
    ]
    several = quick().set_output(transform="pandas").fit([views[0], 2 * views[0]])
    assert several.transform([views[0], 2 * views[0]]).shape == (60, 3)


def test_the_score_is_modularity_times_the_share_of_entropy() -> None:
    views, _ = gaussian_views(2, n_samples=120, spread=1.5)
    model = quick().fit([view[:60] for view in views])
    new = [view[60:] for view in views]
    labels = model.predict(new)
    graphs = [
        reference_graphs_of_view(view, CONSTANTS.validation_neighbors)
        for view in views_to_predict(model, new).views
    ]
    highest = [max(modularity(graph, labels) for graph in view.graphs) for view in graphs]
    expected = np.mean(highest) * explained_share(graphs, labels)
    assert model.score(new) == pytest.approx(expected)
    assert model.score(new, y=np.zeros(60)) == model.score(new)


def test_a_grid_search_without_labels_finds_the_number_of_clusters() -> None:
    views, labels = gaussian_views(4, n_samples=240, n_clusters=4, spread=3.0, dims=(6, 6))
    table = np.hstack(views)
    model = make_pipeline(
        FunctionTransformer(np.hsplit, kw_args={"indices_or_sections": [6]}), quick()
    )
    grid = {"mscam__n_clusters": [2, 4, 7]}
    search = GridSearchCV(model, grid, cv=2)
    assert search.fit(table).best_params_ == {"mscam__n_clusters": 4}
    scores = search.cv_results_["mean_test_score"]
    assert scores[2] < scores[1]  # it does not grow with the number of clusters
    assert search.score(table) == search.best_estimator_.score(table)
    assert_array_equal(search.predict(table), search.best_estimator_["mscam"].labels_)
    found = cross_val_predict(search.best_estimator_, table, cv=2)  # each fold numbers its own
    for half in (slice(0, 120), slice(120, 240)):
        assert adjusted_rand_score(labels[half], found[half]) == 1.0


def test_one_predicted_cluster_scores_zero() -> None:
    views, _ = gaussian_views(0, n_samples=60)
    assert quick(1).fit(views).score(views) == 0.0


def test_a_large_set_is_scored_on_a_sample() -> None:
    n = SIZES.n_scored + 400
    views, labels = gaussian_views(0, n_samples=n, spread=1.0, dims=(3,))
    rows = sampled_rows(n, SIZES.n_scored)
    found = label_free_scores(as_multi_view(views), labels)
    expected = label_free_scores(as_multi_view([view[rows] for view in views]), labels[rows])
    assert found == expected


@pytest.mark.parametrize("n_samples", [1, 2])
def test_too_few_samples_have_no_score(n_samples: int) -> None:
    views, _ = gaussian_views(0, n_samples=60)
    with pytest.raises(DataError):
        quick().fit(views).score([view[:n_samples] for view in views])


def test_pairwise_views_have_distances_but_no_score() -> None:
    features, distances, kernel, _ = pair_views()
    views: list[Any] = [features, distances, kernel]
    model = quick(view_type=["features", "distance", "kernel"]).fit(views)
    assert model.transform(views).shape == (75, 3)
    with pytest.raises(DataError):
        model.score(views)
