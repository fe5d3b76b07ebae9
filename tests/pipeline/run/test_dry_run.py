"""The plan of a run says what the run then does."""

from __future__ import annotations

import time
from pathlib import Path

import dask
import pytest

from mscam_dask.cli.console import relative
from mscam_dask.cli.run import plan_run
from mscam_dask.engine.memory import plan_memory
from mscam_dask.pipeline.open_data import open_data
from mscam_dask.pipeline.read_config import read_config
from mscam_dask.pipeline.run import RunOutcome
from mscam_dask.types.rules import SIZES
from tests.pipeline.runs import HERE, QUIET, Write, again
from tests.synthetic import save_npz, three_subspaces


def test_a_plan_leaves_nothing_behind_and_names_where_the_run_then_is(
    pipeline: Write, tmp_path: Path
) -> None:
    settings = read_config(pipeline(QUIET))
    before = sorted(tmp_path.rglob("*"))
    plan = dict(plan_run(settings))
    assert sorted(tmp_path.rglob("*")) == before
    assert plan["To do"] == "cluster"
    assert plan["Data"].startswith("60 samples, 2 views: ")
    assert plan["Bytes"].startswith(f"{8 * 60 * 13 / 2**20:.1f} MiB of data, at most ")
    assert relative(again(pipeline(QUIET)).directory.path) == plan["Run"]
    assert dict(plan_run(settings))["To do"] == "nothing: this run has finished"


def test_a_plan_knows_what_would_be_taken_over(first: RunOutcome, pipeline: Write) -> None:
    name = first.directory.path.name
    plan = dict(plan_run(read_config(pipeline(f"{QUIET}[evaluate]\nenabled = false\n"))))
    assert plan["To do"] == f"reuse the clustering of {name}, evaluate and write"
    fresh = dict(plan_run(read_config(pipeline(f"alpha = 2.0\n{QUIET}"))))
    assert fresh["To do"] == "cluster"
    assert fresh["Time"].endswith(f"(the time of {name})")


def test_a_plan_says_whether_results_are_spilled(
    pipeline: Write, tiny: Path, tmp_path: Path
) -> None:
    def workers(memory: str) -> str:
        lines = f"[execution]\nworkers = 1\nmemory_limit = '{memory}'\n"
        return dict(plan_run(read_config(pipeline(lines))))["Workers"]

    assert workers("100MiB").endswith("and HAS ONLY 0.10 GiB: the fit would be refused")
    save_npz(tiny, three_subspaces(SIZES.exact_samples + 300))
    settings = read_config(pipeline(""))
    data = open_data(settings.data, tmp_path / "data.zarr").data
    tried = settings.cluster.estimator().candidate_settings(data)
    auto = tried[0].constants.auto_settings
    need = max(plan_memory(data, one, view_graphs=auto).worker_bytes(1) for one in tried)
    gib, refused = f"{need / 2**30:.2f} GiB", "the fit would be refused"
    with dask.config.set({"distributed.worker.memory.target": 1e-6}):
        assert workers(f"{need}B") == f"1, each needs up to {gib} and has {gib}"
        spilled = "it spills results to its disk"
        assert workers(f"{need - 1}B").endswith(f"and HAS ONLY {gib}: {spilled}")
        assert workers("100MiB").endswith(f"and HAS ONLY 0.10 GiB: {refused}")
    with dask.config.set({"distributed.worker.memory.target": False}):
        assert workers(f"{need - 1}B").endswith(refused)


@pytest.mark.parametrize(
    ("lines", "selected"),
    [
        ("constants.auto_settings = true\n", ": scale, alpha, the initial graph"),
        ("constants.auto_settings = true\nalpha = 2.0\nscale = 'unit'\n", ": the initial graph"),
        ("constants.auto_settings = false\n", ""),
    ],
)
def test_a_plan_names_what_the_fit_selects_and_its_time_in_order_of_magnitude(
    pipeline: Write, tiny: Path, tmp_path: Path, lines: str, selected: str
) -> None:
    save_npz(tiny, three_subspaces(200))
    file = pipeline(HERE)
    file.write_text(file.read_text().replace("constants.auto_settings = false\n", lines))
    settings = read_config(file)
    plan = dict(plan_run(settings, tmp_path / "out"))
    assert plan["Settings"].partition("; selected during the fit")[2] == selected
    if "alpha" in selected:
        data = open_data(settings.data, tmp_path / "data.zarr").data
        taken = []
        for _ in range(2):  # the first one imports
            started = time.process_time()  # whatever else the computer does
            settings.cluster.estimator(n_jobs=1).fit(data)
            taken.append(time.process_time() - started)
        seconds = float(plan["Time"].removeprefix("about ").partition(" s ")[0])
        assert min(taken) / 8 < seconds < 8 * min(taken)
