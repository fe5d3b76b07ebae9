"""Text tables: the numbers as written, header and ids found or told."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import tempfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mscam_dask.data.ingest import ingest
from mscam_dask.data.readers.base import Source, SourceContents
from mscam_dask.data.readers.combine import labels_of_file
from mscam_dask.data.readers.dialect import fields_of, is_blank
from mscam_dask.data.readers.registry import table_of
from mscam_dask.errors import DataError
from tests.data.ingested import read
from tests.messages import raises

VALUES = [[1.5, 2.0], [-3.0, 4e-5], [0.0, 6.0]]


def write(folder: Path, text: str, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def table(source: Path | Source, **selection: Any) -> tuple[list[list[float]], SourceContents]:
    values, loaded = read(source, **selection)
    (rows,) = values.values()
    return rows.tolist(), loaded


def names_of(loaded: SourceContents) -> Any:
    return getattr(loaded.views[0], "feature_names", None)


@pytest.mark.parametrize("mark", [",", " "])
def test_a_first_line_that_numbers_the_columns_is_no_sample(tmp_path: Path, mark: str) -> None:
    """Of a frame without names of columns."""
    path = write(tmp_path, "0,1,2\n1.5,2,0\n-3,4e-5,0\n0,6,0\n".replace(",", mark))
    found, loaded = table(path)
    assert found == [[*row, 0] for row in VALUES]
    assert loaded.sample_ids is None
    assert any("--no-header" in note for note in loaded.notes)
    assert len(table(Source(path, header=False))[0]) == len(VALUES) + 1
    assert table_of(Source(write(tmp_path, "0,1,2\n1.5,2,x\n-3,4e-5,y\n"))).has_header


@pytest.mark.parametrize(
    "text",
    [
        "0,1,2\n1,0,2\n",
        "2019,2020,2021\n0.5,1,2\n",
        "gene,0,1,2\np,1,0,2\n",
        "gene,2019,2020,2021\np,1.5,2,0\n",
        "p0,q0,5,7,9\np,q,1,2,3\n",
        "gene,2019,2020,2021\np,NA,NA,NA\nq,0.5,0,1\nr,1,2,3\n",
    ],
    ids=[
        "columns or counts",
        "years or a sample",
        "behind ids",
        "above zeros",
        "above text",
        "above NA",
    ],
)
def test_a_first_line_that_may_be_a_sample_has_to_be_told(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(DataError, match="--no-header"):
        read(path)
    for header in (True, False):
        assert len(table(Source(path, header=header))[0]) == text.count("\n") - header


def test_a_title_beside_empty_cells_above_numbers_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "Table S1,,\n2000,2001,2002\n1.5,2.5,7\n2.5,1.5,8\n")
    with raises(DataError, "Table S1", "--skip 1", "--no-header"):
        table_of(Source(path))


@pytest.mark.parametrize("below", ["5.5,7", "5,7", "u,v"])
def test_an_empty_name_above_an_index_is_a_header(tmp_path: Path, below: str) -> None:
    """Numbers of a frame without names of columns; others may be a sample without its first value."""
    path = write(tmp_path, f",0,1\n0,{below}\n1,{below}\n")
    assert table_of(Source(path)).has_header
    path = write(tmp_path, f",3,9\n0,{below}\n1,{below}\n")
    if below == "5.5,7":
        assert table_of(Source(path)).has_header
    else:
        with raises(DataError, ",3,9", "--header", "--no-header"):
            table_of(Source(path))


@pytest.mark.parametrize(
    ("text", "has_note"),
    [
        ("gene,1,2\np,1.5,2\n", True),
        ("2019,2024\n0.5,1\n", True),
        ("0,1\n1,0\n", False),
        ("3,4,5\n6,7,8\n", False),
        ("0\n1.5\n", True),
        ("0\n1.5\n2.5\n3\n", False),  # a name that pandas gives a series, or the number of rows
        ("12\n1.5\n2.5\n3.5\n", True),
    ],
)
def test_a_first_line_taken_as_a_sample_is_told_where_it_may_be_none(
    tmp_path: Path, text: str, has_note: bool
) -> None:
    found, loaded = table(write(tmp_path, text))
    assert len(found) == text.count("\n")
    assert any("--header" in note for note in loaded.notes) == has_note


def test_blanks_in_ids_are_no_end_of_names_of_rows(tmp_path: Path) -> None:
    rows = [f"{name} Li  {row}.5 {row}.7" for row, name in enumerate(["Al", "Bo", "Cy"])]
    with raises(DataError, "'patient'", "quotes"):
        table(write(tmp_path, "\n".join(["patient  a b", *rows])))


@pytest.mark.parametrize("heading", ["", "h\n", "# a\x0cb\n", "# a\u2028b\n"])
@pytest.mark.parametrize("values", [[None, 2.0, 3.0], [1.5, None, None, 3.0]])
@pytest.mark.parametrize("blank", ["", " \u3000\x1f"])
def test_a_blank_line_among_single_values_is_a_missing_one(
    tmp_path: Path, heading: str, values: list[float | None], blank: str
) -> None:
    lines = [blank if value is None else repr(value) for value in values]
    found, _ = table(write(tmp_path, heading + "\n".join(lines) + "\n\n \n"))
    expected = [[np.nan if value is None else value] for value in values]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "labels",
    [
        ["T cell", "B cell", "T cell"] * 2,
        ["T cell", "NK", "NK", "T cell"],
        ["donor 1", "donor 2"] * 3,
        ["T cell", "B cell", "T cell"],
        ["Monocyte", "CD4 T cell", "CD8 T cell", "CD4 T cell"],
        ["NK", *["T cell, CD4", "T cell, CD8"] * 2],
        [*["T|CD4", "T|CD8"] * 2, "NK"],
    ],
)
def test_a_line_of_several_words_is_one_label(tmp_path: Path, labels: list[str]) -> None:
    for heading in ("", "label\n"):
        file = write(tmp_path, heading + "\n".join(labels), "labels.txt")
        values, notes = labels_of_file(file, None, len(labels))
        assert (values.tolist(), notes) == (labels, ())


@pytest.mark.parametrize("decimal", [".", ","])
def test_rows_of_numbers_are_no_labels(tmp_path: Path, decimal: str) -> None:
    text = "1.5 2.5\n1.5 2.5\n3.5 4.5\n3.5 4.5\n".replace(".", decimal)
    with pytest.raises(DataError):
        labels_of_file(write(tmp_path, text, "labels.txt"), None, 4)


@pytest.mark.parametrize(
    ("missing", "other"), [("", "1"), (" null ", "x"), ("None", "x"), ("#n/a", "x")]
)
def test_missing_labels_are_no_class(tmp_path: Path, missing: str, other: str) -> None:
    labels = [other, missing, other, missing]
    rows = "".join(f"{row},{label},{row * row}\n" for row, label in enumerate(labels))
    with pytest.raises(DataError, match=r"2 label\(s\) .* are missing, the first .* in row 1"):
        ingest(write(tmp_path, "a,label,b\n" + rows), tmp_path / "s.zarr")
    with pytest.raises(DataError):
        labels_of_file(write(tmp_path, "\n".join(labels) + "\n1\n", "labels.txt"), None, 5)


@pytest.mark.parametrize(
    ("name", "numbers", "is_id"),
    [
        *(
            (name, "3,1,2", True)
            for name in ("PatientID", "patient_id", "cell id", "uuid", "MRN", "subj")
        ),
        *((name, "3,1,2", False) for name in ("acid", "GRID", "idle", "Humid")),
        *(("group_id", numbers, False) for numbers in ("1,1,2", "1.5,2,3", "-1,2,3")),
    ],
)
def test_a_first_column_called_as_ids_are_is_no_feature(
    tmp_path: Path, name: str, numbers: str, is_id: bool
) -> None:
    rows = [f"{number},1.5,7" for number in numbers.split(",")]
    _, loaded = read(write(tmp_path, "\n".join([f"{name},a,b", *rows]) + "\n"))
    assert names_of(loaded) == (("a", "b") if is_id else (name, "a", "b"))
    assert loaded.sample_ids == (tuple(numbers.split(",")) if is_id else None)
    assert any("--id-column" in note for note in loaded.notes) == (numbers in ("1,1,2", "-1,2,3"))


def test_samples_on_columns_are_known_by_the_header(tmp_path: Path) -> None:
    path = write(tmp_path, "gene,s2,label,s3\nA,1.5,-3,0\nB,2,4e-5,6\n")
    found, loaded = table(Source(path, samples_in="columns"))
    assert found == VALUES
    assert loaded.sample_ids == ("s2", "label", "s3")
    assert names_of(loaded) == ("A", "B")
    assert loaded.labels is None


@pytest.mark.parametrize(
    ("name", "grades"), [("Class", "x,y,x"), ("grade", "1,2,1"), ("Class", "1,x,2")]
)
def test_label_row_is_never_a_feature(tmp_path: Path, name: str, grades: str) -> None:
    path = write(tmp_path, f"id,p,q,r\nA,1.5,-3,0\n{name},{grades}\nB,2,4e-5,6\n")
    options = {"labels": "grade"} if name == "grade" else {}
    found, loaded = table(Source(path, samples_in="columns"), **options)
    assert found == VALUES
    assert names_of(loaded) == ("A", "B")
    are_words = "x" in grades
    assert [item if are_words else f"{item:g}" for item in loaded.labels] == grades.split(",")
    assert loaded.labels_explicit == (name == "grade")


NO_TABLES = {
    "blank": "\n\n",
    "tab": "\t",
    "blank and tab": " \n\t\n",
    "ragged": "a,b\n1,2\n3,4,5\n",
    "ragged bare": "1,2\n3,4,5\n",
    "header only": "a,b\n",
    "underscore": "a,b\n3,1_000\n4,2_000\n",
    "no features": "id\np\n",
    "decimal commas": 'id,a,b\np,"1,5",2\nq,3,4\n',
    "long": f"a,b\n{'x' * 1_000_000},1\n",
}


@pytest.mark.parametrize("kind", NO_TABLES)
def test_what_is_no_table_of_numbers_is_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(DataError):
        read(write(tmp_path, NO_TABLES[kind]))


def test_the_first_bad_field_is_named(tmp_path: Path) -> None:
    rows = "".join(f"{row},2\n" for row in range(20_000))
    with pytest.raises(DataError, match=r"(?s)'b' has 2 value.*'\?' in row 20001"):
        read(write(tmp_path, f"a,b\n{rows}1,2\n3,?\n1,!\n"))


@pytest.mark.parametrize("encoding", ["16", "16-le", "16-be", "32", "32-le", "32-be"])
def test_wide_characters_need_a_byte_order_mark(tmp_path: Path, encoding: str) -> None:
    """Of UTF-16; nothing writes tables in UTF-32."""
    path = tmp_path / "a.csv"
    path.write_bytes("id,a,b\np,1,2\nq,3,5\n".encode(f"utf-{encoding}"))
    if encoding != "16":
        with raises(DataError, "a.csv", "UTF-8"):
            table(path)
    else:
        assert table(path)[0] == [[1, 2], [3, 5]]


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.dat"
    path.write_text("größe\n1\n", encoding="latin1")
    with pytest.raises(DataError, match="iconv -f ENCODING"):
        read(path)
    with pytest.raises(DataError, match="iconv -f ENCODING"):
        labels_of_file(path, None, 1)


def packed(content: bytes, suffix: str) -> bytes:
    if suffix == ".gz":
        return gzip.compress(content)
    if suffix == ".bz2":
        return bz2.compress(content)
    return lzma.compress(content)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_compressed_text(tmp_path: Path, suffix: str) -> None:
    text = "".join(f"s{i}\t{i * i / 7}\n" for i in range(5)).encode()
    path = tmp_path / f"a.tsv{suffix}"
    path.write_bytes(packed(text, suffix))
    found, loaded = read(path)
    np.testing.assert_array_equal(found["a"], [[i * i / 7] for i in range(5)])
    assert loaded.sample_ids == tuple(f"s{i}" for i in range(5))
    for other in (
        tmp_path / "b.tsv",
        tmp_path / "b.data.gz",
    ):  # under any name, and unpacked already
        for content in (packed(text, suffix), text):
            other.write_bytes(content)
            np.testing.assert_array_equal(read(other)[0]["b"], found["a"])
    path.write_bytes(packed(text, suffix)[:-9])
    with pytest.raises(DataError):
        read(path)
    path.write_bytes(packed(b"1,2\n" * 10**5, suffix))
    with pytest.raises(DataError):
        read(Source(path, max_bytes=10**5))


TABLE = ["id,a,b", *(f"p{row},{row}.5,{row * row}" for row in range(6))]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
@pytest.mark.parametrize(
    ("lines", "quoted"),
    [
        (["Table S1", *TABLE], ["Table S1", "--skip"]),
        (["Table S1 of the supplement", "", *TABLE], ["Table S1", "--skip"]),
        ([*TABLE, "Source: registry"], ["row 6", "Source: registry", "Remove the row"]),
        ([*TABLE[:3], "p9,1", *TABLE[3:]], ["row 2", "p9,1", "empty cells"]),
    ],
)
def test_advice_names_the_line_and_the_delimiter(
    tmp_path: Path, mark: str, lines: list[str], quoted: list[str]
) -> None:
    name = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}[mark]
    path = write(tmp_path, "\n".join(line.replace(",", mark) for line in lines), "t.txt")
    with raises(DataError, *quoted, f"by {name}"):
        read(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b\n1,234\n5,678\n9,123\n", [[1, 234], [5, 678], [9, 123]]),
        ("a b c\n1,5 2 3\n1 2,5 3\n4,5 5 6\n", [[1.5, 2, 3], [1, 2.5, 3], [4.5, 5, 6]]),
        ("x\n1,5\n2,25\n3,5\n", [[1.5], [2.25], [3.5]]),
        ("1,5\n2\n3,5\n4,5\n", [[1.5], [2], [3.5], [4.5]]),
    ],
    ids=["two columns", "among blanks", "one column", "one column without a header"],
)
def test_commas_that_separate_numbers_and_those_that_mark_decimals(
    tmp_path: Path, text: str, expected: list[list[float]]
) -> None:
    assert table(Source(write(tmp_path, text), id_column=False))[0] == expected


@pytest.mark.parametrize("mark", [";", ",", "\t"])
@pytest.mark.parametrize(("numbers", "is_told"), [("1.100;2.250", True), ("0.125;2.250", False)])
def test_points_that_may_separate_thousands_are_told(
    tmp_path: Path, numbers: str, is_told: bool, mark: str
) -> None:
    text = "id;a;b\n" + "".join(f"p{k};{numbers}\n" for k in "qr")
    found, loaded = table(write(tmp_path, text.replace(";", mark)))
    assert found == [[float(number) for number in numbers.split(";")]] * 2
    assert any("thousands" in note for note in loaded.notes) == is_told


def test_a_tab_in_front_of_names_leaves_columns_of_blanks_apart(tmp_path: Path) -> None:
    lines = [f'{row}.5   8   {300 + row}.0\t"model {row}"' for row in range(6)]
    path = write(tmp_path, "\n".join(lines), "cars.data")
    values, loaded = table(Source(path, header=False))
    assert values == [[row + 0.5, 8.0, 300.0 + row] for row in range(6)]
    assert loaded.sample_ids == tuple(f"model {row}" for row in range(6))


@pytest.mark.parametrize("mark", [",", ";", "|"])
def test_blanks_separate_where_most_ids_have_another_delimiter_in_them(
    tmp_path: Path, mark: str
) -> None:
    ids = ["k__a;p__b", "k__a;p__c", "k__d", "k__a;p__e", "k__a;p__f"]
    lines = ["id x y", *(f"{name} {row} {row}.5" for row, name in enumerate(ids))]
    found, loaded = table(write(tmp_path, "\n".join(lines).replace(";", mark), "t.txt"))
    assert found == [[row, row + 0.5] for row in range(5)]
    assert loaded.sample_ids == tuple(name.replace(";", mark) for name in ids)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s1   1.5    2\ns2  10.5 3\ns3 1 2\n", [[1.5, 2], [10.5, 3], [1, 2]]),
        ("       x y z\n1 2 3\n4 5 6.5\n", [[1, 2, 3], [4, 5, 6.5]]),
    ],
    ids=["unequal gaps", "indented header"],
)
def test_columns_that_are_not_at_fixed_positions(
    tmp_path: Path, text: str, expected: list[list[float]]
) -> None:
    assert table(write(tmp_path, text, "t.txt"))[0] == expected


def test_lines_above_a_header_that_are_many_need_skip(tmp_path: Path) -> None:
    lines = [*(f"line {row}" for row in range(10)), *TABLE]
    with raises(DataError, "row 10", "id,a,b", "--skip"):
        read(write(tmp_path, "\n".join(lines)))


CELLS = {
    **{text: float(text) for text in ["1.5", "-3", "+.5", "2.", "1e-5", "1E400", "-inf", " 7 "]},
    **dict.fromkeys(["", "NA", "nan", "-nan", "+NaN", "n/a", "<NA>", ".", "\\N", " NA"], np.nan),
    '"2.5"': 2.5,
    '""': np.nan,
    "\u22122": -2.0,
}
NO_NUMBERS = ["1_0", "0x1F", "1d5", "nan(1)", "1.5x", "\uff11"]


DIALECTS: list[tuple[str, Literal[".", ","]]] = [
    *((mark, ".") for mark in (",", ";", "|", "\t")),
    (";", ","),
]


@settings(max_examples=100)
@given(st.sampled_from(DIALECTS), st.booleans(), st.data())
def test_cells_have_one_value_in_whatever_company(
    dialect: tuple[str, Literal[".", ","]], ends_in_delimiter: bool, data: st.DataObject
) -> None:
    mark, decimal = dialect
    name = data.draw(st.sampled_from(["s{}", '"s{}"', '"s,{}"', '"s""{}"', "NA{}"]))
    usual = st.sampled_from([*CELLS][: data.draw(st.sampled_from([8, 14, len(CELLS)]))])
    usual |= st.floats(allow_nan=False, allow_infinity=False).map(repr)  # to the last bit
    rows = data.draw(st.lists(st.lists(usual, min_size=3, max_size=3), min_size=40, max_size=90))
    rows.insert(0, ["1.5", "-3", " 7 "])
    cells = [[c if c == "." else c.replace(".", decimal) for c in row] for row in rows]
    no_numbers = NO_NUMBERS if decimal == "." else ["1.5"]
    bad = data.draw(st.sampled_from([*no_numbers, *[""] * 2 * len(no_numbers)]))
    if bad:
        cells[-1][1] = bad
    names = [name.format(place) for place in range(len(rows))]
    lines = [["id", "a", "b", "c"], *([own, *row] for own, row in zip(names, cells, strict=True))]
    text = "".join(mark.join(line) + mark * ends_in_delimiter + "\n" for line in lines)
    with tempfile.TemporaryDirectory() as folder:
        source = Source(write(Path(folder), text), delimiter=mark, decimal=decimal)
        if bad:
            with raises(DataError, bad):
                table(source)
            return
        found, loaded = table(source)
    known = [[CELLS[cell] if cell in CELLS else float(cell) for cell in row] for row in rows]
    np.testing.assert_array_equal(found, known)
    assert loaded.origin["missing cells"] == str(np.isnan(known).sum())
    assert [*(loaded.sample_ids or ())] == [own for (own,) in csv.reader(names)]


@pytest.mark.parametrize(("decimals", "is_told"), [(3, True), (1, False)])
def test_points_that_come_late_may_separate_thousands(
    tmp_path: Path, decimals: int, is_told: bool
) -> None:
    """Below the lines that are looked at first: 999, 1.000 and 1.001, unlike 999, 1.0 and 1.1."""
    late = [f"{1 + row / 10**decimals:.{decimals}f}" for row in range(50)]
    rows = [f"p{row};{size};3" for row, size in enumerate([*range(900, 1000), *late])]
    file = write(tmp_path, "id;size;b\n" + "\n".join(rows))
    notes = ingest(file, tmp_path / "s").notes
    assert any("thousands" in note and "size" in note for note in notes) == is_told


@pytest.mark.parametrize("cell", ["2\x1c3", "2\u20283"])
def test_no_row_ends_inside_of_a_cell(tmp_path: Path, cell: str) -> None:
    lines = ["x,id", *(f"{row}.5,s{row}" for row in range(60)), f"{cell},s60"]
    with raises(DataError, repr(cell), "row 60"):
        read(write(tmp_path, "\n".join(lines)))


@given(st.sampled_from(",;|\t "), st.data())
def test_fields_are_those_of_the_csv_module(delimiter: str, data: st.DataObject) -> None:
    letters = st.sampled_from(["1", "a", '"', "\n", " ", "\t", "\x0b", "\xa0", delimiter])
    text = data.draw(st.text(letters))
    rows = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
    expected, found = (
        [[field.strip() for field in row] for row in some if not is_blank(row)]
        for some in (rows, fields_of(io.StringIO(text), delimiter))
    )
    assert found == expected


@pytest.mark.parametrize("name", ["BZh", "BZh9", "BZhang", "7zXZ"])
def test_a_name_may_begin_as_a_compressed_file(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, f"{name},x\na,1\nb,2\nc,4\n")
    assert table(path)[0] == [[1.0], [2.0], [4.0]]


@pytest.mark.parametrize("labels", [["u", "v", "w"], ["1", "2", "3"]], ids=["text", "numbers"])
def test_a_table_of_labels_alone_has_no_view(tmp_path: Path, labels: list[str]) -> None:
    path = write(tmp_path, f"gene,s1,s2,s3\nlabel,{','.join(labels)}\n")
    with pytest.raises(DataError):
        ingest(Source(path, samples_in="columns"), tmp_path / "out.zarr")
