"""Example data: real digits that need no download, and synthetic unions of subspaces.

Loaders of published data are in `mscam_dask.data.datasets.published`. The views of the digits are
computed: each function of `FAMILIES` takes images (n, height, width), values 0 (paper) to 1 (ink), and
returns one row of features per image, (n, d) float64. Nothing is scaled or centered afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import comb
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.errors import ConfigurationError

__all__ = ["CORRUPTED_SHARES", "corrupted_mixture", "digits_views", "subspace_mixture"]

Images = NDArray[np.float64]


def pixels(images: Images) -> Images:
    """Ink of every pixel, row by row; d = height * width."""
    return images.reshape(len(images), -1)


def profiles(images: Images) -> Images:
    """Ink per row and column, distance of the outline from each side, ink per 2 x 2 zone.

    d = 3 (height + width) + (height // 2) (width // 2). An outline is the number of pixels
    before the first one with at least half the image's strongest ink, the full length
    where there is none.
    """
    n_images, height, width = images.shape
    strongest = images.max(axis=(1, 2), keepdims=True)
    is_ink = (images >= 0.5 * strongest) & (strongest > 0)
    sides = ((is_ink, 2), (is_ink[:, :, ::-1], 2), (is_ink, 1), (is_ink[:, ::-1, :], 1))
    outlines = [
        np.where(side.any(axis=axis), side.argmax(axis=axis), side.shape[axis])
        for side, axis in sides
    ]
    even = images[:, : height - height % 2, : width - width % 2]
    zones = even.reshape(n_images, height // 2, 2, width // 2, 2).mean(axis=(2, 4))
    parts = [images.mean(axis=2), images.mean(axis=1), *outlines, zones.reshape(n_images, -1)]
    return np.concatenate(parts, axis=1, dtype=np.float64)


def fourier_magnitudes(images: Images) -> Images:
    """Magnitudes of the two-dimensional Fourier transform; unchanged by cyclic shifts.

    d = height * (width // 2 + 1): the half-plane that determines the rest for real images.
    Divided by the number of pixels, so that the first feature is the mean ink.
    """
    n_images, height, width = images.shape
    spectrum: Images = np.abs(np.fft.rfft2(images)) / (height * width)
    return spectrum.reshape(n_images, -1)


def gradient_orientations(images: Images) -> Images:
    """Histograms of 8 gradient orientations in cells of 4 x 4 pixels, 2 apart (Dalal & Triggs, 2005).

    d = cells * 8. A gradient is shared between its two nearest orientations. Each cell is divided by its
    norm sqrt(sum of squares + 1e-4), in units of ink per pixel; one without gradient stays zero.
    """
    n_orientations, cell, stride = 8, 4, 2
    n_images, height, width = images.shape
    down, right = np.gradient(images, axis=(1, 2))
    magnitude = np.hypot(down, right)
    position = np.arctan2(down, right) / (2 * np.pi) * n_orientations
    lower = np.floor(position)
    above = position - lower
    bins = np.arange(n_orientations)
    is_lower = lower[..., None] % n_orientations == bins
    is_upper = (lower[..., None] + 1) % n_orientations == bins
    binned = magnitude[..., None] * (
        is_lower * (1 - above[..., None]) + is_upper * above[..., None]
    )
    cells = [
        binned[:, top : top + cell, left : left + cell].sum(axis=(1, 2))
        for top in range(0, height - cell + 1, stride)
        for left in range(0, width - cell + 1, stride)
    ]
    histograms = np.stack(cells, axis=1)
    histograms /= np.sqrt(np.sum(histograms**2, axis=2, keepdims=True) + 1e-4)
    return histograms.reshape(n_images, -1)


def zernike_magnitudes(images: Images, *, max_order: int = 8) -> Images:
    """Magnitudes of the Zernike moments up to an order (Khotanzad & Hong, 1990); unchanged by quarter turns.

    |A_pq| = (p+1)/pi |sum f(r, t) R_pq(r) exp(-i q t)| da over pixel centers inside the
    circle through the corners of the image, for q >= 0, p - q even; d = 25 for order 8.
    """
    n_images, height, width = images.shape
    down, right = np.meshgrid(
        2 * np.arange(height) - height + 1.0, 2 * np.arange(width) - width + 1.0, indexing="ij"
    )
    circle = np.hypot(height, width)
    radius, angle = np.hypot(down, right).ravel() / circle, np.arctan2(down, right).ravel()
    flat = images.reshape(n_images, -1)
    magnitudes = []
    for order in range(max_order + 1):
        for repetition in range(order % 2, order + 1, 2):
            # R_pq(r): sum over s of (-1)^s (p-s)! r^(p-2s) / (s! ((p+q)/2-s)! ((p-q)/2-s)!)
            half_gap = (order - repetition) // 2
            radial = sum(
                (-1) ** term
                * comb(order - term, term)
                * comb(order - 2 * term, half_gap - term)
                * radius ** (order - 2 * term)
                for term in range(half_gap + 1)
            )
            basis = radial * np.exp(-1j * repetition * angle)
            magnitudes.append(np.abs(flat @ basis) * (order + 1) / np.pi * 4 / circle**2)
    return np.stack(magnitudes, axis=1)


FAMILIES: dict[str, Callable[[Images], Images]] = {
    "pixels": pixels,
    "profiles": profiles,
    "fourier": fourier_magnitudes,
    "gradients": gradient_orientations,
    "zernike": zernike_magnitudes,
}
"""The families `digits_views` knows, by name."""


def digits_views(
    families: Sequence[str] = tuple(FAMILIES), *, n_samples: int | None = None
) -> MultiViewData:
    """Load 1797 real handwritten digits as several feature families of the same 8 x 8 images.

    Parameters
    ----------
    families
        Some of "pixels" (64 columns), "profiles" (64), "fourier" (40), "gradients" (72),
        "zernike" (25).
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


CORRUPTED_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares of the samples that the paper's Table 2 corrupts."""

_WIDE, _NARROW = ((1.0, 0.5), (0.5, 1.5)), ((0.3, 0.0), (0.0, 0.6))

MIXTURE = (
    (((1.0, 1.0), (2.0, 2.0)), (_WIDE, _NARROW)),
    (((2.0, 2.0), (1.0, 1.0)), (_NARROW, _WIDE)),
    (((1.0, 1.0), (2.0, 2.0)), (((1.2, 0.2), (0.2, 1.0)), ((0.6, 0.1), (0.1, 0.5)))),
)
"""Means (c, d) and covariances (c, d, d) of each view of `corrupted_mixture`, before these are scaled.

Views 1 and 2 have the means (1, 1), (2, 2) and the two covariances of Kumar & Daumé's mixture,
the clusters changing places; view 3 has the same means and two covariances in between.
"""


def corrupted_mixture(
    n_samples: int = 1000,
    *,
    rng: np.random.Generator,
    corruption_rate: float = 0.0,
    noise_variance: float = 0.3,
    within_variance: float = 0.89,
) -> MultiViewData:
    """Draw samples of a mixture in several views, a share of them corrupted in each view.

    A corrupted sample x of a view becomes x + e, e ~ N(0, noise_variance · ‖x‖₂ · I): the
    variance, as the paper words it, is proportional to the length, not to its square.

    Parameters
    ----------
    n_samples
        Cluster sizes differ by at most one; samples are shuffled.
    rng
        All randomness comes from it. The same generator state with another `corruption_rate` gives
        the same samples, the same noise and a nested set of corrupted samples.
    corruption_rate
        In [0, 1], the share corrupted in each view; which ones they are is drawn for each view
        by itself.
    noise_variance
        0.3 in the paper.
    within_variance
        Factor > 0 on every covariance. The default is calibrated, see docs/experiments.md.

    Returns
    -------
    MultiViewData
        Views "view_1", "view_2", ... with labels 0 and 1.

    Raises
    ------
    ConfigurationError
        When a number is out of range.

    References
    ----------
    A. Kumar, H. Daumé III, "A co-training approach for multi-view spectral clustering", ICML
    2011. N. Xu et al., arXiv:1709.03656, Table 2.

    Examples
    --------
    >>> import numpy as np
    >>> clean = corrupted_mixture(50, rng=np.random.default_rng(0))
    >>> noisy = corrupted_mixture(50, rng=np.random.default_rng(0), corruption_rate=0.2)
    >>> changed = clean.views[0].read(0, 50) != noisy.views[0].read(0, 50)
    >>> int(changed.any(axis=1).sum()), np.bincount(clean.labels).tolist()
    (10, [25, 25])
    """
    if not (
        isinstance(n_samples, Integral)
        and n_samples > 1
        and 0 <= corruption_rate <= 1
        and 0 <= noise_variance < np.inf
        and 0 < within_variance < np.inf
    ):
        raise ConfigurationError(
            f"n_samples={n_samples!r}, corruption_rate={corruption_rate}, noise_variance={noise_variance}, "
            f"within_variance={within_variance}; allowed are an integer >= 2, a share from 0 to 1, a finite "
            "number >= 0 and a finite number > 0."
        )
    labels = rng.permutation(np.arange(n_samples, dtype=np.int64) % 2)
    n_corrupted = round(corruption_rate * n_samples)
    views = []
    for index, (means, covariances) in enumerate(MIXTURE, start=1):
        factors = np.linalg.cholesky(within_variance * np.asarray(covariances))
        standard = rng.standard_normal((n_samples, 2))
        rows = np.asarray(means)[labels] + np.einsum("nij,nj->ni", factors[labels], standard)
        noise = rng.standard_normal(rows.shape)
        chosen = rng.permutation(n_samples)[:n_corrupted]
        lengths = np.linalg.norm(rows[chosen], axis=1, keepdims=True)
        rows[chosen] += np.sqrt(noise_variance * lengths) * noise[chosen]
        views.append(ArrayRows(rows, f"view_{index}"))
    return MultiViewData(views=tuple(views), labels=labels)
