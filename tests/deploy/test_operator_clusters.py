"""The chart installed by helm, its scaler in a fit, and clusters that a run starts, on a real API server."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from mscam_dask.data.store.write import write_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.pipeline.config.toml_document import toml_text
from mscam_dask.pipeline.tls import make_certificates
from tests.deploy.files import DEPLOY
from tests.deploy.kubernetes_node import (
    PIPELINE,
    Node,
    control_plane,
    log,
    new_root,
    operator_and_kubelet,
)
from tests.deploy.machines import CLUSTER_TABLE, folder, marks, wait_until
from tests.deploy.test_image import IMAGE, call, podman_with_the_image
from tests.synthetic import gaussian_views

pytestmark = marks

# As Kubernetes 1.20 has these objects.
_OLDER = (
    ("Chart.yaml", 'kubeVersion: ">=1.29.0-0"', 'kubeVersion: ">=1.20.0-0"'),
    ("templates/nightly.yaml", "batch/v1\nkind: CronJob", "batch/v1beta1\nkind: CronJob"),
    ("templates/nightly.yaml", "  timeZone: {{ .Values.nightly.timeZone }}\n", ""),
    ("templates/disruption.yaml", "policy/v1\n", "policy/v1beta1\n"),
)
_NOT_OURS = {"bindings", "endpoints", "endpointslices.discovery.k8s.io", "events", "events.events.k8s.io"}  # fmt: skip


@pytest.fixture(scope="module")
def root() -> Path:
    return new_root()


@pytest.fixture(scope="module")
def node(root: Path) -> Iterator[Node]:
    """A control plane with the operator and a kubelet, before the chart is installed."""
    with control_plane(root) as made, operator_and_kubelet(made, root):
        yield made


@pytest.fixture(scope="module")
def labels(root: Path) -> bytes:
    """Labels of the pipeline without a cluster."""
    return labels_alone(root, "data.zarr")


@pytest.fixture(scope="module")
def wide(root: Path) -> bytes:
    """Labels of a store of many views, whose fit takes more than a minute."""
    views, _ = gaussian_views(0, n_samples=8000, n_clusters=10, spread=1 / 6, dims=[200] * 16)
    write_store(as_multi_view(views), root / "claim/wide.zarr")
    return labels_alone(root, "wide.zarr")


def labels_alone(root: Path, store: str) -> bytes:
    """Labels of the pipeline on a store without a cluster, in the image."""
    (root / "alone.toml").write_text(PIPELINE)
    run = f"alone-{store}"
    call(
        *podman_with_the_image(), "run", "--rm", "--runtime=runc", "--network=none", "--ulimit=nofile=1024:1024",
        "--ulimit=nproc=4096:4096", f"--volume={root / 'claim'}:/mscam", f"--volume={root / 'alone.toml'}:/alone.toml",
        IMAGE, "mscam-dask", "run", "/alone.toml", "--in-process", "--set", f"data.source=/mscam/{store}",
        "--output", f"/mscam/runs/{run}", "--plain", timeout=600,
    )  # fmt: skip
    return labels_of(root, run)


def labels_of(root: Path, run: str) -> bytes:
    return (root / "claim/runs" / run / "labels.csv").read_bytes()


@contextmanager
def installed(node: Node, root: Path, *values: str) -> Iterator[Path]:
    """The release of the chart, installed as deploy/k8s/README.md prints it."""
    chart = root / "chart"
    shutil.rmtree(chart, ignore_errors=True)
    shutil.copytree(DEPLOY / "chart", chart)
    for name, ours, older in _OLDER:
        text = (chart / name).read_text()
        assert ours in text
        (chart / name).write_text(text.replace(ours, older))
    (root / "nightly.toml").write_text(PIPELINE)
    node.run(
        "helm", "install", "--namespace", "mscam", "mscam", chart, "--set", f"image={image()}",
        "--set-file", f"nightly.pipeline={root / 'nightly.toml'}", *values,
    )  # fmt: skip
    try:
        yield chart
    finally:
        node.attempt("helm", "uninstall", "--namespace", "mscam", "mscam", "--ignore-not-found")


def image() -> str:
    """Return the image by its digest."""
    digest = call(*podman_with_the_image(), "image", "inspect", "--format={{.Digest}}", IMAGE)
    return f"localhost/mscam-dask@{digest.strip()}"


def upgrade(node: Node, chart: Path, *values: str) -> None:
    node.run("helm", "upgrade", "--namespace", "mscam", "mscam", chart, "--reuse-values", *values)


def objects(node: Node) -> set[str]:
    """Everything in the namespace."""
    kinds = node.run("kubectl", "api-resources", "--namespaced", "--verbs=list", "--output=name")
    listed = ",".join(sorted(set(kinds.split()) - _NOT_OURS))
    return set(node.run("kubectl", "get", listed, "--output=name").split())


def wait_for_objects(node: Node, expected: set[str]) -> None:
    wait_until(lambda: objects(node) == expected, lambda: str(objects(node) ^ expected))


def logs(root: Path) -> str:
    return "\n".join(log(root, name)[-3000:] for name in ("kubelet.log", "operator.log"))


def identity(node: Node, scheduler: str) -> Any:
    """Return what a scheduler tells of itself and its workers."""
    program = f"""
import urllib.request
with urllib.request.urlopen("http://{scheduler}.mscam:8787/json/identity.json", timeout=10) as answer:
    print(answer.read().decode())
"""
    done = node.attempt(sys.executable, "-c", program)
    return json.loads(done.stdout) if done.returncode == 0 else {"address": "", "workers": {}}


def test_the_chart_is_installed_runs_a_night_and_leaves_nothing(
    node: Node, root: Path, labels: bytes
) -> None:
    before = objects(node)
    with installed(node, root) as chart:
        upgrade(node, chart, "--set", "nightly.schedule=* * * * *")
        started = ("kubectl", "get", "jobs", "--output=name")
        wait_until(lambda: bool(node.run(*started)), lambda: log(root, "controllers.log")[-2000:])
        upgrade(node, chart, "--set", "nightly.schedule=30 2 * * *")
        ended = "--output=jsonpath={.items[*].status.conditions[*].type}"
        wait_until(lambda: bool(node.run("kubectl", "get", "jobs", ended)), lambda: logs(root), 900)
        said = "".join(file.read_text() for file in root.glob("mscam-nightly-*-create-*.log"))
        assert node.run("kubectl", "get", "jobs", ended) == "Complete", said
        assert "mscam-nightly: Successful" in said
        assert labels_of(root, "night") == labels
        assert "HTTP/1.1 403" not in log(root, "operator.log")
        node.run("helm", "uninstall", "--namespace", "mscam", "mscam")
        claim = {"persistentvolumeclaim/mscam"}
        ended_job = {"daskjob.kubernetes.dask.org/mscam-nightly", "pod/mscam-nightly-runner"}
        wait_for_objects(node, before | claim | ended_job)
        node.run("kubectl", "--namespace", "mscam", "delete", "daskjob", "mscam-nightly")
        wait_for_objects(node, before | claim)


def test_the_scaler_grows_and_shrinks_the_cluster_in_a_fit(
    node: Node, root: Path, wide: bytes
) -> None:
    scaled = ("--set", "cluster.enabled=true,cluster.minimum=1,cluster.maximum=2")

    def n_workers() -> int:
        return len(identity(node, "mscam-scheduler")["workers"])

    with installed(node, root, *scaled) as chart:
        wait_until(lambda: n_workers() == 1, lambda: logs(root), 240)
        node.apply(fit_pod(node))
        wait_until(lambda: n_workers() == 2, lambda: logs(root), 240)
        upgrade(node, chart, "--set", "cluster.maximum=1")
        wait_until(lambda: n_workers() == 1, lambda: logs(root), 240)
        phase = ("kubectl", "get", "pod", "fit", "--output=jsonpath={.status.phase}")
        assert node.run(*phase) == "Running", "the worker left in the middle of the fit"
        wait_until(lambda: node.run(*phase) != "Running", lambda: logs(root), 600)
        said = "".join(file.read_text() for file in root.glob("fit-run-*.log"))
        assert node.run(*phase) == "Succeeded", said
        assert labels_of(root, "fit") == wide
        assert "falling back" not in log(root, "operator.log"), "the scheduler said who leaves"
        node.run("kubectl", "delete", "pod", "fit", "--wait=false")


def fit_pod(node: Node) -> Any:
    """Return a pod like that of the nightly run, at the cluster that stays."""
    text = node.run(
        "kubectl", "get", "configmap", "mscam-nightly", r"--output=jsonpath={.data.job\.yaml}"
    )
    spec = yaml.safe_load(text)["spec"]["job"]["spec"]
    options = ["--output", "/mscam/runs/fit", "--set", "data.source=/mscam/wide.zarr"]
    spec["containers"][0]["args"] += options
    named = {"dask.org/cluster-name": "mscam", "dask.org/component": "fit"}
    metadata = {"name": "fit", "namespace": "mscam", "labels": named}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.fixture(scope="module")
def python() -> Path:
    """A Python of the image's version with the image's packages, and dask-kubernetes."""
    made = folder() / "driver"
    if not made.is_dir():
        pythons = sorted(Path.home().glob(".pyenv/versions/3.13*/bin/python"))
        if not pythons:
            pytest.skip("there is no Python 3.13 in ~/.pyenv")
        shutil.rmtree(made.with_suffix(".partial"), ignore_errors=True)
        call(pythons[-1], "-m", "venv", made.with_suffix(".partial"))
        pip = (made.with_suffix(".partial") / "bin/python", "-m", "pip", "install", "--quiet")
        lock = DEPLOY / "requirements.lock"
        call(*pip, "--require-hashes", f"--requirement={lock}", timeout=600)
        call(*pip, "dask-kubernetes", timeout=600)
        made.with_suffix(".partial").rename(made)
    return made / "bin/python"


def pipeline_of(root: Path, tls: Mapping[str, Path]) -> Path:
    """A pipeline that starts a cluster of deploy/k8s/cluster.yaml; data are where the run has them."""
    manifest, home = root / "cluster.yaml", root / "claim"
    text = (DEPLOY / "k8s/cluster.yaml").read_text()
    manifest.write_text(text.replace("mountPath: /mscam}", f"mountPath: {home}}}"))
    tables = {
        "data": {"source": str(home / "data.zarr")},
        **tomllib.loads(CLUSTER_TABLE),
        "execution": {
            "cluster": "kubernetes",
            "workers": 2,
            "start_timeout": 240.0,
            **{key: str(file) for key, file in tls.items()},
            "cluster_options": {"custom_cluster_spec": str(manifest), "image": image()},
        },
        "output": {"directory": str(home / "runs/kube")},
    }
    file = root / "kube.toml"
    file.write_text(toml_text(tables))
    return file


def certificates_in(directory: Path) -> dict[str, Path]:
    names = {"tls_ca": "ca", "tls_cert": "client", "tls_key": "client-key"}
    return {key: directory / f"{name}.pem" for key, name in names.items()}


CLUSTERS = ("kubectl", "get", "daskclusters", "--output=name")


@contextmanager
def driver(
    node: Node, root: Path, python: Path
) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[str], None]]]:
    """Start a run without results of before, and a function that waits until its output has some words."""
    shutil.rmtree(root / "claim/runs/kube", ignore_errors=True)
    file = pipeline_of(root, certificates_in(root / "tls"))
    command = node.command(python, "-m", "mscam_dask.cli", "run", file, "--plain")
    printed = root / "kube.log"
    with (
        printed.open("wb") as out,
        subprocess.Popen(command, env=dict(node.environment), stdout=out, stderr=out) as started,
    ):

        def wait_for(words: str) -> None:
            wait_until(
                lambda: words in printed.read_text() or started.poll() is not None,
                printed.read_text, 300,
            )  # fmt: skip
            assert words in printed.read_text(), printed.read_text()

        try:
            yield started, wait_for
        finally:
            node.attempt("pkill", "-KILL", "-f", "mscam_dask.cli run")


def test_a_cluster_of_a_run_is_encrypted_or_refused(node: Node, root: Path, python: Path) -> None:
    command = (python, "-m", "mscam_dask.cli", "run", "--plain")
    with installed(node, root):
        refused = node.attempt(*command, pipeline_of(root, {}))
        assert refused.returncode == 2, refused.stderr
        assert "--insecure" in refused.stderr
        strange = certificates_in(make_certificates(root / "another-authority").directory)
        refused = node.attempt(*command, pipeline_of(root, strange), timeout=300)
        assert refused.returncode == 4, refused.stderr
        assert "TLS certificate does not match" in refused.stderr
        assert node.run(*CLUSTERS) == ""


def test_a_run_starts_its_cluster_and_loses_a_worker(
    node: Node, root: Path, python: Path, labels: bytes
) -> None:
    with installed(node, root):
        with driver(node, root, python) as (run, wait_for):
            wait_for("iteration 1/")
            lost, *_ = node.pods("worker")
            node.run("kubectl", "delete", lost, "--wait=false")
            wait_until(lambda: len(set(node.pods("worker")) - {lost}) == 2, lambda: logs(root), 60)
            assert run.wait(600) in (0, 5), log(root, "kube.log")
        assert labels_of(root, "kube") == labels
        assert node.run(*CLUSTERS) == ""
        wait_until(lambda: not node.pods("worker"), lambda: logs(root))


@pytest.mark.parametrize("moment", ["start", "fit"])
def test_a_run_that_is_stopped_leaves_no_cluster(
    node: Node, root: Path, python: Path, moment: str
) -> None:
    with installed(node, root):
        with driver(node, root, python) as (run, wait_for):
            if moment == "start":
                wait_until(lambda: bool(node.run(*CLUSTERS)), lambda: log(root, "kube.log"))
            else:
                wait_for("iteration 1/")
            node.run("pkill", "-TERM", "-f", "mscam_dask.cli run")
            assert run.wait(60) == 75, log(root, "kube.log")
        wait_until(lambda: node.run(*CLUSTERS) == "", lambda: logs(root))
