"""The scikit-learn face: scikit-learn's own checks, every kind of input, prediction, refusals."""

from __future__ import annotations

import dataclasses
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xarray as xr
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import mscam_dask
from mscam_dask import MSCAM, MSCAN, Status
from mscam_dask.data.ingest import ingest
from mscam_dask.data.views import as_multi_view
from mscam_dask.engine import local
from mscam_dask.engine.tasks import graph as graph_tasks
from mscam_dask.errors import (
    ConfigurationError,
    ConvergenceWarning,
    DataError,
    MscamError,
)
from mscam_dask.kernels.spectrum import bottom_eigenpairs
from mscam_dask.model.records import FitEnded, FitStarted
from mscam_dask.solvers import view_basis
from tests.clusters import local_client
from tests.synthetic import assert_partition_and_graph_agree, gaussian_views

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


class TwoViewsMSCAM(MSCAM):
    """MSCAM with any table cut into two views, so that scikit-learn's checks reach that form."""

    def _halved(self, X: Any, call: Callable[[Any], Any]) -> Any:
        shape = getattr(X, "shape", None) or np.shape(X)
        if len(shape) == 2 and shape[1] > 1:
            self.view_sizes = (shape[1] // 2, shape[1] - shape[1] // 2)
        try:
            return call(X)
        finally:
            self.view_sizes = None

    def fit(self, X: Any, y: object = None) -> Self:
        self._halved(X, super().fit)
        return self

    def predict(self, X: Any) -> Labels:
        return np.asarray(self._halved(X, super().predict))


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        MSCAM(max_outer_iter=1, n_jobs=1),
        MSCAN(max_outer_iter=1, n_jobs=1, selection=None),
        TwoViewsMSCAM(max_outer_iter=1, n_jobs=1, selection=None),
    ]
)
def test_scikit_learns_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def quick(n_clusters: Any = 3, **parameters: Any) -> MSCAM:
    """MSCAM with one setting and a short path."""
    return MSCAM(n_clusters, **{"selection": None, "max_outer_iter": 2, "n_jobs": 1, **parameters})


# ---------------------------------------------------------------------------------------------
# What comes in
# ---------------------------------------------------------------------------------------------


def integer_views() -> list[Array]:
    """Small whole numbers, with many zeros: exact in every dtype and sparse form."""
    views, _ = gaussian_views(0, n_samples=72, spread=1.5, dims=(4, 7))
    return [np.where(np.abs(view) < 0.3, 0.0, np.round(4 * view)) for view in views]


def same_in_another_form(
    form: str, views: list[Array], tmp_path: Path
) -> tuple[Any, dict[str, Any]]:
    """(X, parameters) that mean `views`."""
    table = np.hstack(views)
    sizes = {"view_sizes": tuple(view.shape[1] for view in views)}
    index = [f"sample {i}" for i in range(len(table))]
    strided = np.zeros((2 * len(table), 2 * table.shape[1]))
    strided[::2, ::2] = table
    read_only = [view.copy() for view in views]
    for view in read_only:
        view.flags.writeable = False
    store = tmp_path / "views.zarr"
    if form.startswith("store"):
        ingest(as_multi_view({"x": views[0], "y": views[1]}), store)
    dataset = xr.Dataset({"x": (("sample", "fx"), views[0]), "y": (("sample", "fy"), views[1])})
    forms: dict[str, tuple[Any, dict[str, Any]]] = {
        "tuple": (tuple(views), {}),
        "dict": ({"b": views[0], "a": views[1]}, {}),
        "table": (table, sizes),
        "table as lists": (table.tolist(), sizes),
        "table, sparse": (scipy.sparse.csr_array(table), sizes),
        "table, sparse matrix by columns": (scipy.sparse.csc_matrix(table), sizes),
        "table, dictionary of keys": (scipy.sparse.dok_array(table), sizes),
        "table, dask": (da.from_array(table, chunks=(20, 3)), sizes),  # type: ignore[no-untyped-call]
        "table, strided": (strided[::2, ::2], sizes),
        "table, pandas": (pd.DataFrame(table, columns=[f"c{i}" for i in range(11)]), sizes),
        "fortran": ([np.asfortranarray(view) for view in views], {}),
        "float32": ([view.astype(np.float32) for view in views], {}),
        "int16": ([view.astype(np.int16) for view in views], {}),
        "big-endian": ([view.astype(">f8") for view in views], {}),
        "big-endian int": ([view.astype(">i4") for view in views], {}),
        "read-only": (read_only, {}),
        "reversed twice": ([view[::-1, ::-1].copy()[::-1, ::-1] for view in views], {}),
        "sparse rows": ([scipy.sparse.csr_array(view) for view in views], {}),
        "sparse columns": ([scipy.sparse.csc_array(view) for view in views], {}),
        "sparse and dense": ([scipy.sparse.coo_array(views[0]), views[1]], {}),
        "dask": ([da.from_array(view, chunks=(10, 2)) for view in views], {}),  # type: ignore[no-untyped-call]
        "pandas": ([pd.DataFrame(view, index=index) for view in views], {}),
        "xarray": ([xr.DataArray(view, dims=("sample", "f")) for view in views], {}),
        "dataset": (dataset, {}),
        "dataset, transposed and chunked": (dataset.transpose().chunk({"sample": 30}), {}),
        "store path": (store, {}),
        "store name": (str(store), {}),
        "multi-view data": (as_multi_view(views), {}),
    }
    return forms[form]


FORMS = (
    "tuple",
    "dict",
    "table",
    "table as lists",
    "table, sparse",
    "table, sparse matrix by columns",
    "table, dictionary of keys",
    "table, dask",
    "table, strided",
    "table, pandas",
    "fortran",
    "float32",
    "int16",
    "big-endian",
    "big-endian int",
    "read-only",
    "reversed twice",
    "sparse rows",
    "sparse columns",
    "sparse and dense",
    "dask",
    "pandas",
    "xarray",
    "dataset",
    "dataset, transposed and chunked",
    "store path",
    "store name",
    "multi-view data",
)


@pytest.fixture(scope="module")
def plain_labels() -> Labels:
    return quick().fit(integer_views()).labels_


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_same_views_gives_the_same_clusters(
    form: str, plain_labels: Labels, tmp_path: Path
) -> None:
    X, parameters = same_in_another_form(form, integer_views(), tmp_path)
    model = quick(**parameters).fit(X)
    assert_array_equal(model.labels_, plain_labels)
    # what was fitted can be predicted in the same form
    assert np.mean(model.predict(X) == model.labels_) >= 0.95
    assert len(model.view_names_) == 2


def test_views_are_not_written_to() -> None:
    views = integer_views()
    before = [view.copy() for view in views]
    quick().fit(views).predict(views)
    for view, copy in zip(views, before, strict=True):
        assert_array_equal(view, copy)


def test_view_names_come_from_the_input() -> None:
    views = integer_views()
    model = quick().fit({"shape": views[0], "colour": views[1]})
    assert model.view_names_ == ("shape", "colour")
    assert set(model.view_contributions_) == set(model.view_embeddings_) == {"shape", "colour"}
    assert list(model.history_.coords["view"].to_numpy()) == ["shape", "colour"]


def pair_views() -> tuple[Array, Array, Array, Labels]:
    """Features, distances between and kernel of the same points in three views' worth of kinds."""
    (a, b, c), labels = gaussian_views(3, n_samples=75, spread=2.0, dims=(4, 5, 6))
    distances = np.sqrt(np.sum((b[:, None] - b[None]) ** 2, axis=2))
    np.fill_diagonal(distances, 0.0)
    return a, distances, c @ c.T, labels


def test_metrics_by_name_by_position_and_for_all() -> None:
    a, distances, kernel, labels = pair_views()
    named = {"f": a, "d": distances, "k": kernel}
    by_name = quick(metric={"d": "distance", "k": "kernel"}).fit(named)
    by_position = quick(metric=("features", "distance", "kernel")).fit([a, distances, kernel])
    assert_array_equal(by_name.labels_, by_position.labels_)
    assert adjusted_rand_score(labels, by_name.labels_) == 1.0
    for_all = quick(metric="distance").fit([distances])
    assert adjusted_rand_score(labels, for_all.labels_) == 1.0


def test_prediction_from_distances_and_kernel_values_to_the_training_samples() -> None:
    a, distances, kernel, _ = pair_views()
    metric = {"d": "distance", "k": "kernel"}
    train, test = np.arange(60), np.arange(60, 75)
    model = quick(metric=metric).fit(
        {
            "f": a[train],
            "d": distances[np.ix_(train, train)],
            "k": kernel[np.ix_(train, train)],
        }
    )
    new = {
        "f": a[test],
        "d": distances[np.ix_(test, train)],
        "k": kernel[np.ix_(test, train)],
    }
    whole = quick(metric=metric).fit({"f": a, "d": distances, "k": kernel})
    assert adjusted_rand_score(whole.labels_[test], model.predict(new)) == 1.0


# ---------------------------------------------------------------------------------------------
# Prediction
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [MSCAM, MSCAN])
@pytest.mark.parametrize("scale", ["standard", "unit", "minmax", "none", None])
def test_prediction_on_training_and_held_out_samples(estimator: Any, scale: str | None) -> None:
    views, labels = gaussian_views(1, n_samples=240, n_clusters=4, spread=1.3)
    train, test = slice(0, 160), slice(160, 240)
    model = estimator(4, scale=scale, max_outer_iter=3, n_jobs=1).fit([v[train] for v in views])
    assert adjusted_rand_score(labels[train], model.labels_) > 0.95
    again = model.predict([view[train] for view in views])
    assert again.dtype == np.int64
    assert np.mean(again == model.labels_) >= 0.95
    held_out = model.predict([view[test] for view in views])
    # in the numbering of the fit: class by class the same cluster as in training
    numbering = {int(y): int(label) for y, label in zip(labels[train], model.labels_, strict=True)}
    assert np.mean(held_out == [numbering[int(y)] for y in labels[test]]) >= 0.95


def test_prediction_goes_by_names_not_by_order() -> None:
    views, _ = gaussian_views(2, n_samples=90, spread=2.0, dims=(6, 6))
    model = quick().fit({"a": views[0], "b": views[1]})
    assert_array_equal(
        model.predict({"b": views[1], "a": views[0]}),
        model.predict({"a": views[0], "b": views[1]}),
    )


def test_prediction_of_one_sample_and_of_the_sample_in_other_company() -> None:
    views, _ = gaussian_views(2, n_samples=90, spread=1.0)
    model = quick().fit(views)
    together = model.predict(views)
    for i in (0, 17, 89):
        assert model.predict([view[i : i + 1] for view in views]) == together[i]


def test_prediction_by_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    views, _ = gaussian_views(2, n_samples=90, spread=1.0)
    model = quick().fit(views)
    whole = model.predict(views)
    monkeypatch.setattr(view_basis, "_BLOCK_BYTES", 8 * 47 * 11)
    assert_array_equal(model.predict(views), whole)


def test_fit_predict_is_fit_then_labels() -> None:
    views = integer_views()
    assert_array_equal(quick().fit_predict(views), quick().fit(views).labels_)


@pytest.mark.parametrize("n_clusters", [1, 60])
def test_prediction_after_a_trivial_fit(n_clusters: int) -> None:
    views, _ = gaussian_views(2, n_samples=60)
    model = quick(n_clusters).fit(views)
    assert set(model.predict(views).tolist()) <= set(range(n_clusters))


# ---------------------------------------------------------------------------------------------
# What a fitted model is
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [MSCAM, MSCAN])
def test_attributes_by_definition(estimator: Any) -> None:
    views, _ = gaussian_views(4, n_samples=100, spread=0.8)
    events: list[Any] = []
    model = estimator(3, n_jobs=1, max_outer_iter=4, callbacks=[events.append]).fit(views)
    assert_partition_and_graph_agree(model.solution_, n_clusters=3)
    assert_array_equal(model.labels_, model.solution_.labels)
    assert model.n_connected_components_ == 3
    assert isinstance(model.status_, Status)
    assert model.status_.message.strip()
    assert model.n_iter_ == len(model.history_.outer_iteration)
    assert model.history_["primal_residual"].dims == ("outer_iteration", "view")
    assert model.history_.sizes["view"] == 3
    assert set(model.history_["n_connected_components"].to_numpy()) <= set(range(1, 101))
    assert isinstance(events[0], FitStarted)
    assert isinstance(events[-1], FitEnded)
    columns = {name: embedding.shape[1] for name, embedding in model.view_embeddings_.items()}
    if estimator is MSCAM:
        assert set(columns.values()) == {3}
    assert list(columns) == list(model.view_names_)


def test_history_of_a_fit_without_a_path() -> None:
    views, _ = gaussian_views(4, n_samples=30)
    for n_clusters in (1, 30):
        history = quick(n_clusters).fit(views).history_
        assert history.sizes == {"outer_iteration": 0, "view": 3}


def test_get_params_set_params_and_clone() -> None:
    model = MSCAM(4, alpha=2.0, scale="unit", metric={"a": "kernel"}, random_state=3)
    copy = clone(model)
    assert copy is not model
    assert copy.get_params() == model.get_params()
    assert copy.set_params(alpha=5.0, n_clusters=2) is copy
    assert (copy.alpha, copy.n_clusters, model.alpha) == (5.0, 2, 2.0)
    with pytest.raises(ValueError, match="Invalid parameter"):
        copy.set_params(no_such_parameter=1)


def test_a_fitted_model_survives_pickling() -> None:
    views, _ = gaussian_views(5, n_samples=90)
    model = quick().fit(views)
    back = pickle.loads(pickle.dumps(model))
    assert_array_equal(back.labels_, model.labels_)
    assert_array_equal(back.predict(views), model.predict(views))
    assert back.history_.equals(model.history_)
    assert (back.consensus_graph_ != model.consensus_graph_).nnz == 0


def test_a_model_fitted_again_forgets_the_first_data() -> None:
    table = np.hstack(integer_views())
    model = quick().fit(table)
    views, _ = gaussian_views(6, n_samples=50, dims=(3, 8))
    model.fit(views)
    assert model.labels_.shape == (50,)
    assert model.predict(views).shape == (50,)
    with pytest.raises((DataError, ValueError), match=r"columns|features"):
        model.predict(table)


@pytest.mark.parametrize("n_jobs", [1, 2, None, -1, np.int64(2)])
def test_number_of_threads_changes_no_bit(n_jobs: Any) -> None:
    views, _ = gaussian_views(7, n_samples=90, spread=0.7)
    one = quick().fit(views)
    other = quick(n_jobs=n_jobs).fit(views)
    assert_array_equal(other.labels_, one.labels_)
    assert other.consensus_graph_.data.tobytes() == one.consensus_graph_.data.tobytes()


def test_threads_are_counted_where_affinity_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert local.usable_cores() == (os.cpu_count() or 1)


@pytest.mark.parametrize("random_state", [0, 7, None, np.int64(3), np.random.RandomState(1)])
def test_any_random_state_of_scikit_learn(random_state: Any) -> None:
    views, labels = gaussian_views(8, n_samples=60, spread=2.0)
    model = quick(random_state=random_state).fit(views)
    assert adjusted_rand_score(labels, model.labels_) == 1.0


def test_numbers_of_numpy_are_numbers() -> None:
    views, _ = gaussian_views(8, n_samples=60)
    model = quick(np.int64(3), alpha=np.float32(1.0), n_neighbors=np.int32(9), tol=np.float64(0.0))
    assert_array_equal(model.fit(views).labels_, quick(tol=0.0).fit(views).labels_)


def test_on_a_cluster() -> None:
    views, _ = gaussian_views(9, n_samples=90, spread=0.8)
    with local_client(1, threads_per_worker=2, processes=False) as client:
        model = quick(client=client).fit(views)
    assert_array_equal(model.labels_, quick().fit(views).labels_)


def test_paper_solver() -> None:
    views, labels = gaussian_views(10, n_samples=40, spread=6.0)
    model = quick(solver="paper").fit(views)
    assert adjusted_rand_score(labels, model.labels_) == 1.0
    assert model.n_connected_components_ == 3
    assert model.history_.sizes["view"] == 3
    with pytest.raises(ConfigurationError, match="no form for new samples"):
        model.predict(views)


def test_paper_solver_warns_when_components_are_not_reached() -> None:
    views, _ = gaussian_views(11, n_samples=40, spread=0.0)
    with pytest.warns(ConvergenceWarning, match=r"connected components instead of 7"):
        model = quick(7, solver="paper", max_outer_iter=1).fit(views)
    assert model.status_ is Status.COMPONENTS_NOT_REACHED


def test_reduced_and_paper_solver_agree_where_clusters_are_plain() -> None:
    views, _ = gaussian_views(12, n_samples=45, spread=5.0)
    for estimator in (MSCAM, MSCAN):
        labels = [
            estimator(3, selection=None, solver=solver, n_jobs=1, max_outer_iter=5)
            .fit(views)
            .labels_
            for solver in ("reduced", "paper")
        ]
        assert_array_equal(labels[0], labels[1])


def test_findings_are_kept() -> None:
    views = integer_views()
    views[0][:, 1] = 5.0
    views[1][[3, 9]] = 0.0
    model = quick().fit({"a": views[0], "b": views[1]})
    found = {(finding.view, finding.kind, finding.count) for finding in model.data_findings_}
    assert found == {("a", "constant columns", 1), ("b", "zero rows", 2)}


def test_a_view_whose_rows_have_one_direction_does_not_stop_the_choice_of_scaling() -> None:
    # unit length makes all rows of a positive column equal; other scalings do not
    (plain,), labels = gaussian_views(13, n_samples=60, spread=3.0, dims=(5,))
    model = MSCAM(3, n_jobs=1).fit({"age": 30.0 + 10.0 * labels[:, None], "rest": plain})
    assert adjusted_rand_score(labels, model.labels_) == 1.0
    assert model.view_preparations_["age"].scale == "standard"
    with pytest.raises(DataError, match=r"'age'.*scale='unit'"):
        quick(scale="unit").fit({"age": 30.0 + 10.0 * labels[:, None], "rest": plain})


# ---------------------------------------------------------------------------------------------
# Refusals
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_clusters": 0}, "n_clusters=0"),
        ({"n_clusters": 73}, r"n_clusters=73 with 72 sample\(s\); allowed are 1 to 72"),
        ({"n_clusters": 2.0}, r"n_clusters=2\.0"),
        ({"n_clusters": True}, "n_clusters=True"),
        ({"n_clusters": "three"}, "n_clusters='three'"),
        ({"n_neighbors": 72}, r"n_neighbors=72 with 72 sample\(s\); allowed are 1 to 71"),
        ({"n_neighbors": 0}, "n_neighbors=0"),
        ({"solver": "fast"}, "solver='fast'.*'reduced', 'paper'"),
        ({"selection": "best"}, "selection='best'"),
        ({"scale": "log"}, "scale='log'"),
        ({"metric": "cosine"}, "metric='cosine'"),
        ({"metric": ("features",)}, "1 entries for 2 views"),
        ({"metric": {"no such view": "kernel"}}, "no such view"),
        ({"alpha": 0.0}, r"alpha=0\.0"),
        ({"alpha": float("nan")}, "alpha=nan"),
        ({"graph_weight": -1.0}, r"graph_weight=-1\.0"),
        ({"metric_floor": 0.0}, r"metric_floor=0\.0"),
        ({"metric_ridge": -0.1}, r"metric_ridge=-0\.1"),
        ({"max_outer_iter": 0}, "max_outer_iter=0"),
        ({"tol": -1.0}, r"tol=-1\.0"),
        ({"n_jobs": 0}, "n_jobs=0"),
        ({"n_jobs": 1.5}, r"n_jobs=1\.5"),
        ({"n_jobs": -2}, "n_jobs=-2"),
        ({"random_state": -1}, "seed=-1"),
        ({"view_sizes": (4, 7)}, r"view_sizes=\(4, 7\).*separate already"),
    ],
)
def test_parameters_out_of_range_are_refused_by_name(
    parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        quick(**parameters).fit(integer_views())


@pytest.mark.parametrize("view_sizes", [(5, 7), (11, 0), (), (-1, 12)])
def test_view_sizes_must_cut_the_table(view_sizes: tuple[int, ...]) -> None:
    with pytest.raises(ConfigurationError, match="view_sizes"):
        quick(view_sizes=view_sizes).fit(np.hstack(integer_views()))


def broken(value: float) -> list[Array]:
    views = integer_views()
    views[1][[5, 40], 2] = value
    return views


@pytest.mark.parametrize(
    ("views", "message"),
    [
        (lambda: {"a": broken(np.nan)[0], "bad": broken(np.nan)[1]}, r"'bad' has 2 NaN.*\[5, 40\]"),
        (lambda: broken(-np.inf), r"'view_1' has 0 NaN and 2 infinite"),
        (lambda: [integer_views()[0], integer_views()[1][:-1]], "different numbers of samples"),
        (lambda: [integer_views()[0], np.ones((72, 3))], "'view_1' is constant"),
        (lambda: [integer_views()[0], np.empty((72, 0))], "'view_1' is empty"),
        (lambda: [integer_views()[0].astype(complex), integer_views()[1]], "complex"),
        (lambda: [integer_views()[0].astype(object), integer_views()[1]], "Python objects"),
        (lambda: [integer_views()[0].astype("datetime64[s]"), integer_views()[1]], "dates"),
        (lambda: [integer_views()[0], np.arange(72.0)], "1 dimension"),
        (dict, "No views"),
        (lambda: Path("no such store.zarr"), "no such store"),
    ],
)
def test_data_that_cannot_be_clustered_are_refused_by_name(
    views: Callable[[], Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        quick().fit(views())


def test_prediction_with_other_views_is_refused() -> None:
    views = integer_views()
    model = quick().fit({"a": views[0], "b": views[1]})
    for wrong in (
        {"a": views[0]},
        {"a": views[0], "c": views[1]},
        {"a": views[0], "b": views[1], "c": views[1]},
        {"a": views[0], "b": views[1][:, :-1]},
        {"a": views[1], "b": views[0]},
        views,
        views[0],
    ):
        with pytest.raises(DataError, match="the fit saw views"):
            model.predict(wrong)


def test_prediction_from_the_wrong_number_of_distances_is_refused() -> None:
    _, distances, _, _ = pair_views()
    model = quick(metric="distance").fit([distances])
    with pytest.raises(DataError, match="the fit saw views"):
        model.predict([distances[:, :-1]])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_prediction_of_missing_values_is_refused_by_view(value: float) -> None:
    model = quick().fit(integer_views())
    with pytest.raises(DataError, match=r"'view_1' has .*\[5, 40\]"):
        model.predict(broken(value))


def test_prediction_before_a_fit_is_refused() -> None:
    with pytest.raises(Exception, match="not fitted") as caught:
        MSCAM(3).predict(integer_views())
    assert isinstance(caught.value, ValueError)
    with pytest.raises(Exception, match="not fitted"):
        _ = MSCAM(3).history_


def test_errors_have_one_root_and_are_value_errors_too() -> None:
    for error in (ConfigurationError, DataError):
        assert issubclass(error, MscamError)
        assert issubclass(error, ValueError)


def test_public_names() -> None:
    assert set(mscam_dask.__all__) <= set(dir(mscam_dask))
    for name in mscam_dask.__all__:
        assert getattr(mscam_dask, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = mscam_dask.no_such_name


def test_eigenvectors_that_did_not_converge_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    real = bottom_eigenpairs

    def rough(*args: Any, **options: Any) -> Any:
        return dataclasses.replace(real(*args, **options), converged=False)

    views, _ = gaussian_views(0, n_samples=60)
    model = MSCAM(n_clusters=3, selection=None, max_outer_iter=2, n_jobs=1)
    model.fit(views)  # a warning would be an error
    assert model.history_["spectrum_converged"].values.tolist() == [1] * model.n_iter_
    monkeypatch.setattr(graph_tasks, "bottom_eigenpairs", rough)
    with pytest.warns(ConvergenceWarning, match=r"in (\d) of \1 outer iterations .*random_state"):
        model.fit(views)
    assert model.history_["spectrum_converged"].values.tolist() == [0] * model.n_iter_
