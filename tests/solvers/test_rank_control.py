"""Rank control: reaches c where a weight exists, never loops, tells a stall from progress."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mscam_dask.solvers.graph_update import Decision, RankControl

GROWTH = 1.3
MOST_OUTER = 60


@dataclasses.dataclass(frozen=True)
class Walk:
    """What an outer loop saw: the decisions that ended its iterations, and all weights tried."""

    decisions: list[Decision]
    weights: list[list[float]]
    control: RankControl


def walk(
    components: Callable[[int, float], int],
    n_clusters: int,
    *,
    start: float = 0.1,
    most_outer: int = MOST_OUTER,
) -> Walk:
    """The engine's loop: `components(iteration, weight)` stands for the graph step."""
    control = RankControl(n_clusters, GROWTH, start)
    decisions: list[Decision] = []
    weights: list[list[float]] = []
    for iteration in range(most_outer):
        tried: list[float] = []
        decision = Decision.RETRY
        while decision is Decision.RETRY:
            tried.append(control.graph_weight)
            assert len(tried) < 100, f"an outer iteration without end: {tried}"
            decision, control = control.observe(components(iteration, control.graph_weight))
        decisions.append(decision)
        weights.append(tried)
        if decision is not Decision.ACCEPT:
            break
    return Walk(decisions, weights, control)


def staircase(steps: list[tuple[float, int]]) -> Callable[[int, float], int]:
    """Components as a function of the weight alone: `steps` are (from this weight on, count)."""
    edges = [edge for edge, _ in steps]
    counts = [count for _, count in steps]
    return lambda _, weight: counts[max(0, bisect.bisect_right(edges, weight) - 1)]


def test_too_few_raise_the_weight_by_the_growth_factor() -> None:
    result = walk(staircase([(0.0, 1), (1.0, 3)]), 3)
    tried = [weight for (weight,) in result.weights]
    assert result.decisions == [*[Decision.ACCEPT] * (len(tried) - 1), Decision.REACHED]
    assert tried == pytest.approx([0.1 * GROWTH**i for i in range(len(tried))])
    assert tried[-2] < 1.0 <= tried[-1]


def test_too_many_lower_the_weight_for_the_same_distances() -> None:
    result = walk(staircase([(0.0, 3), (0.05, 5)]), 3)
    assert result.decisions == [Decision.REACHED]
    (tried,) = result.weights
    assert tried == pytest.approx([0.1 / GROWTH**i for i in range(len(tried))])
    assert tried[-1] < 0.05 <= tried[-2]


@given(
    low=st.floats(1e-3, 50.0),
    width=st.floats(1.02, 4.0),
    start=st.floats(0.01, 10.0),
    n_clusters=st.integers(2, 20),
    jump=st.integers(1, 30),
)
@settings(max_examples=80)
def test_a_monotone_function_that_takes_the_value_c_is_solved(
    low: float, width: float, start: float, n_clusters: int, jump: int
) -> None:
    # c components for weights in [low, low·width), fewer below and more above
    assume(start / low < GROWTH**18)
    function = staircase([(0.0, 1), (low, n_clusters), (low * width, n_clusters + jump)])
    result = walk(function, n_clusters, start=start)
    assert result.decisions[-1] is Decision.REACHED
    assert low <= result.weights[-1][-1] < low * width
    # up the staircase by the growth factor, and never more than one needless iteration
    assert len(result.decisions) <= 3 + max(
        0, bisect.bisect_left([start * GROWTH**i for i in range(MOST_OUTER)], low)
    )


@st.composite
def functions(draw: st.DrawFn) -> Callable[[int, float], int]:
    """Any function of the weight, another one in each outer iteration; deterministic."""
    salt = draw(st.integers(0, 2**32))
    counts = draw(st.lists(st.integers(1, 9), min_size=1, max_size=8))
    resolution = draw(st.sampled_from([1.0, 4.0, 1000.0]))

    def components(iteration: int, weight: float) -> int:
        return counts[hash((salt, iteration, round(weight * resolution))) % len(counts)]

    return components


@given(functions(), st.integers(1, 9), st.floats(1e-6, 1e3))
@settings(max_examples=100)
def test_any_function_at_all_ends_after_few_retries(
    components: Callable[[int, float], int], n_clusters: int, start: float
) -> None:
    result = walk(components, n_clusters, start=start)
    assert all(len(tried) <= 30 for tried in result.weights)
    assert all(weight > 0 for tried in result.weights for weight in tried)
    if result.decisions[-1] is Decision.ACCEPT:
        assert len(result.decisions) == MOST_OUTER


def test_a_jump_over_c_stalls_after_three_iterations() -> None:
    result = walk(staircase([(0.0, 1), (0.5, 9)]), 4)
    assert result.decisions[-1] is Decision.STALLED
    n_bisected = sum(len(tried) > 1 for tried in result.weights)
    assert n_bisected == 3
    for tried in result.weights[-3:]:
        # the graph that goes on is one with too few components: the path can continue
        assert tried[-1] < 0.5
        # bisected to a fraction of the growth factor
        below = max(weight for weight in tried if weight < 0.5)
        above = min(weight for weight in tried if weight >= 0.5)
        assert above / below < GROWTH ** (1 / 16)


def test_a_jump_that_resolves_itself_is_forgotten() -> None:
    # two iterations jump, the third does not, then two more: never three in a row
    def components(iteration: int, weight: float) -> int:
        if iteration in (3, 4, 7, 8):
            return 1 if weight < 0.2 else 9
        return 1 if iteration < 10 else 4

    result = walk(components, 4, start=0.19)
    assert result.decisions[-1] is Decision.REACHED


def test_a_jump_is_halved_until_six_weights_have_followed_the_first() -> None:
    result = walk(staircase([(0.0, 1), (0.5, 9)]), 4, start=0.51)
    tried = result.weights[0]
    halvings = [weight for weight in tried[2:7] if weight not in tried[:2]]
    assert tried[1] == pytest.approx(0.51 / GROWTH)
    assert len(halvings) == 5
    below = max(weight for weight in tried if weight < 0.5)
    above = min(weight for weight in tried if weight >= 0.5)
    assert above / below == pytest.approx(GROWTH ** (1 / 2**5))
    assert len(tried) <= 8  # where the last halving gave too many, one with too few is repeated


def test_the_weight_is_divided_twenty_times_before_it_is_given_up() -> None:
    (tried,) = walk(lambda _, __: 7, 4).weights
    assert tried == pytest.approx([0.1 / GROWTH**i for i in range(21)])
