"""Where random walks on a graph end: the rows that k-means cuts into clusters."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["SpectralEmbedding", "walk_embedding"]

# τ in units of the first eigenvalue beyond the clusters': docs/decisions/0057.
_STOPPING = 0.5


@dataclasses.dataclass(frozen=True, slots=True)
class SpectralEmbedding:
    """Samples as points, to be cut into clusters.

    Attributes
    ----------
    vectors : (n, c)
        Orthonormal bottom eigenvectors.
    rows : (n, m)
        The points: of unit length, or zero.
    """

    vectors: NDArray[Any]
    rows: NDArray[Any]

    def of(self, samples: slice | NDArray[np.int64]) -> SpectralEmbedding:
        """Some samples of it."""
        return SpectralEmbedding(self.vectors[samples], self.rows[samples])


def walk_embedding(
    values: NDArray[Any], vectors: NDArray[Any], n_clusters: int
) -> SpectralEmbedding:
    """Bottom eigenvectors of a Laplacian, weighted by how much of a random walk they carry.

    Parameters
    ----------
    values : (m,)
        Smallest eigenvalues λ, ascending, m ≥ c, of the L of a graph whose rows have sums of about one.
    vectors : (n, m)
        Their orthonormal eigenvectors V.
    n_clusters : int
        c.

    Returns
    -------
    SpectralEmbedding
        In the precision of the vectors.

    Notes
    -----
    A walk along the edges that stops at rate τ ends, from each sample, with the probabilities in
    its row of τ (L + τI)⁻¹ = τ V (Λ + τI)⁻¹ Vᵀ; with m eigenvectors the rest of it is left out.
    Two samples of a cluster have nearly the same row. The rows are taken in the basis V, less
    their mean (what all walks share), and put to unit length. τ = λ_{c+1} / 2: a walk seldom
    stops before it has mixed within its cluster, and seldom leaves it. In the limit of c components
    the rows of two samples are equal or orthogonal to the others' but for the mean. Neither the basis
    within an eigenspace nor the order of the samples matters.

    Against k-means on c eigenvectors as they are: those count alike there, also a group of a few
    samples that is cheap to cut off, and what the next eigenvectors say is lost.

    References
    ----------
    L. Yen, F. Fouss, C. Decaestecker, P. Francq, M. Saerens, "Graph nodes clustering with the
    sigmoid commute-time kernel", Data & Knowledge Engineering 68 (2009),
    doi:10.1016/j.datak.2008.10.006.
    """
    precision = float(np.finfo(vectors.dtype).eps)
    stopping = _STOPPING * _first_beyond(values, n_clusters, precision)
    rows = vectors - vectors.mean(axis=0)
    rows /= (np.maximum(values, 0.0) + stopping).astype(vectors.dtype)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows /= np.where(lengths > 0, lengths, 1.0)
    return SpectralEmbedding(vectors[:, :n_clusters], rows)


def _first_beyond(values: NDArray[Any], n_clusters: int, precision: float) -> float:
    """λ_{c+1}; of a graph in more pieces the first that is not zero to rounding, or 1 without any."""
    zero = precision * len(values) * max(1.0, float(values[-1]))
    beyond = values[min(n_clusters, len(values) - 1) :]
    positive = beyond[beyond > zero]
    return float(positive[0]) if len(positive) else 1.0
