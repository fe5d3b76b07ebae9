"""The plan of a run says what the run then does."""

from __future__ import annotations

import time
from pathlib import Path

import dask
import pytest

from mscam_dask.cli.run import _memory
from mscam_dask.pipeline.dry_run import RunPlan, plan_run
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
    plan = plan_run(settings)
    assert sorted(tmp_path.rglob("*")) == before
    assert (plan.place.action, plan.same_as, plan.start) == ("run", None, None)
    assert plan.read_bytes == 8 * 60 * 13
    assert plan.worker_bytes > plan.read_bytes
    assert plan.seconds > 0
    assert again(pipeline(QUIET)).directory.path == plan.place.directory
    assert plan_run(settings).place.action == "nothing"


def test_a_plan_knows_what_would_be_taken_over(first: RunOutcome, pipeline: Write) -> None:
    plan = plan_run(read_config(pipeline(f"{QUIET}[evaluate]\nenabled = false\n")))
    assert plan.same_as is not None
    assert plan.same_as.name == first.directory.path.name
    fresh = plan_run(read_config(pipeline(f"alpha = 2.0\n{QUIET}")))
    assert fresh.same_as is None
    assert first.directory.path.name in fresh.basis


def test_a_plan_says_whether_results_are_spilled(pipeline: Write, tiny: Path) -> None:
    def plan_with(memory: str) -> RunPlan:
        return plan_run(
            read_config(pipeline(f"[execution]\nworkers = 1\nmemory_limit = '{memory}'\n"))
        )

    small = plan_with("100MiB")
    assert not small.spills
    save_npz(tiny, three_subspaces(SIZES.exact_samples + 300))
    need = plan_with("100MiB").worker_bytes
    with dask.config.set({"distributed.worker.memory.target": 1e-6}):
        enough, less = plan_with(f"{need}B"), plan_with(f"{need - 1}B")
        too_small = plan_with("100MiB")
    with dask.config.set({"distributed.worker.memory.target": False}):
        keeps_all = plan_with(f"{need - 1}B")
    assert (less.spills, too_small.spills, keeps_all.spills) == (True, False, False)
    gib = f"{need / 2**30:.2f} GiB"
    assert _memory(enough) == f"each needs up to {gib} and has {gib}"
    assert _memory(less).endswith("and HAS ONLY " + gib + ": it spills results to its disk")
    assert _memory(too_small).endswith("and HAS ONLY 0.10 GiB: the fit would be refused")


@pytest.mark.parametrize(
    ("lines", "selected"),
    [
        ("constants.auto_settings = true\n", ("scale", "alpha", "the initial graph")),
        ("constants.auto_settings = true\nalpha = 2.0\nscale = 'unit'\n", ("the initial graph",)),
        ("constants.auto_settings = false\n", ()),
    ],
)
def test_a_plan_names_what_the_fit_selects_and_its_time_in_order_of_magnitude(
    pipeline: Write, tiny: Path, tmp_path: Path, lines: str, selected: tuple[str, ...]
) -> None:
    save_npz(tiny, three_subspaces(200))
    file = pipeline(HERE)
    file.write_text(file.read_text().replace("constants.auto_settings = false\n", lines))
    settings = read_config(file)
    plan = plan_run(settings, tmp_path / "out")
    assert plan.selected == selected
    if len(selected) == 3:
        data = open_data(settings.data, tmp_path / "data.zarr").data
        taken = []
        for _ in range(2):  # the first one imports
            started = time.process_time()  # whatever else the computer does
            settings.cluster.estimator(n_jobs=1).fit(data)
            taken.append(time.process_time() - started)
        assert min(taken) / 8 < plan.seconds < 8 * min(taken)
