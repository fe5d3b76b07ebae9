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

UVW = [*"uvw" * 4]


def labels_in(store: Path) -> list[Any]:
    """Names of the classes of the samples, or their numbers."""
    data = open_store(store)
    names = data.label_names
    return [*data.labels] if names is None else [names[label] for label in data.labels]


def labels_beside(folder: Path, kinds: str, table: str) -> list[Any]:
    """Labels of a table from a file beside it."""
    (folder / "a.csv").write_text(table)
    (folder / "kinds.csv").write_text(kinds)
    ingest(folder / "a.csv", folder / "s", labels=folder / "kinds.csv")
    return labels_in(folder / "s")


def numbered(name: str) -> str:
    """As R numbers the rows of a vector without names."""
    return str(pd.Series(UVW, range(1, 13), name=name).to_csv(index_label=""))


A_SAMPLE_FIRST = pd.Series(["w", *"xy" * 5, "x"], A.index)  # its label is that of no other sample
QUOTED = pd.Series(["kind 1", "kind 2", "kind 3"] * 4, A.index)  # as write.table of R writes them
NUMBERS_FIRST = "\n".join(f"{row % 3},{item}" for row, item in enumerate(A.index))

LABELS: dict[str, tuple[str, Sequence[Any]]] = {
    "by row below a name": ("\n".join(["celltype", *UVW]), UVW),
    "by row below a short name": ("\n".join(["x", *UVW]), UVW),
    "in numbered rows": (numbered("celltype"), UVW),
    "in numbered rows below a short name": (numbered("x"), UVW),
    "a first line with a sample id": (A_SAMPLE_FIRST.to_csv(header=False), [*A_SAMPLE_FIRST]),
    "numbers in front of ids": (NUMBERS_FIRST, [0, 1, 2] * 4),
    "numbers in front of ids below names": (f"kind,id\n{NUMBERS_FIRST}", [0, 1, 2] * 4),
    "quoted, with ids": (QUOTED.to_csv(header=False, quoting=1), [*QUOTED]),
    "quoted": (QUOTED.to_csv(header=False, index=False, quoting=1), [*QUOTED]),
    "row numbers in front of ids": (
        pd.DataFrame({"pat": A.index, "grp": UVW}).iloc[ORDER].to_csv(),
        UVW,
    ),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_in_a_file_beside_a_table(tmp_path: Path, kind: str) -> None:
    text, expected = LABELS[kind]
    assert labels_beside(tmp_path, text, csv_of(A)) == expected


OTHER_SPELLINGS = {
    f"ids as {spelled}": (
        csv_of(A.set_axis(NUMBERS)),
        pd.Series(UVW, [*map(spelled.format, NUMBERS)], name="grp").to_csv(index_label="fallnr"),
        ["1000017", spelled.format("1000017")],
    )
    for spelled in ("{}.0", "00{}", "9{}")
}
PROBABILITIES = pd.DataFrame({"label": UVW, "probability": np.linspace(0.51, 0.99, 12)})

REFUSED: dict[str, tuple[str, str, list[str]]] = {
    "patients by number": (  # P07 is 7, not the seventh row
        csv_of(A.iloc[ORDER]),
        pd.Series(UVW, pd.RangeIndex(1, 13, name="patient"), name="kind").to_csv(),
        ["written in two ways", "prefix"],
    ),
    "words that all differ": (
        csv_of(A),
        "\n".join(f"{item} T cell" for item in A.index),
        ["12 labels differ", "'P01"],
    ),
    "ids alone": (csv_of(A), "\n".join(A.index), ["12 labels differ", "'P01"]),
    **OTHER_SPELLINGS,
    "two labels": (csv_of(A), "id,grp\nP01,u\nP01,v\n", ["more than once", "'P01'"]),
    "two numbers": (csv_of(A), "id,grp\nP01,0\nP01,1\n", ["more than once", "'P01'"]),
    "probabilities": (csv_of(A), PROBABILITIES.to_csv(index=False), ["2 columns", "probability"]),
    "probabilities beside no ids": (
        A.to_csv(index=False),
        PROBABILITIES.to_csv(index=False),
        ["2 columns", "probability"],
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_labels_that_are_those_of_no_sample_for_sure_are_refused(tmp_path: Path, kind: str) -> None:
    table, kinds, quoted = REFUSED[kind]
    with raises(DataError, "" if kind == "patients by number" else "kinds.csv", *quoted):
        labels_beside(tmp_path, kinds, table)


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


def test_labels_of_a_table_without_names_are_told_by_their_column(tmp_path: Path) -> None:
    kinds = ["x", "y", "x", "z"] * 3
    A.abs().round().astype(int).assign(kind=kinds).to_csv(tmp_path / "a.csv", header=False)
    with raises(DataError, "'column 5'", "--labels"):
        ingest(tmp_path / "a.csv", tmp_path / "s")
    ingest(tmp_path / "a.csv", tmp_path / "s", labels="column 5", overwrite=True)
    assert labels_in(tmp_path / "s") == kinds


@pytest.mark.parametrize("missing", ["", "nan", "None"])
def test_labels_that_are_missing_in_an_archive_are_refused(tmp_path: Path, missing: str) -> None:
    np.savez(tmp_path / "a.npz", X=A.to_numpy(), y=np.array(["u", missing, "v"] * 4))
    with raises(DataError, "4 label(s)", "a.npz", repr(missing), "row 1", "#n/a"):
        ingest(tmp_path / "a.npz", tmp_path / "s.zarr")


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
        told = Source(tmp_path / "a.csv", id_column="pid")
        ingest(told, tmp_path / "s", labels=tmp_path / "kinds.csv")
    told = Source(tmp_path / "a.csv", id_column="sid")
    ingest(told, tmp_path / "s", labels=tmp_path / "kinds.csv")
    assert labels_in(tmp_path / "s") == [*keys["kind"]]
    keys.to_csv(tmp_path / "both.csv", index=False)
    with raises(DataError, "both.csv", "['pid', 'sid']", "Drop"):
        ingest(told, tmp_path / "t", labels=tmp_path / "both.csv")


def test_archives_of_different_samples_with_labels_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=A.to_numpy(), y=[0, 1, 2] * 4)
    np.savez(tmp_path / "b.npz", Z=A.to_numpy()[:9], y=[0, 1, 2] * 3)
    with raises(DataError, "a.npz", "12 labels", "b.npz", "9", "--join"):
        ingest([tmp_path / "a.npz", tmp_path / "b.npz"], tmp_path / "s")
