"""Stores: what is damaged is never read as numbers, and the file is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from mscam_dask.data.store.arrays import write_checksums
from mscam_dask.data.store.read import is_store, open_store, verify_store
from mscam_dask.data.store.write import write_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.errors import StoreCorruptError
from tests.data.stores import N, edit, example_data


@pytest.fixture(scope="module")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that tests may damage and must mend."""
    return write_store(example_data(), tmp_path_factory.mktemp("shared") / "s.zarr", chunk_size=4)


@contextmanager
def damaged(file: Path, content: bytes) -> Iterator[None]:
    original = file.read_bytes()
    file.write_bytes(content)
    try:
        yield
    finally:
        file.write_bytes(original)


def chunk_files(store: Path) -> list[Path]:
    return sorted(file for file in store.rglob("*") if file.is_file() and file.name != "zarr.json")


def read_everything(store: Path) -> None:
    data = open_store(store)
    for view in data.views:
        view.read(0, data.n_samples)


@settings(max_examples=8)
@given(data=st.data())
def test_one_flipped_bit_in_any_chunk_is_caught_and_the_file_named(
    shared_store: Path, data: st.DataObject
) -> None:
    file = data.draw(st.sampled_from(chunk_files(shared_store)))
    raw = bytearray(file.read_bytes())
    bit = data.draw(st.integers(0, 8 * len(raw) - 1))
    raw[bit // 8] ^= 1 << (bit % 8)
    with damaged(file, bytes(raw)), pytest.raises(StoreCorruptError) as caught:
        read_everything(shared_store)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("damage", ["missing", "truncated", "replaced by another's"])
def test_every_damaged_chunk_is_caught_and_named(store: Path, damage: str) -> None:
    files = chunk_files(store)
    assert len(files) == 12  # labels, bytes and offsets of ids, 3 views of 3 chunks
    contents = {file: file.read_bytes() for file in files[:6]}
    for file, content in contents.items():
        if damage == "missing":
            file.unlink()
        elif damage == "truncated":
            file.write_bytes(content[:-1])
        else:
            file.write_bytes(next(other for other in contents.values() if other != content))
        with pytest.raises(StoreCorruptError) as caught:
            verify_store(store)
        array = next(parent for parent in file.parents if (parent / "zarr.json").is_file())
        assert str(file if damage != "replaced by another's" else array) in str(caught.value)
        file.write_bytes(content)
    verify_store(store)


@pytest.mark.parametrize("opened", ["store", "view"])
def test_a_store_that_was_moved_after_it_was_opened_is_gone(store: Path, opened: str) -> None:
    views = open_store(store).views
    if opened == "view":
        views[1].read(0, 4)
    store.rename(store.with_name("moved.zarr"))
    with pytest.raises(StoreCorruptError):
        views[1].read(0, N)


def test_chunks_that_changed_places_are_caught_by_the_digest(store: Path) -> None:
    first, second = (store / "views/0/values/c" / index / "0" for index in "01")
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    read_everything(store)  # each chunk is intact in itself
    with pytest.raises(StoreCorruptError):
        verify_store(store)


@settings(max_examples=25)
@given(data=st.data())
def test_one_altered_byte_of_metadata_is_caught_and_the_file_named(
    shared_store: Path, data: st.DataObject
) -> None:
    file = data.draw(st.sampled_from(sorted(shared_store.rglob("zarr.json"))))
    raw = bytearray(file.read_bytes())
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] = data.draw(st.integers(0, 255).filter(lambda byte: byte != raw[position]))
    if _says_the_same(file.read_bytes(), bytes(raw)):  # a blank for a line end
        return
    with damaged(file, bytes(raw)), pytest.raises(StoreCorruptError) as caught:
        open_store(shared_store)
    assert str(file) in str(caught.value)


def _says_the_same(first: bytes, second: bytes) -> bool:
    try:
        return bool(json.loads(first) == json.loads(second))
    except ValueError:
        return False


def test_a_missing_checksum_is_an_error(store: Path) -> None:
    edit(store / "zarr.json", lambda m: m["attributes"].pop("checksum"))
    with pytest.raises(StoreCorruptError):
        open_store(store)


def test_a_store_without_its_root_is_damaged_and_not_none(store: Path) -> None:
    (store / "zarr.json").unlink()
    assert is_store(store)
    with pytest.raises(StoreCorruptError):
        open_store(store)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["attributes"].pop("n_views"),
        lambda m: m["attributes"].update(n_views="many"),
        lambda m: m["attributes"].update(n_views=4),
    ],
    ids=["none", "no number", "more views"],
)
def test_unusable_attributes_are_damage(
    store: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    edit(store / "zarr.json", change)
    write_checksums(zarr.open_group(store, mode="r+"), store)
    with pytest.raises(StoreCorruptError):
        open_store(store)


def test_a_store_replaced_after_opening_is_noticed(store: Path) -> None:
    view = open_store(store).views[0]
    shutil.rmtree(store)
    write_store(as_multi_view([np.ones((N, 7))]), store)
    with pytest.raises(StoreCorruptError):
        view.read(0, 1)
