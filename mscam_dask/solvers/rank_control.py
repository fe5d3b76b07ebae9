"""Control of the graph weight λ until the consensus graph has exactly c connected components.

The rule is that of CAN and MLAN: raise λ if there are too few components; lower it and repeat the A-step from the
same distances if there are too many. If one growth step jumps over c, λ is bisected.

F. Nie, X. Wang, H. Huang, doi:10.1145/2623330.2623726.
"""

from __future__ import annotations

import dataclasses
import enum

# Bisections of one jump: a factor of growth^(1/2^6) on λ is too small to move an edge.
_MAX_BISECTIONS = 6

# If λ was divided this often by the growth factor without effect, the data distances alone give
# more than c components.
_MAX_REDUCTIONS = 20

# Consecutive outer iterations that end in a jump over c before λ counts as stalled.
_MAX_STALLS = 3


class Decision(enum.Enum):
    """Decision on the graph of an A-step; checkpoints hold the values."""

    ACCEPT = "ACCEPT"  # go on to the next outer iteration
    RETRY = "RETRY"  # repeat the A-step with the new weight
    REACHED = "REACHED"  # the graph has exactly c components
    STALLED = "STALLED"  # no λ gave exactly c components, in several consecutive iterations
    STOPPED = "STOPPED"  # the new partition is not accepted, or its score is nearly perfect


@dataclasses.dataclass(frozen=True, slots=True)
class RankControl:
    """Immutable state of the rank control."""

    n_clusters: int
    growth: float  # factor on λ
    graph_weight: float  # λ of the next A-step
    below: float | None = None  # largest λ with too few components, for these distances
    above: float | None = None  # smallest λ with too many
    retries: int = 0  # repeated A-steps of this outer iteration
    stalls: int = 0  # consecutive outer iterations that ended in a jump over c

    def observe(self, n_components: int) -> tuple[Decision, RankControl]:
        """Decision after an A-step with `graph_weight` and these components, and next state."""
        if n_components == self.n_clusters:
            return Decision.REACHED, self
        if n_components > self.n_clusters:
            return self._after_too_many()
        if self.above is None:
            return Decision.ACCEPT, self._grown(stalls=0)
        if self.retries < _MAX_BISECTIONS:
            return self._retry(below=self.graph_weight, above=self.above)
        stalls = self.stalls + 1  # accept despite the jump over c
        decision = Decision.STALLED if stalls >= _MAX_STALLS else Decision.ACCEPT
        return decision, self._grown(stalls=stalls)

    def _grown(self, *, stalls: int) -> RankControl:
        """State of the next outer iteration."""
        weight = self.graph_weight * self.growth
        return RankControl(self.n_clusters, self.growth, weight, stalls=stalls)

    def _after_too_many(self) -> tuple[Decision, RankControl]:
        if self.below is None and self.retries >= _MAX_REDUCTIONS:
            return Decision.STALLED, self
        if self.below is not None and self.retries > _MAX_BISECTIONS:
            return Decision.STALLED, self  # the same weight gave too few before, too many now
        if self.below is not None and self.retries == _MAX_BISECTIONS:
            # one last step with a weight that gave too few, so that the outer loop can continue
            return Decision.RETRY, dataclasses.replace(
                self,
                graph_weight=self.below,
                above=self.graph_weight,
                retries=self.retries + 1,
            )
        return self._retry(below=self.below, above=self.graph_weight)

    def _retry(self, *, below: float | None, above: float) -> tuple[Decision, RankControl]:
        weight = above / self.growth if below is None else (below * above) ** 0.5
        state = dataclasses.replace(
            self, graph_weight=weight, below=below, above=above, retries=self.retries + 1
        )
        return Decision.RETRY, state
