"""NumPy files, and labels in the forms in which they are published beside the matrices of the views."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from scipy import sparse

from mscam_dask.data.ingest import ingest
from mscam_dask.data.readers.base import Selection, Source
from mscam_dask.data.readers.named_arrays import contents_of
from mscam_dask.data.store.dataset import open_store
from mscam_dask.errors import DataError
from tests.data.conftest import finite_tables
from tests.data.ingested import COLOUR, LABELS, SHAPE, N, read, save_archive
from tests.data.known_tables import outcome
from tests.data.readers.matlab_files import cells, save_version_73
from tests.messages import quotes, raises

Save = Callable[..., Path]

TRUTH = LABELS.astype(np.uint8) + 1
INDICATOR = np.eye(3)[LABELS]


@dataclass(frozen=True)
class Ingested:
    views: tuple[str, ...]
    labels: list[int] | None
    notes: tuple[str, ...]

    def tells(self, *values: object) -> bool:
        """Whether one of the notes quotes all of the values."""
        return any(re.match(quotes(*values), note) for note in self.notes)


def ingested(path: Path, samples_in: Any = "rows", **options: Any) -> Ingested:
    output = path.with_suffix(".zarr")
    report = ingest(Source(path, samples_in=samples_in), output, overwrite=True, **options)
    data = open_store(output)
    labels = None if data.labels is None else data.labels.tolist()
    return Ingested(data.view_names, labels, report.notes)


# --------------------------------------------------------------------- one vector for each view


@pytest.mark.parametrize("truth", [TRUTH[None], TRUTH[:, None]], ids=["row", "column"])
def test_cells_with_the_same_labels_for_each_view(tmp_path: Path, truth: NDArray[Any]) -> None:
    views = cells(COLOUR.T, SHAPE.T)
    path = save_version_73(tmp_path / "a.mat", data=views, truelabel=cells(truth, truth))
    found = ingested(path, "columns")
    assert (found.views, found.labels) == (("data_0", "data_1"), TRUTH.tolist())
    assert found.tells(path, "'truelabel'", 2)
    assert ingested(path, "columns", views=["data_1"]).labels == TRUTH.tolist()


@pytest.mark.parametrize(("save", "name"), [(save_archive, "a.npz"), (save_version_73, "a.mat")])
@pytest.mark.parametrize("n_columns", [3, 4])
def test_samples_are_the_columns_where_only_these_are_as_many_as_labels(
    tmp_path: Path, save: Save, name: str, n_columns: int
) -> None:
    """Features as rows, as many in each view or not; orders of samples beside them as rows or as columns."""
    views = {"colour": COLOUR, "shape": np.resize(SHAPE, (N, n_columns))}
    orders = np.stack([np.arange(N)[::-1]] * 2, axis=1).astype(float)
    turned = {name: view.T for name, view in views.items()}
    path = save(tmp_path / name, **turned, gt=TRUTH[None], first=orders, second=orders.T)
    found = ingested(path)
    assert (found.views, found.labels) == (("colour", "shape"), TRUTH.tolist())
    assert found.tells(path, N)
    assert found.tells("first", "orders")
    assert found.tells("second", "orders")
    for view in open_store(path.with_suffix(".zarr")).views:
        assert_array_equal(view.read(0, N), views[view.name])


def test_many_matrices_of_one_kind_that_are_no_views_are_named_in_short(tmp_path: Path) -> None:
    orders = {f"split{index}": np.stack([np.arange(N)] * 2, axis=1) for index in range(20)}
    assert ingested(save_archive(tmp_path / "a.npz", x=COLOUR, **orders)).tells(
        "split0", "split2", "17 more", "orders"
    )


def test_cells_with_different_labels_are_not_chosen_from(tmp_path: Path) -> None:
    column = TRUTH[:, None]
    arrays = {"X": cells(COLOUR, SHAPE), "gt": cells(column, column[::-1])}
    path = save_version_73(tmp_path / "a.mat", **arrays)
    found = ingested(path)
    assert found.labels is None
    assert found.tells("'gt_0'")
    with pytest.raises(DataError):
        ingested(path, labels="gt")
    assert ingested(path, labels="gt_1").labels == TRUTH[::-1].tolist()
    found = ingested(path, views=["X_0", "gt_1"])
    assert (found.views, found.labels) == (("X_0", "gt_1"), None)


@pytest.mark.parametrize("name", ["gnd", "species"])
def test_cells_of_text(save: Save, tmp_path: Path, name: str) -> None:
    names = np.array(["ant", "wasp", "Büffel 🐃"])
    path = save(tmp_path / "a.mat", X=COLOUR, **{name: cells(*names[LABELS].tolist())})
    found = ingested(path, labels=None if name == "gnd" else name)
    order = np.argsort(names)
    assert (found.views, found.labels) == (("X",), np.argsort(order)[LABELS].tolist())
    assert open_store(path.with_suffix(".zarr")).label_names == tuple(names[order].tolist())


def test_one_text_or_number_is_no_labels_but_where_asked_for(tmp_path: Path) -> None:
    path = save_version_73(tmp_path / "a.mat", X=COLOUR, label="insects", y=np.array([[3.0]]))
    found = ingested(path)
    assert (found.views, found.labels) == (("X",), None)
    assert found.tells("label", (1,), "y")
    with pytest.raises(DataError):
        ingested(path, labels="label")


# ------------------------------------------------------------------------------------- matrices


@pytest.mark.parametrize("save_one", [save_archive, save_version_73])
@pytest.mark.parametrize("turned", [False, True])
def test_a_column_of_labels_for_each_view(tmp_path: Path, save_one: Save, *, turned: bool) -> None:
    table = np.stack([TRUTH, TRUTH, TRUTH], axis=0 if turned else 1)
    path = save_one(
        tmp_path / f"a.{'npz' if save_one is save_archive else 'mat'}", X=COLOUR, y0=table
    )
    found = ingested(path)
    assert (found.views, found.labels) == (("X",), TRUTH.tolist())
    assert found.tells("'y0'", 3)
    if not turned:
        found = ingested(path, views=["X", "y0"])
        assert (found.views, found.labels) == (("X", "y0"), None)


@pytest.mark.parametrize("make", [np.asarray, sparse.csc_array])
@pytest.mark.parametrize("turned", [False, True])
def test_an_indicator_matrix(tmp_path: Path, make: Any, *, turned: bool) -> None:
    table = make(INDICATOR.T if turned else INDICATOR)
    found = ingested(save_version_73(tmp_path / "a.mat", colour=COLOUR, Y=table))
    assert (found.views, found.labels) == (("colour",), LABELS.tolist())


def test_a_view_with_a_name_of_labels_is_known_by_its_first_rows(tmp_path: Path) -> None:
    looked_at = set()

    def features(block_info: Any) -> NDArray[np.float64]:
        looked_at.add(block_info[None]["chunk-location"])
        return np.full(block_info[None]["chunk-shape"], 0.5)

    chunks = (100, 100, 100)
    meta = np.empty((0, 0))
    table = da.map_blocks(features, chunks=(chunks, chunks), dtype=np.float64, meta=meta)
    found = contents_of({"Y": table}, Source("a.mat"), Selection())
    assert (found.labels, [view.name for view in found.views]) == (None, ["Y"])
    assert looked_at == {(0, 0), (0, 1), (0, 2), (1, 0), (2, 0)}
    truth = np.arange(300) % 3
    late = np.stack([truth, np.where(np.arange(300) < 200, truth, 9)], axis=1)
    path = save_archive(tmp_path / "b.npz", X=np.ones((300, 2)) * 0.5, y0=late)
    with raises(DataError, "'y0'", "--view"):  # of samples 200 on they are not the same
        ingested(path)


def test_labels_in_a_file_of_their_own(tmp_path: Path) -> None:
    np.save(tmp_path / "colour.npy", COLOUR)
    truth = save_archive(tmp_path / "a.npz", truth=TRUTH)
    report = ingest([tmp_path / "colour.npy", truth], tmp_path / "s.zarr")
    labels = open_store(report.output).labels
    assert labels.tolist() == TRUTH.tolist()
    with pytest.raises(DataError):
        ingest(truth, tmp_path / "t.zarr")
    with pytest.raises(DataError):
        ingest(tmp_path / "colour.npy", tmp_path / "t.zarr", labels=truth)


# ----------------------------------------------------------------------------------- NumPy files


@settings(max_examples=20)
@given(tables=st.lists(finite_tables(n_samples=3), min_size=1, max_size=12))
def test_numbered_views_come_back_in_numerical_order(tables: list[NDArray[Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.npz"
        np.savez(
            path, allow_pickle=False, **{f"view_{i}": t for i, t in [*enumerate(tables)][::-1]}
        )
        values, loaded = read(path)
    assert [*values] == [f"view_{i}" for i in range(len(tables))]
    for view, table in zip(loaded.views, tables, strict=True):
        assert view.dtype == table.dtype
        np.testing.assert_array_equal(values[view.name], table.astype(np.float64))


@pytest.mark.parametrize("key", ["view_0", "colour"])
@pytest.mark.parametrize("ids", [[[2], [0], [1]], [b"s2", b"s0", "é".encode()]], ids=str)
def test_sample_ids_of_archives(tmp_path: Path, key: str, ids: list[Any]) -> None:
    path = save_archive(tmp_path / "a.npz", **{key: np.eye(3), "sample_ids": np.array(ids)})
    values, loaded = read(path)
    assert [*values] == [key]
    assert loaded.sample_ids == (("2", "0", "1") if ids[0] == [2] else ("s2", "s0", "é"))
    assert loaded.notes == ()


def test_a_view_asked_for_is_no_label(tmp_path: Path) -> None:
    column = np.arange(4.0)[:, None]
    truth = np.array([b"p", b"q", b"p", b"p"])
    path = save_archive(tmp_path / "a.npz", x=column, y=-column, truth=truth, flat=np.arange(4))
    values, loaded = read(path, views=("x", "y"))
    assert [*values] == ["x", "y"]
    assert loaded.labels.tolist() == truth.tolist()
    with pytest.raises(DataError):
        read(path, views=("x", "flat"))
    np.savez(path, allow_pickle=True, some=np.eye(2), notes=np.array([{}], dtype=object))
    assert [*read(path, views=("some",))[0]] == ["some"]  # the pickle beside it is left alone


def test_beside_numbered_views_no_other_array_is_a_view(tmp_path: Path) -> None:
    others = {"target": np.eye(4) * 0.5, "splits": np.eye(4), "y": np.arange(4)}
    values, loaded = read(save_archive(tmp_path / "a.npz", view_0=np.eye(4), **others))
    assert [*values] == ["view_0"]
    assert loaded.labels.tolist() == [0, 1, 2, 3]
    assert "'target'" in loaded.notes[-1]


@pytest.mark.parametrize(
    "arrays",
    [
        {"view_0": np.eye(2), "kind": np.array(["cosine"])},
        {"view_0": np.eye(2), "view_names": np.array(["a", "b"])},
        {"view_0": np.eye(2), "view_1": np.eye(2), "view_names": np.array(["a", "a"])},
        {"view_0": np.ones(3)},
        {"weights": np.ones(3)},
    ],
    ids=["kind", "names", "one name twice", "vector", "no view"],
)
def test_archives_that_contradict_themselves(tmp_path: Path, arrays: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        read(save_archive(tmp_path / "a.npz", **arrays))


@pytest.mark.parametrize("name", ["sample_names", "index", "rows"])
def test_texts_that_differ_one_for_each_sample_are_ids(tmp_path: Path, name: str) -> None:
    texts = {name: [f"s{row}" for row in range(N)], "columns": ["p", "q"], "kind": ["u", "v"] * N}
    path = save_archive(tmp_path / "a.npz", colour=COLOUR, shape=SHAPE, **texts)
    assert read(path)[1].sample_ids == tuple(texts[name])
    save_archive(path, colour=COLOUR, square=np.tri(N), **texts)  # whose features they may name
    assert read(path)[1].sample_ids is None


@pytest.mark.parametrize("save", [save_archive, save_version_73])
@pytest.mark.parametrize("names", [("of_colour", "of_shape"), ("colour_ids", "shape_ids")])
def test_ids_of_two_views_in_one_archive(tmp_path: Path, save: Any, names: tuple[str, str]) -> None:
    """Rows go by the ids that both have; the same ids in two orders may belong to either view."""
    ids = np.array([f"s{row}" for row in range(N)])
    path = tmp_path / f"a{'.npz' if save is save_archive else '.mat'}"
    save(path, colour=COLOUR, shape=SHAPE, **{names[0]: ids, names[1]: ids})
    assert read(path)[1].sample_ids == tuple(ids)
    save(path, colour=COLOUR, shape=SHAPE, **{names[0]: ids, names[1]: ids[::-1]})
    with raises(DataError, path.name, *map(repr, names)):
        read(path)


@pytest.mark.parametrize("name", ["Y", "labels", "class_label", "True-Label"])
def test_several_labels_of_a_sample_are_no_view(tmp_path: Path, name: str) -> None:
    """A matrix of numbers that are not whole is one, as in pairs X and Y."""
    path = save_archive(tmp_path / "a.npz", X=COLOUR, **{name: np.c_[LABELS, LABELS > 0]})
    with raises(DataError, repr(name), "--view", "--labels"):
        ingested(path)
    assert ingested(path, views=["X"]).views == ("X",)
    assert ingested(path, views=["X", name]).views == ("X", name)
    save_archive(path, X=COLOUR, **{name: SHAPE + 0.5})
    assert ingested(path).views == ("X", name)


def test_texts_that_differ_are_labels_only_if_they_are_told_to_be(tmp_path: Path) -> None:
    names = np.array([f"s{row}" for row in range(N)])
    for name in ("labels", "kind"):
        path = save_archive(tmp_path / "a.npz", colour=COLOUR, **{name: names})
        loaded = read(path, labels=name)[1]
        assert loaded.labels is not None
        assert loaded.sample_ids is None
        loaded = read(path)[1]
        assert loaded.labels is None
        assert loaded.sample_ids == (*names,)
    numbers = save_archive(tmp_path / "b.npz", colour=COLOUR, y=np.arange(N))
    assert read(numbers)[1].labels is None


def test_numbers_that_are_no_ids_are_not_taken_as_such(tmp_path: Path) -> None:
    path = save_archive(tmp_path / "a.npz", colour=COLOUR, ids=np.linspace(0.5, 9.5, N))
    ingest(path, tmp_path / "a.zarr")
    assert open_store(tmp_path / "a.zarr").sample_ids is None


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("samples_in", ["rows", "columns"])
def test_orders_of_samples_are_no_view_unless_asked_for(
    tmp_path: Path, first: int, samples_in: str
) -> None:
    rng = np.random.default_rng(0)
    orders = first + np.stack([rng.permutation(N) for _ in range(4)], axis=1).astype(float)
    arrays = {"x": rng.integers(0, N, (N, 3)), "splits": orders}
    if samples_in == "columns":
        arrays = {name: array.T for name, array in arrays.items()}
    path = save_archive(tmp_path / "a.npz", **arrays)
    found = ingested(path, samples_in)
    assert found.views == ("x",)
    assert found.tells("splits", "orders", "--view splits")
    assert ingested(path, samples_in, views=["splits"]).views == ("splits",)


@pytest.mark.parametrize("samples_in", ["rows", "columns"])
@pytest.mark.parametrize("mask", ["mask", "x_mask", "missing", "x_qc"])
def test_marks_of_the_samples_of_each_view_and_of_cells_are_no_view_unless_asked_for(
    tmp_path: Path, samples_in: str, mask: str
) -> None:
    """Zeros and ones, with as many columns as there are views, outside the cell array of these, or of the shape of a view."""
    marks = np.resize([[1.0, 0], [1, 1]], (N, 2))
    arrays = {"x": COLOUR, "z": SHAPE, "W": marks, mask: COLOUR > 0}
    if samples_in == "columns":
        arrays = {name: array.T for name, array in arrays.items()}
    path = save_archive(tmp_path / "a.npz", **arrays)
    found = ingested(path, samples_in)
    assert found.views == ("x", "z")
    assert found.tells("W", "zeros and ones", "--view W")
    assert found.tells(mask, "zeros and ones", f"--view {mask}")
    assert ingested(path, samples_in, views=["x", "W", mask]).views == ("x", "W", mask)
    save_version_73(tmp_path / "a.mat", X=cells(COLOUR, SHAPE, marks))
    assert ingested(tmp_path / "a.mat").views == ("X_0", "X_1", "X_2")


def test_a_file_of_several_arrays_is_refused(tmp_path: Path) -> None:
    """Of which np.load reads the first."""
    with (tmp_path / "a.npy").open("wb") as stream:
        np.save(stream, COLOUR)
        np.save(stream, SHAPE)
    with raises(DataError, "a.npy", "np.savez"):
        read(tmp_path / "a.npy")


@pytest.mark.parametrize("save", [save_archive, save_version_73])
@pytest.mark.parametrize("name", ["fallnr", "index", "colour_ids"])
def test_whole_numbers_are_ids_where_another_file_has_them(
    tmp_path: Path, save: Any, name: str
) -> None:
    ids = np.array([5170, 3442, 9001, 2020, 7007, 1212, 4004, 8118, 6006, 3333][:N])
    path = tmp_path / f"a{'.npz' if save is save_archive else '.mat'}"
    save(path, colour=COLOUR, **{name: ids})
    turned = [save_archive(tmp_path / "b.npz", shape=SHAPE[::-1], nr=ids[::-1]), tmp_path / "b.csv"]
    table = np.c_[ids, SHAPE][::-1]
    np.savetxt(turned[1], table, fmt="%.17g", delimiter=",", header="patient,p,q", comments="")
    for other in turned:
        report = ingest([path, other], tmp_path / "s.zarr", overwrite=True)
        data = open_store(tmp_path / "s.zarr")
        assert data.sample_ids == (*map(str, ids),)
        assert [note for note in report.notes if repr(name) in note and other.name in note]
        np.testing.assert_array_equal(data.views[1].read(0, N)[:, :2], SHAPE[:, :2])
    assert repr(name) in " ".join(ingest(path, tmp_path / "t.zarr").notes)


def test_whole_numbers_in_two_orders_may_be_ids_of_either_view(tmp_path: Path) -> None:
    ids = np.arange(N) * 7 + 100
    path = save_archive(tmp_path / "a.npz", colour=COLOUR, shape=SHAPE, one=ids, two=ids[::-1])
    with raises(DataError, "a.npz", "'one'", "'two'"):
        read(path)
    orders = {"one": np.arange(N), "two": np.arange(N)[::-1]}
    assert read(save_archive(path, colour=COLOUR, shape=SHAPE, **orders))[1].sample_ids is None


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("name", ["fallnr", "sample_ids"])
def test_whole_numbers_of_an_archive_are_ids_in_a_table(
    tmp_path: Path, place: int, name: str
) -> None:
    """Under a name that tells nothing; a column behind others is none without a name in common."""
    ids = np.array([51, 34, 90, 20, 70, 12, 40])
    save_archive(tmp_path / "a.npz", colour=COLOUR, **{name: ids})
    frame = pd.DataFrame(SHAPE + 0.5, columns=["p", "q"])
    frame.insert(place, "fallnr", ids)
    frame[::-1].to_csv(tmp_path / "b.csv", index=False)
    sources, output = [tmp_path / "a.npz", tmp_path / "b.csv"], tmp_path / "s.zarr"
    if place == 2 and name == "sample_ids":
        with raises(DataError, "b.csv", "'fallnr'", "id_column='fallnr'"):
            ingest(sources, output)
        return
    known = {"colour": pd.DataFrame(COLOUR, ids), "b": frame.set_index("fallnr")}
    assert outcome(sources, known, output) == "right"


def test_days_are_no_row_numbers_of_a_table(tmp_path: Path) -> None:
    path = save_archive(tmp_path / "a.npz", colour=COLOUR, day=np.array([1, 2, 3, 5, 6, 8, 9]))
    rows = [f"{row + 1},{row}.5,1.5" for row in range(N)]
    (tmp_path / "b.csv").write_text("\n".join(["nr,p,q", *rows]))
    notes = ingest([path, tmp_path / "b.csv"], tmp_path / "s.zarr").notes
    assert "a.npz: left out ['day']" in " ".join(notes)


def test_ids_in_a_matrix_beside_a_table_are_asked_for_as_a_vector(tmp_path: Path) -> None:
    ids = np.array([51, 34, 90, 20, 70, 12, 40])
    np.save(tmp_path / "a.npy", np.c_[ids, COLOUR])
    rows = [f"{item},{row}.5,1.5" for row, item in enumerate(ids[::-1])]
    (tmp_path / "b.csv").write_text("\n".join(["patient,p,q", *rows]))
    with raises(DataError, "a.npy", "'column 0'", "savez"):
        ingest([tmp_path / "a.npy", tmp_path / "b.csv"], tmp_path / "s.zarr")
