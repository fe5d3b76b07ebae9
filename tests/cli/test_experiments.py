"""`mscam-dask compare` and `sweep`: what is printed, where results are, which exit code."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import Result

from mscam_dask.benchmark.experiment import Progress
from mscam_dask.benchmark.results import PROTOCOLS, TrialEntry
from mscam_dask.benchmark.run_command import ProgressLines
from mscam_dask.cli import console as terminal
from mscam_dask.cli.console import results_console, show, table
from mscam_dask.pipeline.run.lock import RunLock
from tests.cli.screens import numbers
from tests.messages import quotes

Call = Callable[..., Result]


def test_compare_on_ones_own_data_and_again(here: Path, call: Call) -> None:
    arguments = (
        *("compare", "--dataset", "tiny.npz", "--method", "knn-sc", "--runs", "2"),
        *("--set", 'compare.protocols=["defaults"]', "--in-process", "-o", "out"),
    )
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    assert PROTOCOLS["defaults"] in result.stdout
    assert re.search(r"tiny +knn-sc +defaults +1\.0000 ± 0\.0000", result.stdout)
    assert numbers(result.stdout)[-1] == ["2"]
    assert re.search(r"1/1 +knn-sc +tiny .*\b1 .*\b1\.0000 ", result.stderr)
    record = json.loads((here / "out" / "experiment.json").read_text())
    assert record["command"].startswith("mscam-dask compare --dataset tiny.npz --method knn-sc")
    again = call(*arguments)
    assert again.exit_code == 0
    assert numbers(again.stdout)[-1] == ["2", "2"]  # fits, and those kept
    assert "knn-sc" not in again.stderr


@pytest.mark.thorough
def test_comparisons_of_data_on_the_command_line_have_a_directory_for_each(
    here: Path, call: Call
) -> None:
    Path("other.npz").write_bytes(Path("tiny.npz").read_bytes())
    Path("c.toml").write_text(
        "[compare]\ndatasets = ['tiny.npz']\nmethods = ['knn-sc']\nruns = 1\n"
    )
    options = ("--method", "knn-sc", "--runs", "1", "--in-process")
    for data in (["tiny.npz"], ["other.npz"], ["tiny.npz", "other.npz"]):
        given = [word for name in data for word in ("--dataset", name)]
        assert call("compare", *given, *options).exit_code == 0
    assert call("compare", "c.toml", "--dataset", "other.npz", *options).exit_code == 0
    assert call("compare", "c.toml", *options).exit_code == 0
    found = {
        path.name: json.loads((path / "experiment.json").read_text())
        for path in Path("runs").iterdir()
    }
    assert {
        name: [one["name"] for one in record["datasets"]] for name, record in found.items()
    } == {
        "comparison-tiny": ["tiny"],
        "comparison-other": ["other"],
        "comparison-tiny+other": ["tiny", "other"],
        "c-other": ["other"],
        "c": ["tiny"],
    }


def test_options_go_to_the_table_that_the_file_has(here: Path, call: Call) -> None:
    Path("r.toml").write_text("[robustness]\nn_samples = 40\ncorruption_rate = [0.0]\n")
    result = call(
        "compare", "r.toml", "--method", "knn-sc", "--runs", "1", "--in-process", "-o", "o"
    )
    assert result.exit_code == 0, result.output
    assert numbers(result.stdout)[-1] == ["1"]
    assert Path("o/experiment.json").exists()
    refused = call("compare", "r.toml", "--dataset", "tiny.npz")
    assert refused.exit_code == 2
    assert re.search(quotes("--dataset tiny.npz", "[robustness]", "'datasets'"), refused.stderr)


def test_without_anything_there_has_to_be_the_papers_pipeline(here: Path, call: Call) -> None:
    result = call("compare")
    assert result.exit_code == 2
    assert "mscam-dask compare --dataset mine.npz" in result.stderr


def test_a_line_of_progress_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    entry = TrialEntry(
        key="k",
        dataset="caltech101_nus31",
        method="ssc-concat",
        seed=9,
        shuffled=True,
        parameters={},
        outcome="ok",
        scores={"accuracy": 0.4141},
        seconds=119.41,
        peak_memory_bytes=524 * 2**20,
    )
    lines = ProgressLines()
    lines._started -= 3600.0
    lines(Progress(entry=entry, done=60, total=130))
    (line,) = capsys.readouterr().err.splitlines()
    for part in (
        "60/130",
        entry.method,
        entry.dataset,
        " 9 ",
        "0.4141",
        "119 s",
        "524 MiB",
        "70 min",
    ):
        assert part in line
    assert len(line) <= 80
    setting = {"sweep": True, "alpha": 0.001, "graph_weight": 0.001, "scale": "standard"}
    swept = msgspec.structs.replace(entry, parameters=setting, peak_memory_bytes=None)
    lines(Progress(entry=swept, done=60, total=130))
    (line,) = capsys.readouterr().err.splitlines()
    for part in ("60/130", entry.dataset, "0.4141", "119 s", "70 min"):
        assert part in line
    assert line.count("0.001") == 2
    assert len(line) <= 80


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


def test_an_experiment_is_described(here: Path, call: Call) -> None:
    options = ("--method", "knn-sc", "--runs", "2", "--in-process", "-o", "out")
    assert call("compare", "--dataset", "tiny.npz", *options).exit_code == 0
    record = json.loads(Path("out/experiment.json").read_bytes())
    result = call("describe", "out")
    assert result.exit_code == 0, result.stderr
    for part in (
        r"\bcomparison\b.*\bout\n",
        r" finished\n",
        r" mscam-dask compare --dataset tiny\.npz",
        r" tiny \(60\b",
        r" knn-sc\n",
        r" 2 ok\n",
        rf" {re.escape(record['executor'])}\n",
        r" mscam-dask report out\b",
    ):
        assert re.search(part, result.stdout), part


def test_an_experiment_that_was_cut_off_is_told_from_one_under_way(here: Path, call: Call) -> None:
    options = ("--method", "knn-sc", "--runs", "2", "--in-process", "-o", "out")
    assert call("compare", "--dataset", "tiny.npz", *options).exit_code == 0
    document = Path("out/experiment.json")
    content = json.loads(document.read_bytes())
    document.write_text(json.dumps({**content, "state": "running", "cells": [], "ended": None}))
    with RunLock(Path("out")):
        under_way = call("describe", "out")
        refused = call("compare", "--dataset", "tiny.npz", *options)
    assert " running\n" in under_way.stdout
    assert numbers(under_way.stdout).count(["2"]) == 2  # fits that ended; --runs 2
    assert refused.exit_code == 75
    assert re.search(quotes(here / "out", os.getpid()), refused.stderr)
    said = re.sub(r"\s+", " ", call("describe", "out").stdout)
    record_resume = "mscam-dask compare --dataset tiny.npz --method knn-sc --runs 2 -o out"
    assert re.search(quotes("running", record_resume), said)
    assert record_resume not in re.sub(r"\s+", " ", under_way.stdout)


def test_a_method_without_any_result_is_exit_code_5(here: Path, call: Call) -> None:
    result = call(
        *("compare", "--dataset", "tiny.npz", "--method", "mlan", "--runs", "1", "--in-process"),
        *("--set", "parameters.mlan.memory_limit_bytes=1", "-o", "out"),
    )
    assert result.exit_code == 5
    assert "MemoryPlanError" in result.stderr
    assert re.search(r"tiny +mlan +defaults +- ", result.stdout)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--dataset", "absent"], ["--dataset absent", "'absent'", "MSCAM_DATA"]),
        (["--dataset", "tiny.npz", "--method", "mlam"], ["--method mlam", "'mlan'"]),
        (["--dataset", "tiny.npz", "--set", "compare.rnus=3"], ["compare.rnus=3", "'runs'"]),
        (
            ["--dataset", "tiny.npz", "--scheduler", "tcp://192.0.2.1:8786"],
            ["'tcp://192.0.2.1:8786'", "--insecure"],
        ),
        (["tiny.toml"], ["tiny.toml, line 1", "[data]"]),
        (["absent.toml"], ["absent.toml"]),
    ],
)
def test_what_is_wrong_is_said_before_any_work(
    here: Path, call: Call, monkeypatch: pytest.MonkeyPatch, arguments: list[str], parts: list[str]
) -> None:
    monkeypatch.delenv("MSCAM_DATA", raising=False)
    result = call("compare", *arguments, "-o", "out")
    assert result.exit_code == 2, result.output
    for part in parts:
        assert part in result.stderr
    assert not Path("out").exists()


def test_sweep(here: Path, call: Call) -> None:
    Path("s.toml").write_text(
        "[sweep]\ndatasets = ['tiny.npz']\nalpha = [0.1, 1]\ngraph_weight = [0.1, 1.0, 5.0]\n"
        "max_iter = 2\n"
    )
    result = call("sweep", "s.toml", "--in-process", "-o", "out")
    assert result.exit_code == 0, result.output
    assert numbers(result.stdout)[-1] == ["6"]
    record = json.loads((here / "out" / "experiment.json").read_text())
    (heat_map,) = record["heat_maps"]
    for maps in (heat_map["label_free"], heat_map["with_labels"]):
        assert {np.shape(values) for values in maps.values()} == {(2, 3)}
    for name, (row, column) in heat_map["best"].items():
        values = np.array(heat_map["label_free"][name], float)
        assert values[row, column] == values.max()
    assert len((here / "out" / "results.csv").read_text().splitlines()) == 7
    text = (here / "out" / "results.md").read_text()
    assert all(name.replace("_", " ") in text for name in heat_map["best"])
    again = call("sweep", "s.toml", "--in-process", "-o", "out")
    assert numbers(again.stdout)[-1] == ["6", "6"]
    resumed = call("resume", "out")
    assert resumed.exit_code == 2
    said = " ".join(resumed.stderr.split())
    assert f"mscam-dask sweep s.toml -o {here / 'out'}" in said
    more = call("sweep", "s.toml", "--in-process", "-o", "out", "--set", "sweep.alpha=[0.1,1,2]")
    assert numbers(more.stdout)[-1] == ["6", "9"]


def test_sweep_without_labels_has_no_scores_against_them(here: Path, call: Call) -> None:
    with np.load("tiny.npz") as archive:
        np.savez("plain.npz", allow_pickle=False, view_0=archive["view_0"])
    Path("s.toml").write_text(
        "[sweep]\ndatasets = ['plain']\nalpha = [1]\ngraph_weight = [1]\nmax_iter = 1\n"
        "[dataset.plain]\nsource = 'plain.npz'\nn_clusters = 3\n"
    )
    result = call("sweep", "s.toml", "--in-process", "-o", "out")
    assert result.exit_code == 0, result.output
    record = json.loads((here / "out" / "experiment.json").read_text())
    assert record["heat_maps"][0]["with_labels"] == {}
    text = Path("s.toml").read_text().replace("n_clusters = 3\n", "")
    Path("s.toml").write_text(text)
    refused = call("sweep", "s.toml", "--in-process", "-o", "other")
    assert refused.exit_code == 2
    assert re.search(quotes("'plain'", "n_clusters", "[dataset.plain]"), refused.stderr)


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
    planned = call("run", "s.toml", "--set", "sweep.seed=3", "--dry-run")
    assert planned.exit_code == 0, planned.output
    assert re.search(r"\bsensitivity\b.*\boutputs/s\n", planned.stdout)
    assert numbers(planned.stdout).count(["2"]) == 2  # fits to do, and those of unknown time
    assert not Path("outputs").exists()
    result = call("run", "s.toml", "--set", "sweep.seed=3")
    assert result.exit_code == 0, result.output
    assert numbers(result.stdout)[-1] == ["2"]
    record = json.loads(Path("outputs/s/experiment.json").read_text())
    assert record["command"] == (
        "MSCAM_SWEEP__N_NEIGHBORS=8 mscam-dask run s.toml --set sweep.seed=3"
    )
    assert record["heat_maps"][0]["fixed"]["n_neighbors"] == 8
    before = files_of(Path("outputs"))
    again = call("sweep", "s.toml", "--set", "sweep.seed=3")
    assert again.exit_code == 0, again.output
    assert re.search(quotes(record["ended"], "--overwrite"), again.stdout)
    assert files_of(Path("outputs")) == before
    planned = call("run", "s.toml", "--set", "sweep.seed=3", "--dry-run")
    assert numbers(planned.stdout).count(["2"]) == 1  # fits that have ended; none to do
    forced = call("run", "s.toml", "--set", "sweep.seed=3", "--overwrite")
    assert numbers(forced.stdout)[-1] == ["2"]
    assert files_of(Path("outputs")) != before


def test_run_takes_a_comparison_and_a_robustness_curve(here: Path, call: Call) -> None:
    Path("r.toml").write_text(
        "[robustness]\nn_samples = 40\ncorruption_rate = [0.0, 0.5]\nmethods = ['knn-sc']\nruns = 2\n"
    )
    planned = call("run", "r.toml", "--in-process", "--dry-run", "-o", "r")
    assert ["4"] in numbers(planned.stdout)  # fits to do
    assert ["4", "900"] in numbers(planned.stdout)  # fits of unknown time, seconds at most
    assert call("run", "r.toml", "--in-process", "-o", "r").exit_code == 0
    Path("c.toml").write_text(
        "[compare]\ndatasets = ['tiny.npz']\nmethods = ['knn-sc']\nruns = 1\n"
    )
    assert call("run", "c.toml", "--in-process", "-o", "c").exit_code == 0
    before = files_of(Path("c"))
    assert call("run", "c.toml", "--in-process", "-o", "c").exit_code == 0
    assert files_of(Path("c")) == before
    planned = call("compare", "c.toml", "--in-process", "--dry-run", "-o", "c", "--runs", "3")
    assert ["1", "2"] in numbers(planned.stdout)  # kept, and to do
    assert re.search(r"\d s .*\b2\b", planned.stdout)
    assert files_of(Path("c")) == before


def test_a_file_is_a_pipeline_or_an_experiment(here: Path, call: Call) -> None:
    Path("both.toml").write_text(Path("tiny.toml").read_text() + "[compare]\nruns = 2\n")
    refused = call("run", "both.toml", "--in-process")
    assert refused.exit_code == 2
    assert re.search(quotes("both.toml, line 7", "[compare]", "[dataset.NAME]"), refused.stderr)
    Path("s.toml").write_text(SWEEP)
    refused = call("run", "s.toml", "--set", "output.root=s3://bucket/runs")
    assert refused.exit_code == 2
    assert "--set output.root=s3://bucket/runs" in refused.stderr
    refused = call("compare", "--dataset", "tiny.npz", "-o", "s3://bucket/run")
    assert refused.exit_code == 2
