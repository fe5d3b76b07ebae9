"""Example data: real digits that need no download, and synthetic unions of subspaces.

The UCI Multiple Features digits are in `mscam_dask.data.datasets.mfeat`; their loaders are
available here too, and the corrupted mixture of the paper (`mscam_dask.data.datasets.mixtures`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mscam_dask.data.datasets.digit_features import FAMILIES
from mscam_dask.data.datasets.flowers17 import load_flowers17
from mscam_dask.data.datasets.mfeat import fetch_mfeat, load_mfeat
from mscam_dask.data.datasets.mixtures import corrupted_mixture
from mscam_dask.data.datasets.nus_wide import load_nus_wide
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sampling import sample_per_class
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.errors import ConfigurationError

__all__ = [
    "corrupted_mixture",
    "digits_views",
    "fetch_mfeat",
    "load_flowers17",
    "load_mfeat",
    "load_nus_wide",
    "sample_per_class",
    "subspace_mixture",
]


def digits_views(
    families: Sequence[str] = tuple(FAMILIES), *, n_samples: int | None = None
) -> MultiViewData:
    """Load 1797 real handwritten digits as several feature families of the same 8 x 8 images.

    Parameters
    ----------
    families
        Some of "pixels" (64 columns), "profiles" (64), "fourier" (40), "gradients" (72),
        "zernike" (25); see `mscam_dask.data.datasets.digit_features`.
    n_samples
        Number of first images to take; all by default.

    Returns
    -------
    MultiViewData
        With labels 0..9 (what the writer meant), for evaluation only.

    Raises
    ------
    ConfigurationError
        When a family is unknown or `n_samples` is out of range.

    References
    ----------
    E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning
    Repository, 1998, doi:10.24432/C50P49; the copy bundled with scikit-learn.
    """
    from sklearn.datasets import load_digits

    unknown = [family for family in families if family not in FAMILIES]
    if unknown or not families:
        raise ConfigurationError(
            f"families={list(families)}: {unknown or 'nothing'} asked for; allowed are one or more "
            f"of {list(FAMILIES)}."
        )
    bundle = load_digits()
    n_images = len(bundle.target)
    if n_samples is not None and not 1 <= n_samples <= n_images:
        raise ConfigurationError(f"n_samples={n_samples}; allowed are 1 to {n_images}.")
    images = np.asarray(bundle.images[:n_samples], dtype=np.float64) / 16.0
    return MultiViewData(
        views=tuple(ArrayRows(FAMILIES[family](images), family) for family in families),
        labels=np.asarray(bundle.target[:n_samples], dtype=np.int64),
        label_names=tuple(str(digit) for digit in range(10)),
    )


def subspace_mixture(
    n_samples: int,
    n_clusters: int,
    dims: Sequence[int],
    *,
    rng: np.random.Generator,
    subspace_dim: int = 3,
    separation: float = 4.0,
    noise: float = 0.1,
) -> MultiViewData:
    """Draw samples from a union of affine subspaces, one per cluster, seen through several views.

    Sample i of cluster g has coordinates t_i ~ N(0, I) shared by all views; view v shows
    o_gv + B_gv t_i + noise * e, with B_gv a random orthonormal (d_v, subspace_dim) basis and
    o_gv a random offset of length `separation`, both of the view's own.

    Parameters
    ----------
    n_samples, n_clusters
        Cluster sizes differ by at most one; samples are shuffled.
    dims
        Number of columns d_v of each view.
    rng
        All randomness comes from it.
    subspace_dim
        Dimension of each cluster's subspace; in a view with fewer columns, that many.
    separation
        Length of the offsets, in standard deviations inside a subspace.
    noise
        Standard deviation of the isotropic noise.

    Returns
    -------
    MultiViewData
        Views "view_0", ... with labels 0..n_clusters-1.

    Raises
    ------
    ConfigurationError
        When sizes are not positive or there are more clusters than samples.

    Examples
    --------
    >>> import numpy as np
    >>> data = subspace_mixture(30, 3, (5, 8), rng=np.random.default_rng(0))
    >>> [view.shape for view in data.views], np.bincount(data.labels).tolist()
    ([(30, 5), (30, 8)], [10, 10, 10])
    """
    if not 1 <= n_clusters <= n_samples:
        raise ConfigurationError(
            f"n_clusters={n_clusters} with n_samples={n_samples}; allowed are 1 to n_samples."
        )
    if not dims or min(dims) < 1 or subspace_dim < 1:
        raise ConfigurationError(
            f"dims={tuple(dims)}, subspace_dim={subspace_dim}; give at least one view, all sizes "
            "at least 1."
        )
    labels = rng.permutation(np.arange(n_samples, dtype=np.int64) % n_clusters)
    coordinates = rng.standard_normal((n_samples, subspace_dim))
    views = []
    for index, n_columns in enumerate(dims):
        rank = min(subspace_dim, n_columns)
        rows = noise * rng.standard_normal((n_samples, n_columns))
        for cluster in range(n_clusters):
            members = labels == cluster
            basis = np.linalg.qr(rng.standard_normal((n_columns, rank)))[0]
            offset = rng.standard_normal(n_columns)
            offset *= separation / np.linalg.norm(offset)
            rows[members] += coordinates[members, :rank] @ basis.T + offset
        views.append(ArrayRows(rows, f"view_{index}"))
    return MultiViewData(views=tuple(views), labels=labels)
