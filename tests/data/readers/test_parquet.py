"""Parquet and Feather files give the views, ids and labels that the same table gives as text."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mscam_dask.data.ingest import ingest
from mscam_dask.data.readers.base import Source
from mscam_dask.data.store.read import open_store
from mscam_dask.data.views.sources import feature_names_of
from mscam_dask.errors import ConfigurationError, DataError
from tests.data.ingested import stored
from tests.messages import quotes

FRAME = pd.DataFrame(
    {
        "patient": ["p3", "p1", "p2", "p9"],
        "age": [31, 45, 28, 60],
        "dose": [0.5, 1.25, 0.0, 2.0],
        "label": ["a", "b", "a", "b"],
    }
)


def test_without_pyarrow_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.dataset", None)
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1")
    with pytest.raises(DataError, match=quotes(path, "mscam-dask[parquet]")):
        ingest(path, tmp_path / "s.zarr")


def saved(path: Path, frame: pd.DataFrame, **options: object) -> Path:
    pytest.importorskip("pyarrow")
    frame.to_parquet(path, engine="pyarrow", **options)
    return path


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_a_feather_file_gives_what_the_parquet_file_gives(tmp_path: Path, compression: str) -> None:
    pytest.importorskip("pyarrow")
    FRAME.to_feather(tmp_path / "omics.feather", compression=compression)
    report = ingest(tmp_path / "omics.feather", tmp_path / "a.zarr")
    other = ingest(saved(tmp_path / "omics.parquet", FRAME, index=False), tmp_path / "b.zarr")
    assert report.digest == other.digest
    first, second = open_store(report.output), open_store(other.output)
    assert first.sample_ids == second.sample_ids
    assert first.label_names == second.label_names
    assert feature_names_of(first.views[0]) == feature_names_of(second.views[0])


def test_a_damaged_feather_file_and_one_above_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "a.feather"
    FRAME.to_feather(path)
    with pytest.raises(DataError, match=quotes(path, 64, "max_bytes")):
        ingest(Source(path, max_bytes=64), tmp_path / "s.zarr")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=quotes(path)):
        ingest(path, tmp_path / "s.zarr")
    monkeypatch.setitem(sys.modules, "pyarrow.dataset", None)
    with pytest.raises(DataError, match=quotes(path, "mscam-dask[parquet]")):
        ingest(path, tmp_path / "s.zarr")


def test_a_table_gives_what_it_gives_as_text(tmp_path: Path) -> None:
    path = saved(tmp_path / "omics.parquet", FRAME, index=False)
    FRAME.to_csv(tmp_path / "omics.csv", index=False)
    report = ingest(path, tmp_path / "a.zarr")
    as_text = ingest(tmp_path / "omics.csv", tmp_path / "b.zarr")
    assert report.digest == as_text.digest
    first, second = open_store(report.output), open_store(as_text.output)
    assert first.sample_ids == second.sample_ids == tuple(FRAME["patient"])
    assert first.label_names == second.label_names == ("a", "b")
    assert getattr(first.views[0], "feature_names", None) == ("age", "dose")


def test_samples_on_columns(tmp_path: Path) -> None:
    numbers = FRAME.set_index("patient")[["age", "dose"]]
    path = saved(tmp_path / "a.parquet", numbers.T)
    report = ingest(Source(path, samples_in="columns"), tmp_path / "s.zarr")
    np.testing.assert_array_equal(stored(report)["a"], numbers.to_numpy())
    assert open_store(report.output).sample_ids == tuple(FRAME["patient"])


@pytest.mark.parametrize("column", ["absent", 7])
def test_an_id_column_that_is_not_there(tmp_path: Path, column: str | int) -> None:
    path = saved(tmp_path / "a.parquet", FRAME, index=False)
    with pytest.raises(ConfigurationError, match=quotes(column, "patient")):
        ingest(Source(path, id_column=column), tmp_path / "s.zarr")


def test_a_damaged_file_and_one_above_the_limit(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.parquet", FRAME, index=False)
    with pytest.raises(DataError, match=quotes(path, 64, "max_bytes")):
        ingest(Source(path, max_bytes=64), tmp_path / "s.zarr")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=quotes(path)):
        ingest(path, tmp_path / "s.zarr")
