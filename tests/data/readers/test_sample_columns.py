"""Tables of properties of the samples, in the order of the samples."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from mscam_dask.data.readers.labels import read_sample_columns
from mscam_dask.errors import DataError
from tests.messages import quotes

IDS = ["s1", "s2", "s3", "s4"]
TEXT = "id,site,age,grade\ns3,Oslo,61.5,2\nother,Oslo,1,9\ns1,Ghent,NA,1\ns2,,48,NaN\n"
EXPECTED = {
    "site": ["Ghent", None, "Oslo", None],
    "age": [None, 48.0, 61.5, None],
    "grade": [1, None, 2, None],
}


def test_columns_are_put_in_the_order_of_the_samples(tmp_path: Path) -> None:
    for name, text in (("a.csv", TEXT), ("a.tsv", TEXT.replace(",", "\t"))):
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(TEXT.encode()))
    for name in ("a.csv", "a.tsv", "b.csv.gz"):
        found = read_sample_columns(tmp_path / name, IDS, 4)
        assert {key: column.tolist() for key, column in found.items()} == EXPECTED
        kinds = {type(item) for item in found["grade"]}
        assert kinds == {int, type(None)}  # few whole numbers are categories


def test_a_parquet_file(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="pip install 'mscam-dask[parquet]'")
    import pyarrow.parquet as pq

    table = pa.table({"id": ["s3", "s1", "s2"], "age": [61.5, None, 48.0]})
    pq.write_table(table, tmp_path / "a.parquet")
    found = read_sample_columns(tmp_path / "a.parquet", IDS, 4)
    assert found["age"].tolist() == EXPECTED["age"]


def test_samples_without_ids_are_known_by_their_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("row,site\n2,x\n0,y\n", encoding="utf-8")
    assert read_sample_columns(tmp_path / "a.csv", None, 3)["site"].tolist() == ["y", None, "x"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("id,site\nq1,x\n", (4, "'id'", ["q1"], IDS[:3])),
        ("id,site\ns1,x\ns2,y\ns1,z\n", ("'s1'", "twice")),
        ("id,site\ns1,x\ns2,x,9\n", (1, 3, 2)),
        ("id\ns1\n", (["id"],)),
        ("id,a,a\ns1,1,2\n", (["id", "a", "a"],)),
        ("", ()),
        ("id,site\n", (4, "'id'")),
    ],
)
def test_other_tables_are_refused(tmp_path: Path, text: str, told: tuple[object, ...]) -> None:
    file = tmp_path / "a.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=quotes(str(file), *told)):
        read_sample_columns(file, IDS, 4)


def test_files_that_are_no_tables_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.pkl").write_bytes(b"PK")
    (tmp_path / "a.csv").write_bytes(b"id,site\ns1,\xff\n")
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    for name, told in (
        ("a.pkl", ".parquet"),
        ("a.csv", "UTF-8"),
        ("a.parquet", "a.parquet"),
        ("absent.csv", "absent.csv"),
    ):
        with pytest.raises(DataError, match=quotes(told)):
            read_sample_columns(tmp_path / name, IDS, 4)
