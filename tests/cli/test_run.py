"""`mscam-dask run`: what is printed, where results are, which exit code."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import psutil
import pytest

from mscam_dask.data.results import read_result
from tests import processes
from tests.cli.conftest import Call, numbers
from tests.messages import quotes
from tests.processes import mscam, wait_until


def test_results_are_on_standard_output_and_progress_on_standard_error(
    here: Path, call: Call
) -> None:
    result = call("run", "tiny.toml", "--in-process", "--set", "report.enabled=true")
    (run,) = (here / "runs").iterdir()
    assert run.name.startswith("tiny-")
    record = json.loads((run / "run.json").read_text())
    text = re.sub(r"\s+", " ", result.stdout)
    assert ["3", "3"] in numbers(result.stdout)  # components found and asked for
    assert record["fit"]["message"][1:] in text
    assert f"ARI {record['metrics']['adjusted_rand_index']:.4f}" in text
    assert re.search(quotes("report.html", "labels.csv", "result.zarr", "run.json"), text)
    weights = [record.graph_weight for record in read_result(run / "result.zarr").history]
    assert len(weights) == record["fit"]["n_outer_iterations"] == 3
    for iteration, weight in enumerate(weights, start=1):
        told = {str(iteration), "3", f"{weight:g}"}
        assert any(told <= set(line) for line in numbers(result.stderr)), told
    assert not set(result.stderr.splitlines()) & set(result.stdout.splitlines())
    assert "\x1b" not in result.output


def test_settings_from_the_command_line_win(here: Path, call: Call) -> None:
    (here / "tiny.toml").rename("quickstart.toml")
    with np.load("tiny.npz") as archive:
        np.savez("tiny.npz", allow_pickle=False, view_0=archive["view_0"])
    arguments = ("run", "quickstart.toml", "--in-process", "-o", "out", "--set")
    result = call(*arguments, "cluster.n_clusters=1")
    assert ["1", "1"] in numbers(result.stdout)
    assert "ACC" not in result.output  # no labels, no scores
    assert "n_clusters = 1" in (here / "out" / "pipeline.toml").read_text()
    call("quickstart", "--in-process")  # runs the file that is there
    assert [run.name.partition("-")[0] for run in (here / "runs").iterdir()] == ["quickstart"]


def test_memory_that_a_file_may_declare_is_limited_by_an_option_and_by_the_file(
    here: Path, call: Call
) -> None:
    for arguments in (["--max-bytes", "1 kB"], ["--set", "data.max_bytes=1000"]):
        result = call("run", "tiny.toml", "--in-process", "-o", "out", *arguments, code=3)
        assert "allowed are 1000" in re.sub(r"\s+", " ", result.stderr)


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (["absent.toml"], 2, ["absent.toml"]),
        (["tiny.toml", "--set", "run.seed=2", "--set", "run.seed=4"], 2, ["2 and 4"]),
        (["tiny.toml", "--set", "data.source=absent.npz"], 3, ["absent.npz"]),
        (["tiny.toml", "-o", "."], 2, ["tiny.npz"]),
    ],
)
def test_an_error_is_one_message_and_its_exit_code(
    here: Path, call: Call, arguments: list[str], code: int, parts: list[str]
) -> None:
    result = call("run", *arguments, "--in-process", code=code)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    message = result.stderr[result.stderr.index("Error: ") :]
    for part in parts:
        assert part in message
    assert "Traceback" in call("run", *arguments, "--in-process", "--debug", code=code).stderr


@pytest.mark.thorough
def test_two_worker_processes_make_no_noise(here: Path) -> None:
    arguments = ("run", "tiny.toml", "--workers", "2", "--memory-limit", "2 GiB", "-o", "there")
    done = processes.run(*mscam(*arguments))
    assert done.returncode == 0, done.stderr
    assert ["3", "3"] in numbers(done.stdout)
    pages = re.findall(r"(http://127\.0\.0\.1:\d+/\w+)", done.stderr)
    start, fit = pages  # one by the step "start", the same by the fit
    assert start == fit
    assert start.endswith("/mscam")
    assert "Traceback" not in done.stderr
    assert "distributed" not in done.stderr  # its log stays out of the terminal
    record = json.loads((here / "there" / "run.json").read_text())
    assert record["executor"].startswith("2 ")


@pytest.mark.parametrize("step", ["start", "cluster"])
@pytest.mark.thorough
def test_ctrl_c_ends_a_run_without_noise(here: Path, step: str) -> None:
    Path("digits.toml").write_text("[data]\nsource = 'digits'\n[cluster]\nn_clusters = 10\n")
    with subprocess.Popen(
        mscam("run", "digits.toml", "--workers", "1", "-o", "out"),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        for line in process.stderr:
            if re.match(rf"\S+ {step}\b", line):  # after the time
                break
        started = psutil.Process(process.pid).children
        if step == "start":
            wait_until(lambda: any("spawn" in " ".join(p.cmdline()) for p in started()))
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to workers too
        rest = process.stderr.read()
        assert process.wait() == 130
    # what is no progress, which begins with the time
    (line,) = [line for line in rest.splitlines() if not re.match(r"\d\d:\d\d:\d\d ", line)]
    assert "mscam-dask resume " in line
    record = json.loads((here / "out" / "run.json").read_text())
    assert (record["state"], record["exit_code"]) == ("interrupted", 130)


@pytest.mark.slow
def test_the_quickstart_writes_its_file_and_keeps_it(here: Path, call: Call) -> None:
    call("quickstart", "--in-process")
    assert "overwrite" in call("quickstart", "--in-process").stdout
