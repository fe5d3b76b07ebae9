"""Base classes of the baselines: input, checks of parameters and memory, and labels."""

from __future__ import annotations

import dataclasses
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin

from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import RowSource, row_ranges
from mscam_dask.data.views.validation import check_sizes, validate
from mscam_dask.engine.executors.base import available_memory_bytes
from mscam_dask.errors import ConfigurationError, ConvergenceWarning, MemoryPlanError
from mscam_dask.estimators._search_space import seed_of
from mscam_dask.linalg.scaling import ColumnMoments, fit_transform_from_moments
from mscam_dask.solvers.ridge_view import view_svd
from mscam_dask.solvers.row_blocks import ViewShape
from mscam_dask.solvers.spectral_cut import canonical_labels
from mscam_dask.types.allowed import Count, annotations_of, check_value
from mscam_dask.types.parameters import Scale

Array = NDArray[np.float64]
Labels = NDArray[np.integer[Any]]

_GIB = 2.0**30
# Parameters that the functions that use them check.
_CHECKED_ELSEWHERE = ("n_clusters", "view_type", "random_state")


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class Baseline(ClusterMixin, BaseEstimator, ABC):  # type: ignore[misc]  # untyped bases
    """Base class of the baselines; a subclass adds its parameters as fields, and `_cluster`.

    Every view becomes scaled feature rows first (`scaled_features`), so that all baselines take
    the same input. Ground truth never enters a fit.

    Parameters
    ----------
    n_clusters : int, default=8
    scale, view_type
        As for `mscam_dask.MSCAM`; scale is "standard" by default.
    random_state : int, RandomState or None, default=None
    memory_limit_bytes : int, optional
        Memory that the fit may use; None: the free memory of the machine.
    """

    _title: ClassVar[str] = ""  # in messages
    # Dense (n, n) float64 arrays at the peak, and those of each view.
    _square_matrices: ClassVar[int] = 0
    _square_matrices_per_view: ClassVar[int] = 0

    n_clusters: int = dataclasses.field(default=8, kw_only=False)
    scale: Scale = "standard"
    view_type: Any = "features"
    random_state: int | np.random.RandomState | None = None
    memory_limit_bytes: Count | None = None

    def fit(self, X: Any, y: object = None) -> Self:
        """Cluster the samples.

        Parameters
        ----------
        X : as for `mscam_dask.MSCAM.fit`
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        ConfigurationError
            If a parameter is out of range, or does not fit the data.
        DataError
            If the views cannot be clustered; the message names view and rows.
        MemoryPlanError
            If the arrays of the method do not fit into memory.
        """
        data = as_multi_view(X, view_type=self.view_type)
        # Checks that read no row come first.
        check_sizes(data.n_samples, n_clusters=self.n_clusters, n_neighbors=1)
        self.check_parameters(data)
        self._check_memory(data)
        rng = np.random.default_rng(seed_of(self.random_state))
        validate(data, n_clusters=self.n_clusters, n_neighbors=1)
        used = self._used_views(data).views
        labels = self._cluster(tuple(scaled_features(view, self.scale) for view in used), rng)
        self.labels_: NDArray[np.int64] = canonical_labels(np.asarray(labels, dtype=np.int64))
        return self

    @abstractmethod
    def _cluster(self, views: tuple[Array, ...], rng: np.random.Generator) -> Labels:
        """Labels (n,) from the scaled views; sets the attributes of the method."""

    def check_parameters(self, data: MultiViewData) -> None:
        """Check the parameters against their types and the views, without reading a row."""
        annotations = annotations_of(type(self))
        for name, value in self.get_params(deep=False).items():
            if name not in _CHECKED_ELSEWHERE:
                check_value(name, value, annotations[name])
        self._check(data)
        self._used_views(data)

    def _check(self, data: MultiViewData) -> None:
        """Check the method's own parameters against the views."""

    def _used_views(self, data: MultiViewData) -> MultiViewData:
        """Views that the method clusters: all of them by default."""
        return data

    def _warn(self, message: str, *, stacklevel: int = 4) -> None:
        """Warn at the call of `fit`; for `_cluster`, and with one level more for what it calls."""
        warnings.warn(f"{self._title} {message}", ConvergenceWarning, stacklevel=stacklevel)

    def _warn_not_settled(self, *, stacklevel: int = 5) -> None:
        """Warn that the last of `max_iter` iterations changed too much; for `_cluster`."""
        limits = self.get_params(deep=False)
        self._warn(
            f"stopped after max_iter={limits['max_iter']} iterations, the last of which changed the "
            f"result by more than tol={limits['tol']}. Raise max_iter or tol.",
            stacklevel=stacklevel,
        )

    def _until_settled(self) -> Iterator[list[float]]:
        """Yield the list to which each iteration adds the objective, until its change is at most a share `tol`.

        Warns after `max_iter` iterations; sets `objective_` and `n_iter_`.
        """
        limits, objective = self.get_params(deep=False), list[float]()
        for _ in range(limits["max_iter"]):
            yield objective
            change = abs(objective[-1] - objective[-2]) if len(objective) > 1 else math.inf
            if change <= limits["tol"] * abs(objective[-1]):
                break
        else:
            self._warn_not_settled(stacklevel=6)
        self.objective_, self.n_iter_ = tuple(objective), len(objective)

    def _check_memory(self, data: MultiViewData) -> None:
        limit, n = self.memory_limit_bytes or available_memory_bytes(), data.n_samples
        sources = self._used_views(data).views
        matrices = self._square_matrices + self._square_matrices_per_view * len(sources)
        # A pairwise view becomes coordinates through its kernel: three n x n arrays, one view at a time.
        is_pairwise = any(source.view_type != "features" for source in sources)
        views_bytes = 8 * n * sum(source.shape[1] for source in sources)
        need = views_bytes + 8 * n * n * max(matrices, 3 * is_pairwise)
        if need <= limit:
            return
        largest, remedy = "", "Use more memory or fewer samples"
        if matrices:
            n_fitting = math.isqrt(max(0, int((limit - views_bytes) / (8 * matrices))))
            gib = 8 * n * n * matrices / _GIB
            largest = f", {gib:.2f} GiB of it for {matrices} dense {n} x {n} arrays"
            remedy = (
                f"Use a random subset of about {n_fitting} samples, more memory, or a method that "
                "is linear in n: lmvsc, smvsc or MSCAM"
            )
        raise MemoryPlanError(
            f"{self._title} on {n} samples needs about {need / _GIB:.2f} GiB ({need} bytes){largest}; "
            f"the limit is {limit / _GIB:.2f} GiB ({limit} bytes). {remedy}."
        )


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class SingleViewBaseline(Baseline):
    """Base class of the methods for one table: one view, or the columns of all views concatenated.

    Parameters
    ----------
    view : int, str or None, default=None
        Position or name of the one view to cluster; None: all views, their columns concatenated.
        The *best* single view can only be chosen with labels.
    n_clusters, scale, view_type, random_state, memory_limit_bytes
        See `Baseline`.
    """

    view: int | str | None = None

    def _used_views(self, data: MultiViewData) -> MultiViewData:
        if self.view is None:
            return data
        chosen = [each for each in enumerate(data.view_names) if self.view in each]
        if not chosen:
            raise ConfigurationError(
                f"view={self.view!r} is not a view of the data: allowed are the names "
                f"{list(data.view_names)}, the positions 0 to {len(data.views) - 1}, or None for all "
                "views concatenated."
            )
        return dataclasses.replace(data, views=(data.views[chosen[0][0]],))


def scaled_features(source: RowSource, scale: Scale) -> Array:
    """Rows (n, r) of one view, of any view type, in the space of its Euclidean distances.

    The scaled columns of a feature view, r = d; read twice by blocks of rows. Of distance and kernel
    views the coordinates Q S that MSCAM uses, of the centered kernel, that of distances D
    exp(-D / mean D), whose squared Euclidean distances grow with D.
    """
    n_samples, n_columns = source.shape
    if source.view_type != "features":
        shape = ViewShape(n_samples, n_columns, source.view_type)
        basis = view_svd(source.read, shape, scale=scale, name=source.name).basis
        return np.asarray(basis.vectors * np.sqrt(basis.singular_values_squared))
    moments: ColumnMoments | None = None
    for start, stop in row_ranges(source):
        block = ColumnMoments.from_rows(source.read(start, stop))
        moments = block if moments is None else moments.merge(block)
    assert moments is not None, "a view without rows passed validation"
    transform = fit_transform_from_moments(scale, moments)
    rows = np.empty((n_samples, n_columns))
    for start, stop in row_ranges(source):
        rows[start:stop] = transform.apply(source.read(start, stop))
    return rows


def check_most(name: str, value: int, most: int, data: str) -> None:
    """Refuse a parameter that is too large for the data, such as "30 samples"."""
    if value > most:
        raise ConfigurationError(
            f"{name}={value!r} is too large for {data}: allowed is at most {most}. Give a smaller "
            f"{name}."
        )
