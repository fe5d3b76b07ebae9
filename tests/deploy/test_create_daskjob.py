"""The nightly CronJob's program against an API server that answers as Kubernetes does."""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import yaml

from tests.clusters import local_client
from tests.deploy.files import DEPLOY, imported
from tests.processes import run, script_environment

FILE = DEPLOY / "k8s/job.yaml"
JOB = yaml.safe_load(FILE.read_text())
JOBS = "/apis/kubernetes.dask.org/v1/namespaces/mscam/daskjobs"
NAME = f"{JOBS}/mscam-nightly"
RUNNER = "/api/v1/namespaces/mscam/pods/mscam-nightly-runner"
TRIES = 7

Course = tuple[list[str], Any]
"""Words of the operator for a job, one for each time it is asked, and the pod of its run."""

RUNNING: Any = {"status": {"phase": "Running"}}


def ended(code: int, why: str = "Error", *, kind: str = "containerStatuses", **status: Any) -> Any:
    """A pod whose container ended with an exit code."""
    end = {"terminated": {"exitCode": code, "reason": why}}
    phase = "Failed" if code else "Succeeded"
    return {"status": {"phase": phase, kind: [{"state": end}], **status}}


def failed(code: int) -> Course:
    return ["Running", "Failed"], ended(code)


SUCCESS: Course = (["JobCreated", "ClusterCreated", "Running", "Successful"], ended(0))
LATER = failed(75)


class ApiServer(BaseHTTPRequestHandler):
    """Jobs by path. Each that is created takes the next of the courses, the last again and again."""

    courses: ClassVar[list[Course]]
    jobs: ClassVar[dict[str, Any]]
    course: ClassVar[Course]
    changes: ClassVar[list[str]]
    tokens: ClassVar[set[str | None]]
    n_failures: ClassVar[int]  # answers after a job was created that fail

    def handle_any(self) -> None:
        self.tokens.add(self.headers["Authorization"])
        length = int(self.headers["Content-Length"] or 0)
        code, value = self.answer(json.loads(self.rfile.read(length)) if length else None)
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    do_GET = do_POST = do_DELETE = handle_any  # noqa: N815 - names are http.server's

    def log_message(self, format: str, *args: Any) -> None: ...

    def answer(self, body: Any) -> tuple[int, Any]:
        cls, method, path = type(self), self.command, self.path
        if "POST" in cls.changes and cls.n_failures:
            cls.n_failures -= 1
            return 503, {"message": "the server is being upgraded"}
        if method != "GET":
            cls.changes.append(method)
        if path == RUNNER:
            pod = cls.course[1]
            return 404 if pod is None else 200, pod
        if method == "POST":
            words, pod = cls.courses.pop(0) if len(cls.courses) > 1 else cls.courses[0]
            cls.jobs[NAME], cls.course = body, ([*words], pod)
            return 201, body
        if path not in cls.jobs:
            return 404, {"message": "not found"}
        if method == "DELETE":
            return 200, cls.jobs.pop(path)
        words = cls.course[0]
        word = words.pop(0) if len(words) > 1 else words[0]
        return 200, {**cls.jobs[path], "status": {"jobStatus": word}}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[ApiServer]]:
    class Api(ApiServer):
        courses, jobs, course = [SUCCESS], {}, ([], None)
        changes, tokens, n_failures = [], set(), 0

    (tmp_path / "token").write_text("of the pod\n")
    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as http:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(http.server_port))
        monkeypatch.setenv("MSCAM_ACCOUNT", str(tmp_path))
        for name in ("MSCAM_POLL_S", "MSCAM_RETRY_S"):
            monkeypatch.setenv(name, "0.001")
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        yield Api
        http.shutdown()


def create(file: Path = FILE) -> int:
    """Run the program with the environment of the server."""
    code: int = imported(DEPLOY / "k8s/create_daskjob.py").main([str(file)])
    return code


def test_the_job_of_the_file_is_created_as_the_account_of_the_pod(
    server: type[ApiServer], capsys: pytest.CaptureFixture[str]
) -> None:
    assert create() == 0
    assert server.jobs == {NAME: JOB}
    assert server.tokens == {"Bearer of the pod"}
    assert "mscam-nightly: Successful" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("courses", "code", "tries"),
    [
        *(([failed(code)], code, 1) for code in (1, 2, 3, 4, 137)),
        ([LATER, LATER, SUCCESS], 0, 3),
        ([LATER], 75, TRIES),
        ([(["Failed"], None)], 75, TRIES),  # a node that was taken away
        ([(["Running"], None)], 75, TRIES),  # the operator misses the pod's end
        ([(["Running"], ended(137, reason="Evicted"))], 75, TRIES),
        ([(["Failed"], {"status": {"phase": "Failed", "reason": "NodeShutdown"}})], 75, TRIES),
        ([(["Failed"], ended(75, kind="initContainerStatuses"))], 75, TRIES),  # no workers came
        ([(["Failed"], ended(75, reason="DeadlineExceeded"))], 75, 1),
        ([(["Running"], ended(137, "OOMKilled"))], 137, 1),
        ([(["Failed"], {"status": {"phase": "Failed"}})], 1, 1),
    ],
)
def test_how_a_run_ended_says_whether_another_try_helps(
    server: type[ApiServer], courses: list[Course], code: int, tries: int
) -> None:
    server.courses = courses
    assert create() == code
    assert server.changes == ["POST", *["DELETE", "POST"] * (tries - 1)]


@pytest.mark.parametrize(
    ("word", "pod", "code", "changes"),
    [
        ("Failed", ended(3), 0, ["DELETE", "POST"]),
        ("Running", ended(3), 0, ["DELETE", "POST"]),  # the operator missed its end
        ("Running", RUNNING, 75, []),
    ],
)
def test_a_job_of_an_earlier_night_makes_room_once_it_has_ended(
    server: type[ApiServer], word: str, pod: Any, code: int, changes: list[str]
) -> None:
    server.jobs[NAME], server.course = JOB, ([word], pod)
    assert create() == code
    assert server.changes == changes


@pytest.mark.parametrize(("n_failures", "code"), [(3, 0), (99, 4)])
def test_an_api_server_that_is_away_for_a_moment_does_not_end_the_night(
    server: type[ApiServer], capsys: pytest.CaptureFixture[str], n_failures: int, code: int
) -> None:
    server.n_failures = n_failures
    assert create() == code
    assert " 503 " in capsys.readouterr().out


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("content", ["", "[1]", "kind: Pod\n", "a: {b"])
def test_a_file_without_a_daskjob_is_a_configuration_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "job.yaml").write_text(content)
    assert create(tmp_path / "job.yaml") == 2


PROGRAM = DEPLOY / "k8s/wait_for_workers.py"


def test_it_waits_for_the_first_worker() -> None:
    program = imported(PROGRAM)
    pauses: list[float] = []

    def joined_meanwhile(seconds: float) -> None:
        pauses.append(seconds)
        cluster.scale(1)
        cluster.wait_for_workers(1, timeout=60)

    with local_client(0, processes=False) as client:
        cluster = client.cluster
        url = f"http://127.0.0.1:{cluster.scheduler.http_server.port}"
        none = run(sys.executable, PROGRAM, url, "0.1", env=script_environment())
        assert none.returncode == 75
        assert url in none.stderr
        assert os.strerror(errno.ECONNREFUSED) not in none.stderr
        vars(program)["time"] = SimpleNamespace(monotonic=time.monotonic, sleep=joined_meanwhile)
        assert program.main([url, "60"]) == 0
        assert pauses == [program.POLL_S]


def test_nothing_that_answers_is_tried_again_later() -> None:
    result = run(sys.executable, PROGRAM, "http://127.0.0.1:9", "0.1", env=script_environment())
    assert result.returncode == 75
    assert "http://127.0.0.1:9" in result.stderr
    assert os.strerror(errno.ECONNREFUSED) in result.stderr


@pytest.mark.parametrize("arguments", [(), ("scheduler:8787",), ("http://scheduler:8787", "soon")])
def test_wrong_arguments(arguments: tuple[str, ...]) -> None:
    result = run(sys.executable, PROGRAM, *arguments, env=script_environment())
    assert result.returncode == 2
    assert "python wait_for_workers.py http://SCHEDULER" in result.stderr
