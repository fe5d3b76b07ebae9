"""What an estimator tells apart: one table, several views, a collection; forms of a view have tests in data/views."""

from __future__ import annotations

from collections.abc import Callable
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

from mscam_dask.data.store.write import write_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from tests.estimators.small import integer_views, quick

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


def read_only(view: Array) -> Array:
    view.flags.writeable = False
    return view


def dataset(views: list[Array]) -> xr.Dataset:
    return xr.Dataset({"x": (("sample", "fx"), views[0]), "y": (("sample", "fy"), views[1])})


# the views in another form
FORMS: dict[str, Callable[[list[Array]], Any]] = {
    "dict": lambda views: {"b": views[0], "a": views[1]},
    "read-only": lambda views: [read_only(view.copy()) for view in views],
    "sparse and dense": lambda views: [scipy.sparse.coo_array(views[0]), views[1]],
    "dataset, chunked": lambda views: dataset(views).transpose().chunk({"sample": 30}),
    "multi-view data": as_multi_view,
}

# the table of their columns in another form
TABLES: dict[str, Callable[[Array], Any]] = {
    "array": np.asarray,
    "lists": np.ndarray.tolist,
    "sparse": scipy.sparse.csr_array,
    "dictionary of keys": scipy.sparse.dok_array,
    "dask": lambda table: da.from_array(table, chunks=(20, 3)),
    "strided": lambda table: np.repeat(np.repeat(table, 2, axis=0), 2, axis=1)[::2, ::2],
    "pandas": lambda table: pd.DataFrame(table, columns=[f"c{i}" for i in range(11)]),
}


def assert_same_clusters(X: Any, labels: Labels, n_views: int) -> None:
    model = quick().fit(X)
    assert_array_equal(model.labels_, labels)
    # what was fitted can be predicted in the same form
    assert np.mean(model.predict(X) == model.labels_) >= 0.95
    assert len(model.view_names_) == n_views


@pytest.fixture(scope="module")
def plain_labels() -> Labels:
    labels: Labels = quick().fit(integer_views()).labels_
    return labels


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_same_views_gives_the_same_clusters(
    form: str, plain_labels: Labels
) -> None:
    assert_same_clusters(FORMS[form](integer_views()), plain_labels, 2)


def test_every_form_of_a_table_gives_the_same_clusters() -> None:
    table = np.hstack(integer_views())
    labels = quick().fit([table]).labels_
    for form in TABLES.values():
        assert_same_clusters(form(table), labels, 1)


def test_view_names_come_from_the_input() -> None:
    views = integer_views()
    model = quick().fit({"shape": views[0], "colour": views[1]})
    assert model.view_names_ == ("shape", "colour")
    assert set(model.view_contributions_) == set(model.view_embeddings_) == {"shape", "colour"}
    assert list(model.history_.coords["view"].to_numpy()) == ["shape", "colour"]


def test_a_store_of_new_samples_may_lack_a_view_of_distances(tmp_path: Path) -> None:
    features, other = integer_views()
    gaps = np.abs(other[:, None] - other).sum(axis=2)
    fitted = write_store(
        as_multi_view({"x": features, "d": gaps}, view_type={"d": "distance"}), tmp_path / "d.zarr"
    )
    new = write_store(as_multi_view({"x": features}), tmp_path / "new.zarr")
    model = quick().fit(fitted)
    assert_array_equal(model.predict(new), model.predict({"x": features}))
