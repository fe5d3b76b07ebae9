"""The plan of a run says what the run then does."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import dask
import pytest

from mscam_dask.cli.run import _memory
from mscam_dask.pipeline.config.read_config import read_config
from mscam_dask.pipeline.run import steps
from mscam_dask.pipeline.run.dry_run import RunPlan, plan_run
from mscam_dask.pipeline.run.open_data import open_data
from mscam_dask.pipeline.run.resume import run_or_resume
from mscam_dask.types.rules import SIZES
from tests.synthetic import save_npz, three_subspaces

Write = Callable[[str], Path]
HERE = "[execution]\nin_process = true\nthreads = 1\n"


def test_a_plan_leaves_nothing_behind_and_names_where_the_run_then_is(
    pipeline: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    settings = read_config(pipeline(HERE))
    plan = plan_run(settings)
    assert sorted({*tmp_path.rglob("*")} - {tmp_path / "tiny.toml"}) == [
        path for path in before if path.name != "tiny.toml"
    ]
    assert (plan.place.action, plan.same_as, plan.start) == ("run", None, None)
    assert plan.read_bytes == 8 * 60 * 13
    assert plan.worker_bytes > plan.read_bytes
    assert plan.seconds > 0
    outcome = run_or_resume(settings)
    assert outcome.directory.path == plan.place.directory
    assert plan_run(settings).place.action == "nothing"


def test_a_plan_knows_what_would_be_taken_over(
    pipeline: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = run_or_resume(read_config(pipeline(HERE)))
    plan = plan_run(read_config(pipeline(f"{HERE}[evaluate]\nenabled = false\n")))
    assert plan.same_as is not None
    assert plan.same_as.name == first.directory.path.name
    fresh = plan_run(read_config(pipeline(f"alpha = 2.0\n{HERE}")))
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


@pytest.mark.parametrize("n_samples", [60, 300])
def test_the_time_is_of_the_order_of_the_fits(
    pipeline: Write, tiny: Path, tmp_path: Path, n_samples: int
) -> None:
    save_npz(tiny, three_subspaces(n_samples))
    file = pipeline(HERE)
    file.write_text(file.read_text().replace("constants.auto_settings = false\nmax_iter = 3\n", ""))
    settings = read_config(file)
    plan = plan_run(settings, tmp_path / "out")
    assert plan.selected == ("scale", "alpha", "the initial graph")
    data = open_data(settings.data, tmp_path / "data.zarr").data
    started = time.process_time()  # whatever else the computer does
    steps.cluster(data, settings.cluster, client=None, n_threads=1, observers=())
    taken = time.process_time() - started
    assert taken / 8 < plan.seconds < 8 * taken


@pytest.mark.parametrize(
    ("lines", "selected"),
    [
        ("constants.auto_settings = true\nalpha = 2.0\n", ("scale", "the initial graph")),
        ("constants.auto_settings = true\nalpha = 2.0\nscale = 'unit'\n", ("the initial graph",)),
        ("constants.auto_settings = false\n", ()),
    ],
)
def test_a_plan_names_what_the_fit_selects(
    pipeline: Write, tmp_path: Path, lines: str, selected: tuple[str, ...]
) -> None:
    file = pipeline(HERE)
    file.write_text(file.read_text().replace("constants.auto_settings = false\n", lines))
    assert plan_run(read_config(file), tmp_path / "out").selected == selected
