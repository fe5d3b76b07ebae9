"""Airflow, Dagster and Argo: one step that runs the command, and what each exit code means to it."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.deploy.files import DEPLOY, ROOT, documents, write_program
from tests.processes import run

# In place of mscam-dask: notes its arguments, and ends with the next of `codes`.
COMMAND = """#!/bin/sh
cd {here}; echo "$@" >>calls; code=$(head -n 1 codes); sed -i 1d codes; exit ${{code:-0}}
"""


class Step:
    """A command that ends with some exit codes, one after the other."""

    def __init__(self, here: Path, codes: list[int]) -> None:
        self.here = here
        self.n_calls = len(codes)
        (here / "codes").write_text("".join(f"{code}\n" for code in codes))
        program = write_program(here / "mscam-dask", COMMAND.format(here=here))
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "PATH": f"{here}:{os.environ['PATH']}",
            "MSCAM_DASK": str(program),
            "MSCAM_PIPELINE": "/pipeline/nightly.toml",
            "MSCAM_RETRY_SECONDS": "0",
            "DAGSTER_HOME": str(here),
        }

    def says(self, python: str, program: str, **variables: str) -> str:
        """Return what a program prints in which the scheduler runs the step."""
        done = run(python, "-c", program, env=self.environment | variables, timeout=200)
        assert done.returncode == 0, done.stdout + done.stderr
        self.was_run()
        return done.stdout

    def was_run(self) -> None:
        calls = (self.here / "calls").read_text().splitlines()
        assert calls == ["run /pipeline/nightly.toml --plain"] * self.n_calls


def interpreter(variable: str) -> str:
    """The interpreter of an environment with a scheduler, which .ci/nightly makes."""
    if variable not in os.environ:
        pytest.skip(f"{variable} (an interpreter with this scheduler) is not set")
    return os.environ[variable]


DAGSTER = f"""
import sys
sys.path.insert(0, {str(ROOT / "pipelines")!r})
import dagster as dg
import dagster_asset
instance = dg.DagsterInstance.ephemeral()
done = dg.materialize([dagster_asset.clusters], instance=instance, raise_on_error=False)
events = [event.event_type_value for event in done.all_events]
n_materialized = len(done.get_asset_materialization_events())
print("RESULT", done.success, n_materialized, events.count("STEP_UP_FOR_RETRY"))
print("SCHEDULE", dagster_asset.defs.get_repository_def().get_schedule_def("nightly").cron_schedule)
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("codes", "result"),
    [
        ([0], "True 1 0"),
        ([75, 75, 0], "True 1 2"),
        ([2], "False 0 0"),
        ([75, 4], "False 0 1"),
    ],
)
def test_dagster(tmp_path: Path, codes: list[int], result: str) -> None:
    said = Step(tmp_path, codes).says(interpreter("MSCAM_TEST_DAGSTER"), DAGSTER)
    assert f"RESULT {result}\n" in said
    assert "SCHEDULE 30 2 * * *" in said


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
    python = interpreter("MSCAM_TEST_AIRFLOW")
    home = tmp_path_factory.mktemp("airflow")
    (home / "dags").mkdir()
    shutil.copy(ROOT / "pipelines/airflow_dag.py", home / "dags")
    variables = {"AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "false"}
    variables["MSCAM_RETRY_SECONDS"] = "1"
    environment = Step(home, []).environment | variables
    for command in (("db", "migrate"), ("dags", "reserialize")):
        done = run(python, "-m", "airflow", *command, env=environment, timeout=200)
        assert done.returncode == 0, done.stdout + done.stderr
    return variables


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("codes", "state"),
    [([0], "success"), ([75, 0], "success"), ([3], "failed")],
)
def test_airflow(tmp_path: Path, airflow: dict[str, str], codes: list[int], state: str) -> None:
    said = Step(tmp_path, codes).says(interpreter("MSCAM_TEST_AIRFLOW"), AIRFLOW, **airflow)
    assert f"RESULT {state}\n" in said
    assert "TASK 6 0:00:01 1 False" in said


def test_argo(tmp_path: Path) -> None:
    (workflow,) = documents(DEPLOY / "argo/cronworkflow.yaml")
    (template,) = workflow["spec"]["workflowSpec"]["templates"]
    step = Step(tmp_path, [3])
    assert run(*template["container"]["command"], env=step.environment).returncode == 3
    step.was_run()
    retry = template["retryStrategy"]
    assert retry["limit"] == 6
    (retried,) = re.findall(r"asInt\(lastRetry\.exitCode\) in \[([\d, ]+)\]", retry["expression"])
    assert {75} == {0, 2, 3, 4, 6, 75} & set(map(int, retried.split(",")))


def test_the_pod_of_argo_is_one_that_kubernetes_takes() -> None:
    from tests.deploy.test_kubernetes import check

    (workflow,) = documents(DEPLOY / "argo/cronworkflow.yaml")
    spec = workflow["spec"]["workflowSpec"]
    (template,) = spec["templates"]
    names = ("securityContext", "volumes", "serviceAccountName", "automountServiceAccountToken")
    pod = {name: spec[name] for name in names}
    pod["containers"] = [{"name": "main", **template["container"]}]
    check({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": pod})
    mounted = {item["name"] for item in template["container"]["volumeMounts"]}
    assert mounted == {item["name"] for item in spec["volumes"]}
