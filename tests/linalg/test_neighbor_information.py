"""Information of a step on a graph and how reliable it is: by definition, and at the limits."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.neighbor_information import (
    entropy,
    evidence,
    information,
    joint_information,
    random_walk,
)


def by_definition(weights: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
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


def posterior(
    affinities: list[NDArray[np.float64]], labels: NDArray[np.int64]
) -> NDArray[np.float64]:
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


def test_a_cluster_that_no_row_is_of_is_never_told() -> None:
    labels = np.repeat([0, 2], 20)
    graph = random_walk(csr_array(np.equal.outer(labels, labels).astype(float)))
    told = evidence(graph, labels, 3)
    assert joint_information(labels, told) == pytest.approx(entropy(labels), rel=0.1)
    assert (told[:, 1] == 0.0).all()
