"""MATLAB files of both kinds give the same views."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from mscam_dask.data.ingest import ingest
from mscam_dask.data.readers.base import Selection, Source, SourceContents
from mscam_dask.data.readers.registry import read_source
from mscam_dask.data.store.read import open_store
from mscam_dask.errors import ConfigurationError, DataError
from tests.data.readers.matlab_files import cells, save_version_5, save_version_73
from tests.messages import quotes

pytest.importorskip("h5py")

RNG = np.random.default_rng(1)
COLOUR = RNG.standard_normal((5, 3))
SHAPE = RNG.integers(0, 9, (5, 2)).astype(np.uint8)
WORDS = sparse.csc_array(RNG.integers(0, 2, (5, 4)).astype(np.float64))
LABELS = np.array([[1.0], [1], [2], [3], [2]])


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def read(path: Path | Source, stack: ExitStack, **selection: Any) -> SourceContents:
    source = path if isinstance(path, Source) else Source(path)
    return read_source(source, Selection(**selection), stack)


def values(loaded: SourceContents) -> dict[str, list[list[float]]]:
    return {view.name: view.read(0, view.shape[0]).tolist() for view in loaded.views}


def test_matrices_sparse_matrices_and_labels(save: Any, stack: ExitStack, tmp_path: Path) -> None:
    path = save(tmp_path / "a.mat", colour=COLOUR, shape=SHAPE, words=WORDS, Y=LABELS)
    loaded = read(path, stack)
    assert values(loaded) == {
        "colour": COLOUR.tolist(),
        "shape": SHAPE.astype(float).tolist(),
        "words": WORDS.toarray().tolist(),
    }
    assert [view.dtype.name for view in loaded.views] == ["float64", "uint8", "float64"]
    assert loaded.labels is not None
    assert loaded.labels.tolist() == LABELS.ravel().tolist()
    assert any("'Y'" in note for note in loaded.notes)


def test_cell_arrays_of_matrices_are_views_in_order(
    save: Any, stack: ExitStack, tmp_path: Path
) -> None:
    path = save(tmp_path / "a.mat", X=cells(COLOUR, SHAPE, WORDS), gt=LABELS.T)
    loaded = read(path, stack)
    assert values(loaded) == {
        "X_0": COLOUR.tolist(),
        "X_1": SHAPE.astype(float).tolist(),
        "X_2": WORDS.toarray().tolist(),
    }
    assert loaded.labels is not None
    assert loaded.labels.tolist() == LABELS.ravel().tolist()


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (["X"], ["X_0", "X_1"]),
        (["words", "X"], ["words", "X_0", "X_1"]),
        (["X_1", "words"], ["X_1", "words"]),
        ({"X": "seen", "words": "read"}, ["seen_0", "seen_1", "read"]),
    ],
    ids=str,
)
def test_the_name_of_a_cell_array_stands_for_its_views(
    save: Any, tmp_path: Path, asked: Any, expected: list[str]
) -> None:
    path = save(tmp_path / "a.mat", X=cells(COLOUR, SHAPE), words=WORDS, splits=np.eye(3))
    data = open_store(ingest(path, tmp_path / "s.zarr", views=asked).output)
    assert list(data.view_names) == expected
    shapes = {"0": COLOUR.shape, "1": SHAPE.shape}
    for view in data.views:
        assert view.shape == shapes.get(view.name[-1], WORDS.shape)


def test_a_cell_array_beside_others_of_its_name(save: Any, tmp_path: Path) -> None:
    path = save(tmp_path / "a.mat", X=cells(COLOUR, SHAPE), gt=LABELS)
    np.save(tmp_path / "X.npy", WORDS.toarray())
    report = ingest([tmp_path / "X.npy", path], tmp_path / "s.zarr", views=["X"])
    assert [(view.name, view.shape) for view in report.views] == [("X", WORDS.shape)]
    with pytest.raises(DataError, match=quotes("views=['X', 'X_1']")):
        ingest(path, tmp_path / "t.zarr", views=["X", "X_1"])
    report = ingest(path, tmp_path / "t.zarr", views=["X"], labels="gt")
    assert [view.name for view in report.views] == ["X_0", "X_1"]


def test_features_by_samples(save: Any, stack: ExitStack, tmp_path: Path) -> None:
    path = save(tmp_path / "a.mat", X=cells(COLOUR.T, SHAPE.T), words=WORDS.T.tocsc())
    assert values(read(Source(path, samples_in="columns"), stack)) == {
        "X_0": COLOUR.tolist(),
        "X_1": SHAPE.astype(float).tolist(),
        "words": WORDS.toarray().tolist(),
    }


def test_empty_sparse_matrix(save: Any, stack: ExitStack, tmp_path: Path) -> None:
    path = save(tmp_path / "a.mat", nothing=sparse.csc_array((5, 3)))
    assert values(read(path, stack)) == {"nothing": np.zeros((5, 3)).tolist()}


def test_named_labels_and_named_views(save: Any, stack: ExitStack, tmp_path: Path) -> None:
    path = save(tmp_path / "a.mat", colour=COLOUR, one=COLOUR[:, :1], grade=LABELS, y=LABELS + 1)
    loaded = read(path, stack, labels="grade", views=("one", "colour"))
    assert values(loaded) == {"colour": COLOUR.tolist(), "one": COLOUR[:, :1].tolist()}
    assert loaded.labels is not None
    assert loaded.labels.tolist() == LABELS.ravel().tolist()
    assert loaded.labels_explicit


def test_text_scalars_and_mixed_cells_are_left_out_and_told(
    save: Any, stack: ExitStack, tmp_path: Path
) -> None:
    path = save(
        tmp_path / "a.mat",
        colour=COLOUR,
        note="hello",
        k=np.array([[9.0]]),
        mixed=cells(COLOUR, "text"),
        nested=cells(cells(COLOUR)),
    )
    loaded = read(path, stack)
    assert list(values(loaded)) == ["colour"]
    (note,) = loaded.notes
    for name in ("note", "k", "mixed", "nested"):
        assert re.search(rf"\b{name}\b", note)


def test_what_can_be_no_view_is_not_named_as_one(
    save: Any, stack: ExitStack, tmp_path: Path
) -> None:
    path = save(tmp_path / "a.mat", X=cells(COLOUR), one=LABELS, note="hello", mixed=cells("a"))
    assert read(path, stack, views=("Y",)).skipped == ("X_0", "one")


@pytest.mark.parametrize("name", ["mixed", "note"])
def test_objects_asked_for_as_views_are_refused(
    save: Any, stack: ExitStack, tmp_path: Path, name: str
) -> None:
    path = save(tmp_path / "a.mat", colour=COLOUR, note="hello", mixed=cells(COLOUR, "text"))
    with pytest.raises(DataError, match=quotes(path, repr(name))):
        read(path, stack, views=("colour", name))


def test_fields_of_a_struct_are_variables(save: Any, stack: ExitStack, tmp_path: Path) -> None:
    fields = {"colour": COLOUR, "X": cells(SHAPE, WORDS), "gt": LABELS, "note": "hello"}
    path = save(tmp_path / "a.mat", data=fields)
    loaded = read(path, stack)
    assert values(loaded) == {
        "data.colour": COLOUR.tolist(),
        "data.X_0": SHAPE.astype(float).tolist(),
        "data.X_1": WORDS.toarray().tolist(),
    }
    assert loaded.labels is not None
    assert loaded.labels.tolist() == LABELS.ravel().tolist()
    (taken, left) = loaded.notes
    assert re.match(quotes("'data.gt'"), taken)
    assert re.match(quotes("data.note"), left)
    for asked, expected in (("data.X", ["data.X_0", "data.X_1"]), ("data", list(values(loaded)))):
        report = ingest(path, tmp_path / "s.zarr", views=[asked], labels="data.gt", overwrite=True)
        assert [view.name for view in report.views] == expected


def test_arrays_of_structs_are_no_views(stack: ExitStack, tmp_path: Path) -> None:
    array = np.array([[(COLOUR,), (SHAPE,)]], dtype=[("X", object)])
    path = save_version_5(tmp_path / "a.mat", data=array, inner={"s": {"X": COLOUR}})
    with pytest.raises(DataError, match=quotes(path, "'data' (struct, shape (1, 2))", "inner.s")):
        read(path, stack)


KERNEL = COLOUR @ COLOUR.T
GAPS = np.abs(COLOUR[:, :1] - COLOUR[:, 0])


@pytest.mark.parametrize(
    ("array", "view_type", "expected"),
    [
        (np.stack([KERNEL, 2 * KERNEL], axis=2), "kernel", [KERNEL, 2 * KERNEL]),
        (np.stack([KERNEL, 2 * KERNEL], axis=0), "kernel", [KERNEL, 2 * KERNEL]),
        (np.stack([KERNEL] * 6, axis=2).astype("f4"), "kernel", [KERNEL.astype("f4")] * 6),
        (np.stack([GAPS, GAPS**0.5], axis=2), "distance", [GAPS, GAPS**0.5]),
        (np.stack([1 - np.eye(5), GAPS > 1], axis=2), "kernel", [1 - np.eye(5), GAPS > 1]),
    ],
    ids=["(n, n, V)", "(V, n, n)", "single", "distances", "graphs without loops"],
)
@pytest.mark.parametrize("put", [save_version_5, save_version_73, "npz", "npy"])
def test_stacks_of_square_matrices(
    put: Any, tmp_path: Path, array: Any, view_type: str, expected: list[Any]
) -> None:
    path = tmp_path / "K.mat"
    if put == "npz":
        path = tmp_path / "K.npz"
        np.savez(path, K=array, Y=LABELS)
    elif put == "npy":
        path = tmp_path / "K.npy"
        np.save(path, array)
    else:
        put(path, K=array, Y=LABELS)
    report = ingest(path, tmp_path / "s.zarr")
    assert [(view.name, view.view_type) for view in report.views] == [
        (f"K_{index}", view_type) for index in range(len(expected))
    ]
    for view, values_of_view in zip(open_store(report.output).views, expected, strict=True):
        np.testing.assert_array_equal(view.read(0, 5), values_of_view)
    assert any(re.match(quotes("'K'", array.shape, view_type), note) for note in report.notes)
    assert report.n_classes == (None if put == "npy" else 3)
    report = ingest(path, tmp_path / "s.zarr", views={"K": "seen"}, overwrite=True)
    assert report.views[1].name == "seen_1"


@pytest.mark.parametrize("has_diagonal", [True, False])
@pytest.mark.parametrize("view_type", ["kernel", "distance"])
@pytest.mark.parametrize("put", [save_version_5, save_version_73, "npy"])
def test_samples_absent_from_stacked_matrices_and_features_are_rows_of_nan(
    put: Any, tmp_path: Path, view_type: str, has_diagonal: bool
) -> None:
    whole = KERNEL if view_type == "kernel" else GAPS
    holed = np.where(np.isin(np.arange(5), [0, 3])[:, None], np.nan, whole)
    holed[:, [0, 3]] = np.nan
    if has_diagonal:
        np.fill_diagonal(holed, whole.diagonal())
    array = np.stack([whole, holed], axis=2)
    path = tmp_path / f"K.{'npy' if put == 'npy' else 'mat'}"
    rows = np.where(np.arange(5)[:, None] == 1, np.nan, COLOUR)
    if put == "npy":
        np.save(path, array)
    else:
        put(path, K=array, rows=rows)
    data = open_store(ingest(path, tmp_path / "s.zarr").output)
    assert [view.view_type for view in data.views[:2]] == [view_type] * 2
    assert data.presence[:, :2].tolist() == [[True, row not in (0, 3)] for row in range(5)]
    np.testing.assert_array_equal(data.views[1].read(0, 3), whole[np.ix_([1, 2, 4], [1, 2, 4])])
    if put != "npy":
        np.testing.assert_array_equal(data.views[2].read(0, 4), np.delete(COLOUR, 1, axis=0))


def test_a_stack_is_no_view_of_features(tmp_path: Path) -> None:
    save_version_5(tmp_path / "K.mat", K=np.stack([GAPS, GAPS.copy()], axis=2))
    with pytest.raises(ConfigurationError, match=quotes("view_type='features'", ["K_0", "K_1"])):
        ingest(tmp_path / "K.mat", tmp_path / "t.zarr", view_type="features")


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
@pytest.mark.parametrize("suffix", [".mat", ".npz", ".npy"])
def test_other_arrays_of_three_dimensions_are_refused_with_their_shape(
    tmp_path: Path, stack: ExitStack, array: Any, suffix: str
) -> None:
    path = tmp_path / f"K{suffix}"
    if suffix == ".npy":
        np.save(path, array)
    elif suffix == ".npz":
        np.savez(path, K=array, Y=LABELS)
    else:
        save_version_5(path, K=array, Y=LABELS)
    with pytest.raises(DataError, match=quotes("K", array.shape)):
        read(path, stack)


def test_complex_matrices_are_refused(stack: ExitStack, tmp_path: Path) -> None:
    path = save_version_5(tmp_path / "a.mat", z=COLOUR + 1j)
    with pytest.raises(DataError, match=quotes("'z'", "complex128")):
        read(path, stack)


def test_matrices_of_version_73_are_read_by_rows_only_when_asked(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mscam_dask.data.readers.hdf5.BLOCK_BYTES", 2 * 8 * 3)  # two rows
    path = save_version_73(tmp_path / "a.mat", colour=COLOUR)
    (view,) = read(path, stack).views
    assert getattr(view, "chunk_size", None) == 2
    np.testing.assert_array_equal(view.read(1, 4), COLOUR[1:4])


@pytest.mark.parametrize("keep", [0, 100, 600, 1500])
def test_truncated_files_are_named(save: Any, stack: ExitStack, tmp_path: Path, keep: int) -> None:
    path = save(tmp_path / "a.mat", colour=RNG.standard_normal((250, 3)))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=quotes(path)):
        read(path, stack)


def test_without_h5py_version_73_says_what_to_install(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_version_73(tmp_path / "a.mat", colour=COLOUR)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(DataError, match=quotes(path, "HDF5", "h5py", "mscam-dask[mat]", "-v7")):
        read(path, stack)
