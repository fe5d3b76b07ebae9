"""The image and the Compose file as deploy/README.md prints them, by a Docker engine."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mscam_dask.data.datasets import digits_views
from mscam_dask.data.store.write import write_store
from mscam_dask.pipeline.tls import make_certificates
from tests.deploy.files import DEPLOY, ROOT, without_digests
from tests.deploy.machines import (
    Machine,
    base_image,
    copied,
    folder,
    machine,
    marks,
    pivot_root,
    tree,
    wait_until,
)

pytestmark = marks

PACKAGES = (
    "containerd", "curl", "docker-buildx", "docker-cli", "docker-compose", "docker.io", "iproute2",
    "iptables", "procps", "runc",
)  # fmt: skip
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "MSCAM_UID": "1001",
    "MSCAM_GID": "1001",
    "COMPOSE_FILE": "deploy/compose.yaml",
}
COMPOSE = ("docker", "compose")
SETTINGS = (
    "cluster.n_clusters=10",
    "cluster.scale=standard",
    "cluster.alpha=1.0",
    "cluster.n_neighbors=9",
)
# No registry is reached from here: Debian's Prometheus in the place of the image of that name.
PROMETHEUS = """
FROM python:3.13-slim-bookworm
COPY prometheus /bin/prometheus
RUN install -d -o 65534 -g 65534 /prometheus
USER 65534
ENTRYPOINT ["/bin/prometheus"]
"""


@contextmanager
def engine(root: Path, *options: str, network: bool) -> Iterator[Machine]:
    """A Docker engine whose root is a tree; its images and volumes are kept in MSCAM_TEST_MACHINES."""
    start = pivot_root(root, folder() / "docker-data")
    if network:
        start += (
            "ip link add v0 type veth peer name v1\nip addr add 10.95.0.1/24 dev v0\n"
            "ip link set v0 up\nip link set v1 up\nip route add default dev v0\n"
        )
    start += " ".join(
        [
            "exec dockerd --storage-driver=overlay2",
            f"--data-root={folder() / 'docker-data'}",
            *options,
        ]
    )

    def up(started: Machine) -> bool:
        return bool(started.run("docker", "version", "--format={{.Server.Version}}"))

    with machine(start, root.parent, up, environment=ENVIRONMENT, network=network) as started:
        yield started


@pytest.fixture(scope="module")
def clone() -> Iterator[Path]:
    """The root tree of the engine with a clone at /clone that has data and certificates."""
    made = tree("docker", "trixie", PACKAGES)
    (folder() / "docker-data").mkdir(exist_ok=True)
    with copied(made) as root:
        place = root / "clone"
        subprocess.run(["git", "clone", "--quiet", ROOT, place], check=True)
        shutil.copytree(DEPLOY, place / "deploy", dirs_exist_ok=True)
        for name in ("Dockerfile", "compose.yaml"):  # the images are stand-ins
            file = place / "deploy" / name
            file.write_text(without_digests(file.read_text()))
        shutil.copy(base_image(), root / "base.tar")
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
        program = shutil.which("prometheus")
        if program is not None:
            (root / "prometheus").mkdir()
            shutil.copy(program, root / "prometheus")
            (root / "prometheus/Dockerfile").write_text(PROMETHEUS)
        write_store(digits_views(["pixels", "zernike"]), place / "deploy/data/data.zarr")
        make_certificates(place / "deploy/tls/certs")
        subprocess.run(
            ["chown", "-R", "1001:1001", place / "deploy/tls", place / "deploy/data"], check=True
        )
        yield root


@pytest.fixture(scope="module")
def images(clone: Path) -> None:
    """Images built by the commands of deploy/README.md; pip needs the network of this computer."""
    page = (DEPLOY / "README.md").read_text()
    (command,) = re.findall(r"`(docker build [^`]*)`", page)
    off = ("--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false")
    with engine(clone, *off, network=False) as builder:
        base = "docker import --change 'CMD python3' /base.tar python:3.13-slim-bookworm"
        builder.run("sh", "-c", base, timeout=300)
        (version,) = re.findall(r"image: (prom/[^\s@]+)", (DEPLOY / "compose.yaml").read_text())
        if (clone / "prometheus").is_dir():
            builder.run(
                "docker", "build", "--network=host", "--tag", version, "/prometheus", timeout=300
            )
        here = command.replace("docker build", "docker build --network=host")
        builder.run("sh", "-c", here, cwd="/clone", timeout=900)


@pytest.fixture(scope="module")
def docker(clone: Path, images: None) -> Iterator[Machine]:
    with engine(clone, network=True) as started:
        yield started


def test_the_cluster_of_the_compose_file_survives_a_killed_worker(docker: Machine) -> None:
    def compose(*command: str, timeout: float = 240) -> str:
        return docker.run(*COMPOSE, *command, cwd="/clone", timeout=timeout)

    names = ["scheduler", "worker"]
    if "prometheus" in docker.run("docker", "images", "--format={{.Repository}}"):
        names.append("prometheus")
    compose("up", "--detach", "--no-build", "--pull=never", "--wait", *names)
    try:
        doors = [line.split()[3] for line in docker.run("ss", "-Htln").splitlines()]
        assert doors
        assert all(door.startswith(("127.", "[::1]")) for door in doors), doors
        inside = docker.run("docker", "exec", "mscam-worker-1", "cat", "/proc/1/status")
        assert re.search(r"^CapEff:\s+0+$", inside, re.M)
        assert re.search(r"^NoNewPrivs:\s+1$", inside, re.M)
        refused = docker.attempt("docker", "exec", "mscam-worker-1", "touch", "/x")
        assert "Read-only file system" in refused.stderr
        compose("run", "--rm", "-T", "own-runs")
        run = [*COMPOSE, "run", "--rm", "-T", "run", "/pipelines/nightly.toml"]
        run += ["--set", "data.source=/data/data.zarr"]
        for setting in SETTINGS:
            run += ["--set", setting]
        with subprocess.Popen(
            docker.command(*run, cwd="/clone"), env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
        ) as driver:
            assert driver.stderr is not None
            lines = []
            for line in driver.stderr:
                lines.append(line)
                if "iteration 1/" in line:
                    docker.run("docker", "kill", "mscam-worker-1")
            assert driver.wait(300) in (0, 5), "".join(lines)
        assert any("iteration 1/" in line for line in lines)
        if "prometheus" in names:
            wait_until(lambda: targets(docker) >= {"up"}, lambda: str(targets(docker)))
    finally:
        docker.attempt(*COMPOSE, "down", "--volumes", cwd="/clone", timeout=120)


def targets(docker: Machine) -> set[str]:
    answer = docker.attempt("curl", "-s", "http://127.0.0.1:9090/api/v1/targets").stdout
    found = json.loads(answer or '{"data": {"activeTargets": []}}')["data"]["activeTargets"]
    return {target["health"] for target in found if target["scrapePool"] == "dask-scheduler"}
