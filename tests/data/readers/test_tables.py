"""Roles of columns, options of tables, workbooks, and what the store keeps of these decisions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from mscam_dask.cli import main
from mscam_dask.data.ingest import Source, append, ingest
from mscam_dask.data.readers.base import SourceContents
from mscam_dask.data.store.dataset import open_store, read_origin
from mscam_dask.errors import ConfigurationError, DataError
from tests.data.ingested import read, stored
from tests.messages import quotes

N = 12
VALUES = np.random.default_rng(0).normal(size=(N, 3)).round(4)
NUMBERS = [int(number) for number in np.random.default_rng(1).permutation(N) * 37 + 5012]


def frame(ids: Sequence[Any], name: str = "id", prefix: str = "a") -> pd.DataFrame:
    columns = [f"{prefix}{column}" for column in range(3)]
    return pd.DataFrame(VALUES, pd.Index(ids, name=name), columns)


def is_right(found: tuple[dict[str, Any], SourceContents], ids: Sequence[Any] | None) -> bool:
    ((values,), loaded) = found[0].values(), found[1]
    np.testing.assert_array_equal(values, VALUES)
    return loaded.sample_ids == (None if ids is None else tuple(map(str, ids)))


def test_an_unclear_column_is_asked_for_with_two_ways_to_answer(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    frame(NUMBERS, "my number").to_csv(path)
    with pytest.raises(DataError, match=quotes("--id-column 'my number'", "id_column=False")):
        read(path)
    assert is_right(read(Source(path, id_column="my number")), NUMBERS)
    (values,), loaded = (found := read(Source(path, id_column=False)))[0].values(), found[1]
    assert loaded.sample_ids is None
    np.testing.assert_array_equal(values, np.c_[NUMBERS, VALUES])
    command = ["ingest", str(path), "-o", str(tmp_path / "s.zarr"), "--id-column", "none"]
    assert CliRunner().invoke(main, command).exit_code == 0
    assert open_store(tmp_path / "s.zarr").sample_ids is None


def test_consecutive_numbers_are_ids(tmp_path: Path) -> None:
    frame(range(1, N + 1), "number of visit").to_csv(tmp_path / "a.csv")
    assert is_right(read(tmp_path / "a.csv"), range(1, N + 1))


def test_one_column_of_labels_is_truth_and_others_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    frame(NUMBERS).assign(cluster=0, **{"class": ["x", "y"] * 6}, label=1).to_csv(path)
    for labels, kinds in ((None, {1}), ("class", {"x", "y"})):
        found = read(path, labels=labels)
        assert is_right(found, NUMBERS)
        assert set(found[1].labels) == kinds
        assert any("'cluster'" in note for note in found[1].notes)


@pytest.mark.parametrize(
    "options",
    [
        *({"decimal": ";"}, {"skip": -1}, {"comment": ""}, {"delimiter": ";;"}, {"max_bytes": 0}),
        {"samples_in": "both"},
    ],
)
def test_options_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Source("a.csv", **options)


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("id;a;b\np;1,234;5\nq;5,678;6\n", "--decimal"),
        ('id,a,b\np,"1,234.5",2\nq,"2,345.5",4\n', "1000.5"),
        ("a,b\np,1,\nq,2,\n", "header"),
        ("id;x;y\np;1 100;0,5\nq;1 200;1,5\nr;1 300;2,5\n", "1 100"),
        ("id^x\np^1\nq^2\n", "--delimiter"),
        ("i\0d\0,\0a\0\n\0p\0,\0001\0\n", "UTF-16"),
        ("id,a,\np,1,\nq,2,\n" + "r,3,\n" * 60 + "s,1,7\n", "'7'"),
    ],
)
def test_what_cannot_be_told_is_refused(tmp_path: Path, text: str, quoted: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=quoted):
        read(path)


def test_sheets_are_views(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    ids = [f"{number:06d}" for number in NUMBERS]
    with pd.ExcelWriter(tmp_path / "book.xlsx") as book:
        frame(ids).to_excel(book, sheet_name="rna")
        frame(ids, "id", "b").iloc[::-1].to_excel(book, sheet_name="protein", startrow=2)
        pd.DataFrame().to_excel(book, sheet_name="empty")
    report = ingest(tmp_path / "book.xlsx", tmp_path / "s.zarr")
    assert open_store(report.output).sample_ids == tuple(ids)
    assert list(stored(report)) == ["rna", "protein"]
    for found in stored(report).values():
        np.testing.assert_array_equal(found, VALUES)
    one = ingest(tmp_path / "book.xlsx", tmp_path / "one.zarr", views=["protein"])
    assert list(stored(one)) == ["protein"]
    frame(ids).to_excel(tmp_path / "single.xlsx")
    values, loaded = read(tmp_path / "single.xlsx")
    assert (list(values), loaded.sample_ids) == (["single"], tuple(ids))
    (tmp_path / "a.xlsx").write_bytes(b"PK\x03\x04 no workbook")
    with pytest.raises(DataError):
        read(tmp_path / "a.xlsx")


def test_a_store_keeps_what_was_decided(tmp_path: Path) -> None:
    table = frame(NUMBERS).assign(label=[1, 2] * 6)
    table.to_csv(tmp_path / "a.csv")
    report = ingest(tmp_path / "a.csv", tmp_path / "s.zarr")
    (row,) = read_origin(report.output)
    assert row == dict(report.origin[0])
    assert (row["source"], row["missing cells"]) == ("a.csv", "0")
    assert "'id'" in row["sample ids"]
    assert "'label'" in row["labels"]
    table.set_axis([f"n{i}" for i in range(N)]).rename_axis("id").to_csv(tmp_path / "a.csv")
    assert len(append(tmp_path / "a.csv", report.output).origin) == 2
    done = CliRunner().invoke(main, ["describe", str(report.output)])
    assert "comma, header" in done.output


def test_a_first_column_of_numbers_and_marks_is_no_id(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    np.savetxt(path, VALUES, fmt="%.4f", footer="x y", comments="# ")
    with pytest.raises(DataError):
        read(path)
    assert is_right(read(Source(path, comment="#")), None)


def test_a_sample_with_the_usual_values_of_columns_that_hardly_vary_is_one(tmp_path: Path) -> None:
    """Where too few columns vary to tell a row of means."""
    whole = pd.DataFrame(1.5, index=[f"s{row}" for row in range(40)], columns=[*"abc"])
    whole.iloc[-2:, 0] = 5.1e16, -4.7e16
    whole.to_csv(tmp_path / "a.csv", index_label="id")
    assert read(tmp_path / "a.csv")[1].sample_ids == tuple(whole.index)


@pytest.mark.parametrize(
    ("name", "footer"),
    [
        ("Total", np.nansum),
        ("Sum", lambda x, axis: np.append(np.nansum(x[:, :2], axis=axis), np.nan)),
        ("Mean:", lambda x, axis: np.nanmean(x, axis=axis).round(3)),
    ],
)
def test_a_footer_is_no_sample(tmp_path: Path, name: str, footer: Any) -> None:
    path, above = tmp_path / "a.csv", frame([f"s{i}" for i in range(N)]) + 10
    above.iloc[2, 1] = np.nan
    whole = pd.concat([above, frame([name, *"bcdefghijkl"])[:1]])
    whole.iloc[-1] = footer(above.to_numpy(), axis=0)
    whole.to_csv(path, index_label="id")
    with pytest.raises(DataError, match="is no sample"):
        read(path)
    whole.iloc[-1, 1] += 1 + abs(whole.iloc[-1, 1])  # a sample of this name
    whole.to_csv(path, index_label="id")
    _, loaded = read(path)
    assert loaded.sample_ids == tuple(whole.index)
    assert any(repr(name) in note for note in loaded.notes)
