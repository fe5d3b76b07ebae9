"""Each invariant of a result is violated by the damage that it names, and by no valid result."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from mscam_dask.pipeline.doctor import violations

LABELS = [0, 0, 1, 1, 2]
GRAPH = np.zeros((5, 5))
GRAPH[[0, 1, 2, 3], [1, 0, 3, 2]] = 1.0
SHARES = {"a": 0.25, "b": 0.75}


def found(
    labels: Any = LABELS, graph: Any = GRAPH, shares: Any = SHARES, *, n: int = 3, **options: Any
) -> tuple[str, ...]:
    result: Any = SimpleNamespace(
        labels=np.asarray(labels),
        consensus_graph=csr_array(graph),
        view_contributions=shares,
        n_connected_components=n,
    )
    return violations(result, **options)


def changed(row: int, column: int, weight: float) -> Any:
    graph = GRAPH.copy()
    graph[row, column] = weight
    return graph


def test_a_valid_result_has_none() -> None:
    assert found() == ()
    labels = [0, 0, 1, 1, 1]  # components need not be clusters where they were not reached
    assert found(labels, reached=False) == ()
    assert len(found(labels)) == 1


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param({"labels": [0, 1, 2, 2, 3]}, id="across components"),
        pytest.param({"graph": GRAPH[:4, :4]}, id="shape"),
        pytest.param({"graph": changed(0, 1, -1.0)}, id="negative"),
        pytest.param({"graph": changed(0, 1, np.nan)}, id="nan"),
        pytest.param({"graph": changed(0, 1, 0.9)}, id="sum of a row"),
        pytest.param({"n": 2}, id="components"),
        pytest.param({"shares": {"a": 0.5, "b": 0.4}}, id="sum of shares"),
        pytest.param({"shares": {"a": 1.5, "b": -0.5}}, id="negative share"),
    ],
)
def test_each_damage_is_one_violation(damage: Any) -> None:
    assert len(found(**damage)) == 1


def test_an_edge_to_the_sample_itself() -> None:
    assert found(graph=changed(0, 0, 0.5))[0].count("itself") == 1
