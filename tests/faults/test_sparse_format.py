"""Sparse arrays with indices out of range are refused, whichever way they come in.

SciPy converts them without a look: memory outside the array is read and written, or a value becomes
another sample's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from mscam_dask import MSCAM
from mscam_dask.benchmark.baselines.simplex_graphs import LMVSC
from mscam_dask.data.ingest import ingest
from mscam_dask.data.results import write_result
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.errors import DataError, StoreCorruptError
from mscam_dask.types.result import ArraysInMemory
from tests.data.readers.matlab_files import cells, save_version_5, save_version_73
from tests.estimators.small import quick
from tests.messages import raises

pytestmark = pytest.mark.faults

TABLE = np.random.default_rng(0).normal(size=(30, 4))
FAR = 10**7

FORMS: dict[str, Callable[[Any], Any]] = {
    form: getattr(sparse, f"{form}_array") for form in ("csr", "csc", "coo", "dia", "lil", "dok")
} | {
    "bsr": lambda table: sparse.bsr_array(table, blocksize=(2, 1)),
    "csr_matrix": sparse.csr_matrix,
}


def damaged(form: str, index: int = FAR, table: NDArray[np.float64] = TABLE) -> Any:
    """A table in a sparse form with one index out of range."""
    value = FORMS[form](table)
    if hasattr(value, "indices"):
        value.indices[3] = index
    elif form == "coo":
        row, column = (axis.copy() for axis in value.coords)
        column[3] = index
        value.coords = (row, column)
    elif form == "lil":
        value.rows[1][0] = index
    else:
        value._dict[1, index] = 1.0
    return value


def refused(*where: object) -> Any:
    return raises(DataError, *where, "is not a valid sparse array (")


@pytest.mark.parametrize("form", FORMS)
def test_valid_arrays_give_their_values_and_stay_as_they_are(form: str) -> None:
    value = FORMS[form](TABLE)
    kept = {key: one for key, one in vars(value).items() if isinstance(one, np.ndarray)}
    copies = {key: one.copy() for key, one in kept.items()}
    np.testing.assert_array_equal(as_multi_view([value]).views[0].read(0, 30), TABLE)
    for key, one in kept.items():
        assert getattr(value, key.removeprefix("_")) is one
        np.testing.assert_array_equal(one, copies[key])


@pytest.mark.parametrize("form", [form for form in FORMS if form != "dia"])
@pytest.mark.parametrize("index", [FAR, 32, -FAR, -1])
def test_an_index_out_of_range(form: str, index: int) -> None:
    with refused("View 'view_0'"):
        as_multi_view([damaged(form, index)])


@pytest.mark.parametrize(
    ("form", "change"),
    [
        ("csc", lambda value: value.indptr.put(2, FAR)),
        ("bsr", lambda value: value.indptr.put(2, FAR)),
        ("csr", lambda value: setattr(value, "indptr", value.indptr[:-1])),
        ("lil", lambda value: value.rows[2].append(1)),
        ("lil", lambda value: value.data[2].append(1)),
    ],
    ids=["csc", "bsr", "few pointers", "an index", "a value"],
)
def test_pointers_and_sizes_that_do_not_fit(form: str, change: Callable[[Any], None]) -> None:
    value = FORMS[form](TABLE)
    change(value)
    with refused("View 'view_0'"):
        as_multi_view([value])


@given(data=st.data())
def test_compressed_rows_are_taken_if_and_only_if_every_value_has_a_place(
    data: st.DataObject,
) -> None:
    n_rows, n_columns = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    n_values = data.draw(st.integers(0, 5))
    index = st.integers(-1, n_columns)
    indices = data.draw(st.lists(index, min_size=n_values, max_size=n_values))
    pointer = st.integers(-1, n_values + 1)
    inner = data.draw(st.lists(pointer, min_size=n_rows - 1, max_size=n_rows - 1))
    if data.draw(st.booleans()):
        inner.sort()
    indptr = [0, *inner, data.draw(st.sampled_from([n_values, n_values, n_values + 1]))]
    value = sparse.csr_array((n_rows, n_columns))
    value.data = np.arange(1.0, n_values + 1)
    value.indices, value.indptr = np.array(indices, np.int32), np.array(indptr, np.int32)

    in_order = all(0 <= a <= b <= n_values for a, b in pairwise(indptr))
    if not in_order or any(not 0 <= one < n_columns for one in indices[: indptr[-1]]):
        with refused("View 'view_0'"):
            as_multi_view([value])
        return
    expected = np.zeros((n_rows, n_columns))
    for row in range(n_rows):
        for entry in range(indptr[row], indptr[row + 1]):
            expected[row, indices[entry]] += entry + 1
    np.testing.assert_array_equal(as_multi_view([value]).views[0].read(0, n_rows), expected)


# -- every way in --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> MSCAM:
    return quick().fit([TABLE, sparse.csr_array(TABLE[:, ::-1] ** 2)])


def test_estimators_and_baselines(model: MSCAM) -> None:
    with refused("view_0"):
        quick().fit(damaged("csr"))
    for use in (quick().fit, model.predict, LMVSC(3).fit):
        with refused("View 'view_1'"):
            use([TABLE, damaged("csr_matrix")])


def test_dask_array_that_makes_sparse_blocks() -> None:
    blocks = da.from_array(TABLE, chunks=(10, 4)).map_blocks(
        lambda block: damaged("csr", table=block), dtype=np.float64, meta=sparse.csr_array((0, 4))
    )
    source = as_multi_view([blocks]).views[0]
    with refused("A block of view 'view_0'"):
        source.read(1, 6)


@pytest.mark.parametrize("form", ["csr", "csc", "bsr", "coo", "csr_matrix"])
def test_numpy_archive(tmp_path: Path, form: str) -> None:
    path = tmp_path / "words.npz"
    sparse.save_npz(path, damaged(form))
    with refused(path):
        ingest(path, tmp_path / "words.zarr")


@pytest.mark.parametrize(
    "changes",
    [
        {"indptr": np.array([1, 2, 3])},
        {"indptr": np.array([0, 2])},
        {"indptr": np.array([0, 2, 4])},
        {"indptr": np.array([[0, 2, 3]])},
        {"indices": np.array([0, 2**63, 1], np.uint64)},
        {"indices": np.array([0, 1])},
        {"data": np.array(["a", "b", "c"])},
        {"data": np.float64(1)},
        {"shape": np.array([2, -2])},
        {"shape": np.array([2.0, 2.0])},
        {"shape": np.array([2, 2, 2])},
        {"shape": np.array(2)},
        {"format": np.array("xyz")},
        {"format": np.array("bsr")},
    ],
    ids=str,
)
def test_numpy_archive_that_contradicts_itself(tmp_path: Path, changes: dict[str, Any]) -> None:
    valid = {
        "format": np.array("csr"),
        "shape": np.array([2, 2]),
        "data": np.array([1.0, 2, 3]),
        "indices": np.array([0, 1, 1]),
        "indptr": np.array([0, 2, 3]),
    }
    path = tmp_path / "words.npz"
    np.savez(path, allow_pickle=False, **{**valid, **changes})
    with raises(DataError, path, "sparse array"):
        ingest(path, tmp_path / "words.zarr")


def matlab_5(path: Path, value: Any, **variables: Any) -> None:
    """SciPy writes no such file, so the bytes of the indices are replaced."""
    save_version_5(path, **variables)
    content, before = path.read_bytes(), value.indices.astype("<i4").tobytes()
    assert before in content
    bad = value.indices.copy()
    bad[3] = FAR
    path.write_bytes(content.replace(before, bad.astype("<i4").tobytes()))


@pytest.mark.parametrize("version", ["v5", "v7.3"])
@pytest.mark.parametrize("place", ["view", "cell", "labels"])
def test_matlab_file(tmp_path: Path, version: str, place: str) -> None:
    make = FORMS["csc"] if version == "v5" else lambda table: damaged("csc", table=table)
    value = make(np.eye(3)[np.arange(30) % 3] if place == "labels" else TABLE)
    variables, where = {
        "view": ({"words": value}, "'words'"),
        "cell": ({"X": cells(TABLE, value)}, "'X', cell 1,"),
        "labels": ({"colour": TABLE, "Y": value}, "'Y'"),
    }[place]
    path = tmp_path / "a.mat"
    if version == "v5":
        matlab_5(path, value, **variables)
    else:
        save_version_73(path, **variables)
    with refused(f"{path}: {where}"):
        ingest(path, tmp_path / "a.zarr")


# -- files of the package itself -----------------------------------------------------------------


def test_a_stored_graph(model: MSCAM, tmp_path: Path) -> None:
    graph = sparse.csr_array((30, 30))
    graph.indptr[2] = FAR  # SciPy's own check looks at no pointers where there is no value
    whole = model.solution_.arrays
    assert isinstance(whole, ArraysInMemory)
    arrays = dataclasses.replace(whole, consensus_graph=graph)
    solution = dataclasses.replace(model.solution_, arrays=arrays)
    with raises(StoreCorruptError, "consensus_graph is damaged"):
        write_result(solution, tmp_path / "result.zarr")  # which reads it back
