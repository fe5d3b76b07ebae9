"""Stores: what is written is read, what is damaged is never read as numbers."""

from __future__ import annotations

import errno
import json
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mscam_dask.data import schema
from mscam_dask.data.seal import seal
from mscam_dask.data.sources import ArrayRows, Metric, view_digest
from mscam_dask.data.store import ZarrRows, is_store, open_store, verify_store
from mscam_dask.data.store_writer import write_store
from mscam_dask.data.views import MultiViewData, as_multi_view
from mscam_dask.errors import ConfigurationError, DataError, StoreCorruptError, TemporaryFailure
from tests.data.conftest import finite_tables

N = 11


def example_data() -> MultiViewData:
    rng = np.random.default_rng(5)
    return MultiViewData(
        views=(
            ArrayRows(rng.standard_normal((N, 3)), "colour"),
            ArrayRows(np.zeros((N, 2), dtype=np.float32), "all fill value"),
            ArrayRows(rng.integers(0, 9, (N, 4)).astype(">i2"), "counts"),
        ),
        sample_ids=tuple(f"sample {i} é" for i in range(N)),
        labels=np.arange(N, dtype=np.int64) % 3,
        label_names=("a", "b", "c"),
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_store(example_data(), tmp_path / "data.zarr", chunk_rows=4)


@pytest.fixture(scope="module")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that tests may damage and must mend."""
    return write_store(example_data(), tmp_path_factory.mktemp("shared") / "s.zarr", chunk_rows=4)


@contextmanager
def damaged(file: Path, content: bytes) -> Iterator[None]:
    original = file.read_bytes()
    file.write_bytes(content)
    try:
        yield
    finally:
        file.write_bytes(original)


# ----------------------------------------------------------------------------- round trip


@settings(max_examples=15)
@given(
    tables=st.integers(1, 9).flatmap(
        lambda n: st.lists(finite_tables(n_samples=n), min_size=1, max_size=3)
    ),
    names=st.lists(st.text(), min_size=3, max_size=3, unique=True),
    chunk_rows=st.none() | st.integers(1, 12),
    data=st.data(),
)
@example(
    tables=[np.zeros((2, 1))], names=["../../evil", "/etc", "a/b\x00"], chunk_rows=None, data=None
)
def test_what_is_written_is_read(
    tables: list[NDArray[Any]], names: list[str], chunk_rows: int | None, data: st.DataObject | None
) -> None:
    n = len(tables[0])
    ids = labels = None
    if data is not None:
        ids = data.draw(st.none() | st.lists(st.text(), min_size=n, max_size=n, unique=True))
        labels = data.draw(
            st.none() | st.lists(st.integers(-(2**63), 2**63 - 1), min_size=n, max_size=n)
        )
    original = MultiViewData(
        views=tuple(ArrayRows(table, name) for table, name in zip(tables, names, strict=False)),
        sample_ids=None if ids is None else tuple(ids),
        labels=None if labels is None else np.array(labels, dtype=np.int64),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = write_store(original, Path(folder) / "s.zarr", chunk_rows=chunk_rows)
        assert [item.name for item in Path(folder).iterdir()] == ["s.zarr"]
        assert sorted(item.name for item in (path / "views").iterdir() if item.is_dir()) == [
            str(index) for index in range(len(tables))
        ]
        stored = open_store(path)
        assert stored.view_names == original.view_names
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


@pytest.mark.parametrize("chunk_rows", [1, 3, N, N + 5])
def test_any_rows_of_any_chunking(chunk_rows: int, tmp_path: Path) -> None:
    data = example_data()
    stored = open_store(write_store(data, tmp_path / "s.zarr", chunk_rows=chunk_rows))
    for start, stop in [(0, N), (0, 0), (2, 3), (1, 7), (4, 8), (5, N), (N, N)]:
        for view, original in zip(stored.views, data.views, strict=True):
            np.testing.assert_array_equal(view.read(start, stop), original.read(start, stop))


def test_metrics_labels_and_label_names_come_back(tmp_path: Path) -> None:
    metrics: tuple[Metric, ...] = ("features", "distance", "kernel")
    data = MultiViewData(
        views=tuple(ArrayRows(np.eye(3), metric, metric) for metric in metrics),
        labels=np.array([1, 0, 1]),
        label_names=("off", "on"),
    )
    stored = open_store(write_store(data, tmp_path / "s.zarr"))
    assert tuple(view.metric for view in stored.views) == metrics
    assert stored.label_names == ("off", "on")


def test_views_read_in_another_process_by_absolute_path(
    store: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    view = open_store("data.zarr").views[0]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    pickled = pickle.dumps(view)
    assert len(pickled) < 1000
    np.testing.assert_array_equal(
        pickle.loads(pickled).read(0, N), example_data().views[0].read(0, N)
    )


def test_every_array_has_a_checksum_and_every_chunk_is_written(store: Path) -> None:
    arrays = [
        file.parent
        for file in store.rglob("zarr.json")
        if json.loads(file.read_text())["node_type"] == "array"
    ]
    keys = {str(array.relative_to(store)) for array in arrays}
    assert keys == {
        *(schema.view_key(index) for index in range(3)),
        *(spec.key for spec in schema.DATA_DICTIONARY[1:]),
    }
    for array in arrays:
        metadata = json.loads((array / "zarr.json").read_text())
        assert metadata["codecs"][-1]["name"] == "crc32c"
        shape = metadata["shape"]
        chunks = metadata["chunk_grid"]["configuration"]["chunk_shape"]
        n_chunks = int(
            np.prod([-(-size // chunk) for size, chunk in zip(shape, chunks, strict=True)])
        )
        assert len([file for file in (array / "c").rglob("*") if file.is_file()]) == n_chunks
        assert metadata["dimension_names"] is not None


def test_reads_one_chunk_at_a_time(store: Path) -> None:
    view = open_store(store).views[0]
    for chunk in (0, 2):
        (store / "views/0/values/c" / str(chunk) / "0").unlink()
    np.testing.assert_array_equal(view.read(4, 8), example_data().views[0].read(4, 8))


# ----------------------------------------------------------------------------- damage


def chunk_files(store: Path) -> list[Path]:
    return sorted(file for file in store.rglob("*") if file.is_file() and file.name != "zarr.json")


def read_everything(store: Path) -> None:
    data = open_store(store)
    for view in data.views:
        view.read(0, data.n_samples)


@settings(max_examples=40)
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
    assert "ingest the original data again" in str(caught.value)


@pytest.mark.parametrize("damage", ["missing", "truncated", "emptied", "replaced by another's"])
def test_every_damaged_chunk_is_caught_and_named(store: Path, damage: str) -> None:
    files = chunk_files(store)
    assert len(files) == 12  # 3 views of 3 chunks, labels, bytes and offsets of ids
    contents = {file: file.read_bytes() for file in files}
    for file, content in contents.items():
        if damage == "missing":
            file.unlink()
        elif damage == "truncated":
            file.write_bytes(content[:-1])
        elif damage == "emptied":
            file.write_bytes(b"")
        else:
            file.write_bytes(next(other for other in contents.values() if other != content))
        with pytest.raises(StoreCorruptError) as caught:
            verify_store(store)
        array = next(parent for parent in file.parents if (parent / "zarr.json").is_file())
        assert str(file if damage != "replaced by another's" else array) in str(caught.value)
        file.write_bytes(content)
    verify_store(store)


def test_a_missing_chunk_of_zeros_is_not_read_as_zeros(store: Path) -> None:
    view = open_store(store).views[1]
    assert not view.read(0, N).any()
    (store / "views/1/values/c/1/0").unlink()
    with pytest.raises(StoreCorruptError, match="chunk with rows 4:8 is missing"):
        view.read(0, N)


def test_chunks_that_changed_places_are_caught_by_the_digest(store: Path) -> None:
    first, second = (store / "views/0/values/c" / index / "0" for index in "01")
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    read_everything(store)  # each chunk is intact in itself
    with pytest.raises(StoreCorruptError, match=r"view 'colour' has digest .*, recorded is"):
        verify_store(store)


@settings(max_examples=50)
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


def test_metadata_that_change_while_a_store_is_open_are_noticed(store: Path) -> None:
    view = open_store(store).views[0]
    edit(store / "views/0/values/zarr.json", lambda m: m["codecs"].pop())
    with pytest.raises(StoreCorruptError, match=r"views/0/values/zarr\.json.*not what it was"):
        view.read(0, 1)


def test_a_seal_that_was_taken_away_is_noticed(store: Path) -> None:
    edit(store / "zarr.json", lambda m: m["attributes"].pop("seal"))
    with pytest.raises(StoreCorruptError, match="its seal is missing"):
        open_store(store)


def test_a_store_without_its_root_is_damaged_and_not_none(store: Path) -> None:
    (store / "zarr.json").unlink()
    assert is_store(store)
    with pytest.raises(StoreCorruptError, match=r"zarr\.json is damaged: it is missing"):
        open_store(store)


def test_a_damaged_store_is_not_replaced(store: Path) -> None:
    (store / "zarr.json").write_bytes(b"{")
    with pytest.raises(DataError, match="never replaced"):
        write_store(example_data(), store, overwrite=True)


def edit(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    metadata = json.loads(file.read_text())
    change(metadata)
    file.write_text(json.dumps(metadata))


@pytest.mark.parametrize(
    ("key", "change", "message"),
    [
        ("views/0/values", lambda m: m["attributes"].pop("name"), "name, metric"),
        ("views/0/values", lambda m: m["attributes"].update(metric="cosine"), "name, metric"),
        ("views/0/values", lambda m: m["attributes"].update(source_dtype="O8?"), "source_dtype"),
        ("views/0/values", lambda m: m.update(data_type="int64"), "dtype int64 where float64"),
        ("views/0/values", lambda m: m["codecs"].pop(), r"no checksum \(crc32c\)"),
        ("views/0/values", lambda m: m.update(shape=[N - 1, 3]), rf"is not \({N}, d\)"),
        ("labels", lambda m: m.update(shape=[N - 1]), f"{N - 1} entries, {N} expected"),
        ("labels", lambda m: m["codecs"].pop(), "no checksum"),
        ("sample_ids/bytes", lambda m: m.update(data_type="int8"), "where a vector was written"),
        ("", lambda m: m["attributes"].pop("n_samples"), "attribute missing or unusable"),
        ("", lambda m: m["attributes"].update(n_views="many"), "attribute missing or unusable"),
        ("", lambda m: m["attributes"].update(n_views=4), "it is missing"),
    ],
    ids=str.split("no-name metric dtype type crc shape labels labels-crc ids n views more-views"),
)
def test_altered_metadata_are_named(
    store: Path, key: str, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    edit(store / key / "zarr.json", change)
    seal(zarr.open_group(store, mode="r+"), store)  # what is sealed is not believed either
    with pytest.raises(StoreCorruptError, match=message):
        open_store(store)


def test_ids_that_are_cut_wrong_are_caught(tmp_path: Path) -> None:
    path = write_store(example_data(), tmp_path / "s.zarr")
    offsets = zarr.open_array(path / "sample_ids/offsets", mode="r+")
    original = np.asarray(offsets[:])
    offsets[:] = original[::-1]
    with pytest.raises(StoreCorruptError, match="offsets do not cut"):
        open_store(path)
    moved = original.copy()
    moved[1] -= 1  # inside the two bytes of é
    offsets[:] = moved
    with pytest.raises(StoreCorruptError, match="not UTF-8"):
        open_store(path)


def test_a_store_replaced_after_opening_is_noticed(store: Path) -> None:
    view = open_store(store).views[0]
    shutil.rmtree(store)
    write_store(as_multi_view([np.ones((N, 7))]), store)
    with pytest.raises(StoreCorruptError, match=r"now \(11, 7\).*open the store again"):
        view.read(0, 1)


# ----------------------------------------------------------------------------- no store


def test_what_is_no_store_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no store at .*nowhere.*mscam-dask ingest"):
        open_store(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"no Zarr v3 group.*zarr\.json"):
        open_store(tmp_path)
    zarr.open_group(tmp_path / "other.zarr", mode="w", zarr_format=3)
    with pytest.raises(DataError, match=r"not a store of this package \(format=None\)"):
        open_store(tmp_path / "other.zarr")
    with pytest.raises(ConfigurationError, match="names no store"):
        open_store("http://host/data.zarr")
    assert not is_store(tmp_path)


def test_a_newer_format_is_refused(store: Path) -> None:
    edit(store / "zarr.json", lambda m: m["attributes"].update(format_version=3))
    seal(zarr.open_group(store, mode="r+"), store)
    with pytest.raises(DataError, match=r"has format version 3; this version reads 2\. Upgrade"):
        open_store(store)


# ----------------------------------------------------------------------------- writing


@dataclass(frozen=True, eq=False)
class FailingRows:
    """A view whose last row cannot be read."""

    name: str
    error: Exception
    shape: tuple[int, int] = (N, 2**20)  # wide: several blocks
    metric: Metric = "features"

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float64)

    def read(self, start: int, stop: int) -> NDArray[np.float64]:
        if stop == N:
            raise self.error
        return np.zeros((stop - start, self.shape[1]))


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


@pytest.mark.parametrize("chunk_rows", [None, 2, 3])
def test_views_are_written_by_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_rows: int | None
) -> None:
    asked: list[tuple[int, int]] = []

    class RecordingRows(ArrayRows):
        def read(self, start: int, stop: int) -> NDArray[np.float64]:
            asked.append((start, stop))
            return super().read(start, stop)

    monkeypatch.setattr("mscam_dask.data.store_writer.BLOCK_BYTES", 5 * 8 * 3)  # five rows
    monkeypatch.setattr("mscam_dask.data.store_writer.CHUNK_BYTES", 4 * 8 * 3)  # four rows
    table = np.arange(3.0 * N).reshape(N, 3)
    path = write_store(
        MultiViewData((RecordingRows(table, "v"),)), tmp_path / "s", chunk_rows=chunk_rows
    )
    step = {None: 4, 2: 4, 3: 3}[chunk_rows]  # whole chunks within five rows
    assert asked == [(start, min(start + step, N)) for start in range(0, N, step)]
    np.testing.assert_array_equal(open_store(path).views[0].read(0, N), table)


def test_values_that_are_not_finite_are_refused_and_nothing_is_left(output: Path) -> None:
    values = np.ones((N, 2))
    values[3, 1], values[7, 0] = np.nan, -np.inf
    with pytest.raises(
        DataError, match=r"'v' has 1 NaN and 1 infinite .*in 2 of 11 rows \(first rows: \[3, 7\]\)"
    ):
        write_store(as_multi_view({"v": values}), output, overwrite=True)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)], ids=["no rows", "no columns"])
def test_empty_views_are_refused(output: Path, shape: tuple[int, int]) -> None:
    with pytest.raises(DataError, match=r"View 'v' is empty: shape"):
        write_store(as_multi_view({"v": np.ones(shape)}), output, overwrite=True)


def test_repeated_ids_are_refused(tmp_path: Path) -> None:
    data = replace(example_data(), sample_ids=("x",) * N)
    with pytest.raises(DataError, match="the first is 'x', in rows"):
        write_store(data, tmp_path / "s.zarr")


def test_a_store_is_replaced_only_when_told(store: Path) -> None:
    other = as_multi_view([np.arange(6.0).reshape(3, 2)])
    with pytest.raises(DataError, match="exists; choose another output, or say overwrite=True"):
        write_store(other, store)
    assert open_store(store).digest() == example_data().digest()
    write_store(other, store, overwrite=True)
    assert verify_store(store).digest() == other.digest()
    assert [item.name for item in store.parent.iterdir()] == ["data.zarr"]


def test_a_store_may_be_rewritten_from_itself(store: Path) -> None:
    write_store(open_store(store), store, chunk_rows=2, overwrite=True)
    view = verify_store(store).views[0]
    assert isinstance(view, ZarrRows)
    assert view.chunk_rows == 2
    assert view.recorded_digest == view_digest(example_data().views[0])


def test_what_is_no_store_is_never_replaced(tmp_path: Path) -> None:
    folder, file = tmp_path / "holiday", tmp_path / "file"
    folder.mkdir()
    (folder / "photo.jpg").write_bytes(b"x")
    file.write_bytes(b"y")
    for path in (folder, file):
        with pytest.raises(DataError, match=r"not a store of this package; it is never replaced"):
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


def test_chunk_rows_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"chunk_rows=0; allowed is at least 1"):
        write_store(example_data(), tmp_path / "s.zarr", chunk_rows=0)


def test_schema_keeps_every_dtype_that_float64_holds_exactly() -> None:
    kept = ["?", "i1", "u1", ">i2", "u2", ">i4", "u4", "f2", ">f4", "f8", ">f8"]
    for name in kept:
        stored = schema.stored_dtype(np.dtype(name))
        assert stored.kind == np.dtype(name).kind
        assert stored.itemsize == np.dtype(name).itemsize
        assert stored == stored.newbyteorder("<")
    for name in ["i8", ">u8", "g"]:
        assert schema.stored_dtype(np.dtype(name)) == np.dtype("<f8")
