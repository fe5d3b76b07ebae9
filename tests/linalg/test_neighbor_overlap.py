from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from mscam_dask.linalg.neighbor_overlap import neighbor_counts, shared_neighbors


@st.composite
def neighbor_lists(draw: st.DrawFn) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    n = draw(st.integers(2, 9))
    k = draw(st.integers(1, n - 1))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def lists() -> NDArray[np.int64]:
        return np.stack(
            [rng.choice(np.delete(np.arange(n), i), k, replace=False) for i in range(n)]
        ).astype(np.int64)

    return lists(), lists()


@given(neighbor_lists())
def test_counts_are_the_lists(pair: tuple[NDArray[np.int64], NDArray[np.int64]]) -> None:
    lists, _ = pair
    graph = neighbor_counts(lists, len(lists)).toarray()
    for sample, row in enumerate(graph):
        assert sorted(lists[sample]) == np.flatnonzero(row).tolist()
        assert set(row) <= {0.0, 1.0}


@given(neighbor_lists())
def test_shared_neighbors_by_definition(
    pair: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> None:
    lists, others = pair
    n, k = lists.shape
    b = neighbor_counts(others, n).toarray()
    expected = [sum(b[i, j] - b[:, j].sum() / n for j in lists[i]) / k for i in range(n)]
    assert_allclose(shared_neighbors(lists, neighbor_counts(others, n)), expected, atol=1e-12)


def test_hubs_that_are_everybodys_neighbors_agree_with_nothing() -> None:
    n = 50
    hubs = np.tile([0, 1, 2], (n, 1)).astype(np.int64)
    share = shared_neighbors(hubs, neighbor_counts(hubs, n))
    assert_allclose(share, 0.0, atol=1e-12)


def test_random_neighbors_agree_by_chance_only() -> None:
    rng = np.random.default_rng(0)
    n, k = 2000, 9
    first, second = (np.argsort(rng.random((n, n)), axis=1)[:, :k] for _ in range(2))
    share = shared_neighbors(first, neighbor_counts(second, n))
    assert abs(share.mean()) < 4 * share.std() / np.sqrt(n)


def test_equal_lists_agree_in_all_but_chance() -> None:
    n, k = 40, 4
    ring = (np.arange(n)[:, None] + np.arange(1, k + 1)) % n
    share = shared_neighbors(ring, neighbor_counts(ring, n))
    assert_allclose(share, 1.0 - k / n, atol=1e-12)
