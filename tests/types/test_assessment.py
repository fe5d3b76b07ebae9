"""Borders and assessment of a partition: structure, message, and other numbers of the clusters."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.cluster.hierarchy import is_valid_linkage

from mscam_dask.errors import ConfigurationError
from mscam_dask.types.parameters import Constants, Parameters
from mscam_dask.types.result import Assessment, Borders, Structure


def borders(sizes: list[int], failing: dict[tuple[int, int], float]) -> Borders:
    """Clusters all of whose borders hold but these."""
    c = len(sizes)
    p_values = np.full((c, c), 0.01) - 0.01 * np.eye(c)
    counts = np.arange(3 * c * c).reshape(c, c, 3)
    for (i, j), value in failing.items():
        p_values[i, j] = p_values[j, i] = value
    return Borders(p_values, counts, np.array(sizes))


def made_up(
    failing: dict[tuple[int, int], float], sizes: tuple[int, ...] = (50, 40, 30)
) -> Assessment:
    return Assessment(
        borders=borders(list(sizes), failing),
        view_names=("a", "b"),
        cluster_agreement=np.arange(6.0).reshape(2, 3),
        contradictions=np.array([[-1, 2, -1], [1, -1, 0]]),
        view_agreement=np.eye(2),
        cluster_tree=np.array([[1.0, 2.0, 1.0, 2.0], [0.0, 3.0, 2.0, 3.0]]),
        cluster_names=(0, 1, 2),
    )


@pytest.mark.parametrize(
    ("sizes", "failing", "merged", "is_supported"),
    [
        ([50, 40, 30], {}, [0, 1, 2], True),
        ([50, 40, 30], {(0, 1): 0.05}, [0, 1, 2], True),  # just holds
        ([50, 40, 30], {(1, 2): 0.2}, [0, 1, 1], False),
        ([500, 400, 30], {(1, 2): 0.2}, [0, 1, 1], True),  # few samples
        ([500, 400, 60], {(1, 2): 0.2}, [0, 1, 1], False),
        ([500, 9], {(0, 1): 0.2}, [0, 0], False),  # one cluster
        ([500, 9, 40, 8], {(0, 1): 0.2, (2, 3): 0.2}, [0, 0, 1, 1], True),  # half of the clusters
        ([500, 9, 8, 40, 7], {(0, 1): 0.2, (0, 2): 0.2, (3, 4): 0.2}, [0, 0, 0, 1, 1], False),
        # the smallest joins across its weakest border, before larger ones are looked at
        ([50, 40, 3], {(0, 1): 0.9, (0, 2): 0.3, (1, 2): 0.4}, [0, 0, 0], False),
        ([50, 40, 30, 3], {(0, 1): 0.2, (2, 3): 0.9}, [0, 0, 1, 1], False),
        ([50, 40, 3], {(0, 2): 0.3, (1, 2): 0.4}, [0, 1, 1], True),
        ([40, 50, 3], {(0, 2): 0.4, (1, 2): 0.4}, [0, 1, 1], True),  # of equal ones the larger
    ],
)
def test_clusters_are_merged_until_all_borders_hold(
    sizes: list[int],
    failing: dict[tuple[int, int], float],
    merged: list[int],
    *,
    is_supported: bool,
) -> None:
    found = borders(sizes, failing)
    assert found.merged.tolist() == merged
    assert found.n_supported == len(set(merged))
    assert found.support is is_supported


def test_failing_borders_are_named_from_the_weakest_on() -> None:
    found = borders([9, 8, 7, 6], {(0, 3): 0.2, (1, 2): 0.7, (0, 1): 0.2})
    assert found.unseparated == [(1, 2), (0, 1), (0, 3)]
    assert found.stand.tolist() == [False] * 4
    assert borders([9, 8, 7], {(0, 2): 0.2}).stand.tolist() == [False, True, False]


def test_borders_in_another_order() -> None:
    found = borders([9, 8, 7], {(0, 2): 0.2, (0, 1): 0.3})
    order = np.array([2, 0, 1])
    other = found.in_order(order)
    assert other.sizes.tolist() == [7, 9, 8]
    for i, j in np.ndindex(3, 3):
        assert other.p_values[i, j] == found.p_values[order[i], order[j]]
        assert_array_equal(other.counts[i, j], found.counts[order[i], order[j]])


@pytest.mark.parametrize(
    ("failing", "sizes", "structure", "standing", "words"),
    [
        ({}, (50, 40, 30), Structure.CLEAR, (0, 1, 2), "0.01;"),
        # a border may fail with a much smaller cluster
        ({(1, 2): 0.4}, (500, 400, 10), Structure.CLEAR, (0, 1), "except for cluster 2,"),
        ({(0, 2): 1.0, (1, 2): 1.0}, (500, 400, 4), Structure.PARTLY, (0, 1), "2 of 3 clusters"),
        ({(1, 2): 0.4}, (50, 40, 30), Structure.PARTLY, (0,), "between clusters 1 and 2"),
        ({(0, 1): 0.3, (1, 2): 0.4}, (50, 40, 30), Structure.NONE, (), "1 and 2 or 0 and 1"),
    ],
)
def test_structure_and_message_name_the_clusters_that_stand(
    failing: dict[tuple[int, int], float],
    sizes: tuple[int, ...],
    structure: Structure,
    standing: tuple[int, ...],
    words: str,
) -> None:
    found = made_up(failing, sizes)
    assert found.structure is structure
    assert found.standing_clusters == standing
    assert words in found.message


def test_clusters_that_views_do_not_share_are_no_structure() -> None:
    found = dataclasses.replace(made_up({}), views_agree=False)
    assert found.structure is Structure.NONE
    assert "by chance" in found.message


def test_a_trivial_partition_keeps_its_names() -> None:
    found = Assessment.trivial(3, ["a"], np.eye(1))
    renamed = found.renamed([5, 0, 2])
    assert renamed.structure is found.structure is Structure.TRIVIAL
    assert renamed.message == found.message
    assert renamed.cluster_names == (0, 2, 5)
    assert renamed.cluster_tree.shape == (2, 4)
    assert renamed.standing_clusters == ()


def test_one_cluster_after_a_search_is_no_structure() -> None:
    found = Assessment.trivial(1, ["a"], np.eye(1), n_tried=7)
    assert found.structure is Structure.NONE
    assert "from 2 to 7" in found.message
    assert dataclasses.replace(found, n_tried=0).structure is Structure.TRIVIAL


def test_other_numbers_of_the_clusters() -> None:
    found = made_up({(1, 2): 0.4}).renamed([5, 0, 2])
    assert found.cluster_names == (0, 2, 5)
    assert found.standing_clusters == (5,)
    assert found.borders.sizes.tolist() == [40, 30, 50]
    assert_array_equal(found.cluster_agreement, [[1, 2, 0], [4, 5, 3]])
    assert_array_equal(found.contradictions, [[1, -1, -1], [-1, 2, 0]])
    assert found.borders.unseparated == [(0, 1)]
    assert "between clusters 0 and 2" in found.message
    assert found.cluster_tree[:, :2].tolist() == [[0, 1], [2, 3]]
    assert is_valid_linkage(found.cluster_tree)


@pytest.mark.parametrize(
    ("n_clusters", "n_samples", "expected"),
    [
        (3, 1000, 20),
        (3, 150, 15),  # a tenth of the samples
        (3, 40, 6),
        (12, 1000, 24),
        (3, 5, 5),  # there are no more
        (3, 50_000, 6),  # large
    ],
)
def test_eigenpairs_are_twice_the_clusters_and_twenty_where_samples_allow(
    n_clusters: int, n_samples: int, expected: int
) -> None:
    assert Parameters(n_clusters=n_clusters).n_pairs(n_samples) == expected


def test_a_mapping_is_no_settings_of_the_admm() -> None:
    with pytest.raises(ConfigurationError):
        Constants(admm={"penalty": 10.0})  # type: ignore[arg-type]
