"""Result of a fit."""

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

# In nats; one sample apart from a million others has information 1e-5.
_ROUNDING = 1e-7


class Status(enum.Enum):
    """Status of a fit.

    The value of a member is the sentence that `Status.message` shows: how the labels came about and,
    where it helps, a remedy.
    """

    CONVERGED = (
        "converged: the consensus graph has exactly the requested number of connected components, "
        "and no earlier partition scored higher (solver='reference' scores no earlier partitions)"
    )
    PARTITION_GRAPH = (
        "the best-scoring partition came from spectral clustering of an intermediate graph, not from "
        "connected components; the returned graph was rebuilt so that its components are exactly "
        "these clusters"
    )
    MERGED_COMPONENTS = (
        "the nearest-neighbor graph of the data already has more connected components than "
        "n_clusters; components were merged with Ward linkage. Consider a larger n_neighbors or "
        "n_clusters"
    )
    SINGLE_CLUSTER = "n_clusters is 1; every sample belongs to the same cluster"
    SINGLETONS = "n_clusters equals the number of samples; every sample is its own cluster"
    COMPONENTS_NOT_REACHED = (
        "the consensus graph does not have the requested number of connected components "
        "(solver='reference' follows the algorithms of the paper, which do not enforce it); "
        "use solver='reduced'"
    )

    @property
    def message(self) -> str:
        """Sentence for the user."""
        return self.value

    @property
    def reached(self) -> bool:
        """True if the consensus graph has exactly the requested number of components."""
        return self is not Status.COMPONENTS_NOT_REACHED


@dataclasses.dataclass(frozen=True, kw_only=True)
class Solution:
    """Labels, consensus graph and records of a fit.

    Attributes
    ----------
    labels : (n,) int64
        Cluster of each sample, numbered by first appearance.
    consensus_graph : (n, n) CSR
        Graph A with rows on the simplex (a sample alone in its cluster has an empty row).
    n_connected_components : int
        Connected components of the consensus graph.
    status : Status
    score : float
        Cross-view information of `labels`, in nats.
    n_neighbors : int
        Number of neighbors k in the graph: more than requested if k neighbors leave more components
        than clusters.
    parameters : Parameters
        Parameters of the selected setting.
    settings : tuple of CandidateSettings
        All settings tried.
    prepared : tuple of ViewPrepared
    history : tuple of IterationFinished
    view_embeddings : dict of str to (n, c)
        F_v = Z_vᵀP_v given the final graph (MSCAN: C_v, (n, r_v)).
    view_contributions : dict of str to float
        Information of each view on the final partition, by the reference graphs of the view, as a
        share of the sum over views; 0 for excluded views.
    encoders : dict of str to callable
        Maps from rows of a view, also new ones, to its ridge embedding, for the views that are not
        excluded; empty if the solver has no out-of-sample form.
    counted : NClustersSelected or None
        Selection of the number of clusters; None if the user set it.
    agreed : tuple of ViewSettingsSelected
        Selection of scale and α of each view; empty if the user set them.
    learned : RefinementFinished or None
        Record of the refinement; None if there was none.
    chosen : int
        Position in `settings` of the selected one; −1 if none was tried.
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
    """Return nonnegative scores as shares of their sum, or equal shares if the sum is only rounding error.

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
