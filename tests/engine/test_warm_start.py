"""A fit that starts from an earlier one of mostly the same samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.estimators._sample_values import validated_init_labels
from mscam_dask.estimators.mscam import MSCAM
from mscam_dask.metrics import adjusted_rand_index
from mscam_dask.solvers.known_labels import UNKNOWN
from mscam_dask.types.events import SettingsSelected
from mscam_dask.types.result import Status
from tests.synthetic import assert_partition_and_graph_agree, gaussian_views


def fitted(views: list[NDArray[np.float64]], init_labels: Any = None, **options: Any) -> MSCAM:
    model = MSCAM(3, scale="standard", alpha=1.0, n_neighbors=9, n_jobs=1, **options)
    return model.fit(views, init_labels=init_labels)


def test_new_samples_join_the_clusters_of_the_old_ones() -> None:
    views, truth = gaussian_views(3, n_samples=160, spread=3.0)
    cold = fitted([view[:150] for view in views])
    told: list[object] = []
    known = np.append(cold.labels_, [UNKNOWN] * 10)
    warm = fitted(views, init_labels=known, callbacks=[told.append])
    assert_partition_and_graph_agree(warm.solution_, n_clusters=3)
    assert adjusted_rand_index(truth, warm.labels_) == 1.0
    (selection,) = [event for event in told if isinstance(event, SettingsSelected)]
    assert len(selection.settings) == 1
    assert warm.n_iter_ <= 2


def test_clusters_handed_down_are_only_a_candidate_and_one_that_is_gone_is_found_anew() -> None:
    views, truth = gaussian_views(5, n_samples=150, spread=3.0)
    nonsense = np.random.default_rng(0).integers(0, 3, 150)
    for known in (nonsense, np.where(truth == 2, UNKNOWN, truth)):
        told: list[object] = []
        warm = fitted(views, init_labels=known, callbacks=[told.append])
        (selection,) = [event for event in told if isinstance(event, SettingsSelected)]
        assert selection.settings[0].score > 0.5  # of the first cut, not of nonsense
        assert adjusted_rand_index(truth, warm.labels_) == 1.0


def test_a_cluster_that_is_gone_is_no_hole_where_the_data_fall_into_more_pieces() -> None:
    blob = np.repeat(np.arange(5), 60)  # more than candidate neighbours
    rng = np.random.default_rng(0)
    view = 1000.0 * np.eye(5)[blob] + rng.standard_normal((300, 5))
    whole = np.minimum(blob, 2)
    gone = fitted([view], init_labels=np.where(whole == 2, UNKNOWN, whole))
    assert gone.status_ is Status.MERGED_COMPONENTS
    assert_partition_and_graph_agree(gone.solution_, n_clusters=3)
    assert len(np.unique(blob + 5 * gone.labels_)) == 5  # no blob is torn
    handed = fitted([view], init_labels=whole)
    assert_array_equal(handed.labels_, whole)


@pytest.mark.parametrize(
    "labels", [[0] * 29, [0.5] * 30, [-2] + [0] * 29, [3] + [0] * 29, [UNKNOWN] * 30]
)
def test_labels_that_cannot_be_handed_down(labels: list[float]) -> None:
    views, _ = gaussian_views(1, n_samples=30, spread=3.0)
    with pytest.raises(DataError, match="init_labels"):
        fitted(views, init_labels=labels)


def test_labels_are_handed_down_by_id() -> None:
    views, truth = gaussian_views(1, n_samples=30, spread=3.0)
    ids = [f"p{number:02d}" for number in range(30)]
    data = as_multi_view({"view": pd.DataFrame(views[0], index=ids)})
    labels = pd.Series(truth, index=ids)
    for given in (labels, labels[::-1], truth):
        assert_array_equal(validated_init_labels(given, None, data, 3), truth)
    with pytest.raises(DataError, match="sample ids"):
        validated_init_labels(labels.rename({"p07": "p7"}), None, data, 3)


def test_a_setting_to_choose_and_clusters_handed_down_contradict() -> None:
    views, truth = gaussian_views(1, n_samples=30, spread=3.0)
    with pytest.raises(ConfigurationError):
        MSCAM(3).fit(views, init_labels=truth)
    with pytest.raises(ConfigurationError, match="'auto'"):
        MSCAM("auto").fit(views, init_labels=truth)
