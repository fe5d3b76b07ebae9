"""Spectral embedding of a graph by random walks with restart, for k-means."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.types.rules import CONSTANTS

__all__ = ["SpectralEmbedding", "walk_embedding"]


@dataclasses.dataclass(frozen=True, slots=True)
class SpectralEmbedding:
    """Samples as points for k-means.

    Attributes
    ----------
    vectors : (n, c)
        Orthonormal bottom eigenvectors.
    rows : (n, m)
        Points of unit length, or zero.
    """

    vectors: NDArray[Any]
    rows: NDArray[Any]

    def of(self, samples: slice | NDArray[np.int64]) -> SpectralEmbedding:
        """Embedding of some of the samples."""
        return SpectralEmbedding(self.vectors[samples], self.rows[samples])


def walk_embedding(
    values: NDArray[Any],
    vectors: NDArray[Any],
    n_clusters: int,
    *,
    mean: NDArray[Any] | None = None,
) -> SpectralEmbedding:
    """Spectral embedding from the bottom eigenpairs of a Laplacian: rows of τ (L + τI)⁻¹ at unit length.

    Parameters
    ----------
    values : (m,)
        Smallest eigenvalues λ of L, ascending, m ≥ c; row sums of the graph are about one.
    vectors : (n, m)
        Their orthonormal eigenvectors V.
    n_clusters : int
        c.
    mean : (m,), optional
        Mean of all rows of V, if `vectors` has some of the rows.

    Returns
    -------
    SpectralEmbedding
        In the precision of the vectors.

    Notes
    -----
    A random walk that stops at rate τ ends at the samples with the probabilities in the row of
    τ (L + τI)⁻¹ = τ V (Λ + τI)⁻¹ Vᵀ of its start; only m eigenvectors are used here. Two samples of
    a cluster have nearly equal rows. The rows are expressed in the basis V, centered, and scaled to
    unit length. With τ = λ_{c+1} / 2 a walk seldom stops before it has mixed within its cluster, and
    seldom leaves it. In the limit of c components, rows before centering are equal within a component
    and orthogonal between components. The result depends neither on the basis within an eigenspace nor
    on the order of the samples.

    K-means on c unweighted eigenvectors counts all of them equally, even one that only separates a few
    samples, and ignores the following eigenvectors.

    References
    ----------
    L. Yen, F. Fouss, C. Decaestecker, P. Francq, M. Saerens, "Graph nodes clustering with the
    sigmoid commute-time kernel", Data & Knowledge Engineering 68 (2009),
    doi:10.1016/j.datak.2008.10.006.
    """
    precision = float(np.finfo(vectors.dtype).eps)
    stopping = CONSTANTS.stopping_share * _first_beyond(values, n_clusters, precision)
    rows = vectors - (vectors.mean(axis=0) if mean is None else mean)
    rows /= (np.maximum(values, 0.0) + stopping).astype(vectors.dtype)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows /= np.where(lengths > 0, lengths, 1.0)
    return SpectralEmbedding(vectors[:, :n_clusters], rows)


def _first_beyond(values: NDArray[Any], n_clusters: int, precision: float) -> float:
    """λ_{c+1}, or the first later eigenvalue above rounding; 1 if there is none."""
    zero = precision * len(values) * max(1.0, float(values[-1]))
    beyond = values[min(n_clusters, len(values) - 1) :]
    positive = beyond[beyond > zero]
    return float(positive[0]) if len(positive) else 1.0
