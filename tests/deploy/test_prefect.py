"""The Prefect flow on its schedule: a server on loopback, a served deployment, runs that it fires."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.files import ROOT, run, script_environment
from tests.synthetic import save_npz, three_subspaces

if importlib.util.find_spec("prefect") is None:
    pytest.skip(
        "prefect is not installed (pip install 'mscam-dask[prefect]')", allow_module_level=True
    )

FLOW = ROOT / "pipelines/prefect_flow.py"
SECRET = "Tr0ub4dor-and-3"

# Says its secret, ends the first time with "try again later", then does as it is told.
COMMAND = f"""#!/usr/bin/env bash
echo "the key is $AWS_SECRET_ACCESS_KEY, as in s3://me:hunter22@host/data"
case " $* " in *" --dry-run "*) ;; *)
  if mkdir "$ATTEMPTED" 2>/dev/null; then echo "not now"; exit 75; fi
esac
exec {sys.executable} -m mscam_dask.cli "$@"
"""


def ends(process: subprocess.Popen[str]) -> None:
    """End a process and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)


@contextlib.contextmanager
def started(
    *command: str | Path, log: Path, env: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    with log.open("w") as stream:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            text=True,
            env=env,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            ends(process)


class Server:
    """A Prefect server with its database in a directory of its own."""

    def __init__(self, home: Path, port: int, process: subprocess.Popen[str]) -> None:
        self.environment = prefect_environment(home, port)
        self.api = f"http://127.0.0.1:{port}/api"
        self.process = process

    def ask(self, path: str, question: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            self.api + path,
            None if question is None else json.dumps(question).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def wait_for(self, found: Callable[[], Any], seconds: float, log: Path) -> Any:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.process.poll() is None, log.read_text()[-3000:]
            with contextlib.suppress(OSError):
                if result := found():
                    return result
            time.sleep(0.3)
        raise AssertionError(f"not within {seconds} s:\n{log.read_text()[-5000:]}")

    def runs(self, deployment: str, state: str) -> list[dict[str, Any]]:
        """Flow runs of a deployment in a state, and their tasks by name."""
        question = {
            "flow_runs": {"state": {"type": {"any_": [state]}}},
            "deployments": {"name": {"any_": [deployment]}},
        }
        return list(self.ask("/flow_runs/filter", question))

    def attempts(self, flow_run: dict[str, Any]) -> dict[str, int]:
        """How often each task of a flow run was run."""
        question = {"task_runs": {"flow_run_id": {"any_": [flow_run["id"]]}}}
        tasks = self.ask("/task_runs/filter", question)
        return {task["name"].rsplit("-", 1)[0]: task["run_count"] for task in tasks}


def prefect_environment(home: Path, port: int) -> dict[str, str]:
    return script_environment(
        PREFECT_HOME=str(home),
        PREFECT_API_URL=f"http://127.0.0.1:{port}/api",
        PREFECT_API_DATABASE_CONNECTION_URL=f"sqlite+aiosqlite:///{home}/prefect.db",
        PREFECT_SERVER_ANALYTICS_ENABLED="false",
        PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS="2",
        PREFECT_SERVER_UI_ENABLED="false",
        PREFECT_RUNNER_POLL_FREQUENCY="1",
        PREFECT_LOGGING_TO_API_BATCH_INTERVAL="0.5",
        DO_NOT_TRACK="1",
        AWS_SECRET_ACCESS_KEY=SECRET,
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("prefect")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = home / "server.log"
    command = (sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1")
    with started(
        *command, "--port", str(port), log=log, env=prefect_environment(home, port)
    ) as process:
        found = Server(home, port, process)
        found.wait_for(lambda: found.ask("/health"), 180, log)
        yield found


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    save_npz(tmp_path / "tiny.npz", three_subspaces())
    file = tmp_path / "every-night.toml"
    file.write_text(
        "[data]\nsource = 'tiny.npz'\n[cluster]\nn_clusters = 3\nconstants.auto_settings = false\n"
        "[execution]\nin_process = true\n[output]\nroot = 'runs'\n"
    )
    return file


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_it_fires_on_its_schedule_and_tries_again_after_75(
    server: Server, pipeline: Path, tmp_path: Path
) -> None:
    program = tmp_path / "mscam-dask"
    program.write_text(COMMAND)
    program.chmod(0o755)
    env = {
        **server.environment,
        "MSCAM_DASK": str(program),
        "ATTEMPTED": str(tmp_path / "attempted"),
    }
    log = tmp_path / "serve.log"
    serve = (sys.executable, FLOW, pipeline, "--every", "5", "--retry-seconds", "1")
    with started(*serve, "--set", "cluster.max_iter=3", log=log, env=env):
        server.wait_for(lambda: len(server.runs("every-night", "COMPLETED")) >= 2, 300, log)
        completed = server.runs("every-night", "COMPLETED")
    assert all(run["auto_scheduled"] for run in completed), "the schedule, not a person"
    first = min(completed, key=lambda run: run["expected_start_time"])
    assert server.attempts(first) == {"plan": 1, "run": 2, "summary": 1}
    (directory,) = (tmp_path / "runs").iterdir()
    record = json.loads((directory / "run.json").read_text())
    assert record["state"] == "finished"
    assert record["settings"]["cluster"]["parameters"]["max_iter"] == 3
    artifacts = server.ask("/artifacts/filter", {})
    assert any(str(record["fit"]["cluster_sizes"]) in artifact["data"] for artifact in artifacts)
    logged = "\n".join(
        line["message"]
        for run in completed
        for line in server.ask(
            "/logs/filter", {"logs": {"flow_run_id": {"any_": [run["id"]]}}, "limit": 200}
        )
    )
    assert "the key is $AWS_SECRET_ACCESS_KEY" in logged
    events = (directory / "events.jsonl").read_text()
    assert events.count('"event":"fit_started"') == 1, "the second finds the first one's results"
    for text in (logged, log.read_text()):
        assert SECRET not in text
        assert "hunter22" not in text


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_failure_that_would_come_again_is_not_tried_again(
    server: Server, pipeline: Path, tmp_path: Path
) -> None:
    log = tmp_path / "serve.log"
    with started(
        sys.executable,
        FLOW,
        pipeline,
        "--name",
        "broken",
        "--every",
        "5",
        log=log,
        env=server.environment,
    ):
        (tmp_path / "tiny.npz").write_bytes(b"this is no archive")
        server.wait_for(lambda: server.runs("broken", "FAILED"), 200, log)
        failed = server.runs("broken", "FAILED")[0]
    assert re.search(r"\b3\b", failed["state"]["message"])
    assert server.attempts(failed) == {"plan": 1}


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_flow_run_that_is_cancelled_tells_the_command_to_stop(
    server: Server, pipeline: Path, tmp_path: Path
) -> None:
    program = tmp_path / "mscam-dask"
    program.write_text(
        f"#!/usr/bin/env bash\ntrap 'touch {tmp_path}/told; exit 75' TERM\ntouch {tmp_path}/begun\n"
        "while sleep 0.1; do :; done\n"
    )
    program.chmod(0o755)
    env = {**server.environment, "MSCAM_DASK": str(program)}
    log = tmp_path / "serve.log"
    serve = (sys.executable, FLOW, pipeline, "--name", "cancelled", "--every", "5")
    with started(*serve, log=log, env=env):
        server.wait_for((tmp_path / "begun").exists, 200, log)
        (running,) = server.runs("cancelled", "RUNNING")
        state = {"state": {"type": "CANCELLING"}, "force": True}
        server.ask(f"/flow_runs/{running['id']}/set_state", state)
        server.wait_for((tmp_path / "told").exists, 100, log)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--set", "data.source=s3://me:hunter22@host/data"], "data.source"),
        (["--set", "cluster.n_clutsers=4"], "n_clusters"),
        (["--cron", "every night"], "cron"),
    ],
)
def test_a_schedule_that_cannot_work_is_refused_before_it_is_served(
    pipeline: Path, tmp_path: Path, arguments: list[str], says: str
) -> None:
    env = prefect_environment(tmp_path, 9)  # nobody is asked
    result = run(sys.executable, FLOW, pipeline, *arguments, env=env, timeout=200)
    assert result.returncode == 2, result.stderr
    assert says in result.stderr
    assert "hunter22" not in result.stderr
