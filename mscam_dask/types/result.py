"""What a fit returns."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mscam_dask.types.events import (
    CandidateSettings,
    IterationFinished,
    NClustersSelected,
    RefinementFinished,
    ViewPrepared,
    ViewSettingsSelected,
)
from mscam_dask.types.parameters import Parameters

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = [
    "Solution",
    "Status",
    "shares_of_views",
]

# Nats; one sample of a million apart from the rest is information of 1e-5.
_ROUNDING = 1e-7


class Status(enum.Enum):
    """How the clusters were reached.

    The value of a member is what `Status.message` shows: what happened and, where
    something can be done about it, what to try next.
    """

    CONVERGED = (
        "the consensus graph reached exactly the requested number of connected components "
        "along the graph-weight path, and no earlier partition on the path scored better "
        "(solver='reference' judges none)"
    )
    PARTITION_GRAPH = (
        "the partition that was kept, from the graph-weight path or by learned distances after it, was "
        "an embedding cut; the consensus graph was closed around it by one graph step in the limit of "
        "infinite graph weight"
    )
    MERGED_COMPONENTS = (
        "the data alone fall into more pieces than clusters were asked for, whatever the graph "
        "weight; the pieces were merged by Ward's criterion and the graph closed around the "
        "result; a larger n_neighbors or n_clusters may suit these data better"
    )
    SINGLE_CLUSTER = "one cluster was asked for; every sample belongs to it"
    SINGLETONS = "as many clusters as samples were asked for; every sample is its own cluster"
    COMPONENTS_NOT_REACHED = (
        "the consensus graph does not have the requested number of connected components "
        "(solver='reference' follows the printed algorithms, which do not enforce it); "
        "use solver='reduced'"
    )

    @property
    def message(self) -> str:
        """The sentence shown to the user."""
        return self.value

    @property
    def reached(self) -> bool:
        """Whether the consensus graph has exactly the requested number of components."""
        return self is not Status.COMPONENTS_NOT_REACHED


@dataclasses.dataclass(frozen=True, kw_only=True)
class Solution:
    """Clusters, the graph that has them as components, and how they were found.

    Attributes
    ----------
    labels : (n,) int64
        Cluster of each sample, numbered by first appearance.
    consensus_graph : (n, n) CSR
        A, rows on the simplex (a sample alone in its cluster has an empty row).
    n_connected_components : int
        Of the consensus graph.
    status : Status
    score : float
        Cross-view information of `labels`, in nats.
    n_neighbors : int
        k used: more than asked for when k neighbours leave more components than clusters.
    parameters : Parameters
        Of the setting taken.
    settings : tuple of CandidateSettings
        All settings tried.
    prepared : tuple of ViewPrepared
    history : tuple of IterationFinished
    view_embeddings : dict of str to (n, c)
        F_v = Z_vᵀP_v given the final graph (MSCAN: C_v, (n, r_v)).
    view_contributions : dict of str to float
        Each view's information on the final partition, from its own neutral graphs, as a share
        of the sum over views; 0 for those left out.
    encoders : dict of str to callable
        Map rows of a view, new ones too, to its anchor coordinates, of the views that count;
        empty where the solver has no out-of-sample form.
    counted : NClustersSelected or None
        How the number of clusters was chosen; None when it was given.
    agreed : tuple of ViewSettingsSelected
        How each view's scaling and α were chosen; empty where they were given.
    learned : RefinementFinished or None
        What distances learned from the best partition of the path gave; None where none were.
    chosen : int
        Position in `settings` of the one taken; −1 where none was tried.
    """

    labels: NDArray[np.int64]
    consensus_graph: csr_array[np.float64]
    n_connected_components: int
    status: Status
    score: float
    n_neighbors: int
    parameters: Parameters
    settings: tuple[CandidateSettings, ...]
    prepared: tuple[ViewPrepared, ...]
    history: tuple[IterationFinished, ...]
    view_embeddings: dict[str, NDArray[np.float64]]
    view_contributions: dict[str, float]
    encoders: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]]
    counted: NClustersSelected | None = None
    agreed: tuple[ViewSettingsSelected, ...] = ()
    learned: RefinementFinished | None = None
    chosen: int = -1

    @property
    def exclude_views(self) -> tuple[str, ...]:
        """Names of the views that did not count."""
        return tuple(self.prepared[view].view for view in self.parameters.exclude_views)


def shares_of_views(names: Sequence[str], scores: Sequence[float]) -> dict[str, float]:
    """Return non-negative scores as shares of their sum; equal when none is above rounding.

    Parameters
    ----------
    names
        Of the views.
    scores
        Of each, in nats.

    Examples
    --------
    >>> shares_of_views(("colour", "form"), (0.75, 0.25))
    {'colour': 0.75, 'form': 0.25}
    """
    positive = np.maximum(np.asarray(scores, dtype=np.float64), 0.0)
    if not positive.sum() > _ROUNDING:
        positive = np.ones(len(names))
    shares = positive / positive.sum()
    return {name: float(share) for name, share in zip(names, shares, strict=True)}
