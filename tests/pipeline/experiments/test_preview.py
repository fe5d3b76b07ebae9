"""What an experiment would do, told without doing it."""

from __future__ import annotations

import pytest

from mscam_dask.data.store import open_store
from mscam_dask.engine.local import SerialExecutor
from mscam_dask.engine.plan import plan_memory
from mscam_dask.errors import MemoryPlanError
from mscam_dask.model.parameters import Parameters
from mscam_dask.pipeline.document import parse_override
from mscam_dask.pipeline.experiments import sweep
from mscam_dask.pipeline.experiments.config import read_experiment
from mscam_dask.pipeline.experiments.preview import plan_experiment
from tests.pipeline.experiments.conftest import Write

SWEEP = (
    "[sweep]\ndatasets = ['tiny.npz']\nalpha = [0.1]\ngraph_weight = [0.1]\nmax_outer_iter = 1\n"
)


class Four(SerialExecutor):
    """Four workers with as much memory as they are told."""

    n_workers = 4
    memory_limit_bytes = 0


def test_each_worker_of_a_sweep_needs_what_a_whole_fit_needs(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(SWEEP)
    sweep.run_sweep(read_experiment(file, command="sweep"), "out")
    plan = plan_memory(open_store("out/data/tiny.zarr"), Parameters(n_clusters=3))
    apart = [parse_override("execution.in_process=false"), parse_override("execution.workers=4")]
    for overrides in ((), apart):
        planned = plan_experiment(read_experiment(file, overrides, command="sweep"), "out")
        assert planned.worker_bytes == plan.worker_bytes(1)
    executor = Four()
    executor.memory_limit_bytes = plan.worker_bytes(4)
    assert plan.worker_bytes(4) < plan.worker_bytes(1)
    monkeypatch.setattr(sweep, "_executor", lambda _cluster: executor)
    with pytest.raises(MemoryPlanError, match="run fewer fits at a time"):
        sweep.run_sweep(read_experiment(file, command="sweep"), "out", overwrite=True)
