"""Cells on a cluster whose workers are gone."""

from __future__ import annotations

import pytest
from distributed import LocalCluster

from mscam_dask.benchmark.run_trials import run_trials
from mscam_dask.benchmark.trial import Limits, StoredData, Trial
from mscam_dask.errors import NoWorkersError
from mscam_dask.pipeline.config.settings import ExecutionTable
from mscam_dask.pipeline.run.cluster import open_cluster
from tests.messages import quotes


@pytest.mark.timeout(30)  # what this would catch is a wait without an end
def test_a_cluster_without_workers_is_an_error_in_time() -> None:
    trial = Trial(
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
        pytest.raises(NoWorkersError, match=quotes(scheduler.scheduler_address, "0.2 s")),
    ):
        next(run_trials([trial], Limits(), cluster, timeout_s=0.2))
