"""One contract for every object store, on real servers: SeaweedFS, fake-gcs-server, Azurite."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest

from mscam_dask.data.store.dataset import is_store, open_store, verify_store, write_store
from mscam_dask.errors import ConfigurationError, DataError, TemporaryFailure, redacted
from tests.data.object_servers import SERVERS, ObjectServer, object_server
from tests.data.stores import clustered_data
from tests.processes import mscam, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]

N = 60


@pytest.fixture(scope="module", params=SERVERS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ObjectServer]:
    with object_server(request.param, tmp_path_factory.mktemp(request.param)) as started:
        scheme = started.url.partition("://")[0]
        fsspec.get_filesystem_class(scheme).clear_instance_cache()
        yield started
        fsspec.get_filesystem_class(scheme).clear_instance_cache()


@pytest.fixture
def url(server: ObjectServer, request: pytest.FixtureRequest) -> str:
    """A place of its own for each test."""
    return f"{server.url}/{abs(hash(request.node.name))}/data.zarr"


def test_what_is_written_is_read_back(url: str, tmp_path: Path) -> None:
    data = clustered_data(N)
    write_store(data, url, chunk_size=20)
    assert is_store(url)
    read = verify_store(url)
    assert read.digest() == open_store(write_store(data, tmp_path / "s.zarr")).digest()
    np.testing.assert_array_equal(read.views[1].read(15, 45), data.views[1].read(15, 45))


def test_nothing_there(server: ObjectServer, url: str) -> None:
    for place in (url, f"{url.partition('://')[0]}://nowhere/data.zarr"):
        with pytest.raises(DataError):
            open_store(place)


def test_no_account_for_azure(monkeypatch: pytest.MonkeyPatch) -> None:
    adlfs = pytest.importorskip("adlfs", reason="adlfs is not installed (mscam-dask[az])")
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    adlfs.AzureBlobFileSystem.clear_instance_cache()
    with pytest.raises(ConfigurationError):
        open_store("az://bucket/x")


def start(store: str, root: Path, name: str) -> list[str]:
    """Return a command that runs a pipeline on a store into a directory of its own."""
    pipeline = root / f"{name}.toml"
    pipeline.write_text(
        f'[data]\nsource = "{store}"\n[cluster]\nn_clusters = 4\nscale = "none"\nalpha = 1.0\n'
        f'max_iter = 8\n[output]\ncheckpoints = "{store.replace("data.zarr", "checkpoints")}"\n'
        "[report]\nenabled = false\n"
    )
    return mscam("run", pipeline, "-o", root / name, "--in-process", "--plain")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, bytes]:
    """Exit code and labels of a run on a disk that nothing interrupts."""
    root = tmp_path_factory.mktemp("disk")
    write_store(clustered_data(400), root / "data.zarr")
    command = start(str(root / "data.zarr"), root, "run")
    done = run(*command, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.returncode, (root / "run/labels.csv").read_bytes()


def test_the_server_is_killed_in_the_middle_of_a_run_and_comes_back(
    server: ObjectServer, url: str, tmp_path: Path, expected: tuple[int, bytes]
) -> None:
    write_store(clustered_data(400), url)
    command = start(url, tmp_path, "run")
    lines = []
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as driver:
        for line in driver.stderr:
            lines.append(line)
            if "iteration 2/" in line:  # the checkpoint of the first is on the server
                server.kill()
        code = driver.wait(200)
    try:
        assert code == TemporaryFailure.exit_code, "".join(lines)
        assert url.rpartition("/")[0] in " ".join(lines)
        assert redacted("".join(lines)) == "".join(lines)
    finally:
        server.start()
    again = run(*command, timeout=200)
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert [entry["state"] for entry in record["resumed"]] == ["failed"], again.stderr
    assert (again.returncode, (tmp_path / "run/labels.csv").read_bytes()) == expected, again.stderr
