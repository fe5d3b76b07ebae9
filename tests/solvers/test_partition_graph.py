"""The limit step: exactly the given clusters as components, whatever they look like."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from mscam_dask.solvers import partition_graph as module
from mscam_dask.solvers.graph_update import Graph
from mscam_dask.solvers.partition_graph import partition_graph
from mscam_dask.solvers.spectral_cut import canonical_labels
from tests.solvers import naive

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


def assert_closed_around(graph: Graph, labels: Labels) -> None:
    """Components are the clusters; rows are on the simplex, empty for a sample alone."""
    A = graph.affinity.toarray()
    count, components = connected_components(A > 0, directed=True, connection="weak")
    assert graph.n_components == count == len(np.unique(labels))
    assert_array_equal(canonical_labels(components.astype(np.int64)), canonical_labels(labels))
    assert_array_equal(graph.components, canonical_labels(labels))
    assert np.all(A >= 0)
    assert_array_equal(np.diag(A), 0.0)
    alone = np.bincount(labels)[labels] == 1
    assert_allclose(A.sum(axis=1), np.where(alone, 0.0, 1.0), atol=1e-12)
    assert graph.affinity.has_sorted_indices


@st.composite
def clusterings(draw: st.DrawFn) -> tuple[Array, Labels, int]:
    """Points with duplicates and huge gaps, and labels that have nothing to do with them."""
    n = draw(st.integers(1, 25))
    values = st.sampled_from([0.0, 0.5, 1.0, 1.0 + 1e-12, -3.0, 1e6, 1e-9])
    embedding = draw(hnp.arrays(np.float64, (n, draw(st.integers(1, 3))), elements=values))
    labels = draw(hnp.arrays(np.int64, n, elements=st.integers(0, n - 1)))
    return embedding, canonical_labels(labels), draw(st.integers(1, 12))


@given(clusterings())
@settings(max_examples=200)
def test_components_are_exactly_the_clusters(problem: tuple[Array, Labels, int]) -> None:
    embedding, labels, k = problem
    assert_closed_around(partition_graph(embedding, labels, k), labels)


@given(clusterings(), st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_cluster_numbers_do_not_matter(
    problem: tuple[Array, Labels, int], random: np.random.RandomState
) -> None:
    embedding, labels, k = problem
    order = list(range(int(labels.max()) + 1))
    random.shuffle(order)
    renamed = np.array(order, dtype=np.int64)[labels]
    first, second = partition_graph(embedding, labels, k), partition_graph(embedding, renamed, k)
    assert_array_equal(first.affinity.toarray(), second.affinity.toarray())


def test_two_far_blobs_in_one_cluster_are_joined_by_their_shortest_edge() -> None:
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((30, 2)), rng.standard_normal((20, 2)) + np.array([50.0, 0.0])
    embedding = np.vstack([left, right])
    graph = partition_graph(embedding, np.zeros(50, dtype=np.int64), 4)
    assert_closed_around(graph, np.zeros(50, dtype=np.int64))
    A = graph.affinity.toarray()
    A = A + A.T
    across = np.argwhere(A[:30, 30:] > 0)
    assert len(across) == 1
    distances = naive.pair_distances(embedding)[:30, 30:]
    i, j = across[0]
    assert distances[i, j] == distances.min()


def test_three_pieces_take_two_bridges() -> None:
    rng = np.random.default_rng(1)
    embedding = np.vstack(
        [rng.standard_normal((12, 2)) + np.array([x, 0.0]) for x in (0.0, 100.0, 200.0)]
    )
    graph = partition_graph(embedding, np.zeros(36, dtype=np.int64), 3)
    piece = np.repeat(np.arange(3), 12)
    entries = graph.affinity.tocoo()
    pairs = {
        tuple(sorted((int(piece[i]), int(piece[j]))))
        for i, j in zip(entries.row, entries.col, strict=True)
        if piece[i] != piece[j]
    }
    assert pairs == {(0, 1), (1, 2)}  # neighbours on the line, not the two ends


def test_a_connected_cluster_keeps_its_own_adaptive_neighbours() -> None:
    # rows of a well-knit cluster are those it would have if it were the whole data set
    rng = np.random.default_rng(2)
    embedding = rng.standard_normal((40, 3))
    labels = canonical_labels((embedding[:, 0] > 0).astype(np.int64))
    whole = partition_graph(embedding, labels, 6).affinity.toarray()
    for cluster in (0, 1):
        members = np.flatnonzero(labels == cluster)
        d = naive.pair_distances(embedding[members])
        np.fill_diagonal(d, np.inf)
        for row, i in enumerate(members):
            order = np.argsort(d[row])
            farthest = d[row, order[6]]
            expected = np.zeros(40)
            gaps = farthest - d[row, order[:6]]
            expected[members[order[:6]]] = gaps / gaps.sum()
            assert_allclose(whole[i], expected, atol=1e-10)


def test_small_clusters_use_all_their_members() -> None:
    embedding = np.array([[0.0], [1.0], [3.0], [10.0], [11.0], [20.0]])
    labels = np.array([0, 0, 0, 1, 1, 2])
    A = partition_graph(embedding, labels, 9).affinity.toarray()
    assert A[3, 4] == A[4, 3] == 1.0
    assert_array_equal(A[5], np.zeros(6))
    assert_array_equal(A[:, 5], np.zeros(6))
    assert A[0, 1] == pytest.approx(1.0)  # k = m − 1: the farthest member has weight zero
    assert_closed_around(partition_graph(embedding, labels, 9), labels)


def test_all_samples_identical() -> None:
    labels = np.repeat(np.arange(3), 7)
    for k in (1, 2, 6, 15):
        assert_closed_around(partition_graph(np.ones((21, 2)), labels, k), labels)


def test_search_of_a_bridge_by_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    embedding = np.vstack([rng.standard_normal((15, 2)), rng.standard_normal((14, 2)) + 40.0])
    labels = np.zeros(29, dtype=np.int64)
    whole = partition_graph(embedding, labels, 3).affinity.toarray()
    monkeypatch.setattr(module, "_BLOCK_BYTES", 8)
    assert_array_equal(partition_graph(embedding, labels, 3).affinity.toarray(), whole)
