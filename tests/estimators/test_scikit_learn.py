"""What scikit-learn asks of an estimator: its own checks, parameters, copies, numbers of NumPy; and what autologgers of it may see."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import dask.array as da
import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.utils import all_estimators
from sklearn.utils.estimator_checks import parametrize_with_checks

from mscam_dask import MSCAM, MSCAN, Constants
from mscam_dask.data.checkpoints import FileCheckpointStore
from mscam_dask.errors import DataError
from mscam_dask.estimators._inputs import views_to_fit
from mscam_dask.monitor.dashboard.plugin import ClusterEvents
from tests.clusters import local_client
from tests.estimators.small import quick
from tests.messages import raises
from tests.synthetic import gaussian_views

VIEWS, _ = gaussian_views(5, n_samples=60)


def expected_failures(_: object) -> dict[str, str]:
    """Checks that a clusterer with predict_proba, which takes sparse data, cannot pass."""
    reason = "scikit-learn asks every estimator with predict_proba for classifier_tags"
    return {f"check_estimator_sparse_{kind}": reason for kind in ("array", "matrix")}


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        MSCAM(2, max_iter=1, n_jobs=1),
        MSCAN(2, max_iter=1, n_jobs=1, constants=Constants.paper()),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learns_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.parametrize("random_state", [None, np.random.RandomState(1)])
def test_any_random_state_of_scikit_learn(random_state: Any) -> None:
    views, labels = gaussian_views(8, n_samples=60, spread=2.0)
    model = quick(random_state=random_state).fit(views)
    assert adjusted_rand_score(labels, model.labels_) == 1.0


def test_numbers_of_numpy_are_numbers() -> None:
    views, _ = gaussian_views(8, n_samples=60)
    model = quick(np.int64(3), alpha=np.float32(1.0), n_neighbors=np.int32(9))
    assert_array_equal(model.fit(views).labels_, quick().fit(views).labels_)
    assert Constants(score_tie=np.float64(0.5), patience=cast(Any, np.int8(2))) == Constants(
        score_tie=0.5, patience=2
    )


@pytest.fixture(scope="module")
def on_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MSCAM]:
    """A model with a cluster, callbacks, of which the first is `append` of a list, and checkpoints."""
    told: list[object] = []
    with local_client(1, processes=False) as client:
        yield quick(
            client=client,
            callbacks=[told.append, ClusterEvents(client)],
            checkpoint_store=FileCheckpointStore(tmp_path_factory.mktemp("checkpoints")),
            view_type={"view_0": "features"},
        ).fit(VIEWS)


def test_clones_share_cluster_callbacks_and_checkpointer(on_cluster: MSCAM) -> None:
    for estimator in (on_cluster, quick(client=on_cluster.client)):
        twin = clone(estimator)
        assert twin is not estimator
        assert not hasattr(twin, "labels_")
        for name in ("client", "callbacks", "checkpoint_store"):
            assert getattr(twin, name) is getattr(estimator, name)
    twin = clone(on_cluster)
    assert twin.view_type is not on_cluster.view_type  # other parameters are copied
    told = cast(Any, on_cluster.callbacks[0]).__self__
    told.clear()
    assert_array_equal(twin.fit(VIEWS).labels_, on_cluster.labels_)
    assert told
    assert copy.copy(on_cluster).client is None
    assert copy.copy(on_cluster).labels_ is on_cluster.labels_


def test_a_model_fitted_on_a_cluster_survives_pickling(on_cluster: MSCAM, tmp_path: Path) -> None:
    joblib.dump(on_cluster, tmp_path / "model")
    copies = [pickle.loads(pickle.dumps(on_cluster)), joblib.load(tmp_path / "model")]
    copies.append(copy.deepcopy(on_cluster))
    assert on_cluster.client is not None  # what is pickled is a copy
    assert len(on_cluster.callbacks) == 2
    for back in copies:
        assert back.client is back.callbacks is back.checkpoint_store is None
        assert_array_equal(back.labels_, on_cluster.labels_)
        assert_array_equal(back.predict(VIEWS), on_cluster.predict(VIEWS))
        assert back.history_.equals(on_cluster.history_)


def counting(method: Callable[..., Any], calls: list[str]) -> Callable[..., Any]:
    def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(type(self).__name__)
        return method(self, *args, **kwargs)

    return patched


def test_autologgers_see_no_fit_inside_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits of other estimators are patched as MLflow's autolog does."""
    calls: list[str] = []
    for _, kind in all_estimators():
        if issubclass(kind, MSCAM):
            continue
        for name in ("fit", "fit_transform", "fit_predict"):
            if callable(method := getattr(kind, name, None)):
                monkeypatch.setattr(kind, name, counting(method, calls))
    views, _ = gaussian_views(0, n_samples=90)
    model = MSCAM("auto", n_jobs=1).fit(views)
    model.predict(views)
    assert calls == []
    KMeans(2, n_init=1).fit(np.eye(4))
    assert calls == ["KMeans"]  # the patch counts


def test_one_table_is_read_as_a_view_of_a_list() -> None:
    """Neither text, the index of a frame in Arrow, nor masked values become features."""
    pa = pytest.importorskip("pyarrow")
    rng = np.random.default_rng(0)
    points = rng.normal(size=(30, 3))
    frame = pd.DataFrame(points, 1000 + rng.permutation(30), [*"abc"])
    masked = np.ma.masked_less(points, -1)
    hidden = da.from_array(points, chunks=(10, 3)).map_blocks(np.ma.masked_less, -1)
    text = frame.assign(id=[f"{row:03d}" for row in range(30)])

    class Tensor:
        shape = points.shape

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return masked

    kinds = frame.assign(kind=pd.Categorical(np.arange(30) % 3))
    for table in (masked, hidden, Tensor(), text, text.to_numpy(), kinds):
        for views in (table, [table]):
            with pytest.raises(DataError):
                MSCAM(2, n_jobs=1).fit(views)
    counts = np.full(30, 100, np.int8)
    repeated = sparse.coo_array(
        (np.tile(counts, 2), (np.tile(np.arange(30), 2), np.tile(np.arange(30) % 3, 2)))
    )
    for table, values in (
        (pa.Table.from_pandas(frame), points),
        (repeated, 200.0 * (np.arange(30)[:, None] % 3 == np.arange(3))),
    ):
        (view,) = views_to_fit(MSCAM(2), table)[0].views
        np.testing.assert_array_equal(view.read(0, 30), values)
    with raises(DataError, "'view_0'", "builtins.object"):  # views, not rows of one table
        MSCAM(2, n_jobs=1).fit([object(), object()])
