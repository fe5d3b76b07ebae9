"""What a fitted model holds, and what it tells and warns of."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.metrics import adjusted_rand_score

from mscam_dask import MSCAM, MSCAN, Constants, Status
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.errors import ConvergenceWarning, DataError, DataWarning
from mscam_dask.estimators._fitted import warn_of_result
from mscam_dask.estimators._inputs import equal_samples
from mscam_dask.types.events import FitFinished, FitStarted
from tests.estimators.small import integer_views, quick
from tests.synthetic import assert_partition_and_graph_agree, gaussian_views


@pytest.mark.parametrize("estimator", [MSCAM, MSCAN])
def test_attributes_by_definition(estimator: Any) -> None:
    views, _ = gaussian_views(4, n_samples=100, spread=0.8)
    events: list[Any] = []
    model = estimator(3, n_jobs=1, max_iter=4, callbacks=[events.append]).fit(views)
    assert_partition_and_graph_agree(model.solution_, n_clusters=3)
    assert_array_equal(model.labels_, model.solution_.labels)
    assert model.n_connected_components_ == 3
    assert isinstance(model.status_, Status)
    assert model.status_.message.strip()
    assert model.n_iter_ == len(model.history_.outer_iteration) <= 4
    assert model.history_["primal_residual"].dims == ("outer_iteration", "view")
    assert model.history_.sizes["view"] == 3
    assert set(model.history_["n_connected_components"].to_numpy()) <= set(range(1, 101))
    assert isinstance(events[0], FitStarted)
    assert isinstance(events[-1], FitFinished)
    columns = {name: embedding.shape[1] for name, embedding in model.view_embeddings_.items()}
    if estimator is MSCAM:
        assert set(columns.values()) == {3}
    assert list(columns) == list(model.view_names_)


def test_views_have_equal_shares_in_a_score_that_is_rounding() -> None:
    views, _ = gaussian_views(4, n_samples=90, dims=(6, 8))
    model = quick(1).fit({"a": views[0], "b": views[1]})
    assert abs(model.cross_view_information_) < 1e-7
    assert model.view_contributions_ == {"a": 0.5, "b": 0.5}


def test_a_model_fitted_again_forgets_the_first_data() -> None:
    table = np.hstack(integer_views())
    model = quick().fit(table)
    views, _ = gaussian_views(6, n_samples=50, dims=(3, 8))
    model.fit(views)
    assert model.labels_.shape == (50,)
    assert model.predict(views).shape == (50,)
    with pytest.raises(DataError):
        model.predict(table)
    assert not hasattr(model, "n_features_in_")


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


def test_findings_are_kept() -> None:
    views = integer_views()
    views[0][:, 1] = 5.0
    views[1][[3, 9]] = 0.0
    model = quick().fit({"a": views[0], "b": views[1]})
    found = {(finding.view, finding.kind, finding.count) for finding in model.data_warnings_}
    assert found == {("a", "constant columns", 1), ("b", "zero rows", 2)}


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
    model = MSCAM(n_clusters=3, constants=Constants.paper(), max_iter=2, n_jobs=1)
    solution = model.fit(views).solution_  # a warning would be an error
    assert model.history_["spectrum_converged"].values.tolist() == [1] * model.n_iter_
    rough = [dataclasses.replace(one, spectrum_converged=False) for one in solution.history]
    with pytest.warns(ConvergenceWarning):
        warn_of_result(
            dataclasses.replace(solution, history=tuple(rough)),
            (),
            views_selected=True,
        )


def test_asking_for_settings_leaves_the_model_as_it_was() -> None:
    (view,), _ = gaussian_views(5, n_samples=60, dims=(6,))
    table = pd.DataFrame(view, columns=list("abcdef"))
    model = quick().fit(table)
    before = {**vars(model)}
    assert model.candidate_settings(view[:, :4]) == quick().candidate_settings(view)
    assert vars(model) == before
    assert model.n_features_in_ == 6
    assert_array_equal(model.predict(table), model.labels_)
    fresh = quick()
    fresh.candidate_settings(view)
    assert not hasattr(fresh, "n_features_in_")


def draws(n_draws: int) -> Iterator[list[np.ndarray]]:
    """Independent views without clusters: normal and uniform."""
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        n_samples, n_views = int(rng.integers(80, 160)), int(rng.integers(2, 4))
        dims = rng.integers(3, 20, size=n_views).tolist()
        yield [(rng.normal, rng.uniform)[seed % 2](size=(n_samples, d)) for d in dims]


@pytest.mark.thorough
def test_independent_views_are_warned_of() -> None:
    silent = several = 0
    for views in draws(9):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = MSCAM("auto", max_clusters=8, n_jobs=1).fit(views)
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
    assert equal_samples([widest, *views], SerialExecutor()) is None
    with pytest.raises(AssertionError):
        equal_samples([widest], SerialExecutor())
