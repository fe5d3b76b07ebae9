"""Airflow, Dagster and Argo: one step that runs the command, and what each exit code means to it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.deploy.files import DEPLOY, ROOT, documents, run

CODES = [0, 5, 75, 2, 3, 4]


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """In place of mscam-dask: notes its arguments, and ends with the next of `codes`."""
    program = tmp_path / "mscam-dask"
    program.write_text(
        f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\n'
        f"code=$(head -n 1 {tmp_path}/codes)\nsed -i 1d {tmp_path}/codes\nexit ${{code:-0}}\n"
    )
    program.chmod(0o755)
    return program


def calls(tmp_path: Path) -> list[str]:
    return (tmp_path / "calls").read_text().splitlines()


def of(variable: str) -> str:
    """The interpreter of an environment with a scheduler, which .ci/nightly makes."""
    python = os.environ.get(variable)
    if not python:
        pytest.skip(f"{variable} (an interpreter with this scheduler) is not set")
    return python


def start(
    python: str,
    program: str,
    tmp_path: Path,
    command: Path,
    codes: list[int],
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    (tmp_path / "codes").write_text("".join(f"{code}\n" for code in codes))
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "MSCAM_DASK": str(command),
        "MSCAM_PIPELINE": "/etc/mscam/nightly.toml",
        "MSCAM_RETRY_SECONDS": "0",
        "DAGSTER_HOME": str(tmp_path),
        **variables,
    }
    return run(python, "-c", textwrap.dedent(program), env=environment, timeout=200)


DAGSTER = f"""
    import sys
    sys.path.insert(0, {str(ROOT / "pipelines")!r})
    import dagster as dg
    import dagster_asset
    instance = dg.DagsterInstance.ephemeral()
    done = dg.materialize([dagster_asset.clusters], instance=instance, raise_on_error=False)
    events = [event.event_type_value for event in done.all_events]
    codes = [event.materialization.metadata["exit_code"].value
             for event in done.get_asset_materialization_events()
             for event in [event.step_materialization_data]]
    print("RESULT", done.success, codes, events.count("STEP_UP_FOR_RETRY"))
    print("SCHEDULE", dagster_asset.defs.get_repository_def().get_schedule_def("nightly").cron_schedule)
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("codes", "result"),
    [
        ([0], "True [0] 0"),
        ([5], "True [5] 0"),
        ([75, 75, 0], "True [0] 2"),
        ([2], "False [] 0"),
        ([75, 4], "False [] 1"),
    ],
)
def test_dagster(tmp_path: Path, command: Path, codes: list[int], result: str) -> None:
    done = start(of("MSCAM_TEST_DAGSTER"), DAGSTER, tmp_path, command, codes)
    assert f"RESULT {result}\n" in done.stdout, done.stdout + done.stderr
    assert "SCHEDULE 30 2 * * *" in done.stdout
    assert calls(tmp_path) == ["run /etc/mscam/nightly.toml --plain"] * len(codes)


AIRFLOW = """
    from airflow.dag_processing.dagbag import DagBag
    dag = DagBag().get_dag("mscam_dask")
    (task,) = dag.tasks
    print("TASK", task.retries, task.retry_delay, dag.max_active_runs, dag.catchup)
    done = dag.test()
    (instance,) = done.get_task_instances()
    print("RESULT", getattr(instance.state, "value", instance.state))
"""


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of an Airflow that knows the DAG."""
    python = of("MSCAM_TEST_AIRFLOW")
    home = tmp_path_factory.mktemp("airflow")
    (home / "dags").mkdir()
    shutil.copy(ROOT / "pipelines/airflow_dag.py", home / "dags")
    variables = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "MSCAM_RETRY_SECONDS": "1",
    }
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for command in (("db", "migrate"), ("dags", "reserialize")):
        done = run(python, "-m", "airflow", *command, env=environment | variables, timeout=200)
        assert done.returncode == 0, done.stdout + done.stderr
    return variables


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("codes", "state"),
    [([0], "success"), ([5], "success"), ([75, 0], "success"), ([3], "failed")],
)
def test_airflow(
    tmp_path: Path, command: Path, airflow: dict[str, str], codes: list[int], state: str
) -> None:
    python = of("MSCAM_TEST_AIRFLOW")
    done = start(python, AIRFLOW, tmp_path, command, codes, **airflow)
    assert f"RESULT {state}\n" in done.stdout, done.stdout + done.stderr
    assert "TASK 6 0:00:01 1 False" in done.stdout
    assert calls(tmp_path) == ["run /etc/mscam/nightly.toml --plain"] * len(codes)


@pytest.mark.parametrize("code", CODES)
def test_argo(tmp_path: Path, command: Path, code: int) -> None:
    (workflow,) = documents(DEPLOY / "argo/cronworkflow.yaml")
    (step,) = workflow["spec"]["workflowSpec"]["templates"]
    (tmp_path / "codes").write_text(f"{code}\n")
    container = step["container"]
    environment = {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}"}
    done = run(*container["command"], *container["args"], env=environment)
    assert calls(tmp_path) == ["run /pipeline/nightly.toml --plain"]
    assert done.returncode == (0 if code == 5 else code)
    retry = step["retryStrategy"]
    assert retry["limit"] == 6
    retried = re.search(r"asInt\(lastRetry\.exitCode\) in \[([\d, ]+)\]", retry["expression"])
    assert retried is not None
    assert (code in map(int, retried[1].split(","))) == (code == 75)


def test_the_pod_of_argo_is_one_that_kubernetes_takes() -> None:
    from tests.deploy.test_kubernetes import check

    (workflow,) = documents(DEPLOY / "argo/cronworkflow.yaml")
    spec = workflow["spec"]["workflowSpec"]
    (step,) = spec["templates"]
    names = ("securityContext", "volumes", "serviceAccountName", "automountServiceAccountToken")
    pod = {name: spec[name] for name in names}
    pod["containers"] = [{"name": "main", **step["container"]}]
    check({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": pod})
    mounted = {item["name"] for item in step["container"]["volumeMounts"]}
    assert mounted == {item["name"] for item in spec["volumes"]}
