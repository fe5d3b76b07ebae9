"""Parameters of a fit, validated once, and candidate settings for those that the user has not set."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection, Mapping, Sequence
from numbers import Integral
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta

from mscam_dask.errors import ConfigurationError
from mscam_dask.types.allowed import (
    Count,
    NotNegative,
    Positive,
    WholeNumber,
    check_fields,
    check_value,
)
from mscam_dask.types.rules import CONSTANTS, RULES, SIZES

Scale = Literal["standard", "unit", "minmax", "none"]
Model = Literal["mscam", "mscan"]

ImputeMethod = Literal["mean", "median", "knn"]
"""Imputation of missing cells: mean or median of the column, or mean of the five nearest rows that have the cell."""

IMPUTE_METHODS: tuple[ImputeMethod, ...] = get_args(ImputeMethod)


InUnits = Annotated[float, Meta(ge=1e-6, le=1e6)]
"""A parameter in units of the data: outside this range, products with λ, s² and 1/μ lose all digits."""

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
        Directions of a view with a smaller factor s²/(s² + α) take no part in metric learning;
        at least 0, below 1.
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
    metric_ridge: Annotated[
        float, Meta(ge=0, le=1e6, title="0, or a number from 1e-06 to 1e+06")
    ] = 1.0
    score_tie: NotNegative = 1e-3
    patience: Count = 6
    min_shrinkage: Annotated[float, Meta(ge=0, lt=1)] = 0.1
    admm: Annotated[AdmmSettings, Meta(title="a table (`AdmmSettings`)")] = AdmmSettings()
    auto_settings: bool = True

    def __post_init__(self) -> None:
        check_fields(self)
        if self.metric_ridge:
            check_value("metric_ridge", self.metric_ridge, InUnits)

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

    def iteration_limits(self, *, refines: bool) -> tuple[int, int]:
        """Maximum number of outer iterations by ADMM, and of all, in a fit with a refinement or without."""
        if not refines:
            most = self.max_iter or RULES.max_unrefined
            return most, most
        of_each = RULES.max_iterations
        most = min(self.max_iter or 2 * of_each, 2 * of_each)
        return min(most, of_each), most

    def settings_of_view(self, view: int) -> ViewSettings:
        """Scale and α of the view at this position."""
        if self.view_settings is None:
            return ViewSettings(self.scale, self.alpha)
        return self.view_settings[view]

    def active_views(self, n_views: int) -> tuple[int, ...]:
        """Positions of the views that are not excluded, of `n_views` views."""
        return tuple(view for view in range(n_views) if view not in self.exclude_views)

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

    def patience_for(self, n_samples: int) -> int:
        """Outer iterations without a better partition before the fit stops."""
        patience = self.constants.patience
        return min(patience, SIZES.large_patience) if self.is_large(n_samples) else patience


# Candidates for scale and α of each view: docs/decisions/0014.
_SCALES: tuple[Scale, ...] = ("unit", "standard")
_ALPHAS = (10.0, 1.0, 0.1)

# Smallest number of clusters for "auto".
_MIN_CLUSTERS = 2

# Candidate settings for one view, in order (ties go to the earlier one): docs/decisions/0014.
_SETTINGS: tuple[dict[str, Any], ...] = (
    {"scale": "unit", "alpha": 10.0, "n_neighbors": CONSTANTS.n_neighbors},
    {"scale": "standard", "alpha": 10.0, "n_neighbors": CONSTANTS.n_neighbors},
    {"scale": "standard", "alpha": 1.0, "n_neighbors": 9},
)

# Settings of the paper.
_SETTINGS_OF_PAPER: tuple[dict[str, Any], ...] = (
    {"scale": "standard", "alpha": 1.0, "n_neighbors": 9},
)


@dataclasses.dataclass(frozen=True, slots=True)
class Fixed:
    """Values set by the user; None for a value that is selected."""

    scale: Any = None  # of all views, or a mapping that names every view, as that of alpha
    alpha: Any = None
    n_neighbors: int | None = None
    exclude_views: Any = None  # names

    @property
    def by_view(self) -> bool:
        """True if scale or alpha is set for each view."""
        return isinstance(self.scale, Mapping) or isinstance(self.alpha, Mapping)

    def view_settings(self, names: Sequence[str]) -> tuple[ViewSettings, ...]:
        """Settings of each view."""
        for parameter, value in (("scale", self.scale), ("alpha", self.alpha)):
            if value is None:
                raise ConfigurationError(
                    "scale and alpha by view go together: one is a mapping of views and "
                    f"{parameter} is None. Give both, or neither."
                )
            if isinstance(value, Mapping) and set(value) != set(names):
                raise ConfigurationError(
                    f"{parameter}={dict(value)!r} does not name the views {list(names)}: allowed "
                    "is one value for each of them."
                )
        return tuple(ViewSettings(_of(self.scale, name), _of(self.alpha, name)) for name in names)

    def excluded_positions(self, names: Sequence[str]) -> tuple[int, ...]:
        """Positions of the excluded views in the order of the views; empty if they are selected."""
        excluded = () if self.exclude_views is None else self.exclude_views
        if isinstance(excluded, str) or not isinstance(excluded, Collection):
            raise ConfigurationError(
                f"exclude_views={excluded!r} is a {type(excluded).__name__}; allowed is a list of names of views, or None."
            )
        unknown = [name for name in excluded if name not in names]
        if unknown:
            raise ConfigurationError(
                f"exclude_views={list(excluded)!r}: there is no view {', '.join(map(repr, unknown))}; allowed are "
                f"some of {list(names)}."
            )
        if excluded and set(excluded) == set(names):
            raise ConfigurationError(
                f"exclude_views={list(excluded)!r} names every view; allowed are all but one of {list(names)}."
            )
        return tuple(view for view, name in enumerate(names) if name in excluded)


@dataclasses.dataclass(frozen=True, slots=True)
class Choices:
    """Selections of a fit other than the candidate settings."""

    view_settings: tuple[ViewSettings, ...] = ()  # candidates for every view
    n_clusters: bool = False  # whether it is selected, up to that of the settings
    initial_graph: bool = False  # whether a mixed graph and a refinement are tried
    may_exclude_views: bool = False  # whether uninformative views are; needs `view_settings`


def view_settings_grid(fixed: Fixed, *, any_features: bool) -> tuple[ViewSettings, ...]:
    """Candidate settings of a view; empty if there is no choice. Only feature views are scaled."""
    if fixed.by_view:
        return ()
    scales = _SCALES if any_features else _SCALES[:1]
    if fixed.scale is not None:
        scales = (fixed.scale,)
    alphas = _ALPHAS if fixed.alpha is None else (fixed.alpha,)
    options = tuple(ViewSettings(scale, alpha) for scale in scales for alpha in alphas)
    return options if len(options) > 1 else ()


def settings_grid(
    fixed: Fixed,
    options: Sequence[ViewSettings],
    *,
    any_features: bool,
    choose: bool,
) -> tuple[dict[str, Any], ...]:
    """Scale, α and k of each candidate setting, in order; if views have options, scale and α are selected later."""
    tried = _SETTINGS if choose else _SETTINGS_OF_PAPER
    if options:
        first = options[0]
        tried = (
            {"scale": first.scale, "alpha": first.alpha, "n_neighbors": CONSTANTS.n_neighbors},
        )
    fixed_values: dict[str, Any] = {}
    if fixed.by_view:
        tried = tried[:1]
    else:
        fixed_values = {name: getattr(fixed, name) for name in ("scale", "alpha")}
    fixed_values["n_neighbors"] = fixed.n_neighbors
    fixed_values = {name: value for name, value in fixed_values.items() if value is not None}
    if not any_features:
        fixed_values["scale"] = tried[0]["scale"]
    settings: list[dict[str, Any]] = []
    for setting in tried:
        limited = {**setting, **fixed_values}
        if limited not in settings:
            settings.append(limited)
    return tuple(settings)


def most_neighbors(n_samples: int, n_clusters: int | None = None) -> int:
    """Upper limit of k for n samples: n − 1, and the mean size of a cluster if the number of clusters is given."""
    most = max(1, n_samples - 1)
    if n_clusters is None:
        return most
    return min(most, max(1, n_samples // n_clusters))


def most_clusters(asked: Any, n_samples: int) -> int:
    """Upper limit of the number of clusters for n samples: the given one, or n / 10, at most 30."""
    if n_samples <= _MIN_CLUSTERS:
        raise ConfigurationError(
            f"n_clusters='auto' with {n_samples} sample(s): allowed are {_MIN_CLUSTERS + 1} samples or more. "
            "Give the number of clusters."
        )
    if asked is None:
        return min(SIZES.max_clusters, max(_MIN_CLUSTERS, n_samples // 10))
    if isinstance(asked, bool) or not isinstance(asked, Integral):
        raise ConfigurationError(
            f"max_clusters={asked!r} is a {type(asked).__name__}; allowed are whole numbers from "
            f"{_MIN_CLUSTERS} to {n_samples - 1}, or None."
        )
    if not _MIN_CLUSTERS <= int(asked) < n_samples:
        raise ConfigurationError(
            f"max_clusters={asked} with {n_samples} samples; allowed are {_MIN_CLUSTERS} to {n_samples - 1}."
        )
    return int(asked)


def _of(value: Any, name: str) -> Any:
    return value[name] if isinstance(value, Mapping) else value
