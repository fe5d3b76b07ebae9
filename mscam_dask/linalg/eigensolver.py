"""Smallest eigenpairs of a graph Laplacian, by ARPACK outside of the null space, and largest ones of a symmetric matrix."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from mscam_dask.linalg.laplacian import connected_components
from mscam_dask.linalg.orthonormal import orient_columns

# Up to this many rows, or three for each pair, a dense eigensolver is faster.
_DENSE_ROWS = 250

# Lanczos vectors for each pair, and the fewest.
_LANCZOS_VECTORS, _MIN_LANCZOS_VECTORS = 3, 20

# Entries of the random part of the start: it finds eigenvectors that a warm start lacks.
_RANDOM_PART = 1e-2

_MAX_RESTARTS = 10_000


@dataclass(frozen=True, slots=True)
class Spectrum:
    """Smallest eigenpairs of a Laplacian."""

    values: NDArray[np.float64]  # (m,) ascending, >= 0; exactly 0 once per connected component
    vectors: NDArray[np.float64]  # (n, m) orthonormal, oriented
    converged: bool  # residuals are within the tolerance


def bottom_eigenpairs(
    laplacian: csr_array[Any],
    n_pairs: int,
    *,
    warm_start: NDArray[Any] | None = None,
    components: tuple[int, NDArray[np.int64]] | None = None,
    relative_tolerance: float = 1e-8,
    rng: np.random.Generator,
) -> Spectrum:
    """Solve min tr(V^T L V) over V^T V = I with m columns (Ky Fan): the m smallest eigenpairs of L.

    The null space of L (n, n) must be spanned by the indicators of its connected components; these
    are exact members of the answer. Beyond them: a dense eigensolver for small graphs, else
    implicitly restarted Lanczos from the sum of the `warm_start` (n, any), if any, until residuals
    are within relative_tolerance * (Gershgorin bound of the largest eigenvalue).

    K. Fan, doi:10.1073/pnas.35.11.652.
    """
    n = laplacian.shape[0]
    # a power of two brings the bound near 1, exactly: no norm over- or underflows
    exponent = int(np.frexp(np.abs(laplacian.data).max(initial=0.0))[1])
    index_dtype = np.int32 if laplacian.nnz < np.iinfo(np.int32).max else np.int64
    scaled = csr_array(
        (
            np.ldexp(laplacian.data, -exponent),
            laplacian.indices.astype(index_dtype, copy=False),
            laplacian.indptr.astype(index_dtype, copy=False),
        ),
        shape=laplacian.shape,
    )
    bound = float(abs(scaled).sum(axis=1, dtype=np.float64).max())  # Gershgorin
    null = _null_basis(scaled, *(components or connected_components(scaled)))
    n_null = min(null.shape[1], n_pairs)
    n_rest, vectors, converged = n_pairs - n_null, np.zeros((n, 0)), True
    if n_rest > 0 and n <= max(_DENSE_ROWS, 3 * n_pairs):
        vectors = _dense_vectors(scaled, null, n_rest, bound)
    elif n_rest > 0:
        start = _RANDOM_PART * rng.standard_normal(n)
        if warm_start is not None:
            # a checkpoint does not keep the layout, in which rows are summed in another order
            start += np.ascontiguousarray(warm_start).sum(axis=1)
        vectors, converged = _lanczos_vectors(
            scaled, null, n_rest, bound, start, relative_tolerance, rng
        )
    values, vectors = _outside_of_null(scaled, null, vectors, n_rest)
    # beyond the null space eigenvalues are positive, even if rounding makes them negative
    positive = np.maximum(values, np.finfo(np.float64).tiny)
    return Spectrum(
        values=np.ldexp(np.concatenate((np.zeros(n_null), positive)), exponent),
        vectors=orient_columns(np.hstack((null[:, :n_null].toarray(), vectors))),
        converged=converged,
    )


def top_eigenpairs(
    matrix: csr_array[Any], n_pairs: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Largest eigenvalues (m,), ascending, and eigenvectors (n, m) of a symmetric matrix (n, n)."""
    n = matrix.shape[0]
    if n > max(_DENSE_ROWS, 3 * n_pairs) and matrix.nnz:
        start = np.random.default_rng(0).standard_normal(n)
        with suppress(ArpackNoConvergence):
            found: tuple[NDArray[np.float64], NDArray[np.float64]] = eigsh(
                matrix, n_pairs, which="LA", v0=start
            )
            return found
    values, vectors = np.linalg.eigh(matrix.toarray())
    return values[-n_pairs:], vectors[:, -n_pairs:]


def _null_basis(laplacian: csr_array[Any], count: int, labels: NDArray[np.int64]) -> csr_array[Any]:
    """Orthonormal null vectors, one per component, as a sparse (n, count) matrix."""
    n = laplacian.shape[0]
    norms = np.sqrt(np.bincount(labels, minlength=count))
    index_dtype = laplacian.indices.dtype
    positions = labels.astype(index_dtype), np.arange(n + 1, dtype=index_dtype)
    return csr_array((1.0 / norms[labels], *positions), shape=(n, count))


def _dense_vectors(
    laplacian: csr_array[Any], null: csr_array[Any], n_rest: int, bound: float
) -> NDArray[np.float64]:
    """Bottom eigenvectors (n, n_rest) beyond the null space, by a dense eigensolver."""
    # deflation: the eigenvalues of the null space are moved above the rest of the spectrum
    deflated = (laplacian + (2.0 * bound) * (null @ null.T)).toarray()
    try:
        _, vectors = scipy.linalg.eigh(deflated, subset_by_index=[0, n_rest - 1])
    except scipy.linalg.LinAlgError:  # it fails for some eigenvalues of high multiplicity
        vectors = scipy.linalg.eigh(deflated, driver="evd")[1][:, :n_rest]
    return np.asarray(vectors)


def _lanczos_vectors(
    laplacian: csr_array[Any],
    null: csr_array[Any],
    n_rest: int,
    bound: float,
    start: NDArray[np.float64],
    tolerance: float,
    rng: np.random.Generator,
) -> tuple[NDArray[np.float64], bool]:
    """Bottom eigenvectors (n, n_rest) beyond the null space, and whether all of them converged.

    The top of bI − L, with the bound b: there ARPACK's tolerance is relative to b. The null space is moved to 0.
    """
    n = laplacian.shape[0]
    reflected = csr_array(eye_array(n, format="csr") * bound - laplacian)
    transposed, deflation = csr_array(null.T), null * bound
    vectors, values, converged = np.zeros((n, 0)), np.zeros(0), True

    def product(x: NDArray[np.float64]) -> NDArray[np.float64]:
        """The operator, with the pairs that were found moved to 0 too."""
        return np.asarray(
            reflected @ x - deflation @ (transposed @ x) - vectors @ (values * (vectors.T @ x))
        )

    operator = LinearOperator((n, n), matvec=product, dtype=np.dtype(np.float64))
    n_lanczos = min(n, max(_LANCZOS_VECTORS * n_rest, _MIN_LANCZOS_VECTORS))
    wanted = n_rest
    more: NDArray[Any]
    new: NDArray[Any]
    # From one start, Lanczos finds one vector of a multiple eigenvalue: the rest of the space is searched
    # too, until nothing there is better than what was found.
    for _ in range(n_rest + 1):
        start = start - null @ (transposed @ start) - vectors @ (vectors.T @ start)
        try:
            more, new = eigsh(
                operator,
                wanted,
                which="LA",
                v0=start,
                ncv=n_lanczos,
                maxiter=_MAX_RESTARTS,
                tol=tolerance,
                rng=rng,
            )
        except ArpackNoConvergence as unfinished:
            more, new, converged = unfinished.eigenvalues, unfinished.eigenvectors, False
        least = np.sort(values)[-n_rest] if len(values) else -np.inf
        if more.max(initial=-np.inf) <= least + tolerance * bound:
            break
        vectors, values = np.hstack((vectors, new)), np.concatenate((values, more))
        if not converged:
            break
        wanted, start = 1, rng.standard_normal(n)
    missing = max(0, n_rest - len(values))
    return np.hstack((vectors, rng.standard_normal((n, missing)))), converged


def _outside_of_null(
    laplacian: csr_array[Any], null: csr_array[Any], vectors: NDArray[np.float64], n_rest: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The n_rest least Rayleigh quotients, ascending, and vectors made orthonormal, outside of the null space."""
    vectors = vectors - null @ (null.T @ vectors)
    vectors = np.asarray(scipy.linalg.qr(vectors, mode="economic")[0])
    values = np.einsum("ij,ij->j", vectors, laplacian @ vectors)
    order = np.argsort(values, kind="stable")[:n_rest]
    return values[order], vectors[:, order]
