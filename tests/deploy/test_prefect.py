"""The Prefect flow on its schedule: a server on loopback, a served deployment, runs that it fires."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.files import ROOT, write_program
from tests.pipeline.runs import HERE, write_tiny
from tests.processes import free_ports, run, script_environment, started, text_of, wait_until
from tests.synthetic import save_npz, three_subspaces

if importlib.util.find_spec("prefect") is None:
    pytest.skip(
        "prefect is not installed (pip install 'mscam-dask[prefect]')", allow_module_level=True
    )

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]

FLOW = (sys.executable, ROOT / "pipelines/prefect_flow.py")
SECRET = "Tr0ub4dor-and-3"

# Says its secret, ends the first time with "try again later", then does as it is told.
TRIED_TWICE = f"""#!/usr/bin/env bash
echo "the key is $AWS_SECRET_ACCESS_KEY, as in s3://me:hunter22@host/data"
case " $* " in *" --dry-run "*) ;; *)
  if mkdir "$HERE/attempted" 2>/dev/null; then echo "not now"; exit 75; fi
esac
exec {sys.executable} -m mscam_dask.cli "$@"
"""
STOPPED = """#!/usr/bin/env bash
trap 'touch $HERE/told; exit 75' TERM
touch $HERE/begun
while sleep 0.1; do :; done
"""


class Server:
    """A Prefect server with its database in a directory of its own."""

    def __init__(self, home: Path, port: int) -> None:
        self.api = f"http://127.0.0.1:{port}/api"
        self.environment = script_environment(
            PREFECT_HOME=str(home),
            PREFECT_API_URL=self.api,
            PREFECT_API_DATABASE_CONNECTION_URL=f"sqlite+aiosqlite:///{home}/prefect.db",
            PREFECT_SERVER_ANALYTICS_ENABLED="false",
            PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS="2",
            PREFECT_SERVER_UI_ENABLED="false",
            PREFECT_RUNNER_POLL_FREQUENCY="1",
            PREFECT_LOGGING_TO_API_BATCH_INTERVAL="0.5",
            DO_NOT_TRACK="1",
            AWS_SECRET_ACCESS_KEY=SECRET,
        )

    def ask(self, path: str, question: dict[str, Any] | None = None) -> Any:
        """Return the answer of the server; None while it does not answer."""
        body = None if question is None else json.dumps(question).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.api + path, body, headers)
        with suppress(OSError), urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def runs(self, deployment: str, state: str) -> list[dict[str, Any]]:
        """Flow runs of a deployment in a state."""
        question = {
            "flow_runs": {"state": {"type": {"any_": [state]}}},
            "deployments": {"name": {"any_": [deployment]}},
        }
        return list(self.ask("/flow_runs/filter", question) or ())

    def attempts(self, flow_run: dict[str, Any]) -> dict[str, int]:
        """How often each task of a flow run was run."""
        question = {"task_runs": {"flow_run_id": {"any_": [flow_run["id"]]}}}
        tasks = self.ask("/task_runs/filter", question)
        return {task["name"].rsplit("-", 1)[0]: task["run_count"] for task in tasks}

    def command(self, here: Path, text: str) -> dict[str, str]:
        """Environment in which a script stands for mscam-dask."""
        program = write_program(here / "mscam-dask", text)
        return {**self.environment, "MSCAM_DASK": str(program), "HERE": str(here)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("prefect")
    (port,) = free_ports(1)
    found = Server(home, port)
    command = (sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1")
    log = home / "server.log"
    with started(*command, "--port", str(port), log=log, env=found.environment) as process:
        wait_until(lambda: found.ask("/health"), log, seconds=180, alive=process)
        yield found


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    save_npz(tmp_path / "tiny.npz", three_subspaces())
    file = write_tiny(tmp_path, f"{HERE}[output]\nroot = 'runs'\n")
    return file.rename(tmp_path / "every-night.toml")


def test_it_fires_on_its_schedule_and_tries_again_after_75(
    server: Server, pipeline: Path, tmp_path: Path
) -> None:
    log, env = tmp_path / "serve.log", server.command(tmp_path, TRIED_TWICE)
    serve = (*FLOW, pipeline, "--every", "5", "--retry-seconds", "1", "--set", "cluster.max_iter=3")
    with started(*serve, log=log, env=env):
        wait_until(lambda: len(server.runs("every-night", "COMPLETED")) >= 2, log, seconds=300)
        completed = server.runs("every-night", "COMPLETED")
    assert all(one["auto_scheduled"] for one in completed), "the schedule, not a person"
    first = min(completed, key=lambda one: str(one["expected_start_time"]))
    assert server.attempts(first) == {"plan": 1, "run": 2, "summary": 1}
    (directory,) = (tmp_path / "runs").iterdir()
    record = json.loads((directory / "run.json").read_text())
    assert record["state"] == "finished"
    assert record["settings"]["cluster"]["parameters"]["max_iter"] == 3
    artifacts = server.ask("/artifacts/filter", {})
    assert any(str(record["fit"]["cluster_sizes"]) in artifact["data"] for artifact in artifacts)
    logged = ""
    for one in completed:
        question = {"logs": {"flow_run_id": {"any_": [one["id"]]}}, "limit": 200}
        logged += "\n".join(line["message"] for line in server.ask("/logs/filter", question))
    assert "the key is $AWS_SECRET_ACCESS_KEY" in logged
    events = (directory / "events.jsonl").read_text()
    assert events.count('"event":"fit_started"') == 1, "the second finds the first one's results"
    for secret in (SECRET, "hunter22"):
        assert secret not in logged + text_of(log)


def test_a_failure_that_would_come_again_is_not_tried_again(
    server: Server, pipeline: Path, tmp_path: Path
) -> None:
    log = tmp_path / "serve.log"
    serve = (*FLOW, pipeline, "--name", "broken", "--every", "5")
    with started(*serve, log=log, env=server.environment):
        (tmp_path / "tiny.npz").write_bytes(b"this is no archive")
        wait_until(lambda: server.runs("broken", "FAILED"), log, seconds=200)
    failed = server.runs("broken", "FAILED")[0]
    assert re.search(r"\b3\b", failed["state"]["message"])
    assert server.attempts(failed) == {"plan": 1}


def test_a_flow_run_that_is_cancelled_tells_the_command_to_stop(
    server: Server, pipeline: Path, tmp_path: Path
) -> None:
    log, env = tmp_path / "serve.log", server.command(tmp_path, STOPPED)
    with started(*FLOW, pipeline, "--name", "cancelled", "--every", "5", log=log, env=env):
        wait_until((tmp_path / "begun").exists, log, seconds=200)
        (running,) = server.runs("cancelled", "RUNNING")
        state = {"state": {"type": "CANCELLING"}, "force": True}
        server.ask(f"/flow_runs/{running['id']}/set_state", state)
        wait_until((tmp_path / "told").exists, log)


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
    env = Server(tmp_path, 9).environment  # nobody is asked
    result = run(*FLOW, pipeline, *arguments, env=env, timeout=200)
    assert result.returncode == 2, result.stderr
    assert says in result.stderr
    assert "hunter22" not in result.stderr
