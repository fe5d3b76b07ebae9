"""Checkpoints: what comes back is what was saved, or the error names what is wrong."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numpy.testing import assert_array_equal

from mscam_dask.data.checkpoints import Checkpoint, FileCheckpointStore
from mscam_dask.data.store.arrays import (
    ArrayPieces,
    get_array,
    get_json,
    put_array,
    put_json,
    write_checksums,
)
from mscam_dask.data.store.atomic_replace import POINTER
from mscam_dask.data.store.object_store import ObjectPath
from mscam_dask.errors import DataError
from tests.data.object_servers import MemoryFiles
from tests.data.stores import edit


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
    assert found is not None
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
    names = {item.name[:8] for item in directory.iterdir()}
    assert names == {POINTER[:8], "00000002", "00000003"}
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


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    store = FileCheckpointStore(tmp_path)
    store.save(snapshot(0))
    (tmp_path / "00000001-0123abcd" / "arrays").mkdir(parents=True)
    (tmp_path / f".{POINTER}.partial").touch()
    shutil.copytree(root_of(tmp_path, 0), tmp_path / "00000001-4567cdef")  # it was never current
    (tmp_path / "mine.txt").touch()
    assert_same(store.load(), snapshot(0))
    store.save(snapshot(1))
    assert {item.name.partition("-")[0] for item in tmp_path.iterdir()} == {
        *(POINTER, "mine.txt", "00000000", "00000002")
    }
    assert_same(store.load(), snapshot(1))


def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path) -> None:
    FileCheckpointStore(tmp_path).save(snapshot(0))
    root = root_of(tmp_path, 0)
    edit(root / "zarr.json", lambda metadata: metadata["attributes"].update(format_version=29))
    write_checksums(zarr.open_group(root, mode="r+"), root)
    (tmp_path / POINTER).unlink()
    with pytest.raises(DataError):
        FileCheckpointStore(tmp_path).load()


def test_without_its_pointer_or_the_newest_another_is_taken_and_it_is_said(tmp_path: Path) -> None:
    store = FileCheckpointStore(tmp_path)
    for number in range(3):
        store.save(snapshot(number))
    newest = root_of(tmp_path, 2)
    aside = newest.rename(tmp_path / "aside")
    assert_same(store.load(), snapshot(1))
    (damage,) = store.damage
    assert str(newest) in damage
    aside.rename(newest)
    (tmp_path / POINTER).unlink()
    assert_same(store.load(), snapshot(2))
    assert str(tmp_path / POINTER) in store.damage[0]
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
