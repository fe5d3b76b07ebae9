"""Cells on a cluster whose workers are gone."""

from __future__ import annotations

import pytest
from distributed import LocalCluster

from mscam_dask.errors import NoWorkersError
from mscam_dask.pipeline.cluster import open_cluster
from mscam_dask.pipeline.experiments.cells import Cell, Limits, StoredData
from mscam_dask.pipeline.experiments.running import run_cells
from mscam_dask.pipeline.settings import ExecutionTable


@pytest.mark.timeout(30)  # what this would catch is a wait without an end
def test_a_cluster_without_workers_is_an_error_in_time() -> None:
    cell = Cell(
        dataset="tiny",
        method="knn-sc",
        data=StoredData(path="absent", metrics=(), digest="d"),
        n_clusters=3,
        seed=1,
        shuffled=False,
        parameters={},
    )
    with (
        LocalCluster(
            n_workers=0,
            processes=False,
            protocol="tcp",
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as scheduler,
        open_cluster(ExecutionTable(scheduler=scheduler.scheduler_address)) as cluster,
        pytest.raises(NoWorkersError, match=r"every worker of tcp://.* within 0.2 s"),
    ):
        next(run_cells([cell], Limits(), cluster, workers_timeout_s=0.2))
