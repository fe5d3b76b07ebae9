"""Assessment of a partition: structure, message, and other numbers of the clusters."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.cluster.hierarchy import is_valid_linkage

from mscam_dask.types.result import Assessment, Structure, unseparated_pairs


def made_up(*, stability: float = 0.9, together: float = 0.0) -> Assessment:
    """Three clusters, of which the last two share clusters of the cuts."""
    co_clustering = np.eye(3)
    co_clustering[1, 2] = co_clustering[2, 1] = together
    return Assessment(
        cluster_stability=np.array([1.0, stability, stability - 0.1]),
        co_clustering=co_clustering,
        view_names=("a", "b"),
        cluster_agreement=np.arange(6.0).reshape(2, 3),
        view_agreement=np.eye(2),
        cluster_tree=np.array([[1.0, 2.0, 1.0, 2.0], [0.0, 3.0, 2.0, 3.0]]),
        neighbor_overlap={"a": 20.0, "b": 30.0},
        split_half_ari=None,
        cluster_names=(0, 1, 2),
    )


def test_stable_clusters() -> None:
    found = made_up()
    assert found.structure is Structure.STABLE
    assert "0.90" in found.message


@pytest.mark.parametrize(
    ("together", "named"), [(0.8, "clusters 1 and 2 are not separated"), (0.3, "2 and 1")]
)
def test_unstable_clusters_are_named(together: float, named: str) -> None:
    found = made_up(stability=0.4, together=together)
    assert found.structure is Structure.UNSTABLE
    assert named in found.message


@pytest.mark.parametrize(
    ("overlap", "half", "is_by_chance"),
    [
        ({"a": 4.9, "b": 1.0}, None, True),
        ({"a": 5.1, "b": 1.0}, 0.1, False),
        ({}, 0.39, True),
        ({}, 0.41, False),
        ({}, None, False),
    ],
)
def test_only_chance_supports_the_clusters(
    overlap: dict[str, float], half: float | None, is_by_chance: bool
) -> None:
    found = dataclasses.replace(
        made_up(),
        neighbor_overlap=overlap,
        split_half_ari=half,
    )
    assert (found.structure is Structure.NONE) == is_by_chance
    assert ("chance" in found.message or "noise" in found.message) == is_by_chance


def test_a_trivial_partition_keeps_its_names() -> None:
    found = Assessment.trivial(3, ["a"], np.eye(1), neighbor_overlap={}, split_half_ari=None)
    renamed = found.renamed([5, 0, 2])
    assert renamed.structure is found.structure is Structure.TRIVIAL
    assert renamed.message == found.message
    assert renamed.cluster_names == (0, 2, 5)
    assert renamed.cluster_tree.shape == (2, 4)


def test_other_numbers_of_the_clusters() -> None:
    found = made_up(stability=0.4, together=0.8).renamed([5, 0, 2])
    assert found.cluster_names == (0, 2, 5)
    np.testing.assert_allclose(found.cluster_stability, [0.4, 0.3, 1.0])
    assert_array_equal(found.cluster_agreement, [[1, 2, 0], [4, 5, 3]])
    assert unseparated_pairs(found.co_clustering) == ((0, 1),)
    assert "clusters 0 and 2 are not separated" in found.message
    assert found.cluster_tree[:, :2].tolist() == [[0, 1], [2, 3]]
    assert is_valid_linkage(found.cluster_tree)
