"""ingest: labels and ids of samples, and sources that have these in different orders or on different axes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mscam_dask.data.ingest import IngestReport, Source, ingest
from mscam_dask.data.store.dataset import open_store
from mscam_dask.errors import DataError
from tests.data.ingested import COLOUR, LABELS, SHAPE, N, save_npz, stored
from tests.messages import quotes, raises


def numbers_in(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


# ----------------------------------------------------------------------------- labels


def labels_of(report: IngestReport) -> list[int] | None:
    labels = open_store(report.output).labels
    return None if labels is None else list(labels.tolist())


def test_labels_by_key_by_file_and_by_value(tmp_path: Path) -> None:
    source = save_npz(tmp_path / "a.npz", labels=LABELS, fine=LABELS + 10)
    names = tmp_path / "classes.txt"
    names.write_text("species\n" + "\n".join("abcabca") + "\n")
    numbers = tmp_path / "numbers.txt"
    numbers.write_text("label\n" + "".join(f"{label}\n" for label in LABELS))
    array = tmp_path / "y.npy"
    np.save(array, LABELS[::-1])
    cases: list[tuple[Any, list[int]]] = [
        (None, LABELS.tolist()),
        ("fine", (LABELS + 10).tolist()),
        ([3, 3, 3, 1, 1, 1, 1], [3, 3, 3, 1, 1, 1, 1]),
        (list("xxyyzzz"), LABELS.tolist()),
        (str(numbers), LABELS.tolist()),
        (names, [0, 1, 2, 0, 1, 2, 0]),
        (array, LABELS[::-1].tolist()),
    ]
    for index, (given, expected) in enumerate(cases):
        assert labels_of(ingest(source, tmp_path / f"{index}.zarr", labels=given)) == expected
    for others in ("abcabcbb", "aaabbcd"):  # the first line may be a label
        names.write_text("\n".join("x" + others))
        with pytest.raises(DataError):
            ingest(source, tmp_path / "s.zarr", labels=names)
    with pytest.raises(DataError):
        ingest(source, tmp_path / "s.zarr", labels="nowhere")


@pytest.mark.parametrize(
    "text",
    [
        "id,one,two\ns0,1,2\n",
        "0,1\n1,1\n",
        "id,label\ns0,1\ns0,2\n",
        "id,label\ns0,1\nt1,2\n",
        "id,label\ns0,1\ns1,\n",
    ],
    ids=["three", "no heading", "twice", "not there", "missing"],
)
def test_label_files_that_cannot_be_matched(tmp_path: Path, text: str) -> None:
    pd.DataFrame(COLOUR, index=[f"s{i}" for i in range(N)]).to_csv(tmp_path / "colour.csv")
    file = tmp_path / "labels.csv"
    file.write_text(text)
    with pytest.raises(DataError):
        ingest(tmp_path / "colour.csv", tmp_path / "s.zarr", labels=file)
    file.write_text("id,label\na,1\n")
    with pytest.raises(DataError):  # data without ids
        ingest(save_npz(tmp_path / "a.npz"), tmp_path / "s.zarr", labels=file)


def test_sources_must_agree_on_labels(tmp_path: Path) -> None:
    first = save_npz(tmp_path / "a.npz", labels=LABELS, view_names=np.array(["a", "b"]))
    same = save_npz(tmp_path / "b.npz", labels=LABELS, view_names=np.array(["c", "d"]))
    other = save_npz(tmp_path / "c.npz", labels=LABELS[::-1], view_names=np.array(["e", "f"]))
    assert labels_of(ingest([first, same], tmp_path / "1.zarr")) == LABELS.tolist()
    with pytest.raises(DataError):
        ingest([first, other], tmp_path / "2.zarr")
    assert labels_of(ingest([first, other], tmp_path / "3.zarr", labels=LABELS)) == LABELS.tolist()


# ----------------------------------------------------------------------------- ids


def test_rows_of_tables_in_another_order_are_matched_by_id(tmp_path: Path) -> None:
    first, second = tmp_path / "colour.csv", tmp_path / "shape.csv"
    first.write_text("id,red,green\na,1,10\nb,2,20\nc,3,30\n")
    second.write_text("id,width,label\nc,300,z\na,100,x\nb,200,y\n")
    report = ingest([first, second], tmp_path / "s.zarr", labels="label")
    data = open_store(report.output)
    assert data.sample_ids == ("a", "b", "c")
    np.testing.assert_array_equal(stored(report)["colour"], [[1, 10], [2, 20], [3, 30]])
    np.testing.assert_array_equal(stored(report)["shape"], [[100], [200], [300]])
    assert [data.label_names[label] for label in data.labels] == ["x", "y", "z"]
    *_, note = [note for note in report.notes if re.match(quotes(first, second), note)]
    assert numbers_in(note.replace(str(tmp_path), "")) == [3, 3]
    (of_first, of_second) = report.origin
    assert (of_first["labels"], of_second["labels"]) == ("none", "column 'label'")
    assert numbers_in(of_second["rows"].replace(str(tmp_path), "")) == [3, 3]


@pytest.mark.parametrize(
    ("arrays", "samples_in", "quoted"),
    [
        ({"colour": COLOUR, "shape": SHAPE.T}, "rows", ["shape", "samples_in='columns'"]),
        ({"colour": COLOUR, "shape": SHAPE.T}, "columns", ["colour", "samples_in='columns'"]),
        ({"colour": COLOUR, "y": LABELS[:-1]}, "rows", [6, 7, "labels"]),
    ],
)
def test_other_numbers_of_samples_are_refused(
    tmp_path: Path, arrays: dict[str, Any], samples_in: Any, quoted: list[object]
) -> None:
    np.savez(tmp_path / "a.npz", sample_ids=np.arange(N), **arrays)
    with raises(DataError, *quoted):
        ingest(Source(tmp_path / "a.npz", samples_in=samples_in), tmp_path / "s.zarr")


@pytest.mark.parametrize("join", [None, "inner", "outer"])
def test_a_file_whose_features_are_the_samples_of_the_others(tmp_path: Path, join: Any) -> None:
    """Each with columns f0, f1, ... too, so that samples of one have the names of features of the others."""
    frame = pd.DataFrame(COLOUR, [f"s{i}" for i in range(N)], list("fgh"))
    frames = {"a": frame.T, "b": frame, "c": frame}
    files = [tmp_path / f"{name}.csv" for name in frames]
    for file, frame in zip(files, frames.values(), strict=True):
        frame.to_csv(file)
    with raises(DataError, "a.csv", "samples_in='columns'"):
        ingest(files, tmp_path / "s", join=join)
    turned: list[Path | Source] = [Source(files[0], samples_in="columns"), *files[1:]]
    assert ingest(turned, tmp_path / "s").n_samples == N
