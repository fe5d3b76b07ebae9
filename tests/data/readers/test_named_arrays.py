"""NumPy files, and labels in the forms in which they are published beside the matrices of the views."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from mscam_dask.data.ingest import ingest
from mscam_dask.data.readers.base import Selection, Source, SourceContents
from mscam_dask.data.readers.named_arrays import contents_of
from mscam_dask.data.readers.registry import read_source
from mscam_dask.data.store.read import open_store
from mscam_dask.errors import DataError
from tests.data.conftest import finite_tables
from tests.data.ingested import COLOUR, LABELS, SHAPE, N
from tests.data.readers.matlab_files import cells, save_version_5, save_version_73
from tests.messages import quotes

Save = Callable[..., Path]

TRUTH = LABELS.astype(np.uint8) + 1
INDICATOR = np.eye(3)[LABELS]


def save_archive(path: Path, **arrays: Any) -> Path:
    np.savez(path.with_suffix(".npz"), allow_pickle=False, **arrays)
    return path.with_suffix(".npz")


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
def test_cells_with_the_same_labels_for_each_view(
    save: Save, tmp_path: Path, truth: NDArray[Any]
) -> None:
    views = cells(COLOUR.T, SHAPE.T)
    path = save(tmp_path / "a.mat", data=views, truelabel=cells(truth, truth))
    with pytest.raises(DataError, match=quotes(7, "'data_0' (3, 7)", "--samples-in columns")):
        ingested(path)
    found = ingested(path, "columns")
    assert found.views == ("data_0", "data_1")
    assert found.labels == TRUTH.tolist()
    (note,) = found.notes
    assert re.match(quotes(path, "'truelabel'", 2), note)
    assert ingested(path, "columns", labels="truelabel").labels == TRUTH.tolist()
    assert ingested(path, "columns", views=["data_1"]).labels == TRUTH.tolist()


def test_cells_with_different_labels_are_not_chosen_from(save: Save, tmp_path: Path) -> None:
    path = save(tmp_path / "a.mat", X=cells(COLOUR, SHAPE), gt=cells(TRUTH, TRUTH[::-1]))
    found = ingested(path)
    assert found.labels is None
    assert found.tells(2, "'gt'", "--labels gt_0")
    with pytest.raises(DataError, match=quotes(path, 2, "'gt'", "labels='gt_0'")):
        ingested(path, labels="gt")
    assert ingested(path, labels="gt_1").labels == TRUTH[::-1].tolist()


def test_cells_asked_for_as_views_are_no_labels(save: Save, tmp_path: Path) -> None:
    column = TRUTH[:, None]
    path = save(tmp_path / "a.mat", X=cells(COLOUR), y=cells(column, column))
    found = ingested(path, views=["X_0", "y_1"])
    assert (found.views, found.labels) == (("X_0", "y_1"), None)


def test_cells_of_matrices_are_views_under_any_name(save: Save, tmp_path: Path) -> None:
    path = save(tmp_path / "a.mat", Y=cells(COLOUR, SHAPE), gnd=TRUTH[:, None])
    found = ingested(path)
    assert (found.views, found.labels) == (("Y_0", "Y_1"), TRUTH.tolist())


def test_a_cell_for_each_sample(save: Save, tmp_path: Path) -> None:
    path = save(tmp_path / "a.mat", X=COLOUR, gnd=cells(*TRUTH[:, None, None]))
    found = ingested(path)
    assert (found.views, found.labels) == (("X",), TRUTH.tolist())
    assert found.tells(path, "'gnd'")


@pytest.mark.parametrize("name", ["gnd", "species"])
def test_cells_of_text(save: Save, tmp_path: Path, name: str) -> None:
    names = np.array(["ant", "wasp", "Büffel 🐃"])
    path = save(tmp_path / "a.mat", X=COLOUR, **{name: cells(*names[LABELS].tolist())})
    found = ingested(path, labels=None if name == "gnd" else name)
    order = np.argsort(names)
    assert (found.views, found.labels) == (("X",), np.argsort(order)[LABELS].tolist())
    assert found.tells(path, repr(name))
    assert open_store(path.with_suffix(".zarr")).label_names == tuple(names[order].tolist())


def test_one_text_or_number_is_no_labels_but_where_asked_for(save: Save, tmp_path: Path) -> None:
    path = save(tmp_path / "a.mat", X=COLOUR, label="insects", y=np.array([[3.0]]))
    found = ingested(path)
    assert (found.views, found.labels) == (("X",), None)
    (note,) = found.notes
    assert re.search(r"\blabel\b.*\(1,\).*\by\b", note)
    with pytest.raises(DataError, match=quotes(1, 7, ["X"])):
        ingested(path, labels="label")


# ------------------------------------------------------------------------------------- matrices


@pytest.fixture(params=[save_version_5, save_version_73, save_archive], ids=["v5", "v7.3", "npz"])
def put(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize("name", ["y0", "Y", "label2", "ground_truth"])
@pytest.mark.parametrize("turned", [False, True])
def test_a_column_of_labels_for_each_view(
    put: Save, tmp_path: Path, name: str, *, turned: bool
) -> None:
    table = np.stack([TRUTH, TRUTH, TRUTH], axis=0 if turned else 1)
    path = put(tmp_path / "a.mat", colour=COLOUR, **{name: table})
    found = ingested(path)
    assert (found.views, found.labels) == (("colour",), TRUTH.tolist())
    assert found.tells(repr(name), 3)
    if not turned:
        found = ingested(path, views=["colour", name])
        assert (found.views, found.labels) == (("colour", name), None)


@pytest.mark.parametrize("turned", [False, True])
def test_an_indicator_matrix(put: Save, tmp_path: Path, *, turned: bool) -> None:
    table = INDICATOR.T if turned else INDICATOR
    path = put(tmp_path / "a.mat", colour=COLOUR, Y=table)
    found = ingested(path)
    assert (found.views, found.labels) == (("colour",), LABELS.tolist())
    assert found.tells(path, "'Y'")


@pytest.mark.parametrize("turned", [False, True])
def test_a_sparse_indicator_matrix(save: Save, tmp_path: Path, *, turned: bool) -> None:
    table = sparse.csc_array(INDICATOR.T if turned else INDICATOR)
    path = save(tmp_path / "a.mat", colour=COLOUR, Y=table)
    found = ingested(path)
    assert (found.views, found.labels) == (("colour",), LABELS.tolist())
    assert found.tells(path, "'Y'")


@pytest.mark.parametrize(
    "table",
    [
        2 * INDICATOR,
        np.eye(N),
        np.maximum(INDICATOR, np.eye(N, 3)),
        INDICATOR * (TRUTH > 1)[:, None],
    ],
    ids=["twos", "as many", "two of a row", "none of a row"],
)
def test_other_sparse_matrices_are_views(save: Save, tmp_path: Path, table: NDArray[Any]) -> None:
    found = ingested(save(tmp_path / "a.mat", colour=COLOUR, Y=sparse.csc_array(table)))
    assert (set(found.views), found.labels) == ({"colour", "Y"}, None)


@pytest.mark.parametrize(
    "table",
    [
        np.stack([TRUTH, TRUTH[::-1]], axis=1),
        np.stack([TRUTH + 0.5, TRUTH + 0.5], axis=1),
        np.ones((N, 2)),
        np.stack([np.arange(N), np.arange(N)], axis=1),
        np.where(np.arange(N)[:, None] < N - 1, INDICATOR, 1.0),
        COLOUR,
    ],
    ids=["two labellings", "no whole numbers", "one class", "as many", "two of a row", "features"],
)
def test_other_matrices_are_views_under_any_name(
    put: Save, tmp_path: Path, table: NDArray[Any]
) -> None:
    path = put(tmp_path / "a.mat", colour=COLOUR, y0=table, Y=table)
    found = ingested(path)
    assert (set(found.views), found.labels) == ({"colour", "y0", "Y"}, None)
    with pytest.raises(DataError, match=quotes(path, "'Y'", table.shape)):
        ingested(path, labels="Y")


def test_a_view_with_a_name_of_labels_is_known_by_its_first_rows(
    save: Save, tmp_path: Path
) -> None:
    looked_at = set()

    def features(block_info: Any) -> NDArray[np.float64]:
        looked_at.add(block_info[None]["chunk-location"])
        return np.full(block_info[None]["chunk-shape"], 0.5)

    chunks = (100, 100, 100)
    table = da.map_blocks(
        features, chunks=(chunks, chunks), dtype=np.float64, meta=np.empty((0, 0))
    )
    found = contents_of({"Y": table}, Source(tmp_path / "a.mat"), Selection())
    assert (found.labels, [view.name for view in found.views]) == (None, ["Y"])
    assert looked_at == {(0, 0), (0, 1), (0, 2), (1, 0), (2, 0)}
    truth = np.arange(300) % 3
    late = np.stack([truth, np.where(np.arange(300) < 200, truth, 9)], axis=1)
    path = save(tmp_path / "b.mat", X=np.ones((300, 2)) * 0.5, y0=late)
    assert ingested(path).views == ("X", "y0")


# --------------------------------------------------------------------------------- several, none


def test_the_usual_name_and_a_vector_go_first(put: Save, tmp_path: Path) -> None:
    same = np.stack([TRUTH, TRUTH], axis=1)
    path = put(tmp_path / "a.mat", colour=COLOUR, y0=same + 3, Y=INDICATOR, gt=TRUTH)
    found = ingested(path)
    assert (found.views, found.labels) == (("colour",), TRUTH.tolist())
    assert found.tells(path, "'gt'")
    assert found.tells(path, ["Y", "y0"])
    found = ingested(path, labels="y0")
    assert (found.views, found.labels) == (("colour",), (TRUTH + 3).tolist())
    found = ingested(path, labels=LABELS)
    assert (found.views, found.labels) == (("colour",), LABELS.tolist())


def test_a_vector_with_a_digit_in_its_name_is_labels_only_if_asked_for(
    put: Save, tmp_path: Path
) -> None:
    path = put(tmp_path / "a.mat", colour=COLOUR, y1=TRUTH)
    assert ingested(path).labels is None
    assert ingested(path, labels="y1").labels == TRUTH.tolist()


@pytest.mark.parametrize("name", ["truth", "TrueLabels", "true_label", "groundTruth"])
def test_usual_names(put: Save, tmp_path: Path, name: str) -> None:
    found = ingested(put(tmp_path / "a.mat", colour=COLOUR, **{name: TRUTH}))
    assert found.labels == TRUTH.tolist()


def test_labels_in_a_file_of_their_own(put: Save, tmp_path: Path) -> None:
    np.save(tmp_path / "colour.npy", COLOUR)
    truth = put(tmp_path / "a.mat", truth=TRUTH)
    report = ingest([tmp_path / "colour.npy", truth], tmp_path / "s.zarr")
    labels = open_store(report.output).labels
    assert labels is not None
    assert labels.tolist() == TRUTH.tolist()
    with pytest.raises(DataError, match=quotes(truth)):
        ingest(truth, tmp_path / "t.zarr")
    with pytest.raises(DataError, match=quotes(truth, "--labels NAME")):
        ingest(tmp_path / "colour.npy", tmp_path / "t.zarr", labels=truth)


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
    with pytest.raises(DataError, match=quotes("'flat'", (4,))):
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
        ({"weights": np.ones(3)}, ["'weights'", (3,)]),
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
