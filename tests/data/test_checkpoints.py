"""Checkpoints: what comes back is what was saved, or the error names what is wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from mscam_dask.data import checkpoint_format
from mscam_dask.data.checkpoint_format import (
    ArrayPieces,
    Manifest,
    decode_arrays,
    decode_record,
    encode_array,
    encode_group,
    encode_record,
    entry_of,
)
from mscam_dask.data.checkpoints import (
    CURRENT,
    Checkpoint,
    FileCheckpointStore,
    ObjectCheckpointStore,
    RemoteObjects,
)
from mscam_dask.data.store.object_store import ObjectPath
from mscam_dask.errors import StoreCorruptError
from tests.data.object_servers import MemoryFiles
from tests.messages import quotes


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


def test_nothing_saved_is_nothing(tmp_path: Path) -> None:
    store = FileCheckpointStore(tmp_path / "checkpoints")
    assert store.load() is None
    assert not store.directory.exists()


def test_the_last_state_comes_back_and_two_are_kept(tmp_path: Path) -> None:
    store = FileCheckpointStore(tmp_path / "run" / "checkpoints")
    for number in range(4):
        store.save(snapshot(number))
        again = FileCheckpointStore(store.directory)
        assert_same(again.load(), snapshot(number))
        assert again.damage == ()
    names = {item.name[:8] for item in store.directory.iterdir()}
    assert names == {CURRENT, "00000002", "00000003"}
    root = root_of(store.directory, 3)
    group = zarr.open_group(root / "arrays", mode="r")
    assert_array_equal(np.asarray(group["graph_data"]), snapshot(3).arrays["graph_data"])
    codecs = zarr.open_array(root / "arrays/graph_data").metadata.codecs  # type: ignore[union-attr]
    assert "Crc32cCodec" in [type(codec).__name__ for codec in codecs]


def test_large_arrays_are_cut_into_chunks() -> None:
    values = np.random.default_rng(1).standard_normal(50)
    files = dict(encode_array("graph_data", values, chunk_bytes=200))
    assert {name for name in files if "/c" in name} == {"graph_data/c.0", "graph_data/c.1"}
    arrays = decode_arrays({**encode_group(["graph_data"]), **files})
    assert_array_equal(arrays["graph_data"], values)


@pytest.mark.parametrize("sizes", [(50,), (3, 22, 25), (25, 25), (1,) * 50, (0, 49, 1), ()])
def test_an_array_in_pieces_has_the_files_of_the_whole_one(sizes: tuple[int, ...]) -> None:
    values = np.random.default_rng(1).standard_normal((sum(sizes), 2))
    pieces = np.split(values, np.cumsum(sizes)[:-1]) if sizes else []
    in_pieces = ArrayPieces(values.shape, values.dtype, lambda: pieces)
    whole = dict(encode_array("vectors", values, chunk_bytes=160))
    assert dict(encode_array("vectors", in_pieces, chunk_bytes=160)) == whole


def test_only_the_pieces_of_one_chunk_are_in_memory() -> None:
    drawn: list[int] = []

    def pieces() -> Iterator[np.ndarray]:
        for number in range(6):
            drawn.append(number)
            yield np.full(10, float(number))

    array = ArrayPieces((60,), np.dtype(np.float64), pieces)
    seen = [
        (path, len(drawn))
        for path, _ in encode_array("values", array, chunk_bytes=160)
        if "/c" in path
    ]
    assert seen == [("values/c.0", 2), ("values/c.1", 4), ("values/c.2", 6)]


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    store = FileCheckpointStore(tmp_path)
    store.save(snapshot(0))
    (tmp_path / "00000001-0123abcd" / "arrays").mkdir(parents=True)
    (tmp_path / ".CURRENT.partial").touch()
    shutil.copytree(root_of(tmp_path, 0), tmp_path / "00000001-4567cdef")  # CURRENT never named it
    (tmp_path / "mine.txt").touch()
    assert_same(store.load(), snapshot(0))
    store.save(snapshot(1))
    assert {item.name.partition("-")[0] for item in tmp_path.iterdir()} == {
        *(CURRENT, "mine.txt", "00000000", "00000002")
    }
    assert_same(store.load(), snapshot(1))


def test_a_missing_checkpoint_is_said_when_an_earlier_one_is_taken(tmp_path: Path) -> None:
    store = FileCheckpointStore(tmp_path)
    store.save(snapshot(0))
    store.save(snapshot(1))
    newest = root_of(tmp_path, 1)
    shutil.rmtree(newest)
    assert_same(store.load(), snapshot(0))
    (damage,) = store.damage
    assert str(newest) in damage


@pytest.mark.parametrize("values", [np.array(["a"]), np.array([object()]), np.array([1j])])
def test_only_numbers_are_kept(tmp_path: Path, values: Any) -> None:
    with pytest.raises(TypeError, match=quotes("'x'", values.dtype)):
        FileCheckpointStore(tmp_path).save(Checkpoint({"x": values}, {}))


@pytest.mark.parametrize("name", ["../x", "/x", "a/b", ""])
def test_array_names_stay_inside(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=quotes(repr(name))):
        FileCheckpointStore(tmp_path / "c").save(Checkpoint({name: np.zeros(1)}, {}))
    assert [item.name for item in tmp_path.iterdir()] == ["c"]


def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path) -> None:
    store = FileCheckpointStore(tmp_path)
    store.save(snapshot(0))
    root = root_of(tmp_path, 0)
    content = (root / "state.json").read_bytes().replace(b'_version": 1', b'_version": 29')
    (root / "state.json").write_bytes(content)
    manifest = Manifest.decode((root / "manifest.json").read_bytes())
    changed = Manifest({**manifest.files, "state.json": entry_of(content)}).encode()
    (root / "manifest.json").write_bytes(changed)
    with pytest.raises(StoreCorruptError, match=quotes(root, 29)):
        store.load()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(max_examples=30)
@given(st.dictionaries(st.text(), JSON))
def test_records_come_back_to_the_last_bit(record: dict[str, Any]) -> None:
    content = encode_record(record)
    json.loads(content, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert repr(decode_record(content)) == repr(record)


@given(st.dictionaries(st.text(), st.binary()), st.integers(0), st.integers(0, 7))
def test_a_manifest_with_one_bit_flipped_is_none(
    files: dict[str, bytes], position: int, bit: int
) -> None:
    content = Manifest({name: entry_of(value) for name, value in files.items()}).encode()
    assert Manifest.decode(content).files.keys() == files.keys()
    flipped = bytearray(content)
    flipped[position % len(content)] ^= 1 << bit
    with pytest.raises(ValueError, check=lambda error: type(error) is ValueError):
        Manifest.decode(bytes(flipped))


@pytest.mark.parametrize("version", [0, 2])
def test_a_manifest_of_another_version_is_none(
    monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint_format, "_MANIFEST_VERSION", version)
        content = Manifest({"a": entry_of(b"1")}).encode()
    with pytest.raises(ValueError, match=quotes(version)):
        Manifest.decode(content)


def test_a_manifest_with_the_same_meaning_in_other_bytes_is_none() -> None:
    content = Manifest({"b": entry_of(b"2"), "a": entry_of(b"1")}).encode()
    assert list(Manifest.decode(content).files) == ["a", "b"]
    for altered in (b" " + content, content[:-1] + b" ", content[:-1] + b"\t", content + b" "):
        with pytest.raises(ValueError, match="bytes differ"):
            Manifest.decode(altered)


@pytest.mark.parametrize("shape", [(100,), (100, 3), (100, 3, 5), (100, 0), (0, 4)])
def test_a_chunk_has_as_many_bytes_as_were_asked_for(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).standard_normal(shape)
    files = dict(encode_array("graph_data", values, chunk_bytes=800))
    sizes = [len(content) for name, content in files.items() if "/c" in name]
    row_bytes = 8 * int(np.prod(shape[1:]))
    assert all(size <= 800 + 64 for size in sizes)  # with a checksum
    if values.size:
        assert len(sizes) == -(-len(values) // (800 // row_bytes))
    arrays = decode_arrays({**encode_group(["graph_data"]), **files})
    assert_array_equal(arrays["graph_data"], values)


def test_objects_below_a_url_have_the_names_below_it(object_files: MemoryFiles) -> None:
    prefix = ObjectPath("s3://bucket/deep/checkpoints")
    objects = RemoteObjects(prefix)
    (prefix.parent / "other").write_bytes(b"mine")
    prefix.write_bytes(b"an object with the name of the prefix")
    objects.put("a", b"1")
    objects.put("b/c", b"2")
    assert sorted(objects.names()) == ["a", "b/c"]
    assert objects.get("b/c") == b"2"
    objects.remove(["a"])
    assert objects.names() == ["b/c"]

    store = ObjectCheckpointStore(prefix.parent / "of a fit")
    for number in range(4):
        store.save(snapshot(number))
        again = ObjectCheckpointStore(prefix.parent / "of a fit")
        assert_same(again.load(), snapshot(number))
        assert again.damage == ()
    store.clear()
    assert not (prefix.parent / "of a fit").exists()
    assert len(object_files.content) == 3
