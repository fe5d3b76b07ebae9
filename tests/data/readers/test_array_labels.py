"""Labels in the forms in which they are published beside the matrices of the views."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from mscam_dask.data.ingest import Source, ingest
from mscam_dask.data.readers.base import Selection
from mscam_dask.data.readers.named_arrays import find_labels
from mscam_dask.data.store.read import open_store
from mscam_dask.errors import DataError
from tests.data.ingested import COLOUR, LABELS, SHAPE, N
from tests.data.readers.matlab_files import cells, save_version_5, save_version_73
from tests.messages import quotes

Save = Callable[..., Path]

TRUTH = LABELS.astype(np.uint8) + 1
INDICATOR = np.eye(3)[LABELS]


def save_archive(path: Path, **arrays: Any) -> Path:
    np.savez(path.with_suffix(".npz"), allow_pickle=False, **arrays)
    return path.with_suffix(".npz")


@dataclass(frozen=True)
class Ingested:
    views: tuple[str, ...]
    labels: list[int] | None
    notes: tuple[str, ...]

    def tells(self, *values: object) -> bool:
        """Whether one of the notes quotes all of the values."""
        return any(re.match(quotes(*values), note) for note in self.notes)


def ingested(path: Path, samples_in: Any = "rows", **options: Any) -> Ingested:
    output = path.with_suffix(".zarr")
    report = ingest(Source(path, samples_in=samples_in), output, overwrite=True, **options)
    data = open_store(output)
    labels = None if data.labels is None else data.labels.tolist()
    return Ingested(data.view_names, labels, report.notes)


# --------------------------------------------------------------------- one vector for each view


@pytest.mark.parametrize("truth", [TRUTH[None], TRUTH[:, None]], ids=["row", "column"])
def test_cells_with_the_same_labels_for_each_view(
    save: Save, tmp_path: Path, truth: NDArray[Any]
) -> None:
    views = cells(COLOUR.T, SHAPE.T)
    path = save(tmp_path / "a.mat", data=views, truelabel=cells(truth, truth))
    with pytest.raises(DataError, match=quotes(7, "'data_0' (3, 7)", "--samples-in columns")):
        ingested(path)
    found = ingested(path, "columns")
    assert found.views == ("data_0", "data_1")
    assert found.labels == TRUTH.tolist()
    (note,) = found.notes
    assert re.match(quotes(path, "'truelabel'", 2), note)
    assert ingested(path, "columns", labels="truelabel").labels == TRUTH.tolist()
    assert ingested(path, "columns", views=["data_1"]).labels == TRUTH.tolist()


def test_cells_with_different_labels_are_not_chosen_from(save: Save, tmp_path: Path) -> None:
    path = save(tmp_path / "a.mat", X=cells(COLOUR, SHAPE), gt=cells(TRUTH, TRUTH[::-1]))
    found = ingested(path)
    assert found.labels is None
    assert found.tells(2, "'gt'", "--labels gt_0")
    with pytest.raises(DataError, match=quotes(path, 2, "'gt'", "labels='gt_0'")):
        ingested(path, labels="gt")
    assert ingested(path, labels="gt_1").labels == TRUTH[::-1].tolist()


def test_cells_asked_for_as_views_are_no_labels(save: Save, tmp_path: Path) -> None:
    column = TRUTH[:, None]
    path = save(tmp_path / "a.mat", X=cells(COLOUR), y=cells(column, column))
    found = ingested(path, views=["X_0", "y_1"])
    assert (found.views, found.labels) == (("X_0", "y_1"), None)


def test_cells_of_matrices_are_views_under_any_name(save: Save, tmp_path: Path) -> None:
    path = save(tmp_path / "a.mat", Y=cells(COLOUR, SHAPE), gnd=TRUTH[:, None])
    found = ingested(path)
    assert (found.views, found.labels) == (("Y_0", "Y_1"), TRUTH.tolist())


def test_a_cell_for_each_sample(save: Save, tmp_path: Path) -> None:
    path = save(tmp_path / "a.mat", X=COLOUR, gnd=cells(*TRUTH[:, None, None]))
    found = ingested(path)
    assert (found.views, found.labels) == (("X",), TRUTH.tolist())
    assert found.tells(path, "'gnd'")


@pytest.mark.parametrize("name", ["gnd", "species"])
def test_cells_of_text(save: Save, tmp_path: Path, name: str) -> None:
    names = np.array(["ant", "wasp", "Büffel 🐃"])
    path = save(tmp_path / "a.mat", X=COLOUR, **{name: cells(*names[LABELS].tolist())})
    found = ingested(path, labels=None if name == "gnd" else name)
    order = np.argsort(names)
    assert (found.views, found.labels) == (("X",), np.argsort(order)[LABELS].tolist())
    assert found.tells(path, repr(name))
    assert open_store(path.with_suffix(".zarr")).label_names == tuple(names[order].tolist())


def test_one_text_or_number_is_no_labels_but_where_asked_for(save: Save, tmp_path: Path) -> None:
    path = save(tmp_path / "a.mat", X=COLOUR, label="insects", y=np.array([[3.0]]))
    found = ingested(path)
    assert (found.views, found.labels) == (("X",), None)
    (note,) = found.notes
    assert re.search(r"\blabel\b.*\(1,\).*\by\b", note)
    with pytest.raises(DataError, match=quotes(1, 7, ["X"])):
        ingested(path, labels="label")


# ------------------------------------------------------------------------------------- matrices


@pytest.fixture(params=[save_version_5, save_version_73, save_archive], ids=["v5", "v7.3", "npz"])
def put(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize("name", ["y0", "Y", "label2", "ground_truth"])
@pytest.mark.parametrize("turned", [False, True])
def test_a_column_of_labels_for_each_view(
    put: Save, tmp_path: Path, name: str, *, turned: bool
) -> None:
    table = np.stack([TRUTH, TRUTH, TRUTH], axis=0 if turned else 1)
    path = put(tmp_path / "a.mat", colour=COLOUR, **{name: table})
    found = ingested(path)
    assert (found.views, found.labels) == (("colour",), TRUTH.tolist())
    assert found.tells(repr(name), 3)
    if not turned:
        found = ingested(path, views=["colour", name])
        assert (found.views, found.labels) == (("colour", name), None)


@pytest.mark.parametrize("turned", [False, True])
def test_an_indicator_matrix(put: Save, tmp_path: Path, *, turned: bool) -> None:
    table = INDICATOR.T if turned else INDICATOR
    path = put(tmp_path / "a.mat", colour=COLOUR, Y=table)
    found = ingested(path)
    assert (found.views, found.labels) == (("colour",), LABELS.tolist())
    assert found.tells(path, "'Y'")


@pytest.mark.parametrize("turned", [False, True])
def test_a_sparse_indicator_matrix(save: Save, tmp_path: Path, *, turned: bool) -> None:
    table = sparse.csc_array(INDICATOR.T if turned else INDICATOR)
    path = save(tmp_path / "a.mat", colour=COLOUR, Y=table)
    found = ingested(path)
    assert (found.views, found.labels) == (("colour",), LABELS.tolist())
    assert found.tells(path, "'Y'")


@pytest.mark.parametrize(
    "table",
    [
        2 * INDICATOR,
        np.eye(N),
        np.maximum(INDICATOR, np.eye(N, 3)),
        INDICATOR * (TRUTH > 1)[:, None],
    ],
    ids=["twos", "as many", "two of a row", "none of a row"],
)
def test_other_sparse_matrices_are_views(save: Save, tmp_path: Path, table: NDArray[Any]) -> None:
    found = ingested(save(tmp_path / "a.mat", colour=COLOUR, Y=sparse.csc_array(table)))
    assert (set(found.views), found.labels) == ({"colour", "Y"}, None)


@pytest.mark.parametrize(
    "table",
    [
        np.stack([TRUTH, TRUTH[::-1]], axis=1),
        np.stack([TRUTH + 0.5, TRUTH + 0.5], axis=1),
        np.ones((N, 2)),
        np.stack([np.arange(N), np.arange(N)], axis=1),
        np.where(np.arange(N)[:, None] < N - 1, INDICATOR, 1.0),
        COLOUR,
    ],
    ids=["two labellings", "no whole numbers", "one class", "as many", "two of a row", "features"],
)
def test_other_matrices_are_views_under_any_name(
    put: Save, tmp_path: Path, table: NDArray[Any]
) -> None:
    path = put(tmp_path / "a.mat", colour=COLOUR, y0=table, Y=table)
    found = ingested(path)
    assert (set(found.views), found.labels) == ({"colour", "y0", "Y"}, None)
    with pytest.raises(DataError, match=quotes(path, "'Y'", table.shape)):
        ingested(path, labels="Y")


def test_a_view_with_a_name_of_labels_is_known_by_its_first_rows(
    save: Save, tmp_path: Path
) -> None:
    looked_at = set()

    def features(block_info: Any) -> NDArray[np.float64]:
        looked_at.add(block_info[None]["chunk-location"])
        return np.full(block_info[None]["chunk-shape"], 0.5)

    chunks = (100, 100, 100)
    table = da.map_blocks(
        features, chunks=(chunks, chunks), dtype=np.float64, meta=np.empty((0, 0))
    )
    found = find_labels(
        ["Y"], lambda _: table, source=Source(tmp_path / "a.mat"), selection=Selection()
    )
    assert (found.values, found.names) == (None, frozenset())
    assert looked_at == {(0, 0), (0, 1), (0, 2), (1, 0), (2, 0)}
    truth = np.arange(300) % 3
    late = np.stack([truth, np.where(np.arange(300) < 200, truth, 9)], axis=1)
    path = save(tmp_path / "b.mat", X=np.ones((300, 2)) * 0.5, y0=late)
    assert ingested(path).views == ("X", "y0")


# --------------------------------------------------------------------------------- several, none


def test_the_usual_name_and_a_vector_go_first(put: Save, tmp_path: Path) -> None:
    same = np.stack([TRUTH, TRUTH], axis=1)
    path = put(tmp_path / "a.mat", colour=COLOUR, y0=same + 3, Y=INDICATOR, gt=TRUTH)
    found = ingested(path)
    assert (found.views, found.labels) == (("colour",), TRUTH.tolist())
    assert found.tells(path, "'gt'")
    assert found.tells(path, ["Y", "y0"])
    found = ingested(path, labels="y0")
    assert (found.views, found.labels) == (("colour",), (TRUTH + 3).tolist())
    found = ingested(path, labels=LABELS)
    assert (found.views, found.labels) == (("colour",), LABELS.tolist())


def test_a_vector_with_a_digit_in_its_name_is_labels_only_if_asked_for(
    put: Save, tmp_path: Path
) -> None:
    path = put(tmp_path / "a.mat", colour=COLOUR, y1=TRUTH)
    assert ingested(path).labels is None
    assert ingested(path, labels="y1").labels == TRUTH.tolist()


@pytest.mark.parametrize("name", ["truth", "TrueLabels", "true_label", "groundTruth"])
def test_usual_names(put: Save, tmp_path: Path, name: str) -> None:
    found = ingested(put(tmp_path / "a.mat", colour=COLOUR, **{name: TRUTH}))
    assert found.labels == TRUTH.tolist()


def test_labels_in_a_file_of_their_own(put: Save, tmp_path: Path) -> None:
    np.save(tmp_path / "colour.npy", COLOUR)
    truth = put(tmp_path / "a.mat", truth=TRUTH)
    report = ingest([tmp_path / "colour.npy", truth], tmp_path / "s.zarr")
    labels = open_store(report.output).labels
    assert labels is not None
    assert labels.tolist() == TRUTH.tolist()
    with pytest.raises(DataError, match=quotes(truth)):
        ingest(truth, tmp_path / "t.zarr")
    with pytest.raises(DataError, match=quotes(truth, "--labels NAME")):
        ingest(tmp_path / "colour.npy", tmp_path / "t.zarr", labels=truth)
