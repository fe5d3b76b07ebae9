"""The path of large data, on data small enough to compare with the exhaustive one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import pytest
from sklearn.metrics import adjusted_rand_score

from mscam_dask.data.store.dataset import write_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.engine.executors.base import Executor, SerialExecutor
from mscam_dask.engine.executors.dask import DaskExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.types.events import FitEvent, SettingsSelected
from mscam_dask.types.parameters import Choices, Parameters
from mscam_dask.types.result import Solution
from tests.clusters import local_client
from tests.engine.same_bits import bits
from tests.synthetic import assert_partition_and_graph_agree, gaussian_views

pytestmark = pytest.mark.usefixtures("small_blocks")


def fit(
    views: Any, executor: Executor | None = None, *, exact_samples: int = 400, **settings: Any
) -> Solution:
    parameters = [
        Parameters(
            n_clusters=4,
            scale=scale,  # type: ignore[arg-type]
            alpha=alpha,
            exact_samples=exact_samples,
            **settings,
        )
        for scale, alpha in (("unit", 10.0), ("standard", 1.0))
    ]
    return run_fit(as_multi_view(views), parameters, executor or SerialExecutor())


def data(spread: float = 1.6) -> tuple[list[Any], Any]:
    return gaussian_views(2, n_samples=1200, n_clusters=4, spread=spread, dims=(6, 20))


@pytest.mark.parametrize("spread", [0.9])
@pytest.mark.thorough
def test_partition_is_that_of_the_exhaustive_path(spread: float) -> None:
    views, labels = data(spread)
    large, exact = fit(views), fit(views, exact_samples=5000)
    assert_partition_and_graph_agree(large, n_clusters=4)
    assert len(large.settings) == 2
    true_score = adjusted_rand_score(labels, exact.labels)
    assert adjusted_rand_score(labels, large.labels) > true_score - 0.05
    assert true_score > 0.6


@pytest.mark.thorough
def test_a_worker_that_joins_gets_work_and_changes_nothing() -> None:
    views, _ = data(0.9)
    parameters = Parameters(n_clusters=4, exact_samples=400, max_iter=3)
    expected = bits(run_fit(as_multi_view(views), parameters, SerialExecutor()))
    with local_client(1) as client:

        def join(event: FitEvent) -> None:
            if isinstance(event, SettingsSelected) and client.cluster is not None:
                client.cluster.scale(2)
                client.wait_for_workers(2, timeout=60)

        found = run_fit(as_multi_view(views), parameters, DaskExecutor(client), observers=[join])
        counts = client.run(lambda dask_worker: dask_worker.state.executed_count)
    assert bits(found) == expected
    assert len(counts) == 2
    assert min(counts.values()) > 20


@pytest.mark.thorough
def test_arrays_dask_collections_and_stores_give_the_same_bits(tmp_path: Path) -> None:
    views, _ = data(1.5)
    expected = bits(fit(views, max_iter=1))
    chunked = [da.from_array(view, chunks=(137, -1)) for view in views]
    assert bits(fit(chunked, max_iter=1)) == expected
    store = tmp_path / "data.zarr"
    write_store(as_multi_view(views), store)
    assert bits(fit(str(store), max_iter=1)) == expected


@pytest.mark.thorough
def test_neighbors_in_each_view_are_tried_on_all_samples_where_the_first_cut_is_unclear() -> None:
    def settings_of(spread: float) -> list[tuple[str, float, str]]:
        views, _ = data(spread)
        candidates = [
            Parameters(n_clusters=4, exact_samples=400, scale=scale, max_iter=1)
            for scale in ("unit", "standard")
        ]
        multi_view, choices = as_multi_view(views), Choices(initial_graph=True)
        solution = run_fit(multi_view, candidates, SerialExecutor(), choices=choices)
        return [(one.scale, one.score, one.initial_graph) for one in solution.settings]

    unit, standard, joined = settings_of(0.7)
    assert joined[2] == "mixed"
    assert joined[0] == max(unit, standard, key=lambda one: one[1])[0]
    assert [kind for *_, kind in settings_of(4.0)] == ["mean", "mean"]
