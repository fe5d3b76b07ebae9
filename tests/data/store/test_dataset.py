"""Stores: what is written is read, what is no store is not; what is written over what, and what a failed write leaves."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mscam_dask.data.store.arrays import write_checksums
from mscam_dask.data.store.dataset import open_store, verify_store, write_store
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import VIEW_TYPES, ArrayRows
from mscam_dask.errors import ConfigurationError, DataError, StoreCorruptError
from tests.data.conftest import finite_tables
from tests.data.stores import N, edit, example_data

# Names and ids have no control or invisible characters, line separators or surrogates.
PRINTABLE = st.text(st.characters(exclude_categories=("Cc", "Cf", "Cs", "Zl", "Zp")))


@settings(max_examples=6)
@given(
    tables=st.integers(1, 9).flatmap(
        lambda n: st.lists(finite_tables(n_samples=n), min_size=1, max_size=3)
    ),
    names=st.lists(PRINTABLE, min_size=3, max_size=3, unique=True),
    chunk_size=st.none() | st.integers(1, 12),
    data=st.data(),
)
@example(tables=[np.zeros((2, 1))], names=["../../evil", "/etc", "a/b"], chunk_size=None, data=None)
def test_what_is_written_is_read(
    tables: list[NDArray[Any]], names: list[str], chunk_size: int | None, data: st.DataObject | None
) -> None:
    n = len(tables[0])
    ids = labels = None
    if data is not None:
        ids = data.draw(st.none() | st.lists(PRINTABLE, min_size=n, max_size=n, unique=True))
        ids = None if ids is None else [f"id{text}" for text in ids]  # none is missing
        labels = data.draw(st.none() | st.lists(st.integers(-1, 1), min_size=n, max_size=n))
    original = MultiViewData(
        views=tuple(
            ArrayRows(table, name, kind)
            for table, name, kind in zip(tables, names, VIEW_TYPES, strict=False)
        ),
        sample_ids=None if ids is None else tuple(ids),
        labels=None if labels is None else np.array(labels, dtype=np.int64),
        label_names=None if labels is None else ("off", "on"),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = write_store(original, Path(folder) / "s.zarr", chunk_size=chunk_size)
        assert [item.name for item in Path(folder).iterdir()] == ["s.zarr"]
        assert sorted(item.name for item in (path / "views").iterdir() if item.is_dir()) == [
            str(index) for index in range(len(tables))
        ]
        stored = open_store(path)
        assert stored.view_names == original.view_names
        assert stored.label_names == original.label_names
        assert stored.sample_ids == original.sample_ids
        assert (stored.labels is None) == (labels is None)
        if labels is not None and stored.labels is not None:
            assert stored.labels.tolist() == labels
        for index, (table, view) in enumerate(zip(tables, stored.views, strict=True)):
            rows = view.read(0, n)
            assert rows.flags.c_contiguous
            assert not rows.flags.writeable
            np.testing.assert_array_equal(rows, table.astype(np.float64))
            raw = zarr.open_array(path / "views" / str(index) / "values", mode="r")[:]
            if table.dtype.kind == "f" or table.dtype.itemsize < 8:
                np.testing.assert_array_equal(raw, table)
                assert np.asarray(raw).dtype == table.dtype.newbyteorder("=")
            else:
                assert np.asarray(raw).dtype == np.float64
        assert stored.digest() == original.digest()
        assert verify_store(path).digest() == original.digest()


@pytest.mark.parametrize("chunk_size", [1, 3, N + 5])
def test_any_rows_of_any_chunking_wherever_they_are_read(
    chunk_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = example_data()
    monkeypatch.chdir(tmp_path)
    write_store(data, "s.zarr", chunk_size=chunk_size)
    pickled = pickle.dumps(open_store("s.zarr"))
    monkeypatch.chdir("/")
    stored = pickle.loads(pickled)
    for start, stop in [(0, N), (0, 0), (2, 3), (1, 7), (4, 8), (5, N), (N, N)]:
        for view, original in zip(stored.views, data.views, strict=True):
            np.testing.assert_array_equal(view.read(start, stop), original.read(start, stop))


def test_a_store_from_before_names_of_columns_is_read(tmp_path: Path) -> None:
    view = ArrayRows(np.eye(3), "v", feature_names=("p", "é", "p"))
    store = write_store(MultiViewData(views=(view,)), tmp_path / "s.zarr")
    (stored,) = open_store(store).views
    assert stored.feature_names == ("p", "é", "p")
    assert len(pickle.dumps(stored)) < 1000
    edit(store / "views/0/zarr.json", lambda m: m["attributes"].pop("feature_names"))
    with pytest.raises(StoreCorruptError):
        open_store(store)
    write_checksums(zarr.open_group(store, mode="r+"), store)
    assert verify_store(store).views[0].feature_names is None


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
