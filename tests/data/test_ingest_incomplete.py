"""Stores of samples that are absent from views: joins by id, masks, growth, imputation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import zarr
from numpy.testing import assert_array_equal

from mscam_dask.data.ingest import append, ingest
from mscam_dask.data.store.dataset import open_store, verify_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.errors import ConfigurationError, DataError, StoreCorruptError
from tests.messages import quotes

A = {"p1": 1.5, "p2": 2.5, "p3": 3.5, "p4": 4.5}
B = {"p3": 30.5, "p5": 50.5, "p1": 10.5}


def table(values: dict[str, float], **columns: Any) -> pd.DataFrame:
    numbers = np.array(list(values.values()))
    frame = pd.DataFrame({"x": numbers, "y": numbers**2}, index=pd.Index(values, name="id"))
    return frame.assign(**columns)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two views of patients, p1 and p3 in both."""
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for path, values in zip(paths, (A, B), strict=True):
        table(values).to_csv(path)
    return paths


def rows_by_id(data: MultiViewData) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {}
    for column, view in enumerate(data.views):
        own = np.array(data.sample_ids)[data.presence[:, column]]
        rows = view.read(0, view.shape[0]).tolist()
        found[view.name] = dict(zip(own.tolist(), rows, strict=True))
    return found


def test_an_outer_join_has_every_sample(tmp_path: Path, files: list[Path]) -> None:
    report = ingest(files, tmp_path / "all.zarr", join="outer")
    data = verify_store(report.output)
    assert data.sample_ids == ("p1", "p2", "p3", "p4", "p5")
    assert_array_equal(data.presence, [[1, 1], [1, 0], [1, 1], [1, 0], [0, 1]])
    assert rows_by_id(data) == {
        "a": {name: [value, value**2] for name, value in A.items()},
        "b": {name: [B[name], B[name] ** 2] for name in ("p1", "p3", "p5")},
    }
    assert report.digest == data.digest()
    assert any("'b' has 3 of 5 samples" in note for note in report.notes)
    frames = {"a": table(A), "b": table(B).loc[["p1", "p3", "p5"]]}
    in_memory = {name: frame.reindex(data.sample_ids).to_numpy() for name, frame in frames.items()}
    assert as_multi_view(in_memory).digest() == data.digest()


def test_files_with_other_ids_are_refused_by_default(tmp_path: Path, files: list[Path]) -> None:
    with pytest.raises(DataError, match="join='outer'"):
        ingest(files, tmp_path / "no.zarr")
    with pytest.raises(ConfigurationError):
        ingest(files, tmp_path / "no.zarr", join="left")  # type: ignore[arg-type]
    np.save(tmp_path / "c.npy", np.ones((4, 2)))
    with pytest.raises(DataError):
        ingest([*files, tmp_path / "c.npy"], tmp_path / "no.zarr", join="outer")
    table({"q1": 1.0, "q2": 2.0}).to_csv(tmp_path / "d.csv")
    with pytest.raises(DataError):
        ingest([files[0], tmp_path / "d.csv"], tmp_path / "no.zarr", join="inner")
    assert not (tmp_path / "no.zarr").exists()


def test_a_mask_that_was_altered_is_found(tmp_path: Path, files: list[Path]) -> None:
    store = tmp_path / "s.zarr"
    ingest(files, store, join="outer")
    mask: Any = zarr.open_array(store / "views/1/presence", mode="r+")
    mask[:] = True  # with checksums of its own
    with pytest.raises(StoreCorruptError):
        open_store(store)


def test_growth_without_labels_and_without_a_view(tmp_path: Path) -> None:
    table(A, label=[3, 4, 3, 4]).to_csv(tmp_path / "a.csv")
    table({name: -value for name, value in A.items()}).to_csv(tmp_path / "b.csv")
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    store = ingest(files, tmp_path / "s.zarr", labels="label").output
    (tmp_path / "new").mkdir()
    batch = {"n1": 7.0, "n2": 8.0}
    table(batch).to_csv(tmp_path / "new/b.csv")
    report = append(tmp_path / "new/b.csv", store)
    data = verify_store(store)
    assert (report.n_samples, report.n_classes) == (6, 2)
    assert data.sample_ids == (*A, *batch)
    assert data.labels.tolist() == [3, 4, 3, 4, -1, -1]
    assert_array_equal(data.presence[:, 0], [1, 1, 1, 1, 0, 0])
    assert data.presence[:, 1].all()
    rows = rows_by_id(data)
    assert list(rows["a"]) == list(A)
    assert rows["b"]["n2"] == [8.0, 64.0]
    # and once more, with both views
    for name in ("a", "b"):
        table({"n3": 9.0}).to_csv(tmp_path / f"new/{name}.csv")
    append([tmp_path / "new/a.csv", tmp_path / "new/b.csv"], store)
    data = verify_store(store)
    assert_array_equal(data.presence[:, 0], [1, 1, 1, 1, 0, 0, 1])
    assert rows_by_id(data)["a"]["n3"] == [9.0, 81.0]


def test_growth_with_labels_or_views_that_the_store_does_not_have_is_refused(
    tmp_path: Path, files: list[Path]
) -> None:
    store = ingest(files[0], tmp_path / "s.zarr").output
    (tmp_path / "new").mkdir()
    table({"n1": 7.0}, label=[1]).to_csv(tmp_path / "new/a.csv")
    with pytest.raises(DataError):
        append(tmp_path / "new/a.csv", store, labels="label")
    table({"n1": 7.0}).to_csv(tmp_path / "new/c.csv")
    with pytest.raises(DataError):
        append(tmp_path / "new/c.csv", store)


def test_missing_cells_are_refused_or_imputed(tmp_path: Path) -> None:
    first, second = table(A), table({name: 2 * value for name, value in A.items()})
    first.loc["p2", "y"] = np.nan
    second.loc["p4", "x"] = np.nan
    first.to_csv(tmp_path / "a.csv")
    second.to_csv(tmp_path / "b.csv")
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    with pytest.raises(DataError, match=quotes(["p2"], ["y"], ["p4"], ["x"], "impute")):
        ingest(files, tmp_path / "s.zarr")
    report = ingest(files, tmp_path / "s.zarr", impute={"a": "mean", "b": "median"})
    rows = rows_by_id(open_store(report.output))
    assert rows["a"]["p2"] == [2.5, first["y"].mean()]
    assert rows["b"]["p4"] == [second["x"].median(), 81.0]
    (note,) = [note for note in report.notes if "'a'" in note]
    assert "12.50%" in note
    assert "'mean'" in note


@pytest.mark.parametrize("impute", [None, "mean", "knn"])
def test_a_view_without_columns_is_refused(tmp_path: Path, impute: Any) -> None:
    np.save(tmp_path / "a.npy", np.empty((12, 0)))
    with pytest.raises(DataError, match=quotes("'a'", (12, 0))):
        ingest(tmp_path / "a.npy", tmp_path / "s.zarr", impute=impute)
