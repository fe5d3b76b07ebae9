"""Stored files are read with the values they were written with, and those of other versions are refused."""

from __future__ import annotations

import csv
import tarfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
import zarr
from numpy.testing import assert_allclose, assert_array_equal

from mscam_dask import Constants
from mscam_dask.cli.commands import describe_path
from mscam_dask.data.checkpoints import FileCheckpointStore
from mscam_dask.data.results import read_result
from mscam_dask.data.store.arrays import write_checksums
from mscam_dask.data.store.dataset import open_store, verify_store
from mscam_dask.errors import DataError
from mscam_dask.monitor.run_record import encode_record
from mscam_dask.pipeline.doctor import check_run
from mscam_dask.pipeline.load_run import load_run
from mscam_dask.pipeline.run_directory import RunDirectory
from tests.golden.make import FOLDER, IDS, checkpoint, data
from tests.messages import raises

LABELS = [0, 1, 2, 2, 1, 1, 0, 0, 0, 2, 1, 2]

FUTURE = 97


@pytest.fixture
def golden(tmp_path: Path) -> Callable[[str], Path]:
    """Unpack an archive; return the directory in it."""

    def unpack(name: str) -> Path:
        with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
            archive.extractall(tmp_path, filter="data")
        (root,) = tmp_path.iterdir()
        return root

    return unpack


def test_a_store(golden: Callable[[str], Path]) -> None:
    found, expected = verify_store(golden("store")), data()
    assert found.sample_ids == IDS
    assert found.label_names == ("x", "y", "z")
    assert found.labels is not None
    assert expected.labels is not None
    assert_array_equal(found.labels, expected.labels)
    assert found.view_names == ("a", "b")
    for view, source in zip(found.views, expected.views, strict=True):
        assert_array_equal(view.read(0, 12), source.read(0, 12))
    assert found.digest() == expected.digest()


def test_a_checkpoint(golden: Callable[[str], Path]) -> None:
    store, expected = FileCheckpointStore(golden("checkpoint")), checkpoint()
    found = store.load()
    assert store.damage == ()
    record = dict(found.record)
    assert np.isnan(record.pop("score"))
    assert record == {"iteration": 3, "names": ["a", "é"]}
    assert found.arrays.keys() == expected.arrays.keys()
    for name, values in expected.arrays.items():
        assert found.arrays[name].dtype == values.dtype
        assert_array_equal(found.arrays[name], values)


def test_a_run(golden: Callable[[str], Path]) -> None:
    path = golden("run")
    record = RunDirectory(path).read_record()
    assert (record.state, record.pipeline, record.number) == ("finished", "golden", 1)
    assert record.fit.cluster_sizes == (4, 4, 4)
    model, result = load_run(path), read_result(path / "result.zarr")
    assert model.constants == model.solution_.parameters.constants == Constants.paper()
    assert_array_equal(model.labels_, LABELS)
    assert model.sample_ids_ == IDS
    assert result.n_connected_components == model.n_clusters_ == 3
    assert result.consensus_graph.nnz == 24
    first = np.zeros(12)
    first[[7, 8]] = 0.22703151, 0.77296849
    assert_allclose(result.consensus_graph[[0]].toarray()[0], first, atol=1e-8)
    assert model.predict({source.name: source.read(0, 12) for source in data().views}).shape == (
        12,
    )
    with (path / "samples.csv").open(encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    assert [row["sample"] for row in rows] == list(IDS)
    assert [int(row["cluster"]) for row in rows] == LABELS
    assert float(rows[0]["confidence"]) == pytest.approx(model.confidence_[0], abs=1e-6)
    failed = [name for name, check in check_run(path) if check.level == "fail"]
    assert failed in ([], ["Data"])  # the data were elsewhere
    assert describe_path(str(path)) == 0


def test_samples_in_parquet(golden: Callable[[str], Path]) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table = pandas.read_parquet(golden("run") / "samples.parquet")
    assert list(table["sample"]) == list(IDS)
    assert list(table["cluster"]) == LABELS


# -- Formats of a later version ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "inside", "read"),
    [
        ("store", "", open_store),
        ("run", "result.zarr", lambda path: read_result(path / "result.zarr")),
    ],
    ids=["store", "result"],
)
def test_a_store_of_a_later_version(
    golden: Callable[[str], Path], name: str, inside: str, read: Callable[[Path], object]
) -> None:
    path = golden(name)
    root = path / inside
    group = zarr.open_group(root, mode="r+")
    group.attrs["format_version"] = FUTURE
    write_checksums(group, root)
    with raises(DataError, root, FUTURE, "Upgrade"):
        read(path)


def test_a_run_record_of_a_later_version(golden: Callable[[str], Path]) -> None:
    path = golden("run")
    file = path / "run.json"
    record = RunDirectory(path).read_record()
    old, new = (f'"format_version": {version}'.encode() for version in (1, FUTURE))
    file.write_bytes(encode_record(record).replace(old, new))
    with pytest.raises(DataError):
        load_run(path)


def test_a_run_record_with_the_assessment_of_another_version(golden: Callable[[str], Path]) -> None:
    path = golden("run")
    record = RunDirectory(path).read_record()
    msgspec.structs.force_setattr(record.fit.assessment, "structure", "STABLE")
    (path / "run.json").write_bytes(encode_record(record))
    for read in (load_run, lambda path: describe_path(str(path))):
        with raises(DataError, "run.json", "STABLE", "--overwrite"):
            read(path)


def test_a_checkpoint_of_an_earlier_version_is_refused_and_can_be_cleared(
    golden: Callable[[str], Path],
) -> None:
    store = FileCheckpointStore(golden("checkpoint-2"))
    with pytest.raises(DataError):
        store.load()
    store.clear()
    assert store.load() is None
