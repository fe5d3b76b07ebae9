"""Where a fit is solved: threads of this process, a cluster."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from mscam_dask import MSCAM
from tests.clusters import local_client
from tests.estimators.small import quick
from tests.synthetic import gaussian_views


@pytest.mark.parametrize("n_jobs", [1, 2, None, -1, np.int64(2)])
def test_number_of_threads_changes_no_bit(n_jobs: Any) -> None:
    views, _ = gaussian_views(7, n_samples=90, spread=0.7)
    one = quick().fit(views)
    other = quick(n_jobs=n_jobs).fit(views)
    assert_array_equal(other.labels_, one.labels_)
    assert other.consensus_graph_.data.tobytes() == one.consensus_graph_.data.tobytes()


def test_a_cluster_is_a_client_and_stays_open() -> None:
    views, _ = gaussian_views(9, n_samples=90, spread=0.8)
    with LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster:
        model = quick(client=cluster).fit(views)
        with pytest.raises(ValueError, match="No client"):  # that of a fit is never the default
            Client.current()
        assert clone(model).client is cluster
        assert_array_equal(clone(model).fit(views).labels_, model.labels_)
        assert {feature.cluster for feature in model.cluster_features()} == {0, 1, 2}
        assert cluster.status.name == "running"
        assert not [name for name in cluster.scheduler.clients if name.startswith("Client")]
    assert_array_equal(model.labels_, quick().fit(views).labels_)
    assert pickle.loads(pickle.dumps(model)).client is None
    assert_allclose(model.confidence_, quick().fit(views).confidence_)  # closed: in this process


def test_workers_give_the_same_bits_with_absent_samples_batches_and_known_labels() -> None:
    views, labels = gaussian_views(0, n_samples=90, spread=1.5)
    row = np.arange(90)
    views[0][row % 2 == 1] += 4.0
    views[1][row % 5 == 0] = np.nan
    given: Any = {"batches": row % 2, "partial_labels": np.where(row % 9 == 0, labels, -1)}
    here = MSCAM("auto", max_clusters=4, n_jobs=1).fit(views, **given)
    with local_client(2) as client:
        there = MSCAM("auto", max_clusters=4, client=client).fit(views, **given)
    selected, same = (one.solution_.n_clusters_selection for one in (here, there))
    assert same == dataclasses.replace(selected, seconds=same.seconds)
    for model in (there, pickle.loads(pickle.dumps(there))):
        assert_array_equal(model.labels_, here.labels_)
    assert_array_equal(there.consensus_graph_.toarray(), here.consensus_graph_.toarray())
    for name, embedding in here.view_embeddings_.items():
        assert_array_equal(there.view_embeddings_[name], embedding)
