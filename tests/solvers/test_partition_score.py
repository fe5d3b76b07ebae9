"""Which of two partitions is better: the one with more information."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.sparse import csr_array

from mscam_dask.solvers.partition_score import (
    PartitionScore,
    ReferenceGraphs,
    argbest,
    explained_share,
    is_better,
    is_nearly_perfect,
    is_worse,
)
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.rules import RULES

GIVEN = Parameters(n_clusters=3)


def partition_score(information: float) -> PartitionScore:
    return PartitionScore((information - 0.1, information + 0.1))


def test_more_information_is_better_by_more_than_a_share() -> None:
    one, more, little_more = (partition_score(value) for value in (0.5, 0.51, 0.5004))
    assert is_better(more, one, GIVEN)
    assert not is_better(little_more, one, GIVEN)
    assert not is_better(one, more, GIVEN)
    assert is_worse(one, more, 0.015)
    assert not is_worse(one, more, 0.025)
    assert argbest([one, more, little_more]) == 1


def test_partitions_of_no_information_are_alike() -> None:
    nothing = PartitionScore((0.0, 0.0))
    assert not is_better(nothing, nothing, GIVEN)
    assert not is_worse(nothing, nothing, 0.0)
    assert is_better(partition_score(0.5), nothing, GIVEN)


def test_nearly_perfect_is_a_share_of_the_most_information_of_c_clusters() -> None:
    for c in (2, 3, 50):
        parameters = Parameters(n_clusters=c)
        most, least = math.log(c), (1 - RULES.level) * math.log(c)
        assert is_nearly_perfect(PartitionScore((most,)), parameters)
        assert is_nearly_perfect(PartitionScore((least,)), parameters)
        assert not is_nearly_perfect(PartitionScore((0.99 * least,)), parameters)
        assert not is_nearly_perfect(PartitionScore((most,), n_missed=1), parameters)


def random_view(labels: np.ndarray, within: float, seed: int) -> csr_array:
    """Symmetric graph whose edges are within clusters with this probability each, and rarely between."""
    rng = np.random.default_rng(seed)
    share = np.where(np.equal.outer(labels, labels), within, 0.01)
    upper = np.triu(rng.random(share.shape) < share, 1).astype(float)
    return csr_array(upper + upper.T)


SIZES = (np.repeat([0, 1], 60), np.repeat([0, 1, 2], [100, 12, 8]))


@pytest.mark.parametrize("labels", SIZES, ids=["equal", "unequal"])
def test_the_explained_share_does_not_depend_on_the_sizes(labels: np.ndarray) -> None:
    views = [ReferenceGraphs((random_view(labels, 0.5, seed),)) for seed in range(3)]
    assert explained_share(views, labels) > 0.9
    rng = np.random.default_rng(0)
    by_chance = [explained_share(views, rng.permutation(labels)) for _ in range(5)]
    assert max(by_chance) < 0.2
    assert explained_share(views, 0 * labels) == 0.0
