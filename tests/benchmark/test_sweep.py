"""A sweep: every view factored once, every fit bit-identical to one outside a sweep."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mscam_dask.benchmark.sweep import sweep_fits
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.engine.scores import reference_graphs_of_view
from mscam_dask.solvers.view_svd import view_svd
from mscam_dask.types.parameters import Constants, Parameters
from mscam_dask.types.rules import CONSTANTS
from tests import oracle
from tests.clusters import local_client
from tests.synthetic import gaussian_views

VIEWS, LABELS = gaussian_views(0, n_samples=90, spread=2.0)
DATA = as_multi_view(VIEWS)
SETTINGS = [
    Parameters(
        n_clusters=3, alpha=alpha, max_iter=3, constants=Constants.paper(graph_weight=weight)
    )
    for alpha in (0.1, 1.0, 10.0)
    for weight in (0.01, 1.0)
]


def test_views_are_factored_once_for_the_whole_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*args: Any, **options: Any) -> Any:
        calls.append(options["name"])
        return view_svd(*args, **options)

    monkeypatch.setattr("mscam_dask.engine.views.view_svd", counted)
    list(sweep_fits(DATA, SETTINGS, SerialExecutor()))
    assert sorted(calls) == sorted(DATA.view_names)


@pytest.mark.thorough
def test_each_fit_equals_a_fit_outside_a_sweep() -> None:
    for fit, parameters in zip(sweep_fits(DATA, SETTINGS, SerialExecutor()), SETTINGS, strict=True):
        alone = run_fit(DATA, parameters, SerialExecutor())
        np.testing.assert_array_equal(fit.labels, alone.labels)
        assert fit.scores["cross_view_information"] == alone.score
        assert fit.scores["n_connected_components"] == alone.n_connected_components
        values = np.linalg.eigvalsh(oracle.dense_laplacian(alone.consensus_graph.toarray()))
        assert fit.scores["eigengap"] == pytest.approx(values[3] - values[2], abs=1e-5)
        assert fit.scores["modularity"] == pytest.approx(mean_modularity(fit.labels))


def mean_modularity(labels: NDArray[np.int64]) -> float:
    """Newman's Q over pairs of samples, mean over reference graphs and views."""
    same = labels[:, None] == labels
    values = []
    for source in DATA.views:
        for graph in reference_graphs_of_view(source, CONSTANTS.validation_neighbors).graphs:
            weights = graph.toarray().astype(np.float64)
            degrees, total = weights.sum(axis=1), weights.sum()
            values.append(np.sum((weights - np.outer(degrees, degrees) / total)[same]) / total)
    return float(np.mean(values))


def test_dask_gives_the_same_bits() -> None:
    from mscam_dask.engine.executors.dask import DaskExecutor

    serial = list(sweep_fits(DATA, SETTINGS[:3], SerialExecutor()))
    with local_client(1, processes=False) as client:
        distributed = list(sweep_fits(DATA, SETTINGS[:3], DaskExecutor(client)))
    for local, remote in zip(serial, distributed, strict=True):
        np.testing.assert_array_equal(local.labels, remote.labels)
        assert local.scores == remote.scores
