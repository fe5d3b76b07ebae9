"""Which of two partitions is better: the one with more information."""

from __future__ import annotations

import math

import pytest

from mscam_dask.solvers.partition_score import (
    PartitionScore,
    argbest,
    is_better,
    is_nearly_perfect,
    is_worse,
)
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.rules import RULES

GIVEN = Parameters(n_clusters=3, tol=0.001)


def partition_score(information: float) -> PartitionScore:
    return PartitionScore((information - 0.1, information + 0.1), 1.0, information)


def test_more_information_is_better_by_more_than_a_share() -> None:
    one, more, little_more = (partition_score(value) for value in (0.5, 0.51, 0.5004))
    assert is_better(more, one, GIVEN)
    assert not is_better(little_more, one, GIVEN)
    assert not is_better(one, more, GIVEN)
    assert is_worse(one, more, 0.015)
    assert not is_worse(one, more, 0.025)
    assert argbest([one, more, little_more]) == 1


def test_reliability_is_a_share_of_the_entropy() -> None:
    assert PartitionScore((0.5,), 0.8, 0.6).reliability == pytest.approx(0.75)
    assert PartitionScore((0.5,), 0.8, 0.9).reliability == 1.0
    assert PartitionScore((0.0,), 0.0, 0.0).reliability == 0.0


def test_partitions_of_no_information_are_alike() -> None:
    nothing = PartitionScore((0.0, 0.0), 0.0, 0.0)
    assert not is_better(nothing, nothing, GIVEN)
    assert not is_worse(nothing, nothing, 0.0)
    assert is_better(partition_score(0.5), nothing, GIVEN)


def test_nearly_perfect_is_a_share_of_the_most_information_of_c_clusters() -> None:
    for c in (2, 3, 50):
        parameters = Parameters(n_clusters=c)
        assert is_nearly_perfect(math.log(c), parameters)
        assert is_nearly_perfect(RULES.nearly_perfect * math.log(c), parameters)
        assert not is_nearly_perfect(0.99 * RULES.nearly_perfect * math.log(c), parameters)
