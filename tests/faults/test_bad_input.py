"""Whatever is given: a partition of finite numbers, or an error of the package; never a hang.

Warnings are errors throughout, so an overflow on the way would fail a test too.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from mscam_dask import MSCAM, MSCAN, Constants
from mscam_dask.errors import ConvergenceWarning, DataError, MscamError
from mscam_dask.metrics import adjusted_rand_index
from mscam_dask.types.parameters import Scale
from tests.messages import raises
from tests.synthetic import Array, assert_partition_and_graph_agree, gaussian_views

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

# Random draws have fewer samples that differ than clusters now and then.
outnumbered = pytest.mark.filterwarnings(
    "ignore::mscam_dask.errors.ConvergenceWarning",
    "ignore::mscam_dask.errors.DataWarning",  # equal samples in different clusters, independent views
)

Blobs = tuple[list[Array], NDArray[np.int64]]
Estimator = type[MSCAM] | type[MSCAN]

SCALES = get_args(Scale)


def fit(
    views: Any,
    n_clusters: int = 3,
    *,
    model: Estimator = MSCAM,
    batches: Any = None,
    **options: Any,
) -> Any:
    """A short fit in one thread; checks what every fit promises."""
    settings: dict[str, Any] = {
        "constants": Constants.paper(),
        "max_iter": 3,
        "n_jobs": 1,
    } | options
    fitted = model(n_clusters=n_clusters, **settings).fit(views, batches=batches)
    assert_partition_and_graph_agree(fitted.solution_, n_clusters=n_clusters)
    return fitted


@pytest.fixture(scope="module")
def blobs() -> Blobs:
    """Three far apart clusters of 15 samples in two views."""
    return gaussian_views(1, n_samples=45, spread=8.0, dims=(5, 8))


# -- magnitudes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scale", [one for one in SCALES if one != "log"]
)  # of numbers without unit
@pytest.mark.parametrize(("model", "exponent"), [(MSCAM, -1000), (MSCAM, 1000), (MSCAN, 1000)])
def test_a_power_of_two_changes_nothing(
    blobs: Blobs, model: Estimator, scale: Any, exponent: int
) -> None:
    views, labels = blobs
    extreme = [np.ldexp(views[0], exponent), views[1]]
    plain = fit(views, model=model, scale=scale)
    moved = fit(extreme, model=model, scale=scale)
    assert adjusted_rand_index(labels, moved.labels_) == 1.0
    assert_array_equal(moved.labels_, plain.labels_)
    # but for the rounding of subnormal numbers
    assert_allclose(moved.consensus_graph_.toarray(), plain.consensus_graph_.toarray(), atol=1e-9)
    assert_array_equal(moved.predict(extreme), moved.labels_)


@pytest.mark.parametrize("exponent", [-1000, 1000])
def test_batch_effects_of_any_magnitude(blobs: Blobs, exponent: int) -> None:
    views, labels = blobs
    batches = np.arange(len(labels)) // 2 % 2
    rows = np.ldexp(views[0] + 20.0 * batches[:, None], exponent)
    fitted = fit([rows, views[1]], batches=batches)
    assert adjusted_rand_index(labels, fitted.labels_) == 1.0
    assert fitted.batch_shares_["view_0"].after < 0.8
    for names in (batches, batches + 2):
        assert_array_equal(fitted.predict([rows, views[1]], batches=names), fitted.labels_)


@pytest.mark.parametrize("scale", SCALES)
def test_tiny_values_pass_where_numpy_raises(scale: Any) -> None:
    views, _ = gaussian_views(3, n_samples=60)
    with np.errstate(under="ignore"):
        tiny = [1e-310 * view for view in views]
    with np.errstate(all="raise"):
        fitted = fit(tiny, scale=scale)
        fitted.predict(tiny)


@pytest.mark.parametrize("view_type", ["distance", "kernel"])
@pytest.mark.parametrize("factor", [1e-310, 1e300])
def test_distances_and_kernels_of_any_magnitude(
    blobs: Blobs, view_type: str, factor: float
) -> None:
    views, labels = blobs
    centred = views[0] - views[0].mean(axis=0)
    if view_type == "kernel":
        square = centred @ centred.T
    else:
        square = np.linalg.norm(centred[:, None] - centred[None], axis=2)
    fitted = fit([square * factor, views[1]], view_type=[view_type, "features"])
    assert adjusted_rand_index(labels, fitted.labels_) == 1.0
    assert_array_equal(fitted.predict([square * factor, views[1]]), fitted.labels_)


@pytest.mark.parametrize("scale", SCALES)
def test_magnitudes_side_by_side(blobs: Blobs, scale: Any) -> None:
    views, _ = blobs
    by_column = views[0] * np.array([1e-300, 1.0, 1e300, 1e-100, 1e100])
    by_row = views[0] * np.logspace(-300, 300, len(views[0]))[:, None]
    for extreme in (by_column, by_row):
        fit([extreme, views[1]], scale=scale)


def test_what_is_nearly_infinite_is_refused(blobs: Blobs) -> None:
    views, _ = blobs
    largest = np.where(views[0] > 0, 1.7e308, -1.7e308)
    with raises(DataError, "'view_0'", "1.7e+308"):
        fit([largest, views[1]])


def test_columns_without_noise_have_finite_scores() -> None:
    fit([np.array([[0.0], [0.0], [0.0], [1.0]])] * 3, scale="standard", n_clusters=2)


def test_a_step_far_above_the_length_of_most_rows_is_finite() -> None:
    view = np.full((6, 2), 1e-160)
    view[0, 0] = 1.0
    fit([view], scale="unit", n_clusters=2)


def test_a_new_sample_too_far_for_a_distance_is_named(blobs: Blobs) -> None:
    views, _ = blobs
    fitted = fit(views, scale="none")
    far = [views[0][:4].copy(), views[1][:4]]
    far[0][2] = 1e300
    with raises(DataError, "'view_0'", "[2]"):
        fitted.predict(far)
    far[0][2] = 1e100
    assert fitted.predict(far).shape == (4,)


# -- shapes of data ---------------------------------------------------------------------------


@pytest.mark.parametrize("model", [MSCAM, MSCAN])
@pytest.mark.parametrize("n_clusters", [2, 3, 7])
def test_two_places_only(model: Estimator, n_clusters: int) -> None:
    place = np.repeat([[0.0, 1.0], [3.0, 5.0]], 12, axis=0)
    warning = (
        pytest.warns(ConvergenceWarning, match=r"\b2\b.*\b24\b")
        if n_clusters > 2
        else nullcontext()
    )
    with warning:
        fitted = fit([place, place[:, ::-1]], n_clusters, model=model)
    # no cluster has samples of both places
    assert not set(fitted.labels_[:12]) & set(fitted.labels_[12:])


@pytest.mark.filterwarnings("ignore::mscam_dask.errors.DataWarning")  # far blobs have equal samples
@pytest.mark.parametrize("gap", [1e3, 1e9, 1e15, 1e200])
@pytest.mark.parametrize("n_clusters", [2, 5])
def test_two_far_blobs(gap: float, n_clusters: int) -> None:
    rows = np.random.default_rng(0).normal(size=(40, 3))
    rows[20:] += gap
    fitted = fit([rows], n_clusters, scale="none")
    assert not set(fitted.labels_[:20]) & set(fitted.labels_[20:])


@pytest.mark.parametrize(
    ("model", "dims"),
    [(MSCAM, (1,)), (MSCAN, (1, 1)), (MSCAM, (4,)), (MSCAM, (2,) * 50), (MSCAN, (2000,))],
    ids=["d1", "d1+1", "one", "fifty", "wide"],
)
def test_numbers_of_views_and_columns(model: Estimator, dims: tuple[int, ...]) -> None:
    views, labels = gaussian_views(2, n_samples=36, spread=9.0, dims=dims)
    fitted = fit(views, model=model, max_iter=1)
    if sum(dims) > 2:  # three places in one or two dimensions may be close
        assert adjusted_rand_index(labels, fitted.labels_) == 1.0


# -- ends of weights --------------------------------------------------------------------------


@pytest.mark.parametrize("model", [MSCAM, MSCAN])
@pytest.mark.parametrize("graph_weight", [1e-30, 1e30])
@pytest.mark.parametrize("alpha", [1e-6, 1e6])
@pytest.mark.thorough
def test_the_ends_of_what_weights_may_be(
    blobs: Blobs, model: Estimator, alpha: float, graph_weight: float
) -> None:
    views, _ = blobs
    fit(views, model=model, alpha=alpha, constants=Constants.paper(graph_weight=graph_weight))
    if model is MSCAM:
        for floor in (1e-6, 1e6):
            for ridge in (0.0, 1e-6, 1e6):
                constants = Constants.paper(
                    graph_weight=graph_weight, identity_weight=floor, metric_ridge=ridge
                )
                fit(views, alpha=alpha, constants=constants)


# -- anything ---------------------------------------------------------------------------------

NUMBERS = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e-300, 1e300, -1e300, 5e-324, 1e-160, 1e160]),
    st.floats(-10, 10),
    st.floats(allow_nan=False, allow_infinity=False),
)
BAD_NUMBERS = st.one_of(NUMBERS, st.sampled_from([np.nan, np.inf, -np.inf]))


@st.composite
def problems(draw: st.DrawFn, numbers: st.SearchStrategy[float]) -> dict[str, Any]:
    n = draw(st.integers(1, 9))
    views = [
        draw(hnp.arrays(np.float64, (n, draw(st.integers(1, 4))), elements=numbers))
        for _ in range(draw(st.integers(1, 3)))
    ]
    if draw(st.booleans()):  # duplicates, which random draws seldom have
        chosen = draw(hnp.arrays(np.intp, n, elements=st.integers(0, n - 1)))
        views = [view[chosen] for view in views]
    return {
        "views": views,
        "n_clusters": draw(st.integers(1, n + 1)),
        "model": draw(st.sampled_from([MSCAM, MSCAN])),
        "scale": draw(st.sampled_from(SCALES)),
        "n_neighbors": draw(st.one_of(st.none(), st.integers(1, 9))),
        "alpha": draw(st.sampled_from([1e-6, 1.0, 1e6])),
        "constants": Constants.paper(graph_weight=draw(st.sampled_from([1e-6, 0.1, 1e6]))),
    }


def check_anything(problem: dict[str, Any]) -> None:
    views = problem.pop("views")
    before = [view.tobytes() for view in views]
    try:
        fitted = fit(views, max_iter=2, **problem)
        fitted.predict(views)
    except MscamError:
        pass  # refused, by an error of the package
    assert [view.tobytes() for view in views] == before


@pytest.mark.parametrize("kind", ["lists of several lengths", "arrays", "no values"])
@pytest.mark.parametrize("name", ["batches", "partial_labels"])
def test_values_of_samples_that_are_no_single_values(blobs: Blobs, kind: str, name: str) -> None:
    lists = [[1], [2, 3], [4]] * 15
    arrays = np.array([*map(np.array, lists), None], dtype=object)[:-1]
    values: Any = {"lists of several lengths": lists, "arrays": arrays, "no values": []}[kind]
    with pytest.raises(DataError):
        MSCAM(3, n_jobs=1).fit(blobs[0], **{name: values})


def test_no_new_samples_have_no_batches(blobs: Blobs) -> None:
    views, _ = blobs
    fitted = fit(views, batches=np.arange(45) % 2)
    assert len(fitted.predict([view[:0] for view in views], batches=[])) == 0


COMMON: dict[str, Any] = {
    "deadline": None,
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}


@outnumbered
@settings(max_examples=30, **COMMON)
@given(problem=problems(BAD_NUMBERS))
def test_any_numbers_and_holes(problem: dict[str, Any]) -> None:
    check_anything(problem)


@outnumbered
@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(max_examples=3000, **COMMON)
@given(problem=problems(NUMBERS))
def test_any_numbers_at_length(problem: dict[str, Any]) -> None:
    check_anything(problem)
