"""Batches given to a fit: their effects are removed, clusters of one batch stay, new samples are corrected."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.datasets import load_digits
from sklearn.impute import KNNImputer
from sklearn.metrics import adjusted_rand_score

from mscam_dask import MSCAM
from mscam_dask.data.store.dataset import write_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.conversion import as_text
from mscam_dask.errors import DataError, DataWarning, UnstableClustersWarning
from mscam_dask.estimators._sample_values import (
    sample_values,
    validated_batches,
    validated_partial_labels,
)
from mscam_dask.types.result import Structure
from tests.omics import anndata_of

N = 300
BALANCED = [[0.5, 0.5]] * 4
ONE_ONLY = [[1.0, 0.0], [0.5, 0.5], [0.3, 0.7], [0.5, 0.5]]

Draw = tuple[dict[str, Any], NDArray[np.int64], NDArray[np.str_]]


def draw(shares: list[list[float]], seed: int = 0, offset: float = 6.0, n: int = N) -> Draw:
    """Two views with batch effects and one without, the clusters, and the names of the batches."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % len(shares)
    codes = np.array([rng.choice(len(shares[0]), p=shares[label]) for label in labels])
    views: dict[str, Any] = {}
    for name, d in (("rna", 40), ("protein", 10), ("shape", 15)):
        means = rng.normal(size=(len(shares), d)) * 8.0 / np.sqrt(2 * d)
        rows = means[labels] + rng.normal(size=(n, d))
        effects = rng.normal(size=(len(shares[0]), d)) * offset / np.sqrt(d)
        views[name] = rows if name == "shape" else rows + effects[codes]
    return views, labels, np.array(["A", "B", "C"])[codes]


@pytest.fixture(scope="module")
def balanced() -> tuple[Draw, MSCAM]:
    """Clusters with as many samples in each of two batches, and their fit."""
    drawn = draw(BALANCED)
    return drawn, MSCAM(4).fit(drawn[0], batches=drawn[2])


def some(views: dict[str, Any], rows: NDArray[np.bool_]) -> dict[str, Any]:
    return {name: view[rows] for name, view in views.items()}


@pytest.mark.parametrize(
    "shares",
    [
        BALANCED,
        ONE_ONLY,
        [[0.9, 0.1], [0.1, 0.9], [0.8, 0.2]],
        [[0.7, 0.2, 0.1]] * 4,
        [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]],
    ],
    ids=["balanced", "one-only", "confounded", "three", "each-own"],
)
def test_batch_effects_are_removed(shares: list[list[float]]) -> None:
    views, labels, batches = draw(shares)
    model = MSCAM(len(shares)).fit(views, batches=batches)
    assert adjusted_rand_score(labels, model.labels_) == 1.0
    rna = model.batch_shares_["rna"]
    assert rna.before > rna.expected + 0.1
    assert rna.after == pytest.approx(rna.expected, abs=0.06)


def test_views_without_effects_are_not_changed() -> None:
    views, _, batches = draw(ONE_ONLY, offset=0.0)
    plain, model = MSCAM(4).fit(views), MSCAM(4).fit(views, batches=batches)
    assert_array_equal(model.labels_, plain.labels_)
    assert model.cross_view_information_ == plain.cross_view_information_


def test_a_view_of_few_samples_without_effects_is_not_changed() -> None:
    views, _, batches = draw(BALANCED, seed=1, offset=0.0)
    views["rna"][np.arange(N) % 8 > 0] = np.nan
    model = MSCAM(4).fit(views, batches=batches)
    assert all(shares.before == shares.after for shares in model.batch_shares_.values())


def test_clusters_that_are_each_in_one_batch_stay() -> None:
    for offset in (0.0, 6.0):
        views, labels, batches = draw([[1.0, 0.0], [0.0, 1.0]] * 2, offset=offset)
        with pytest.warns(UnstableClustersWarning):  # nothing tells these clusters from batches
            model = MSCAM(4).fit(views, batches=batches)
        assert adjusted_rand_score(labels, model.labels_) == 1.0
        assert model.structure_ is Structure.PARTLY


@pytest.mark.parametrize("held", ["sparse", "incomplete", "float32"])
def test_other_kinds_of_views(held: str) -> None:
    views, labels, batches = draw(BALANCED)
    if held == "sparse":
        views["rna"] = csr_array(views["rna"])
    elif held == "float32":
        views["rna"] = views["rna"].astype(np.float32)
    else:
        views["protein"][::7] = np.nan
        views["shape"][3::7] = np.nan
    model = MSCAM(4).fit(views, batches=batches)
    assert adjusted_rand_score(labels, model.labels_) > 0.98


def test_new_samples_of_known_batches_and_of_a_new_one() -> None:
    views, labels, batches = draw([[0.4, 0.4, 0.2]] * 4, n=600)
    known = batches != "C"
    model = MSCAM(4).fit(some(views, known), batches=batches[known])
    loaded = pickle.loads(pickle.dumps(model))
    found = model.predict(views, batches=batches)
    assert_array_equal(loaded.predict(views, batches=batches), found)
    assert adjusted_rand_score(labels[known], found[known]) == 1.0
    assert adjusted_rand_score(labels[~known], found[~known]) > 0.95
    half = {name: 0.5 * rows[~known] for name, rows in views.items()}  # another gain
    assert adjusted_rand_score(labels[~known], model.predict(half, batches=batches[~known])) > 0.95
    membership = model.predict_proba(views, batches=batches)
    assert np.mean(membership.argmax(axis=1) == found) > 0.98
    distances = model.transform(views, batches=batches)
    assert np.mean(distances.argmin(axis=1) == found) > 0.98
    assert model.score(views, batches=batches) > 0.5


@pytest.mark.parametrize(("spread", "least"), [(0.5, 0.99), (0.8, 0.9)])
def test_effects_on_counts_are_factors(spread: float, least: float) -> None:
    """Of columns with means of many sizes, in samples with totals of many sizes; also of a batch that the fit did not have."""
    rng = np.random.default_rng(4)
    labels, codes = (
        rng.choice(5, p=[0.5, 0.2, 0.15, 0.1, 0.05], size=600),
        rng.integers(3, size=600),
    )
    totals, views = np.exp(spread * rng.normal(size=(600, 1))), {}
    for name, d in (("rna", 300), ("protein", 80)):
        means = rng.gamma(0.6, 4.0, d) * np.exp(
            rng.normal(size=(5, d)) * (rng.random((5, d)) < 0.3)
        )
        factors = np.exp(rng.normal(size=(3, d)))
        views[name] = rng.poisson(totals * means[labels] * factors[codes]).astype(np.float64)
    known = codes < 2
    model = MSCAM(5).fit(some(views, known), batches=codes[known])
    assert adjusted_rand_score(labels[known], model.labels_) > 0.98
    assert model.structure_ is Structure.CLEAR
    found = model.predict(views, batches=codes)
    assert_array_equal(found[known], model.labels_)
    assert adjusted_rand_score(labels[~known], found[~known]) > least


def test_pixels_with_another_gain_in_each_batch_keep_their_clusters() -> None:
    """Logarithms tell the factors, but they are not what is clustered."""
    pixels, digits = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    codes = rng.integers(2, size=len(digits[::2]))
    counts = (4 * pixels[::2] * np.exp(0.5 * rng.normal(size=(2, 64)))[codes]).round()
    model = MSCAM(10).fit([counts[:, :32], counts[:, 32:]], batches=codes)
    assert adjusted_rand_score(digits[::2], model.labels_) > 0.83


def test_totals_that_differ_between_batches_are_corrected_by_one_factor() -> None:
    """They are an effect where samples are not scaled to one length."""
    rng = np.random.default_rng(0)
    labels, codes = rng.integers(4, size=400), rng.integers(2, size=400)
    totals = np.array([0.2, 1.0])[codes] * np.exp(0.1 * rng.normal(size=400))
    views = [
        rng.poisson(totals[:, None] * np.exp(5.0 + 0.25 * rng.normal(size=(4, 60)))[labels])
        for _ in range(2)
    ]
    model = MSCAM(4, scale="standard").fit(views, batches=codes)
    assert adjusted_rand_score(labels, model.labels_) == 1.0
    for shares in model.batch_shares_.values():
        assert shares.before > 0.95
        assert shares.after < shares.expected + 0.1
    one = MSCAM(4, scale="standard").fit(views, batches=rng.permutation(codes))
    assert all(shares.after == shares.before for shares in one.batch_shares_.values())


def test_factors_leave_no_other_cluster_in_a_batch() -> None:
    """Logarithms of small counts minus an offset would: a factor adds less to them than to those of large counts."""
    rng = np.random.default_rng(4)
    labels, codes = np.arange(600) % 5, rng.integers(3, size=600)
    means = rng.gamma(0.3, 2.0, 300) * np.exp(
        rng.normal(size=(5, 300)) * (rng.random((5, 300)) < 0.3)
    )
    factors = np.exp(0.7 * rng.normal(size=(3, 300)))
    counts = rng.poisson(means[labels] * factors[codes])
    view = {"rna": counts[:, :200], "protein": counts[:, 200:]}
    model = MSCAM("auto", max_clusters=6, n_jobs=1).fit(view, batches=codes)
    assert model.n_clusters_ == 5
    assert adjusted_rand_score(labels, model.labels_) == 1.0


def test_effects_on_rare_terms_of_texts_are_removed() -> None:
    """The scores of topics vary far more than those of batches, whose noise is that of rare terms."""
    rng = np.random.default_rng(11)
    labels, codes = rng.integers(4, size=500), rng.integers(3, size=500)
    views = []
    for d in (1000, 800):
        topics, all_terms = rng.dirichlet(np.full(d, 0.05), 4), rng.dirichlet(np.full(d, 0.1))
        mixtures = 0.35 * np.eye(4)[labels] + 0.15 * rng.dirichlet(np.full(4, 0.3), 500)
        shares = mixtures @ topics + 0.5 * all_terms
        views.append(rng.poisson(100 * shares * np.exp(0.7 * rng.normal(size=(3, d)))[codes]))
    model = MSCAM(4, n_jobs=1).fit(views, batches=codes)
    assert adjusted_rand_score(labels, model.labels_) > 0.98


@pytest.mark.filterwarnings("ignore", "error::RuntimeWarning")
@pytest.mark.parametrize("n_clusters", [3, "auto"])
@pytest.mark.parametrize("kind", ["one sample in a batch", "one column", "few values"])
def test_small_batches_and_views_of_counts(kind: str, n_clusters: Any) -> None:
    rng = np.random.default_rng(0)
    labels, batches = np.arange(90) % 3, np.arange(90) // 3 % 2
    rates = [np.exp(1.0 + rng.normal(size=(3, d)))[labels] for d in (8, 12)]
    views = [rng.poisson(rate * np.array([1.0, 3.0])[batches, None]) for rate in rates]
    if kind == "one sample in a batch":
        batches[0] = 2
    elif kind == "one column":
        views = [view[:, :1] for view in views]
    else:
        views = [1 * (views[0][:, :1] > 3)]
    model = MSCAM(n_clusters).fit(views, batches=batches)
    assert np.isfinite(model.predict_proba(views, batches=batches)).all()


def test_columns_may_be_constant_in_each_batch() -> None:
    views, labels, batches = draw(BALANCED)
    views["rna"][:, ::4] = np.where(batches == "A", 0.1, 7.3)[:, None]
    model = MSCAM(4).fit(views, batches=batches)
    assert adjusted_rand_score(labels, model.labels_) == 1.0
    rna = model.batch_shares_["rna"]
    assert rna.after == pytest.approx(rna.expected, abs=0.06)


def test_batches_are_matched_by_id_and_named_in_obs() -> None:
    views, _, batches = draw(BALANCED, n=60)
    ids = [f"p{number:02d}" for number in range(60)]
    order = np.random.default_rng(0).permutation(60)
    frames = {name: pd.DataFrame(view, index=ids) for name, view in views.items()}
    series = pd.Series(batches, index=ids)
    model = MSCAM(4).fit(frames, batches=series.iloc[order])
    assert_array_equal(model.labels_, MSCAM(4).fit(frames, batches=batches).labels_)
    numbered = series.reset_index(drop=True)  # without ids, in the order of the samples
    assert_array_equal(model.labels_, MSCAM(4).fit(frames, batches=numbered).labels_)
    for other in (series.rename({"p07": "p7"}).iloc[order], series.add_prefix("other ")):
        with pytest.raises(DataError, match="sample ids"):
            model.cluster_batches(other)
    counts = model.cluster_batches(series.iloc[order])
    assert counts.to_numpy().sum() == 60
    expected = [np.sum((model.labels_ == 1) & (batches == batch)) for batch in ("A", "B")]
    assert counts.loc[1].tolist() == expected
    unknown = series.mask(series.index == "p07")
    assert model.cluster_batches(unknown).to_numpy().sum() == 60
    data = anndata_of(views["shape"], ids)
    data.obsm["rna"] = views["rna"]
    data.obs["batch"] = pd.Categorical(batches)
    named = MSCAM(4).fit(data, batches="batch")
    given = MSCAM(4).fit(data, batches=batches)
    assert_array_equal(named.labels_, given.labels_)
    both = {"rna": anndata_of(views["rna"][::-1], ids[::-1]), "shape": data}
    named = MSCAM(4).fit(both, batches="batch")  # of the one that has it, by ids
    given = MSCAM(4).fit(both, batches=batches[::-1])
    assert_array_equal(named.labels_, given.labels_)


def test_missing_cells_of_new_samples_are_filled_before_batches_are_corrected(
    tmp_path: Path,
) -> None:
    views, _, batches = draw(BALANCED)
    store = write_store(as_multi_view(views), tmp_path / "s.zarr", impute={"rna": "knn"})
    model = MSCAM(4).fit(store, batches=batches)
    new = {name: view[:40].copy() for name, view in views.items()}
    new["rna"][5, ::2] = np.nan
    filled = {**new, "rna": KNNImputer().fit(views["rna"]).transform(new["rna"])}
    found, expected = (model.transform(one, batches=batches[:40]) for one in (new, filled))
    assert_allclose(found, expected)


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        (["A"] * (N - 1), f"{N - 1}"),
        (["A"] * (N - 1) + [None], "1 sample"),
        (list(range(N)), "another value for each"),
        ([1] + ["A"] * (N - 1), "several types"),
        ("batch", "not a column of obs"),
    ],
    ids=["length", "None", "all-different", "mixed", "name"],
)
def test_unusable_batches(batches: list[object] | str, words: str) -> None:
    views, _, _ = draw(BALANCED)
    values = batches if isinstance(batches, str) else np.array(batches, dtype=object)
    with pytest.raises(DataError, match=words):
        MSCAM(4).fit(views, batches=values)


def test_predict_wants_batches_if_and_only_if_the_fit_had_some(
    balanced: tuple[Draw, MSCAM],
) -> None:
    (views, _, batches), model = balanced
    with pytest.raises(DataError):
        model.predict(views)
    with pytest.warns(DataWarning):  # too few samples of a new batch
        model.predict(some(views, np.arange(N) < 3), batches=["new"] * 3)
    with pytest.raises(DataError):
        MSCAM(4).fit(views).predict(views, batches=batches)


def test_a_new_batch_may_lack_a_view(balanced: tuple[Draw, MSCAM]) -> None:
    (views, labels, batches), model = balanced
    new = some(views, batches == "B")
    new["protein"] = np.full_like(new["protein"], np.nan)
    found = model.predict(new, batches=["new"] * len(new["protein"]))
    assert adjusted_rand_score(labels[batches == "B"], found) > 0.95


@pytest.mark.parametrize("factor", [0.0, 1e-200, 1e100, 1e155, 1e300])
def test_a_new_batch_may_have_any_scale_but_not_be_too_far_away(
    factor: float, balanced: tuple[Draw, MSCAM]
) -> None:
    (views, labels, batches), model = balanced
    new = some(views, batches == "B")
    new["rna"] = new["rna"] * factor
    names = ["new"] * len(new["rna"])
    if factor > 1e150:
        with pytest.raises(DataError):
            model.predict(new, batches=names)
    else:
        assert adjusted_rand_score(labels[batches == "B"], model.predict(new, batches=names)) > 0.95


@pytest.mark.parametrize("own", [str, int, bool, lambda code: f"{code} ".encode()])
def test_a_few_samples_of_known_batches_may_have_these_as_text(own: Any) -> None:
    """Too few to estimate the effects of new batches, which would be warned of."""
    views, labels, batches = draw([[0.34, 0.33, 0.33]] * 4 if own is not bool else BALANCED)
    given = [own("ABC".index(batch)) for batch in batches.tolist()]
    model = MSCAM(4).fit(views, batches=given)
    rows = np.isin(np.arange(N), [batches.tolist().index(batch) for batch in np.unique(batches)])
    texts = [as_text(one).strip() for one in np.array(given, dtype=object)[rows]]
    found = model.predict(some(views, rows), batches=texts)
    assert adjusted_rand_score(labels[rows], found) == 1.0


NAMES = ["batches", "partial_labels", "init_labels"]
ORDER = [3, 0, 5, 1, 4, 2]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["list", "one frame"])
def test_values_by_row_numbers_in_another_order_are_refused_beside_frames(
    name: str, form: str
) -> None:
    """One side has the default index 0, 1, ..., and the other has it in another order."""
    frame = pd.DataFrame(np.eye(6))
    frames: Any = frame if form == "one frame" else [frame, frame]
    rows: Any = frame.iloc[ORDER] if form == "one frame" else [frame.iloc[ORDER]] * 2
    arrays = [frame.to_numpy(), frame.to_numpy()]
    values = pd.Series(np.arange(6) % 2)
    moved = values.iloc[ORDER]
    for given, views in ((moved, frames), (values, rows)):
        with pytest.raises(DataError):
            sample_values(given, name, views, as_multi_view(views))
    for given, views in (
        (moved.to_numpy(), frames),
        (moved, arrays),
        (values, frames),
        (moved, rows),
        (values.to_numpy(), rows),
    ):
        found = sample_values(given, name, views, as_multi_view(views))
        assert_array_equal(found, given)


@pytest.mark.parametrize("form", ["series", "data array", "dask"])
@pytest.mark.parametrize("of_table", [True, False])
def test_values_with_ids_are_matched_by_them(form: str, of_table: bool) -> None:
    frame = pd.DataFrame(np.eye(6), index=[*"uvwxyz"])
    views: Any = frame if of_table else [frame.iloc[::-1], frame]
    data = as_multi_view([frame.to_numpy()]) if of_table else as_multi_view(views)
    values: Any = pd.Series(np.arange(6), frame.index).iloc[ORDER]
    if form == "dask":
        frames = pytest.importorskip("dask.dataframe", reason="dask.dataframe needs pyarrow")
        values = frames.from_pandas(values, npartitions=2, sort=False)
    if form == "data array":
        values = xr.DataArray(values.to_numpy(), dims="s", coords={"s": values.index})
    wanted = np.arange(6) if of_table else np.arange(6)[::-1]
    assert_array_equal(sample_values(values, "batches", views, data), wanted)


def test_values_whose_ids_repeat_in_another_order_are_refused() -> None:
    frame = pd.DataFrame(np.eye(6), index=[*"uuvvww"])
    values, data = pd.Series(np.arange(6), frame.index), as_multi_view([frame.to_numpy()])
    assert_array_equal(sample_values(values, "batches", frame, data), np.arange(6))
    with pytest.raises(DataError):
        sample_values(values.iloc[ORDER], "batches", frame, data)


MISSING_VALUES = {
    "masked": np.ma.masked_equal([0, 1, 2] * 4, 2),
    "bytes": np.array([b"a", b"b", b""] * 4),
    "Int64": pd.array([0, 1, None] * 4, dtype="Int64"),
    "boolean": pd.array([False, True, None] * 4),
    **{t: pd.Series(["a", "b", t] * 4) for t in ("None", "nan", "<NA>", "NaT", " ", "NA", "null")},
}


@pytest.mark.parametrize("form", MISSING_VALUES)
def test_missing_values_of_samples_are_no_batch_and_no_label(form: str) -> None:
    views = [np.arange(24.0).reshape(12, 2)]
    data, values = as_multi_view(views), MISSING_VALUES[form]
    with pytest.raises(DataError):
        validated_batches(values, views, data)
    known = validated_partial_labels(values, views, data, None, None)
    assert known.tolist() == [0, 1, -1] * 4
