"""MATLAB files of both kinds give the same views."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from mscam_dask.data.ingest import ingest
from mscam_dask.data.store.dataset import open_store
from mscam_dask.errors import ConfigurationError, DataError
from tests.data.ingested import read
from tests.data.readers.matlab_files import cells, save_compressed, save_version_5, save_version_73
from tests.messages import quotes, raises

pytest.importorskip("h5py")

RNG = np.random.default_rng(1)
COLOUR = RNG.standard_normal((5, 3))
SHAPE = RNG.integers(0, 9, (5, 2)).astype(np.uint8)
WORDS = sparse.csc_array(RNG.integers(0, 2, (5, 4)).astype(np.float64))
LABELS = np.array([[1.0], [1], [2], [3], [2]])
KERNEL = COLOUR @ COLOUR.T
GAPS = np.abs(COLOUR[:, :1] - COLOUR[:, 0])


def are_equal(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return sorted(found) == sorted(expected) and all(
        np.array_equal(
            found[name], value.toarray() if isinstance(value, sparse.csc_array) else value
        )
        for name, value in expected.items()
    )


@pytest.mark.parametrize("save_one", [save_version_5, save_compressed, save_version_73])
def test_matrices_sparse_matrices_and_labels(save_one: Any, tmp_path: Path) -> None:
    arrays = {"colour": COLOUR, "shape": SHAPE, "words": WORDS, "nothing": sparse.csc_array((5, 3))}
    values, loaded = read(save_one(tmp_path / "a.mat", **arrays, Y=LABELS))
    assert are_equal(values, arrays)
    kinds = {view.name: view.dtype.name for view in loaded.views}
    assert (kinds["colour"], kinds["shape"]) == ("float64", "uint8")
    assert loaded.labels.tolist() == LABELS.ravel().tolist()
    for labels in (sparse.csc_array(LABELS), sparse.csc_array(LABELS.T)):
        loaded = read(save_one(tmp_path / "a.mat", colour=COLOUR, Y=labels))[1]
        assert loaded.labels is not None
        assert loaded.labels.tolist() == LABELS.ravel().tolist()


def test_the_name_of_a_cell_array_stands_for_its_views(tmp_path: Path) -> None:
    arrays = {"X": cells(COLOUR, SHAPE), "words": WORDS, "splits": np.eye(3), "gt": LABELS}
    path = save_version_73(tmp_path / "a.mat", **arrays)
    cases: list[tuple[Any, list[str]]] = [
        (["words", "X"], ["words", "X_0", "X_1"]),
        (["X_1", "words"], ["X_1", "words"]),
        ({"X": "seen", "words": "read"}, ["seen_0", "seen_1", "read"]),
    ]
    for asked, expected in cases:
        report = ingest(path, tmp_path / "s.zarr", views=asked, labels="gt", overwrite=True)
        assert [view.name for view in report.views] == expected
        shapes = {"0": COLOUR.shape, "1": SHAPE.shape}
        for view in report.views:
            assert view.shape == shapes.get(view.name[-1], WORDS.shape)
    with pytest.raises(DataError):
        ingest(path, tmp_path / "t.zarr", views=["X", "X_1"])
    np.save(tmp_path / "X.npy", WORDS.toarray())
    report = ingest([tmp_path / "X.npy", path], tmp_path / "t.zarr", views=["X"])
    assert [(view.name, view.shape) for view in report.views] == [("X", WORDS.shape)]


def test_what_can_be_no_view_is_left_out_and_told(save: Any, tmp_path: Path) -> None:
    mixed = {"mixed": cells(COLOUR, "text"), "nested": cells(cells(COLOUR)), "note": "hello"}
    path = save(tmp_path / "a.mat", colour=COLOUR, k=np.array([[9.0]]), one=LABELS, **mixed)
    values, loaded = read(path)
    assert [*values] == ["colour"]
    for name in ("note", "k", *mixed):
        assert re.search(rf"\b{name}\b", loaded.notes[-1])
    assert sorted(read(path, views=("Y",))[1].skipped) == ["colour", "k", "one"]
    with pytest.raises(DataError):
        read(path, views=("colour", "mixed"))


def test_cells_of_one_sample_each_are_no_views(save: Any, tmp_path: Path) -> None:
    path = save(tmp_path / "a.mat", X=cells(*(row[None] for row in COLOUR)), gt=LABELS)
    with raises(DataError, "a.mat", "'X_0'", "matrix of its own"):
        read(path)


def test_rows_of_a_matrix_of_characters_are_texts_without_padding(
    save: Any, tmp_path: Path
) -> None:
    n = len(COLOUR)
    ids, kinds = [f"P{10**row}" for row in range(n)], ["u", "vvv"] * n
    texts = {"ids": np.array(ids), "labels": np.array(kinds[:n])}
    _, loaded = read(save(tmp_path / "a.mat", colour=COLOUR, **texts))
    assert loaded.sample_ids == tuple(ids)
    assert loaded.labels.tolist() == kinds[:n]


def test_fields_of_a_struct_are_variables(save: Any, tmp_path: Path) -> None:
    fields = {"colour": COLOUR, "X": cells(SHAPE, WORDS), "gt": LABELS, "note": "hello"}
    path = save(tmp_path / "a.mat", data=fields)
    values, loaded = read(path)
    assert are_equal(values, {"data.colour": COLOUR, "data.X_0": SHAPE, "data.X_1": WORDS})
    assert loaded.labels.tolist() == LABELS.ravel().tolist()
    assert "data.note" in loaded.notes[1]
    assert [*read(path, views=("data.X",), labels="data.gt")[0]] == ["data.X_0", "data.X_1"]
    assert [*read(path, views=("data",), labels="data.gt")[0]] == [*values]


STACKS: dict[str, tuple[Any, str, list[Any]]] = {
    "(n, n, V)": (np.stack([KERNEL, 2 * KERNEL], axis=2), "kernel", [KERNEL, 2 * KERNEL]),
    "(V, n, n)": (np.stack([KERNEL, 2 * KERNEL], axis=0), "kernel", [KERNEL, 2 * KERNEL]),
    "single": (np.stack([KERNEL] * 6, axis=2).astype("f4"), "kernel", [KERNEL.astype("f4")] * 6),
    "distances": (np.stack([GAPS, GAPS**0.5], axis=2), "distance", [GAPS, GAPS**0.5]),
    "graphs": (np.stack([1 - np.eye(5), GAPS > 1], axis=2), "kernel", [1 - np.eye(5), GAPS > 1]),
}


@pytest.mark.parametrize(
    ("kind", "suffix"), [*((kind, ".npy") for kind in STACKS), ("single", ".mat")]
)
def test_stacks_of_square_matrices(tmp_path: Path, kind: str, suffix: str) -> None:
    array, view_type, expected = STACKS[kind]
    path = tmp_path / f"K{suffix}"
    if suffix == ".npy":
        np.save(path, array)
    else:
        save_version_73(path, K=array)
    report = ingest(path, tmp_path / "s.zarr")
    names = [f"K_{index}" for index in range(len(expected))]
    assert [(view.name, view.view_type) for view in report.views] == [(n, view_type) for n in names]
    for view, values in zip(open_store(report.output).views, expected, strict=True):
        np.testing.assert_array_equal(view.read(0, 5), values)
    assert any(re.match(quotes("'K'", array.shape, view_type), note) for note in report.notes)
    report = ingest(path, tmp_path / "s.zarr", views={"K": "seen"}, overwrite=True)
    assert report.views[1].name == "seen_1"
    with pytest.raises(ConfigurationError):
        ingest(path, tmp_path / "t.zarr", view_type="features")


@pytest.mark.parametrize(("view_type", "has_diagonal"), [("kernel", True), ("distance", False)])
def test_samples_absent_from_stacked_matrices_and_features_are_rows_of_nan(
    tmp_path: Path, view_type: str, has_diagonal: bool
) -> None:
    whole = KERNEL if view_type == "kernel" else GAPS
    holed = np.where(np.isin(np.arange(5), [0, 3])[:, None], np.nan, whole)
    holed[:, [0, 3]] = np.nan
    if has_diagonal:
        np.fill_diagonal(holed, whole.diagonal())
    rows = np.where(np.arange(5)[:, None] == 1, np.nan, COLOUR)
    path = save_version_73(tmp_path / "K.mat", K=np.stack([whole, holed], axis=2), rows=rows)
    data = open_store(ingest(path, tmp_path / "s.zarr").output)
    assert [view.view_type for view in data.views[:2]] == [view_type] * 2
    assert data.presence[:, :2].tolist() == [[True, row not in (0, 3)] for row in range(5)]
    np.testing.assert_array_equal(data.views[1].read(0, 3), whole[np.ix_([1, 2, 4], [1, 2, 4])])
    np.testing.assert_array_equal(data.views[2].read(0, 4), np.delete(COLOUR, 1, axis=0))


@pytest.mark.parametrize(
    "array",
    [
        np.stack([COLOUR, COLOUR + 1], axis=2),
        np.stack([KERNEL + np.triu(KERNEL), KERNEL], axis=2),
        np.full((5, 5, 5), 0.5),
        np.ones((5, 5, 5, 2)),
        np.zeros((5, 5, 0)),
    ],
    ids=["features", "not symmetric", "in both ways", "four", "none"],
)
def test_other_arrays_of_three_dimensions_are_refused(tmp_path: Path, array: Any) -> None:
    np.savez(tmp_path / "K.npz", K=array, Y=LABELS)
    with pytest.raises(DataError):
        read(tmp_path / "K.npz")
    np.save(tmp_path / "K.npy", array)
    with pytest.raises(DataError):
        read(tmp_path / "K.npy")


def test_without_h5py_version_73_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_version_73(tmp_path / "a.mat", colour=COLOUR)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(DataError):
        read(path)
