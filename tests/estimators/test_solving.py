"""Where a fit is computed: threads of this process, a cluster; stored views are looked at by the workers."""

from __future__ import annotations

import dataclasses
import os
import pickle
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from numpy.testing import assert_allclose, assert_array_equal

from mscam_dask import MSCAM
from mscam_dask.data.store.dataset import open_store, write_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import RowSource
from mscam_dask.engine.executors.base import Executor, SerialExecutor, ThreadExecutor
from mscam_dask.engine.executors.dask import DaskExecutor
from mscam_dask.errors import DataError, NoWorkersError
from mscam_dask.estimators._resources import map_views
from tests.clusters import local_client
from tests.estimators.small import quick
from tests.synthetic import gaussian_views


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with local_client(2) as client:
        yield client


@pytest.mark.parametrize("n_jobs", [None, -1, np.int64(2)])
def test_number_of_threads_changes_no_bit(n_jobs: Any) -> None:
    views, _ = gaussian_views(7, n_samples=90, spread=0.7)
    one = quick().fit(views)
    other = quick(n_jobs=n_jobs).fit(views)
    assert_array_equal(other.labels_, one.labels_)
    assert other.consensus_graph_.data.tobytes() == one.consensus_graph_.data.tobytes()


def test_memberships_are_computed_in_this_process_after_the_client_was_closed() -> None:
    views, _ = gaussian_views(9, n_samples=90, spread=0.8)
    with local_client(1, processes=False) as client:
        model = quick(client=client).fit(views)
        assert set(model.cluster_features()["cluster"]) == {0, 1, 2}
    assert_allclose(model.confidence_, quick().fit(views).confidence_)


def test_workers_give_the_same_bits_with_absent_samples_batches_and_known_labels(
    client: Client,
) -> None:
    views, labels = gaussian_views(0, n_samples=90, spread=1.5)
    row = np.arange(90)
    views[0][row % 2 == 1] += 4.0
    views[1][row % 5 == 0] = np.nan
    given: Any = {"batches": row % 2, "partial_labels": np.where(row % 9 == 0, labels, -1)}
    here = MSCAM("auto", max_clusters=4, n_jobs=1).fit(views, **given)
    there = MSCAM("auto", max_clusters=4, client=client).fit(views, **given)
    selected, same = (one.solution_.n_clusters_selection for one in (here, there))
    assert same == dataclasses.replace(selected, seconds=same.seconds)
    for model in (there, pickle.loads(pickle.dumps(there))):
        assert_array_equal(model.labels_, here.labels_)
    assert_array_equal(there.consensus_graph_.toarray(), here.consensus_graph_.toarray())
    for name, embedding in here.view_embeddings_.items():
        assert_array_equal(there.view_embeddings_[name], embedding)


@pytest.fixture
def stored(tmp_path: Path) -> MultiViewData:
    views, _ = gaussian_views(0, n_samples=60)
    write_store(as_multi_view(dict(zip("abc", views, strict=True))), tmp_path / "data.zarr")
    return open_store(tmp_path / "data.zarr")


def process_of(view: RowSource) -> tuple[str, int]:
    return view.name, os.getpid()


def refused(view: RowSource, looked: Path) -> str:
    """Refuses two views of three; a file has a line for each time it was called."""
    with looked.open("a", encoding="utf-8") as file:
        file.write(f"{view.name}\n")
    if view.name != "a":
        raise DataError(f"view {view.name} is wrong")
    return view.name


def test_stored_views_are_looked_at_by_the_workers_and_arrays_by_the_driver(
    client: Client, stored: MultiViewData
) -> None:
    here = as_multi_view({"d": np.eye(60)}).views[0]
    views = [stored.views[0], here, stored.views[1]]
    found = dict(map_views(process_of, views, DaskExecutor(client), stage="look"))
    assert list(found) == ["a", "d", "b"]
    assert found["d"] == os.getpid()
    assert {found["a"], found["b"]} <= set(client.run(os.getpid).values())


def test_stored_views_need_a_worker_and_arrays_none(stored: MultiViewData) -> None:
    with local_client(0) as client:
        executor = DaskExecutor(client, timeout_s=0.1)
        with pytest.raises(NoWorkersError):
            map_views(process_of, stored.views, executor, stage="look")
        arrays = as_multi_view([np.eye(3)]).views
        assert map_views(process_of, arrays, executor, stage="look") == [("view_0", os.getpid())]


@pytest.mark.parametrize("where", ["here", "threads", "workers"])
def test_the_first_view_that_is_wrong_is_told_and_read_once(
    client: Client, stored: MultiViewData, where: str, tmp_path: Path
) -> None:
    looked = tmp_path / "looked"
    executors: dict[str, Executor] = {
        "here": SerialExecutor(),
        "threads": ThreadExecutor(2),
        "workers": DaskExecutor(client),
    }
    with pytest.raises(DataError, match="view b is wrong"):
        map_views(partial(refused, looked=looked), stored.views, executors[where], stage="look")
    assert sorted(looked.read_text(encoding="utf-8").split()) == ["a", "b", "c"]
