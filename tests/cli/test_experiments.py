"""`mscam-dask compare` and `sweep`: what is printed, where results are, which exit code."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from mscam_dask.benchmark.results import PROTOCOLS
from mscam_dask.cli import console as terminal
from mscam_dask.cli.console import results_console, show, table
from mscam_dask.pipeline.run_directory import hold_lock
from tests.cli.conftest import Call, numbers
from tests.messages import quotes


def test_compare_on_ones_own_data_and_again(here: Path, call: Call) -> None:
    arguments = (
        *("compare", "--dataset", "tiny.npz", "--method", "knn-sc", "--runs", "2"),
        *("--set", 'compare.protocols=["defaults"]', "--in-process", "-o", "out"),
    )
    result = call(*arguments)
    assert PROTOCOLS["defaults"] in result.stdout
    assert re.search(r"tiny +knn-sc +defaults +1\.0000 ± 0\.0000", result.stdout)
    assert numbers(result.stdout)[-1] == ["2"]
    assert re.search(r"1/1: knn-sc tiny seed \d ACC 1\.0000 .* left \(", result.stderr)
    record = json.loads((here / "out" / "experiment.json").read_text())
    assert record["command"].startswith("mscam-dask compare --dataset tiny.npz --method knn-sc")
    again = call(*arguments)
    assert numbers(again.stdout)[-1] == ["2", "2"]  # fits, and those kept
    assert "knn-sc" not in again.stderr


def test_comparisons_of_data_on_the_command_line_have_a_directory_for_each(
    here: Path, call: Call
) -> None:
    Path("other.npz").write_bytes(Path("tiny.npz").read_bytes())
    Path("c.toml").write_text("[compare]\ndatasets = ['tiny.npz']\n")
    options = ("--method", "knn-sc", "--runs", "1", "--in-process", "--dry-run")
    for given, name in (
        (("c.toml",), "c"),
        (("c.toml", "--dataset", "other.npz"), "c-other"),
        (("c.toml", "--dataset", "tiny.npz", "--dataset", "other.npz"), "c-tiny+other"),
        (("--dataset", "tiny.npz"), "comparison-tiny"),
    ):
        planned = call("compare", *given, *options)
        assert planned.stdout.splitlines()[0].endswith(f" runs/{name}")


def test_variables_of_the_environment_are_compared_with_tables_of_the_command(
    here: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("compare", "--dataset", "tiny.npz", "--in-process", "--dry-run")
    monkeypatch.setenv("MSCAM_DATA_SOURCE", "elsewhere")  # [data] is a table of pipelines
    call(*arguments)
    monkeypatch.setenv("MSCAM_COMPARE_RUNS", "3")
    assert "MSCAM_COMPARE__RUNS" in call(*arguments, code=2).stderr


@pytest.mark.parametrize("width", [120, 60, 30])
def test_tables_break_between_words_where_these_have_room(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    monkeypatch.setattr(terminal, "_FILE_WIDTH", width)
    titles = ("Data", "Method", "ACC", "NMI", "ARI", "Seconds", "Runs")
    scores = ["0.5299 ± 0.0000", "0.0279 ± 0.0000", "-0.0364 ± 0.0000"]
    row = ["prokaryotic", "knn-sc", *scores, "0.2 ± 0.1", "2 of 2"]
    show(results_console(), table(titles, [row], numbers=titles[2:]))
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= width
    if width > 30:
        assert set(" ".join(row).split()) <= set(text.split())


def test_an_experiment_is_described_finished_cut_off_or_under_way(here: Path, call: Call) -> None:
    options = ("--method", "knn-sc", "--runs", "2", "--in-process", "-o", "out")
    call("compare", "--dataset", "tiny.npz", *options)
    document = Path("out/experiment.json")
    record = json.loads(document.read_bytes())
    again = "mscam-dask compare --dataset tiny.npz --method knn-sc --runs 2 -o out"
    said = call("describe", "out").stdout
    assert re.search(quotes("comparison", " finished\n", " tiny (60", " 2 ok\n"), said)
    assert re.search(quotes(record["executor"], "mscam-dask report out"), said)
    call("report", "out", "-o", "page.html")
    assert "knn-sc" in Path("page.html").read_text()
    assert "sweep" in call("--help").stdout
    document.write_text(json.dumps({**record, "state": "running", "cells": [], "ended": None}))
    with hold_lock(Path("out")):
        under_way = call("describe", "out")
        refused = call("compare", "--dataset", "tiny.npz", *options, code=75)
    assert " running\n" in under_way.stdout
    assert again not in re.sub(r"\s+", " ", under_way.stdout)
    assert re.search(quotes(here / "out", os.getpid()), refused.stderr)
    assert re.search(quotes("running", again), re.sub(r"\s+", " ", call("describe", "out").stdout))


def test_a_method_without_any_result_is_exit_code_5(here: Path, call: Call) -> None:
    result = call(
        *("compare", "--dataset", "tiny.npz", "--method", "mlan", "--runs", "1", "--in-process"),
        *("--set", "parameters.mlan.memory_limit_bytes=1", "-o", "out"),
        code=5,
    )
    assert "MemoryPlanError" in result.stderr
    assert re.search(r"tiny +mlan +defaults +- ", result.stdout)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--dataset", "absent"], "MSCAM_DATA"),
        (["--dataset", "tiny.npz", "--scheduler", "tcp://192.0.2.1:8786"], "--insecure"),
        (["--dataset", "tiny.npz", "-o", "s3://bucket/run"], "file system"),
        (["tiny.toml"], "[data]"),
        (["absent.toml"], "absent.toml"),
        ([], "mscam-dask compare --dataset mine.npz"),
    ],
)
def test_what_is_wrong_is_said_before_any_work(
    here: Path, call: Call, monkeypatch: pytest.MonkeyPatch, arguments: list[str], part: str
) -> None:
    monkeypatch.delenv("MSCAM_DATA", raising=False)
    assert part in call("compare", *arguments, code=2).stderr
    assert not Path("runs").exists()


def test_sweep(here: Path, call: Call) -> None:
    Path("s.toml").write_text(
        "[sweep]\ndatasets = ['tiny.npz']\nalpha = [0.1, 1]\ngraph_weight = [0.1, 5.0]\nmax_iter = 1\n"
    )
    arguments = ("sweep", "s.toml", "--in-process", "-o", "out")
    result = call(*arguments)
    assert numbers(result.stdout)[-1] == ["4"]
    record = json.loads((here / "out" / "experiment.json").read_text())
    (heat_map,) = record["heat_maps"]
    for maps in (heat_map["label_free"], heat_map["with_labels"]):
        assert {np.shape(values) for values in maps.values()} == {(2, 2)}
    for name, (row, column) in heat_map["best"].items():
        values = np.array(heat_map["label_free"][name], float)
        assert values[row, column] == values.max()
    assert len((here / "out" / "results.csv").read_text().splitlines()) == 5
    resumed = call("resume", "out", code=2)
    assert f"mscam-dask sweep s.toml -o {here / 'out'}" in " ".join(resumed.stderr.split())
    more = call(*arguments, "--set", "sweep.alpha=[0.1,1,2]")
    assert numbers(more.stdout)[-1] == ["4", "6"]


def test_sweep_without_labels_has_no_scores_against_them(here: Path, call: Call) -> None:
    with np.load("tiny.npz") as archive:
        np.savez("plain.npz", allow_pickle=False, view_0=archive["view_0"])
    sweep = "[sweep]\ndatasets = ['plain']\nalpha = [1]\ngraph_weight = [1]\nmax_iter = 1\n"
    Path("s.toml").write_text(f"{sweep}[dataset.plain]\nsource = 'plain.npz'\n")
    arguments = ("sweep", "s.toml", "--in-process", "-o", "out")
    refused = call(*arguments, code=2)
    assert re.search(quotes("'plain'", "n_clusters", "[dataset.plain]"), refused.stderr)
    call(*arguments, "--set", "dataset.plain.n_clusters=3")
    record = json.loads((here / "out" / "experiment.json").read_text())
    assert record["heat_maps"][0]["with_labels"] == {}


SWEEP = (
    "[sweep]\ndatasets = ['tiny.npz']\nalpha = [0.1, 1]\ngraph_weight = [0.1]\nmax_iter = 1\n"
    "[execution]\nin_process = true\n[output]\nroot = 'outputs'\n"
)


def files_of(directory: Path) -> dict[Path, tuple[int, bytes]]:
    return {
        file: (file.stat().st_mtime_ns, file.read_bytes())
        for file in directory.rglob("*")
        if file.is_file() and file.name != ".lock"
    }


def test_run_takes_the_file_of_an_experiment_and_the_second_time_nothing_is_done(
    here: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("s.toml").write_text(SWEEP)
    monkeypatch.setenv("MSCAM_SWEEP__N_NEIGHBORS", "8")
    assert "--max-bytes" in call("run", "s.toml", "--max-bytes", "1 GB", code=2).stderr
    planned = call("run", "s.toml", "--set", "sweep.seed=3", "--dry-run")
    assert re.search(r"\bsensitivity\b.*\boutputs/s\n", planned.stdout)
    assert numbers(planned.stdout).count(["2"]) == 1  # fits to do
    assert not Path("outputs").exists()
    result = call("run", "s.toml", "--set", "sweep.seed=3")
    assert numbers(result.stdout)[-1] == ["2"]
    record = json.loads(Path("outputs/s/experiment.json").read_text())
    assert record["command"] == (
        "MSCAM_SWEEP__N_NEIGHBORS=8 mscam-dask run s.toml --set sweep.seed=3"
    )
    assert record["heat_maps"][0]["fixed"]["n_neighbors"] == 8
    before = files_of(Path("outputs"))
    again = call("sweep", "s.toml", "--set", "sweep.seed=3")
    assert re.search(quotes(record["ended"], "--overwrite"), again.stdout)
    assert files_of(Path("outputs")) == before
    planned = call("run", "s.toml", "--set", "sweep.seed=3", "--dry-run")
    assert numbers(planned.stdout).count(["2"]) == 1  # fits that have ended; none to do
    forced = call("run", "s.toml", "--set", "sweep.seed=3", "--overwrite")
    assert numbers(forced.stdout)[-1] == ["2"]
    assert files_of(Path("outputs")) != before
