"""Layouts of files that say more than a table: headers, labels, codes, and orders of samples that contradict."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mscam_dask.data.ingest import ingest
from mscam_dask.data.readers.base import Source
from mscam_dask.data.store.dataset import open_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.validation import validate
from mscam_dask.errors import DataError
from tests.data.known_tables import NUMBERS, ORDER, A, B, beside, csv_of, outcome, read, table
from tests.messages import quotes, raises

COUNTS = A.abs().round().astype(int)
TYPES = np.arange(12) % 3


def notes_on(folder: Path, text: str, **options: Any) -> str:
    (folder / "a.csv").write_text(text)
    return " ".join(ingest(Source(folder / "a.csv", **options), folder / "s.zarr").notes)


@pytest.mark.parametrize("mark", [",", "\t", " "])
def test_a_first_sample_of_repeated_whole_numbers_is_no_header(tmp_path: Path, mark: str) -> None:
    """As in .fam files of PLINK, which begin with two texts."""
    known = COUNTS.assign(a1=0, a2=[0, *COUNTS["a2"][1:]]).set_axis(pd.RangeIndex(4), axis=1)
    text = known.reset_index(names="i").assign(f=[f"F{k}" for k in range(12)]).set_index("f")
    files = {"a.txt": text.to_csv(sep=mark, header=False)}
    assert read(tmp_path, files, (known.set_axis(text.index),)) == "right"


def test_a_first_line_of_numbers_that_differ_is_asked_about(tmp_path: Path) -> None:
    text = COUNTS.assign(a0=1, a1=2, a2=3, a3=4).assign(f=[f"F{k}" for k in range(12)])
    with raises(DataError, "P01,F0", "--no-header"):
        notes_on(tmp_path, text.set_index("f", append=True).to_csv(header=False))


@pytest.mark.parametrize("names", [["35", "50", "62", "81"], ["100007", "100010", "104", "99"]])
def test_whole_numbers_name_columns_of_decimals(tmp_path: Path, names: list[str]) -> None:
    """As chemical ids of metabolites do, under a heading of ids that no list has."""
    frame = A.set_axis(names, axis=1)
    assert read(tmp_path, *beside(csv_of(frame, "PARENT_SAMPLE_NAME"), frame=frame)) == "right"


@pytest.mark.parametrize("frame", [A, A.set_axis(["7157", "1956", "672", "675"], axis=1)])
def test_a_second_header_among_the_samples_is_refused(tmp_path: Path, frame: pd.DataFrame) -> None:
    text = csv_of(frame[:6]) + csv_of(frame[6:])
    found = read(tmp_path, {"a.csv": text}, (frame,))
    assert re.match(quotes("refused", "a.csv", "row 6", "'id'"), found), found


@pytest.mark.parametrize("second", ["cm,kg,m,s", "1,2,1,2", "0.5,0.1,1,2", ",,,", "NA,NA,kg,s"])
@pytest.mark.parametrize("samples_in", ["rows", "columns"])
def test_a_second_header_without_a_name_is_refused(
    tmp_path: Path, second: str, samples_in: str
) -> None:
    first, *others = csv_of(A if samples_in == "rows" else A.T).splitlines()
    row = second if samples_in == "rows" else ",".join([second] * 3)
    text = "\n".join([first, f",{row}", *others])
    found = read(tmp_path, {"a.csv": text}, (A,), samples_in=samples_in, impute="mean")
    assert re.match(quotes("refused", "a.csv", "row 0", "''"), found), found


@pytest.mark.parametrize("mark", [",", "\t", " "])
@pytest.mark.parametrize("gap", ["\n", " \n\n", "\u00a0\n"])
def test_blank_lines_between_rows_without_ids_are_refused(
    tmp_path: Path, mark: str, gap: str
) -> None:
    """As between matrices that were written to one file, also below the lines that tell the dialect."""
    known = pd.concat([A] * 5, ignore_index=True).set_axis(range(4), axis=1)
    text = known.to_csv(sep=mark, header=False, index=False)
    found = read(tmp_path, {"a.csv": text + gap + text}, (known,))
    assert re.match(quotes("refused", "a.csv", "blank lines", "file of its own"), found), found
    lines = text.splitlines()
    assert read(tmp_path, {"a.csv": "\n\n".join(lines) + "\n\n"}, (known,)) == "right"
    empty = "\n".join([*lines[:5], mark * 3, *lines[5:]])
    assert re.search("absent|blank lines", read(tmp_path, {"a.csv": empty}, (known,)))
    with_ids = csv_of(A[:6], sep=mark) + gap + A[6:].to_csv(sep=mark, header=False)
    assert read(tmp_path, {"a.csv": with_ids}, (A,)) == "right"


def test_decimal_commas_among_commas_do_not_shift_values(tmp_path: Path) -> None:
    rows = "".join(f"P{k},{k},5,{k + 1}\n" for k in range(12))
    found = read(tmp_path, {"a.csv": "sample,a0,a1\n" + rows}, (A,))
    assert re.match(quotes("refused", "a.csv", "'sample'", "decimal"), found), found


def test_an_empty_column_beside_samples_is_one_that_is_absent(tmp_path: Path) -> None:
    gone = A.drop("P07").reindex(A.index)
    files = {"a.txt": csv_of(gone.T, sep="\t"), "b.csv": csv_of(B)}
    assert read(tmp_path, files, (gone, B), samples_in="columns") == "right"


@pytest.mark.parametrize("samples_in", ["rows", "columns"])
@pytest.mark.parametrize("name", ["len_hg38", "RT2", "Blank"])
def test_names_unlike_those_of_the_samples_are_told_and_refused_with_odd_values(
    tmp_path: Path, name: str, samples_in: str
) -> None:
    near, far = (pd.concat([A, A[:1].set_axis([name]) * x + 1e-3]) for x in (1, 1000))
    with raises(DataError, "a.csv", repr(name)):
        notes_on(tmp_path, csv_of(far.T), samples_in="columns")
    with raises(DataError, "a.csv", "'column 1'"):
        notes_on(tmp_path, csv_of(far[::-1].T, header=False), samples_in="columns")
    text = csv_of(near if samples_in == "rows" else near.T)
    assert f"'{name}' taken as samples" in notes_on(tmp_path, text, samples_in=samples_in)


# ------------------------------------------------------------------------------------------ orders


@pytest.mark.parametrize("place", [0, 4])
def test_ranks_in_two_orders_are_no_ids(tmp_path: Path, place: int) -> None:
    tables = [A.reset_index(drop=True), B.reset_index(drop=True)]
    for frame, ranks in zip(tables, (ORDER, ORDER[::-1]), strict=True):
        frame.insert(min(place, frame.shape[1]), "rank", ranks + 1)
    texts = (frame.to_csv(index=False) for frame in tables)
    found = read(tmp_path, dict(zip(("a.csv", "b.csv"), texts, strict=True)), tables)
    assert re.match(quotes("refused", "a.csv", "'rank'", "id"), found), found


@pytest.mark.parametrize("by", [0, 1])
def test_places_and_values_of_a_sparse_matrix_are_refused(tmp_path: Path, by: int) -> None:
    places = [(i, j) for i in range(12) for j in range(4) if (i + j) % 3]
    rows = sorted(places, key=lambda place: (place[by], place[1 - by]))
    text = "".join(f"{i} {j} {A.iloc[i, j]}\n" for i, j in rows)
    found = read(tmp_path, {"a.txt": text}, (A,))
    assert re.match(quotes("refused", "a.txt", "long table", "--id-column none"), found), found
    counts = pd.DataFrame(np.arange(36).reshape(12, 3) ** 2 % 17)
    counts = counts.sort_values([by, 1 - by], ignore_index=True)
    assert read(tmp_path, {"a.txt": counts.to_csv(index=False, header=False)}, (counts,)) == "right"


@pytest.mark.parametrize("numbers_rows", [False, True])
@pytest.mark.parametrize("as_text", ["{}", "{}.0"])
@pytest.mark.parametrize("names", [("hospnr", "fallnr"), ("x", "y1"), ("x", "patient_id")])
def test_equal_numbers_in_two_orders_under_two_names_are_refused(
    tmp_path: Path, names: tuple[str, str], as_text: str, numbers_rows: bool
) -> None:
    """Behind the features, where nothing says that they are ids, also beside row numbers."""
    ids = [NUMBERS, [*map(as_text.format, NUMBERS)]]
    tables = [A.reset_index(drop=True), B.reset_index(drop=True)]
    first, second = (f.assign(**{n: i}) for f, n, i in zip(tables, names, ids, strict=True))
    second = second.iloc[ORDER].reset_index(drop=True)
    frames = (("a", first), ("b", second))
    files = {f"{k}.csv": f.to_csv(index=numbers_rows) for k, f in frames}
    found = read(tmp_path, files, (first, second))
    named = "numbers its rows" if numbers_rows and names[1] == "patient_id" else repr(names[0])
    assert re.match(quotes("refused", "a.csv", "b.csv", named), found), found


@pytest.mark.parametrize("view_type", ["distance", "kernel"])
def test_names_of_columns_are_those_of_the_rows_of_a_symmetric_table(
    tmp_path: Path, view_type: str
) -> None:
    values = np.abs(A.to_numpy()[:, :1] - A.to_numpy()[:, 0])
    frame = pd.DataFrame(values if view_type == "distance" else np.exp(-values), A.index, A.index)
    (tmp_path / "b.csv").write_text(csv_of(B))
    frame.iloc[ORDER, ORDER].to_csv(tmp_path / "d.csv", index=False)
    ingest([tmp_path / "b.csv", tmp_path / "d.csv"], tmp_path / "s", view_type={"d": view_type})
    view = open_store(tmp_path / "s").views[1]
    np.testing.assert_array_equal(view.read(0, 12), frame)


# ------------------------------------------------------------------------------- labels and codes


@pytest.mark.parametrize(
    "name", ["y", "Outcome", "cell_type_id", "predicted.label", "Survived", "batch", "rep"]
)
def test_features_that_may_be_labels_are_told_by_their_names(tmp_path: Path, name: str) -> None:
    assert re.search(f"'{name}'.*--labels", notes_on(tmp_path, csv_of(A.assign(**{name: TYPES}))))
    (tmp_path / "s.zarr").rename(tmp_path / "t.zarr")
    assert "--labels" not in notes_on(tmp_path, csv_of(A.assign(**{name: A["a0"]})))


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(
    "values",
    [A, A.round().astype(int), A.round().astype(int).assign(b=0, c=0, d=0, e=0)],
    ids=["decimals", "counts", "pixels"],
)
def test_features_that_may_be_labels_are_told_without_names(
    tmp_path: Path, values: pd.DataFrame, is_first: bool
) -> None:
    frame = values.copy()
    place = 0 if is_first else len(frame.columns)
    frame.insert(place, "kind", TYPES)
    said = notes_on(tmp_path, frame.to_csv(header=False, index=False))
    assert re.search(f"'column {place}'.*--labels", said)


@pytest.mark.parametrize(
    "code",
    [-999, -999.25, 888, 99, 999.9, -9, -32768, -(2**31), 1e20, -3.4028234663852886e38],
)
@pytest.mark.parametrize("samples_in", ["rows", "columns"])
def test_codes_of_missing_cells_are_told(tmp_path: Path, code: float, samples_in: Any) -> None:
    others = A.abs() if code > 0 else A * -code / 12  # in the range of -code on both sides of zero
    frame = others.mask(A.iloc[3, 2] == A, code)
    text = csv_of(frame if samples_in == "rows" else frame.T)
    said = notes_on(tmp_path, text, samples_in=samples_in)
    assert re.search(f"'a2', have {re.escape(f'{code:g}')},", said)
    assert read(tmp_path, {"a.csv": text}, (frame,), samples_in=samples_in) == "right"


@pytest.mark.parametrize("code", [9999, 99])
@pytest.mark.parametrize("n_codes", [1, 3])
def test_codes_among_other_values_are_told_if_they_are_the_most_frequent(
    tmp_path: Path, code: int, n_codes: int
) -> None:
    values = np.linspace(code / 10, code - 1, 12).round()
    frame = A.assign(income=[*values[n_codes:], *[code] * n_codes])
    assert (f"'income', have {code}," in notes_on(tmp_path, csv_of(frame))) == (n_codes > 1)


@pytest.mark.parametrize("code", [-9999, 9999, 1e36])
def test_codes_of_missing_cells_are_told_of_arrays(tmp_path: Path, code: float) -> None:
    values = A.abs().mask(A.iloc[3, 2] == A, code).to_numpy()
    np.save(tmp_path / "a.npy", values)
    said = " ".join(ingest(tmp_path / "a.npy", tmp_path / "s.zarr").notes)
    assert re.search(f" 2', have {re.escape(f'{code:g}')},", said)
    (issue,) = validate(as_multi_view(values), n_clusters=2, n_neighbors=3).issues
    assert (issue.kind, issue.count, issue.first) == ("missing codes", 1, (2,))


@pytest.mark.parametrize(
    "names", [["7", "6", "5", "3"], ["2001", "2002", "2003", "2004"], [*"1234"]]
)
@pytest.mark.parametrize("mark", [",", "\t", " "])
def test_numbers_in_quotes_above_numbers_without_are_names(
    tmp_path: Path, names: list[str], mark: str
) -> None:
    for known in (A, COUNTS.assign(a0=5)):
        frame = known.set_axis(names, axis=1).reset_index(drop=True)
        text = frame.to_csv(index=False, quoting=2, sep=mark)
        assert read(tmp_path, {"a.csv": text}, (frame,)) == "right"


@pytest.mark.parametrize("mark", [",", "\t", " "])
def test_quotes_around_all_fields_say_nothing_about_the_first_line(
    tmp_path: Path, mark: str
) -> None:
    known = (A * 1e-8).iloc[:, :3]
    text = known.to_csv(header=False, quoting=1, sep=mark)
    known = known.set_axis(pd.RangeIndex(3), axis=1)
    assert read(tmp_path, {"a.csv": text}, (known,)) == "right"


@pytest.mark.parametrize("ids", [["id", "mz"], []])
def test_eight_decimals_that_rise_are_a_second_header(tmp_path: Path, ids: list[str]) -> None:
    frame = table(n_features=8)
    first = [*ids[:1], *frame.columns], [*ids[1:], *(100.25 + 37 * np.arange(8)).astype(str)]
    text = "\n".join([*map(",".join, first), frame.to_csv(header=False, index=bool(ids))])
    with raises(DataError, "a.csv", "a0", "100.25", "--skip"):
        notes_on(tmp_path, text)


@pytest.mark.parametrize("index", [True, False])
def test_the_first_row_of_a_sorted_table_is_no_second_header(tmp_path: Path, index: bool) -> None:
    """Such as visitors, readers and buyers of pages, the most frequent one first."""
    visitors = 900.5 / np.arange(1, 13)
    columns = {"visitors": visitors, "readers": visitors / 8, "buyers": 50 + visitors / 16}
    frame = pd.DataFrame(columns, A.index).round(3)
    text = frame.to_csv(index=index, index_label="id")
    known = frame if index else frame.reset_index(drop=True)
    assert read(tmp_path, {"a.csv": text}, (known,)) == "right"


@pytest.mark.parametrize("name", ["patient", "MRN", "fallnr"])
@pytest.mark.parametrize("samples_in", ["rows", "columns"])
def test_empty_rows_below_a_table_with_ids_are_left_out(
    tmp_path: Path, name: str, samples_in: Any
) -> None:
    frame = A if name == "patient" else A.set_axis(NUMBERS)
    text = csv_of(frame if samples_in == "rows" else frame.T, name)
    text += (text.partition("\n")[0].count(",") * "," + "\n") * 3
    sources = [Source(tmp_path / f"{view}.csv", samples_in=samples_in) for view in "ab"]
    for source in sources:
        source.file.write_text(text)
    assert outcome(sources, {"a": frame, "b": frame}, tmp_path / "s.zarr") == "right"


@pytest.mark.parametrize("first", [[-4, 12, 7, 3], [45, 3, 22, 9]])
def test_a_first_sample_of_whole_numbers_is_no_second_header(tmp_path: Path, first: Any) -> None:
    frame = A.copy()
    frame.iloc[0] = first
    assert read(tmp_path, *beside(csv_of(frame), frame=frame)) == "right"


def test_two_samples_that_are_called_as_statistics_are_told_once(tmp_path: Path) -> None:
    said = notes_on(tmp_path, "id,a,b\nSum,1,2\nMean,4,3\n")
    assert said.count("'Sum', 'Mean'") == 1


def test_empty_rows_of_a_sheet_are_blank_lines(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    gap = pd.concat([A[:5], A[:1] * np.nan, A[5:]])
    gap.to_excel(tmp_path / "a.xlsx", index=False)
    found = outcome([tmp_path / "a.xlsx"], {"a": A}, tmp_path / "s.zarr")
    assert re.match(quotes("refused", "a.xlsx", "blank lines"), found), found
    gap[["a0"]].to_excel(tmp_path / "a.xlsx", index=False)
    found = outcome([tmp_path / "a.xlsx"], {"a": A[["a0"]]}, tmp_path / "s.zarr")
    assert re.match(quotes("refused", "absent", "[5]"), found), found


@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("has_header", [True, False])
@pytest.mark.parametrize(("n_samples", "n_features"), [(3, 20), (12, 8)])
def test_wavelengths_in_front_are_the_names_of_features(
    tmp_path: Path, step: int, has_header: bool, n_samples: int, n_features: int
) -> None:
    names = (400.5 + np.arange(n_features))[::step].astype(str)
    frame = table(n_samples, n_features).set_axis(names, axis=1)
    known = frame if has_header else frame.reset_index(drop=True)
    text = frame.T.to_csv(index_label="nm", header=has_header)
    assert read(tmp_path, {"a.csv": text}, (known,), samples_in="columns") == "right"


def test_batches_among_the_rows_of_features_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(csv_of(A.assign(batch=np.arange(12) % 2).T))
    notes = ingest(Source(tmp_path / "a.csv", samples_in="columns"), tmp_path / "s.zarr").notes
    assert any(re.match(quotes("a.csv", "'batch'", "--labels"), note) for note in notes)


@pytest.mark.parametrize("codes", [(97, 98, 99), (-1, -8, -9), (996, 998, 999), (-77, -88, -99)])
def test_several_codes_of_missing_cells_in_a_column_are_told(
    tmp_path: Path, codes: tuple[int, ...]
) -> None:
    answers = A.assign(answer=[1, 2, 3, 4, 5, 4, 3, 2, 1, *codes])
    assert f"'answer', have {codes[-1]}," in notes_on(tmp_path, csv_of(answers))
    (tmp_path / "s.zarr").rename(tmp_path / "t.zarr")
    scores = A.assign(change=[-9, -8, -7, -5, -4, -2, -1, 0, 2, 5, 8, 9])
    assert "'change'" not in notes_on(tmp_path, csv_of(scores))


def test_keys_of_a_long_table_of_several_columns_are_told(tmp_path: Path) -> None:
    """Several visits of a patient, or relations of pairs, as those of GCTA."""
    visits = pd.concat([A.assign(kode=NUMBERS, visit=visit) for visit in range(3)])
    visits = visits.sort_values(["kode", "visit"])[["kode", "visit", *A]]
    pairs = [f"{i} {j} 1000 {1 / (1 + i + j):.4f}" for i in range(9) for j in range(i + 1)]
    for text, names in (
        (visits.to_csv(index=False), ["'kode'", "'visit'"]),
        ("\n".join(pairs), ["'column 0'", "'column 1'"]),
    ):
        said = notes_on(tmp_path, text)
        assert re.search(quotes(*names, "keys"), said)
        (tmp_path / "s.zarr").rename(tmp_path / names[0])
    assert "keys" not in notes_on(tmp_path, visits.iloc[::-1, [0, 2, 3, 4]].to_csv(index=False))


def test_whole_numbers_below_an_empty_name_among_others_are_a_feature(tmp_path: Path) -> None:
    """The second column below a merged header."""
    frame = A.assign(a1=NUMBERS).set_axis(["a0", "", "a2", ""], axis=1)
    assert read(tmp_path, {"a.csv": csv_of(frame)}, (frame,)) == "right"
