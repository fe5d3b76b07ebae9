"""The bottom of a graph Laplacian's spectrum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.linalg.chebyshev import (
    RitzBlock,
    apply_sparse,
    filtered_subspace_iteration,
    start_block,
)
from mscam_dask.linalg.laplacian import connected_components
from mscam_dask.linalg.orthonormal import orient_columns

__all__ = ["Spectrum", "bottom_eigenpairs"]

# Up to this many rows a dense eigensolver is the faster one, and exact.
_DENSE_ROWS = 800

# By the type of L: what it may leave of its null vectors, and the finest tolerance; both are in
# units of the largest eigenvalue.
_NULL_RESIDUAL = {np.dtype(np.float64): 1e-8, np.dtype(np.float32): 1e-5}
_FINEST = {np.dtype(np.float64): 0.0, np.dtype(np.float32): 1e-5}


@dataclass(frozen=True, slots=True)
class Spectrum:
    """Smallest eigenpairs of a Laplacian.

    Attributes
    ----------
    values : array of shape (m,)
        Eigenvalues, ascending, >= 0; exactly 0 once per connected component.
    vectors : array of shape (n, m)
        Orthonormal eigenvectors, of the type of L; the entry of largest magnitude is positive.
    residual : float
        max_i ||L v_i - theta_i v_i||, absolute.
    n_matvecs : int
        Products of L with one vector; 0 from the dense solver.
    converged : bool
        Whether `residual`, of the pairs that had to, is within what was asked for.
    """

    values: NDArray[np.float64]
    vectors: NDArray[Any]
    residual: float
    n_matvecs: int
    converged: bool


def bottom_eigenpairs(  # noqa: PLR0913 - one problem and how well it is to be solved
    laplacian: csr_array[Any],
    n_pairs: int,
    *,
    warm_start: NDArray[Any] | None = None,
    components: tuple[int, NDArray[np.int64]] | None = None,
    n_accurate: int | None = None,
    relative_tolerance: float = 1e-8,
    max_iterations: int = 100,
    dense_rows: int = _DENSE_ROWS,
    rng: np.random.Generator,
) -> Spectrum:
    """Solve min tr(V^T L V) over V^T V = I with m columns (Ky Fan): the m smallest eigenpairs.

    Parameters
    ----------
    laplacian : csr_array of shape (n, n)
        L, symmetric positive semi-definite, null space spanned by the indicators of its
        connected components. With float32 entries all is done in single precision: half
        the memory and nearly twice as fast, for tolerances from 1e-5.
    n_pairs : int
        m, between 1 and n.
    warm_start : array of shape (n, p), p >= 1, optional
        Vectors whose span is near the wanted one, as the `vectors` of a similar graph.
        Any columns: they need be neither orthonormal nor independent.
    components : (int, array of shape (n,)), optional
        Connected components of the graph of L, as `connected_components` gives them; found when
        not given.
    n_accurate : int, optional
        So many pairs must meet the tolerance, by default all; the others are the best found
        beside them. A warm start that meets it is then taken as it is.
    relative_tolerance : float
        Asked for: residual <= relative_tolerance * (upper bound of the largest eigenvalue).
    max_iterations : int
        At most this many filter rounds of at most 300 products each.
    dense_rows : int
        Up to so many rows the eigensolver is dense.
    rng : numpy.random.Generator
        For the guard vectors and what of the start is not given. The eigenvalues do not
        depend on it beyond the tolerance.

    Returns
    -------
    Spectrum
        With ``converged=False``, and the best found, when the rounds did not suffice.

    Raises
    ------
    ConfigurationError
        `n_pairs` outside 1 .. n, `max_iterations` below 1, or a tolerance that is not
        positive, or finer than the precision of L allows.
    DataError
        L is not square or not finite, L does not annihilate the indicator of each
        component, or `warm_start` has not n rows.

    Notes
    -----
    Components are found on the graph of L, and their null vectors are exact members of the
    answer. In their orthogonal complement: dense eigensolver up to 800 rows, above it
    Chebyshev-filtered subspace iteration with Rayleigh-Ritz, guard vectors, and a filter
    degree chosen each round from the gap between the wanted values and the cut. Pairs
    that have converged stay in the block but are not filtered any more. The largest
    eigenvalue is bounded by Gershgorin's theorem, which cannot fail. The vertices are put in
    reverse Cuthill-McKee order first, which halves the time of the products.

    Per round O((nnz + n) p degree + n p^2) flops with p about 1.5 m columns; five blocks
    of (n, p) and one and a half copies of L in memory beside it.

    References
    ----------
    Y. Zhou, Y. Saad, M. L. Tiago, J. R. Chelikowsky, "Self-consistent-field calculations
    using Chebyshev-filtered subspace iteration", J. Comput. Phys. 219 (2006),
    doi:10.1016/j.jcp.2006.03.017. K. Fan, PNAS 35 (1949), doi:10.1073/pnas.35.11.652.
    """
    n = laplacian.shape[0]
    _check_request(laplacian, n_pairs, warm_start, relative_tolerance, max_iterations)
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
    target = relative_tolerance * bound
    null = _null_basis(scaled, components or connected_components(scaled), bound)
    n_null = min(null.shape[1], n_pairs)
    n_rest = n_pairs - n_null
    null_vectors = null[:, :n_null].toarray()
    null_residual = _residuals(scaled, null_vectors)
    block = RitzBlock(np.zeros((n, 0), dtype=scaled.dtype), np.zeros(0), np.zeros(0), 0)
    if n_rest > 0 and n <= max(dense_rows, 3 * n_pairs):
        block = _dense_block(scaled, null, n_rest, bound)
    elif n_rest > 0:
        # neighbouring vertices next to each other in memory: products are bound by its speed
        order = reverse_cuthill_mckee(scaled, symmetric_mode=True)
        scaled = _reordered(scaled, order)
        block = _filtered_block(
            scaled,
            null,
            order,
            warm_start,
            n_rest=n_rest,
            goal=_Goal(bound, target, max_iterations, _accurate(n_accurate, n_null, n_rest)),
            rng=rng,
        )
    vectors = orient_columns(np.hstack((null_vectors, block.vectors[:, :n_rest])))
    # beyond the null space an eigenvalue is positive, whatever rounding says
    positive = np.maximum(block.values[:n_rest], np.finfo(np.float64).tiny)
    values = np.concatenate((np.zeros(n_null), positive))
    counted = _accurate(n_accurate, n_null, n_rest)
    residual = float(block.residuals[:counted].max(initial=null_residual))
    return Spectrum(
        values=np.ldexp(values, exponent),
        vectors=vectors,
        residual=float(np.ldexp(residual, exponent)),
        n_matvecs=block.n_matvecs,
        converged=residual <= target,
    )


@dataclass(frozen=True, slots=True)
class _Goal:
    """Upper bound of the spectrum, residual norm, most rounds, and pairs that must meet it."""

    bound: float
    target: float
    max_rounds: int
    n_accurate: int


def _accurate(n_accurate: int | None, n_null: int, n_rest: int) -> int:
    """Pairs beyond the null space that must meet the tolerance: at least one."""
    if n_accurate is None:
        return n_rest
    return min(n_rest, max(1, n_accurate - n_null))


def _null_basis(
    laplacian: csr_array[Any],
    components: tuple[int, NDArray[np.int64]],
    bound: float,
) -> csr_array[Any]:
    """Orthonormal null vectors, one per component, as a sparse (n, count) matrix."""
    n = laplacian.shape[0]
    count, labels = components
    norms = np.sqrt(np.bincount(labels, minlength=count))
    entries = (1.0 / norms[labels]).astype(laplacian.dtype)
    index_dtype = laplacian.indices.dtype
    positions = labels.astype(index_dtype), np.arange(n + 1, dtype=index_dtype)
    null: csr_array[Any] = csr_array((entries, *positions), shape=(n, count))
    image = csr_array(laplacian @ null)
    worst = float(np.abs(image.data).max(initial=0.0))
    allowed = _NULL_RESIDUAL[laplacian.dtype] * bound
    if worst > allowed:
        raise DataError(
            f"the matrix does not annihilate its null vectors (largest entry {worst:.2e}, "
            f"allowed is {allowed:.2e}): it is not the Laplacian of its graph. Pass "
            "D - W."
        )
    return null


def _reordered(laplacian: csr_array[Any], order: NDArray[np.integer[Any]]) -> csr_array[Any]:
    """Rows and columns in another order, column indices sorted."""
    place = np.empty(len(order), dtype=laplacian.indices.dtype)
    place[order] = np.arange(len(order))
    rows = csr_array(laplacian[order])
    permuted = csr_array((rows.data, place[rows.indices], rows.indptr), shape=rows.shape)
    permuted.sort_indices()
    return permuted


def _filtered_block(
    laplacian: csr_array[Any],
    null: csr_array[Any],
    order: NDArray[np.integer[Any]],
    warm_start: NDArray[Any] | None,
    *,
    n_rest: int,
    goal: _Goal,
    rng: np.random.Generator,
) -> RitzBlock:
    """The n_rest smallest eigenpairs beyond the null space, by filtered iteration.

    The Laplacian has its rows in the given order; null vectors, warm start and result do not.
    """
    n = laplacian.shape[0]
    n_block = min(n_rest + max(5, n_rest // 2), n - null.shape[1])
    null = csr_array(null[order])
    block = filtered_subspace_iteration(
        laplacian,
        null,
        start_block(
            laplacian,
            null,
            None if warm_start is None else warm_start[order],
            n_rest=n_rest,
            n_block=n_block,
            rng=rng,
        ),
        goal.n_accurate,
        bound=goal.bound,
        target=goal.target,
        max_rounds=goal.max_rounds,
        trusted=warm_start is not None and goal.n_accurate < n_rest,
    )
    vectors = np.empty_like(block.vectors)
    vectors[order] = block.vectors
    return RitzBlock(vectors, block.values, block.residuals, block.n_matvecs)


def _dense_block(
    laplacian: csr_array[Any], null: csr_array[Any], n_rest: int, bound: float
) -> RitzBlock:
    """The n_rest smallest eigenpairs beyond the null space, by a dense eigensolver."""
    # the null space is lifted above the rest of the spectrum
    lifted = (laplacian + (2.0 * bound) * (null @ null.T)).toarray()
    try:
        values, vectors = scipy.linalg.eigh(lifted, subset_by_index=[0, n_rest - 1])
    except scipy.linalg.LinAlgError:  # some eigenvalues of high multiplicity are too much for it
        vectors = scipy.linalg.eigh(lifted, driver="evd")[1][:, :n_rest]
    vectors = vectors - apply_sparse(null, apply_sparse(null.T, vectors))
    vectors = np.asarray(scipy.linalg.qr(vectors, mode="economic")[0])
    products = apply_sparse(laplacian, vectors)
    values = np.einsum("ij,ij->j", vectors, products)
    if np.any(np.diff(values) < 0):  # by rounding, where they are equal or below the precision of L
        order = np.argsort(values, kind="stable")
        values, vectors, products = values[order], vectors[:, order], products[:, order]
    residuals = np.linalg.norm(products - vectors * values, axis=0)
    return RitzBlock(vectors, values, residuals, 0)


def _residuals(laplacian: csr_array[Any], vectors: NDArray[Any]) -> float:
    """Largest ||L v|| over the columns, for null vectors."""
    return float(np.linalg.norm(apply_sparse(laplacian, vectors), axis=0).max(initial=0.0))


def _check_request(
    laplacian: csr_array[Any],
    n_pairs: int,
    warm_start: NDArray[Any] | None,
    relative_tolerance: float,
    max_iterations: int,
) -> None:
    n = laplacian.shape[0]
    if laplacian.shape != (n, n) or not np.isfinite(laplacian.data).all():
        raise DataError(
            f"a Laplacian of shape {laplacian.shape} must be square and finite. Check the "
            "graph's weights."
        )
    if not 1 <= n_pairs <= n:
        raise ConfigurationError(
            f"{n_pairs} eigenpairs were asked for; allowed is 1 to {n}, the number of samples. "
            "Lower n_clusters."
        )
    if relative_tolerance <= 0 or max_iterations < 1:
        raise ConfigurationError(
            f"relative_tolerance is {relative_tolerance!r} and max_iterations "
            f"{max_iterations}; allowed are a positive number and at least 1."
        )
    if laplacian.dtype not in _FINEST or relative_tolerance < _FINEST[laplacian.dtype]:
        raise ConfigurationError(
            f"a Laplacian of {laplacian.dtype} is to be solved to {relative_tolerance:g}; "
            f"allowed are float64, and float32 from {_FINEST[np.dtype(np.float32)]:g} on. Convert "
            "it to float64."
        )
    if warm_start is not None and (warm_start.ndim != 2 or len(warm_start) != n):
        raise DataError(
            f"the warm start has shape {warm_start.shape}; it needs {n} rows, one per sample. "
            "Start cold after the samples have changed."
        )
