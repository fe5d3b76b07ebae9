"""Appending samples to a store: checked before anything is written, then all at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from mscam_dask.data.ingest import append, ingest
from mscam_dask.data.store.dataset import open_store, verify_store, write_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.errors import DataError, StoreCorruptError
from tests.messages import quotes

Array = NDArray[np.float64]


def samples(start: int, stop: int, **changes: Any) -> MultiViewData:
    """Rows whose values say which sample they are of."""
    rows = np.arange(start, stop, dtype=float)[:, None]
    views = (ArrayRows(rows + np.array([0.1, 0.2]), "a"), ArrayRows(rows * [1, -1, 2], "b"))
    fields: dict[str, Any] = {
        "views": views,
        "sample_ids": tuple(f"s{i}" for i in range(start, stop)),
        "labels": np.arange(start, stop, dtype=np.int64) % 2,
        "label_names": ("even", "odd"),
    }
    return MultiViewData(**{**fields, **changes})


def test_a_store_and_its_growth_are_as_if_written_at_once(tmp_path: Path) -> None:
    write_store(samples(0, 7), tmp_path / "grown.zarr", chunk_size=3)
    report = append(samples(7, 12), tmp_path / "grown.zarr")
    write_store(samples(0, 12), tmp_path / "once.zarr")
    grown, once = verify_store(tmp_path / "grown.zarr"), open_store(tmp_path / "once.zarr")
    assert (grown.digest(), grown.sample_ids, grown.label_names) == (
        once.digest(), once.sample_ids, once.label_names,
    )  # fmt: skip
    np.testing.assert_array_equal(grown.labels, once.labels)
    assert report.n_samples == 12
    assert report.digest == once.digest()
    assert [item.name for item in tmp_path.iterdir() if item.name.startswith(".")] == []


@pytest.mark.parametrize(
    "change",
    [
        {"sample_ids": ("s9", "s3", "s8")},
        {"sample_ids": None},
        {"label_names": None},
        {"views": (ArrayRows(np.ones((3, 2)), "c"),)},
        {"views": (ArrayRows(np.ones((3, 3)), "a"), ArrayRows(np.ones((3, 3)), "b"))},
        {"views": (ArrayRows(np.array([[0, np.nan]] * 3), "a"), ArrayRows(np.ones((3, 3)), "b"))},
    ],
    ids=["known id", "no ids", "no names of labels", "other view", "columns", "NaN"],
)
def test_what_does_not_fit_is_refused_and_the_store_stays(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    write_store(samples(0, 6), tmp_path / "x.zarr")
    before = open_store(tmp_path / "x.zarr").digest()
    with pytest.raises(DataError):
        append(samples(10, 13, **change), tmp_path / "x.zarr")
    assert verify_store(tmp_path / "x.zarr").digest() == before


def test_matrices_of_all_pairs_cannot_grow(tmp_path: Path) -> None:
    square = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))
    view = ArrayRows(square, "d", view_type="distance")
    write_store(MultiViewData((view,)), tmp_path / "x.zarr")
    with pytest.raises(DataError):
        append(MultiViewData((view,)), tmp_path / "x.zarr")


def test_a_store_that_another_process_replaced_meanwhile_keeps_what_that_one_wrote(
    tmp_path: Path,
) -> None:
    store = write_store(samples(0, 4), tmp_path / "x.zarr")

    class Late(ArrayRows):
        def read(self, start: int, stop: int) -> Array:
            if open_store(store).n_samples == 4:
                append(samples(4, 6), store)
            return super().read(start, stop)

    new = samples(6, 9)
    views = tuple(Late(view.read(0, 3), view.name) for view in new.views)
    with pytest.raises(StoreCorruptError):
        append(replace(new, views=views), store)
    assert verify_store(store).digest() == samples(0, 6).digest()


def table(path: Path, columns: str, *, header: bool = True) -> Path:
    path.parent.mkdir(exist_ok=True)
    frame = pd.DataFrame([[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]], columns=columns.split())
    frame.to_csv(path, index=False, header=header)
    return path


@pytest.mark.parametrize(
    ("columns", "quoted"),
    [("p r q", [1, "'q'", "'r'"]), ("p q s", [2, "'r'", "'s'"]), ("p q q", [2, "'q'", "'r'"])],
)
def test_columns_are_those_of_the_store_by_name(
    tmp_path: Path, columns: str, quoted: list[object]
) -> None:
    ingest(table(tmp_path / "a.csv", "p q r"), tmp_path / "x.zarr")
    before = open_store(tmp_path / "x.zarr").digest()
    with pytest.raises(DataError, match=quotes("'a'", "x.zarr", *quoted)):
        append(table(tmp_path / "new" / "a.csv", columns), tmp_path / "x.zarr")
    assert verify_store(tmp_path / "x.zarr").digest() == before


def test_the_numbering_of_a_frame_is_no_name_for_a_column(tmp_path: Path) -> None:
    frame = pd.DataFrame([[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]])
    ingest(as_multi_view({"a": frame}), tmp_path / "x.zarr")
    append(table(tmp_path / "a.csv", "r q p"), tmp_path / "x.zarr")
    with pytest.raises(DataError):
        append(as_multi_view({"a": frame[[2, 1, 0]]}), tmp_path / "x.zarr")
