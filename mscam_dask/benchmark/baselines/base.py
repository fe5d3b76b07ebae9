"""What the comparison methods share: taking views in, refusing what cannot work, showing labels."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin

from mscam_dask.benchmark.baselines._views import scaled_features
from mscam_dask.data.sparse import is_sparse
from mscam_dask.data.views.as_multi_view import MultiViewData, as_multi_view
from mscam_dask.data.views.validation import check_sizes, validate
from mscam_dask.engine.executors.local import available_memory_bytes
from mscam_dask.errors import ConfigurationError, MemoryPlanError
from mscam_dask.estimators._random_state import seed_of
from mscam_dask.solvers.spectral_cut import canonical_labels
from mscam_dask.types.parameters import Scale

__all__ = ["Baseline", "View", "require_choice", "require_count", "require_number"]

View = NDArray[np.float64]
"""Scaled rows of one view, (n_samples, d_v)."""

_GIB = 2.0**30


class Baseline(ClusterMixin, BaseEstimator, ABC):  # type: ignore[misc]  # untyped bases
    """Base of the comparison methods; a method gives its parameters and `_cluster`.

    Every method turns its views into scaled feature rows first (see
    `mscam_dask.benchmark.baselines._views`), so one input serves all of them. Labels never enter a fit.
    """

    #: How messages name the method.
    _title: ClassVar[str] = ""
    #: Dense (n, n) float64 arrays alive at the peak, beside one for each view.
    _square_matrices: ClassVar[int] = 0
    #: ... and the number of those for each view.
    _square_matrices_per_view: ClassVar[int] = 0

    n_clusters: int
    scale: Scale
    view_type: Any
    n_features_per_view: Sequence[int] | None
    random_state: int | np.random.RandomState | None
    memory_limit_bytes: int | None

    labels_: NDArray[np.int64]
    view_names_: tuple[str, ...]
    data_warnings_: tuple[Any, ...]

    def fit(self, X: Any, y: object = None) -> Self:
        """Cluster the samples.

        Parameters
        ----------
        X : as for `mscam_dask.MSCAM.fit`
            A list or dict of (n_samples, n_features_v) arrays, an xarray.Dataset, a
            `MultiViewData`, a store path, or one array, cut into views by `n_features_per_view`.
        y : ignored
            Present for scikit-learn; labels never enter a fit.

        Returns
        -------
        self

        Raises
        ------
        ConfigurationError
            A parameter is out of range, or does not fit the data.
        DataError
            The views cannot be clustered as given; the message names view and rows.
        MemoryPlanError
            The arrays of the method do not fit into memory.
        """
        data = self._views(X)
        # everything that can be refused without reading a row comes first
        check_sizes(data.n_samples, n_clusters=self.n_clusters, n_neighbors=1)
        self.check_parameters(data)
        self._check_memory(data)
        seed = seed_of(self.random_state)
        report = validate(data, n_clusters=self.n_clusters, n_neighbors=1)
        self.view_names_ = data.view_names
        self.data_warnings_ = tuple(report.issues)
        views = tuple(
            scaled_features(source, scale=self.scale) for source in self._chosen(data).views
        )
        labels = self._cluster(views, np.random.default_rng(seed))
        self.labels_ = canonical_labels(np.asarray(labels, dtype=np.int64))
        return self

    @abstractmethod
    def _cluster(self, views: tuple[View, ...], rng: np.random.Generator) -> NDArray[np.int64]:
        """Labels (n,) of the scaled views; sets what attributes the method has."""

    def check_parameters(self, data: MultiViewData) -> None:
        """Refuse parameters with which these views cannot be clustered; no row is read.

        Raises
        ------
        ConfigurationError
            As from `fit`.
        """
        require_choice("scale", self.scale, get_args(Scale))
        self._check(data)
        self._chosen(data)

    def _check(self, data: MultiViewData) -> None:
        """Refuse parameters that are out of range or do not fit the data."""

    def _chosen(self, data: MultiViewData) -> MultiViewData:
        """The views the method looks at: all, unless it is one of a single view."""
        return data

    def _working_bytes(self, n_samples: int, widths: Sequence[int]) -> int:
        """Peak bytes beside the scaled views themselves."""
        matrices = self._square_matrices + self._square_matrices_per_view * len(widths)
        return 8 * n_samples * n_samples * matrices

    def _check_memory(self, data: MultiViewData) -> None:
        limit = self.memory_limit_bytes
        if limit is None:
            limit = available_memory_bytes()
        else:
            require_count("memory_limit_bytes", limit)
        chosen = self._chosen(data).views
        n = data.n_samples
        # a pairwise view becomes coordinates through its kernel: three n x n arrays, one at a time
        pairwise = any(source.view_type != "features" for source in chosen)
        held = 8 * n * sum(source.shape[1] for source in chosen)
        working = self._working_bytes(n, [source.shape[1] for source in chosen])
        need = held + max(working, 24 * n * n * pairwise)
        if need <= limit:
            return
        largest = ""
        remedy = "Give more memory or fewer samples"
        matrices = self._square_matrices + self._square_matrices_per_view * len(chosen)
        if matrices:
            fits = math.isqrt(max(0, int((limit - held) / (8 * matrices))))
            largest = f", of which {matrices} dense {n} x {n} arrays are {working / _GIB:.2f} GiB"
            remedy = (
                f"About {fits} samples fit. Draw a sample of that size, give more memory, or take a "
                "method that is linear in n: lmvsc, smvsc or MSCAM"
            )
        raise MemoryPlanError(
            f"{self._title} on {n} samples needs about {need / _GIB:.2f} GiB ({need} bytes){largest}; "
            f"{limit / _GIB:.2f} GiB ({limit} bytes) are allowed. {remedy}."
        )

    def _views(self, X: Any) -> MultiViewData:
        if self.n_features_per_view is not None:
            return as_multi_view(
                X if is_sparse(X) else np.asarray(X) if isinstance(X, list | tuple) else X,
                n_features_per_view=self.n_features_per_view,
                view_type=self.view_type,
            )
        return as_multi_view(X, view_type=self.view_type)


def require_count(name: str, value: object, *, minimum: int = 1, maximum: int | None = None) -> int:
    """`value` as an int when it is a whole number in range.

    Raises
    ------
    ConfigurationError
        Naming the parameter, what was got and what is allowed.
    """
    allowed = f"a whole number >= {minimum}" + ("" if maximum is None else f" and <= {maximum}")
    if isinstance(value, Integral) and not isinstance(value, bool):
        count = int(value)
        if minimum <= count and (maximum is None or count <= maximum):
            return count
    raise ConfigurationError(f"{name}={value!r} is not usable: allowed is {allowed}.")


def require_number(name: str, value: object, *, positive: bool = True) -> float:
    """`value` as a float when it is a finite number > 0 (or >= 0).

    Raises
    ------
    ConfigurationError
        Naming the parameter, what was got and what is allowed.
    """
    if isinstance(value, Real) and not isinstance(value, bool):
        number = float(value)
        if math.isfinite(number) and (number > 0 or (number == 0 and not positive)):
            return number
    raise ConfigurationError(
        f"{name}={value!r} is not usable: allowed is a finite number {'>' if positive else '>='} 0."
    )


def require_choice(name: str, value: object, allowed: Sequence[str]) -> str:
    """`value` when it is one of the words allowed.

    Raises
    ------
    ConfigurationError
        Naming the parameter, what was got and what is allowed.
    """
    if isinstance(value, str) and value in allowed:
        return value
    raise ConfigurationError(
        f"{name}={value!r} is not usable: allowed is one of {', '.join(allowed)}."
    )
