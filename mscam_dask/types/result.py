"""Result of a fit: labels, consensus graph, status and the record of how they were found."""

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

# Nats. Separating one sample from a million others is information of 1e-5.
_ROUNDING = 1e-7


class Status(enum.Enum):
    """How the labels came about.

    The value of a member is the sentence that `Status.message` shows: what happened and, where
    the user can improve the result, what to try next.
    """

    CONVERGED = (
        "the consensus graph reached exactly the requested number of connected components "
        "along the graph-weight path, and no earlier partition on the path scored better "
        "(solver='reference' scores none)"
    )
    PARTITION_GRAPH = (
        "the best-scoring partition came from a spectral cut of an intermediate graph or from the "
        "refinement, not from connected components; the returned graph is its partition graph, "
        "whose components are exactly these clusters"
    )
    MERGED_COMPONENTS = (
        "the graph of the data has more connected components than n_clusters, whatever the graph "
        "weight; the components were merged by Ward's criterion, and the returned graph is the "
        "partition graph of the result; a larger n_neighbors or n_clusters may suit these data better"
    )
    SINGLE_CLUSTER = "n_clusters is 1; every sample belongs to the same cluster"
    SINGLETONS = "n_clusters equals the number of samples; every sample is its own cluster"
    COMPONENTS_NOT_REACHED = (
        "the consensus graph does not have the requested number of connected components "
        "(solver='reference' follows the printed algorithms, which do not enforce it); "
        "use solver='reduced'"
    )

    @property
    def message(self) -> str:
        """Sentence shown to the user."""
        return self.value

    @property
    def reached(self) -> bool:
        """Whether the consensus graph has exactly the requested number of components."""
        return self is not Status.COMPONENTS_NOT_REACHED


@dataclasses.dataclass(frozen=True, kw_only=True)
class Solution:
    """Labels, the consensus graph that has them as components, and how they were found.

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
        k used; larger than requested if the graph with k neighbors has more components than clusters.
    parameters : Parameters
        Parameters of the selected settings.
    settings : tuple of CandidateSettings
        All candidate settings.
    prepared : tuple of ViewPrepared
    history : tuple of IterationFinished
    view_embeddings : dict of str to (n, c)
        F_v = Z_vᵀP_v given the final graph (MSCAN: C_v, (n, r_v)).
    view_contributions : dict of str to float
        Share of each view in the sum of the information over views, from its reference graphs and
        the final partition; 0 for excluded views.
    encoders : dict of str to callable
        Encoders of the views that count: they map rows, also of new samples, to the ridge
        embedding. Empty if the solver has no out-of-sample form.
    counted : NClustersSelected or None
        How the number of clusters was selected; None if it was given.
    agreed : tuple of ViewSettingsSelected
        How scale and α of each view were selected; empty if they were given.
    learned : RefinementFinished or None
        Outcome of the refinement; None if there was none.
    chosen : int
        Position in `settings` of the selected settings; −1 if there were no candidates.
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
        """Names of the excluded views."""
        return tuple(self.prepared[view].view for view in self.parameters.exclude_views)


def shares_of_views(names: Sequence[str], scores: Sequence[float]) -> dict[str, float]:
    """Return nonnegative scores as shares of their sum; equal shares if no score is above rounding.

    Parameters
    ----------
    names
        Names of the views.
    scores
        Score of each view, in nats.

    Examples
    --------
    >>> shares_of_views(("color", "form"), (0.75, 0.25))
    {'color': 0.75, 'form': 0.25}
    """
    positive = np.maximum(np.asarray(scores, dtype=np.float64), 0.0)
    if not positive.sum() > _ROUNDING:
        positive = np.ones(len(names))
    shares = positive / positive.sum()
    return {name: float(share) for name, share in zip(names, shares, strict=True)}
