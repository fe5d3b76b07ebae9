"""Small records that tasks send to the driver and the driver sends to its observers."""

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

GraphKind = Literal["distances", "distances and views"]
"""What the first graph is made of: the views' mean distance, or that and each view's own."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ViewPrepared:
    """What preparing one view found.

    Attributes
    ----------
    view : str
    n_features, rank : int
        Columns of the view and directions kept of its basis.
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
    """How one view is prepared, and why.

    Attributes
    ----------
    view : str
    scale : str
    alpha : float
    agreement : float
        Mean share of a sample's neighbours in this view that are neighbours in another view
        too, less what chance gives.
    ahead : float
        Of the usual preparation, in standard errors; 0 where the usual one was kept.
    is_informative : bool
        Whether other views have its neighbours by more than chance; True in records of versions
        that did not ask.
    """

    view: str
    scale: Scale
    alpha: float
    agreement: float
    ahead: float
    is_informative: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ViewIteration:
    """One view's sub-solve in one outer iteration.

    Attributes
    ----------
    view : str
    primal_residual, dual_residual : float
        ‖W − F‖_F and the change ‖ΔF‖_F at the last inner iteration of the ADMM, both divided by
        √c (MSCAN: relative residual of the linear solves, and 0; linear discriminants, which have a
        closed form: 0 and 0).
    inner_iterations : int
    converged : bool
    objective : float
        Value of the view's terms of Eq. (11), with metric ridge; for linear discriminants minus
        the sum of their shares of variance between clusters.
    seconds : float
    """

    view: str
    primal_residual: float
    dual_residual: float
    inner_iterations: int
    converged: bool
    objective: float
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class IterationFinished:
    """One outer iteration as the driver saw it.

    Attributes
    ----------
    iteration : int
        From 0.
    graph_weight : float
        λ used for the A-step that was accepted.
    n_connected_components : int
        Of the consensus graph after the A-step.
    n_clusters : int
        Asked for.
    score : float
        Cross-view information (nats) of the cut of the graph this iteration started from.
    eigengap : float
        λ_{c+1} − λ_c of the Laplacian this iteration started from.
    spectrum_converged : bool
        Whether its eigenvectors reached their tolerance.
    views : tuple of ViewIteration
    view_scores : tuple of float
        Each view's information on that cut, from its own reference graphs.
    seconds : float
    accepted : bool
        Whether the partition took the place of the best one before.
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
    """One setting tried before the path.

    Attributes
    ----------
    scale : str
        "by view" where the views differ; see `view_settings`.
    alpha : float or None
        None where the views differ.
    n_neighbors : int
        k used.
    n_connected_components : int
        Of the first graph.
    score : float
        Cross-view information (nats) of the best cut of that graph.
    initial_graph : {"distances", "distances and views"}
        Neighbours by the views' mean distance, or by that and in each view.
    view_settings : tuple of (str, str, float)
        View, scale and alpha where the views differ; empty in records of versions that did not say.
    exclude_views : tuple of str
        Views that did not count. The score is of the others, unless the setting lost to that with
        all views.
    """

    scale: str
    alpha: float | None
    n_neighbors: int
    n_connected_components: int
    score: float
    initial_graph: GraphKind = "distances"
    view_settings: tuple[tuple[str, Scale, float], ...] = ()
    exclude_views: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SettingsSelected:
    """Sent once, when the setting of the path is known.

    Attributes
    ----------
    settings : tuple of CandidateSettings
        In the order tried; one when nothing was left to choose.
    chosen : int
        Position of the one taken.
    seconds : float
    view_settings : tuple of ViewSettingsSelected
        Of the setting taken, one per view, where they were chosen view by view; else empty.
    """

    settings: tuple[CandidateSettings, ...]
    chosen: int
    seconds: float
    view_settings: tuple[ViewSettingsSelected, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RefinementFinished:
    """Sent once, after the last outer iteration, when partitions by learned distances were tried.

    Attributes
    ----------
    scores : tuple of float
        Cross-view information (nats) of the partition of each round.
    taken : int
        How many of them took the place of the partition before: the first ones.
    seconds : float
    """

    scores: tuple[float, ...]
    taken: int
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class NClustersSelected:
    """Sent once, after `FitStarted`, when the number of clusters was chosen without labels.

    Attributes
    ----------
    counts : tuple of int
        Numbers of clusters looked at; the curves have one value for each.
    eigengap : tuple of float
        (λ_{c+1} − λ_c) / λ_{c+1} of the Laplacian of the graph of the data distances.
    modularity : tuple of float
        Mean over views of the modularity of the cut into c clusters, on that of the view's neutral
        graphs where it is highest.
    adjusted_modularity : tuple of float
        The same times the share of the cut's entropy that neighbours in all views together tell.
    information : tuple of float
        Cross-view information of the same cut, in nats; it grows with c.
    stability : tuple of float
        Adjusted Rand index of the cuts of two graphs, each with a random half of the edges.
    n_clusters : int
        The one taken.
    seconds : float
    """

    counts: tuple[int, ...]
    eigengap: tuple[float, ...]
    modularity: tuple[float, ...]
    adjusted_modularity: tuple[float, ...]
    information: tuple[float, ...]
    stability: tuple[float, ...]
    n_clusters: int
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class FitStarted:
    """Sent once, before the first outer iteration."""

    n_samples: int
    n_clusters: int
    max_iter: int
    views: tuple[ViewPrepared, ...]
    executor: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class FitFinished:
    """Sent once, after the labels are known.

    Attributes
    ----------
    status : str
    n_connected_components : int
        Of the graph that is returned.
    n_iterations : int
        Outer iterations.
    seconds : float
        Since the fit began.
    score : float or None
        Cross-view information (nats) of the labels that are returned; None in events of versions
        that did not send it.
    view_contributions : dict of str to float
        Each view's share of that information; empty in events of versions that did not send it.
    """

    status: str
    n_connected_components: int
    n_iterations: int
    seconds: float
    score: float | None = None
    view_contributions: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class FitFailed:
    """Sent once instead of `FitFinished`, before the error reaches the caller.

    Attributes
    ----------
    error : str
        Name of its type.
    message : str
    seconds : float
        Since the fit began.
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
"""What an observer of a fit is called with, in this order."""
