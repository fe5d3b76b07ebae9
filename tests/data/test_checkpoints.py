"""Checkpoints: what comes back is what was saved, also on an S3 server, or the error names what is wrong."""

from __future__ import annotations

import json
import re
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from numpy.testing import assert_array_equal

from mscam_dask.cli import main
from mscam_dask.data.checkpoints import Checkpoint, FileCheckpointStore
from mscam_dask.data.store.arrays import ArrayPieces, get_array, get_json, put_array, put_json
from mscam_dask.data.store.object_store import ObjectPath
from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.read_config import read_config
from mscam_dask.pipeline.resume import run_pipeline
from mscam_dask.pipeline.settings import OutputTable
from tests.data.object_servers import MemoryFiles
from tests.faults.kill_driver import outcome_of
from tests.messages import quotes
from tests.pipeline.runs import QUIET, Stopped, at, stop, write_tiny
from tests.synthetic import save_npz, three_subspaces


def snapshot(number: int) -> Checkpoint:
    rng = np.random.default_rng(number)
    arrays: dict[str, Any] = {
        "graph_data": rng.standard_normal(50),
        "graph_indices": np.arange(50, dtype=np.int32),
        "best_labels": np.zeros(20, dtype=np.int64),
        "spectrum_vectors": rng.standard_normal((20, 4)),
        "nothing": np.zeros(0),
    }
    return Checkpoint(arrays, {"iteration": number, "gap": float("nan"), "score": 0.1 + number})


def root_of(directory: Path, number: int) -> Path:
    (root,) = directory.glob(f"{number:08d}-*")
    return root


def assert_same(found: Checkpoint | None, expected: Checkpoint) -> None:
    assert found.arrays.keys() == expected.arrays.keys()
    for name, values in expected.arrays.items():
        assert found.arrays[name].dtype == values.dtype
        assert_array_equal(found.arrays[name], values)
    assert repr(found.record) == repr(dict(expected.record))


def test_the_last_state_comes_back_and_two_are_kept(tmp_path: Path) -> None:
    directory = tmp_path / "run" / "checkpoints"
    store = FileCheckpointStore(directory)
    for number in range(4):
        store.save(snapshot(number))
        again = FileCheckpointStore(directory)
        assert_same(again.load(), snapshot(number))
        assert again.damage == ()
    assert {item.name[:8] for item in directory.iterdir()} == {"00000002", "00000003"}
    root = root_of(directory, 3)
    group = zarr.open_group(root, mode="r")
    assert_array_equal(np.asarray(group["arrays/graph_data"]), snapshot(3).arrays["graph_data"])
    codecs = zarr.open_array(root / "arrays/graph_data").metadata.codecs  # type: ignore[union-attr]
    assert "Crc32cCodec" in [type(codec).__name__ for codec in codecs]


@pytest.fixture
def group(tmp_path: Path) -> zarr.Group:
    return zarr.open_group(tmp_path / "g", mode="w")


def chunks_below(root: Path) -> dict[str, bytes]:
    files = (file for file in root.rglob("*") if file.is_file() and file.name != "zarr.json")
    return {str(file.relative_to(root)): file.read_bytes() for file in files}


@pytest.mark.parametrize("sizes", [(3, 22, 25), (1,) * 50, (0, 49, 1), ()])
def test_an_array_in_pieces_has_the_files_of_the_whole_and_one_chunk_is_in_memory(
    group: zarr.Group, tmp_path: Path, sizes: tuple[int, ...]
) -> None:
    values = np.random.default_rng(1).standard_normal((sum(sizes), 2))
    made = 0

    def pieces() -> Iterator[np.ndarray]:
        nonlocal made
        for piece in np.split(values, np.cumsum(sizes)[:-1]) if sizes else []:
            assert len(chunks_below(tmp_path / "g/pieces")) == made // 10
            made += len(piece)
            yield piece

    held = ArrayPieces(values.shape, values.dtype, pieces)
    put_array(group, "pieces", held, chunk_rows=10)
    put_array(group, "whole", values, chunk_rows=10)
    assert made == sum(sizes)
    assert chunks_below(tmp_path / "g/pieces") == chunks_below(tmp_path / "g/whole")
    assert_array_equal(get_array(tmp_path / "g", "pieces"), values)


@pytest.mark.parametrize("arrays_stay", [True, False])
def test_without_the_newest_another_is_taken_and_it_is_said(
    tmp_path: Path, *, arrays_stay: bool
) -> None:
    store = FileCheckpointStore(tmp_path)
    for number in range(3):
        store.save(snapshot(number))
    damaged = root_of(tmp_path, 2) / "zarr.json"
    damaged.unlink()
    if not arrays_stay:
        shutil.rmtree(damaged.parent / "arrays")
    assert_same(store.load(), snapshot(1))
    (damage,) = store.damage
    assert str(damaged) in damage
    store.save(snapshot(3))
    assert_same(store.load(), snapshot(3))
    assert store.damage == ()


def test_clearing_leaves_what_is_not_a_checkpoint(tmp_path: Path) -> None:
    store = FileCheckpointStore(tmp_path / "checkpoints")
    assert store.load() is None
    store.clear()
    store.save(snapshot(0))
    store.clear()
    assert list(tmp_path.iterdir()) == []
    store.save(snapshot(0))
    (tmp_path / "checkpoints/mine.txt").touch()
    store.clear()
    assert [item.name for item in (tmp_path / "checkpoints").iterdir()] == ["mine.txt"]
    assert store.load() is None


def test_records_come_back_to_the_last_bit(group: zarr.Group, tmp_path: Path) -> None:
    numbers = [0.1, -0.0, 5e-324, float("nan"), float("-inf"), 2**63, -(2**63)]
    record = {"é \x00 \ud800": numbers, "": {"nested": [True, None, []]}}
    put_json(group, "record", record)
    assert repr(get_json(tmp_path / "g", "record")) == repr(record)


def test_checkpoints_below_a_url(object_files: MemoryFiles) -> None:
    prefix = ObjectPath("s3://bucket/deep/of a fit")
    (prefix.parent / "other").write_bytes(b"mine")
    (prefix.parent / "of a fit, too").write_bytes(b"mine")
    for number in range(3):
        FileCheckpointStore(prefix).save(snapshot(number))
        again = FileCheckpointStore(prefix)
        assert_same(again.load(), snapshot(number))
        assert again.damage == ()
    FileCheckpointStore(prefix).clear()
    assert not prefix.exists()
    assert len(object_files.content) == 2


def pipeline(folder: Path, checkpoints: object = "s3://bucket/checkpoints") -> Path:
    save_npz(folder / "tiny.npz", three_subspaces())
    return write_tiny(folder, f"{QUIET}[output]\ncheckpoints = '{checkpoints}'\n")


@pytest.mark.thorough
@pytest.mark.parametrize("is_url", [False, True])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_run_goes_on_in_another_directory_unless_it_is_to_start_again(
    object_files: MemoryFiles, tmp_path: Path, is_url: bool, overwrite: bool
) -> None:
    shared = tmp_path / "shared"
    place = "s3://bucket/checkpoints" if is_url else shared

    def kept() -> list[object]:
        return [*object_files.content] if is_url else [*shared.iterdir()]

    settings = read_config(pipeline(tmp_path, place))
    local = msgspec.structs.replace(settings, output=OutputTable())
    run_pipeline(local, tmp_path / "undisturbed")
    with pytest.raises(Stopped):  # the computer is taken away
        run_pipeline(settings, tmp_path / "node 1", observers=[at(stop)])
    assert kept()
    outcome = run_pipeline(settings, tmp_path / "node 2", overwrite=overwrite)
    assert outcome_of(tmp_path / "node 2") == outcome_of(tmp_path / "undisturbed")
    resumed = outcome.record.resumed
    assert [entry.after_iteration for entry in resumed] == [1] * (not overwrite)
    assert all(f"{place}/tiny-" in entry.warnings[0] for entry in resumed)
    assert not kept()


@pytest.fixture
def strict(server: str, bucket: Any) -> Iterator[None]:
    """The server looks at credentials from now on."""

    def unchecked_requests(count: str) -> None:
        request = urllib.request.Request(
            f"{server}/moto-api/reset-auth",
            data=count.encode(),
            headers={"Content-Type": "text/plain"},
        )
        urllib.request.urlopen(request).close()

    unchecked_requests("0")
    yield
    unchecked_requests("inf")


@pytest.mark.thorough
def test_wrong_credentials_are_said_and_not_shown(
    strict: None, tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("AWS_ACCESS_KEY_ID", "AKIAWRONGWRONGWRONG1")
    environment.setenv("AWS_SECRET_ACCESS_KEY", "wrong-and-not-to-be-shown")
    with pytest.raises(ConfigurationError) as refused:
        FileCheckpointStore(ObjectPath("s3://bucket/checkpoints/one")).load()
    assert re.match(quotes("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), str(refused.value))
    arguments = ["run", str(pipeline(tmp_path)), "-o", str(tmp_path / "run")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2, result.output
    assert "AWS_SECRET_ACCESS_KEY" in result.stderr
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["error"]["type"] == "ConfigurationError"
    assert "ingest" not in record["seconds"]  # known before any work
    everything = [refused.value.args[0], result.output]
    everything += [file.read_text() for file in (tmp_path / "run").iterdir() if file.is_file()]
    for text in everything:
        assert "wrong-and-not-to-be-shown" not in text
    shared = f"output.checkpoints='{tmp_path / 'shared'}'"
    mended = CliRunner().invoke(main, [*arguments, "--set", shared])
    assert mended.exit_code == 0, mended.output
