"""The image, built by Buildah from deploy/Dockerfile and run by Podman."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.files import DEPLOY, ROOT, without_digests
from tests.deploy.machines import base_image, folder, marks

pytestmark = marks

IMAGE = "mscam-dask:0.1.0"
_PROGRAMS = ("buildah", "podman", "runc")


@pytest.fixture(scope="module")
def podman() -> list[str]:
    """The beginning of a podman command whose storage has the image."""
    return podman_with_the_image()


def podman_with_the_image() -> list[str]:
    """Build the image with a base image of our own; the beginning of podman commands."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed (apt-get install buildah podman runc)")
    place = folder() / "containers"
    storage = ["--root", str(place), "--runroot", str(folder() / "run"), "--storage-driver=overlay"]
    podman = ["podman", *storage, "--cgroup-manager=cgroupfs"]
    base = "docker.io/library/python:3.13-slim-bookworm"
    if subprocess.run([*podman, "image", "exists", base], check=False).returncode != 0:
        call(*podman, "import", "--change=CMD python3", base_image(), base)
    file = folder() / "Dockerfile"
    shutil.copy(DEPLOY / "Dockerfile.dockerignore", folder())
    file.write_text(without_digests((DEPLOY / "Dockerfile").read_text()))
    call(
        "buildah", *storage, "bud", "--layers", "--isolation=chroot", "--network=host", "--pull-never",
        "--format=docker", f"--file={file}", f"--tag={IMAGE}", ROOT,
        timeout=900,
    )  # fmt: skip
    return podman


def call(*command: str | Path, timeout: float = 120) -> str:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def restricted(podman: list[str], *command: str) -> str:
    """Run a command in the image, with nothing that deploy/ does not give it either."""
    return call(
        *podman, "run", "--rm", "--runtime=runc", "--network=none", "--read-only", "--cap-drop=ALL",
        "--security-opt=no-new-privileges", "--memory=3g", "--ulimit=nofile=1024:1024",
        "--ulimit=nproc=4096:4096", "--volume=/runs", "--env=MSCAM_OUTPUT__ROOT=/runs", IMAGE,
        *command, timeout=600,
    )  # fmt: skip


def test_doctor_sees_the_limit_of_the_container(podman: list[str]) -> None:
    assert "3.0 GiB" in restricted(podman, "mscam-dask", "doctor")


def test_the_quickstart_runs_without_rights_and_network(podman: list[str]) -> None:
    assert restricted(podman, "id", "-u").strip() == "10001"
    printed = restricted(podman, "sh", "-c", "cd /runs && mscam-dask quickstart --plain 2>&1")
    assert "ACC" in printed


def test_there_is_no_pip_and_nothing_of_the_build(podman: list[str]) -> None:
    found = restricted(
        podman, "sh", "-c", "ls /opt/mscam/bin; ls -d /src /wheel 2>/dev/null || true"
    )
    assert "mscam-dask" in found
    assert "pip" not in found.split()
    assert "/src" not in found
