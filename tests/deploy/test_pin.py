"""deploy/pin_images.py, with a registry on loopback that speaks the protocol of real ones."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.deploy.files import DEPLOY, installed_program, run, without_digests


class Registry(BaseHTTPRequestHandler):
    """A registry that wants a token, and knows each tag but `gone`."""

    def do_HEAD(self) -> None:
        _, _, *repository, _, tag = self.path.split("/")
        if self.headers.get("Authorization") != "Bearer " + "/".join(repository):
            host = f"http://{self.headers['Host']}"
            scope = f"repository:{'/'.join(repository)}:pull"
            self.send_response(401)
            self.send_header("WWW-Authenticate", f'Bearer realm="{host}/token",scope="{scope}"')
        elif tag == "gone":
            self.send_response(404)
        else:
            self.send_response(200)
            self.send_header("Docker-Content-Digest", digest("/".join(repository), tag))
        self.end_headers()

    def do_GET(self) -> None:
        repository = self.path.split("repository%3A")[1].split("%3A")[0].replace("%2F", "/")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"token": repository}).encode())

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


def digest(repository: str, tag: str) -> str:
    return "sha256:" + hashlib.sha256(f"{repository}:{tag}".encode()).hexdigest()


@pytest.fixture
def registry() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def copied(directory: Path, registry: str) -> dict[str, str]:
    """Our files, with images of `registry` in the place of those of Docker Hub."""
    for name in ("Dockerfile", "compose.yaml"):
        text = (DEPLOY / name).read_text()
        text = text.replace("FROM python:", f"FROM {registry}/library/python:")
        for owner in ("prom", "grafana"):
            text = text.replace(f"image: {owner}/", f"image: {registry}/{owner}/")
        (directory / name).write_text(text)
    return read(directory)


def read(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in directory.iterdir()}


def test_every_image_but_ours_gets_its_digest_and_nothing_else_changes(
    registry: str, tmp_path: Path
) -> None:
    before = copied(tmp_path, registry)
    pin = run(sys.executable, DEPLOY / "pin_images.py", tmp_path)
    assert pin.returncode == 0, pin.stderr
    after = read(tmp_path)
    lines = [
        (old, new)
        for name in before
        for old, new in zip(before[name].splitlines(), after[name].splitlines(), strict=True)
        if old != new
    ]
    assert len(lines) == 4
    for old, new in lines:
        image = next(word for word in old.split() if registry in word).partition("@")[0]
        repository, _, tag = image.removeprefix(f"{registry}/").rpartition(":")
        assert new == without_digests(old).replace(image, f"{image}@{digest(repository, tag)}")
    assert run(sys.executable, DEPLOY / "pin_images.py", tmp_path).returncode == 0
    assert read(tmp_path) == after  # digests are renewed, not added


def test_without_an_answer_for_each_nothing_changes(registry: str, tmp_path: Path) -> None:
    copied(tmp_path, registry)
    path = tmp_path / "compose.yaml"
    path.write_text(path.read_text().replace("grafana/grafana:12.1.1", "grafana/grafana:gone"))
    before = read(tmp_path)
    pin = run(sys.executable, DEPLOY / "pin_images.py", tmp_path)
    assert pin.returncode == 1
    assert "grafana/grafana:gone" in pin.stderr
    assert read(tmp_path) == before


def test_the_pinned_files_are_still_read(registry: str, tmp_path: Path) -> None:
    copied(tmp_path, registry)
    assert run(sys.executable, DEPLOY / "pin_images.py", tmp_path).returncode == 0
    hadolint = installed_program("hadolint")
    if not Path(hadolint).is_file():
        pytest.skip("hadolint is not installed (pip install 'mscam-dask[deploy-test]')")
    checked = run(hadolint, "--no-color", tmp_path / "Dockerfile")
    assert checked.returncode == 0, checked.stdout
