"""Drawing as many samples of every class."""

from __future__ import annotations

import numpy as np
import pytest

from mscam_dask.data.datasets import subspace_mixture
from mscam_dask.data.multiview import MultiViewData
from mscam_dask.data.sampling import sample_per_class
from mscam_dask.data.sources import ArrayRows
from mscam_dask.errors import DataError


def test_each_class_once_per_sample_rows_and_labels_together() -> None:
    data = subspace_mixture(40, 4, (3, 2), rng=np.random.default_rng(0))
    drawn = sample_per_class(data, 5, rng=np.random.default_rng(1))
    assert drawn.labels is not None
    assert data.labels is not None
    np.testing.assert_array_equal(np.bincount(drawn.labels), [5, 5, 5, 5])
    before, after = data.views[0].read(0, 40), drawn.views[0].read(0, 20)
    rows = [int(np.flatnonzero((before == row).all(axis=1))[0]) for row in after]
    assert rows == sorted(set(rows))
    np.testing.assert_array_equal(drawn.labels, data.labels[rows])
    np.testing.assert_array_equal(drawn.views[1].read(0, 20), data.views[1].read(0, 40)[rows])


def test_the_generator_decides() -> None:
    data = subspace_mixture(40, 4, (3,), rng=np.random.default_rng(0))
    rows = [
        sample_per_class(data, 3, rng=np.random.default_rng(seed)).views[0].read(0, 12)
        for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(rows[0], rows[1])
    assert not np.array_equal(rows[0], rows[2])


def test_distances_keep_rows_and_columns_and_ids_follow() -> None:
    points = np.arange(6.0)
    data = MultiViewData(
        views=(ArrayRows(np.abs(points[:, None] - points), "d", "distance"),),
        labels=np.array([0, 0, 0, 1, 1, 1]),
        sample_ids=tuple("abcdef"),
    )
    drawn = sample_per_class(data, 2, rng=np.random.default_rng(0))
    assert drawn.sample_ids is not None
    kept = np.array([points["abcdef".index(name)] for name in drawn.sample_ids])
    np.testing.assert_array_equal(drawn.views[0].read(0, 4), np.abs(kept[:, None] - kept))


def test_no_labels_or_none_wanted() -> None:
    data = subspace_mixture(9, 3, (2,), rng=np.random.default_rng(0))
    with pytest.raises(DataError, match="at least 1"):
        sample_per_class(data, 0, rng=np.random.default_rng(0))
    with pytest.raises(DataError, match="no labels"):
        sample_per_class(MultiViewData(views=data.views), 1, rng=np.random.default_rng(0))
