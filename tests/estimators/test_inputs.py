"""Every form in which views come in: the same clusters, the names of the views, metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xarray as xr
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from mscam_dask.data.ingest import ingest
from mscam_dask.data.views.as_multi_view import as_multi_view
from tests.estimators.small import integer_views, pair_views, quick

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


def same_in_another_form(form: str, views: list[Array], tmp_path: Path) -> Any:
    """`views`, or the table of their columns, in another form."""
    table = np.hstack(views)
    index = [f"sample {i}" for i in range(len(table))]
    strided = np.zeros((2 * len(table), 2 * table.shape[1]))
    strided[::2, ::2] = table
    read_only = [view.copy() for view in views]
    for view in read_only:
        view.flags.writeable = False
    store = tmp_path / "views.zarr"
    if form.startswith("store"):
        ingest(as_multi_view({"x": views[0], "y": views[1]}), store)
    dataset = xr.Dataset({"x": (("sample", "fx"), views[0]), "y": (("sample", "fy"), views[1])})
    forms: dict[str, Any] = {
        "tuple": tuple(views),
        "dict": {"b": views[0], "a": views[1]},
        "table": table,
        "table as lists": table.tolist(),
        "table, sparse": scipy.sparse.csr_array(table),
        "table, sparse matrix by columns": scipy.sparse.csc_matrix(table),
        "table, dictionary of keys": scipy.sparse.dok_array(table),
        "table, dask": da.from_array(table, chunks=(20, 3)),
        "table, strided": strided[::2, ::2],
        "table, pandas": pd.DataFrame(table, columns=[f"c{i}" for i in range(11)]),
        "fortran": [np.asfortranarray(view) for view in views],
        "float32": [view.astype(np.float32) for view in views],
        "int16": [view.astype(np.int16) for view in views],
        "big-endian": [view.astype(">f8") for view in views],
        "big-endian int": [view.astype(">i4") for view in views],
        "read-only": read_only,
        "reversed twice": [view[::-1, ::-1].copy()[::-1, ::-1] for view in views],
        "sparse rows": [scipy.sparse.csr_array(view) for view in views],
        "sparse columns": [scipy.sparse.csc_array(view) for view in views],
        "sparse and dense": [scipy.sparse.coo_array(views[0]), views[1]],
        "dask": [da.from_array(view, chunks=(10, 2)) for view in views],
        "pandas": [pd.DataFrame(view, index=index) for view in views],
        "xarray": [xr.DataArray(view, dims=("sample", "f")) for view in views],
        "dataset": dataset,
        "dataset, transposed and chunked": dataset.transpose().chunk({"sample": 30}),
        "store path": store,
        "store name": str(store),
        "multi-view data": as_multi_view(views),
    }
    return forms[form]


FORMS = (
    "tuple",
    "dict",
    "table",
    "table as lists",
    "table, sparse",
    "table, sparse matrix by columns",
    "table, dictionary of keys",
    "table, dask",
    "table, strided",
    "table, pandas",
    "fortran",
    "float32",
    "int16",
    "big-endian",
    "big-endian int",
    "read-only",
    "reversed twice",
    "sparse rows",
    "sparse columns",
    "sparse and dense",
    "dask",
    "pandas",
    "xarray",
    "dataset",
    "dataset, transposed and chunked",
    "store path",
    "store name",
    "multi-view data",
)


@pytest.fixture(scope="module")
def plain_labels() -> dict[bool, Labels]:
    """Labels of the views, and of the table."""
    views = integer_views()
    return {
        is_table: quick().fit([np.hstack(views)] if is_table else views).labels_
        for is_table in (False, True)
    }


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_same_views_gives_the_same_clusters(
    form: str, plain_labels: dict[bool, Labels], tmp_path: Path
) -> None:
    X, is_table = same_in_another_form(form, integer_views(), tmp_path), form.startswith("table")
    model = quick().fit(X)
    assert_array_equal(model.labels_, plain_labels[is_table])
    # what was fitted can be predicted in the same form
    assert np.mean(model.predict(X) == model.labels_) >= 0.95
    assert len(model.view_names_) == (1 if is_table else 2)


def test_views_are_not_written_to() -> None:
    views = integer_views()
    before = [view.copy() for view in views]
    quick().fit(views).predict(views)
    for view, copy in zip(views, before, strict=True):
        assert_array_equal(view, copy)


def test_view_names_come_from_the_input() -> None:
    views = integer_views()
    model = quick().fit({"shape": views[0], "colour": views[1]})
    assert model.view_names_ == ("shape", "colour")
    assert set(model.view_contributions_) == set(model.view_embeddings_) == {"shape", "colour"}
    assert list(model.history_.coords["view"].to_numpy()) == ["shape", "colour"]


def test_metrics_by_name_by_position_and_for_all() -> None:
    a, distances, kernel, labels = pair_views()
    named = {"f": a, "d": distances, "k": kernel}
    by_name = quick(view_type={"d": "distance", "k": "kernel"}).fit(named)
    by_position = quick(view_type=("features", "distance", "kernel")).fit([a, distances, kernel])
    assert_array_equal(by_name.labels_, by_position.labels_)
    assert adjusted_rand_score(labels, by_name.labels_) == 1.0
    for_all = quick(view_type="distance").fit([distances])
    assert adjusted_rand_score(labels, for_all.labels_) == 1.0
