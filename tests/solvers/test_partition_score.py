"""Which of two partitions is better: by information, or by how reliable it is where that tells."""

from __future__ import annotations

import math

import pytest
from scipy.optimize import brentq

from mscam_dask.solvers.partition_score import (
    PartitionScore,
    argbest,
    is_better,
    is_nearly_perfect,
    is_worse,
)
from mscam_dask.types.parameters import Constants, Parameters
from mscam_dask.types.rules import RULES

GIVEN = Parameters(n_clusters=3)


def partition_score(information: float, reliability: float) -> PartitionScore:
    entropy = information / reliability
    return PartitionScore((information - 0.1, information + 0.1), entropy, information)


def test_of_much_the_same_reliability_more_information_is_better() -> None:
    one, more, little_more = (
        partition_score(0.5, 0.6),
        partition_score(0.51, 0.6),
        partition_score(0.5004, 0.6),
    )
    assert is_better(more, one, GIVEN)
    assert not is_better(little_more, one, GIVEN)
    assert not is_better(one, more, GIVEN)
    assert is_worse(one, more, 0.015)
    assert not is_worse(one, more, 0.025)
    assert argbest([one, more, little_more]) == 1


def test_a_partition_that_neighbours_tell_whole_beats_one_with_a_little_more_information() -> None:
    whole, more = partition_score(0.90, 0.98), partition_score(0.93, 0.6)
    assert is_better(whole, more, GIVEN)
    assert not is_better(more, whole, GIVEN)
    assert is_worse(more, whole, 0.3)
    assert not is_worse(more, whole, 0.4)  # it has 0.65 of the other's reliable information
    assert not is_worse(whole, more, 0.0)
    assert argbest([more, whole]) == argbest([whole, more, more]) + 1 == 1


def test_much_more_information_outweighs_reliability() -> None:
    """Groups of a few near duplicates are told whole, and say little of the rest."""
    duplicates, more = partition_score(0.2, 0.98), partition_score(0.93, 0.3)
    assert is_better(more, duplicates, GIVEN)
    assert argbest([duplicates, more]) == 1


@pytest.mark.parametrize("lead", [0.5, 1.5])
def test_adjusted_information_decides_from_a_clear_difference_on(lead: float) -> None:
    more = partition_score(0.93, 0.85)
    wanted = (1.0 + lead * RULES.clear_difference) * more.adjusted
    reliability = brentq(lambda x: partition_score(0.92, x).adjusted - wanted, 0.5, 1.0)
    reliable = partition_score(0.92, reliability)
    is_clear = lead > 1.0
    assert is_better(reliable, more, GIVEN) is is_clear
    assert is_better(more, reliable, GIVEN) is not is_clear
    assert argbest([reliable, more]) == (0 if is_clear else 1)


def test_by_how_much_one_has_to_be_ahead_counts_for_reliability_too() -> None:
    whole, more = partition_score(0.90, 0.98), partition_score(0.93, 0.85)
    lead = whole.adjusted / more.adjusted - 1.0
    assert lead > 0.08
    for tie, expected in ((0.99 * lead, True), (1.01 * lead, False)):
        parameters = Parameters(n_clusters=3, constants=Constants(score_tie=tie))
        assert is_better(whole, more, parameters) is expected


def test_partitions_of_no_information_are_alike() -> None:
    nothing = PartitionScore((0.0, 0.0), 0.0, 0.0)
    assert not is_better(nothing, nothing, GIVEN)
    assert not is_worse(nothing, nothing, 0.0)
    assert is_better(partition_score(0.5, 0.5), nothing, GIVEN)


def test_nearly_perfect_is_a_share_of_the_most_information_of_c_clusters() -> None:
    for c in (2, 3, 50):
        parameters = Parameters(n_clusters=c)
        assert is_nearly_perfect(math.log(c), parameters)
        assert is_nearly_perfect(RULES.nearly_perfect * math.log(c), parameters)
        assert not is_nearly_perfect(0.99 * RULES.nearly_perfect * math.log(c), parameters)
