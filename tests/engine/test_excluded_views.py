"""Views that have nothing in common with the others, and views that only seem to."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from mscam_dask import MSCAM
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.engine.preprocessing_selection import with_view_settings
from mscam_dask.errors import ConfigurationError, DataError, DataWarning, UnstableClustersWarning
from mscam_dask.metrics import adjusted_rand_index
from mscam_dask.types.events import ViewSettingsSelected
from mscam_dask.types.parameters import Choices, Parameters, ViewSettings
from tests.messages import quotes, raises
from tests.snapshots import Memory
from tests.synthetic import assert_partition_and_graph_agree, gaussian_views

Views = dict[str, NDArray[np.float64]]


def with_useless(n_samples: int = 360) -> tuple[Views, NDArray[np.int64]]:
    """Four clusters that touch in two views, a third in another order of samples, and two of noise."""
    rng = np.random.default_rng(1)
    (a, b, c), labels = gaussian_views(
        1, n_samples=n_samples, n_clusters=4, spread=0.8, dims=(8, 10, 12)
    )
    noise = [3 * rng.standard_normal((n_samples, 30)) for _ in range(2)]
    shuffled = c[rng.permutation(n_samples)]
    return dict(zip("abcde", (a, b, shuffled, *noise), strict=True)), labels


USELESS = ("c", "d", "e")


class Fitted(NamedTuple):
    """A fit of all views, its states, and one of the two useful views."""

    views: Views
    model: MSCAM
    memory: Memory
    alone: MSCAM


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    views, _ = with_useless()
    memory = Memory()
    with pytest.warns(DataWarning, match=quotes(["c", "d", "e"], "exclude_views=[]")):
        model = MSCAM(4, n_jobs=1, checkpoint_store=memory).fit(views)
    alone = MSCAM(4, n_jobs=1).fit({name: views[name] for name in "ab"})
    return Fitted(views, model, memory, alone)


def test_views_that_nobody_confirms_are_left_out_and_it_is_said(fitted: Fitted) -> None:
    views, model, _, alone = fitted
    assert model.excluded_views_ == USELESS
    solution = model.solution_
    informative = [record.is_informative for record in solution.selected_view_settings]
    assert informative == [True, True, False, False, False]
    assert {record.exclude_views for record in solution.settings} == {USELESS, ()}
    assert solution.settings[solution.chosen].exclude_views == USELESS
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", UnstableClustersWarning)  # three views are useless
        everything = MSCAM(4, n_jobs=1, exclude_views=[], max_iter=1).fit(views)
    assert everything.excluded_views_ == ()
    labels = with_useless()[1]
    truth = [adjusted_rand_index(labels, one.labels_) for one in (model, alone, everything)]
    assert truth[0] == truth[1]
    assert truth[0] > truth[2] + 0.2


def test_a_fit_is_as_if_they_were_not_there(fitted: Fitted) -> None:
    views, model, _, alone = fitted
    given: dict[str, Any] = {"scale": "standard", "alpha": 1.0, "n_neighbors": 15, "n_jobs": 1}
    pairs = [
        (model, alone),
        (
            MSCAM(4, exclude_views=USELESS, **given).fit(views),
            MSCAM(4, **given).fit({name: views[name] for name in "ab"}),
        ),
    ]
    for one, as_alone in pairs:
        assert_array_equal(one.labels_, as_alone.labels_)
        assert_array_equal(one.consensus_graph_.data, as_alone.consensus_graph_.data)
        assert one.cross_view_information_ == as_alone.cross_view_information_
    # the samples are in order in `c` again where new ones are placed: nobody looks at it
    new = {name: view[:50] for name, view in views.items()}
    other = {**new, **{name: 9.0 * new[name] for name in USELESS}}
    assert_array_equal(model.predict(new), model.predict(other))
    assert np.mean(model.predict(new) == model.labels_[:50]) > 0.95


def test_new_samples_need_no_views_that_are_left_out(fitted: Fitted) -> None:
    views, model, *_ = fitted
    new = {name: view[:50] for name, view in views.items()}
    found = model.predict(new)
    assert_array_equal(model.predict({name: new[name] for name in "ab"}), found)
    assert_array_equal(model.predict({**new, "d": np.full_like(new["d"], np.nan)}), found)
    for wrong in ("abf", "cde"):
        given = {name: new.get(name, new["a"]) for name in wrong}
        with pytest.raises(DataError):
            model.predict(given)
    without = {name: new[name] for name in "acde"}
    assert_array_equal(model.predict(without), model.predict({"a": new["a"]}))
    with pytest.raises(DataError):
        model.predict({**new, "d": new["d"][:, 1:]})


@pytest.mark.usefixtures("small_blocks")
def test_large_data_leave_them_out() -> None:
    views, labels = with_useless(700)
    parameters = Parameters(n_clusters=4, n_neighbors=20, exact_samples=400)
    options = tuple(
        ViewSettings(scale, alpha) for scale in ("unit", "standard") for alpha in (10.0, 1.0)
    )
    choices = Choices(options, initial_graph=True, may_exclude_views=True)
    solution = run_fit(as_multi_view(views), parameters, SerialExecutor(), choices=choices)
    assert solution.exclude_views == USELESS
    assert adjusted_rand_index(labels, solution.labels) > 0.6
    assert_partition_and_graph_agree(solution, n_clusters=4)


def test_a_view_that_tells_what_no_other_does_counts() -> None:
    """Six clusters: two halves that two views tell, times three that the third alone tells."""
    rng = np.random.default_rng(3)
    halves, thirds = rng.integers(2, size=600), rng.integers(3, size=600)
    views = [
        2 * rng.standard_normal((n_groups, 10))[of] + rng.standard_normal((600, 10))
        for of, n_groups in ((halves, 2), (halves, 2), (thirds, 3))
    ]
    model = MSCAM(6, n_jobs=1).fit(views)
    assert [record.is_informative for record in model.solution_.selected_view_settings][-1] is False
    assert model.excluded_views_ == ()
    assert adjusted_rand_index(3 * halves + thirds, model.labels_) > 0.9


@pytest.mark.filterwarnings("ignore::mscam_dask.errors.DataWarning")
def test_a_fit_that_goes_on_leaves_the_same_views_out(fitted: Fitted) -> None:
    views, model, memory, _ = fitted
    resumed = MSCAM(4, n_jobs=1, checkpoint_store=Memory(memory.saved[1])).fit(views)
    assert resumed.excluded_views_ == USELESS
    assert_array_equal(resumed.labels_, model.labels_)
    assert_array_equal(resumed.consensus_graph_.data, model.consensus_graph_.data)
    with raises(ConfigurationError, "exclude_views"):
        MSCAM(4, n_jobs=1, exclude_views=[], checkpoint_store=Memory(memory.saved[1])).fit(views)


@pytest.mark.parametrize(
    ("exclude_views", "values"),
    [
        ("a", ("exclude_views='a'", list("abcde"))),
        (3, ("exclude_views=3", list("abcde"))),
        (["a", "z"], ("exclude_views", "no views", ["z"], list("abcde"))),
        (list("abcde"), (f"exclude_views={list('abcde')}",)),
    ],
    ids=str,
)
def test_views_that_cannot_be_left_out(exclude_views: object, values: tuple[object, ...]) -> None:
    with raises(ConfigurationError, *values):
        MSCAM(4, exclude_views=exclude_views).fit(with_useless(40)[0])  # type: ignore[arg-type]


def test_settings_without_unconfirmed_views_are_tried_first() -> None:
    agreement = tuple(
        ViewSettingsSelected(
            view=name,
            scale="unit",
            alpha=1.0,
            agreement=0.1,
            ahead=0.0,
            overlap=9.0,
            is_informative=name != "c",
        )
        for name in "abc"
    )
    given = Parameters(n_clusters=2, exclude_views=(0,))
    settings: tuple[ViewSettings, ...] = (ViewSettings("unit", 1.0),) * 3
    selections = {settings: agreement}
    tried = with_view_settings([given], selections, may_exclude_views=True)
    assert [one.exclude_views for one in tried] == [(2,), ()]
    (kept,) = with_view_settings([given], selections, may_exclude_views=False)
    assert kept.exclude_views == (0,)
