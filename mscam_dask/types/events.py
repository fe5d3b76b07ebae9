"""Events of a fit: records that the driver sends to its observers."""

from __future__ import annotations

import dataclasses
from typing import Literal

from mscam_dask.types.parameters import Scale

GraphKind = Literal["mean", "mixed"]
"""Kind of an initial graph: neighbors by the mean distance over views, or these and those in each view."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ViewPrepared:
    """Shape and rank of one view after its SVD."""

    view: str
    n_features: int  #: Columns of the view.
    rank: int  #: Directions kept in its basis.
    effective_rank: float  #: (Σs²)² / Σs⁴ of the scaled view.
    seconds: float
    n_bytes: int  #: Bytes of the basis held for the fit.


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ViewSettingsSelected:
    """Selected settings of one view."""

    view: str
    scale: Scale
    alpha: float
    #: Neighbor overlap: mean share of a sample's neighbors in this view that are also neighbors
    #: in another view, minus the share expected by chance.
    agreement: float
    #: Improvement over the default settings, in standard errors; 0 if the default was kept.
    ahead: float
    #: Neighbor overlap in standard errors of independent views: the larger one of the nearest
    #: neighbors and of as many as a cluster has on average.
    overlap: float
    is_informative: bool  #: Whether the neighbor overlap is more than chance.


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ViewIteration:
    """ADMM of one view in one outer iteration."""

    view: str
    #: ‖W − F‖_F / √c at the last inner iteration of the ADMM; 0 for MSCAN and linear
    #: discriminants, which have closed forms.
    primal_residual: float = 0.0
    dual_residual: float = 0.0  #: ‖ΔF‖_F / √c, of the change in that iteration.
    inner_iterations: int = 0
    converged: bool = True
    #: Value of the view's terms of Eq. (11), with metric ridge; for linear discriminants minus
    #: the sum of their shares of variance between clusters.
    objective: float
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class IterationFinished:
    """Record of one outer iteration."""

    iteration: int  #: Number of the iteration, from 0.
    graph_weight: float  #: λ of the accepted A-step by ADMM; without effect in the refinement.
    n_connected_components: int  #: Connected components of the consensus graph after the A-step.
    n_clusters: int  #: Requested number of clusters.
    #: Cross-view information (nats) of the spectral cut of the graph at the start of the
    #: iteration.
    score: float
    eigengap: float  #: λ_{c+1} − λ_c of the Laplacian at the start of the iteration.
    views: tuple[ViewIteration, ...]
    #: Information of each view on that spectral cut, by the reference graphs of the view.
    view_scores: tuple[float, ...]
    seconds: float
    spectrum_converged: bool  #: Whether the eigensolver reached its tolerance.
    accepted: bool  #: Whether the partition replaced the best one so far.


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CandidateSettings:
    """One candidate setting that was tried before the outer iterations."""

    scale: str  #: "by view" where the views differ; see `view_settings`.
    alpha: float | None  #: None where the views differ.
    n_neighbors: int  #: Number of neighbors k in the initial graph.
    n_connected_components: int  #: Connected components of the initial graph.
    score: float  #: Cross-view information (nats) of the best spectral cut of that graph.
    #: Neighbors by the mean distance over views, or these and those in each view.
    initial_graph: GraphKind = "mean"
    #: View, scale and alpha where the views differ; otherwise empty.
    view_settings: tuple[tuple[str, Scale, float], ...] = ()
    #: Excluded views. The score uses the other views only, unless the setting lost to the one
    #: with all views.
    exclude_views: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SettingsSelected:
    """Event sent once, after the settings of the outer iterations are selected; the defaults say that none were tried."""

    #: Settings in the order in which they were tried; only one if there was no choice.
    settings: tuple[CandidateSettings, ...] = ()
    chosen: int = -1  #: Position of the selected setting.
    #: Maximum number of outer iterations with this setting, by ADMM and of the refinement; None if only the
    #: patience ends them.
    max_iter: int | None = 0
    seconds: float = 0.0
    #: Selected settings of each view if they were selected view by view; otherwise empty.
    view_settings: tuple[ViewSettingsSelected, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RefinementFinished:
    """Event sent once, after the last outer iteration, if the fit has a refinement."""

    #: Cross-view information (nats) of the partition of each refinement iteration.
    scores: tuple[float, ...]
    taken: int  #: Number of accepted partitions, which are the first ones.
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class NClustersSelected:
    """Event sent once, after `FitStarted`, if the number of clusters is selected without labels."""

    #: Candidate numbers of clusters; each curve has one value for each of them.
    counts: tuple[int, ...]
    #: Largest p-value of the borders between c clusters, the least of some partitions; above
    #: the level, that of the first border that does not hold.
    p_values: tuple[float, ...]
    #: Selected number of clusters: the largest whose borders all hold, or 1 if there is none or
    #: the views do not agree.
    n_clusters: int
    seconds: float
    #: Whether some cluster has discriminants that are correlated between views more than by chance.
    views_agree: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class FitStarted:
    """Event sent once, before the first outer iteration."""

    n_samples: int
    n_clusters: int
    views: tuple[ViewPrepared, ...]
    executor: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class FitFinished:
    """Event sent once, at the end of a fit."""

    status: str
    n_connected_components: int  #: Connected components of the returned graph.
    n_iterations: int  #: Number of outer iterations.
    seconds: float  #: Seconds since the start of the fit.
    score: float  #: Cross-view information (nats) of the returned labels.
    view_contributions: dict[str, float]  #: Share of each view in that information.
    #: Name of a `mscam_dask.types.result.Structure`; None where nothing was assessed.
    structure: str | None = None
    #: Sentence with the reason and the clusters that are not separated; empty if nothing was
    #: assessed.
    assessment: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class FitFailed:
    """Event sent instead of `FitFinished` if a fit fails, before the error reaches the caller."""

    error: str  #: Name of the type of the error.
    message: str
    seconds: float  #: Seconds since the start of the fit.


FitEvent = (
    FitStarted
    | NClustersSelected
    | SettingsSelected
    | IterationFinished
    | RefinementFinished
    | FitFinished
    | FitFailed
)
"""Events of a fit, in the order in which observers receive them."""
