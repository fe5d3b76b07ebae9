"""Every file of a result and of checkpoints, damaged in every way: found, and named (stores: tests/data/store)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mscam_dask.data.checkpoints import FileCheckpointStore
from mscam_dask.data.results import read_result, write_result
from mscam_dask.data.store.atomic_replace import POINTER
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.errors import StoreCorruptError
from mscam_dask.types.parameters import Parameters
from tests.faults.checkpoint_states import number_in, state

pytestmark = pytest.mark.faults


def damages(file: Path) -> Iterator[str]:
    """Damage a file in one way after the other; as it was in the end."""
    content = file.read_bytes()
    rng = np.random.default_rng(len(content))
    bits = [int(bit) for bit in rng.integers(0, 8 * len(content), size=4)] if content else []
    for bit in (0, 8 * len(content) - 1, *bits):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << (bit % 8)
        file.write_bytes(flipped)
        yield f"bit {bit} flipped"
    for damage, left in (("truncated", content[:-1]), ("emptied", b"")):
        file.write_bytes(left)
        yield damage
    file.unlink()
    yield "deleted"
    file.write_bytes(content)


def files_of(root: Path) -> list[Path]:
    return sorted(item for item in root.rglob("*") if item.is_file())


@pytest.mark.thorough
def test_every_damaged_file_of_a_result_is_found_and_named(tmp_path: Path) -> None:
    views = as_multi_view([np.random.default_rng(3).standard_normal((12, 3))])
    parameters = Parameters(n_clusters=2, n_neighbors=3, max_iter=1, scale="none")
    root = write_result(run_fit(views, parameters, SerialExecutor()), tmp_path / "result.zarr")
    files = files_of(root)
    n_metadata = sum(file.name == "zarr.json" for file in files)
    assert n_metadata > 5
    assert len(files) > 1.5 * n_metadata
    for file in files:
        for damage in damages(file):
            with pytest.raises(StoreCorruptError) as caught:
                read_result(root)
            assert str(file) in str(caught.value), damage
    read_result(root)


def test_every_damaged_file_of_the_only_checkpoint_is_found_and_named(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    FileCheckpointStore(root).save(state(0))
    files = files_of(root)
    assert {POINTER, "zarr.json", "0"} == {file.name for file in files}
    for file in files:
        for damage in damages(file):
            store = FileCheckpointStore(root)
            if file.name == POINTER:  # the checkpoint itself is whole, and says so itself
                assert store.load() is not None
                (said,) = store.damage
            else:
                with pytest.raises(StoreCorruptError) as caught:
                    store.load()
                said = str(caught.value)
            assert str(file) in said, damage
    assert FileCheckpointStore(root).load() is not None


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(tmp_path: Path) -> None:
    store = FileCheckpointStore(tmp_path)
    for number in (1, 2, 3):
        store.save(state(number))
    older, newest = sorted(tmp_path.glob("0*"))
    for file in files_of(newest):
        for damage in damages(file):
            reader = FileCheckpointStore(tmp_path)
            assert number_in(reader) == 2
            assert str(file) in reader.damage[0], damage
    # and with both damaged nothing is believed
    for root in (older, newest):
        (root / "record/c/0").write_bytes(b"")
    with pytest.raises(StoreCorruptError) as caught:
        FileCheckpointStore(tmp_path).load()
    assert str(caught.value).count("record/c/0") == 2
    shutil.rmtree(tmp_path)
    assert FileCheckpointStore(tmp_path).load() is None
