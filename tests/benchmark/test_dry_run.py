"""The estimate of an experiment before it runs."""

from __future__ import annotations

from pathlib import Path

from mscam_dask.benchmark.config import read_experiment
from mscam_dask.benchmark.experiment import run_experiment
from mscam_dask.benchmark.run_command import plan_experiment
from mscam_dask.data.store.read import open_store
from mscam_dask.engine.memory import plan_memory
from mscam_dask.pipeline.toml_document import parse_override
from mscam_dask.types.parameters import Parameters
from tests.benchmark.conftest import Write

SWEEP = "[sweep]\ndatasets = ['tiny.npz']\nalpha = [0.1]\ngraph_weight = [0.1]\nmax_iter = 1\n"


def test_each_worker_of_a_sweep_needs_what_a_whole_fit_needs(write: Write) -> None:
    file, out = write(SWEEP), Path("out")
    run_experiment(read_experiment(file), out)
    plan = plan_memory(open_store("out/data/tiny.zarr"), Parameters(n_clusters=3))
    needs = f"{plan.worker_bytes(1) / 2**30:.2f} GiB"
    apart = [parse_override("execution.in_process=false"), parse_override("execution.workers=4")]
    for overrides in ((), apart):
        settings = read_experiment(file, overrides)
        assert needs in dict(plan_experiment(settings, out))["Workers"]
