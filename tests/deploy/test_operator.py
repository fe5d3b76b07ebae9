"""The manifests of deploy/k8s with a real API server, its controllers, the Dask operator and our kubelet."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.deploy.files import DEPLOY
from tests.deploy.kubernetes_node import (
    PIPELINE,
    Node,
    control_plane,
    log,
    new_root,
    operator_and_kubelet,
    wait_for_iteration,
)
from tests.deploy.machines import marks, wait_until

pytestmark = marks


@pytest.fixture(scope="module")
def root() -> Path:
    return new_root()


@pytest.fixture(scope="module")
def node(root: Path) -> Iterator[Node]:
    """A control plane with our manifests, before the operator is there."""
    with control_plane(root) as made:
        install(made)
        yield made


def install(node: Node) -> None:
    """Apply what deploy/k8s/README.md applies, as far as this old version has it."""
    ours = list(yaml.safe_load_all(node.run("kubectl", "kustomize", DEPLOY / "k8s")))
    for item in ours:
        if item["kind"] == "CronJob":
            item["apiVersion"] = "batch/v1beta1"
            del item["spec"]["timeZone"]
        if (item["kind"], item["metadata"]["name"]) == ("ConfigMap", "mscam-pipeline"):
            item["data"]["nightly.toml"] = PIPELINE
    node.apply(*ours)


@pytest.fixture(scope="module")
def operated(node: Node, root: Path) -> Iterator[Node]:
    """The cluster with the operator and a kubelet, and the token of the CronJob's account."""
    account = root / "account"
    account.mkdir()
    with operator_and_kubelet(node, root):
        (account / "token").write_text(node.token("mscam-nightly"))
        shutil.copy(root / "certs/apiserver.crt", account / "ca.crt")
        yield node


def logs_of_the_runner(root: Path) -> str:
    return "".join(file.read_text() for file in root.glob("mscam-nightly-runner-run-*.log"))


@contextmanager
def night(node: Node, root: Path) -> Iterator[subprocess.Popen[str]]:
    """Start the CronJob's program with the token of its account."""
    program = (sys.executable, DEPLOY / "k8s/create_daskjob.py", DEPLOY / "k8s/job.yaml")
    variables = {
        "KUBERNETES_SERVICE_HOST": "10.96.100.1",
        "KUBERNETES_SERVICE_PORT": "6443",
        "MSCAM_ACCOUNT": str(root / "account"),
        "MSCAM_POLL_S": "2",
        "MSCAM_RETRY_S": "5",
    }
    with subprocess.Popen(
        node.command(*program),
        env={**node.environment, **variables},
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def test_accounts_may_do_what_they_need_and_no_more(node: Node) -> None:
    for account, verb, what, allowed in (
        ("mscam-nightly", "create", "daskjobs.kubernetes.dask.org", "yes"),
        ("mscam-nightly", "list", "daskjobs.kubernetes.dask.org", "no"),
        ("mscam-nightly", "get", "pods/mscam-nightly-runner", "yes"),
        ("mscam-nightly", "get", "pods/other", "no"),
        ("mscam-nightly", "get", "secrets", "no"),
        ("mscam", "get", "pods", "no"),
        (
            "dask-kubernetes-operator",
            "list",
            "customresourcedefinitions.apiextensions.k8s.io",
            "yes",
        ),
        ("dask-kubernetes-operator", "create", "pods", "yes"),
        ("dask-kubernetes-operator", "get", "secrets", "no"),
    ):
        who = f"--as=system:serviceaccount:mscam:{account}"
        said = node.attempt("kubectl", "auth", "can-i", verb, what, who).stdout.strip()
        assert said.splitlines()[-1] == allowed, (account, verb, what)


def test_custom_resources_are_accepted_by_the_server(node: Node) -> None:
    for file in ("job.yaml", "cluster.yaml"):
        node.run("kubectl", "apply", "--dry-run=server", f"--filename={DEPLOY / 'k8s' / file}")


def test_the_first_night_loses_a_spot_worker(operated: Node, root: Path) -> None:
    with night(operated, root) as program:
        wait_for_iteration(root, 1)
        worker = operated.pods("worker")[0]
        operated.run("kubectl", "delete", worker, "--wait=false")
        said, _ = program.communicate(timeout=600)
        assert program.returncode == 0, said + logs_of_the_runner(root)
    assert "mscam-nightly: Successful" in said
    assert "HTTP/1.1 403" not in log(root, "operator.log")
    wait_until(lambda: not operated.pods("worker"), lambda: log(root, "operator.log")[-2000:])


def test_the_second_night_loses_its_runner_and_resumes(operated: Node, root: Path) -> None:
    shutil.rmtree(root / "claim/runs/night", ignore_errors=True)
    with night(operated, root) as program:
        wait_for_iteration(root, 2)
        operated.run("kubectl", "delete", "pod/mscam-nightly-runner", "--wait=false")
        said, _ = program.communicate(timeout=900)
        assert program.returncode == 0, said + logs_of_the_runner(root)
    assert "The run's pod was taken away." in said
    assert said.count("mscam-nightly: created") == 2
    record = yaml.safe_load((root / "claim/runs/night/run.json").read_text())
    assert record["state"] == "finished"
    assert record["resumed"], "the second pod went on where the first one was"
