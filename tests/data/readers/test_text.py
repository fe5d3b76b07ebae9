"""Text tables: the numbers as written, header and ids found or told."""

from __future__ import annotations

import gzip
import re
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from mscam_dask.data.ingest import ingest
from mscam_dask.data.readers.base import Selection, Source, SourceContents
from mscam_dask.data.readers.labels import read_labels
from mscam_dask.data.readers.registry import read_source
from mscam_dask.data.store.read import open_store
from mscam_dask.errors import ConfigurationError, DataError
from tests.messages import quotes

VALUES = [[1.5, 2.0], [-3.0, 4e-5], [0.0, 6.0]]


def read(source: Path | Source, **selection: Any) -> SourceContents:
    with ExitStack() as stack:
        given = source if isinstance(source, Source) else Source(source)
        return read_source(given, Selection(**selection), stack)


def write(folder: Path, text: str, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def table(loaded: SourceContents) -> list[list[float]]:
    (view,) = loaded.views
    rows: list[list[float]] = view.read(0, view.shape[0]).tolist()
    return rows


def names_of(loaded: SourceContents) -> tuple[str, ...] | None:
    (view,) = loaded.views
    names: tuple[str, ...] | None = getattr(view, "feature_names", None)
    return names


finite = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=6),
    elements=st.floats(allow_nan=False, allow_infinity=False),
)


@settings(max_examples=40)
@given(values=finite, delimiter=st.sampled_from([",", "\t", " ", "   "]), header=st.booleans())
def test_numbers_come_back_to_the_last_bit(
    values: NDArray[np.float64], delimiter: str, header: bool
) -> None:
    suffix = {",": ".csv", "\t": ".tsv"}.get(delimiter, ".txt")
    lines = [delimiter.join(repr(float(value)) for value in row) for row in values]
    if header:
        lines.insert(0, delimiter.join(f"f{column}" for column in range(values.shape[1])))
    with tempfile.TemporaryDirectory() as folder:
        loaded = read(write(Path(folder), "\n".join(lines) + "\n", f"t{suffix}"))
    assert loaded.views[0].name == "t"
    np.testing.assert_array_equal(np.array(table(loaded)), values)
    assert loaded.sample_ids is None


@settings(max_examples=25)
@given(
    values=finite,
    ids=st.lists(st.text('abc ,"é', min_size=1), min_size=6, max_size=6, unique_by=str.strip),
    named=st.booleans(),
)
def test_csv_of_a_frame_comes_back_with_its_index(
    values: NDArray[np.float64], ids: list[str], named: bool
) -> None:
    index = [f"s{item}" for item in ids[: len(values)]]
    frame = pd.DataFrame(values, index=index).rename_axis("id" if named else None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        frame.to_csv(path)
        loaded = read(path)
    np.testing.assert_array_equal(np.array(table(loaded)), values)
    assert loaded.sample_ids == tuple(item.strip() for item in index)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("1.5,2\n-3,4e-5\n0,6\n", None),
        ("a,b\n1.5,2\n-3,4e-5\n0,6\n", None),
        ("﻿a,b\r\n1.5,2\r\n-3,4e-5\r\n0,6\r\n", None),
        ("\n1.5,2\n\n-3,4e-5\n0,6", None),
        ("id,a,b\n7,1.5,2\n8,-3,4e-5\n9,0,6\n", ("7", "8", "9")),
        ("Sample,a,b\n07,1.5,2\n08,-3,4e-5\n09,0,6\n", ("07", "08", "09")),
        (",0,1\n7,1.5,2\n8,-3,4e-5\n9,0,6\n", ("7", "8", "9")),
        ("p,1.5,2\nq,-3,4e-5\nNA,0,6\n", ("p", "q", "NA")),
        ("gene,1,2\np,1.5,2\nq,-3,4e-5\nr,0,6\n", None),
        ('"id","a","b"\n"x, y",1.5,2\nq,-3,4e-5\nr,0,6\n', ("x, y", "q", "r")),
    ],
    ids=str.split("bare header bom blank id padded unnamed textual gene quoted"),
)
def test_header_and_ids_are_found(tmp_path: Path, text: str, ids: tuple[str, ...] | None) -> None:
    path = write(tmp_path, text)
    if text.startswith("gene"):
        # A heading over text and columns named by numbers cannot be told from a row of data.
        loaded = read(Source(path, header=True))
        ids = ("p", "q", "r")
    else:
        loaded = read(path)
    assert table(loaded) == VALUES
    assert loaded.sample_ids == ids


@pytest.mark.parametrize(
    ("text", "name", "ids"),
    [
        ("0,1,2\n1.5,2,0\n-3,4e-5,0\n0,6,0\n", "t.csv", None),
        ("0 1 2\n1.5 2 0\n-3 4e-5 0\n0 6 0\n", "t.txt", None),
        ("gene,2019,2020,2021\np,1.5,2,0\nq,-3,4e-5,0\nr,0,6,0\n", "t.csv", ("p", "q", "r")),
    ],
    ids=["columns of a frame", "white space", "years"],
)
def test_a_first_line_that_numbers_the_columns_is_no_sample(
    tmp_path: Path, text: str, name: str, ids: tuple[str, ...] | None
) -> None:
    loaded = read(write(tmp_path, text, name))
    assert table(loaded) == [[*row, 0] for row in VALUES]
    assert loaded.sample_ids == ids
    assert any("--no-header" in note for note in loaded.notes)
    assert len(table(read(Source(tmp_path / name, header=False)))) == len(VALUES) + 1


@pytest.mark.parametrize(
    "text",
    ["0,1,2\n1,0,2\n", "2019,2020,2021\n0.5,1,2\n", "gene,0,1,2\np,1,0,2\n"],
    ids=["columns or counts", "years or a sample", "behind ids"],
)
def test_a_first_line_that_may_be_a_sample_has_to_be_told(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    quoted = [text.splitlines()[0], "header=True", "header=False", "--header", "--no-header"]
    with pytest.raises(DataError, match=quotes(path, *quoted)):
        read(path)
    for header in (True, False):
        assert len(table(read(Source(path, header=header)))) == 2 - header


@pytest.mark.parametrize(
    ("text", "has_note"),
    [
        ("gene,1,2\np,1.5,2\n", True),
        ("p,1.5,2\nq,3,4\n", True),
        ("2019,2024\n0.5,1\n", True),
        ("0,1\n1,0\n", False),
        ("3,4,5\n6,7,8\n", False),
        ("0\n1.5\n", False),
        ("1.5,2\n3,4\n", False),
    ],
)
def test_a_first_line_taken_as_a_sample_is_told_where_it_may_be_none(
    tmp_path: Path, text: str, has_note: bool
) -> None:
    loaded = read(write(tmp_path, text))
    assert len(table(loaded)) == 2
    assert any("--header" in note for note in loaded.notes) == has_note
    told = read(Source(tmp_path / "table.csv", header=False))
    assert not any("--header" in note for note in told.notes)


@pytest.mark.parametrize("delimiter", [",", " "])
def test_the_heading_of_numpy_names_the_columns(tmp_path: Path, delimiter: str) -> None:
    path = tmp_path / {",": "t.csv", " ": "t.txt"}[delimiter]
    np.savetxt(path, VALUES, delimiter=delimiter, header=delimiter.join("pq"))
    loaded = read(path)
    assert table(loaded) == VALUES
    assert names_of(loaded) == ("p", "q")
    labelled = np.column_stack([[1, 2, 1], VALUES])
    np.savetxt(path, labelled, delimiter=delimiter, header=delimiter.join(["label", "p", "q"]))
    loaded = read(path)
    assert table(loaded) == VALUES
    assert names_of(loaded) == ("p", "q")


@pytest.mark.parametrize("name", ["one.csv", "one.txt"])
@pytest.mark.parametrize("heading", ["", "h\n"])
@pytest.mark.parametrize("values", [[1.5, None, 3.0], [None, 2.0, 3.0], [1.5, None, None, 3.0]])
def test_a_blank_line_among_single_values_is_a_missing_one(
    tmp_path: Path, name: str, heading: str, values: list[float | None]
) -> None:
    lines = ["" if value is None else repr(value) for value in values]
    loaded = read(write(tmp_path, heading + "\n".join(lines) + "\n\n \n", name))
    expected = [[np.nan if value is None else value] for value in values]
    np.testing.assert_array_equal(table(loaded), expected)


@pytest.mark.parametrize(
    "labels",
    [
        ["T cell", "B cell", "T cell"] * 2,
        ["T cell", "NK", "NK", "T cell"],
        ["donor 1", "donor 2"] * 3,
        ["T cell", "B cell", "T cell"],
    ],
)
@pytest.mark.parametrize("heading", ["", "label\n"])
def test_a_line_of_several_words_is_one_label(
    tmp_path: Path, labels: list[str], heading: str
) -> None:
    values, ids = read_labels(write(tmp_path, heading + "\n".join(labels), "labels.txt"))
    assert (values.tolist(), ids) == (labels, None)


@pytest.mark.parametrize("missing", ["", "NA", "nan", " null "])
@pytest.mark.parametrize("classes", [("1", "2"), ("x", "y")])
def test_missing_labels_are_no_class(
    tmp_path: Path, missing: str, classes: tuple[str, str]
) -> None:
    labels = [classes[0], missing, classes[1], missing, classes[0]]
    rows = "".join(f"{row},{label},{row * row}\n" for row, label in enumerate(labels))
    frame, vector = tmp_path / "table.csv", tmp_path / "labels.txt"
    write(tmp_path, "a,label,b\n" + rows)
    write(tmp_path, "\n".join(labels) + "\n\n", vector.name)
    first_of_2_in_row_1 = quotes(2, repr(missing.strip()), 1, -1)
    for reading, path in ((read, frame), (read_labels, vector)):
        with pytest.raises(DataError, match=quotes(path)) as caught:
            reading(path)
        assert re.match(first_of_2_in_row_1, str(caught.value).replace(str(path), ""))


@pytest.mark.parametrize(
    ("name", "numbers", "is_id"),
    [
        *(
            (name, "3,1,2", True)
            for name in ("PatientID", "patient_id", "sampleId", "cell id", "uuid")
        ),
        *((name, "3,1,2", False) for name in ("acid", "GRID", "Humid", "idle")),
        *(("group_id", numbers, False) for numbers in ("1,1,2", "1.5,2,3", "-1,2,3")),
    ],
)
def test_a_first_column_called_as_ids_are_is_no_feature(
    tmp_path: Path, name: str, numbers: str, is_id: bool
) -> None:
    rows = [f"{number},1.5,7" for number in numbers.split(",")]
    path = write(tmp_path, "\n".join([f"{name},a,b", *rows]) + "\n")
    loaded = read(path)
    assert names_of(loaded) == (("a", "b") if is_id else (name, "a", "b"))
    assert loaded.sample_ids == (tuple(numbers.split(",")) if is_id else None)
    notes = [note for note in loaded.notes if re.match(quotes(path, repr(name)), note)]
    assert len(notes) == (is_id or numbers in ("1,1,2", "-1,2,3"))
    assert any("--id-column" in note for note in notes) == (numbers in ("1,1,2", "-1,2,3"))


def test_told_header_and_id_column(tmp_path: Path) -> None:
    path = write(tmp_path, "0,1,2\n1.5,p,2\n-3,q,4e-5\n0,r,6\n")
    for id_column in (1, "1"):
        loaded = read(Source(path, header=True, id_column=id_column))
        assert table(loaded) == VALUES
        assert loaded.sample_ids == ("p", "q", "r")
        assert "'1'" in loaded.notes[0]
    with pytest.raises(ConfigurationError, match=quotes("id_column='x'", path, ["0", "1", "2"])):
        read(Source(path, header=True, id_column="x"))
    with pytest.raises(ConfigurationError, match=quotes("id_column=3", path, 0, 2)):
        read(Source(path, header=True, id_column=3))


def test_told_delimiter(tmp_path: Path) -> None:
    path = write(tmp_path, "1.5;2\n-3;4e-5\n0;6\n")
    assert table(read(Source(path, delimiter=";"))) == VALUES
    with pytest.raises(ConfigurationError, match=quotes("delimiter=';;'", path)):
        read(Source(path, delimiter=";;"))


def test_label_column_is_never_a_feature(tmp_path: Path) -> None:
    path = write(tmp_path, "id,a,class,b\np,1.5,x,2\nq,-3,y,4e-5\nr,0,x,6\n")
    loaded = read(path)
    assert table(loaded) == VALUES
    assert loaded.labels is not None
    assert loaded.labels.tolist() == ["x", "y", "x"]
    assert not loaded.labels_explicit
    assert any("'class'" in note for note in loaded.notes)
    chosen = write(tmp_path, "a,grade,b\n1.5,1,2\n-3,2,4e-5\n0,1,6\n", "g.csv")
    loaded = read(chosen, labels="grade")
    assert table(loaded) == VALUES
    assert loaded.labels_explicit
    assert loaded.labels is not None
    assert loaded.labels.tolist() == [1, 2, 1]


def test_samples_on_columns_are_known_by_the_header(tmp_path: Path) -> None:
    path = write(tmp_path, "gene,s2,label,s3\nA,1.5,-3,0\nB,2,4e-5,6\n")
    loaded = read(Source(path, samples_in="columns"))
    assert table(loaded) == VALUES
    assert loaded.sample_ids == ("s2", "label", "s3")
    assert names_of(loaded) == ("A", "B")
    assert loaded.labels is None
    of_column, of_line = loaded.notes
    assert re.match(quotes(path, "'gene'"), of_column)
    assert str(path) in of_line
    bare = write(tmp_path, "1.5,-3,0\n2,4e-5,6\n", "bare.csv")
    loaded = read(Source(bare, samples_in="columns"))
    assert table(loaded) == VALUES
    assert loaded.sample_ids is names_of(loaded) is None
    numbered = write(tmp_path, "gene,7,5,9\nA,1.5,-3,0\nB,2,4e-5,6\n", "numbered.csv")
    loaded = read(Source(numbered, samples_in="columns"))
    assert loaded.sample_ids == ("7", "5", "9")


@pytest.mark.parametrize("name", ["gt", "Truth", "truelabel", "gnd", "ground_truth"])
def test_names_of_truth_are_those_of_arrays(tmp_path: Path, name: str) -> None:
    loaded = read(write(tmp_path, f"a,{name},y\n1.5,1,2\n-3,2,4e-5\n0,1,6\n"))
    assert table(loaded) == VALUES
    assert loaded.labels is not None


@pytest.mark.parametrize("name", ["Class", "grade"])
@pytest.mark.parametrize("grades", ["x,y,x", "1,2,1"])
def test_label_row_is_never_a_feature(tmp_path: Path, name: str, grades: str) -> None:
    path = write(tmp_path, f"id,p,q,r\nA,1.5,-3,0\n{name},{grades}\nB,2,4e-5,6\n")
    source = Source(path, samples_in="columns")
    loaded = read(source, labels="grade") if name == "grade" else read(source)
    assert table(loaded) == VALUES
    assert names_of(loaded) == ("A", "B")
    assert loaded.labels is not None
    assert [str(item).removesuffix(".0") for item in loaded.labels] == grades.split(",")
    assert loaded.labels_explicit == (name == "grade")
    assert any(re.match(quotes(path, repr(name)), note) for note in loaded.notes)


def test_the_uci_form_is_read_from_a_file_without_ending(tmp_path: Path) -> None:
    path = write(tmp_path, "  1.5   2.0\n -3.0   4e-05\n  0.0   6.0\n", "mfeat-fou")
    loaded = read(path)
    assert table(loaded) == VALUES
    assert loaded.views[0].name == "mfeat-fou"


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("", []),
        ("\n\n", []),
        ("a,b\n1,2\n3,?\n5,6\n", ["'b'", 1, "'?'"]),
        ("a,b\n1,2\n3,4,5\n", [1, 3, 2]),
        ("1,2\n3,4,5\n", [1, 3, 2]),
        ("a,b\n", []),
        ("a,b\n3,1+2j\n4,5\n", ["'b'", 0, "'1+2j'"]),
        ("a,b\n3,1_000\n4,2_000\n", ["'b'", 0, "'1_000'"]),
        ("id,class\np,1\n", []),
        ('id,a,b\np,"1,5",2\nq,3,4\n', ["'1,5'", "1000.5"]),
    ],
    ids=[
        "empty",
        "blank",
        "question mark",
        "ragged",
        "ragged bare",
        "header only",
        "complex",
        "underscore",
        "no features",
        "decimal commas",
    ],
)
def test_what_is_no_table_of_numbers_is_refused(
    tmp_path: Path, text: str, quoted: list[object]
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(DataError, match=quotes(path)) as caught:
        read(path)
    assert re.match(quotes(*quoted), str(caught.value).replace(str(path), ""))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.dat"
    path.write_bytes(b"\xff\x01\x9c" * 30)
    with pytest.raises(DataError, match=quotes(path, "0xff")):
        read(path)
    path.write_text("größe\n1\n", encoding="latin1")
    for reading in (read, read_labels):
        with pytest.raises(DataError, match=quotes(path, "0xf6", "UTF-8", "iconv -f latin1")):
            reading(path)


def packed(content: bytes, suffix: str) -> bytes:
    if suffix == ".gz":
        return gzip.compress(content)
    pa = pytest.importorskip("pyarrow")
    return bytes(pa.compress(content, codec="zstd", asbytes=True))


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize(("name", "delimiter"), [("a.csv", ","), ("a.tsv", "\t"), ("a.txt", " ")])
def test_compressed_text_is_read_as_the_text_is(
    tmp_path: Path, name: str, delimiter: str, suffix: str
) -> None:
    text = "".join(delimiter.join((f"s{i}", str(i), str(i * i / 7))) + "\n" for i in range(5))
    (tmp_path / name).write_text(text)
    (tmp_path / f"{name}{suffix}").write_bytes(packed(text.encode(), suffix))
    plain = ingest(tmp_path / name, tmp_path / "plain.zarr")
    zipped = ingest(tmp_path / f"{name}{suffix}", tmp_path / "zipped.zarr")
    assert zipped.digest == plain.digest
    assert [view.name for view in zipped.views] == ["a"]
    assert open_store(zipped.output).sample_ids == tuple(f"s{i}" for i in range(5))


def test_gzipped_labels(tmp_path: Path) -> None:
    (tmp_path / "y.csv.gz").write_bytes(gzip.compress(b"id,label\nb,1\na,0\n"))
    values, ids = read_labels(tmp_path / "y.csv.gz")
    assert (values.tolist(), ids) == ([1.0, 0.0], ("b", "a"))


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_what_unpacks_to_more_than_the_limit_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.csv{suffix}"
    path.write_bytes(packed(b"1,2\n" * 10**6, suffix))
    with pytest.raises(DataError, match=quotes(path, 10**6, "max_bytes")):
        ingest(Source(path, max_bytes=10**6), tmp_path / "s.zarr")


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_damaged_compressed_text(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.csv{suffix}"
    path.write_bytes(packed(b"1,2\n" * 100, suffix)[:-9])
    with pytest.raises(DataError, match=quotes(path)):
        ingest(path, tmp_path / "s.zarr")


def test_without_pyarrow_zst_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.csv.zst"
    path.write_bytes(packed(b"1,2\n", ".zst"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=quotes(path, "mscam-dask[parquet]")):
        ingest(path, tmp_path / "s.zarr")


@pytest.mark.parametrize("quote", ['"', ""])
def test_a_field_of_a_million_characters_is_refused(tmp_path: Path, quote: str) -> None:
    path = write(tmp_path, f"a,b\n{quote}{'x' * 1_000_000}{quote},1\n")
    with pytest.raises(DataError, match=r"table\.csv"):
        read(path)
