"""Sparse arrays with indices out of range are refused, whichever way they come in.

SciPy converts them without a look: memory outside the array is read and written, or a value becomes
another sample's.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from mscam_dask import MSCAM, MSCAN
from mscam_dask.benchmark.baselines.simplex_graphs import LMVSC
from mscam_dask.cli import main
from mscam_dask.data.checkpoints import Checkpoint
from mscam_dask.data.ingest import ingest
from mscam_dask.data.results import write_result
from mscam_dask.data.store.read import open_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.errors import DataError, StoreCorruptError
from mscam_dask.types.result import ArraysInMemory
from tests.data.readers.matlab_files import cells, save_version_5, save_version_73
from tests.estimators.small import quick

pytestmark = pytest.mark.faults

N_SAMPLES, N_COLUMNS = 30, 4
TABLE = np.random.default_rng(0).normal(size=(N_SAMPLES, N_COLUMNS))

FAR, NEAR, FAR_BELOW, BELOW, POINTER = "far", "near", "far below", "below", "pointer"
INDEX_FAULTS = (FAR, NEAR, FAR_BELOW, BELOW)

CLASSES: dict[str, Callable[[Any], Any]] = {
    f"{form}_{kind}": getattr(sparse, f"{form}_{kind}")
    for form in ("csr", "csc", "bsr", "coo", "dia", "lil", "dok")
    for kind in ("array", "matrix")
} | {
    "bsr_array": lambda table: sparse.bsr_array(table, blocksize=(2, 1)),
    "bsr_matrix": lambda table: sparse.bsr_matrix(table, blocksize=(2, 1)),
}


def bad_index(fault: str, size: int) -> int:
    """An index that `size` columns (or rows) do not have."""
    return {FAR: 10**7, NEAR: size + 2, FAR_BELOW: -(10**7), BELOW: -1}[fault]


def damage_pointer(indptr: NDArray[Any]) -> None:
    """Let a pointer in the middle point far beyond the values."""
    indptr[2] = 10**7


def damaged(name: str, fault: str, table: NDArray[np.float64] = TABLE) -> Any:
    """A table in a sparse form with one index or pointer out of range."""
    value = CLASSES[name](table)
    n_rows, n_columns = table.shape
    if fault == POINTER:
        damage_pointer(value.indptr)
    elif value.format in ("csr", "bsr"):
        value.indices[3] = bad_index(fault, n_columns)
    elif value.format == "csc":
        value.indices[3] = bad_index(fault, n_rows)
    elif value.format == "coo":
        row, column = (axis.copy() for axis in value.coords)
        column[3] = bad_index(fault, n_columns)
        value.coords = (row, column)
    elif value.format == "lil":
        value.rows[1][0] = bad_index(fault, n_columns)
    else:
        value._dict[1, bad_index(fault, n_columns)] = 1.0
    return value


CASES = [(name, fault) for name in CLASSES if name[:3] != "dia" for fault in INDEX_FAULTS] + [
    (name, POINTER) for name in CLASSES if name[:3] in ("csr", "csc", "bsr")
]
of_every_form = pytest.mark.parametrize(("name", "fault"), CASES)
of_csr = pytest.mark.parametrize("fault", [*INDEX_FAULTS, POINTER])


def refused(where: str) -> Any:
    return pytest.raises(DataError, match=rf"{where}.* is not a valid sparse array \(")


@pytest.mark.parametrize("name", CLASSES)
def test_valid_arrays_give_their_values(name: str) -> None:
    np.testing.assert_array_equal(as_multi_view([CLASSES[name](TABLE)]).views[0].read(0, 30), TABLE)


@of_every_form
def test_a_view_in_memory(name: str, fault: str) -> None:
    value = damaged(name, fault)
    with refused("View 'view_0'"):
        as_multi_view([value])


@of_csr
def test_a_table_given_to_fit(fault: str) -> None:
    with refused("The table"):
        quick().fit(damaged("csr_array", fault))


@of_csr
@pytest.mark.parametrize(
    "model", [MSCAM(3), MSCAN(3), LMVSC(3)], ids=["mscam", "mscan", "baseline"]
)
def test_fit(model: Any, fault: str) -> None:
    with refused("View 'view_1'"):
        model.fit([TABLE, damaged("csr_matrix", fault)])


@pytest.fixture(scope="module")
def model() -> MSCAM:
    return quick().fit([TABLE, sparse.csr_array(TABLE[:, ::-1] ** 2)])


@of_csr
def test_predict(model: MSCAM, fault: str) -> None:
    with refused("View 'view_1'"):
        model.predict([TABLE, damaged("csr_array", fault)])


@of_csr
def test_dask_array_that_makes_sparse_blocks(fault: str) -> None:
    blocks = da.from_array(TABLE, chunks=(10, 4)).map_blocks(
        lambda block: damaged("csr_array", fault, block),
        dtype=np.float64,
        meta=sparse.csr_array((0, 4)),
    )
    source = as_multi_view([blocks]).views[0]
    with refused("A block of view 'view_0'"):
        source.read(1, 6)


# Files


SAVED = [name for name in CLASSES if name[:3] not in ("lil", "dok")]


@pytest.mark.parametrize(("name", "fault"), [case for case in CASES if case[0] in SAVED])
def test_numpy_archive(tmp_path: Path, name: str, fault: str) -> None:
    path = tmp_path / "words.npz"
    sparse.save_npz(path, damaged(name, fault))
    with refused(str(path)):
        ingest(path, tmp_path / "words.zarr")


@pytest.mark.parametrize("name", SAVED)
def test_numpy_archive_of_every_format(tmp_path: Path, name: str) -> None:
    path = tmp_path / "words.npz"
    sparse.save_npz(path, CLASSES[name](TABLE))
    ingest(path, tmp_path / "words.zarr")
    (view,) = open_store(tmp_path / "words.zarr").views
    assert view.name == "words"
    np.testing.assert_array_equal(view.read(0, 30), TABLE)


@pytest.mark.parametrize(
    "changes",
    [
        {"indptr": np.array([1, 2, 3])},
        {"indptr": np.array([0, 2])},
        {"indptr": np.array([0, 2, 4])},
        {"indptr": np.array([0, 1, 2])},
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
    with pytest.raises(DataError, match=rf"{path} is .*sparse array"):
        ingest(path, tmp_path / "words.zarr")


def matlab_file(path: Path, version: str, fault: str, **variables: Any) -> Path:
    """A MATLAB file whose sparse variables all have one index or pointer out of range.

    SciPy cannot write such a file, so the bytes of the indices are replaced.
    """
    if version == "v7.3":
        return save_version_73(path, **variables)
    save_version_5(path, **variables)
    content = path.read_bytes()
    for value in variables.values():
        items: list[Any] = list(value.ravel()) if value.dtype == object else [value]
        for item in filter(sparse.issparse, items):
            bad = copy.deepcopy(item)
            _damage_columns(bad, fault)
            for name in ("indices", "indptr"):
                before = getattr(item, name).astype("<i4").tobytes()
                assert before in content
                content = content.replace(before, getattr(bad, name).astype("<i4").tobytes())
    path.write_bytes(content)
    return path


def _damage_columns(value: Any, fault: str) -> None:
    if fault == POINTER:
        damage_pointer(value.indptr)
    else:
        value.indices[3] = bad_index(fault, value.shape[0])


def columns(table: NDArray[Any], version: str, fault: str) -> Any:
    """Compressed columns, damaged where the file is written with them as they are."""
    value = sparse.csc_array(table)
    if version == "v7.3":
        _damage_columns(value, fault)
    return value


@of_csr
@pytest.mark.parametrize("version", ["v5", "v7.3"])
@pytest.mark.parametrize("place", ["view", "cell", "labels"])
def test_matlab_file(tmp_path: Path, version: str, fault: str, place: str) -> None:
    values = columns(TABLE, version, fault)
    indicator = columns(np.eye(3)[np.arange(N_SAMPLES) % 3], version, fault)
    variables, where = {
        "view": ({"words": values}, "'words'"),
        "cell": ({"X": cells(TABLE, values)}, "'X', cell 1,"),
        "labels": ({"colour": TABLE, "Y": indicator}, "'Y'"),
    }[place]
    path = matlab_file(tmp_path / "a.mat", version, fault, **variables)
    with refused(f"{path}: {where}"):
        ingest(path, tmp_path / "a.zarr")


@pytest.mark.parametrize("kind", ["v5", "v7.3", "npz"])
def test_the_command_line_ends_with_code_3(tmp_path: Path, kind: str) -> None:
    if kind == "npz":
        path = tmp_path / "a.npz"
        sparse.save_npz(path, damaged("csr_matrix", FAR))
    else:
        path = matlab_file(tmp_path / "a.mat", kind, FAR, words=columns(TABLE, kind, FAR))
    result = CliRunner().invoke(main, ["ingest", str(path), "-o", str(tmp_path / "a.zarr")])
    assert result.exit_code == 3
    assert "not a valid sparse array" in " ".join(result.output.split())
    assert not (tmp_path / "a.zarr").exists()


# What this package wrote itself


def test_a_stored_graph(model: MSCAM, tmp_path: Path) -> None:
    graph = sparse.csr_array((N_SAMPLES, N_SAMPLES))
    damage_pointer(graph.indptr)  # SciPy's own check looks at no pointers where there is no value
    whole = model.solution_.arrays
    assert isinstance(whole, ArraysInMemory)
    arrays = dataclasses.replace(whole, consensus_graph=graph)
    solution = dataclasses.replace(model.solution_, arrays=arrays)
    with pytest.raises(StoreCorruptError, match=r"consensus_graph is damaged: .*pointers fall"):
        write_result(solution, tmp_path / "result.zarr")  # which reads it back


class Keeps:
    """A checkpointer of a user's own."""

    def __init__(self) -> None:
        self.saved: Checkpoint | None = None

    def load(self) -> Checkpoint | None:
        return self.saved

    def save(self, snapshot: Checkpoint) -> None:
        self.saved = snapshot


@of_csr
def test_the_graph_of_a_checkpoint(fault: str) -> None:
    keeps = Keeps()
    quick(checkpoint_store=keeps).fit([TABLE])
    assert keeps.saved is not None
    arrays = {name: np.array(values) for name, values in keeps.saved.arrays.items()}
    if fault == POINTER:
        damage_pointer(arrays["graph_indptr"])
    else:
        arrays["graph_indices"][3] = bad_index(fault, N_SAMPLES)
    keeps.saved = dataclasses.replace(keeps.saved, arrays=arrays)
    with pytest.raises(StoreCorruptError, match="checkpoint is damaged: the graph is not a valid"):
        quick(checkpoint_store=keeps).fit([TABLE])


# The definition


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


@pytest.mark.parametrize(
    ("form", "change"),
    [
        ("csr", lambda v: setattr(v, "indptr", v.indptr[:-1])),
        ("csr", lambda v: setattr(v, "data", v.data[:5])),
        ("lil", lambda v: v.rows[2].append(1)),
        ("lil", lambda v: v.data[2].append(1)),
    ],
    ids=["pointers", "values", "indices of a row", "values of a row"],
)
def test_arrays_of_the_wrong_size(form: str, change: Callable[[Any], None]) -> None:
    value = CLASSES[f"{form}_array"](TABLE)
    change(value)
    with refused("View 'view_0'"):
        as_multi_view([value])


@pytest.mark.parametrize("name", CLASSES)
def test_the_check_leaves_the_arrays_alone(name: str) -> None:
    value = CLASSES[name](TABLE)
    kept = {key: one for key, one in vars(value).items() if isinstance(one, np.ndarray)}
    copies = {key: one.copy() for key, one in kept.items()}
    as_multi_view([value])
    for key, one in kept.items():
        assert getattr(value, key.removeprefix("_")) is one
        np.testing.assert_array_equal(one, copies[key])
