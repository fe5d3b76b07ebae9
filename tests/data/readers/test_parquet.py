"""Parquet and Feather files give the views, ids and labels that the same table gives as text."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mscam_dask.data.ingest import ingest
from mscam_dask.data.readers.base import Source
from mscam_dask.data.store.dataset import open_store
from mscam_dask.errors import ConfigurationError, DataError
from tests.data.ingested import read
from tests.data.known_tables import ORDER, TEXTS, outcome

FRAME = pd.DataFrame(
    {
        "patient": ["p3", "p1", "p2", "p9"],
        "age": [31, 45, 28, 60],
        "dose": [0.5, 1.25, 0.0, 2.0],
        "label": ["a", "b", "a", "b"],
    }
)


@pytest.fixture(params=[".parquet", ".feather"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    pytest.importorskip("pyarrow")
    found = tmp_path / f"omics{request.param}"
    if found.suffix == ".parquet":
        FRAME.to_parquet(found, index=False)
    else:
        FRAME.to_feather(found, compression="lz4")
    return found


def test_a_table_gives_what_it_gives_as_text(path: Path) -> None:
    FRAME.to_csv(path.with_suffix(".csv"), index=False)
    first = ingest(path, path.with_name("a.zarr"))
    assert ingest(path.with_suffix(".csv"), path.with_name("b.zarr")).digest == first.digest
    store = open_store(first.output)
    assert store.sample_ids == tuple(FRAME["patient"])
    assert store.label_names == ("a", "b")
    assert store.views[0].feature_names == ("age", "dose")


def test_columns_of_several_levels(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    frame = FRAME.set_index("patient")[["age", "dose"]]
    frame.columns = pd.MultiIndex.from_product([["x"], frame.columns])
    frame.to_parquet(tmp_path / "a.parquet")
    _, loaded = read(tmp_path / "a.parquet")
    assert loaded.sample_ids == tuple(FRAME["patient"])
    assert loaded.views[0].feature_names == ("('x', 'age')", "('x', 'dose')")


def test_categories_are_read_as_what_they_are_categories_of(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    frame = FRAME.assign(label=FRAME["label"].astype("category"))
    frame["stage"] = pd.Categorical([1, 2, None, 1])
    frame.to_parquet(tmp_path / "a.parquet", index=False)
    ingest(tmp_path / "a.parquet", tmp_path / "a.zarr", impute="mean")
    store = open_store(tmp_path / "a.zarr")
    assert store.label_names == ("a", "b")
    assert store.views[0].read(0, 4)[:, 2].tolist() == pytest.approx([1, 2, 4 / 3, 1])


def test_a_damaged_file_and_one_above_the_limit(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError):
        read(Source(path, max_bytes=64))
    for column in ("absent", 7):
        with pytest.raises(ConfigurationError):
            read(Source(path, id_column=column))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError):
        read(path)
    monkeypatch.setitem(sys.modules, "pyarrow.dataset", None)
    with pytest.raises(DataError):
        read(path)


def test_a_table_without_columns(tmp_path: Path, path: Path) -> None:
    empty = tmp_path / f"empty{path.suffix}"
    frame = pd.DataFrame(index=range(3))
    (frame.to_parquet if path.suffix == ".parquet" else frame.to_feather)(empty)
    with pytest.raises(DataError):
        read(empty)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16"])
@pytest.mark.parametrize("ids", [TEXTS, None])
def test_tables_of_one_type_are_looked_at_as_others_are(
    tmp_path: Path, dtype: str, ids: Any
) -> None:
    """Truth values without ids, whole numbers that differ beside ids, and unsigned ones in no order."""
    pytest.importorskip("pyarrow")
    columns = {"a": np.arange(12) * 5 % 7, "b": np.arange(12) // 3, "c": ORDER, "d": 1 - ORDER % 2}
    known = pd.DataFrame(columns, ids).astype(dtype)
    known.to_parquet(tmp_path / "a.parquet")
    expected = known.astype(float)
    assert outcome([tmp_path / "a.parquet"], {"a": expected}, tmp_path / "s.zarr") == "right"
    notes = ingest(tmp_path / "a.parquet", tmp_path / "s.zarr", overwrite=True).notes
    assert not [note for note in notes if "keys of rows" in note]
