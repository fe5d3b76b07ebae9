"""NumPy archives and arrays; nothing is ever unpickled."""

from __future__ import annotations

import re
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from mscam_dask.data.readers.base import Selection, Source, SourceContents
from mscam_dask.data.readers.registry import read_source
from mscam_dask.errors import DataError
from tests.data.conftest import finite_tables
from tests.messages import quotes


class Bomb:
    """Leaves a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def read(source: Path | Source, **selection: Any) -> SourceContents:
    with ExitStack() as stack:
        given = source if isinstance(source, Source) else Source(source)
        return read_source(given, Selection(**selection), stack)


def values(loaded: SourceContents) -> dict[str, list[list[float]]]:
    return {view.name: view.read(0, view.shape[0]).tolist() for view in loaded.views}


@settings(max_examples=30)
@given(tables=st.lists(finite_tables(n_samples=3), min_size=1, max_size=12))
def test_numbered_views_come_back_in_numerical_order(tables: list[NDArray[Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.npz"
        shuffled = {f"view_{index}": table for index, table in reversed(list(enumerate(tables)))}
        np.savez(path, allow_pickle=False, **shuffled)
        loaded = read(path)
    assert [view.name for view in loaded.views] == [f"view_{i}" for i in range(len(tables))]
    for view, table in zip(loaded.views, tables, strict=True):
        assert view.dtype == table.dtype
        np.testing.assert_array_equal(view.read(0, 3), table.astype(np.float64))


@settings(max_examples=30)
@given(table=finite_tables())
def test_npy_comes_back_named_by_its_file(table: NDArray[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shape.context.npy"
        np.save(path, table)
        loaded = read(path)
        assert values(loaded) == {"shape.context": table.astype(np.float64).tolist()}


def test_archive_under_other_names(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, colour=np.eye(3), y=np.array([[0], [1], [1]]), scale=np.ones(2))
    loaded = read(path)
    assert list(values(loaded)) == ["colour"]
    assert loaded.labels is not None
    assert loaded.labels.ravel().tolist() == [0, 1, 1]
    assert "'y'" in loaded.notes[0]
    assert re.match(quotes("scale", (2,)), loaded.notes[1])


@pytest.mark.parametrize("key", ["view_0", "colour"])
@pytest.mark.parametrize(
    "ids", [["s2", "s0", "é"], [[2], [0], [1]], [b"s2", b"s0", "é".encode()]], ids=str
)
def test_sample_ids_of_archives(tmp_path: Path, key: str, ids: list[Any]) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, allow_pickle=False, **{key: np.eye(3), "sample_ids": np.array(ids)})
    loaded = read(path)
    assert list(values(loaded)) == [key]
    expected = ("2", "0", "1") if ids[0] == [2] else ("s2", "s0", "é")
    assert loaded.sample_ids == expected
    assert loaded.notes == ()


def test_sample_ids_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, view_0=np.eye(3), sample_ids=np.eye(3))
    assert read(path).sample_ids is None
    (note,) = read(path).notes
    assert re.match(quotes(path, ["sample_ids"]), note)
    np.savez(path, colour=np.eye(3), sample_ids=np.eye(3))
    assert list(values(read(path))) == ["colour", "sample_ids"]
    np.savez(path, colour=np.eye(3), sample_ids=np.arange(3)[:, None])
    assert list(values(read(path, views=("sample_ids",)))) == ["sample_ids"]


def test_labels_as_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, colour=np.eye(3), y=np.array([b"p", b"q", b"p"]))
    assert read(path).labels is not None


def test_a_view_asked_for_is_no_label(tmp_path: Path) -> None:
    path = tmp_path / "xy.npz"
    column = np.arange(4.0)[:, None]
    np.savez(path, allow_pickle=False, x=column, y=-column, truth=np.arange(4), flat=np.arange(4))
    loaded = read(path, views=("x", "y"))
    assert [view.name for view in loaded.views] == ["x", "y"]
    assert loaded.labels is not None
    assert loaded.labels.tolist() == [0, 1, 2, 3]
    assert read(path, views=("x",)).labels is not None
    with pytest.raises(DataError, match=quotes("'flat'", 1, (4,), "(n, 1)")):
        read(path, views=("x", "flat"))
    np.savez(path, allow_pickle=False, view_0=column, y=np.arange(4), view_names=np.array(["y"]))
    numbered = read(path, views=("y",))
    assert [view.name for view in numbered.views] == ["y"]
    assert numbered.labels is not None


def test_keys_left_out_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, view_0=np.eye(3), extra=np.eye(2))
    (note,) = read(path).notes
    assert re.match(quotes(path, ["extra"]), note)


def test_sparse_archive(tmp_path: Path) -> None:
    path = tmp_path / "words.npz"
    matrix = sparse.csc_array(np.random.default_rng(0).integers(0, 2, (5, 4)))
    sparse.save_npz(path, matrix)
    assert values(read(path)) == {"words": matrix.toarray().tolist()}
    turned = read(Source(path, samples_in="columns"))
    assert values(turned) == {"words": matrix.toarray().T.tolist()}


@pytest.mark.parametrize("key", ["view_0", "labels", "view_names", "colour"])
def test_pickled_objects_are_refused_and_not_loaded(tmp_path: Path, key: str) -> None:
    trace = tmp_path / "executed"
    path = tmp_path / "a.npz"
    arrays: dict[str, Any] = {} if key == "colour" else {"view_0": np.eye(2)}
    np.savez(path, allow_pickle=True, **{**arrays, key: np.array([[Bomb(trace)]], dtype=object)})
    with pytest.raises(DataError, match=quotes(path, repr(key))):
        read(path)
    npy = tmp_path / "a.npy"
    np.save(npy, np.array([[Bomb(trace)]], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=quotes(npy)):
        read(npy)
    assert not trace.exists()


def test_objects_that_are_not_asked_for_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    junk = np.array([{}], dtype=object)
    np.savez(path, allow_pickle=True, colour=np.eye(2), notes=junk)
    assert list(values(read(path, views=("colour",)))) == ["colour"]


@pytest.mark.parametrize("suffix", [".npz", ".npy"])
@pytest.mark.parametrize("keep", [0, 20, 150])
def test_truncated_files_are_named(tmp_path: Path, suffix: str, keep: int) -> None:
    path = tmp_path / f"a{suffix}"
    if suffix == ".npz":
        np.savez(path, view_0=np.eye(9))
    else:
        np.save(path, np.eye(9))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=quotes(path)):
        read(path)


def test_flipped_bytes_of_an_archive_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, view_0=np.full((40, 40), 3.0))
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(DataError, match=quotes(path, "CRC")):
        read(path)


@pytest.mark.parametrize(
    ("arrays", "quoted"),
    [
        ({"view_0": np.eye(2), "kind": np.array(["cosine"])}, ["'cosine'", "'view_0'"]),
        ({"view_0": np.eye(2), "view_names": np.array(["a", "b"])}, [2, "'view_names'", 1]),
        ({"view_0": np.eye(2), "kind": np.array([], dtype=str)}, [0, "'kind'", 1]),
        ({"view_0": np.ones(3)}, ["'view_0'", 1, (3,)]),
        ({"weights": np.ones(3)}, [["weights"]]),
    ],
    ids=["kind", "names", "kinds", "vector", "no view"],
)
def test_archives_that_contradict_themselves(
    tmp_path: Path, arrays: dict[str, Any], quoted: list[object]
) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError) as caught:
        read(tmp_path / "a.npz")
    assert re.match(quotes(*quoted), str(caught.value).replace(str(tmp_path), ""))
