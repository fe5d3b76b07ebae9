"""What the tests of the data layer share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from mscam_dask.data.store.dataset import write_store
from mscam_dask.data.store.object_store import ObjectPath
from tests.data.object_servers import MemoryFiles
from tests.data.readers.matlab_files import save_version_5, save_version_73
from tests.data.stores import example_data


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of `example_data`, in chunks of four rows."""
    return write_store(example_data(), tmp_path / "data.zarr", chunk_size=4)


@pytest.fixture(params=[save_version_5, save_version_73], ids=["v5", "v7.3"])
def save(request: pytest.FixtureRequest) -> Any:
    """Write a file of MATLAB of either kind."""
    return request.param


@pytest.fixture
def object_files(monkeypatch: pytest.MonkeyPatch) -> MemoryFiles:
    """Objects of all buckets, in memory."""
    found = MemoryFiles()
    monkeypatch.setattr(ObjectPath, "files", lambda _self: found)
    return found


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """Address of an S3 server on loopback."""
    pytest.importorskip("s3fs", reason="s3fs is not installed (mscam-dask[s3])")
    moto_server = pytest.importorskip("moto.server", reason="moto's server is not installed")
    running = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    """Credentials in the environment, and no others."""
    s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed (mscam-dask[s3])")
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret")
    s3fs.S3FileSystem.clear_instance_cache()
    yield monkeypatch
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def bucket(server: str, environment: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of its own, with one empty bucket."""
    import boto3

    environment.setenv("AWS_ENDPOINT_URL", server)
    client = boto3.client("s3")
    client.create_bucket(Bucket="bucket")
    for item in client.list_objects_v2(Bucket="bucket").get("Contents", []):
        client.delete_object(Bucket="bucket", Key=item["Key"])
    yield client
    client.close()


def real_dtypes() -> st.SearchStrategy[np.dtype[Any]]:
    """Every dtype of real numbers up to 64 bits, in either byte order."""
    return st.one_of(
        hnp.boolean_dtypes(),
        hnp.integer_dtypes(endianness="?"),
        hnp.unsigned_integer_dtypes(endianness="?"),
        hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    )


@st.composite
def finite_tables(
    draw: st.DrawFn, *, n_samples: int | None = None, max_side: int = 9
) -> NDArray[Any]:
    """Finite (n, d) tables of any real dtype: C, Fortran, strided, reversed, read-only."""
    rows = draw(st.integers(1, max_side)) if n_samples is None else n_samples
    columns = draw(st.integers(1, max_side))
    dtype = draw(real_dtypes())
    elements = hnp.from_dtype(dtype, allow_nan=False, allow_infinity=False)
    layout = draw(st.sampled_from(["C", "F", "strided", "reversed", "read-only"]))
    factor = 2 if layout == "strided" else 1
    values = draw(hnp.arrays(dtype, (factor * rows, factor * columns), elements=elements))
    if layout == "F":
        return np.asfortranarray(values)
    if layout == "strided":
        return values[::2, 1::2]
    if layout == "reversed":
        return values[::-1, ::-1]
    if layout == "read-only":
        values.flags.writeable = False
    return values
