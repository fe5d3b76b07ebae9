"""Groups of nearly equal samples, which are cheaper to cut off than the clusters are to part."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.types.parameters import Parameters
from tests.synthetic import assert_partition_and_graph_agree

Array = NDArray[np.float64]


def with_repeats(seed: int) -> tuple[list[Array], Any]:
    """Three overlapping clusters in two views, 26 samples of each nearly the same.

    With twenty neighbours the repeats are nearly a component of their own.
    """
    rng = np.random.default_rng(seed)
    labels = np.arange(600) % 3
    views = []
    for _ in range(2):
        view = 2.5 * np.eye(3, 8)[labels] + rng.standard_normal((600, 8))
        for cluster in range(3):
            repeats = np.flatnonzero(labels == cluster)[:26]
            view[repeats] = view[repeats[0]] + 0.3 * rng.standard_normal((26, 8))
        views.append(view)
    return views, labels


def test_repeats_do_not_take_the_place_of_clusters() -> None:
    views, labels = with_repeats(1)
    given = Parameters(n_clusters=3, alpha=10.0, n_neighbors=20, max_iter=3)
    solution = run_fit(as_multi_view(views), given, SerialExecutor())
    assert adjusted_rand_score(labels, solution.labels) > 0.8
    assert_partition_and_graph_agree(solution, n_clusters=3)
