"""Result stores: what was written is what is read, or an error that names the file; and the invariants of a result."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zarr
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask import MSCAM
from mscam_dask.data.results import read_model, read_result, write_result
from mscam_dask.data.store.arrays import write_checksums
from mscam_dask.errors import DataError, StoreCorruptError
from mscam_dask.estimators._stored import FittedModel
from mscam_dask.pipeline.doctor import violations
from mscam_dask.types.parameters import Parameters
from tests.messages import raises
from tests.synthetic import three_subspaces


@pytest.fixture(scope="module")
def model() -> MSCAM:
    return MSCAM(n_clusters=3, n_jobs=1).fit(three_subspaces())


@pytest.fixture
def path(model: MSCAM, tmp_path: Path) -> Path:
    return write_result(model.solution_, tmp_path / "result.zarr")


def test_everything_reads_back_bit_for_bit(model: MSCAM, path: Path) -> None:
    result = read_result(path)
    assert_array_equal(result.labels, model.labels_)
    for name in ("consensus_graph", "learned_graph"):
        graph = getattr(model, f"{name}_").toarray()
        assert_array_equal(getattr(result, name).toarray(), graph)
    for name in ("view_embeddings", "view_coordinates"):
        known = getattr(model.solution_, name)
        assert list(getattr(result, name)) == list(known) == ["view_0", "view_1"]
        for view, values in known.items():
            assert_array_equal(getattr(result, name)[view], values)
    written, read = model.solution_.assessment, result.assessment
    assert (read.structure, read.message) == (written.structure, written.message)
    assert read.cluster_names == (0, 1, 2)
    assert read.view_names == written.view_names
    assert written.borders is not None
    for name in ("p_values", "counts", "sizes"):
        known = getattr(written.borders, name)
        np.testing.assert_array_equal(getattr(read.borders, name), known, strict=True)
    assert_array_equal(read.cluster_tree, written.cluster_tree)
    assert_array_equal(read.cluster_agreement, written.cluster_agreement)
    assert result.view_contributions == model.view_contributions_
    assert (result.status, result.score) == (model.status_, model.cross_view_information_)
    assert result.n_connected_components == model.n_connected_components_ == 3
    for name in (
        "parameters",
        "settings",
        "prepared",
        "history",
        "selected_view_settings",
        "chosen",
    ):
        assert getattr(result, name) == getattr(model.solution_, name), name


def test_arrays_have_checksums_and_the_graph_is_the_group_that_anndata_writes(path: Path) -> None:
    group = zarr.open_group(path, mode="r")
    arrays = [member for _, member in group.members(None) if isinstance(member, zarr.Array)]
    assert len(arrays) > 8
    for array in arrays:
        assert array.dtype.kind in "ifu"
        codecs = [type(codec).__name__ for codec in array.metadata.codecs]  # type: ignore[union-attr]
        assert "Crc32cCodec" in codecs
    graph = group["consensus_graph"]
    assert isinstance(graph, zarr.Group)
    encoding = ("encoding-type", "encoding-version", "shape")
    assert [graph.attrs[key] for key in encoding] == ["csr_matrix", "0.1.0", [60, 60]]
    assert {name for name, _ in graph.arrays()} == {"data", "indices", "indptr"}


def test_what_is_no_result_or_lacks_an_array(model: MSCAM, path: Path, tmp_path: Path) -> None:
    with raises(DataError, tmp_path / "absent"):
        read_result(tmp_path / "absent")
    zarr.open_group(tmp_path / "other", mode="w", attributes={"format": "other"})
    with raises(DataError, tmp_path / "other", "result.zarr"):
        read_result(tmp_path / "other")
    with raises(DataError, path):
        write_result(model.solution_, path)  # nothing is written over
    for key in ("labels", "consensus_graph/indptr", "view_embeddings/1", "fit/records"):
        (path / key).rename(tmp_path / "moved")
        with raises(StoreCorruptError, path / key / "zarr.json"):
            read_result(path)
        (tmp_path / "moved").rename(path / key)
    group = zarr.open_group(path, mode="r+")
    group.attrs["status"] = None
    write_checksums(group, path)
    with raises(StoreCorruptError, path / "zarr.json"):
        read_result(path)


def test_records_with_other_fields_are_refused(model: MSCAM, tmp_path: Path) -> None:
    path = tmp_path / "result.zarr"
    write_result(model.solution_, path, model.solution_.parameters)
    assert read_model(path, Parameters) == model.solution_.parameters
    with raises(DataError, path / "model", "encoders", "version"):
        read_model(path, FittedModel)


def test_records_name_no_array_outside_of_their_group(model: MSCAM, tmp_path: Path) -> None:
    path, made = tmp_path / "result.zarr", dataclasses.make_dataclass
    write_result(model.solution_, path, made("Text", [("values", str)])("labels"))
    with raises(StoreCorruptError, path / "model" / "labels"):
        read_model(path, made("Array", [("values", NDArray[np.int64])]))


def test_results_of_an_earlier_version_are_refused(path: Path) -> None:
    group = zarr.open_group(path, mode="r+")
    group.attrs["format_version"] = 4
    write_checksums(group, path)
    with raises(DataError, path, 4, "the version that wrote it"):
        read_result(path)


LABELS = [0, 0, 1, 1, 2]
GRAPH = np.zeros((5, 5))
GRAPH[[0, 1, 2, 3], [1, 0, 3, 2]] = 1.0
SHARES = {"a": 0.25, "b": 0.75}


def found(
    labels: Any = LABELS, graph: Any = GRAPH, shares: Any = SHARES, *, n: int = 3
) -> tuple[str, ...]:
    result: Any = SimpleNamespace(
        labels=np.asarray(labels),
        consensus_graph=csr_array(graph),
        view_contributions=shares,
        n_connected_components=n,
    )
    return violations(result)


def changed(row: int, column: int, weight: float) -> Any:
    graph = GRAPH.copy()
    graph[row, column] = weight
    return graph


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param({"labels": [0, 1, 2, 2, 3]}, id="across components"),
        pytest.param({"labels": [0, 0, 1, 1, 1]}, id="components together"),
        pytest.param({"graph": GRAPH[:4, :4]}, id="shape"),
        pytest.param({"graph": changed(0, 1, -1.0)}, id="negative"),
        pytest.param({"graph": changed(0, 1, np.nan)}, id="nan"),
        pytest.param({"graph": changed(0, 1, 0.9)}, id="sum of a row"),
        pytest.param({"graph": 0.5 * (GRAPH + np.diag(GRAPH.sum(axis=1)))}, id="edges to itself"),
        pytest.param({"n": 2}, id="components"),
        pytest.param({"shares": {"a": 0.5, "b": 0.4}}, id="sum of shares"),
        pytest.param({"shares": {"a": 1.5, "b": -0.5}}, id="negative share"),
    ],
)
def test_each_damage_is_one_violation(damage: Any) -> None:
    assert found() == ()
    assert len(found(**damage)) == 1
