"""Known labels given to a fit: they hold, they help, and no other labels enter."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_array_equal
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline

from mscam_dask import MSCAM, MSCAN, Constants
from mscam_dask.errors import ConfigurationError, DataError, DataWarning, MscamError
from mscam_dask.types.result import Structure
from tests.benchmark_sets import path_of, read_set
from tests.messages import raises
from tests.omics import anndata_of, mudata_of
from tests.synthetic import Labels, gaussian_views

N, C = 240, 4
FIXED: dict[str, Any] = {"scale": "standard", "alpha": 1.0, "n_neighbors": 10}
SHORT: dict[str, Any] = {"constants": Constants.paper(), "max_iter": 1}


def draw() -> tuple[list[Any], Labels, Labels]:
    """Overlapping clusters, their labels, and the labels of a tenth, else −1."""
    views, labels = gaussian_views(0, n_samples=N, n_clusters=C, spread=0.6)
    return views, labels, np.where(np.random.default_rng(0).random(N) < 0.1, labels, -1)


def assert_kept(found: Labels, known: Labels) -> None:
    """Known samples of one class are in one cluster, and no two classes share one."""
    rows = np.flatnonzero(known >= 0)
    pairs = set(zip(known[rows].tolist(), found[rows].tolist(), strict=True))
    assert len(pairs) == len({one for one, _ in pairs}) == len({other for _, other in pairs})


def fit(
    views: Any, known: Any, n_clusters: Any = C, y: Any = None, estimator: Any = MSCAM, **more: Any
) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator(n_clusters, n_jobs=1, **more).fit(views, y, partial_labels=known)


@pytest.mark.parametrize("meant", [0, 1])
def test_known_labels_say_which_of_two_groupings_is_meant(meant: int) -> None:
    rng = np.random.default_rng(0)
    groupings = rng.permuted(np.tile(np.arange(N) % 2, (2, 1)), axis=1)
    views = [
        rng.normal(size=(N, 8)) + 3.0 * rng.normal(size=(2, 8))[grouping] for grouping in groupings
    ]
    known = np.where(np.arange(N) % 20 == 0, groupings[meant], -1)
    assert adjusted_rand_score(groupings[meant], fit(views, known, 2).labels_) > 0.9


@pytest.mark.parametrize(
    ("classes", "sizes", "distance", "seed"),
    [([0], (480, 14, 6), 8.0, 0), ([1, 2], (450, 40, 10), 5.0, 1)],
    ids=["largest", "others"],
)
def test_known_labels_do_not_split_the_largest_of_unequal_clusters(
    classes: list[int], sizes: tuple[int, ...], distance: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat([0, 1, 2], sizes))
    means = rng.normal(size=(3, 3, 10))
    means *= distance / np.sqrt(2) / np.linalg.norm(means, axis=2, keepdims=True)
    views = [rng.normal(size=(len(labels), 10)) + one[labels] for one in means]
    known = np.where(np.isin(labels, classes) & (rng.random(len(labels)) < 0.2), labels, -1)
    found = fit(views, known, 3).labels_
    assert adjusted_rand_score(labels, found) > 0.9
    assert_kept(found, known)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["prokaryotic", "landuse21", "mnist4"])
def test_five_percent_of_the_labels_raise_the_agreement_on_real_data(name: str) -> None:
    path = path_of(name)
    if path is None or not path.exists():
        pytest.skip("MSCAM_DATA does not have the set")
    data = read_set(name)
    rng = np.random.default_rng(0)
    known = np.full(len(data.labels), -1)
    rows = rng.choice(len(known), len(known) // 20, replace=False)
    known[rows] = data.labels[rows]
    plain, model = (fit(list(data.views), some, data.n_clusters) for some in (None, known))
    others = known < 0
    before, after = (
        adjusted_rand_score(data.labels[others], one.labels_[others]) for one in (plain, model)
    )
    assert after > before
    assert_kept(model.labels_, known)


def test_few_known_labels_move_their_own_samples_alone() -> None:
    views, labels, _ = draw()
    known = np.full(N, -1)
    for one in range(C):  # two of each class: no more than the match of classes and clusters uses
        known[np.flatnonzero(labels == one)[:2]] = one
    plain, model = fit(views, None), fit(views, known)
    others = known < 0
    assert adjusted_rand_score(plain.labels_[others], model.labels_[others]) == 1.0
    assert_kept(model.labels_, known)


def test_names_of_labels_and_the_sign_of_unknown_do_not_matter() -> None:
    views, _, known = draw()
    expected = fit(views, known, **SHORT).labels_
    names = np.array(["d", "a", "c", "b"], dtype=object)[known]
    for unknown in (None, np.nan, "", pd.NA, "-1", "nan", "NA"):
        other = names.copy()
        other[known < 0] = unknown
        assert_array_equal(fit(views, other, **SHORT).labels_, expected)
    numbers = np.where(known < 0, np.nan, 10.0 * known)
    assert_array_equal(fit(views, numbers, **SHORT).labels_, expected)
    ids = [f"s{row}" for row in range(N)]
    frames = [pd.DataFrame(view, ids) for view in views]
    of_known = pd.Series(names, ids)[known >= 0]
    assert_array_equal(fit(frames, of_known[::-1], **SHORT).labels_, expected)
    with pytest.raises(DataError):
        fit(frames, of_known.rename({of_known.index[0]: "unseen"}), **SHORT)
    data = anndata_of(views[0], ids)
    for number, view in enumerate(views[1:]):
        data.obsm[f"view{number}"] = view
    names[known < 0] = None
    data.obs["type"] = pd.Categorical(names)
    given = fit(data, np.asarray(data.obs["type"]), **SHORT)
    assert_array_equal(fit(data, "type", **SHORT).labels_, given.labels_)


@pytest.mark.parametrize("options", [SHORT, FIXED, {"estimator": MSCAN}])
def test_known_labels_hold_with_given_settings_and_in_mscan(options: dict[str, Any]) -> None:
    views, _, known = draw()
    assert_kept(fit(views, known, **options).labels_, known)


def test_known_labels_hold_in_one_view_and_incomplete_views() -> None:
    views, _, known = draw()
    has = np.random.default_rng(0).random((N, 3)) > 0.3
    has[~has.any(axis=1), 0] = True
    incomplete = [
        np.where(own[:, None], view, np.nan) for view, own in zip(views, has.T, strict=True)
    ]
    nowhere = np.where(has[:, 0], -1, known)  # none in the first view
    for X, some in ((views[0], known), (incomplete, known), (incomplete, nowhere)):
        assert_kept(fit(X, some, **FIXED).labels_, some)


def test_an_automatic_number_of_clusters_has_one_for_each_class_at_least() -> None:
    views, labels = gaussian_views(0, n_samples=N, n_clusters=C, spread=1.2)
    some = np.where(np.arange(N) < 40, labels, -1)
    assert fit(views, some, "auto", max_clusters=C + 2, **FIXED).n_clusters_ == C
    finer = np.where(np.arange(N) < 80, labels + C * (np.arange(N) % 2), -1)
    model = fit(views, finer, "auto", max_clusters=2 * C + 1, **FIXED)
    assert model.n_clusters_ == 2 * C
    assert_kept(model.labels_, finer)


def test_a_number_that_known_labels_give_is_not_said_to_be_selected_by_borders() -> None:
    rng = np.random.default_rng(0)
    some = np.where(np.arange(N) < 12, np.arange(N) % 3, -1)
    model = fit(rng.normal(size=(N, 5)), some, "auto", **FIXED)
    assert model.n_clusters_ == 3
    assert model.structure_ is Structure.NONE
    assert "selected" not in model.solution_.assessment.message


def test_equal_samples_share_a_label() -> None:
    views, _, known = draw()
    first, second = np.flatnonzero(known == 0)[:2]
    third = np.flatnonzero(known == 1)[0]
    for view in views:
        view[first + 1] = view[first]
    known[first + 1] = -1
    model = fit(views, known)
    assert model.labels_[first] == model.labels_[first + 1] == model.labels_[second]
    for view in views:
        view[third] = view[first]
    with pytest.raises(DataError):
        fit(views, known)
    for view in views:  # nothing was measured
        view[[first, first + 1, third]] = 0.0
    model = fit(views, known)
    assert_kept(model.labels_, known)
    assert model.labels_[first] != model.labels_[third]


def test_a_column_of_one_modality_has_to_be_copied() -> None:
    views, _, known = draw()
    names = [f"s{row}" for row in range(N)]
    data = mudata_of(**{f"m{one}": anndata_of(view, names) for one, view in enumerate(views)})
    data["m1"].obs["type"] = known
    with raises(DataError, "type", "m1"):
        fit(data, "type")
    data.obs["type"] = known
    assert_kept(fit(data, "type", **FIXED).labels_, known)


def test_metadata_routing() -> None:
    views, _, known = draw()
    table = np.hstack(views)
    with sklearn.config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        model = MSCAM(C, n_jobs=1).set_fit_request(partial_labels=True)
        make_pipeline(model).fit(table, partial_labels=known)
    assert_kept(model.labels_, known)


@pytest.mark.parametrize(
    ("values", "n_clusters", "error", "words"),
    [
        ([0] * (N - 1), C, DataError, (N - 1, N)),
        ([-1] * N, C, DataError, ("no known label",)),
        ([*range(6), *[-1] * (N - 6)], 5, ConfigurationError, (5, 6)),
        (["a", "b", *["unknown"] * (N - 2)], 2, ConfigurationError, (3, "unknown")),
        ([row % 3 for row in range(N)], C, ConfigurationError, (C, 3)),
        ([0, "a", *[-1] * (N - 2)], C, DataError, ("several types",)),
        ("type", C, DataError, ("not a column of obs",)),
    ],
)
def test_unusable_labels(
    values: Any, n_clusters: int, error: type[MscamError], words: tuple[Any, ...]
) -> None:
    views, _, _ = draw()
    given = values if isinstance(values, str) else np.array(values, dtype=object)
    with raises(error, *words):
        fit(views, given, n_clusters)
