"""What a fitted model says of samples: labels, memberships, distances and the score."""

from __future__ import annotations

import pickle
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score

from mscam_dask import MSCAM, MSCAN, Constants
from mscam_dask.data.store.dataset import write_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.engine.scores import reference_graphs_of_view
from mscam_dask.errors import DataError
from mscam_dask.estimators._describe import label_free_scores
from mscam_dask.estimators._inputs import views_to_predict
from mscam_dask.linalg.neighbor_information import modularity
from mscam_dask.solvers.partition_score import explained_share
from mscam_dask.solvers.spectral_cut import sampled_rows
from mscam_dask.types.rules import CONSTANTS, SIZES
from tests.blocks import other_values, small_blocks
from tests.clusters import local_client
from tests.estimators.small import integer_views, pair_views, quick
from tests.synthetic import distances_between, gaussian_views


@pytest.mark.parametrize(
    ("estimator", "scale"),
    [*((MSCAM, scale) for scale in (None, "unit", "minmax")), (MSCAN, "standard"), (MSCAN, "none")],
)
def test_prediction_on_training_and_held_out_samples(estimator: Any, scale: str | None) -> None:
    views, labels = gaussian_views(1, n_samples=240, n_clusters=4, spread=1.3)
    train, test = slice(0, 160), slice(160, 240)
    model = estimator(4, scale=scale, max_iter=3, n_jobs=1).fit([v[train] for v in views])
    assert adjusted_rand_score(labels[train], model.labels_) > 0.95
    again = model.predict([view[train] for view in views])
    assert again.dtype == np.int64
    assert np.mean(again == model.labels_) >= 0.95
    held_out = model.predict([view[test] for view in views])
    # in the numbering of the fit: class by class the same cluster as in training
    numbering = {int(y): int(label) for y, label in zip(labels[train], model.labels_, strict=True)}
    assert np.mean(held_out == [numbering[int(y)] for y in labels[test]]) >= 0.95


@pytest.mark.parametrize("value", [7.5, np.nan, 1e308])
@pytest.mark.parametrize("form", ["array", "sparse", "dask", "table"])
def test_what_a_fit_says_later_of_data_that_were_written_to_is_refused(
    form: str, value: float
) -> None:
    views = integer_views()
    held = views[1]
    if form == "sparse":
        table: Any = scipy.sparse.csr_array(views[1])
        held = table.data
    elif form == "dask":
        table = da.map_blocks(lambda rows: rows + held[:18], da.zeros((18, 7), chunks=18))
        table = da.concatenate([table, da.from_array(views[1][18:].copy(), chunks=18)])
    else:
        table = views[1]
    one = form == "table"
    given = table if one else {"a": views[0].copy(), "b": table}
    new = views[1].copy() if one else {"a": views[0].copy(), "b": views[1].copy()}
    model = quick().fit(given)
    expected = model.predict(new)
    before = held[3].copy()
    held[3] = value
    for ask in (lambda: model.predict(new), lambda: model.membership_, model.cluster_features):
        with pytest.raises(DataError):
            ask()
    held[3] = before
    assert_array_equal(model.predict(new), expected)


def test_prediction_from_distances_and_kernel_values_to_the_training_samples() -> None:
    a, distances, kernel, _ = pair_views()
    view_type = {"d": "distance", "k": "kernel"}
    old, new = (
        {"f": a[rows], "d": distances[rows, :60], "k": kernel[rows, :60]}
        for rows in (slice(60), slice(60, 75))
    )
    model = quick(view_type=view_type).fit(old)
    whole = quick(view_type=view_type).fit({"f": a, "d": distances, "k": kernel})
    assert adjusted_rand_score(whole.labels_[60:], model.predict(new)) == 1.0
    assert_allclose(model.predict_proba(new).sum(axis=1), 1.0)
    assert model.transform(new).shape == (15, 3)
    features = model.cluster_features()
    assert set(zip(features["view"], features["feature"], strict=True)) == set(product("f", "0123"))
    with pytest.raises(DataError):
        model.score(new)


@pytest.mark.parametrize("of_fit", [False, True], ids=["new samples", "samples of the fit"])
@pytest.mark.parametrize("n_without", [0, 12], ids=["complete", "incomplete"])
def test_columns_of_new_distances_are_matched_by_the_ids_of_the_fit(
    of_fit: bool, n_without: int
) -> None:
    """Frames of distances may have their columns in any order, in the fit and for new samples."""
    views, _ = gaussian_views(n_samples=60, n_clusters=3, seed=0)
    ids, rng = np.array([f"s{row}" for row in range(60)]), np.random.default_rng(0)
    points, new = views[0], views[0][::2] if not of_fit else views[0]
    names = ids if of_fit else [f"n{row}" for row in range(len(new))]
    features = pd.DataFrame(points, ids)
    pairs = pd.DataFrame(distances_between(points), ids, ids)
    pairs.iloc[60 - n_without :] = np.nan
    pairs.iloc[:, 60 - n_without :] = np.nan
    given = pd.DataFrame(np.linalg.norm(new[:, None] - points, axis=2), names, ids)

    def predicted(fitted: Any, table: Any, *, is_alone: bool = False) -> Any:
        model = MSCAM(3, n_jobs=1, view_type="distance" if is_alone else {"d": "distance"})
        model.fit(fitted if is_alone else {"f": features, "d": fitted})
        return model.predict_proba(table if is_alone else {"d": table})

    wanted = predicted(pairs.to_numpy(), given.to_numpy())
    one, other, rows = rng.permutation(60), rng.permutation(60), rng.permutation(len(new))
    found = predicted(pairs.iloc[one, one], given.iloc[rows, other])
    assert_allclose(found, wanted[rows])
    if not n_without:
        wanted = predicted(pairs.to_numpy(), given.to_numpy(), is_alone=True)
        found = predicted(pairs.iloc[:, one], given.iloc[rows, one], is_alone=True)
        assert_allclose(found, wanted[rows])


@pytest.mark.parametrize("form", ["unnamed", "as data", "table of Arrow"])
def test_rows_of_new_distances_are_no_samples_of_the_fit(form: str) -> None:
    """As many new samples as in the fit may be in another order than its samples, and absent in a view."""
    views, _ = gaussian_views(n_samples=60, n_clusters=3, seed=0)
    rng, ids = np.random.default_rng(0), [f"s{row}" for row in range(60)]
    points, new = views[0], views[0] + 0.1
    pairs = pd.DataFrame(distances_between(points), ids, ids)
    model = MSCAM(3, n_jobs=1, view_type={"d": "distance"})
    model.fit({"f": pd.DataFrame(points, ids), "d": pairs})
    own, order = [f"n{row}" for row in range(60)], rng.permutation(60)
    table: Any = pd.DataFrame(np.linalg.norm(new[:, None] - points, axis=2), own, ids)
    table.iloc[3] = np.nan
    wanted = model.predict_proba({"f": new, "d": table})
    if form == "table of Arrow":  # without an index: row i is sample i
        own = [*rng.permutation(ids)]
        table = pytest.importorskip("pyarrow").Table.from_pandas(table, preserve_index=False)
    else:
        table = table.iloc[order].set_axis(range(60), axis=1)
    given: Any = {"f": pd.DataFrame(new, own), "d": table}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that there are no names
        found = model.predict_proba(as_multi_view(given) if form == "as data" else given)
    assert_allclose(found, wanted)


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
    views, _ = gaussian_views(0, n_samples=60, dims=(6,))
    frame = pd.DataFrame(views[0], [f"s{i}" for i in range(60)]).add_prefix("x")
    model = quick().set_output(transform="pandas").fit(frame)
    found = model.transform(frame)
    assert found.columns.tolist() == ["mscam0", "mscam1", "mscam2"]
    assert found.columns.tolist() == model.get_feature_names_out().tolist()
    assert found.index.tolist() == frame.index.tolist()
    other = MSCAN(2, constants=Constants.paper(), max_iter=1).fit(views)
    assert other.get_feature_names_out().tolist() == ["mscan0", "mscan1"]
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
    for n_samples in (1, 2):
        with pytest.raises(DataError):
            model.score([view[:n_samples] for view in views])


def test_a_large_set_is_scored_on_a_sample() -> None:
    n = SIZES.n_scored + 400
    views, labels = gaussian_views(0, n_samples=n, spread=1.0, dims=(3,))
    rows = sampled_rows(n, SIZES.n_scored)
    found = label_free_scores(as_multi_view(views), labels)
    expected = label_free_scores(as_multi_view([view[rows] for view in views]), labels[rows])
    assert found == expected


@pytest.mark.parametrize("estimator", [MSCAM, MSCAN])
def test_rows_sum_to_one_and_confidence_is_the_own_cluster(estimator: Any) -> None:
    views, _ = gaussian_views(0, n_samples=120, n_clusters=4, spread=1.5)
    model = estimator(4, constants=Constants.paper(), max_iter=2, n_jobs=1).fit(views)
    assert model._membership is None  # nothing is computed by the fit
    membership = model.membership_
    assert membership.shape == (120, 4)
    assert membership.min() > 0
    assert_allclose(membership.sum(axis=1), 1.0)
    assert_array_equal(model.confidence_, membership[np.arange(120), model.labels_])
    assert model.membership_ is membership
    loaded = pickle.loads(pickle.dumps(model))
    assert_array_equal(loaded.confidence_, model.confidence_)


def test_no_sample_votes_for_itself() -> None:
    views, _ = gaussian_views(0, n_samples=90, spread=3.0)
    model = quick().fit(views)
    moved = 7
    others = np.flatnonzero(model.labels_ != model.labels_[moved])
    model.labels_[moved] = model.labels_[others[0]]  # against all its neighbors
    assert model.confidence_[moved] < 0.1
    assert model.confidence_.mean() > 0.8


def test_new_samples_are_predicted_alike_together_one_by_one_and_by_small_blocks() -> None:
    views, _ = gaussian_views(1, n_samples=240, n_clusters=4, spread=2.0)
    model = quick(4).fit([view[:160] for view in views])
    new = [view[160:] for view in views]
    together = model.predict_proba(new)
    assert_allclose(together.sum(axis=1), 1.0)
    assert_array_equal(together.argmax(axis=1), model.predict(new))
    alone = [model.predict_proba([view[i : i + 1] for view in new]) for i in range(5)]
    assert_allclose(np.concatenate(alone), together[:5])
    with small_blocks(8 * 47 * 11):
        assert_array_equal(model.predict(new), together.argmax(axis=1))


def test_rows_of_a_large_store_are_read_by_tasks(tmp_path: Path) -> None:
    views, _ = gaussian_views(1, n_samples=300, n_clusters=3, spread=3.0)
    views[0][17] = np.nan  # a sample that one view does not have
    store = write_store(as_multi_view(views), tmp_path / "data.zarr")
    in_memory = quick().fit(views)
    with other_values(SIZES, exact_samples=60), small_blocks(2**12):
        membership, votes = in_memory.membership_, in_memory.view_votes_
    with local_client(2) as client:
        model = quick(client=client).fit(str(store))
        with other_values(SIZES, exact_samples=60):
            assert_array_equal(model.membership_, membership)
    for n_jobs in (1, 2):
        again = quick(client=client, n_jobs=n_jobs)  # which is closed: tasks run in threads
        again._keep_fit(model.solution_, model._training)
        with other_values(SIZES, exact_samples=60):
            assert_array_equal(again.membership_, membership)
            assert again.view_votes_.keys() == votes.keys()
            assert all(np.array_equal(again.view_votes_[view], votes[view]) for view in votes)
