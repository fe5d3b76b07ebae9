"""Rules of the outer iterations and of the refinement, one decision at a time."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from mscam_dask.engine import outer_loop as refine
from mscam_dask.solvers.partition_score import PartitionScore
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.rules import RULES

PARAMETERS = Parameters(n_clusters=3)


def of_score(score: float) -> PartitionScore:
    """A partition whose views all have the same information, as they have together."""
    return PartitionScore((score, score))


@pytest.mark.parametrize(
    ("max_iter", "by_admm", "of_both"),
    [(None, 3, 6), (1, 1, 1), (3, 3, 3), (4, 3, 4), (50, 3, 6)],
)
def test_a_limit_is_that_of_both_kinds_of_iterations(
    max_iter: int | None, by_admm: int, of_both: int
) -> None:
    parameters = dataclasses.replace(PARAMETERS, max_iter=max_iter)
    assert parameters.admm_limit(refines=False) == max_iter
    assert parameters.admm_limit(refines=True) == by_admm
    assert parameters.refined_limit() == of_both


@pytest.mark.parametrize("follows_a_fit", [False, True])
@pytest.mark.parametrize("n_components", [3, 4])
def test_a_proposal_is_taken_unless_it_is_clearly_worse(
    follows_a_fit: bool, n_components: int
) -> None:
    def is_taken(score: float) -> bool:
        context: Any = SimpleNamespace(parameters=PARAMETERS, from_previous_fit=follows_a_fit)
        graph = SimpleNamespace(n_components=n_components)
        best = SimpleNamespace(partition_score=of_score(score))
        proposal: Any = SimpleNamespace(graph=graph, best=best)
        state: Any = SimpleNamespace(best=SimpleNamespace(partition_score=of_score(0.5)))
        return refine._is_accepted(proposal, state, context)

    slightly_lower = 0.5 * (1 - 0.5 * RULES.score_margin)
    clearly_lower = 0.5 * (1 - 2.0 * RULES.score_margin)
    assert is_taken(0.5 * (1 + 2 * PARAMETERS.constants.score_tie) + 0.1)
    assert not is_taken(clearly_lower)
    assert is_taken(slightly_lower) is not follows_a_fit  # of an earlier fit only a better one is
    # the same score again, with other components than clusters: nothing was learned
    assert is_taken(0.5) is (n_components == 3 and not follows_a_fit)
