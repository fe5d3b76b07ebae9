"""Events of a fit: records that the driver sends to its observers."""

from __future__ import annotations

import dataclasses
from typing import Literal

from mscam_dask.types.parameters import Scale

__all__ = [
    "CandidateSettings",
    "FitEvent",
    "FitFailed",
    "FitFinished",
    "FitStarted",
    "GraphKind",
    "IterationFinished",
    "NClustersSelected",
    "RefinementFinished",
    "SettingsSelected",
    "ViewIteration",
    "ViewPrepared",
    "ViewSettingsSelected",
]

GraphKind = Literal["mean", "mixed"]
"""Kind of an initial graph: neighbors by the mean distance over views, or these and those in each view."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ViewPrepared:
    """Shape and rank of one view after its SVD.

    Attributes
    ----------
    view : str
    n_features, rank : int
        Columns of the view, and directions kept in its basis.
    effective_rank : float
        (Σs²)² / Σs⁴ of the scaled view.
    seconds : float
    n_bytes : int
        Bytes of the basis held for the fit.
    """

    view: str
    n_features: int
    rank: int
    effective_rank: float
    seconds: float
    n_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ViewSettingsSelected:
    """Selected settings of one view.

    Attributes
    ----------
    view : str
    scale : str
    alpha : float
    agreement : float
        Neighbor overlap: mean share of a sample's neighbors in this view that are also neighbors
        in another view, minus the share expected by chance.
    ahead : float
        Improvement over the default settings, in standard errors; 0 if the default was kept.
    overlap : float
        Neighbor overlap in standard errors of independent views: the larger one of the nearest
        neighbors and of the nearest tenth of the samples.
    is_informative : bool
        Whether the neighbor overlap is more than chance.
    """

    view: str
    scale: Scale
    alpha: float
    agreement: float
    ahead: float
    overlap: float
    is_informative: bool


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ViewIteration:
    """ADMM of one view in one outer iteration.

    Attributes
    ----------
    view : str
    primal_residual, dual_residual : float
        ‖W − F‖_F and the change ‖ΔF‖_F at the last inner iteration of the ADMM, both divided by
        √c; 0 for MSCAN and linear discriminants, which have closed forms.
    inner_iterations : int
    converged : bool
    objective : float
        Value of the view's terms of Eq. (11), with metric ridge; for linear discriminants minus
        the sum of their shares of variance between clusters.
    seconds : float
    """

    view: str
    primal_residual: float = 0.0
    dual_residual: float = 0.0
    inner_iterations: int = 0
    converged: bool = True
    objective: float
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class IterationFinished:
    """Record of one outer iteration.

    Attributes
    ----------
    iteration : int
        Number of the iteration, from 0.
    graph_weight : float
        λ used for the A-step that was accepted.
    n_connected_components : int
        Connected components of the consensus graph after the A-step.
    n_clusters : int
        Requested number of clusters.
    score : float
        Cross-view information (nats) of the spectral cut of the graph at the start of the iteration.
    eigengap : float
        λ_{c+1} − λ_c of the Laplacian at the start of the iteration.
    spectrum_converged : bool
        Whether the eigensolver reached its tolerance.
    views : tuple of ViewIteration
    view_scores : tuple of float
        Information of each view on that spectral cut, by the reference graphs of the view.
    seconds : float
    accepted : bool
        Whether the partition replaced the best one so far.
    """

    iteration: int
    graph_weight: float
    n_connected_components: int
    n_clusters: int
    score: float
    eigengap: float
    views: tuple[ViewIteration, ...]
    view_scores: tuple[float, ...]
    seconds: float
    spectrum_converged: bool
    accepted: bool


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CandidateSettings:
    """One candidate setting that was tried before the outer iterations.

    Attributes
    ----------
    scale : str
        "by view" where the views differ; see `view_settings`.
    alpha : float or None
        None where the views differ.
    n_neighbors : int
        Number of neighbors k in the initial graph.
    n_connected_components : int
        Connected components of the initial graph.
    score : float
        Cross-view information (nats) of the best spectral cut of that graph.
    initial_graph : {"mean", "mixed"}
        Neighbors by the mean distance over views, or these and those in each view.
    view_settings : tuple of (str, str, float)
        View, scale and alpha where the views differ; otherwise empty.
    exclude_views : tuple of str
        Excluded views. The score uses the other views only, unless the setting lost to the one with
        all views.
    """

    scale: str
    alpha: float | None
    n_neighbors: int
    n_connected_components: int
    score: float
    initial_graph: GraphKind = "mean"
    view_settings: tuple[tuple[str, Scale, float], ...] = ()
    exclude_views: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SettingsSelected:
    """Event sent once, after the settings of the outer iterations are selected.

    Attributes
    ----------
    settings : tuple of CandidateSettings
        Settings in the order in which they were tried; only one if there was no choice.
    chosen : int
        Position of the selected setting.
    max_iter : int
        Maximum number of outer iterations with this setting, by ADMM and of the refinement.
    seconds : float
    view_settings : tuple of ViewSettingsSelected
        Selected settings of each view if they were selected view by view; otherwise empty.
    """

    settings: tuple[CandidateSettings, ...]
    chosen: int
    max_iter: int
    seconds: float
    view_settings: tuple[ViewSettingsSelected, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RefinementFinished:
    """Event sent once, after the last outer iteration, if the fit has a refinement.

    Attributes
    ----------
    scores : tuple of float
        Cross-view information (nats) of the partition of each refinement iteration.
    taken : int
        Number of accepted partitions, which are the first ones.
    seconds : float
    """

    scores: tuple[float, ...]
    taken: int
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class NClustersSelected:
    """Event sent once, after `FitStarted`, if the number of clusters is selected without labels.

    Attributes
    ----------
    counts : tuple of int
        Candidate numbers of clusters; each curve has one value for each of them.
    p_values : tuple of float
        Largest p-value of the borders between c clusters, the least of some partitions; above the
        level, that of the first border that does not hold.
    n_clusters : int
        Selected number of clusters: the largest whose borders all hold, or 1 if there is none or the views
        do not agree.
    views_agree : bool
        Whether two views share more neighbors of the samples of a cluster than by chance.
    seconds : float
    """

    counts: tuple[int, ...]
    p_values: tuple[float, ...]
    n_clusters: int
    seconds: float
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
    """Event sent once, at the end of a fit.

    Attributes
    ----------
    status : str
    n_connected_components : int
        Connected components of the returned graph.
    n_iterations : int
        Number of outer iterations.
    seconds : float
        Seconds since the start of the fit.
    score : float
        Cross-view information (nats) of the returned labels.
    view_contributions : dict of str to float
        Share of each view in that information.
    structure : str or None
        Name of a `mscam_dask.types.result.Structure`; None where nothing was assessed.
    assessment : str
        Sentence with the reason and the clusters that are not separated; empty if nothing was assessed.
    """

    status: str
    n_connected_components: int
    n_iterations: int
    seconds: float
    score: float
    view_contributions: dict[str, float]
    structure: str | None = None
    assessment: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class FitFailed:
    """Event sent instead of `FitFinished` if a fit fails, before the error reaches the caller.

    Attributes
    ----------
    error : str
        Name of the type of the error.
    message : str
    seconds : float
        Seconds since the start of the fit.
    """

    error: str
    message: str
    seconds: float


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
