"""Roles of columns, options of tables, workbooks, and what the store keeps of these decisions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from mscam_dask.cli import main
from mscam_dask.data.ingest import Source, append, ingest
from mscam_dask.data.readers.base import Selection, SourceContents
from mscam_dask.data.readers.registry import read_source, read_sources
from mscam_dask.data.readers.roles import id_strength
from mscam_dask.data.store.read import open_store, read_origin
from mscam_dask.errors import ConfigurationError, DataError
from tests.data.ingested import stored
from tests.messages import quotes

N = 12
VALUES = np.random.default_rng(0).normal(size=(N, 3)).round(4)
NUMBERS = [int(number) for number in np.random.default_rng(1).permutation(N) * 37 + 5012]


def frame(ids: Sequence[Any], name: str = "id", prefix: str = "a") -> pd.DataFrame:
    columns = [f"{prefix}{column}" for column in range(3)]
    return pd.DataFrame(VALUES, pd.Index(ids, name=name), columns)


def read(*sources: Path | Source, **selection: Any) -> list[SourceContents]:
    files = [item if isinstance(item, Source) else Source(item) for item in sources]
    with ExitStack() as stack:
        return read_sources(files, Selection(**selection), stack)


def values(loaded: SourceContents) -> Any:
    (view,) = loaded.views
    return view.read(0, view.shape[0])


# ----------------------------------------------------------------------------- ids


@pytest.mark.parametrize(
    ("name", "strength"),
    [
        *((name, 3) for name in ("", "eid", "IID", "Patient ID", "PATIENTID", "Unnamed: 0", "MRN")),
        *((name, 1) for name in ("sample_no", "case", "record", "group_id", "GroupID", "name")),
        *((name, 0) for name in ("acid", "GRID", "Humid", "age", "x", "n_genes", "order of visit")),
        ("FID", 2),
    ],
)
def test_names_of_ids(name: str, strength: int) -> None:
    assert id_strength(name) == strength


@pytest.mark.parametrize("form", ["{}", "{}.0"])
def test_numbers_that_two_files_share_are_ids_whatever_their_name(
    tmp_path: Path, form: str
) -> None:
    ids = [form.format(number) for number in NUMBERS]
    frame(ids, "qqq").to_csv(tmp_path / "a.csv")
    frame(ids, "qqq", "b").iloc[::-1].to_csv(tmp_path / "b.csv")
    first, second = read(tmp_path / "a.csv", tmp_path / "b.csv")
    assert first.sample_ids == tuple(ids)
    assert second.sample_ids == tuple(ids[::-1])
    np.testing.assert_array_equal(values(second), VALUES[::-1])


def test_an_unclear_column_is_asked_for_with_two_ways_to_answer(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    frame(NUMBERS, "my number").to_csv(path)
    with pytest.raises(DataError, match=quotes(path, "--id-column 'my number'", "id_column=False")):
        read(path)
    (named,) = read(Source(path, id_column="my number"))
    assert named.sample_ids == tuple(map(str, NUMBERS))
    (none,) = read(Source(path, id_column=False))
    assert none.sample_ids is None
    np.testing.assert_array_equal(values(none), np.c_[NUMBERS, VALUES])
    done = CliRunner().invoke(
        main, ["ingest", str(path), "-o", str(tmp_path / "s.zarr"), "--id-column", "none"]
    )
    assert done.exit_code == 0, done.output
    assert open_store(tmp_path / "s.zarr").sample_ids is None


def test_consecutive_numbers_are_ids(tmp_path: Path) -> None:
    frame(range(1, N + 1), "number of visit").to_csv(tmp_path / "a.csv")
    (loaded,) = read(tmp_path / "a.csv")
    assert loaded.sample_ids == tuple(map(str, range(1, N + 1)))


def test_counts_are_no_ids(tmp_path: Path) -> None:
    counts = np.random.default_rng(0).permuted(np.tile(np.arange(N) * 7 + 3, (4, 1)), axis=1).T
    pd.DataFrame(counts).add_prefix("area").to_csv(tmp_path / "a.csv", index=False)
    (loaded,) = read(tmp_path / "a.csv")
    assert loaded.sample_ids is None
    np.testing.assert_array_equal(values(loaded), counts)


@pytest.mark.parametrize("other", [[1] * N, list(range(900, 900 + N)), [f"F{i}" for i in range(N)]])
def test_families_of_plink_are_no_features(tmp_path: Path, other: list[Any]) -> None:
    table = frame(NUMBERS, "IID").reset_index()
    table.insert(0, "FID", other)
    table.to_csv(tmp_path / "a.txt", sep=" ", index=False)
    (loaded,) = read(tmp_path / "a.txt")
    assert loaded.sample_ids == tuple(map(str, NUMBERS))
    np.testing.assert_array_equal(values(loaded), VALUES)
    assert any("'FID'" in note for note in loaded.notes)


def test_row_numbers_are_no_ids_beside_ids(tmp_path: Path) -> None:
    frame(NUMBERS, "eid").reset_index().to_csv(tmp_path / "a.csv")
    (loaded,) = read(tmp_path / "a.csv")
    assert loaded.sample_ids == tuple(map(str, NUMBERS))
    np.testing.assert_array_equal(values(loaded), VALUES)


# ----------------------------------------------------------------------------- labels


def test_one_column_of_labels_is_truth_and_others_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    frame(NUMBERS).assign(cluster=0, **{"class": ["x", "y"] * 6}, label=1).to_csv(path)
    (loaded,) = read(path)
    assert loaded.labels is not None
    assert set(loaded.labels) == {1}
    np.testing.assert_array_equal(values(loaded), VALUES)
    assert any("'cluster'" in note and "'class'" in note for note in loaded.notes)
    (loaded,) = read(path, labels="class")
    assert loaded.labels is not None
    assert set(loaded.labels) == {"x", "y"}
    np.testing.assert_array_equal(values(loaded), VALUES)


# ----------------------------------------------------------------------------- dialects and options


@pytest.mark.parametrize(
    ("write", "options"),
    [
        ({"sep": ";", "decimal": ","}, {}),
        ({"sep": "\t", "decimal": ","}, {"decimal": ","}),
        ({"sep": "|"}, {"delimiter": "|"}),
        ({"encoding": "utf-16"}, {}),
        ({"lineterminator": "\r"}, {}),
        ({"quoting": 1}, {}),
        ({}, {"samples_in": "rows"}),
    ],
)
@pytest.mark.parametrize("above", ["", "% one, two\n% three\n", "a title\n\n"])
def test_a_table_is_the_same_in_every_dialect(
    tmp_path: Path, write: dict[str, Any], options: dict[str, Any], above: str
) -> None:
    path = tmp_path / "a.csv"
    text = frame(NUMBERS).to_csv(**{**write, "encoding": None})
    path.write_text(above + text, encoding=write.get("encoding", "utf-8"), newline="")
    if above:
        options = {**options, **({"comment": "%"} if "%" in above else {"skip": 2})}
    (loaded,) = read(Source(path, **options))
    assert loaded.sample_ids == tuple(map(str, NUMBERS))
    np.testing.assert_array_equal(values(loaded), VALUES)


@pytest.mark.parametrize("suffix", [".bz2", ".xz"])
def test_other_compressions(tmp_path: Path, suffix: str) -> None:
    frame(NUMBERS).to_csv(tmp_path / f"a.csv{suffix}")
    (loaded,) = read(tmp_path / f"a.csv{suffix}")
    np.testing.assert_array_equal(values(loaded), VALUES)


@pytest.mark.parametrize("options", [{"decimal": ";"}, {"skip": -1}, {"comment": ""}])
def test_options_out_of_range(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=quotes(next(iter(options.values())))):
        Source(tmp_path / "a.csv", **options)


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("id;a;b\np;1,234;5\nq;5,678;6\n", ["'1,234'", "--decimal"]),
        ('id,a,b\np,"1,234.5",2\nq,"2,345.5",4\n', ["'1,234.5'", "1000.5"]),
        ("a,b\np,1,\nq,2,\n", ["header"]),
        ("id,a,\np,1,\nq,2,\n" + "r,3,\n" * 60 + "s,1,7\n", ["'7'"]),
        ("x\0y,1\n", ["NUL"]),
    ],
)
def test_what_cannot_be_told_is_refused(tmp_path: Path, text: str, quoted: list[str]) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=quotes(path, *quoted)):
        read(path)


# ----------------------------------------------------------------------------- workbooks


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
    with ExitStack() as stack:
        loaded = read_source(Source(tmp_path / "single.xlsx"), Selection(), stack)
    assert loaded.views[0].name == "single"
    assert loaded.sample_ids == tuple(ids)


def test_a_damaged_workbook(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").write_bytes(b"PK\x03\x04 no workbook")
    with pytest.raises(DataError, match=quotes("a.xlsx")):
        read(tmp_path / "a.xlsx")


# ----------------------------------------------------------------------------- origin


def test_a_store_keeps_what_was_decided(tmp_path: Path) -> None:
    table = frame(NUMBERS).assign(label=[1, 2] * 6)
    table.to_csv(tmp_path / "a.csv")
    report = ingest(tmp_path / "a.csv", tmp_path / "s.zarr")
    (row,) = read_origin(report.output)
    assert row == dict(report.origin[0])
    assert row["source"] == "a.csv"
    assert "'id'" in row["sample ids"]
    assert "'label'" in row["labels"]
    assert row["missing cells"] == "0"
    table.set_axis([f"n{i}" for i in range(N)]).rename_axis("id").to_csv(tmp_path / "a.csv")
    assert len(append(tmp_path / "a.csv", report.output).origin) == 2
    done = CliRunner().invoke(main, ["describe", str(report.output)])
    assert "comma, header" in done.output


@pytest.mark.parametrize("cell", ["${}", "{} mg", "<{}", "20 {}"])
def test_amounts_are_neither_ids_nor_left_out(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "a.csv"
    frame(NUMBERS).assign(a1=[cell.format(row + 0.5) for row in range(N)]).to_csv(path)
    with pytest.raises(DataError, match=quotes(path, "'a1'")):
        read(path)


def test_a_first_column_of_numbers_and_marks_is_no_id(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    np.savetxt(path, VALUES, fmt="%.4f", footer="x y", comments="# ")
    with pytest.raises(DataError, match=quotes(path, "'#'")):
        read(path)
    (loaded,) = read(Source(path, comment="#"))
    np.testing.assert_array_equal(values(loaded), VALUES)


@pytest.mark.parametrize(
    ("name", "footer"),
    [
        ("Total", np.nansum),
        ("Sum", lambda x, axis: np.append(np.nansum(x[:, :2], axis=axis), np.nan)),
        ("Mean:", lambda x, axis: np.nanmean(x, axis=axis).round(3)),
    ],
)
def test_a_footer_is_no_sample(tmp_path: Path, name: str, footer: Any) -> None:
    above = frame([f"s{i}" for i in range(N)]) + 10
    above.iloc[2, 1] = np.nan
    whole = pd.concat([above, frame([name, *"bcdefghijkl"])[:1]])
    whole.iloc[-1] = footer(above.to_numpy(), axis=0)
    for is_footer in (True, False):
        if not is_footer:  # a sample of this name
            whole.iloc[-1, 1] += 1 + abs(whole.iloc[-1, 1])
        whole.to_csv(tmp_path / "a.csv", index_label="id")
        if is_footer:
            with pytest.raises(DataError, match=rf"a\.csv: the last row, '{name}', is no sample"):
                read(tmp_path / "a.csv")
        else:
            (loaded,) = read(tmp_path / "a.csv")
            assert loaded.sample_ids == tuple(whole.index)
            assert any(repr(name) in note for note in loaded.notes)
