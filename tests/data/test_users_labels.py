"""Labels that users have beside their files: those of the right samples, or a typed error."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mscam_dask.data.ingest import ingest
from mscam_dask.data.readers.base import Source
from mscam_dask.data.store.dataset import open_store
from mscam_dask.errors import DataError
from tests.data.known_tables import NUMBERS, ORDER, TEXTS, A, csv_of, outcome
from tests.messages import quotes, raises


@pytest.mark.parametrize("names", ["uvw", ["class 0", "class 1", "class 2"]])
def test_labels_in_a_table_of_their_own(tmp_path: Path, names: Sequence[str]) -> None:
    kinds = dict(zip(A.index, [*names] * 4, strict=True))
    (tmp_path / "a.csv").write_text(csv_of(A))
    (tmp_path / "kinds.csv").write_text(csv_of(pd.DataFrame({"class": kinds}).iloc[ORDER]))
    sources = [tmp_path / "a.csv", tmp_path / "kinds.csv"]
    assert outcome(sources, {"a": A}, tmp_path / "s.zarr", labels=kinds) == "right"


@pytest.mark.parametrize(
    "name",
    ["Class Label", "class.label", "Truth", "y_true", "True_Class", "label_id", "leiden_0.5", "SC3_5_clusters", "RNA_snn_res.0.8"],
)  # fmt: skip
@pytest.mark.parametrize("is_text", [True, False])
def test_names_of_labels_in_any_spelling(tmp_path: Path, name: str, is_text: bool) -> None:
    kinds = dict(zip(A.index, ("uvw" if is_text else "012") * 4, strict=True))
    (tmp_path / "a.csv").write_text(csv_of(A.assign(**{name: kinds})))
    assert outcome([tmp_path / "a.csv"], {"a": A}, tmp_path / "s", labels=kinds) == "right"


@pytest.mark.parametrize("name", ["n_clusters", "classical", "target_size", "labels per cell", "Y"])
def test_features_whose_names_have_words_of_labels(tmp_path: Path, name: str) -> None:
    frame = A.assign(**{name: np.arange(12) % 3 + 0.5})
    (tmp_path / "a.csv").write_text(csv_of(frame))
    assert outcome([tmp_path / "a.csv"], {"a": frame}, tmp_path / "s") == "right"


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("name", ["celltype", "x"])
def test_labels_by_row_below_a_name(tmp_path: Path, name: str, numbered: bool) -> None:
    """R numbers the rows of a vector without names."""
    kinds = pd.Series([*"uvw" * 4], range(1, 13), name=name)
    (tmp_path / "a.csv").write_text(csv_of(A))
    kinds.to_csv(tmp_path / "kinds.csv", index=numbered, index_label="" if numbered else None)
    ingest(tmp_path / "a.csv", tmp_path / "s", labels=tmp_path / "kinds.csv")
    data = open_store(tmp_path / "s")
    assert np.array(data.label_names)[data.labels].tolist() == kinds.tolist()


def test_a_first_line_with_a_sample_id_is_no_header_of_labels(tmp_path: Path) -> None:
    """Its label alone is that of no other sample."""
    kinds = pd.Series(["w", *"xy" * 5, "x"], A.index)
    (tmp_path / "a.csv").write_text(csv_of(A))
    kinds.to_csv(tmp_path / "kinds.csv", header=False)
    ingest(tmp_path / "a.csv", tmp_path / "s", labels=tmp_path / "kinds.csv")
    data = open_store(tmp_path / "s")
    assert np.array(data.label_names)[data.labels].tolist() == kinds.tolist()


@pytest.mark.parametrize("header", [["kind,id"], []])
def test_numbers_in_front_of_ids_are_labels(tmp_path: Path, header: list[str]) -> None:
    """A first line with a sample id names no columns, also where numbers are like names."""
    kinds = [0, 1, 2] * 4
    (tmp_path / "a.csv").write_text(csv_of(A))
    lines = [f"{kind},{item}" for kind, item in zip(kinds, A.index, strict=True)]
    (tmp_path / "kinds.csv").write_text("\n".join([*header, *lines]))
    ingest(tmp_path / "a.csv", tmp_path / "s", labels=tmp_path / "kinds.csv")
    assert open_store(tmp_path / "s").labels.tolist() == kinds


def test_labels_of_numbered_patients_are_not_taken_by_row(tmp_path: Path) -> None:
    """P07 is 7, not the seventh row."""
    (tmp_path / "a.csv").write_text(csv_of(A.iloc[ORDER]))
    kinds = pd.Series([*"uvw" * 4], pd.RangeIndex(1, 13, name="patient"), name="kind")
    kinds.to_csv(tmp_path / "kinds.csv")
    with raises(DataError, "written in two ways", "prefix"):
        ingest(tmp_path / "a.csv", tmp_path / "s", labels=tmp_path / "kinds.csv")


@pytest.mark.parametrize("is_own", [False, True])
def test_numbers_of_many_digits_are_several_labels(tmp_path: Path, is_own: bool) -> None:
    kinds = pd.Series([2**53, 2**53 + 1, 10**18, 10**18 + 1] * 3, A.index, name="class")
    (tmp_path / "a.csv").write_text(csv_of(A if is_own else A.join(kinds)))
    kinds.to_csv(tmp_path / "kinds.csv", index_label="id")
    ingest(tmp_path / "a.csv", tmp_path / "s", labels=tmp_path / "kinds.csv" if is_own else None)
    assert pd.factorize(open_store(tmp_path / "s").labels)[0].tolist() == [0, 1, 2, 3] * 3


def test_an_only_column_of_few_whole_numbers_may_be_labels(tmp_path: Path) -> None:
    """Under whatever name, also none."""
    kinds = pd.DataFrame({"x": np.arange(12) % 3}, index=A.index)
    for has_names in (True, False):
        kinds.to_csv(tmp_path / "a.csv", header=has_names)
        notes = ingest(tmp_path / "a.csv", tmp_path / "s.zarr", overwrite=True).notes
        assert any("--labels" in note for note in notes)


@pytest.mark.parametrize("names", [["seurat_clusters"], ["cluster", "label"]])
def test_columns_that_may_be_labels_are_named(tmp_path: Path, names: list[str]) -> None:
    kinds = pd.DataFrame({name: np.arange(12) % (2 + place) for place, name in enumerate(names)}, index=A.index)  # fmt: skip
    (tmp_path / "a.csv").write_text(csv_of(A.join(kinds)))
    try:
        said = " ".join(ingest(tmp_path / "a.csv", tmp_path / "s.zarr").notes)
    except DataError as error:
        said = str(error)
    assert re.match(quotes("a.csv", *(f"'{name}'" for name in names)), said)


@pytest.mark.parametrize("text", ["{} T cell", "{}"])
def test_lines_that_all_differ_are_no_labels(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(csv_of(A))
    (tmp_path / "kinds.txt").write_text("\n".join(map(text.format, A.index)))
    with raises(DataError, "kinds.txt", "12 labels differ", "'P01"):
        ingest(tmp_path / "a.csv", tmp_path / "s", labels=tmp_path / "kinds.txt")


@pytest.mark.parametrize("spelled", ["{}.0", "00{}", "9{}"])
def test_ids_of_labels_that_are_written_in_another_way_are_compared(
    tmp_path: Path, spelled: str
) -> None:
    """--id-column, which names one of the data, is no remedy."""
    (tmp_path / "a.csv").write_text(csv_of(A.set_axis(NUMBERS)))
    kinds = pd.Series([*"uvw" * 4], [*map(spelled.format, NUMBERS)], name="grp")
    kinds.to_csv(tmp_path / "kinds.csv", index_label="fallnr")
    with raises(DataError, "kinds.csv", "1000017", spelled.format("1000017")):
        ingest(tmp_path / "a.csv", tmp_path / "s", labels=tmp_path / "kinds.csv")


@pytest.mark.parametrize("labels", [["u", "v"], ["0", "1"]])
def test_a_sample_that_has_two_labels_is_named(tmp_path: Path, labels: list[str]) -> None:
    (tmp_path / "a.csv").write_text(csv_of(A))
    (tmp_path / "kinds.csv").write_text(f"id,grp\nP01,{labels[0]}\nP01,{labels[1]}\n")
    with raises(DataError, "kinds.csv", "more than once", "'P01'"):
        ingest(tmp_path / "a.csv", tmp_path / "s", labels=tmp_path / "kinds.csv")


def test_labels_of_a_table_without_names_are_told_by_their_column(tmp_path: Path) -> None:
    kinds = ["x", "y", "x", "z"] * 3
    A.abs().round().astype(int).assign(kind=kinds).to_csv(tmp_path / "a.csv", header=False)
    with raises(DataError, "'column 5'", "--labels"):
        ingest(tmp_path / "a.csv", tmp_path / "s")
    ingest(tmp_path / "a.csv", tmp_path / "s", labels="column 5", overwrite=True)
    data = open_store(tmp_path / "s")
    assert np.array(data.label_names)[data.labels].tolist() == kinds
    assert data.n_samples == len(A)


@pytest.mark.parametrize("has_ids", [True, False])
def test_quoted_labels_have_no_header(tmp_path: Path, has_ids: bool) -> None:
    """As write.table of R writes them: no number stands outside of quotes."""
    kinds = pd.Series(["kind 1", "kind 2", "kind 3"] * 4, A.index)
    kinds.to_csv(tmp_path / "kinds.csv", header=False, index=has_ids, quoting=1)
    (tmp_path / "a.csv").write_text(csv_of(A))
    ingest(tmp_path / "a.csv", tmp_path / "s", labels=tmp_path / "kinds.csv")
    data = open_store(tmp_path / "s")
    assert np.array(data.label_names)[data.labels].tolist() == [*kinds]


@pytest.mark.parametrize("missing", ["", "nan", "None"])
def test_labels_that_are_missing_in_an_archive_are_refused(tmp_path: Path, missing: str) -> None:
    np.savez(tmp_path / "a.npz", X=A.to_numpy(), y=np.array(["u", missing, "v"] * 4))
    with raises(DataError, "4 label(s)", "a.npz", repr(missing), "row 1", "#n/a"):
        ingest(tmp_path / "a.npz", tmp_path / "s.zarr")


@pytest.mark.parametrize("has_ids", [True, False])
def test_probabilities_beside_labels_are_no_ids(tmp_path: Path, has_ids: bool) -> None:
    A.to_csv(tmp_path / "a.csv", index=has_ids, index_label="id")
    kinds = pd.DataFrame({"label": [*"uvw" * 4], "probability": np.linspace(0.51, 0.99, 12)})
    kinds.to_csv(tmp_path / "kinds.csv", index=False)
    with raises(DataError, "kinds.csv", "2 columns", "probability"):
        ingest(tmp_path / "a.csv", tmp_path / "s", labels=tmp_path / "kinds.csv")


def test_two_columns_under_one_name_of_labels_are_refused(tmp_path: Path) -> None:
    """One of them would be a feature."""
    frame = pd.concat([A.assign(kind=[*"uvw"] * 4), pd.Series([*"uuvv"] * 3, A.index)], axis=1)
    (tmp_path / "a.csv").write_text(csv_of(frame.set_axis([*A.columns, "class", "class"], axis=1)))
    with raises(DataError, "a.csv", "'class'"):
        ingest(tmp_path / "a.csv", tmp_path / "s.zarr")


@pytest.mark.parametrize("ids", [TEXTS, NUMBERS])
def test_labels_by_another_key_with_the_same_values_are_refused(
    tmp_path: Path, ids: list[Any]
) -> None:
    """In place of the ids of the data, or beside them."""
    keys = pd.DataFrame({"pid": ids, "sid": [ids[row] for row in ORDER], "kind": [*"uvw" * 4]})
    keys.drop(columns="kind").join(A.reset_index(drop=True)).to_csv(tmp_path / "a.csv", index=False)
    keys.drop(columns="pid").to_csv(tmp_path / "kinds.csv", index=False)
    with raises(DataError, "kinds.csv", "'sid'", "--id-column sid"):
        ingest(
            Source(tmp_path / "a.csv", id_column="pid"),
            tmp_path / "s",
            labels=tmp_path / "kinds.csv",
        )
    told = Source(tmp_path / "a.csv", id_column="sid")
    ingest(told, tmp_path / "s", labels=tmp_path / "kinds.csv")
    found = open_store(tmp_path / "s")
    assert np.array(found.label_names)[found.labels].tolist() == [*keys["kind"]]
    keys.to_csv(tmp_path / "both.csv", index=False)
    with raises(DataError, "both.csv", "['pid', 'sid']", "Drop"):
        ingest(told, tmp_path / "t", labels=tmp_path / "both.csv")


def test_row_numbers_in_front_of_ids_and_labels_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(csv_of(A))
    kinds = pd.DataFrame({"pat": A.index, "grp": [*"uvw" * 4]}).iloc[ORDER]
    kinds.to_csv(tmp_path / "kinds.csv")
    ingest(tmp_path / "a.csv", tmp_path / "s", labels=tmp_path / "kinds.csv")
    found = open_store(tmp_path / "s")
    assert np.array(found.label_names)[found.labels].tolist() == [*"uvw" * 4]


def test_archives_of_different_samples_with_labels_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=A.to_numpy(), y=[0, 1, 2] * 4)
    np.savez(tmp_path / "b.npz", Z=A.to_numpy()[:9], y=[0, 1, 2] * 3)
    with raises(DataError, "a.npz", "12 labels", "b.npz", "9", "--join"):
        ingest([tmp_path / "a.npz", tmp_path / "b.npz"], tmp_path / "s")
