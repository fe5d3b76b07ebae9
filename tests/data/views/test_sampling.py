"""Drawing as many samples of every class."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mscam_dask.data.datasets import subspace_mixture
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sampling import SampledRows, sample_per_class, sampled_view
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.errors import DataError
from tests.messages import quotes


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
    with pytest.raises(DataError, match=quotes("per_class=0", 1)):
        sample_per_class(data, 0, rng=np.random.default_rng(0))
    with pytest.raises(DataError):
        sample_per_class(MultiViewData(views=data.views), 1, rng=np.random.default_rng(0))


@dataclasses.dataclass(frozen=True, eq=False)
class Stored(ArrayRows):
    """Rows that count how often they are read."""

    reads: list[int] = dataclasses.field(default_factory=list)

    def read(self, start: int, stop: int) -> NDArray[np.float64]:
        self.reads.append(start)
        return super().read(start, stop)


@pytest.mark.parametrize("view_type", ["features", "distance"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sampled_rows_are_those_of_the_view_and_may_be_had_in_memory(
    view_type: Any, dtype: Any
) -> None:
    table = (
        np.random.default_rng(0).random((12, 12 if view_type == "distance" else 3)).astype(dtype)
    )
    table = (table + table.T) / 2 if view_type == "distance" else table
    rows = np.array([1, 4, 5, 11])
    stored = Stored(table, "v", view_type)
    drawn = SampledRows(stored, rows)
    expected = table[np.ix_(rows, rows)] if view_type == "distance" else table[rows]
    assert (drawn.name, drawn.view_type, drawn.dtype) == ("v", view_type, dtype)
    assert drawn.shape == expected.shape
    assert stored.reads == []
    for start, stop in ((1, 3), (0, 4), (2, 2)):
        np.testing.assert_array_equal(drawn.read(start, stop), expected[start:stop])
    stored.reads.clear()
    at_hand = drawn.in_memory()
    for start, stop in ((1, 3), (0, 4)):
        np.testing.assert_array_equal(at_hand.read(start, stop), expected[start:stop])
    assert len(stored.reads) == 1
    with pytest.raises(IndexError, match=quotes("'v'", "3:5", "0:4")):
        drawn.read(3, 5)
    np.testing.assert_array_equal(
        sampled_view(ArrayRows(table, "v", view_type), rows).read(0, 4), expected
    )
    assert isinstance(sampled_view(ArrayRows(table, "v", view_type), rows), ArrayRows)
