"""validate: what is refused, where it says it is, and what is only reported."""

from __future__ import annotations

import re
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.data.views import sources, validation
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ArrayRows, DaskRows
from mscam_dask.data.views.validation import (
    ValidationReport,
    check_sizes,
    repeated_samples,
    validate,
)
from mscam_dask.errors import ConfigurationError, DataError
from tests.messages import quotes
from tests.synthetic import distances_between

N = 12


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


@pytest.fixture(params=["one block", "many blocks"])
def block_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test once with whole views in a block, once with two rows of 12 columns in each."""
    if request.param == "many blocks":
        ranges = sources.row_ranges
        monkeypatch.setattr(
            validation, "row_ranges", lambda source: ranges(source, block_bytes=8 * 12 * 2)
        )


def check(
    views: Any, *, n_clusters: int = 3, n_neighbors: int = 4, **kwargs: Any
) -> ValidationReport:
    return validate(as_multi_view(views, **kwargs), n_clusters=n_clusters, n_neighbors=n_neighbors)


def distances(rng: np.random.Generator) -> NDArray[np.float64]:
    return distances_between(rng.standard_normal((N, 2)))


@given(n=st.integers(2, 30), c=st.integers(-3, 40), k=st.integers(-3, 40))
def test_sizes_pass_exactly_when_one_to_n_clusters_and_one_to_n_minus_one_neighbors(
    n: int, c: int, k: int
) -> None:
    if 1 <= c <= n and 1 <= k <= n - 1:
        check_sizes(n, n_clusters=np.int32(c), n_neighbors=k)  # type: ignore[arg-type]
    else:
        with pytest.raises(ConfigurationError):
            check_sizes(n, n_clusters=c, n_neighbors=k)


@pytest.mark.usefixtures("block_size")
def test_values_that_are_not_finite_are_counted_and_placed(rng: np.random.Generator) -> None:
    bad = rng.standard_normal((N, 12))
    bad[[1, 4, 4, 7, 8, 9, 11], [0, 1, 2, 3, 4, 5, 6]] = np.nan
    bad[4, 5], bad[10, 0] = np.inf, -np.inf
    with pytest.raises(DataError, match=quotes("'b'", "NaN", 7, 2, 12, [1, 4, 7, 8, 9])):
        check({"a": rng.standard_normal((N, 2)), "b": bad})


@pytest.mark.usefixtures("block_size")
@pytest.mark.parametrize("row", [[0.0] * 12, list(range(12))], ids=["zero", "equal rows"])
def test_constant_views_are_refused(rng: np.random.Generator, row: list[float]) -> None:
    views = {"a": rng.standard_normal((N, 2)), "flat": np.tile(row, (N, 1))}
    with pytest.raises(DataError):
        check(views)


def test_repeated_samples_are_reported_where_clusters_outnumber_the_others() -> None:
    groups = np.array([0, 1, -1, 0, 1, -1])  # two samples equal an earlier one
    assert repeated_samples(groups, 4) == repeated_samples(None, 4) == ()
    (finding,) = repeated_samples(groups, 5)
    assert (finding.view, finding.count, finding.first) == ("", 2, (3, 4))
    assert re.match(quotes(4, 6, "3, 4", "n_clusters"), finding.message)


@pytest.mark.usefixtures("block_size")
def test_distances_and_kernels_pass(rng: np.random.Generator) -> None:
    gaps = distances(rng)
    half = np.tril(gaps).astype(np.float32) + np.triu(gaps, 1)  # rounding is no asymmetry
    report = check(
        {"d": gaps, "f": half, "k": np.exp(-gaps)},
        view_type={"d": "distance", "f": "distance", "k": "kernel"},
    )
    assert report == ValidationReport(())


@pytest.mark.usefixtures("block_size")
@pytest.mark.parametrize(
    ("view_type", "place", "value"),
    [
        ("distance", (3, 8), -0.5),
        ("distance", (9, 9), 0.125),
        ("kernel", (9, 9), -2.0),
        ("kernel", ..., 0.0),
        ("distance", ..., 0.0),
    ],
)
def test_what_is_no_pairwise_view_is_refused(
    rng: np.random.Generator, view_type: str, place: Any, value: float
) -> None:
    values = distances(rng) if view_type == "distance" else np.exp(-distances(rng))
    check({"v": values}, view_type=view_type)
    with pytest.raises(DataError):
        check({"v": values[:, :-1]}, view_type=view_type)
    values[place] = value
    values.T[place] = value
    with pytest.raises(DataError):
        check({"v": values}, view_type=view_type)


@pytest.mark.parametrize("form", [np.asarray, csr_array])
def test_graphs_of_neighbors_are_no_distances(rng: np.random.Generator, form: Any) -> None:
    """Pairs that they lack have 0, which says that samples are equal, as it may for many that are."""
    gaps = distances(rng)
    graph = np.where(gaps <= np.sort(gaps)[:, [2]], gaps, 0.0)
    for one in (graph, np.maximum(graph, graph.T)):
        with pytest.raises(DataError):
            check({"v": form(one)}, view_type="distance")
    kinds = np.arange(len(gaps)) % 12 == 0
    check({"v": form(1.0 * (kinds != kinds[:, None]))}, view_type="distance")


@pytest.mark.usefixtures("block_size")
@pytest.mark.parametrize("view_type", ["distance", "kernel"])
@pytest.mark.parametrize("place", [(7, 2), (11, 10)], ids=str)
def test_one_asymmetric_pair_is_found_wherever_it_is(
    rng: np.random.Generator, view_type: str, place: tuple[int, int]
) -> None:
    values = distances(rng) if view_type == "distance" else np.exp(-distances(rng))
    values[place] += 0.25
    with pytest.raises(DataError, match=quotes("'v'", 1, 0.25)) as caught:
        check({"v": values}, view_type=view_type)
    assert any(str(pair) in str(caught.value) for pair in (place, place[::-1]))


def test_largest_floats_do_not_overflow_into_a_warning() -> None:
    values = np.full((N, N), 1e304) - np.diag(np.full(N, 1e304))
    check({"v": values}, view_type="distance")
    with pytest.raises(DataError):
        check({"v": 10 * values}, view_type="distance")
    values[0, 1] = -1e304
    with pytest.raises(DataError):
        check({"v": values}, view_type="kernel")


def test_findings_and_digests_are_those_of_all_blocks_of_rows() -> None:
    n = 2 * sources.DIGEST_ROWS + 5
    rows = np.column_stack((np.arange(1.0, n + 1), np.arange(n) % 7, np.ones(n)))
    rows[[5, n - 2]] = 0.0
    other = np.column_stack((rows[:, :2] + 1.0, np.ones(n)))
    data = MultiViewData((ArrayRows(rows, "a"), DaskRows(da.from_array(other), "b")))
    found = validate(data, n_clusters=5, n_neighbors=2, digest=True)
    said = [(issue.view, issue.kind, issue.first) for issue in found.issues]
    assert ("a", "zero rows", (5, n - 2)) in said
    assert ("b", "constant columns", (2,)) in said
    assert found.digests == {view.name: sources.view_digest(view) for view in data.views}


COUNTS: dict[str, Any] = {
    "rare": lambda rng: rng.poisson(0.7, (90, 12)),
    "of all sizes": lambda rng: rng.poisson(np.exp(np.arange(-6, 6)), (90, 12)),
    "sparse": lambda rng: csr_array(rng.poisson(0.3, (90, 12))),
    "beside bits": lambda rng: np.c_[rng.poisson(0.7, (90, 8)), rng.integers(0, 2, (90, 4))],
}
NO_COUNTS: dict[str, Any] = {
    "fractions": lambda rng: rng.poisson(0.7, (90, 12)) + 0.5,
    "negative": lambda rng: rng.poisson(0.7, (90, 12)) - 1,
    "bits": lambda rng: rng.integers(0, 2, (90, 12)),
    "grades from 1": lambda rng: rng.integers(1, 6, (90, 12)).clip(1, 2),
    "gray values": lambda rng: rng.integers(0, 256, (90, 12)) // 200 * 255,
    "age beside bits": lambda rng: np.c_[rng.integers(0, 2, (90, 11)), rng.integers(20, 80, 90)],
    "few columns": lambda rng: rng.poisson(0.7, (90, 5)),
}


@pytest.mark.parametrize("kind", [*COUNTS, *NO_COUNTS])
def test_counts_are_told(rng: np.random.Generator, block_size: None, kind: str) -> None:
    values = {**COUNTS, **NO_COUNTS}[kind](rng)
    found = check({"v": values, "other": rng.standard_normal((90, 2))})
    told = [one.view for one in found.issues if one.kind == "counts"]
    assert told == (["v"] if kind in COUNTS else [])
