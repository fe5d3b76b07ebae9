"""Two ways to the same result, and what must not matter: oracle, executors, forms, orders, units, seeds."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse
import xarray as xr
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.metrics import adjusted_rand_score

from mscam_dask import MSCAM, MSCAN, Constants
from mscam_dask.data.ingest import ingest
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.engine.views import view_shape
from mscam_dask.pipeline.doctor import violations
from mscam_dask.solvers.ridge_view import view_svd
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.result import Solution
from tests import oracle
from tests.benchmark_sets import BenchmarkData, default_fit, fit_views
from tests.clusters import local_client
from tests.snapshots import Memory
from tests.synthetic import Array, Labels, gaussian_views

# Random data of which some give a warning.
may_lack_structure = pytest.mark.filterwarnings("ignore::mscam_dask.errors.DataWarning")


def assert_valid(solution: Solution, n_clusters: int, what: object) -> None:
    found = violations(solution)
    assert not found, (what, found)
    assert solution.n_connected_components == n_clusters, what


# -- The default solver and the dense oracle --------------------------------------------------------


def random_problem(seed: int) -> tuple[MultiViewData, Labels, Parameters]:
    """Up to four clusters in up to three views, near or far from each other."""
    rng = np.random.default_rng([seed, 1])
    n_clusters, n_views = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    views, labels = gaussian_views(
        seed,
        n_samples=int(rng.integers(24, 49)),
        n_clusters=n_clusters,
        spread=float(rng.choice([1.0, 2.0, 3.0, 5.0])),
        dims=rng.integers(2, 12, n_views).tolist(),
    )
    parameters = Parameters(
        n_clusters=n_clusters,
        model="mscam" if seed % 2 else "mscan",
        n_neighbors=int(rng.integers(4, 9)),
        alpha=float(rng.choice([0.1, 1.0, 10.0])),
        max_iter=6,
    )
    return as_multi_view(views), labels, parameters


def grams_of(data: MultiViewData) -> list[Array]:
    """Gram matrix of each scaled view, with mean s² one."""
    bases = [
        view_svd(source.read, view_shape(source), scale="standard", name=source.name).basis
        for source in data.views
    ]
    return [(basis.vectors * basis.singular_values_squared) @ basis.vectors.T for basis in bases]


def solved_by_the_oracle(data: MultiViewData, parameters: Parameters) -> oracle.Found:
    settings = oracle.Settings(
        n_clusters=parameters.n_clusters,
        n_neighbors=parameters.n_neighbors,
        alpha=parameters.alpha,
        max_iter=parameters.max_iter or 30,
        admm=parameters.constants.admm,
    )
    solve = oracle.solve_mscam if parameters.model == "mscam" else oracle.solve_mscan
    return solve(grams_of(data), settings)


def compare_with_the_oracle(seed: int) -> tuple[bool, bool]:
    """Compare one problem; return whether the oracle has found its clusters, and the solver."""
    data, labels, parameters = random_problem(seed)
    by_oracle = solved_by_the_oracle(data, parameters)
    store = Memory()
    solution = run_fit(data, parameters, SerialExecutor(), checkpoint_store=store)
    estimator = MSCAM if parameters.model == "mscam" else MSCAN
    default = estimator(parameters.n_clusters, n_jobs=1).fit(data).solution_
    for name, found in (("path", solution), ("default", default)):
        assert_valid(found, parameters.n_clusters, (seed, name))
    # ridge views drop directions with less than 1 % of the largest gain
    distances = oracle.data_distances(grams_of(data), parameters.alpha, smallest_gain=0.01)
    first = oracle.a_step(distances, solution.n_neighbors)
    parts = tuple(store.saved[0].arrays[f"graph_{name}"] for name in ("data", "indices", "indptr"))
    assert_allclose(csr_array(parts, shape=first.shape).toarray(), first, atol=1e-5)
    exact = [
        bool(adjusted_rand_score(labels, found) == 1)
        for found in (by_oracle.labels, solution.labels, default.labels)
    ]
    if exact[0]:
        assert exact[1:] == [True, True], (seed, "only the oracle has found the clusters")
    return exact[0], exact[1]


@pytest.mark.parametrize("seed", [1, 2])
def test_the_solver_finds_the_clusters_that_the_oracle_finds(seed: int) -> None:
    compare_with_the_oracle(seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@may_lack_structure
def test_the_solver_finds_the_clusters_that_the_oracle_finds_on_200_problems() -> None:
    found = np.array([compare_with_the_oracle(seed) for seed in range(200)])
    assert found[:, 0].sum() >= 80
    print(f"oracle {found[:, 0].sum()} of 200, solver {found[:, 1].sum()} of 200")  # noqa: T201


# -- Executors, forms of the data, orders -----------------------------------------------------------


def random_shape(seed: int) -> tuple[list[Array], Callable[..., Any]]:
    """Views of small whole numbers, exact in each dtype, and a model of them."""
    rng = np.random.default_rng([seed, 2])
    n_samples = int(rng.integers(6, 80))
    n_clusters = int(rng.integers(1, min(8, n_samples) + 1))
    dims = rng.integers(1, 25, int(rng.integers(1, 5))).tolist()
    views, _ = gaussian_views(
        seed, n_samples=n_samples, n_clusters=max(2, n_clusters), spread=3.0, dims=dims
    )
    rounded = [np.round(4 * view) for view in views]
    if seed % 5 == 0:  # samples and columns that are equal
        for view in rounded:
            view[:3] = view[0]
    parameters: dict[str, Any] = {"max_iter": 4}
    if seed % 3:
        parameters["constants"] = Constants.paper()
    if seed % 2:
        parameters["n_neighbors"] = int(rng.integers(1, n_samples))
    estimator = (MSCAM, MSCAN)[seed % 2]

    def fit(X: Any, **more: Any) -> Any:
        return estimator(n_clusters, **{"n_jobs": 1, **parameters, **more}).fit(X)

    return rounded, fit


def bits(model: Any) -> tuple[bytes, ...]:
    """Labels and graph, as bytes."""
    graph = model.consensus_graph_
    arrays = (model.labels_, graph.data, graph.indices, graph.indptr)
    return tuple(array.tobytes() for array in arrays)


def forms(views: list[Array], folder: Path, seed: int) -> Iterator[tuple[str, Any]]:
    """The same numbers in other dtypes, layouts, chunks and files."""
    rng = np.random.default_rng([seed, 3])
    yield "by columns", [np.asfortranarray(view) for view in views]
    yield "float32", [view.astype(np.float32) for view in views]
    yield "int32", [view.astype(np.int32) for view in views]
    yield "big-endian", [view.astype(">f8") for view in views]
    yield "strided", [np.repeat(np.repeat(view, 2, 0), 3, 1)[::2, ::3] for view in views]
    chunks = [tuple(int(rng.integers(1, length + 1)) for length in view.shape) for view in views]
    yield "chunked", [da.from_array(view, size) for view, size in zip(views, chunks, strict=True)]
    named = {f"x{i}": (("sample", f"f{i}"), view) for i, view in enumerate(views)}
    yield "dataset", xr.Dataset(named).transpose().chunk({"sample": 5})
    store = folder / f"{seed}.zarr"
    ingest(as_multi_view(views), store)
    yield "stored", store


def compare_forms(seed: int, folder: Path, clients: list[Any]) -> float:
    """Compare fits of one data set; return the share of training samples predicted as fitted."""
    views, fit = random_shape(seed)
    model = fit(views)
    assert_valid(model.solution_, model.n_clusters_, seed)
    expected, predicted = bits(model), model.predict(views)
    assert bits(fit(views, n_jobs=2)) == expected, (seed, "threads")
    for client in clients:
        assert bits(fit(views, n_jobs=None, client=client)) == expected, (seed, client)
    for form, X in forms(views, folder, seed):
        other = fit(X)
        assert bits(other) == expected, (seed, form)
        assert_array_equal(other.predict(X), predicted, err_msg=f"{seed}: {form}")
    _, first, which = np.unique(np.hstack(views), axis=0, return_index=True, return_inverse=True)
    assert_array_equal(predicted, predicted[first][which], err_msg=f"{seed}: equal samples")
    sparse = fit([scipy.sparse.csr_array(view) for view in views])
    assert_array_equal(sparse.labels_, model.labels_, err_msg=f"{seed}: sparse")
    difference = abs(sparse.consensus_graph_ - model.consensus_graph_)
    assert difference.max() < 1e-4, (seed, "sparse")
    return float(np.mean(predicted == model.labels_))


@pytest.mark.parametrize("seed", [0, 13])
def test_executors_and_forms_of_the_data_give_the_same_bits(seed: int, tmp_path: Path) -> None:
    compare_forms(seed, tmp_path, [])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@may_lack_structure
def test_executors_and_forms_of_50_data_sets_give_the_same_bits(tmp_path: Path) -> None:
    with (
        local_client(2) as processes,
        local_client(1, threads_per_worker=2, processes=False) as threads,
    ):
        shares = [compare_forms(seed, tmp_path, [processes, threads]) for seed in range(50)]
    print(f"training samples predicted as fitted: {np.mean(shares):.4f}")  # noqa: T201
    assert np.mean(shares) > 0.95


Loader = Callable[[str], BenchmarkData]

FACTORS = (1e-7, 3.0, 1e9, 0.2, 41.0, 1e-3)


def same_partition(left: NDArray[np.int64], right: NDArray[np.int64]) -> bool:
    return bool(adjusted_rand_score(left, right) == 1.0)


# -- Synthetic: clusters that overlap a little, so that the whole path is walked --------------------


@pytest.fixture(scope="module", params=[MSCAM, MSCAN])
def estimator(request: pytest.FixtureRequest) -> Any:
    return request.param


def synthetic_views() -> list[Array]:
    return gaussian_views(21, n_samples=100, n_clusters=4, spread=1.0, dims=(5, 9, 16))[0]


def labels_of(estimator: Any, views: Any, **parameters: Any) -> NDArray[np.int64]:
    labels: NDArray[np.int64] = estimator(4, n_jobs=1, max_iter=4, **parameters).fit(views).labels_
    return labels


def test_order_of_views_samples_and_columns_names_units_signs_and_seed(estimator: Any) -> None:
    plain = labels_of(estimator, synthetic_views())
    order = np.random.default_rng(1).permutation(len(plain))
    a, b, c = (
        factor * view[order] for factor, view in zip(FACTORS, synthetic_views(), strict=False)
    )
    views = {"0/view": b[:, ::-1], " ": c, "a/b": -a}
    assert same_partition(labels_of(estimator, views, random_state=1), plain[order])


def test_every_sample_and_every_view_twice(estimator: Any) -> None:
    views, _ = gaussian_views(21, n_samples=60, spread=3.0, dims=(5, 9))
    once = estimator(3, n_jobs=1, max_iter=4).fit({"a": views[0], "b": views[1]})
    doubled = {name: np.vstack([view, view]) for name, view in zip("ab", views, strict=True)}
    twice = estimator(3, n_jobs=1, max_iter=4).fit(
        doubled | {f"{name} again": view for name, view in doubled.items()}
    )
    assert same_partition(twice.labels_[:60], once.labels_)
    assert_array_equal(twice.labels_[60:], twice.labels_[:60])


@pytest.mark.parametrize("constants", [None, Constants.paper()], ids=["default", "paper"])
def test_equal_samples_share_a_cluster(estimator: Any, constants: Any) -> None:
    rng = np.random.default_rng(1)
    views = {
        name: rng.integers(0, 2, (200, 2)) * rng.choice([-1.0, 1.0], (200, 2)) for name in "ab"
    }
    views = {
        name: np.abs(view, out=view, where=view != 0.0) for name, view in views.items()
    }  # -0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = estimator(4, n_jobs=1, constants=constants, max_iter=2).fit(views)
    assert len(np.unique(model.labels_)) == 4
    _, group = np.unique(np.hstack(list(views.values())) + 0.0, axis=0, return_inverse=True)
    predicted = model.predict(views)
    for number in np.unique(group):
        assert len(np.unique(model.labels_[group == number])) == 1
    assert_array_equal(predicted, model.labels_)


# -- Real data: everything at once, and on handwritten one by one -----------------------------------


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["msrcv1", pytest.param("handwritten", marks=pytest.mark.slow)])
def test_everything_at_once(benchmark_data: Loader, name: str) -> None:
    data = benchmark_data(name)
    order = np.random.default_rng(0).permutation(len(data.labels))
    model = fit_views(data, data.names[::-1], samples=order, factors=FACTORS, random_state=11)
    assert same_partition(model.labels_, default_fit(name, data).labels_[order])
