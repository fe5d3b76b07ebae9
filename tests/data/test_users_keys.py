"""Ids of several kinds in users' files, and ids in the header of a file with samples on columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mscam_dask.data.ingest import Source, ingest
from mscam_dask.data.store.dataset import open_store
from mscam_dask.errors import DataError
from tests.data.known_tables import NUMBERS, ORDER, TEXTS, A, B, csv_of, difference, outcome
from tests.messages import raises


@pytest.mark.parametrize("names", [("pid", "sid"), ("patient_id", "sample_id"), ("nhc", "fallnr")])
@pytest.mark.parametrize("ids", [NUMBERS, TEXTS])
@pytest.mark.parametrize("form", ["rows", "three", "columns", ".npz"])
def test_keys_of_two_kinds_that_have_the_same_values_are_a_question(
    tmp_path: Path, names: tuple[str, str], ids: list[Any], form: str
) -> None:
    """Such as numbers of patients and of samples: a file has both, another one of them, of any kind where it has no name."""
    others = [ids[row] for row in ORDER]
    both = A.reset_index(drop=True)
    both.insert(0, names[0], ids)
    both.insert(1, names[1], others)
    both.to_csv(tmp_path / "a.csv", index=False)
    known = B.set_axis(others).iloc[::-1]
    sources = [Source(tmp_path / "a.csv"), Source(tmp_path / ("b" + form * (form == ".npz")))]
    if form == ".npz":
        np.savez(sources[1].file, b=known.to_numpy(), sample_ids=[*map(str, known.index)])
    elif form == "columns":
        sources[1] = Source(tmp_path / "b", samples_in="columns")
        known.T.to_csv(tmp_path / "b", index_label="gene")
    else:
        known.to_csv(tmp_path / "b", index_label=names[1])
    if form == "three":
        A.set_axis(ids).to_csv(tmp_path / "c", index_label=names[0])
        sources.insert(0, Source(tmp_path / "c"))
    with raises(DataError, "a.csv and ", repr(names[0]), repr(names[1]), "--id-column"):
        ingest(sources, tmp_path / "s.zarr")
    if form == "rows":
        told = [Source(source.file, id_column=names[1]) for source in sources]
        ingest(told, tmp_path / "s.zarr")
        data = open_store(tmp_path / "s.zarr")
        assert data.sample_ids == tuple(map(str, others))
        assert difference(data, "b", known) is None


@pytest.mark.parametrize("is_first", [True, False])
def test_numbers_in_a_header_are_the_ids_of_another_file(tmp_path: Path, is_first: bool) -> None:
    """Under whatever name these are."""
    (tmp_path / "a.csv").write_text(csv_of(A.set_axis(NUMBERS), "nhc"))
    known = B.set_axis(NUMBERS).iloc[ORDER]
    known.T.to_csv(tmp_path / "b.csv", index_label="gene")
    sources = [Source(tmp_path / "b.csv", samples_in="columns"), Source(tmp_path / "a.csv")]
    frames = {"b": known, "a": A.set_axis(NUMBERS)}
    order = slice(None, None, 1 if is_first else -1)
    ordered = dict([*frames.items()][order])
    assert outcome(sources[order], ordered, tmp_path / "s.zarr") == "right"


def test_wells_are_no_ids_of_an_archive_beside_numbers_that_another_has(tmp_path: Path) -> None:
    """The only text of an archive has the ids where no other file tells."""
    wells = [f"{'ABC'[row // 4]}{row % 4}" for row in range(12)]
    np.savez(tmp_path / "a.npz", a=A.to_numpy(), kennung=NUMBERS, Well=wells)
    np.savez(tmp_path / "b.npz", b=B.to_numpy()[ORDER], kennung=[NUMBERS[row] for row in ORDER])
    ingest([tmp_path / "a.npz", tmp_path / "b.npz"], tmp_path / "s.zarr")
    data = open_store(tmp_path / "s.zarr")
    assert data.sample_ids == tuple(map(str, NUMBERS))
    np.testing.assert_array_equal(data.views[1].read(0, 12), B)
    notes = ingest(tmp_path / "a.npz", tmp_path / "t.zarr").notes
    assert open_store(tmp_path / "t.zarr").sample_ids == tuple(wells)
    assert any("'Well' taken" in note and "['kennung']" in note for note in notes)


@pytest.mark.parametrize("last", ["", TEXTS[0]])
def test_ids_of_an_archive_of_which_a_table_lacks_or_repeats_one_are_no_feature(
    tmp_path: Path, last: str
) -> None:
    np.savez(tmp_path / "a.npz", a=A.to_numpy(), code=TEXTS)
    B.assign(code=[*TEXTS[:-1], last])[["code", *B]].to_csv(tmp_path / "b.csv", index=False)
    with raises(DataError, "sample id", "b.csv", repr(last)):
        ingest([tmp_path / "a.npz", tmp_path / "b.csv"], tmp_path / "s.zarr", impute="mean")


def test_a_header_of_samples_takes_no_file_from_the_name_that_it_shares(tmp_path: Path) -> None:
    A.T.to_csv(tmp_path / "a.csv", index_label="gene")
    behind = B.assign(other=[f"Q{row}" for row in ORDER], kennung=B.index).iloc[ORDER]
    behind.iloc[:, [0, 3, 1, 2, 4]].to_csv(tmp_path / "b.csv", index=False)
    (tmp_path / "c.csv").write_text(csv_of(A.add_prefix("c").iloc[::-1], "kennung"))
    sources = [tmp_path / "b.csv", tmp_path / "c.csv"]
    known = {"a": A, "b": B, "c": A.add_prefix("c")}
    told: list[Path | Source] = [Source(tmp_path / "a.csv", samples_in="columns"), *sources]
    assert outcome(told, known, tmp_path / "s.zarr") == "right"
