"""Tables of properties of the samples, in the order of the samples."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mscam_dask.data.readers.base import Source
from mscam_dask.data.readers.combine import read_sample_columns
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.errors import DataError
from mscam_dask.pipeline.open_data import sample_column
from tests.omics import anndata_of, writable_text

IDS = ["s1", "s2", "s3", "s4"]
TEXT = "id,site,age,grade\ns3,Oslo,61.5,2\nother,Oslo,1,9\ns1,Ghent,NA,1\ns2,,48,NaN\n"
EXPECTED = {
    "site": ["Ghent", None, "Oslo", None],
    "age": [None, 48.0, 61.5, None],
    "grade": [1, None, 2, None],
}


def test_columns_are_put_in_the_order_of_the_samples(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(TEXT.replace(",", "\t"), encoding="utf-8")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(TEXT.encode()))
    for name in ("a.tsv", "b.csv.gz"):
        found = read_sample_columns(tmp_path / name, IDS, 4)
        assert {key: column.tolist() for key, column in found.items()} == EXPECTED
        kinds = {type(item) for item in found["grade"]}
        assert kinds == {int, type(None)}  # few whole numbers are categories


def test_samples_without_ids_are_known_by_their_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("row,site\n2,x\n0,y\n", encoding="utf-8")
    assert read_sample_columns(tmp_path / "a.csv", None, 3)["site"].tolist() == ["y", None, "x"]


@pytest.mark.parametrize(
    "text",
    [
        "id,site\nq1,x\n",
        "id,site\ns1,x\ns2,y\ns1,z\n",
        "id\ns1\n",
        "id,a,a\ns1,1,2\n",
        "id,site\n",
        "id,site\ns1,\xff\n",
    ],
)
def test_other_tables_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.csv"
    file.write_text(text, encoding="latin1")
    with pytest.raises(DataError):
        read_sample_columns(file, IDS, 4)


@pytest.mark.parametrize(
    "values",
    [
        [-3, -1, -2, 1],
        [10**15, 2, 2, -1],
        [0.5, 1.5, 0.5, 0.5],
        [True, False, True, True],
        [*"wxxw"],
    ],
)
def test_a_column_of_obs_has_its_own_values(tmp_path: Path, values: list[Any]) -> None:
    """Negative and large numbers, decimals and truth values are batches or known labels like any other."""
    data = as_multi_view([pd.DataFrame(np.eye(4), IDS)])
    files = [Source(tmp_path / f"{name}.h5ad") for name in ("same", "other")]
    made = anndata_of(np.eye(4), IDS[::-1])
    for file, kinds in zip(files, (values[::-1], values[3]), strict=True):
        made.obs["kind"] = kinds
        with writable_text():
            made.write_h5ad(file.path)
    for key in ("batches", "partial_labels"):
        assert sample_column(Path("kind"), files[:1], data, key)[0].tolist() == values
        for name, given in (("other", files[:1]), ("kind", files)):
            with pytest.raises(DataError, match=key):
                sample_column(Path(name), given, data, key)
