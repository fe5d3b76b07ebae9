"""Feature families of small grey images: the views of the quickstart, computed, not downloaded.

Each function takes images (n, height, width), values 0 (paper) to 1 (ink), and returns one
row of features per image, (n, d) float64. Nothing is scaled or centered afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from math import factorial

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "FAMILIES",
    "fourier_magnitudes",
    "gradient_orientations",
    "pixels",
    "profiles",
    "zernike_magnitudes",
]

Images = NDArray[np.float64]


def pixels(images: Images) -> NDArray[np.float64]:
    """Ink of every pixel, row by row; d = height * width."""
    return images.reshape(len(images), -1)


def profiles(images: Images) -> NDArray[np.float64]:
    """Ink per row and column, distance of the outline from each side, ink per 2 x 2 zone.

    d = 3 (height + width) + (height // 2) (width // 2). An outline is the number of pixels
    before the first one with at least half the image's strongest ink, the full length
    where there is none.
    """
    n_images, height, width = images.shape
    strongest = images.max(axis=(1, 2), keepdims=True)
    is_ink = (images >= 0.5 * strongest) & (strongest > 0)
    outlines = [
        np.where(side.any(axis=axis), side.argmax(axis=axis), side.shape[axis])
        for side, axis in (
            (is_ink, 2),
            (is_ink[:, :, ::-1], 2),
            (is_ink, 1),
            (is_ink[:, ::-1, :], 1),
        )
    ]
    even = images[:, : height - height % 2, : width - width % 2]
    zones = even.reshape(n_images, height // 2, 2, width // 2, 2).mean(axis=(2, 4))
    parts = [
        images.mean(axis=2),
        images.mean(axis=1),
        *outlines,
        zones.reshape(n_images, -1),
    ]
    return np.concatenate(parts, axis=1, dtype=np.float64)


def fourier_magnitudes(images: Images) -> NDArray[np.float64]:
    """Magnitudes of the two-dimensional Fourier transform; unchanged by cyclic shifts.

    d = height * (width // 2 + 1): the half-plane that determines the rest for real images.
    Divided by the number of pixels, so that the first feature is the mean ink.
    """
    n_images, height, width = images.shape
    spectrum: NDArray[np.float64] = np.abs(np.fft.rfft2(images)) / (height * width)
    return spectrum.reshape(n_images, -1)


def gradient_orientations(
    images: Images, *, n_orientations: int = 8, cell: int = 4, stride: int = 2
) -> NDArray[np.float64]:
    """Histograms of gradient orientation in overlapping square cells, L2-normalized per cell.

    Parameters
    ----------
    images
        (n, height, width).
    n_orientations
        Bins over the full circle; a gradient is shared between its two nearest bins.
    cell, stride
        Side of a cell and distance between cells, in pixels.

    Notes
    -----
    d = cells * n_orientations. A cell without gradient stays zero: norms are taken as
    sqrt(sum of squares + 1e-4), in units of ink per pixel.

    References
    ----------
    N. Dalal, B. Triggs, "Histograms of oriented gradients for human detection", CVPR 2005,
    doi:10.1109/CVPR.2005.177.
    """
    n_images, height, width = images.shape
    down, right = np.gradient(images, axis=(1, 2))
    magnitude = np.hypot(down, right)
    position = np.arctan2(down, right) / (2 * np.pi) * n_orientations
    lower = np.floor(position)
    share_above = position - lower
    binned = np.zeros((n_images, height, width, n_orientations))
    for orientation in range(n_orientations):
        binned[..., orientation] = magnitude * (
            (lower % n_orientations == orientation) * (1 - share_above)
            + ((lower + 1) % n_orientations == orientation) * share_above
        )
    cells = [
        binned[:, top : top + cell, left : left + cell].sum(axis=(1, 2))
        for top in range(0, height - cell + 1, stride)
        for left in range(0, width - cell + 1, stride)
    ]
    histograms = np.stack(cells, axis=1)
    histograms /= np.sqrt(np.sum(histograms**2, axis=2, keepdims=True) + 1e-4)
    return histograms.reshape(n_images, -1)


def zernike_magnitudes(images: Images, *, max_order: int = 8) -> NDArray[np.float64]:
    """Magnitudes of the Zernike moments up to an order; unchanged by quarter turns.

    |A_pq| = (p+1)/pi |sum f(r, t) R_pq(r) exp(-i q t)| da over pixel centers inside the
    circle through the corners of the image, for q >= 0, p - q even; d = 25 for order 8.

    References
    ----------
    A. Khotanzad, Y. H. Hong, "Invariant image recognition by Zernike moments", IEEE TPAMI
    12(5), 1990, doi:10.1109/34.55109.
    """
    n_images, height, width = images.shape
    down, right = np.meshgrid(
        2 * np.arange(height) - height + 1.0, 2 * np.arange(width) - width + 1.0, indexing="ij"
    )
    circle = np.hypot(height, width)
    radius, angle = np.hypot(down, right).ravel() / circle, np.arctan2(down, right).ravel()
    area = 4 / circle**2
    flat = images.reshape(n_images, -1)
    magnitudes = []
    for order in range(max_order + 1):
        for repetition in range(order % 2, order + 1, 2):
            basis = _zernike_radial(order, repetition, radius) * np.exp(-1j * repetition * angle)
            magnitudes.append(np.abs(flat @ basis) * (order + 1) / np.pi * area)
    return np.stack(magnitudes, axis=1)


def _zernike_radial(
    order: int, repetition: int, radius: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Radial polynomial R_pq: sum over s of (-1)^s (p-s)! r^(p-2s) / (s! a! b!)."""
    total = np.zeros_like(radius)
    for term in range((order - repetition) // 2 + 1):
        coefficient = (-1) ** term * factorial(order - term)
        coefficient //= (
            factorial(term)
            * factorial((order + repetition) // 2 - term)
            * factorial((order - repetition) // 2 - term)
        )
        total += coefficient * radius ** (order - 2 * term)
    return total


FAMILIES: dict[str, Callable[[Images], NDArray[np.float64]]] = {
    "pixels": pixels,
    "profiles": profiles,
    "fourier": fourier_magnitudes,
    "gradients": gradient_orientations,
    "zernike": zernike_magnitudes,
}
"""The families `digits_views` knows, by name."""
