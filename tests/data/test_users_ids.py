"""Columns of ids in users' files: found, kept as they are written, matched, or asked for."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mscam_dask.data.ingest import Source, ingest
from mscam_dask.data.store.dataset import open_store
from mscam_dask.errors import ConfigurationError, DataError
from tests.data.known_tables import (
    NUMBERS,
    ORDER,
    TEXTS,
    A,
    B,
    beside,
    csv_of,
    outcome,
    read,
)
from tests.messages import quotes, raises

SHUFFLED = [5, 40, 2, 77, 31, 9, 12, 50, 61, 8, 90, 4]


@pytest.mark.parametrize("name", ["sample_id", "eid", "Proband"])
@pytest.mark.parametrize("suffix", [".csv", ".txt", ".parquet"])
def test_row_numbers_beside_ids_match_no_rows(tmp_path: Path, name: str, suffix: str) -> None:
    """Frames that were shuffled keep the numbers of their rows, without a name, in what pandas and R write."""
    ids = TEXTS if name == "sample_id" else NUMBERS
    frames = {
        stem: frame.set_axis(ids).reset_index(names=name).sample(frac=1, random_state=len(stem))
        for stem, frame in {"a": A, "bb": B}.items()
    }
    sources = [tmp_path / f"{stem}{suffix}" for stem in frames]
    for source, frame in zip(sources, frames.values(), strict=True):
        if suffix == ".parquet":
            pytest.importorskip("pyarrow")
            frame.to_parquet(source)
        elif suffix == ".csv":
            frame.reset_index().to_csv(source)  # numbers twice, without a name and as index
        else:  # write.table of R
            source.write_text(" ".join(frame.columns) + "\n" + frame.to_csv(sep=" ", header=False))
    known = {stem: frame.set_index(name) for stem, frame in frames.items()}
    assert outcome(sources, known, tmp_path / "s.zarr") == "right"
    said = " ".join(ingest(sources, tmp_path / "t.zarr").notes)
    assert re.search("'', 'index' left out .row numbers", said) or suffix != ".csv"


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("other", ["b.csv", "b.parquet", "b.npy"])
def test_numbers_of_rows_that_moved_beside_a_file_without_any_are_asked_for(
    tmp_path: Path, start: int, other: str
) -> None:
    numbered = A.set_axis(range(start, start + 12)).iloc[ORDER]
    numbered.to_csv(tmp_path / "a.csv")
    if other == "b.npy":
        np.save(tmp_path / other, B.to_numpy())
    elif other == "b.csv":
        B.to_csv(tmp_path / other, index=False)
    else:
        pytest.importorskip("pyarrow")
        B.reset_index(drop=True).to_parquet(tmp_path / other)
    sources = [tmp_path / "a.csv", tmp_path / other]
    known = {"a": numbered.reset_index(drop=True), "b": B.reset_index(drop=True)}
    if other == "b.npy":
        known["b"] = known["b"].set_axis(pd.RangeIndex(3), axis=1)
    found = outcome(sources, known, tmp_path / "s.zarr")
    assert re.match(quotes("refused", "a.csv", other, repr(str(start + ORDER[0]))), found), found
    told = [Source(source, id_column=False) for source in sources]
    assert outcome(told, known, tmp_path / "s.zarr") == "right"


@pytest.mark.parametrize("name", ["Unnamed: 0", "index"])
@pytest.mark.parametrize("kept", [ORDER, np.delete(np.arange(12), 3)], ids=["moved", "fewer"])
def test_numbers_of_rows_from_before_and_after_rows_moved_are_asked_for(
    tmp_path: Path, name: str, kept: Any
) -> None:
    first, second = A.reset_index(drop=True).iloc[kept], B.reset_index(drop=True)
    for stem, frame in {"a": first, "b": second.iloc[: len(first)]}.items():
        frame.rename_axis(name).reset_index().to_csv(tmp_path / f"{stem}.csv")
    sources = [tmp_path / "a.csv", tmp_path / "b.csv"]
    found = outcome(sources, {"a": first, "b": second}, tmp_path / "s.zarr")
    assert re.match(quotes("refused", "id_column=''", f"id_column={name!r}"), found), found


@pytest.mark.parametrize("name", ["fallnr", "X", ""])
@pytest.mark.parametrize("n_files", [2, 3])
def test_numbers_that_files_of_counts_share_are_ids(
    tmp_path: Path, name: str, n_files: int
) -> None:
    """All of their columns have whole numbers that differ in every row."""
    rng = np.random.default_rng(0)
    counts = [
        pd.DataFrame(rng.permuted(np.arange(900, 1800, 5))[:48].reshape(12, 4), NUMBERS, list(stem * 4))
        .set_axis([f"{stem}{column}" for column in range(4)], axis=1)
        for stem in "abc"[:n_files]
    ]  # fmt: skip
    known = [frame.iloc[np.roll(ORDER, place)] for place, frame in enumerate(counts)]
    files = {f"{frame.columns[0][0]}.csv": csv_of(frame, name) for frame in known}
    assert read(tmp_path, files, known) == "right"


@pytest.mark.parametrize("name", ["subject", "Patient ID"])
@pytest.mark.parametrize("is_indexed", [True, False])
def test_a_long_table_is_refused_also_below_numbers_of_its_rows(
    tmp_path: Path, name: str, is_indexed: bool
) -> None:
    for columns in (A.columns, pd.RangeIndex(4)):
        frame = A.set_axis(NUMBERS).set_axis(columns, axis=1).rename_axis(name)
        rows = frame.reset_index().melt(name, var_name="what", value_name="value")
        files = {"a.csv": rows.to_csv(index=is_indexed)}
        found = read(tmp_path, files, (frame,))
        assert re.match(quotes("refused", "a.csv", NUMBERS[0], "pivot"), found), found


def test_numbers_without_a_name_beside_ids_of_one_file_only_are_ids_if_told(tmp_path: Path) -> None:
    first, second = A.set_axis(NUMBERS), B.set_axis(NUMBERS).iloc[ORDER]
    files = {"a.csv": first.assign(sample_id=TEXTS).to_csv(), "b.csv": second.to_csv()}
    found = read(tmp_path, files, (first, second))
    assert re.match(quotes("refused", "a.csv", "b.csv", "--id-column"), found), found
    assert read(tmp_path, files, (first, second), id_column=0) == "right"


def test_whole_numbers_without_a_name_are_ids_beside_ranks(tmp_path: Path) -> None:
    """A column that counts the samples in an order of its own in each file is a feature."""
    frames = (
        A.set_axis(NUMBERS).assign(rank=ORDER + 1.0),
        B.set_axis(NUMBERS).assign(rank=12.0 - ORDER),
    )
    first, second = (frame.astype({"rank": int}) for frame in frames)
    files = {"a.csv": first.to_csv(), "b.csv": second.iloc[ORDER].to_csv()}
    assert read(tmp_path, files, frames) == "right"


@pytest.mark.parametrize("name", ["platelets", "zip"])
def test_a_measured_whole_number_is_no_id(tmp_path: Path, name: str) -> None:
    """A first column of such numbers is a feature or asked for, also if two files have others in it."""
    first = A.reset_index(drop=True).assign(a0=ORDER * 17 + 40).rename(columns={"a0": name})
    second = B.reset_index(drop=True).assign(b0=ORDER * 13 + 45).rename(columns={"b0": name})
    files = {"a.csv": first.to_csv(index=False), "b.csv": second.to_csv(index=False)}
    for names in (["a.csv"], ["a.csv", "b.csv"]):
        some = {one: files[one] for one in names}
        found = read(tmp_path, some, (first, second)[: len(names)])
        assert found == "right" or re.match(quotes("refused", "a.csv", name), found), found


NOT_FIRST: dict[str, Callable[[pd.DataFrame], str]] = {
    "second": lambda frame: frame.assign(eid=frame.index)[
        [frame.columns[0], "eid", *frame.columns[1:]]
    ].to_csv(index=False),
    "last": lambda frame: frame.assign(patient_id=frame.index).to_csv(index=False),
    "FID IID": lambda frame: frame.assign(FID=1, IID=frame.index)[
        ["FID", "IID", *frame.columns]
    ].to_csv(index=False),
}


@pytest.mark.parametrize("kind", NOT_FIRST)
@pytest.mark.parametrize("ids", [NUMBERS, TEXTS], ids=["numbers", "texts"])
def test_ids_that_are_not_the_first_column(tmp_path: Path, kind: str, ids: list[Any]) -> None:
    first, second = A.set_axis(ids), B.set_axis(ids).iloc[ORDER]
    files = {"a.csv": NOT_FIRST[kind](first), "b.csv": NOT_FIRST[kind](second)}
    found = read(tmp_path, files, (first, second))
    assert found == "right" or re.match(quotes("refused", "a.csv"), found), found


@pytest.mark.parametrize("name", ["bp", "age", ""])
@pytest.mark.parametrize("is_unique", [True, False])
@pytest.mark.parametrize("form", ["{0}/{1}", "{1}-{0}"])
def test_blood_pressures_and_ranges_in_front_are_no_ids(
    tmp_path: Path, form: str, name: str, *, is_unique: bool
) -> None:
    """Site and number of a patient are, also where both are whole numbers; and what has no name, if it is unique."""
    ranges = [form.format(90 + 5 * row + 4, 90 + 5 * row) for row in range(11)]
    ranges += [form.format(149, 145) if is_unique else ranges[3]]
    a, b = tmp_path / "a.csv", tmp_path / "b.csv"
    a.write_text(csv_of(A.set_axis(ranges), name))
    if is_unique and not name:
        assert open_store(ingest(a, tmp_path / "s.zarr").output).sample_ids == (*ranges,)
    else:
        with raises(DataError, "numbers", "--id-column"):
            ingest(a, tmp_path / "s.zarr")
    sites = [f"{1 + row % 3}-{20 + row}" for row in range(12)]
    b.write_text(csv_of(A.set_axis(sites), name))
    assert open_store(ingest(b, tmp_path / "t.zarr").output).sample_ids == (*sites,)


@pytest.mark.parametrize(("name", "is_told"), [("f{}", False), ("w{}", False), ("S{}", True)])
def test_numbered_features_of_two_files_are_not_told_to_be_samples(
    tmp_path: Path, name: str, *, is_told: bool
) -> None:
    values = np.random.default_rng(0).normal(size=(12, 10))
    for stem in "ab":
        frame = pd.DataFrame(values).rename(columns=name.format)
        frame.to_csv(tmp_path / f"{stem}.csv", index=False)
    notes = ingest([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "s.zarr").notes
    assert any("names of columns" in note for note in notes) == is_told


def test_few_shared_ids_are_not_joined_silently(tmp_path: Path) -> None:
    mixed = [*TEXTS[:2], *(f"{item}-01A" for item in TEXTS[2:])]
    files = {"a.csv": csv_of(A), "b.csv": csv_of(B.set_axis(mixed))}
    for join in ("inner", "outer"):
        found = read(tmp_path, files, (A, B), join=join)
        assert re.match(quotes("refused", "a.csv", "b.csv", "P03-01A"), found)


@pytest.mark.parametrize("ids", [["100", "300", "200"], [f"{row * row % 97}" for row in range(12)]])
def test_one_name_above_other_whole_numbers_is_asked_about(tmp_path: Path, ids: list[str]) -> None:
    first, second = A[: len(ids)].set_axis(ids), B[: len(ids)].set_axis([f"9{i}" for i in ids])
    files = {"a.csv": csv_of(first, "nhc"), "b.csv": csv_of(second, "nhc")}
    assert "id_column='nhc'" in read(tmp_path, files, (first, second))


@pytest.mark.parametrize("ids", [NUMBERS, TEXTS], ids=["numbers", "texts"])
@pytest.mark.parametrize("name", ["S.No.", "#", "rank", "Unnamed: 0"])
@pytest.mark.parametrize("start", [0, 1])
def test_a_first_column_that_counts_rows_is_no_feature(
    tmp_path: Path, ids: list[Any], name: str, start: int
) -> None:
    """Beside ids, in the order of the rows and after they were shuffled, whatever its name."""
    first, second = A.set_axis(ids), B.set_axis(ids).iloc[ORDER]
    counted = first.rename_axis("eid").reset_index().set_axis(range(start, start + 12))
    for rows in (counted, counted.iloc[ORDER]):
        files = {"a.csv": csv_of(rows, name), "b.csv": csv_of(second, "eid")}
        assert read(tmp_path, files, (first, second)) == "right"


@pytest.mark.parametrize(
    ("name", "columns", "is_told"),
    [
        ("Gene", A.columns, True),
        ("#OTU ID", A.columns, True),
        ("sample", [f"TCGA-02-000{column}-01" for column in range(4)], True),
        ("name", A.columns, False),
        *((item, A.columns, True) for item in ("ID_REF", "cg00000029", "ENSG00000141510.18", "1007_s_at")),
    ],
)  # fmt: skip
def test_rows_that_look_like_features_are_told_to_be_samples(
    tmp_path: Path, name: str, columns: list[str], is_told: bool
) -> None:
    is_id = "0" in name
    ids = [name if is_id and row == 0 else f"TP{row}" for row in range(12)]
    frame = A.set_axis(ids).set_axis(columns, axis=1)
    (tmp_path / "a.csv").write_text(csv_of(frame, "" if is_id else name))
    notes = ingest(tmp_path / "a.csv", tmp_path / "s").notes
    assert any("--samples-in columns" in note for note in notes) == is_told


@pytest.mark.parametrize("first", [0, 1])
def test_rows_counted_from_0_and_from_1_are_the_same_or_moved_by_one(
    tmp_path: Path, first: int
) -> None:
    """Row numbers of pandas and R, or of one table without its last row and without its first."""
    own, other = A.set_axis(range(first, 12 + first)), B.set_axis(range(1 - first, 13 - first))
    files = {"a.csv": csv_of(own, ""), "b.csv": csv_of(other, "")}
    known = own.reset_index(drop=True), other.reset_index(drop=True)
    found = read(tmp_path, files, known)
    assert re.match(quotes("refused", "a.csv", "b.csv", "--id-column none"), found), found
    assert read(tmp_path, files, known, id_column=False) == "right"
    shared = range(1, 12)
    sources = [Source(tmp_path / name, id_column=0) for name in files]
    done = ingest(sources, tmp_path / "t", join="inner")
    assert open_store(tmp_path / "t").sample_ids == tuple(map(str, shared))
    assert done.n_samples == len(shared)


def test_decimals_are_features_beside_ids_and_behind_other_features(tmp_path: Path) -> None:
    """A photoionization detector is called PID, as a column of ids may be; --id-column takes it."""
    measured = A.set_axis(["a0", "PID", "person", "a3"], axis=1)
    for frame in (measured, measured.round(0) + 0.5):
        files = {"a.csv": frame.to_csv(index=False)}
        assert read(tmp_path, files, (frame.reset_index(drop=True),)) == "right"
        notes = ingest(tmp_path / "a.csv", tmp_path / "s", overwrite=True).notes
        assert any("'PID' taken as a feature" in note for note in notes)
    beside = A.rename_axis("kennung").reset_index().set_axis(A["a1"])
    (tmp_path / "a.csv").write_text(csv_of(beside, ""))
    ingest(tmp_path / "a.csv", tmp_path / "s", overwrite=True)
    assert open_store(tmp_path / "s").sample_ids == tuple(A.index)


def test_decimals_that_files_share_under_a_name_of_ids_are_ids(tmp_path: Path) -> None:
    ids = [f"{row // 3}.{row % 3 + 1}" for row in range(12)]
    first, second = A.set_axis(ids), B.set_axis(ids).iloc[ORDER]
    files = {
        name: frame.assign(sample_id=frame.index).iloc[:, [0, -1, *range(1, frame.shape[1])]]
        for name, frame in (("a.csv", first), ("b.csv", second))
    }
    texts = {name: frame.to_csv(index=False) for name, frame in files.items()}
    assert read(tmp_path, texts, (first, second)) == "right"


def test_whole_numbers_of_features_behind_row_numbers_are_no_ids(tmp_path: Path) -> None:
    """Unlike ages and sizes that are the same by half; files of unequal length are joined by their row numbers."""
    first = A.reset_index(drop=True).assign(a0=[34, 45, 23, 67, 88, 12, 55, 41, 39, 77, 29, 60])
    second = B.assign(b0=[35, 45, 24, 67, 88, 12, 55, 42, 39, 77, 30, 61]).reset_index(drop=True)
    files = {"a.csv": csv_of(first, ""), "b.csv": csv_of(second, "")}
    assert read(tmp_path, files, (first, second)) == "right"
    files["b.csv"] = csv_of(second.iloc[:10], "")
    assert read(tmp_path, files, (first[:10], second[:10]), join="inner") == "right"


@pytest.mark.parametrize(
    ("name", "others", "key"),
    [
        ("", SHUFFLED, "kennung"),
        ("barcode", [f"Q{row}" for row in range(12)], "patient"),
        ("well", [f"{'ABC'[row // 4]}{row % 4}" for row in range(12)], "kennung"),
    ],
)
def test_two_columns_that_match_the_samples_in_different_ways_are_a_question(
    tmp_path: Path, name: str, others: list[Any], key: str
) -> None:
    frames = {"a.csv": A.set_axis(NUMBERS), "b.csv": B.set_axis(NUMBERS).iloc[ORDER]}
    for file, frame in frames.items():
        rows = frame.rename_axis(key).reset_index().set_axis(others)
        (tmp_path / file).write_text(csv_of(rows, name))
    known = {file[0]: frame for file, frame in frames.items()}
    found = outcome([tmp_path / file for file in frames], known, tmp_path / "s.zarr")
    assert re.match(quotes("refused", "match the samples in different ways", repr(key)), found)
    told = [Source(tmp_path / file, id_column=key) for file in frames]
    assert outcome(told, known, tmp_path / "s.zarr") == "right"


@pytest.mark.parametrize("keys", [["family", "member"], ["lat", "lon"], ["weight"]])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_rows_of_shared_columns_in_another_order_are_refused(
    tmp_path: Path, keys: list[str], suffix: str
) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(40, len(keys))), columns=keys)
    if keys[0] == "family":
        frame = pd.DataFrame({"family": np.repeat(range(10, 30), 2), "member": [1, 2] * 20})
    files = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for order, refused in ((np.arange(40), False), (rng.permutation(40), True)):
        for file, rows in zip(files, (np.arange(40), order), strict=True):
            values = pd.DataFrame(rng.normal(size=(40, 3))).add_prefix(file.stem)
            table = pd.concat([frame.iloc[rows].reset_index(drop=True), values], axis=1)
            write = table.to_csv if suffix == ".csv" else table.to_parquet
            write(file, index=False)
        if refused:
            with raises(DataError, "a" + suffix, "b" + suffix, keys):
                ingest(files, tmp_path / "s", overwrite=True)
        else:
            assert ingest(files, tmp_path / "s").n_samples == 40


def test_a_column_of_classes_that_two_files_share_says_nothing_about_the_order(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    for name in "ab":
        values = pd.DataFrame(rng.normal(size=(40, 3))).add_prefix(name)
        values.assign(is_high=rng.permutation(np.arange(40) % 2)).to_csv(
            tmp_path / f"{name}.csv", index=False
        )
    assert ingest([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "s").n_samples == 40


@pytest.mark.parametrize("names", [["", "X", "X.1"], ["", "Unnamed: 0", "...3"]])
@pytest.mark.parametrize("has_ids", [True, False])
def test_numbers_of_rows_that_several_programs_wrote_are_no_features(
    tmp_path: Path, names: list[str], has_ids: bool
) -> None:
    frame = A.reset_index(names="patient").assign(**dict.fromkeys(names, range(1, 13)))
    columns = [*names, *(["patient"] if has_ids else []), *A]
    (tmp_path / "a.csv").write_text(frame[columns].to_csv(index=False))
    known = A if has_ids else A.set_axis([*map(str, range(1, 13))])
    assert outcome([tmp_path / "a.csv"], {"a": known}, tmp_path / "s.zarr") == "right"


@pytest.mark.parametrize("name", ["Unnamed: 0_x", "index_y", "key_0", "X.x", "nr"])
@pytest.mark.parametrize("moved", [False, True])
def test_numbers_of_rows_from_before_a_merge_are_no_features_or_told(
    tmp_path: Path, name: str, moved: bool
) -> None:
    frame = A.copy()
    frame.insert(2, name, ORDER if moved else range(12))
    is_known = name not in ("X.x", "nr")
    known = A if is_known else frame
    assert read(tmp_path, *beside(csv_of(frame), frame=known)) == "right"
    notes = ingest(tmp_path / "a.csv", tmp_path / "t.zarr").notes
    what = "left out (row numbers)" if is_known else "number the rows"
    assert [note for note in notes if repr(name) in note and what in note]


@pytest.mark.parametrize("well", [[f"{r}{c:02d}" for r in "AB" for c in range(1, 7)], SHUFFLED])
@pytest.mark.parametrize("ids", [TEXTS, NUMBERS])
@pytest.mark.parametrize("names", [("id", "Sample"), ("subject", "case"), ("Proband", "kennung")])
@pytest.mark.parametrize("place", [0, 3])
def test_places_on_the_plates_of_two_files_are_no_ids(
    tmp_path: Path, well: list[Any], ids: list[Any], names: tuple[str, str], place: int
) -> None:
    """Both files have the same places, but of other samples, and ids under two names."""
    known = {}
    frames = A.set_axis(ids), B.set_axis(ids).iloc[ORDER]
    for view, frame, name in zip("ab", frames, names, strict=True):
        table = frame.rename_axis(name).reset_index()
        table.insert(place, "Well", well)
        table.to_csv(tmp_path / f"{view}.csv", index=False)
        are_features = well == SHUFFLED
        known[view] = table.drop(columns=[] if are_features else "Well").set_index(name)
    sources = [tmp_path / "a.csv", tmp_path / "b.csv"]
    found = outcome(sources, known, tmp_path / "s.zarr")
    is_asked = re.match(quotes("refused", "a.csv", "b.csv", "--id-column", "'Well'"), found)
    assert found == "right" or (names[0] == "Proband" and is_asked), found


@pytest.mark.parametrize(
    "ids", [TEXTS, NUMBERS, ["12e45678", *(f"{row:06x}ab" for row in range(11))]]
)
def test_a_shared_column_behind_row_numbers_of_some_of_the_rows_has_the_ids(
    tmp_path: Path, ids: list[Any]
) -> None:
    frames = {"a": A.set_axis(ids).iloc[:10], "b": B.set_axis(ids).iloc[ORDER[:9]]}
    for name, frame in frames.items():
        frame.reset_index(names="V1").set_axis(range(1, len(frame) + 1)).to_csv(tmp_path / name)
    kept = [str(item) for item in ids if item in frames["a"].index and item in frames["b"].index]
    known = {name: frame.rename(index=str).loc[kept] for name, frame in frames.items()}
    sources = [tmp_path / name for name in frames]
    assert outcome(sources, known, tmp_path / "s.zarr", join="inner") == "right"


@pytest.mark.parametrize("place", [2, 4])
def test_an_only_column_of_numbers_that_differ_is_told_to_be_a_feature(
    tmp_path: Path, place: int
) -> None:
    frame = A.reset_index(drop=True)
    frame.insert(place, "fallnr", NUMBERS)
    (tmp_path / "a.csv").write_text(frame.to_csv(index=False))
    told = ingest(tmp_path / "a.csv", tmp_path / "s.zarr").notes
    assert any("'fallnr'" in note and "--id-column" in note for note in told)


@pytest.mark.parametrize("name", ["Label", "class", "target", "cluster"])
def test_names_under_a_heading_of_labels_are_ids(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.csv").write_text(csv_of(A, name))
    (tmp_path / "b.csv").write_text(csv_of(B.iloc[ORDER]))
    sources = [tmp_path / "a.csv", tmp_path / "b.csv"]
    assert outcome(sources, {"a": A, "b": B}, tmp_path / "s.zarr") == "right"
    assert open_store(tmp_path / "s.zarr").labels is None


@pytest.mark.parametrize("values", [range(12), [f"img{row}" for row in range(12)], A["a0"]])
@pytest.mark.parametrize("samples_in", ["rows", "columns"])
def test_labels_that_differ_for_every_sample_are_left_out(
    tmp_path: Path, values: Any, samples_in: Any
) -> None:
    frame = A.assign(label=[*values])
    (tmp_path / "a.csv").write_text(csv_of(frame if samples_in == "rows" else frame.T))
    source = Source(tmp_path / "a.csv", samples_in=samples_in)
    assert outcome([source], {"a": A}, tmp_path / "s.zarr") == "right"
    assert open_store(tmp_path / "s.zarr").labels is None


@pytest.mark.parametrize("suffix", [".csv", ".xlsx"])
def test_numbers_with_zeros_in_front_are_ids_in_any_column(tmp_path: Path, suffix: str) -> None:
    if suffix == ".xlsx":
        pytest.importorskip("openpyxl")
    ids = [f"{number:06d}" for number in SHUFFLED]
    frames = {"a": A.assign(kennung=ids), "b": B.assign(nummer=ids).iloc[ORDER]}
    sources = [tmp_path / f"{name}{suffix}" for name in frames]
    for source, frame in zip(sources, frames.values(), strict=True):
        (frame.to_csv if suffix == ".csv" else frame.to_excel)(source, index=False)
    known = {"a": A.set_axis(ids), "b": B.set_axis(ids)}
    assert outcome(sources, known, tmp_path / "s.zarr") == "right"


@pytest.mark.parametrize("ids", [TEXTS, NUMBERS])
@pytest.mark.parametrize("join", [None, "inner", "outer"])
def test_row_numbers_beside_ids_of_another_file_are_refused(
    tmp_path: Path, ids: list[Any], join: Any
) -> None:
    files = {"a.csv": csv_of(A.set_axis(ids)), "b.csv": csv_of(B.set_axis(range(1, 13)), "")}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with raises(DataError, "b.csv numbers its rows", str(ids[0]), "--id-column none"):
        ingest([tmp_path / name for name in files], tmp_path / "s.zarr", join=join)


@pytest.mark.parametrize("cell", ["", "NA", ".", "\\N"])
def test_missing_ids_are_counted_and_the_first_is_named(tmp_path: Path, cell: str) -> None:
    frame = A.set_axis([*A.index[:3], cell, cell, *A.index[5:]])
    found = read(tmp_path, {"a.csv": csv_of(frame)}, (frame,))
    assert re.match(quotes("refused", "2 of 12", "a.csv", repr(cell), "row 3"), found)


def test_header_and_id_column_are_what_users_say(tmp_path: Path) -> None:
    """A header of numbers, and a column of ids by its place or its name."""
    frame = A.set_axis(["0", "2", "3", "4"], axis=1)
    frame.reset_index(names="1").iloc[:, [1, 0, 2, 3, 4]].to_csv(tmp_path / "a.csv", index=False)
    for id_column in (1, "1"):
        told = Source(tmp_path / "a.csv", header=True, id_column=id_column)
        assert outcome([told], {"a": frame}, tmp_path / "s.zarr") == "right"
    for wrong in ("x", 5):
        with raises(ConfigurationError, repr(wrong)):
            ingest(Source(tmp_path / "a.csv", header=True, id_column=wrong), tmp_path / "t.zarr")


@pytest.mark.parametrize("join", ["inner", "outer"])
@pytest.mark.parametrize("is_first", [True, False])
def test_numbers_of_rows_that_were_filtered_are_ids(
    tmp_path: Path, join: Any, is_first: bool
) -> None:
    numbered, kept = A.reset_index(drop=True), B.reset_index(drop=True).iloc[[2, 3, 7, 8, 9, 11]]
    for name, frame in (("a", numbered), ("b", kept)):
        frame.to_csv(tmp_path / f"{name}.csv")
    rows = kept.index if join == "inner" else numbered.index
    known = {"a": numbered.loc[rows], "b": kept.reindex(rows)}
    known = {name: known[name].rename(index=str) for name in ("ba" if is_first else "ab")}
    sources = [tmp_path / f"{name}.csv" for name in known]
    assert outcome(sources, known, tmp_path / "s.zarr", join=join) == "right"


@pytest.mark.parametrize("last", ["", "NA", NUMBERS[0]])
@pytest.mark.parametrize(("name", "place"), [("nr", 0), ("fallnr", 0), ("fallnr", 2)])
def test_ids_of_another_file_of_which_one_is_missing_or_repeats_are_no_feature(
    tmp_path: Path, last: Any, name: str, place: int
) -> None:
    frame = A.copy()
    frame.insert(place, name, [*NUMBERS[:-1], last])
    frame.to_csv(tmp_path / "a.csv", index=False)
    (tmp_path / "b.csv").write_text(csv_of(B.set_axis(NUMBERS).iloc[ORDER], name))
    sources = [Source(tmp_path / "a.csv"), Source(tmp_path / "b.csv", id_column=name)]
    with raises(DataError, "sample id", "a.csv", repr(str(last))):
        ingest(sources, tmp_path / "s.zarr", impute="mean")


@pytest.mark.parametrize("mark", [",", ";"])
def test_ids_that_a_spreadsheet_rounded_are_named(tmp_path: Path, mark: str) -> None:
    point = "." if mark == "," else ","
    rounded = [f"{12345678901200 + row:.5E}".replace(".", point) for row in range(12)]
    (tmp_path / "a.csv").write_text(csv_of(A.set_axis(rounded), sep=mark))
    with raises(DataError, "a.csv", repr(rounded[0]), "format of text"):
        ingest(tmp_path / "a.csv", tmp_path / "s.zarr")
    frame = A.set_axis([*TEXTS[:-1], TEXTS[0]])  # other ids that repeat
    (tmp_path / "a.csv").write_text(csv_of(frame))
    with raises(DataError, "a.csv", repr(TEXTS[0]), "unique"):
        ingest(tmp_path / "a.csv", tmp_path / "s.zarr")


def test_an_index_in_a_file_without_notes_of_pandas_has_ids(tmp_path: Path) -> None:
    """As polars and others write it."""
    pytest.importorskip("pyarrow")
    frame = A.set_axis(NUMBERS).reset_index(names="__index_level_0__")
    frame.to_parquet(tmp_path / "a.parquet", index=False)
    other = B.set_axis(NUMBERS).iloc[ORDER]
    (tmp_path / "b.csv").write_text(csv_of(other, "pid"))
    sources = [tmp_path / "a.parquet", tmp_path / "b.csv"]
    known = {"a": A.set_axis(NUMBERS), "b": other}
    assert outcome(sources, known, tmp_path / "s.zarr") == "right"
