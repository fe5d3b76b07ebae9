"""Parameters of a fit, validated once."""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta

from mscam_dask.types.allowed import (
    Count,
    NotNegative,
    Positive,
    WholeNumber,
    allowed_values,
    check_fields,
    check_value,
)
from mscam_dask.types.rules import CONSTANTS, RULES, SIZES

Scale = Literal["standard", "unit", "log", "minmax", "none"]
Model = Literal["mscam", "mscan"]

ImputeMethod = Literal["mean", "median", "knn"]
"""Imputation of missing cells: mean or median of the column, or mean of the five nearest rows that have the cell."""

IMPUTE_METHODS: tuple[ImputeMethod, ...] = get_args(ImputeMethod)


InUnits = Annotated[float, Meta(ge=1e-6, le=1e6)]
"""A parameter in units of the data: outside this range, products with λ, s² and 1/μ lose all digits."""

_ZERO_OR_IN_UNITS = f"0, or {allowed_values(InUnits)}"

GraphWeight = Annotated[float, Meta(ge=1e-30, le=1e30)]
"""λ grows during a fit, and the next fit may start with the last λ of the previous one."""


@dataclasses.dataclass(frozen=True, slots=True)
class ViewSettings:
    """Scale and α of one view, with α in units of its mean squared singular value."""

    scale: Scale
    alpha: InUnits

    def __post_init__(self) -> None:
        check_fields(self)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class AdmmSettings:
    """Settings of the ADMM of a view.

    Attributes
    ----------
    penalty : float
        First value of μ, in units of the view's mean squared singular value.
    penalty_growth : float
        Factor ρ ≥ 1 on μ after each inner iteration.
    max_iterations : int
        Maximum number of inner iterations per outer iteration.
    tolerance : float
        Stop when ‖W − F‖_F ≤ tolerance · √c (primal) and the change of F is as small (dual).
    """

    penalty: Positive = 10.0
    penalty_growth: Annotated[float, Meta(ge=1, le=sys.float_info.max)] = 1.2
    max_iterations: Count = 40
    tolerance: Positive = 1e-3

    def __post_init__(self) -> None:
        check_fields(self)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Constants:
    """Constants of the method, in which the parameters of the estimators hold what depends on the data.

    Parameters
    ----------
    graph_weight : float, default=0.1
        Initial graph weight λ, from 1e-30 to 1e30. It is raised or lowered during the fit.
    graph_weight_growth : float, default=1.3
        Factor on λ while the graph has fewer components than clusters; above 1.
    identity_weight : float, default=1.0
        Weight w of the identity in the learned metric M = wI + PPᵀ, which is the weight of the
        distances in the data, from 1e-6 to 1e6. MSCAN has no metric.
    metric_ridge : float, default=1.0
        Ridge τ on the metric factor P: 0, or from 1e-6 to 1e6. MSCAN has no metric.
    score_tie : float, default=0.001
        Relative difference up to which two partition scores count as equal; then the earlier and
        simpler partition is kept. 0 or more.
    patience : int, default=6
        Outer iterations without a better partition before the fit stops; 1 or more.
    min_shrinkage : float, default=0.1
        Directions of a view with a smaller factor s²/(s² + α) take no part in metric learning
        and, in MSCAN, in the smoothing; at least 0, below 1.
    admm : AdmmSettings
        Penalty μ (10), its growth ρ (1.2), maximum number of iterations (40) and tolerance (0.001)
        of the ADMM of each view: `mscam_dask.types.parameters.AdmmSettings`.
    auto_settings : bool, default=True
        Whether `scale`, `alpha` and `n_neighbors` that are None are selected without labels.
        True: each view gets the scale and α whose nearest neighbors overlap most with those of the
        other views, and `n_neighbors` is 20. With one view, a few settings are initialized, and the one
        with the best partition score is used. The initial graph may be mixed with the neighbor graphs
        of the single views, and the last outer iterations learn the metrics from the best partition
        (the refinement); this holds for 2 to 16 views and samples × (views + 1) up to 2¹⁹, unless the
        partition score is nearly perfect. False: "standard", 1 and 9, the graph of the mean distance,
        and a graph weight that grows until the graph has c components, as in the paper.

    Raises
    ------
    ConfigurationError
        If a value is outside its range; the message names it.
    """

    graph_weight: GraphWeight = 0.1
    graph_weight_growth: Annotated[float, Meta(gt=1, le=sys.float_info.max)] = 1.3
    identity_weight: InUnits = 1.0
    metric_ridge: Annotated[float, Meta(ge=0, le=1e6, title=_ZERO_OR_IN_UNITS)] = 1.0
    score_tie: NotNegative = 1e-3
    patience: Count = 6
    min_shrinkage: Annotated[float, Meta(ge=0, lt=1)] = 0.1
    admm: Annotated[AdmmSettings, Meta(title="a table (`AdmmSettings`)")] = AdmmSettings()
    auto_settings: bool = True

    def __post_init__(self) -> None:
        check_fields(self)
        if self.metric_ridge:
            of_units = Annotated[InUnits, Meta(title=_ZERO_OR_IN_UNITS)]
            check_value("metric_ridge", self.metric_ridge, of_units)

    @classmethod
    def paper(cls, **changes: Any) -> Constants:
        """Return the constants of the path of the paper: those with ``auto_settings=False``.

        Parameters
        ----------
        **changes
            Other constants.
        """
        return cls(auto_settings=False, **changes)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Parameters:
    """Parameters of a fit, without the data and the executor."""

    n_clusters: Count  # c, also the number of connected components of the returned graph
    model: Model = "mscam"
    n_neighbors: Count = 9  # k
    alpha: InUnits = 1.0  # in units of the mean squared singular value of the view
    scale: Scale = "standard"
    view_settings: tuple[ViewSettings, ...] | None = None  # of each view, in place of scale and α
    exclude_views: tuple[int, ...] = ()  # positions
    max_iter: Count | None = None  # outer iterations, those of the refinement included
    constants: Constants = Constants()  # for the engine, `Choices` say what is selected
    # Candidate neighbors; None for max(50, 4k), or fewer of large data.
    n_candidates: int | None = None
    exact_samples: Count = SIZES.exact_samples  # the most for which every search is exhaustive
    seed: WholeNumber = 0

    def __post_init__(self) -> None:
        check_fields(self)

    def refined_limit(self) -> int:
        """Maximum number of outer iterations of a fit with a refinement."""
        most = 2 * RULES.max_iterations
        return min(self.max_iter or most, most)

    def settings_of_view(self, view: int) -> ViewSettings:
        """Scale and α of the view at this position."""
        if self.view_settings is None:
            return ViewSettings(self.scale, self.alpha)
        return self.view_settings[view]

    def scales(self, n_views: int) -> tuple[Scale, ...]:
        """Scale of each of `n_views` views."""
        return tuple(self.settings_of_view(view).scale for view in range(n_views))

    def candidates(self, n_samples: int) -> int:
        """Number of candidate neighbors of each sample for a data set of `n_samples`."""
        usual = max(50, 4 * self.n_neighbors)
        if self.is_large(n_samples):
            usual = max(30, 2 * self.n_neighbors + 2)
        return min(self.n_candidates or usual, n_samples - 1)

    def is_large(self, n_samples: int) -> bool:
        """True if a data set of `n_samples` is too large for exhaustive search."""
        return n_samples > self.exact_samples

    def n_pairs(self, n_samples: int) -> int:
        """Number of bottom eigenpairs of a consensus graph: 2c, and 20 or a tenth of the samples if more."""
        fewest = 0 if self.is_large(n_samples) else min(CONSTANTS.min_pairs, n_samples // 10)
        return min(max(2 * self.n_clusters, fewest), n_samples)


@dataclasses.dataclass(frozen=True, slots=True)
class Choices:
    """Selections of a fit other than the candidate settings."""

    view_settings: tuple[ViewSettings, ...] = ()  # candidates for every view
    n_clusters: bool = False  # whether it is selected, up to that of the settings
    initial_graph: bool = False  # whether a mixed graph and a refinement are tried
    may_exclude_views: bool = False  # whether uninformative views are; needs `view_settings`
