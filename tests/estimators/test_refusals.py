"""What an estimator takes in which form, and what it refuses, by name: parameters, data, samples to predict."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from distributed import Client, LocalCluster
from numpy.testing import assert_array_equal
from sklearn.exceptions import NotFittedError

from mscam_dask import MSCAM, Constants
from mscam_dask.data.store.dataset import write_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.errors import ClusterError, ConfigurationError, DataError
from tests.clusters import local_client
from tests.estimators.small import integer_views, pair_views, quick
from tests.messages import quotes, raises
from tests.snapshots import Memory
from tests.synthetic import Array


@pytest.mark.parametrize(
    ("parameters", "values"),
    [
        ({"n_clusters": 0}, ("n_clusters=0", 1, '"auto"')),
        ({"n_clusters": 73}, ("n_clusters=73", 1, 72)),
        ({"n_clusters": 2.0}, ("n_clusters=2.0",)),
        ({"n_clusters": True}, ("n_clusters=True",)),
        ({"n_clusters": "three"}, ("n_clusters='three'",)),
        ({"n_neighbors": 72}, ("n_neighbors=72", 1, 71)),
        ({"n_neighbors": 0}, ("n_neighbors=0",)),
        ({"constants": {"graph_weight": 1.0}}, ("constants={'graph_weight': 1.0}", "Constants")),
        ({"scale": "logs"}, ("scale='logs'",)),
        ({"view_type": "cosine"}, ("view_type='cosine'",)),
        ({"view_type": ("features",)}, ("view_type", 1, 2)),
        ({"view_type": {"no such view": "kernel"}}, ("view_type", "'no such view'")),
        ({"alpha": 0.0}, ("alpha=0.0",)),
        ({"alpha": float("nan")}, ("alpha=nan",)),
        ({"max_iter": 0}, ("max_iter=0",)),
        ({"n_jobs": 0}, ("n_jobs=0",)),
        ({"n_jobs": 1.5}, ("n_jobs=1.5",)),
        ({"n_jobs": -2}, ("n_jobs=-2",)),
        ({"random_state": -1}, ("random_state=-1", 0)),
        ({"random_state": "a"}, ("random_state='a'", "RandomState", "None")),
        (
            {"random_state": None, "checkpoint_store": Memory()},
            ("random_state=None", "checkpoint_store"),
        ),
        ({"callbacks": print}, ("callbacks=", print)),
        ({"callbacks": [print, 3]}, ("callbacks=", [print, 3])),
        ({"checkpoint_store": "folder"}, ("checkpoint_store='folder'", "FileCheckpointStore")),
        (
            {"client": "tcp://127.0.0.1:8786"},
            ("client='tcp://127.0.0.1:8786'", "distributed.Client('tcp://127.0.0.1:8786')"),
        ),
        ({"client": Client}, ("client=<class", "distributed.Client(cluster)")),
        (
            {"client": ThreadPoolExecutor(1)},
            ("client=<", "ThreadPoolExecutor", "distributed.Client"),
        ),
    ],
)
def test_parameters_out_of_range_are_refused_by_name(
    parameters: dict[str, Any], values: tuple[object, ...]
) -> None:
    with raises(ConfigurationError, *values):
        quick(**parameters).fit(integer_views())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("graph_weight", -1.0), ("graph_weight_growth", 1.0), ("identity_weight", 0.0)),
        *(("metric_ridge", -0.1), ("score_tie", -1.0), ("patience", 0), ("min_shrinkage", 1.0)),
        *(
            ("admm", 1.0),
            ("admm", {"penalty": 10.0}),
            ("auto_settings", "best"),
            ("auto_settings", None),
        ),
    ],
)
def test_constants_out_of_range_are_refused_by_name(name: str, value: Any) -> None:
    with raises(ConfigurationError, f"{name}={value!r}", "allowed is"):
        Constants(**{name: value})


def test_a_cluster_without_a_client_and_a_closed_client_are_refused() -> None:
    with (
        local_client(0, processes=False) as client,
        raises(ConfigurationError, "client=", "distributed.Client(cluster)"),
    ):
        quick(client=client.cluster).fit(integer_views())
    with pytest.raises(ClusterError):
        quick(client=client).fit(integer_views())


def test_an_asynchronous_client_is_refused() -> None:
    async def fit() -> None:
        async with (
            LocalCluster(
                n_workers=1, processes=False, dashboard_address=":0", asynchronous=True
            ) as cluster,
            Client(cluster, asynchronous=True, set_as_default=False) as client,
        ):
            quick(client=client).fit(integer_views())

    with pytest.raises(ConfigurationError):
        asyncio.run(fit())


def broken(value: float) -> list[Array]:
    views = integer_views()
    views[1][[5, 40], 2] = value
    return views


@pytest.mark.parametrize(
    ("views", "values"),
    [
        (lambda: {"a": broken(np.nan)[0], "bad": broken(np.nan)[1]}, ("'bad'", "2 NaN", [5, 40])),
        (lambda: broken(-np.inf), ("'view_1'", "0 NaN", 2)),
        (lambda: [integer_views()[0], integer_views()[1][:-1]], (72, 71)),
        (lambda: [integer_views()[0], np.empty((72, 0))], ("'view_1'", (72, 0))),
        (dict, ()),
        (lambda: None, ("NoneType",)),
        (lambda: iter(integer_views()), ("list_iterator",)),
        (lambda: [[[1.0, 2.0], [3.0, 4.0]], [[1.0], [2.0]]], ("np.asarray(view)",)),
        (lambda: ["a.csv", "b.csv"], ("'view_0'", "'a.csv'", "mscam-dask ingest")),
        (lambda: Path("no such store.zarr"), ("no such store.zarr",)),
    ],
)
def test_data_that_cannot_be_clustered_are_refused_by_name(
    views: Callable[[], Any], values: tuple[object, ...]
) -> None:
    with raises(DataError, *values):
        quick().fit(views())


def test_prediction_with_other_views_or_without_values_is_refused() -> None:
    views = integer_views()
    model = quick().fit({"a": views[0], "b": views[1]})
    for wrong in (
        {"c": views[0]},
        {"a": views[0], "c": views[1]},
        {"a": views[0], "b": views[1], "c": views[1]},
        {"a": views[0], "b": views[1][:, :-1]},
        {"a": views[1], "b": views[0]},
        *({"a": views[0], "b": broken(value)[1]} for value in (np.nan, np.inf)),
        views,
        views[0],
    ):
        with pytest.raises(DataError):
            model.predict(wrong)


def test_prediction_from_negative_distances_or_pairs_of_new_samples_is_refused() -> None:
    a, distances, kernel, _ = pair_views()
    model = quick(view_type={"d": "distance", "k": "kernel"}).fit(
        {"f": a, "d": distances, "k": kernel}
    )
    rounded = np.where(distances[:9] == 0.0, -1e-9, distances[:9])
    model.predict({"f": a[:9], "d": rounded, "k": -kernel[:9]})  # a kernel has either sign
    with pytest.raises(DataError):
        model.predict({"f": a[:9], "d": -distances[:9], "k": kernel[:9]})
    of_fit = {"f": a, "d": distances, "k": kernel}
    model.predict(of_fit)
    noise = 1e-7 * np.random.default_rng(0).random(distances.shape)  # as float32 has
    noise = noise + noise.T - 2.0 * np.diag(noise.diagonal())
    for name in ("d", "k"):
        model.predict(of_fit | {name: of_fit[name] + noise * of_fit[name].max()})
        with pytest.raises(DataError):
            model.predict(of_fit | {name: of_fit[name][::-1, ::-1]})


def as_frame(names: Sequence[Any], values: Array) -> pd.DataFrame:
    return pd.DataFrame(values, columns=list(names))


def as_data_array(names: Sequence[Any], values: Array) -> xr.DataArray:
    return xr.DataArray(values, dims=("sample", "f"), coords={"f": list(names)})


NAMED = (as_frame, as_data_array)


@pytest.mark.parametrize("named", NAMED)
@pytest.mark.parametrize("names", ["pqrs", (400, 500, 600, 700)])
def test_prediction_with_other_feature_names_is_refused(
    named: Callable[..., Any], names: Sequence[Any]
) -> None:
    a, b = integer_views()
    model = quick().fit({"a": named(names, a), "b": b})
    model.predict({"a": named(names, a[:9]), "b": b[:9]})
    with raises(DataError, "'a'", 0, f"'{names[3]}'", f"'{names[0]}'"):
        model.predict({"a": named(names[::-1], a[:, ::-1]), "b": b})
    with raises(DataError, "'a'", 1, "'new'", f"'{names[1]}'"):
        model.predict({"a": named([names[0], "new", *names[2:]], a), "b": b})


@pytest.mark.parametrize("named", NAMED)
def test_prediction_warns_where_only_one_side_has_feature_names(named: Callable[..., Any]) -> None:
    a, b = integer_views()
    plain = quick().fit([a, b])
    with pytest.warns(UserWarning, match=quotes(["view_0"], "MSCAM")):
        new = plain.predict([named("pqrs", a), pd.DataFrame(b)])
    fitted = quick().fit([named("pqrs", a), b])
    for bare in (a, pd.DataFrame(a)):
        with pytest.warns(UserWarning, match=quotes(["view_0"], "MSCAM")):
            assert_array_equal(fitted.predict([bare, b]), new)
    alone = quick().fit([named("pqrs", a)])
    assert_array_equal(alone.predict(as_frame("pqrs", a)), alone.predict([named("pqrs", a)]))


def test_prediction_before_a_fit_is_refused() -> None:
    with pytest.raises(NotFittedError):
        MSCAM(3).predict(integer_views())
    with pytest.raises(NotFittedError):
        _ = MSCAM(3).history_
    assert not hasattr(MSCAM(3), "membership_")


def test_a_store_of_new_samples_may_lack_a_view_of_distances(tmp_path: Path) -> None:
    features, other = integer_views()
    gaps = np.abs(other[:, None] - other).sum(axis=2)
    fitted = write_store(
        as_multi_view({"x": features, "d": gaps}, view_type={"d": "distance"}), tmp_path / "d.zarr"
    )
    new = write_store(as_multi_view({"x": features}), tmp_path / "new.zarr")
    model = quick().fit(fitted)
    assert_array_equal(model.predict(new), model.predict({"x": features}))
