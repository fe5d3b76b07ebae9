from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from mscam_dask.linalg.neighbor_information import (
    add_mean_graph,
    permutation_z,
    shared_neighbors,
)


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


def graph_of(*lists: NDArray[np.int64], n: int) -> NDArray[np.float32]:
    graph = np.zeros((len(lists[0]), n), dtype=np.float32)
    add_mean_graph(graph, lists)
    return graph


def overlap(lists: NDArray[np.int64], graph: NDArray[np.float32]) -> NDArray[np.float64]:
    weights = np.take_along_axis(graph, lists, axis=1)
    return shared_neighbors(lists, weights, graph.mean(axis=0, dtype=np.float64))


@given(neighbor_lists())
def test_graph_is_the_mean_of_the_lists(
    pair: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> None:
    n = len(pair[0])
    expected = np.zeros((n, n))
    for lists in pair:
        for sample, neighbors in enumerate(lists):
            expected[sample, neighbors] += 0.5
    assert_allclose(graph_of(*pair, n=n), expected)


@given(neighbor_lists(), st.integers(1, 9))
def test_shared_neighbors_by_definition(
    pair: tuple[NDArray[np.int64], NDArray[np.int64]], n_rows: int
) -> None:
    lists, others = pair[0][:n_rows], pair[1][:n_rows]
    m, k = lists.shape
    b = graph_of(others, n=len(pair[0])).astype(float)
    expected = [sum(b[i, j] - b[:, j].sum() / m for j in lists[i]) / k for i in range(m)]
    assert_allclose(overlap(lists, graph_of(others, n=len(pair[0]))), expected, atol=1e-12)


def nearest(points: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    """Lists of the k nearest neighbors."""
    distances = ((points[:, None] - points) ** 2).sum(axis=2)
    np.fill_diagonal(distances, np.inf)
    return np.argsort(distances, axis=1)[:, :k]


def z_by_definition(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Standardized inner product of two dense graphs."""
    n = len(first)
    center = np.eye(n) - 1.0 / n
    a, b = (center @ graph @ center for graph in (first, second))
    expected = a.trace() * b.trace() / (n - 1)
    variance = (a**2).sum() * (b**2).sum() + (a * a.T).sum() * (b * b.T).sum()
    return float(n * ((a * b).sum() - expected) / np.sqrt(variance))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_z_of_a_graph_and_others_by_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lists = np.argsort(rng.random((14, 14)), axis=1)[:, :4]  # some are their own neighbors
    others = rng.random((14, 14))
    own = graph_of(lists, n=14)
    assert_allclose(permutation_z(lists, own + others), z_by_definition(own, others), atol=1e-6)


def test_hubs_alone_say_nothing() -> None:
    hubs = np.tile(np.arange(5), (50, 1))  # everybody's neighbors
    others = np.random.default_rng(0).random((50, 50))
    assert permutation_z(hubs, graph_of(hubs, n=50) + others) == 0.0
    lists = nearest(others, 5)
    equal = np.broadcast_to(others[0], (50, 50))
    assert permutation_z(lists, graph_of(lists, n=50) + equal) == 0.0
