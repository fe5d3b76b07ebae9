"""Spectral clustering of Ng, Jordan and Weiss with a Gaussian kernel: one view, or all side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mscam_dask.benchmark.baselines._spectral import gaussian_affinity, spectral_labels
from mscam_dask.benchmark.baselines.base import Baseline, View, require_count, require_number
from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.errors import ConfigurationError
from mscam_dask.types.parameters import Scale

__all__ = ["GaussianSpectral", "choose_view"]


class GaussianSpectral(Baseline):
    """Spectral clustering of one view (SC-BSV) or of the views side by side (SC-Concat).

    Parameters
    ----------
    n_clusters : int, default=8
    view : int, str or None, default=None
        Position or name of the one view to cluster; None: all, their columns side by side.
        "Best single view" is the best of these against the true labels, so not label-free.
    width_factor : float, default=1.0
        Width of the Gaussian over the median distance between samples.
    scale, view_type, n_features_per_view
        As for `mscam_dask.MSCAM`.
    n_init : int, default=20
        Starts of k-means.
    random_state : int, RandomState or None, default=None
    memory_limit_bytes : int, optional
        What the fit may use; None: what the machine has free.

    Attributes
    ----------
    labels_ : (n_samples,) int64

    Notes
    -----
    w_ij = exp(−‖x_i − x_j‖² / 2σ²), w_ii = 0; the c leading eigenvectors of D^-1/2 W D^-1/2, rows
    scaled to length one, k-means. O(n² d + n³) flops, four dense (n, n) arrays.

    References
    ----------
    A. Y. Ng, M. I. Jordan, Y. Weiss, "On spectral clustering: analysis and an algorithm",
    NIPS 2001.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = np.arange(90) % 3
    >>> views = [6 * rng.normal(size=(3, d))[truth] + rng.normal(size=(90, d)) for d in (5, 8)]
    >>> np.bincount(GaussianSpectral(3, view=1, random_state=0).fit_predict(views)).tolist()
    [30, 30, 30]
    """

    _title: ClassVar[str] = "Spectral clustering"
    _square_matrices: ClassVar[int] = 4

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        view: int | str | None = None,
        width_factor: float = 1.0,
        scale: Scale = "standard",
        view_type: Any = "features",
        n_features_per_view: Sequence[int] | None = None,
        n_init: int = 20,
        random_state: int | np.random.RandomState | None = None,
        memory_limit_bytes: int | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.view = view
        self.width_factor = width_factor
        self.scale = scale
        self.view_type = view_type
        self.n_features_per_view = n_features_per_view
        self.n_init = n_init
        self.random_state = random_state
        self.memory_limit_bytes = memory_limit_bytes

    def _check(self, data: MultiViewData) -> None:
        require_number("width_factor", self.width_factor)
        require_count("n_init", self.n_init)

    def _chosen(self, data: MultiViewData) -> MultiViewData:
        return choose_view(data, self.view)

    def _cluster(self, views: tuple[View, ...], rng: np.random.Generator) -> NDArray[np.int64]:
        rows = views[0] if len(views) == 1 else np.hstack(views)
        affinity = gaussian_affinity(rows, width_factor=self.width_factor)
        np.fill_diagonal(affinity, 0.0)
        return spectral_labels(affinity, self.n_clusters, n_init=self.n_init, rng=rng)


def choose_view(data: MultiViewData, view: int | str | None) -> MultiViewData:
    """The data with the one view of this name or position; all views for None.

    Raises
    ------
    ConfigurationError
        There is no such view; the message lists those there are.
    """
    if view is None:
        return data
    names = data.view_names
    if isinstance(view, Integral) and not isinstance(view, bool) and 0 <= view < len(names):
        position = int(view)
    elif isinstance(view, str) and view in names:
        position = names.index(view)
    else:
        raise ConfigurationError(
            f"view={view!r} is not one of the views: allowed are the names {list(names)} or the "
            f"positions 0 to {len(names) - 1}, or None for all side by side."
        )
    return dataclasses.replace(data, views=(data.views[position],))
