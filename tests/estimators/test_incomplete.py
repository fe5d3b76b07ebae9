"""Samples that are absent from views, and missing cells: refused or imputed where asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.metrics import adjusted_rand_score

from mscam_dask import MSCAM, MSCAN
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.errors import ConfigurationError, DataError, DataWarning
from mscam_dask.solvers.ridge_view import Encoder
from mscam_dask.types.parameters import Constants
from mscam_dask.types.rules import SIZES
from tests.blocks import other_values
from tests.estimators.small import pair_views, quick
from tests.messages import raises
from tests.synthetic import Array, assert_partition_and_graph_agree, gaussian_views


def with_gaps(
    *, share: float = 0.3, n_samples: int = 150
) -> tuple[list[Array], NDArray[np.int64], NDArray[np.bool_]]:
    """Views with absent samples, labels, and whether each view has each sample."""
    views, labels = gaussian_views(0, n_samples=n_samples, spread=1.5)
    rng = np.random.default_rng(0)
    has = rng.random((n_samples, len(views))) >= share
    has[~has.any(axis=1), 0] = True
    return absent_where(views, ~has), labels, has


def absent_where(views: list[Array], absent: NDArray[np.bool_]) -> list[Array]:
    return [np.where(absent[:, [v]], np.nan, view) for v, view in enumerate(views)]


@pytest.mark.parametrize("estimator", [MSCAM, MSCAN])
@pytest.mark.parametrize("constants", [None, Constants.paper()], ids=["default", "paper"])
def test_every_sample_is_clustered(estimator: Any, constants: Constants | None) -> None:
    views, labels, has = with_gaps()
    model = estimator(3, constants=constants, n_jobs=1).fit(views)
    assert adjusted_rand_score(labels, model.labels_) > 0.9
    assert_partition_and_graph_agree(model.solution_, n_clusters=3)
    assert_array_equal(model.view_presence_, has)
    for name, own in zip(model.view_names_, has.T, strict=True):
        embedding = model.view_embeddings_[name]
        assert_array_equal(np.isnan(embedding).any(axis=1), ~own)
        assert_array_equal(np.isnan(embedding).all(axis=1), ~own)
    assert sum(model.view_contributions_.values()) == pytest.approx(1.0)
    assert np.mean(model.predict(views) == model.labels_) > 0.95
    assert adjusted_rand_score(labels, model.membership_.argmax(axis=1)) > 0.9
    for name, own in zip(model.view_names_, has.T, strict=True):
        assert_array_equal(model.view_votes_[name] < 0, ~own)


def test_edges_join_samples_with_a_common_view() -> None:
    views, _, has = with_gaps(share=0.5)
    graph = quick().fit(views).consensus_graph_.tocoo()
    assert (has[graph.row] & has[graph.col]).any(axis=1).all()


def test_values_of_absent_rows_do_not_matter_and_other_rows_do() -> None:
    views, _, has = with_gaps()
    first = quick().fit(views)
    frames = {f"view_{index}": view for index, view in enumerate(views)}
    assert_array_equal(quick().fit(frames).labels_, first.labels_)
    digest = as_multi_view(views).digest()
    moved = [view.copy() for view in views]
    row = np.flatnonzero(has[:, 0] & has[:, 1])[0]
    other = np.flatnonzero(~has[:, 0])[0]
    moved[0][[row, other]] = moved[0][[other, row]]
    assert as_multi_view(moved).digest() != digest


def test_a_view_may_lack_a_whole_cluster() -> None:
    views, labels = gaussian_views(2, spread=1.5)
    absent = np.zeros((len(labels), 3), dtype=np.bool_)
    absent[labels == 1, 0] = True
    model = MSCAM(3, n_jobs=1).fit(absent_where(views, absent))
    assert adjusted_rand_score(labels, model.labels_) > 0.95
    assert_allclose(model.membership_.sum(axis=1), 1.0)
    assert (model.view_votes_["view_0"][labels == 1] == -1).all()
    distances = model.transform(absent_where(views, absent))
    assert adjusted_rand_score(labels, distances.argmin(axis=1)) > 0.9


@pytest.mark.filterwarnings("ignore::mscam_dask.errors.UnstableClustersWarning")
def test_views_that_share_few_samples_are_warned_of() -> None:
    """No view has samples of both halves, so only shared samples say which clusters belong together."""
    views, labels = gaussian_views(2, n_clusters=2, spread=3.0, dims=(4, 5))
    row = np.arange(len(labels))
    with pytest.warns(DataWarning):
        model = quick(2).fit(absent_where(views, np.stack([row >= 84, row < 80], axis=1)))
    assert "few shared samples" in [issue.kind for issue in model.data_warnings_]


def test_distance_and_kernel_views_may_lack_samples() -> None:
    features, distances, kernel, labels = pair_views()
    distances, kernel = distances.copy(), kernel.copy()
    distances[::4], distances[:, ::4] = np.nan, np.nan
    np.fill_diagonal(distances, 0.0)  # the diagonal may stay
    kernel[1::4], kernel[:, 1::4] = np.nan, np.nan
    kinds = {"b": "distance", "c": "kernel"}
    views = {"a": features, "b": distances, "c": kernel}
    model = MSCAM(3, view_type=kinds, n_jobs=1).fit(views)
    assert adjusted_rand_score(labels, model.labels_) > 0.9
    has = model.view_presence_
    assert_array_equal(np.flatnonzero(~has[:, 1]), np.arange(len(labels))[::4])
    assert np.mean(model.predict(views) == model.labels_) > 0.95
    held_out = {"a": features[:5], "b": distances[1:6], "c": kernel[:5]}
    assert len(model.predict(held_out)) == 5


def test_prediction_takes_any_views_that_a_sample_has() -> None:
    views, labels = gaussian_views(3, n_samples=240, spread=1.5)
    model = MSCAM(3, n_jobs=1).fit([view[:160] for view in views])
    new = [view[160:] for view in views]
    by_name = {"view_1": new[1]}
    expected = model.predict(by_name)
    assert_array_equal(model.predict([None, new[1], None]), expected)
    with raises(DataError, 3, model.view_names_[0]):
        model.predict([None] * 3)
    without = [np.full_like(new[0], np.nan), new[1], np.full_like(new[2], np.nan)]
    assert_array_equal(model.predict(without), expected)
    assert_array_equal(model.predict_proba(by_name), model.predict_proba(without))
    assert adjusted_rand_score(labels[160:], expected) > 0.5
    # each sample by its own views
    mixed = [view.copy() for view in new]
    mixed[0][::2] = mixed[2][::2] = np.nan
    assert_array_equal(model.predict(mixed)[::2], expected[::2])
    assert_array_equal(model.predict(mixed)[1::2], model.predict(new)[1::2])


def test_prediction_by_one_view_is_that_of_its_nearest_samples() -> None:
    views, _ = gaussian_views(3, n_samples=120, spread=1.5)
    model = quick(n_neighbors=1).fit(views)
    encoder = model.solution_.encoders["view_2"]
    assert isinstance(encoder, Encoder)
    rows = encoder(views[2])
    new = rows[::7] + 1e-3
    nearest = np.argmin(np.sum((new[:, None] - rows) ** 2, axis=2), axis=1)
    step: Array = np.linalg.lstsq(encoder.loadings.T, np.full(rows.shape[1], 1e-3))[0]
    shifted = views[2][::7] + step
    assert_array_equal(model.predict({"view_2": shifted}), model.labels_[nearest])


def test_bad_presence_is_refused() -> None:
    views, _, has = with_gaps()
    alone = [view.copy() for view in views]
    for view in alone[1:]:
        view[np.flatnonzero(has[:, 0])[:3]] = np.nan
    with pytest.raises(ConfigurationError):
        quick(exclude_views=["view_0"]).fit(alone)
    nowhere = [view.copy() for view in views]
    for view in nowhere:
        view[[4, 9]] = np.nan
    with pytest.raises(DataError):
        quick().fit(nowhere)
    rare = [np.nan_to_num(view) + index for index, view in enumerate(views)]
    rare[1][2:] = np.nan
    with pytest.raises(DataError):
        quick().fit(rare)
    few = [np.nan_to_num(view) for view in views]
    few[1][6:] = np.nan
    with pytest.raises(DataError):
        quick(7).fit(few)


def test_many_incomplete_samples_are_searched_exhaustively_and_scored_on_a_sample() -> None:
    views, labels, _ = with_gaps(n_samples=240)
    few = MSCAM(3, n_jobs=1).fit(views)
    with other_values(SIZES, exact_samples=100, n_scored=80, max_rank=4):
        many = MSCAM(3, n_jobs=1).fit(views)
    assert many.solution_.parameters.exact_samples == 240
    assert adjusted_rand_score(labels, many.labels_) > 0.9
    assert_partition_and_graph_agree(many.solution_, n_clusters=3)
    assert np.mean(many.predict(views) == many.labels_) > 0.95
    ranks = [values.shape[1] for values in many.solution_.view_coordinates.values()]
    assert (
        max(ranks) <= 4 < max(values.shape[1] for values in few.solution_.view_coordinates.values())
    )


def test_too_many_incomplete_samples_are_refused() -> None:
    views, _, _ = with_gaps()
    with other_values(SIZES, exact_samples=60, max_incomplete_samples=100):
        with pytest.raises(DataError):
            MSCAM(3, n_jobs=1).fit(views)
        complete = [np.nan_to_num(view) for view in views]
        assert len(quick().fit(complete).labels_) == 150


def holed() -> list[Array]:
    """Views of 72 samples; cells of the first and the last are missing."""
    views, _ = gaussian_views(0, n_samples=72, spread=1.5, dims=(4, 7, 3))
    views[0][[3, 3, 9], [0, 2, 1]] = np.nan
    views[2][5, 1] = np.nan
    return views


def test_missing_cells_of_all_views_are_refused_together() -> None:
    with raises(DataError, "'view_0'", 3, "1.04%", [3, 9], [0, 1, 2], "'view_2'", [5], "impute"):
        quick().fit(holed())


@pytest.mark.parametrize("method", ["mean", "median", "knn"])
def test_a_fit_is_that_of_the_imputed_views(method: str) -> None:
    views = holed()
    reference = KNNImputer() if method == "knn" else SimpleImputer(strategy=method)
    filled = [reference.fit_transform(view) for view in views]
    model = quick(impute=method).fit(views)
    expected = quick().fit(filled)
    assert_array_equal(model.labels_, expected.labels_)
    assert all(map(np.array_equal, views, holed(), [True] * 3))  # as the caller gave them
    assert set(model.imputed_shares_) == {"view_0", "view_2"}
    shares = np.zeros(72)
    shares[[3, 9]] = 2 / 4, 1 / 4
    assert_allclose(model.imputed_shares_["view_0"], shares)
    assert_array_equal(model.predict(views), expected.predict(filled))
    new = [view[:12].copy() for view in views]
    new[1][4, 3] = np.nan  # a column without missing cells in the fit
    by_reference = [
        reference.fit(view).transform(one) for view, one in zip(views, new, strict=True)
    ]
    assert_array_equal(model.predict(new), expected.predict(by_reference))
    assert_allclose(model.predict_proba(new), expected.predict_proba(by_reference))


def test_views_that_are_mostly_missing_are_refused() -> None:
    views = holed()
    views[1][:, :4] = np.nan
    with pytest.raises(DataError):
        quick(impute="mean").fit(views)
    views = holed()
    views[1][:, 4] = np.nan
    with pytest.raises(DataError):
        quick(impute="knn").fit(views)
