"""The nightly CronJob's program against an API server that answers as Kubernetes does."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.files import DEPLOY, run, script_environment

JOB = DEPLOY / "k8s/job.yaml"
PROGRAM = DEPLOY / "k8s/create_daskjob.py"


class ApiServer:
    """Objects by path; a created job takes the given course, one word for each time it is asked."""

    def __init__(self, course: list[str]) -> None:
        self.course = course
        self.objects: dict[str, Any] = {}
        self.calls: list[tuple[str, str]] = []
        self.failures = 0
        self.tokens: set[str | None] = set()

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        self.calls.append((method, path))
        if self.failures:
            self.failures -= 1
            return 503, {"message": "the server is being upgraded"}
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                return 409, {"message": "already exists"}
            self.objects[path] = body
            return 201, body
        if path not in self.objects:
            return 404, {"message": "not found"}
        if method == "DELETE":
            return 200, self.objects.pop(path)
        job = self.objects[path]
        if "status" not in job or job["status"]["jobStatus"] not in ("Successful", "Failed"):
            job = self.objects[path] = {**job, "status": {"jobStatus": self.course.pop(0)}}
        return 200, job


@contextmanager
def serving(server: ApiServer, tmp_path: Path) -> Iterator[dict[str, str]]:
    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            server.tokens.add(self.headers["Authorization"])
            length = int(self.headers["Content-Length"] or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            code, value = server.answer(self.command, self.path, body)
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(value).encode())

        do_GET = do_POST = do_DELETE = handle_any  # noqa: N815 - names are http.server's

        def log_message(self, format: str, *args: Any) -> None: ...

    (tmp_path / "token").write_text("of the pod\n")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield script_environment(
            KUBERNETES_SERVICE_HOST="127.0.0.1",
            KUBERNETES_SERVICE_PORT=str(http.server_port),
            MSCAM_ACCOUNT=str(tmp_path),
            MSCAM_POLL_S="0.01",
        )
        http.shutdown()
        thread.join()


def create(server: ApiServer, tmp_path: Path, job: Path = JOB) -> subprocess.CompletedProcess[str]:
    with serving(server, tmp_path) as environment:
        return run(sys.executable, PROGRAM, job, env=environment)


@pytest.mark.parametrize(("end", "code"), [("Successful", 0), ("Failed", 1)])
def test_the_job_is_created_and_its_end_is_ours(tmp_path: Path, end: str, code: int) -> None:
    server = ApiServer(["JobCreated", "ClusterCreated", "Running", "Running", end])
    result = create(server, tmp_path)
    assert (result.returncode, result.stderr) == (code, "")
    assert f"mscam-nightly: {end}" in result.stdout
    (path,) = server.objects
    assert path == "/apis/kubernetes.dask.org/v1/namespaces/mscam/daskjobs/mscam-nightly"
    assert server.tokens == {"Bearer of the pod"}
    created = {key: value for key, value in server.objects[path].items() if key != "status"}
    assert created == yaml.safe_load(JOB.read_text())


def test_a_job_that_has_ended_makes_room(tmp_path: Path) -> None:
    server = ApiServer(["Successful"])
    assert create(server, tmp_path).returncode == 0
    server.course = ["Running", "Failed"]
    assert create(server, tmp_path).returncode == 1
    assert [method for method, _ in server.calls if method != "GET"] == ["POST", "DELETE", "POST"]


def test_a_job_that_still_runs_is_left_alone(tmp_path: Path) -> None:
    server = ApiServer(["Running"])
    job = yaml.safe_load(JOB.read_text())
    server.objects["/apis/kubernetes.dask.org/v1/namespaces/mscam/daskjobs/mscam-nightly"] = job
    result = create(server, tmp_path)
    assert result.returncode == 75
    assert [method for method, _ in server.calls] == ["GET"]


def test_an_api_server_that_refuses_is_a_cluster_failure(tmp_path: Path) -> None:
    server = ApiServer([])
    server.failures = 99
    result = create(server, tmp_path)
    assert result.returncode == 4
    assert "being upgraded" in result.stdout


def test_an_api_server_that_is_away_for_a_moment_does_not_end_the_night(tmp_path: Path) -> None:
    server = ApiServer([])
    answer = server.answer

    def away_once(method: str, path: str, body: Any) -> tuple[int, Any]:
        if method == "POST":
            server.failures, server.course = 0, ["Running", "Successful"]
            created = answer(method, path, body)
            server.failures = 3
            return created
        return answer(method, path, body)

    server.answer = away_once  # type: ignore[method-assign]
    result = create(server, tmp_path)
    assert result.returncode == 0
    assert result.stdout.count("being upgraded") == 3


@pytest.mark.parametrize("content", ["", "[1]", "kind: Pod\n", "a: {b"])
def test_a_file_without_a_daskjob_is_a_configuration_error(tmp_path: Path, content: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(content)
    assert run(sys.executable, PROGRAM, file, env=script_environment()).returncode == 2
