"""Stores on an S3 server: the same guarantees as in a directory, objects named where one is damaged."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mscam_dask.benchmark import trial as running
from mscam_dask.cli import main
from mscam_dask.data.ingest import append
from mscam_dask.data.store.atomic_replace import WRITES, is_taken, resolve_current, set_current
from mscam_dask.data.store.dataset import open_store, verify_store, write_store
from mscam_dask.data.store.object_store import ObjectPath, as_location
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.errors import ConfigurationError, DataError, StoreCorruptError, redacted
from tests.data.object_servers import MemoryFiles
from tests.data.stores import FailingRows, clustered_data
from tests.messages import quotes

URL = "s3://bucket/deep/data.zarr"
N = 60


def test_a_store_grows_or_is_replaced_by_one_request(object_files: MemoryFiles) -> None:
    write_store(clustered_data(N), URL)
    before = open_store(URL)
    report = append(clustered_data(6, first=N), URL)
    assert (report.n_samples, str(report.output)) == (N + 6, URL)
    assert len({url.split("/")[5] for url in object_files.content if "/writes/" in url}) == 1
    with pytest.raises(StoreCorruptError):
        before.views[0].read(0, 1)  # told, and never given other rows
    with pytest.raises(DataError):
        write_store(clustered_data(30), URL)
    write_store(clustered_data(30), URL, overwrite=True)
    assert verify_store(URL).n_samples == 30
    object_files.content["s3://bucket/other/notes.txt"] = b"mine"
    with pytest.raises(DataError):
        write_store(clustered_data(N), "s3://bucket/other", overwrite=True)


def test_a_write_that_fails_leaves_the_old_store(object_files: MemoryFiles) -> None:
    write_store(clustered_data(N), URL)
    before = dict(object_files.content)
    failing = MultiViewData((FailingRows("v", KeyboardInterrupt()),))
    with pytest.raises(KeyboardInterrupt):
        write_store(failing, URL, overwrite=True)
    assert object_files.content == before


@pytest.mark.parametrize("final", ["values/c/1/0", "views/1/values/zarr.json"])
def test_damage_is_found_and_the_object_named(object_files: MemoryFiles, final: str) -> None:
    write_store(clustered_data(N), URL, chunk_size=30)
    name = max(url for url in object_files.content if url.endswith(final))
    content = object_files.content[name]
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    object_files.content[name] = flipped
    with pytest.raises(StoreCorruptError, match=quotes(name)):
        open_store(URL).views[1].read(30, 40)
    del object_files.content[name]
    with pytest.raises(StoreCorruptError, match=quotes(name)):
        open_store(URL).views[1].read(30, 40)


@pytest.mark.slow
def test_ingest_describe_run_and_compare_take_urls(
    bucket: Any, environment: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # cells run in a process that may have been started before the server
    environment.setattr(running, "_threads", threading.local())
    local = tmp_path / "data.npz"
    data = clustered_data(N)
    np.savez(local, a=data.views[0].read(0, N), b=data.views[1].read(0, N), labels=np.arange(N) % 3)

    def code(*arguments: str) -> object:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        return ended.value.code or 0

    assert code("ingest", str(local), "-o", URL) == 0
    assert code("describe", URL) == 0
    assert open_store(URL).digest() in capsys.readouterr().out
    pipeline = tmp_path / "p.toml"
    pipeline.write_text(
        f'[data]\nsource = "{URL}"\n[cluster]\nn_clusters = 3\n[report]\nenabled = false\n'
    )
    run = tmp_path / "run"
    assert code("run", str(pipeline), "-o", str(run), "--in-process") == 0
    assert json.loads((run / "run.json").read_text())["data"]["store"] == URL
    out = tmp_path / "compared"
    compare = ("compare", "--method", "knn-sc", "--runs", "1", "-o", str(out), "--in-process")
    assert code(*compare, "--dataset", URL) == 0
    record = json.loads((out / "experiment.json").read_text())
    assert {trial["outcome"] for trial in record["trials"]} == {"ok"}
    assert record["datasets"][0]["name"] == "data"
    assert code("compare", "--dataset", "s3://bucket/nothing.zarr", "--dry-run") == 3
    assert code("run", str(pipeline), "-o", "s3://bucket/run", "--in-process") == 2
    assert code("run", str(pipeline), "--set", "output.root=s3://bucket/runs") == 2
    assert re.match(quotes("output.root", "s3://bucket/runs"), capsys.readouterr().err)


# ----------------------------------------------------------------------------- the current version


ROOT = ObjectPath(URL)


def written(metadata: bytes = b"{}") -> ObjectPath:
    """A finished write that is not published."""
    place = ROOT / WRITES / uuid.uuid4().hex
    (place / "zarr.json").write_bytes(metadata)
    (place / "values" / "c" / "0").write_bytes(b"chunk")
    return place


def pointer(place: ObjectPath, metadata: bytes) -> bytes:
    content = {"store": f"writes/{place.name}", "sha256": hashlib.sha256(metadata).hexdigest()}
    return json.dumps(content).encode()


def test_a_store_that_was_copied_there_is_removed_and_no_write_is(
    object_files: MemoryFiles,
) -> None:
    unfinished = written()
    assert not is_taken(ROOT)  # nothing was published
    with pytest.raises(StoreCorruptError):
        open_store(str(ROOT))
    (ROOT / "zarr.json").write_bytes(b"{}")
    (ROOT / "values" / "c" / "0").write_bytes(b"chunk")
    neighbor = ObjectPath(f"{ROOT}2") / "zarr.json"
    neighbor.write_bytes(b"{}")
    assert is_taken(ROOT)
    place = written()
    set_current(ROOT, place)
    assert resolve_current(ROOT) == place
    left = {ROOT / "current.json", *place.sizes(), *unfinished.sizes()}
    assert set(ROOT.sizes()) == left
    assert neighbor.is_file()


@pytest.mark.parametrize("n_replaced", [0, 2, 3])
def test_a_store_that_is_replaced_between_two_requests_is_looked_up_again(
    object_files: MemoryFiles, n_replaced: int
) -> None:
    metadata = b'{"last": true}'
    set_current(ROOT, written())
    replacements = [written(metadata) for _ in range(n_replaced)]

    def replaced(url: str) -> None:
        if url.endswith("/zarr.json") and replacements:
            old = url.removesuffix("/zarr.json")
            for name in [name for name in object_files.content if name.startswith(f"{old}/")]:
                del object_files.content[name]
            place = replacements.pop(0)
            object_files.content[f"{ROOT}/current.json"] = pointer(place, metadata)

    object_files.before_read = replaced
    if n_replaced < 3:
        place = resolve_current(ROOT)
        assert (place / "zarr.json").is_file()
    else:
        with pytest.raises(StoreCorruptError):
            resolve_current(ROOT)
    assert not replacements


def named(store: str) -> bytes:
    return json.dumps({"store": store, "sha256": 64 * "0"}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b'{"store": "\xff", "sha256": ""}',
        named("writes/" + 33 * "0"),
        named("../" + 32 * "0"),
        json.dumps({"store": "writes/" + 32 * "0", "sha256": "", "version": 2}).encode(),
    ],
)
def test_a_damaged_pointer_is_told(object_files: MemoryFiles, content: bytes) -> None:
    (ROOT / "current.json").write_bytes(content)
    with pytest.raises(StoreCorruptError):
        resolve_current(ROOT)


def test_other_content_than_the_pointer_says_is_told(object_files: MemoryFiles) -> None:
    place = written()
    (ROOT / "current.json").write_bytes(named(f"writes/{place.name}"))
    with pytest.raises(StoreCorruptError):
        resolve_current(ROOT)


# ----------------------------------------------------------------------------- no way there


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (FileNotFoundError("The specified bucket does not exist"), DataError),
        (PermissionError("The AWS Access Key Id you provided does not exist"), ConfigurationError),
    ],
    ids=["no-bucket", "refused"],
)
def test_a_missing_bucket_and_refused_credentials_are_told_apart(
    object_files: MemoryFiles, answer: OSError, error: type[Exception]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise answer

    for name in ("cat_file", "find", "info", "pipe_file"):
        setattr(object_files, name, refuse)
    with pytest.raises(error):
        open_store(URL)
    with pytest.raises(error):
        write_store(clustered_data(N), URL)


def test_no_credentials(environment: pytest.MonkeyPatch) -> None:
    environment.delenv("AWS_ACCESS_KEY_ID")
    environment.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(ConfigurationError):
        open_store(URL)


@pytest.mark.parametrize(("scheme", "module"), [("s3", "s3fs"), ("gs", "gcsfs")])
def test_a_missing_library_is_named(
    environment: pytest.MonkeyPatch, scheme: str, module: str
) -> None:
    registered = sys.modules["fsspec.registry"].__dict__["_registry"]
    environment.delitem(registered, scheme, raising=False)
    environment.setitem(sys.modules, module, None)
    with pytest.raises(ConfigurationError):
        open_store(f"{scheme}://bucket/data.zarr")


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket",
        "s3://user:word@bucket/data.zarr",
        "s3://bucket/../data.zarr",
        "file://host/data.zarr",
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match=quotes(redacted(url), "s3://bucket/name.zarr")):
        as_location(url)
