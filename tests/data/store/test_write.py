"""Stores: what is written over what, and what a write that fails leaves behind."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zarr
from numpy.typing import NDArray

from mscam_dask.data.store import arrays
from mscam_dask.data.store.read import ZarrRows, open_store, verify_store
from mscam_dask.data.store.write import write_store
from mscam_dask.data.views import sources
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ArrayRows, view_digest
from mscam_dask.errors import ConfigurationError, DataError, TemporaryFailure
from tests.data.stores import FailingRows, N, example_data


@pytest.fixture(params=["new", "replacing"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """An output path, free or taken by a store; at the end it must be as it was."""
    path = tmp_path / "data.zarr"
    if request.param == "new":
        yield path
        assert list(tmp_path.iterdir()) == []
    else:
        write_store(example_data(), path)
        yield path
        assert list(tmp_path.iterdir()) == [path]
        assert verify_store(path).digest() == example_data().digest()


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (OSError(errno.ENOSPC, "no space"), TemporaryFailure),
        (KeyError("anything"), KeyError),
    ],
    ids=["disk full", "crash"],
)
def test_a_write_that_fails_midway_leaves_things_as_they_were(
    output: Path, raised: Exception, expected: type[Exception]
) -> None:
    data = MultiViewData(views=(FailingRows("v", raised),))
    with pytest.raises(expected):
        write_store(data, output, overwrite=True)


@pytest.mark.parametrize("chunk_size", [None, 2, 3])
def test_views_are_written_by_blocks(tmp_path: Path, chunk_size: int | None) -> None:
    asked: list[tuple[int, int]] = []

    class RecordingRows(ArrayRows):
        def read(self, start: int, stop: int) -> NDArray[np.float64]:
            asked.append((start, stop))
            return super().read(start, stop)

    rows, width = sources.BLOCK_BYTES // 2**20 // 8, 2**20
    table = np.broadcast_to(np.arange(N, dtype=np.int8)[:, None], (N, width))
    store = write_store(
        MultiViewData((RecordingRows(table, "v"),)), tmp_path / "s", chunk_size=chunk_size
    )
    assert asked == [(0, rows), (rows, N)]
    array = zarr.open_array(store / "views" / "0" / "values", mode="r")
    assert array.chunks == (chunk_size or arrays.CHUNK_BYTES // width, width)
    np.testing.assert_array_equal(array[:], table)


def test_values_that_are_not_finite_are_refused_and_nothing_is_left(output: Path) -> None:
    values = np.ones((N, 2))
    values[3, 1], values[7, 0] = np.nan, -np.inf
    with pytest.raises(DataError):
        write_store(as_multi_view({"v": values}), output, overwrite=True)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)], ids=["no rows", "no columns"])
def test_empty_views_are_refused(output: Path, shape: tuple[int, int]) -> None:
    with pytest.raises(DataError):
        write_store(as_multi_view({"v": np.ones(shape)}), output, overwrite=True)


def test_a_store_may_be_rewritten_from_itself(store: Path) -> None:
    write_store(open_store(store), store, chunk_size=2, overwrite=True)
    view = verify_store(store).views[0]
    assert isinstance(view, ZarrRows)
    assert view.chunk_size == 2
    assert view.recorded_digest == view_digest(example_data().views[0])


def test_what_is_no_store_is_never_replaced(tmp_path: Path) -> None:
    folder, file = tmp_path / "holiday", tmp_path / "file"
    folder.mkdir()
    (folder / "photo.jpg").write_bytes(b"x")
    file.write_bytes(b"y")
    for path in (folder, file):
        with pytest.raises(DataError):
            write_store(example_data(), path, overwrite=True)
    assert (folder / "photo.jpg").read_bytes() == b"x"
    assert file.read_bytes() == b"y"


def test_parents_and_empty_directories_are_used(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "s.zarr"
    write_store(example_data(), deep)
    empty = tmp_path / "empty"
    empty.mkdir()
    write_store(example_data(), empty)
    assert verify_store(deep).digest() == verify_store(empty).digest()
    with pytest.raises(ConfigurationError):
        write_store(example_data(), tmp_path / "s.zarr", chunk_size=0)
