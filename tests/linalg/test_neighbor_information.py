"""Information of a step on a graph and how reliable it is: by definition, and at the limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.neighbor_information import (
    entropy,
    evidence,
    information,
    joint_information,
    modularity,
    neighbor_votes,
    permutation_z,
    random_walk,
    shared_neighbors,
)
from tests.synthetic import Array


def by_definition(weights: Array, labels: NDArray[np.int64]) -> float:
    """Σ p log(p / qr) of the clusters before and after one step of the random walk."""
    n = len(labels)
    degrees = weights.sum(axis=1, keepdims=True)
    steps = np.where(degrees > 0, weights / np.where(degrees > 0, degrees, 1.0), 1.0 / n)
    members = np.eye(labels.max() + 1)[labels]
    joint = members.T @ steps @ members / n
    independent = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    some = joint > 0
    return float(np.sum(joint[some] * np.log(joint[some] / independent[some])))


@pytest.mark.parametrize("n_alone", [0, 3])
def test_by_definition(n_alone: int) -> None:
    rng = np.random.default_rng(n_alone)
    weights = rng.random((30, 30)) * (rng.random((30, 30)) < 0.2)
    weights[rng.choice(30, n_alone, replace=False)] = 0.0
    partitions = [rng.integers(0, c, 30) for c in (1, 2, 5, 12)]
    walk = random_walk(csr_array(weights))
    found = [information(walk, labels) for labels in partitions]
    expected = [by_definition(weights, labels) for labels in partitions]
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_the_entropy_of_a_partition_is_by_definition() -> None:
    shares = np.array([0.5, 0.25, 0.125, 0.125])
    labels = np.repeat(np.arange(4), (shares * 64).astype(int))
    assert entropy(labels) == pytest.approx(-np.sum(shares * np.log(shares)), rel=1e-14)
    assert entropy(np.zeros(9, dtype=np.int64)) == 0.0


def posterior(affinities: list[Array], labels: NDArray[np.int64]) -> Array:
    """Clusters (n, c) by Bayes' rule, sample by sample and neighbour by neighbour."""
    n, c = len(labels), labels.max() + 1
    clusters = np.log(np.bincount(labels) / n)[None, :].repeat(n, axis=0)
    for affinity in affinities:
        degrees = affinity.sum(axis=1, keepdims=True)
        steps = np.where(degrees > 0, affinity / np.where(degrees > 0, degrees, 1.0), 1.0 / n)
        table = np.full((c, c), 1.0 / c**2)
        for i, j in np.ndindex(n, n):
            table[labels[i], labels[j]] += 0.5 * steps[i, j]
            table[labels[j], labels[i]] += 0.5 * steps[i, j]
        given = table / table.sum(axis=1, keepdims=True)
        for i, j, a in np.ndindex(n, n, c):
            clusters[i, a] += steps[i, j] * np.log(given[a, labels[j]])
    likelihood = np.exp(clusters)
    return np.asarray(likelihood / likelihood.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("n_alone", [0, 3])
def test_what_several_graphs_tell_together_is_by_definition(n_alone: int) -> None:
    rng = np.random.default_rng(n_alone)
    labels = rng.integers(0, 4, 25)
    graphs = [rng.random((25, 25)) * (rng.random((25, 25)) < 0.2) for _ in range(3)]
    graphs[1][rng.choice(25, n_alone, replace=False)] = 0.0
    told = np.sum([evidence(random_walk(csr_array(graph)), labels, 4) for graph in graphs], axis=0)
    expected = posterior(graphs, labels)
    members = np.eye(4)[labels]
    table = members.T @ expected / 25
    independent = np.outer(table.sum(axis=1), table.sum(axis=0))
    information = np.sum(table * np.log(table / independent))
    assert joint_information(labels, told) == pytest.approx(information, rel=1e-5)
    np.testing.assert_allclose(told, expected, rtol=1e-4)  # it is overwritten


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
    return neighbor_votes([lists], n)


@settings(max_examples=30)
@given(neighbor_lists(), st.integers(1, 9))
def test_shared_neighbors_by_definition(
    pair: tuple[NDArray[np.int64], NDArray[np.int64]], n_rows: int
) -> None:
    lists, others = pair[0][:n_rows], pair[1][:n_rows]
    m, k = lists.shape
    graph = graph_of(others, n=len(pair[0]))
    b = graph.astype(float)
    expected = [sum(b[i, j] - b[:, j].sum() / m for j in lists[i]) / k for i in range(m)]
    weights, means = np.take_along_axis(graph, lists, axis=1), b.mean(axis=0)
    assert_allclose(shared_neighbors(lists, weights, means), expected, atol=1e-12)


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
    lists = np.argsort(others, axis=1)[:, :5]
    equal = np.broadcast_to(others[0], (50, 50))
    assert permutation_z(lists, graph_of(lists, n=50) + equal) == 0.0


@settings(max_examples=30)
@given(st.integers(2, 12), st.integers(1, 4), st.integers(0, 999))
def test_modularity_by_the_double_sum(n: int, n_clusters: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = np.triu(rng.random((n, n)), 1) * (rng.random((n, n)) < 0.5)
    weights[0, 1] = 1.0  # at least one edge
    weights = weights + weights.T
    labels = rng.integers(0, n_clusters, size=n)
    degrees, total = weights.sum(axis=1), weights.sum()
    expected = 0.0
    for i in range(n):
        for j in range(n):
            if labels[i] == labels[j]:
                expected += (weights[i, j] - degrees[i] * degrees[j] / total) / total
    found = modularity(csr_array(weights), labels)
    assert_allclose(found, expected, atol=1e-13)
    assert -0.5 - 1e-12 <= found < 1.0


def test_a_graph_without_edges_has_no_modularity() -> None:
    assert modularity(csr_array((3, 3), dtype=np.float64), np.arange(3)) == 0.0
