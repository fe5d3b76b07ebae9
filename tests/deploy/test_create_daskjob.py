"""The nightly CronJob's program against an API server that answers as Kubernetes does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.api_server import (
    CLUSTERS,
    JOBS,
    ApiServer,
    Operated,
    ended_pod,
    operator,
    serving,
)
from tests.deploy.files import DEPLOY, run, script_environment

JOB = DEPLOY / "k8s/job.yaml"
PROGRAM = DEPLOY / "k8s/create_daskjob.py"


def create(server: ApiServer, tmp_path: Path, job: Path = JOB) -> subprocess.CompletedProcess[str]:
    with serving(server, tmp_path) as environment:
        return run(sys.executable, PROGRAM, job, env=environment)


@pytest.mark.parametrize(("end", "code"), [("Successful", 0), ("Failed", 3)])
def test_the_job_is_created_and_its_end_is_ours(tmp_path: Path, end: str, code: int) -> None:
    server = ApiServer(["JobCreated", "ClusterCreated", "Running", "Running", end])
    server.pod = ended_pod(code)
    result = create(server, tmp_path)
    assert (result.returncode, result.stderr) == (code, "")
    assert f"mscam-nightly: {end}" in result.stdout
    (path,) = server.objects
    assert path == f"{JOBS}/mscam-nightly"
    assert server.tokens == {"Bearer of the pod"}
    created = {key: value for key, value in server.objects[path].items() if key != "status"}
    assert created == yaml.safe_load(JOB.read_text())


def test_a_job_that_has_ended_makes_room(tmp_path: Path) -> None:
    server = ApiServer(["Successful"])
    assert create(server, tmp_path).returncode == 0
    server.context, server.pod = ["Running", "Failed"], ended_pod(2)
    assert create(server, tmp_path).returncode == 2
    assert server.changes == ["POST", "DELETE", "POST"]


@pytest.mark.parametrize(("code", "ours"), [(1, 1), (2, 2), (3, 3), (4, 4), (5, 0), (137, 137)])
@pytest.mark.thorough
def test_a_run_that_fails_for_good_frees_the_cluster_and_the_next_night_runs(
    tmp_path: Path, code: int, ours: int
) -> None:
    operator()
    server = Operated([code, 0])
    result = create(server, tmp_path)
    assert (result.returncode, result.stderr) == (ours, "")
    assert server.history == ["Failed"]
    assert server.objects[f"{JOBS}/mscam-nightly"]["status"]["jobStatus"] == "Failed"
    assert CLUSTERS not in server.objects
    assert ("report" in result.stdout) == (code == 5)
    assert create(server, tmp_path).returncode == 0
    assert server.changes == ["POST", "DELETE", "POST"]
    assert server.history == ["Failed", "Succeeded"]
    assert CLUSTERS not in server.objects


def test_what_passes_by_itself_is_tried_again_but_not_for_ever(tmp_path: Path) -> None:
    operator()
    server = Operated([75, 75, 0])
    result = create(server, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert server.changes == ["POST", "DELETE", "POST", "DELETE", "POST"]
    server = Operated([75] * 20)
    assert create(server, tmp_path).returncode == 75
    assert server.changes.count("POST") == 7


@pytest.mark.parametrize(
    ("pod", "code", "tries"),
    [
        (None, 75, 7),  # a node that was taken away
        (ended_pod(137, "Error", reason="Evicted"), 75, 7),
        ({"status": {"phase": "Failed", "reason": "NodeShutdown"}}, 75, 7),
        (ended_pod(75, "Error", reason="DeadlineExceeded"), 75, 1),
        (ended_pod(137, "OOMKilled"), 137, 1),
        ({"status": {"phase": "Failed"}}, 1, 1),
    ],
)
@pytest.mark.parametrize("word", ["Failed", "Running"])
def test_how_a_pod_ended_says_whether_another_try_helps(
    tmp_path: Path, pod: Any, code: int, tries: int, word: str
) -> None:
    server = ApiServer([word])  # with "Running" the operator misses the pod's end
    server.pod = pod
    result = create(server, tmp_path)
    assert (result.returncode, result.stderr) == (code, "")
    assert server.changes.count("POST") == tries


def test_a_wait_for_workers_that_was_in_vain_is_tried_again(tmp_path: Path) -> None:
    server = ApiServer(["Failed"])
    end = {"terminated": {"exitCode": 75, "reason": "Error"}}
    server.pod = {
        "status": {
            "phase": "Failed",
            "initContainerStatuses": [{"state": end}],
            "containerStatuses": [{"state": {"waiting": {"reason": "PodInitializing"}}}],
        }
    }
    assert create(server, tmp_path).returncode == 75
    assert server.changes.count("POST") == 7


def test_an_earlier_job_whose_end_the_operator_missed_makes_room(tmp_path: Path) -> None:
    server = ApiServer(["Running"])
    job = {**yaml.safe_load(JOB.read_text()), "status": {"jobStatus": "Running"}}
    server.objects[f"{JOBS}/mscam-nightly"], server.pod = job, ended_pod(3)
    answer = server.answer

    def succeeding(method: str, path: str, body: Any) -> tuple[int, Any]:
        if method == "POST":
            server.context = ["Successful"]
        return answer(method, path, body)

    server.answer = succeeding  # type: ignore[method-assign]
    assert create(server, tmp_path).returncode == 0
    assert server.changes == ["DELETE", "POST"]


def test_a_job_that_still_runs_is_left_alone(tmp_path: Path) -> None:
    server = ApiServer(["Running"])
    job = yaml.safe_load(JOB.read_text())
    server.objects[f"{JOBS}/mscam-nightly"] = job
    result = create(server, tmp_path)
    assert result.returncode == 75
    assert server.changes == []


def test_an_api_server_that_refuses_is_a_cluster_failure(tmp_path: Path) -> None:
    server = ApiServer([])
    server.failures = 99
    result = create(server, tmp_path)
    assert result.returncode == 4
    assert " 503 " in result.stdout


def test_an_api_server_that_is_away_for_a_moment_does_not_end_the_night(tmp_path: Path) -> None:
    server = ApiServer([])
    answer = server.answer

    def away_once(method: str, path: str, body: Any) -> tuple[int, Any]:
        if method == "POST":
            server.failures, server.context = 0, ["Running", "Successful"]
            created = answer(method, path, body)
            server.failures = 3
            return created
        return answer(method, path, body)

    server.answer = away_once  # type: ignore[method-assign]
    result = create(server, tmp_path)
    assert result.returncode == 0
    assert result.stdout.count(" 503 ") == 3


@pytest.mark.parametrize("content", ["", "[1]", "kind: Pod\n", "a: {b"])
def test_a_file_without_a_daskjob_is_a_configuration_error(tmp_path: Path, content: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(content)
    assert run(sys.executable, PROGRAM, file, env=script_environment()).returncode == 2
