"""`solver="reference"`: what it is asked for reaches the dense algorithms, or is refused."""

from __future__ import annotations

import re
import tracemalloc
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from mscam_dask.data.views.as_multi_view import MultiViewData, as_multi_view
from mscam_dask.engine.fit import run_reference
from mscam_dask.engine.scores import reference_graphs_of_view, view_shape
from mscam_dask.errors import ConfigurationError, MemoryPlanError
from mscam_dask.estimators.mscam import MSCAM, MSCAN
from mscam_dask.solvers.partition_score import mean_score, view_score
from mscam_dask.solvers.reference import _record, solve_mscam, solve_mscan
from mscam_dask.solvers.reference_steps import ReferenceCorrections, ReferenceOptions
from mscam_dask.solvers.view_svd import scaled_gram
from mscam_dask.types.parameters import Model, Parameters, ViewSettings
from mscam_dask.types.result import Status
from tests.messages import quotes
from tests.synthetic import gaussian_views


def data() -> MultiViewData:
    views, _ = gaussian_views(2, n_samples=40, spread=0.8, dims=(5, 9))
    return as_multi_view(dict(zip(("a", "b"), views, strict=True)))


def parameters(model: Model = "mscam", **more: Any) -> Parameters:
    return Parameters(n_clusters=3, model=model, n_neighbors=5, max_iter=2, **more)


@pytest.mark.parametrize("model", ["mscam", "mscan"])
def test_scaling_and_alpha_of_each_view_reach_the_algorithms(model: Model) -> None:
    views, alphas = data(), (0.3, 4.0)
    view_settings = (ViewSettings("unit", alphas[0]), ViewSettings("none", alphas[1]))
    grams = [
        scaled_gram(source.read, view_shape(source), scale=one.scale, name=source.name)
        for source, one in zip(views.views, view_settings, strict=True)
    ]
    solve = solve_mscam if model == "mscam" else solve_mscan
    settings = ReferenceOptions(n_clusters=3, n_neighbors=5, max_iter=2, view_alphas=alphas)
    expected = solve(grams, settings)
    found = run_reference(views, parameters(model, view_settings=view_settings))
    assert_array_equal(found.consensus_graph.toarray(), expected.consensus_graph.toarray())
    for name, embedding in zip(("a", "b"), expected.view_embeddings, strict=True):
        assert_array_equal(found.view_embeddings[name], embedding)


@pytest.mark.parametrize("changed", [{"identity_weight": 30.0}, {"metric_ridge": 0.01}])
def test_floor_and_ridge_of_the_metric_reach_the_algorithm(changed: dict[str, Any]) -> None:
    views = data()
    grams = [
        scaled_gram(source.read, view_shape(source), scale="standard", name=source.name)
        for source in views.views
    ]
    settings = ReferenceOptions(
        n_clusters=3, n_neighbors=5, max_iter=2, corrections=ReferenceCorrections(**changed)
    )
    expected = solve_mscam(grams, settings).consensus_graph.toarray()
    assert_array_equal(
        run_reference(views, parameters(**changed)).consensus_graph.toarray(), expected
    )
    assert np.any(run_reference(views, parameters()).consensus_graph.toarray() != expected)


@pytest.mark.parametrize("estimator", [MSCAM, MSCAN])
def test_preparations_told_are_those_used(estimator: Any) -> None:
    views, _ = gaussian_views(10, n_samples=40, spread=6.0, dims=(5, 9))
    by_view = {"alpha": {"a": 0.3, "b": 4.0}, "scale": {"a": "unit", "b": "none"}}
    model = estimator(3, solver="reference", n_neighbors=5, max_iter=2, n_jobs=1, **by_view)
    model.fit(as_multi_view(dict(zip("ab", views, strict=True))))
    assert model.view_settings_ == {
        "a": ViewSettings("unit", 0.3),
        "b": ViewSettings("none", 4.0),
    }


@pytest.mark.parametrize(
    "changed",
    [
        {"tol": 0.0},
        {"patience": 2},
        {"min_shrinkage": 0.2},
        {"n_candidates": 20},
        {"exact_samples": 10},
    ],
)
def test_what_has_no_meaning_is_refused(changed: dict[str, Any]) -> None:
    ((name, value),) = changed.items()
    with pytest.raises(ConfigurationError, match=quotes(f"{name}={value}", "solver='reference'")):
        run_reference(data(), parameters(**changed))
    if name == "tol":
        with pytest.raises(ConfigurationError, match=quotes("tol=0.0")):
            MSCAM(3, solver="reference", tol=0.0).fit(data())


def test_the_sentence_of_the_status_holds_for_it() -> None:
    views, _ = gaussian_views(10, n_samples=40, spread=6.0)
    found = run_reference(as_multi_view(views), parameters())
    assert found.status is Status.CONVERGED
    graph = found.consensus_graph
    n_components, components = connected_components(graph, directed=False)
    assert n_components == 3
    assert_array_equal(found.labels, components)


def test_change_of_a_graph_is_the_relative_frobenius_norm() -> None:
    before = csr_array(np.array([[0.0, 3.0], [4.0, 0.0]]))
    graph = csr_array(np.array([[0.0, 6.0], [8.0, 0.0]]))
    assert _record(graph, before, 1.0).graph_change == pytest.approx(0.5)
    assert _record(graph, graph, 1.0).graph_change == 0.0


def test_few_samples_are_scored_by_graphs_of_all_others() -> None:
    views, _ = gaussian_views(3, n_samples=9, dims=(5, 9))
    found = run_reference(as_multi_view(views), parameters())
    scores = [
        view_score(reference_graphs_of_view(source, 8), found.labels)
        for source in as_multi_view(views).views
    ]
    assert found.score == mean_score(scores)


def test_less_memory_than_the_matrices_that_are_named_is_refused() -> None:
    with pytest.raises(MemoryPlanError) as refused:
        run_reference(data(), parameters(), memory_limit_bytes=1)
    named = re.search(r"about (\d+) dense 40 x 40 matrices", str(refused.value))
    assert named is not None
    need = int(named[1]) * np.zeros((40, 40)).nbytes
    assert run_reference(data(), parameters(), memory_limit_bytes=need).labels.shape == (40,)
    with pytest.raises(MemoryPlanError, match=quotes(f"{need / 2**30:.2f} GiB")):
        run_reference(data(), parameters(), memory_limit_bytes=need - 1)


@pytest.mark.parametrize("model", ["mscam", "mscan"])
@pytest.mark.parametrize("n_views", [1, 4])
def test_the_matrices_that_are_named_are_not_exceeded(model: Model, n_views: int) -> None:
    views, _ = gaussian_views(2, n_samples=240, spread=0.8, dims=(5, 9, 7, 4)[:n_views])
    table = as_multi_view(views)
    with pytest.raises(MemoryPlanError) as refused:
        run_reference(table, parameters(model), memory_limit_bytes=1)
    named = re.search(r"about (\d+) dense", str(refused.value))
    assert named is not None
    tracemalloc.start()
    try:
        run_reference(table, parameters(model))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < int(named[1]) * 8 * 240 * 240
