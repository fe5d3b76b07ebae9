"""Each invariant of a result is violated by the damage that it names, and by no valid result."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.pipeline.run.doctor import violations

LABELS = np.array([0, 0, 1, 1, 2])
GRAPH = np.zeros((5, 5))
GRAPH[[0, 1, 2, 3], [1, 0, 3, 2]] = 1.0
SHARES = {"a": 0.25, "b": 0.75}


def found(
    labels: object = LABELS,
    graph: object = GRAPH,
    shares: dict[str, float] = SHARES,
    *,
    count: int = 3,
    reached: bool = True,
) -> tuple[str, ...]:
    return violations(
        np.asarray(labels),
        csr_array(np.asarray(graph)),
        shares,
        n_connected_components=count,
        reached=reached,
    )


def changed(row: int, column: int, weight: float) -> NDArray[np.float64]:
    graph = GRAPH.copy()
    graph[row, column] = weight
    return graph


def test_a_valid_result_has_none() -> None:
    assert found() == ()


def test_components_need_not_be_clusters_where_they_were_not_reached() -> None:
    labels = [0, 0, 1, 1, 1]
    assert found(labels, reached=False) == ()
    assert len(found(labels)) == 1


@pytest.mark.parametrize(
    ("labels", "graph", "shares", "count"),
    [
        (LABELS.astype(float), GRAPH, SHARES, 3),
        ([1, 1, 0, 0, 2], GRAPH, SHARES, 3),
        ([0, 0, 2, 2, 3], GRAPH, SHARES, 3),
        (LABELS, GRAPH[:4, :4], SHARES, 3),
        (LABELS, changed(0, 1, -1.0), SHARES, 3),
        (LABELS, changed(0, 1, np.nan), SHARES, 3),
        (LABELS, changed(0, 1, 0.9), SHARES, 3),
        (LABELS, GRAPH, SHARES, 2),
        ([0, 1, 2, 2, 3], GRAPH, SHARES, 3),
        (LABELS, GRAPH, {"a": 0.5, "b": 0.4}, 3),
        (LABELS, GRAPH, {"a": 1.5, "b": -0.5}, 3),
    ],
)
def test_each_damage_is_one_violation(
    labels: object, graph: object, shares: dict[str, float], count: int
) -> None:
    assert len(found(labels, graph, shares, count=count)) == 1


def test_an_edge_to_the_sample_itself() -> None:
    assert found(graph=changed(0, 0, 0.5))[0].count("itself") == 1
