"""How a fit reads to Dask: groups and spans of tasks, what goes first, and sizes of results."""

from __future__ import annotations

import gc
import time
from typing import Any
from unittest import mock

import numpy as np
import pytest
from distributed import Client, span
from scipy.sparse import csr_array

from mscam_dask.engine.executors import dask as module
from mscam_dask.engine.executors._process import n_bytes
from mscam_dask.engine.executors.dask import DaskExecutor
from mscam_dask.linalg.orthonormal import Basis
from mscam_dask.solvers.graph_update import GraphRows
from tests.clusters import local_client
from tests.estimators.small import quick
from tests.synthetic import gaussian_views


def spans_of(client: Client) -> Any:
    cluster: Any = client.cluster
    return cluster.scheduler.extensions["spans"]


@pytest.mark.thorough
def test_spans_and_metrics_do_not_grow_with_the_fits_on_a_cluster() -> None:
    views = gaussian_views(0, n_samples=40)[0]

    def held(client: Client) -> tuple[int, int, int, int]:
        spans = set(spans_of(client).spans.values())
        (n_digests,) = client.run(lambda dask_worker: len(dask_worker.digests_total)).values()
        groups = {group.name for span in spans for group in span.groups}
        records = sum(len(span.metadata["collections"]) for span in spans if span.metadata)
        return len(spans), len(groups), records, n_digests

    with local_client(1, processes=False) as client:
        sizes = []
        for _ in range(8):
            quick(client=client).fit(views)
            sizes.append(held(client))
    settled = sizes[3]
    assert settled[0] > 3
    assert settled[3] > 100
    # the scheduler may still be forgetting tasks of the last fit
    first, last = np.max(sizes[:2], axis=0), np.min(sizes[4:], axis=0)
    assert last[1] <= 2 * first[1] + 1
    assert last[2] <= 2 * first[2] + 1
    for now in sizes[4:]:
        assert now[0] == settled[0]
        assert now[3] <= 1.05 * settled[3]


def test_spans_around_a_fit_are_the_parents_of_its_own() -> None:
    with local_client(1, processes=False) as client:
        with span("mine"):
            quick(client=client).fit(gaussian_views(0, n_samples=40)[0])
            client.submit(sum, [1, 2], pure=False).result()
        (mine,) = spans_of(client).spans_search_by_name["mine",]
        assert {child.name for child in mine.children} == {("mine", "mscam")}
        assert len(mine.groups) == 1


def test_the_size_of_a_result_is_that_of_the_arrays_in_it() -> None:
    basis, matrix = Basis(np.zeros((1000, 5)), np.ones(5)), csr_array(np.eye(1000))
    arrays = (basis.vectors, matrix.data, matrix.indices, matrix.indptr)
    held = sum(array.nbytes for array in arrays)
    assert held <= n_bytes((basis, [GraphRows(0, matrix)])) <= held + 2000


def test_alike_tasks_are_dealt_out_to_the_workers_and_may_be_moved() -> None:
    with local_client(2, processes=False) as client, DaskExecutor(client) as executor:
        known = client.cluster.scheduler.tasks
        workers = set(client.scheduler_info()["workers"])
        handles = [executor.submit(abs, i, key=f"solved_view/0/{i}") for i in range(4)]
        other = executor.submit(abs, 9, key="assemble_graph/0")
        executor.gather([*handles, other])
        places = [known[one.key].worker_restrictions for one in handles]
        assert places[:2] == places[2:]
        assert set().union(*places) == workers
        assert all(known[one.key].loose_restrictions for one in handles)
        assert not known[other.key].worker_restrictions


def test_tasks_dealt_to_a_worker_that_is_gone_run_on_another() -> None:
    with local_client(2, processes=False) as client, DaskExecutor(client) as executor:
        executor.submit(abs, 0, key="solved_view/0/0")
        gone = next(iter(client.scheduler_info()["workers"]))
        client.retire_workers([gone])
        handles = [executor.submit(abs, -i, key=f"solved_view/0/{i}") for i in (1, 2)]
        assert executor.gather(handles) == [1, 2]


def test_the_processes_of_all_workers_are_prepared_before_their_first_task() -> None:
    with local_client(2) as client:
        before = max(client.run(gc.get_freeze_count).values())
        with DaskExecutor(client):
            assert min(client.run(gc.get_freeze_count).values()) > before


def test_a_worker_that_loads_for_long_goes_on_with_it_in_its_first_task() -> None:
    def slow() -> None:
        time.sleep(2.0)

    with (
        local_client(1) as client,
        mock.patch.object(module, "_load_package", slow),
        DaskExecutor(client, timeout_s=1.0) as executor,
    ):
        assert executor.gather([executor.submit(abs, -2, key="first/0")]) == [2]
