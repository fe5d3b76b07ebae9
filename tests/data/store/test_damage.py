"""Stores, results and checkpoints: what is damaged is never read as numbers, and the file is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from mscam_dask.data.checkpoints import FileCheckpointStore
from mscam_dask.data.results import read_result, write_result
from mscam_dask.data.store.arrays import write_checksums
from mscam_dask.data.store.dataset import open_store, verify_store, write_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.rows import restrict_to_present
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.errors import StoreCorruptError
from mscam_dask.types.parameters import Parameters
from tests.data.stores import N, clustered_data, edit
from tests.faults.checkpoint_states import state

pytestmark = pytest.mark.faults


def damages(root: Path) -> Iterator[tuple[Path, str]]:
    """Damage each file below a directory in one way after the other; as it was in the end."""
    for file in sorted(item for item in root.rglob("*") if item.is_file()):
        content = file.read_bytes()
        rng = np.random.default_rng(len(content))
        bits = [int(bit) for bit in rng.integers(0, 8 * len(content), size=4)] if content else []
        for bit in (0, 8 * len(content) - 1, *bits):
            flipped = bytearray(content)
            flipped[bit // 8] ^= 1 << (bit % 8)
            file.write_bytes(flipped)
            yield file, f"bit {bit} of {file} flipped"
        for damage, left in (("truncated", content[:-1]), ("emptied", b"")):
            file.write_bytes(left)
            yield file, f"{file} {damage}"
        file.unlink()
        yield file, f"{file} deleted"
        file.write_bytes(content)


def a_store(folder: Path) -> tuple[Path, Callable[[Path], object]]:
    first, second = clustered_data(4).views
    held = restrict_to_present(second, np.array([1]))  # so that there is a mask
    data = MultiViewData((first, held), sample_ids=tuple("abcd"), labels=np.arange(4) % 2)
    return write_store(data, folder / "s.zarr", chunk_size=2), verify_store


def a_result(folder: Path) -> tuple[Path, Callable[[Path], object]]:
    views = as_multi_view([np.random.default_rng(3).standard_normal((12, 3))])
    parameters = Parameters(n_clusters=2, n_neighbors=3, max_iter=1, scale="none")
    fitted = run_fit(views, parameters, SerialExecutor())
    return write_result(fitted, folder / "result.zarr"), read_result


@pytest.mark.parametrize("make", [a_store, pytest.param(a_result, marks=pytest.mark.thorough)])
def test_every_damaged_file_is_found_and_named(make: Any, tmp_path: Path) -> None:
    root, read = make(tmp_path)
    names = [file.name for file in root.rglob("*") if file.is_file()]
    assert 5 <= names.count("zarr.json") < len(names)
    for file, damage in damages(root):
        with pytest.raises(StoreCorruptError) as caught:
            read(root)
        assert str(file) in str(caught.value), damage
    read(root)


def test_every_damaged_file_of_the_only_checkpoint_is_found_and_named(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    FileCheckpointStore(root).save(state(0))
    assert {"zarr.json", "0"} == {file.name for file in root.rglob("*") if file.is_file()}
    for file, damage in damages(root):
        store = FileCheckpointStore(root)
        with pytest.raises(StoreCorruptError) as caught:
            store.load()
        assert str(file) in str(caught.value), damage
    assert FileCheckpointStore(root).load() is not None


@pytest.mark.parametrize("opened", ["store", "view"])
def test_a_store_that_was_moved_or_replaced_after_it_was_opened_is_told(
    store: Path, opened: str
) -> None:
    views = open_store(store).views
    if opened == "view":
        views[1].read(0, 4)
    store.rename(store.with_name("moved.zarr"))
    with pytest.raises(StoreCorruptError):
        views[1].read(0, N)
    write_store(as_multi_view([np.ones((N, 7))] * 2), store)
    with pytest.raises(StoreCorruptError):
        views[1].read(0, 1)


def test_chunks_that_changed_places_are_caught_by_the_digest(store: Path) -> None:
    first, second = (store / "views/0/values/c" / index / "0" for index in "01")
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    open_store(store).views[0].read(0, N)  # each chunk is intact in itself
    with pytest.raises(StoreCorruptError):
        verify_store(store)


@pytest.mark.parametrize(
    ("change", "is_signed"),
    [
        (lambda attributes: attributes.pop("checksum"), False),
        (lambda attributes: attributes.pop("n_views"), True),
        (lambda attributes: attributes.update(n_views="many"), True),
        (lambda attributes: attributes.update(n_views=4), True),
    ],
    ids=["no checksum", "none", "no number", "more views"],
)
def test_unusable_attributes_are_damage(
    store: Path, change: Callable[[dict[str, Any]], object], is_signed: bool
) -> None:
    edit(store / "zarr.json", lambda metadata: change(metadata["attributes"]))
    if is_signed:
        write_checksums(zarr.open_group(store, mode="r+"), store)
    with pytest.raises(StoreCorruptError):
        open_store(store)
