"""Options of the reference algorithms: corrections of the published slips, and numbers."""

from __future__ import annotations

import dataclasses
from typing import Literal

from mscam_dask.errors import ConfigurationError
from mscam_dask.types.parameters import AdmmSettings

__all__ = ["ReferenceCorrections", "ReferenceOptions"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ReferenceCorrections:
    """Switches for the published slips; the defaults correct all of them.

    docs/departures-from-the-paper.md lists the slips under the same numbers.

    Attributes
    ----------
    z_ridge : {"corrected", "printed"}
        Slip 1. The ridge term of the Z-step: αI, the derivative of Eq. (15), or λI as Eq. (16)
        prints it.
    keep_metric_split : bool
        Slip 2. Keep the splitting variable M = P: a proximal term ‖P − P_before‖² μ/2 in the
        P-step, which is its only effect.
    keep_second_multiplier : bool
        Slip 2. Keep the multiplier Y⁽²⁾ of M = P, which is always zero; requires the split.
    w_update : {"stiefel", "printed"}
        Slip 3. Solve the W-step on the Stiefel manifold, or take the closed form of Eq. (22).
    identity_weight : float
        Slip 4. Weight ≥ 0 of the data distances in the A-step, M_v = wI + P_v P_vᵀ; 0 as
        printed.
    metric_ridge : float
        Slip 4. τ ≥ 0 of τ‖P_v‖² in the P-step; 0 as printed.
    rank_control : bool
        Slip 5. Control λ until there are exactly c components. For MSCAM it requires a positive
        `identity_weight`, without which the A-step does not depend on λ.

    Raises
    ------
    ConfigurationError
        A number is negative, or a switch is set without the one it requires.
    """

    z_ridge: Literal["corrected", "printed"] = "corrected"
    keep_metric_split: bool = False
    keep_second_multiplier: bool = False
    w_update: Literal["stiefel", "printed"] = "stiefel"
    identity_weight: float = 1.0
    metric_ridge: float = 1.0
    rank_control: bool = True

    def __post_init__(self) -> None:
        for name in ("identity_weight", "metric_ridge"):
            if not getattr(self, name) >= 0:
                raise ConfigurationError(
                    f"{name}={getattr(self, name)!r} is not usable: allowed is a number >= 0 "
                    "(0 as printed)."
                )
        if self.keep_second_multiplier and not self.keep_metric_split:
            raise ConfigurationError(
                "keep_second_multiplier=True without keep_metric_split: Y2 belongs to the "
                "constraint M = P. Keep both or neither."
            )
        if self.rank_control and self.identity_weight == 0:
            raise ConfigurationError(
                "rank_control=True with identity_weight=0: the printed A-step does not depend on "
                "the graph weight. Set identity_weight > 0, or rank_control=False."
            )

    @classmethod
    def printed(cls) -> ReferenceCorrections:
        """Switches for the algorithms exactly as published, with all slips."""
        return cls(
            z_ridge="printed",
            keep_metric_split=True,
            keep_second_multiplier=True,
            w_update="printed",
            identity_weight=0.0,
            metric_ridge=0.0,
            rank_control=False,
        )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ReferenceOptions:
    """Options of Algorithms 1 and 2.

    Attributes
    ----------
    n_clusters, n_neighbors : int
        c and k.
    alpha, graph_weight : float
        α > 0 and the first λ > 0.
    view_alphas : tuple of float, optional
        α of each view if they differ; overrides `alpha`.
    graph_weight_growth : float
        Factor > 1 of the rank control.
    max_iter : int
        Most A-steps.
    tol : float
        Stop when the graph changes by less than this, as a share of ‖A‖_F.
    stiefel_iterations : int
        Most descent steps of one W-step.
    admm : AdmmSettings
        Penalty μ, growth ρ and stopping rule of the ADMM of a view.
    corrections : ReferenceCorrections
    """

    n_clusters: int
    n_neighbors: int = 9
    alpha: float = 1.0
    view_alphas: tuple[float, ...] | None = None
    graph_weight: float = 0.1
    graph_weight_growth: float = 1.3
    max_iter: int = 30
    tol: float = 1e-6
    stiefel_iterations: int = 5
    admm: AdmmSettings = dataclasses.field(default_factory=AdmmSettings)
    corrections: ReferenceCorrections = ReferenceCorrections()

    def __post_init__(self) -> None:
        for name in ("n_clusters", "n_neighbors", "max_iter", "stiefel_iterations"):
            if getattr(self, name) < 1:
                raise ConfigurationError(
                    f"{name}={getattr(self, name)!r} is not usable: allowed is a whole number >= 1."
                )
        for name in ("alpha", "graph_weight"):
            if not getattr(self, name) > 0:
                raise ConfigurationError(
                    f"{name}={getattr(self, name)!r} is not usable: allowed is a number > 0."
                )
        if self.view_alphas is not None and not all(alpha > 0 for alpha in self.view_alphas):
            raise ConfigurationError(
                f"view_alphas={self.view_alphas!r} is not usable: allowed are numbers > 0."
            )
        if not self.graph_weight_growth > 1:
            raise ConfigurationError(
                f"graph_weight_growth={self.graph_weight_growth!r} is not usable: allowed is a "
                "number > 1."
            )

    def of_views(self, n_views: int) -> tuple[ReferenceOptions, ...]:
        """Options of each view.

        Raises
        ------
        ConfigurationError
            `view_alphas` has another length than `n_views`.
        """
        if self.view_alphas is None:
            return (self,) * n_views
        if len(self.view_alphas) != n_views:
            raise ConfigurationError(
                f"view_alphas has {len(self.view_alphas)} values for {n_views} view(s); allowed is "
                "one for each of them."
            )
        return tuple(
            dataclasses.replace(self, alpha=alpha, view_alphas=None) for alpha in self.view_alphas
        )
