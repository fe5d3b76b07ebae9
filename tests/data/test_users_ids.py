"""Columns of ids in users' files: found, kept as they are written, matched, or asked for."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mscam_dask.data.store.read import open_store
from tests.data.known_tables import NUMBERS, ORDER, TEXTS, A, B, csv_of, read
from tests.messages import quotes


@pytest.mark.parametrize(
    "name",
    [
        *("eid", "SEQN", "IID", "RID", "Subject", "MRN", "patient", "barcode", "PATIENTID", "case"),
        *("Patient ID", "sample_no", "record", "nhc", "hadm_id", "Proband", "Lfd. Nr.", "study nr"),
        *(
            "受试者",
            "f.eid",
            "#IID",
            "participant",
            "Fallnummer",
            "pat",
            "код",
            "subjid",
            "USUBJID",
        ),
        *("Tumor_Sample_Barcode", "accession", "nr", "no.", "key", "Zeile", "dossier", "person_id"),
        *("x", "donor", "matricule", "Serial Number", "cell", "specimen", "ptid", "row", "index"),
    ],
)
def test_whole_numbers_under_one_name_in_two_files_are_ids(tmp_path: Path, name: str) -> None:
    first, second = A.set_axis(NUMBERS), B.set_axis(NUMBERS)
    files = {"a.csv": csv_of(first, name), "b.csv": csv_of(second.iloc[ORDER], name)}
    assert read(tmp_path, files, (first, second)) == "right"
    data = open_store(tmp_path / "s.zarr")
    assert data.sample_ids == tuple(map(str, NUMBERS))


@pytest.mark.parametrize(
    "write",
    [
        lambda item: f"{item}.0",
        lambda item: f"{item:012d}",
        lambda item: f"-{item}",
        lambda item: f"20230000000{item}00",
        lambda item: f"1E{item % 1000}",
        lambda item: f'"{item}"',
    ],
    ids=["1000.0", "zero-padded", "negative", "20 digits", "1E3", "quoted"],
)
def test_ids_keep_their_spelling(tmp_path: Path, write: Callable[[int], str]) -> None:
    ids = [write(item) for item in NUMBERS]
    stored = [item.strip('"') for item in ids]
    texts = [csv_of(frame.set_axis(ids), "Proband", quotechar="'") for frame in (A, B)]
    known = (A.set_axis(stored), B.set_axis(stored))
    found = read(tmp_path, dict(zip(("a.csv", "b.csv"), texts, strict=True)), known)
    if found != "right":
        assert re.match(quotes("refused", "Proband"), found)


@pytest.mark.parametrize("name", ["platelets", "year_of_birth", "n_genes", "position", "zip"])
def test_a_measured_whole_number_is_no_id(tmp_path: Path, name: str) -> None:
    """A first column of such numbers is a feature or asked for, also if two files have others in it."""
    first = A.reset_index(drop=True).assign(a0=ORDER * 17 + 40).rename(columns={"a0": name})
    second = B.reset_index(drop=True).assign(b0=ORDER * 13 + 45).rename(columns={"b0": name})
    files = {"a.csv": first.to_csv(index=False), "b.csv": second.to_csv(index=False)}
    found = read(tmp_path, {"a.csv": files["a.csv"]}, (first,))
    assert found == "right" or re.match(quotes("refused", "a.csv", name, "id_column"), found)
    found = read(tmp_path, files, (first, second))
    assert found == "right" or re.match(quotes("refused", "a.csv", name), found)


@pytest.mark.parametrize("cells", ["whole numbers", "whole numbers, some missing"])
def test_other_whole_numbers_do_not_change_what_is_an_id(tmp_path: Path, cells: str) -> None:
    counts = ORDER + 500.0
    if cells.endswith("missing"):
        counts[[0, 3, 7]] = np.nan
    first, second = A.set_axis(NUMBERS).assign(a2=counts), B.set_axis(NUMBERS).iloc[ORDER]
    written = first.astype({"a2": "Int64"})
    files = {"a.csv": csv_of(written, "Proband"), "b.csv": csv_of(second, "Proband")}
    assert read(tmp_path, files, (first, second)) == "right"


def test_ascending_whole_numbers_under_one_name_are_asked_about(tmp_path: Path) -> None:
    years = A.set_axis(range(1990, 2014, 2))
    found = read(tmp_path, {"a.csv": csv_of(years, "year")}, (A,))
    assert re.match(quotes("refused", "a.csv", "id_column='year'", "id_column=False"), found)


def row_numbers(frame: pd.DataFrame, name: str, *, start: int) -> str:
    own = frame.rename_axis(name).reset_index()
    return csv_of(own.set_axis(range(start, start + len(own))), "")


NOT_FIRST: dict[str, Callable[[pd.DataFrame], str]] = {
    "row numbers of R": lambda frame: row_numbers(frame, "eid", start=1),
    "row numbers of pandas": lambda frame: row_numbers(frame, "eid", start=0),
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


@pytest.mark.parametrize("bad", ["NA", "", "nan", "NULL", "#N/A", "P02"])
@pytest.mark.parametrize("place", [0, 5, 11])
def test_ids_that_are_missing_or_repeat(tmp_path: Path, bad: str, place: int) -> None:
    ids = [*TEXTS]
    ids[place] = bad
    files = {"a.csv": csv_of(A.set_axis(ids), "id")}
    found = read(tmp_path, files, (A,))
    assert re.match(quotes("refused", "a.csv", bad), found)


# ----------------------------------------------------------------------------- ids in two spellings


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


def test_ids_written_twice_without_a_header(tmp_path: Path) -> None:
    first, second = A.set_axis(NUMBERS), B.set_axis(NUMBERS)
    twice = csv_of(first.reset_index(names="FID").set_axis(NUMBERS), "IID", sep=" ")
    files = {
        "a.txt": twice.split("\n", 1)[1],
        "b.csv": csv_of(second.iloc[ORDER], "IID"),
    }
    assert read(tmp_path, files, (first.set_axis(range(4), axis=1), second)) == "right"
