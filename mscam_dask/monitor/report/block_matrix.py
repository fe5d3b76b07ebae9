"""Picture of the consensus graph as a matrix, and the edge weights between clusters."""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["BlockMatrix", "block_matrix", "cluster_order", "encode_png", "png_url"]

_PIXELS = 480


@dataclass(frozen=True, eq=False)
class BlockMatrix:
    """Density of the edge weights, with samples in the order of clusters.

    Attributes
    ----------
    levels : (p, p) uint8
        0 for a pixel without an edge, 255 for the densest.
    clusters, sizes : (c,)
        Numbers of the clusters, ascending, and their numbers of samples.
    edges : (c + 1,)
        Boundaries of the clusters along a side of length 1.
    samples_per_pixel : float
    between : (c, c) CSR
        Weight of (A + Aᵀ)/2 within and between clusters.
    """

    levels: NDArray[np.uint8]
    clusters: NDArray[np.int64]
    sizes: NDArray[np.int64]
    edges: NDArray[np.float64]
    samples_per_pixel: float
    between: csr_array[np.float64]

    @property
    def weight_across(self) -> float:
        """Share of the weight that lies between different clusters."""
        weights = self.between.tocoo()
        first, second = weights.coords
        total = float(weights.data.sum())
        # total - trace would not be exactly zero, because of rounding
        across = float(weights.data[first != second].sum())
        return across / total if total > 0 else 0.0


def cluster_order(graph: csr_array[np.float64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Samples by cluster, and in reverse Cuthill-McKee order within each cluster."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    order = reverse_cuthill_mckee(graph, symmetric_mode=True)
    return np.asarray(order[np.argsort(labels[order], kind="stable")], dtype=np.int64)


def block_matrix(graph: csr_array[np.float64], labels: NDArray[np.int64]) -> BlockMatrix:
    """Sum the weights of (A + Aᵀ)/2 in pixels and in pairs of clusters.

    Parameters
    ----------
    graph : (n, n) CSR
    labels : (n,)

    Notes
    -----
    The level of a pixel is the square root of its mean weight, relative to the 99.5th percentile
    of the pixels with edges. Sparse and dense clusters are both visible this way.
    """
    from scipy.sparse import coo_array, csr_array

    symmetric: csr_array[np.float64] = csr_array(0.5 * graph + 0.5 * graph.T)
    n_samples = len(labels)
    clusters, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    n_clusters = len(clusters)
    side = min(n_samples, _PIXELS)
    place = np.empty(n_samples, dtype=np.int64)
    place[cluster_order(symmetric, labels)] = np.arange(n_samples)
    entries = symmetric.tocoo()
    row, column = (place[index] * side // n_samples for index in entries.coords)
    mass = np.bincount(row * side + column, weights=entries.data, minlength=side * side)
    pixels = np.bincount(np.arange(n_samples) * side // n_samples, minlength=side)
    density = mass.reshape(side, side) / np.outer(pixels, pixels)
    positive = density[density > 0]
    top = float(np.quantile(positive, 0.995)) if len(positive) else 1.0
    levels = np.ceil(255 * np.sqrt(np.minimum(density / top, 1.0))).astype(np.uint8)
    first, second = (codes[index] for index in entries.coords)
    pairs = coo_array((entries.data, (first, second)), shape=(n_clusters, n_clusters))
    return BlockMatrix(
        levels=levels,
        clusters=clusters,
        sizes=sizes,
        edges=np.concatenate(([0.0], np.cumsum(sizes) / n_samples)),
        samples_per_pixel=n_samples / side,
        between=csr_array(pairs),
    )


def encode_png(levels: NDArray[np.uint8], palette: NDArray[np.uint8]) -> bytes:
    """Encode an image with a palette as PNG.

    Parameters
    ----------
    levels : (height, width) uint8
    palette : (at most 256, 3) uint8
        Red, green, blue of each level.

    References
    ----------
    PNG specification, third edition, https://www.w3.org/TR/png-3/ (color type 3, depth 8).
    """
    height, width = levels.shape
    rows = np.zeros((height, width + 1), dtype=np.uint8)  # filter type 0 before each row
    rows[:, 1:] = levels
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", palette.tobytes()),
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)


def png_url(levels: NDArray[np.uint8], palette: NDArray[np.uint8]) -> str:
    """Return an image as a data URL."""
    return "data:image/png;base64," + base64.b64encode(encode_png(levels, palette)).decode()
