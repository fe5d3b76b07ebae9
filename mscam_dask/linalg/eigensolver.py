"""Smallest eigenpairs of a graph Laplacian, by Chebyshev-filtered subspace iteration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from mscam_dask.linalg.laplacian import connected_components
from mscam_dask.linalg.orthonormal import orient_columns

# Up to this many rows a dense eigensolver is faster.
_DENSE_ROWS = 800

# By the dtype of L: largest amplification of a direction by one filter. The upper directions lose
# digits to rounding, which the next round restores.
_LARGEST_GAIN = {np.dtype(np.float64): 1e10, np.dtype(np.float32): 1e5}
# Null vectors and locked pairs are orthogonal to the filtered block only to rounding, and are
# amplified most. The limit is what one more orthogonalization removes.
_LARGEST_GAIN_AT_ZERO = {np.dtype(np.float64): 1e20, np.dtype(np.float32): 1e9}
# Directions of a warm start whose part outside the null space has a smaller norm, relative to the
# start, are dropped.
_MIN_NORM_OUTSIDE_NULL = 1e-6
_LARGEST_DEGREE = 300
_MAX_ROUNDS = 100
# Convergence is accepted only if the cut (the largest Ritz value) changes by at most this share in
# a round, because the random guard vectors find eigenvectors that a warm start lacks.
_MAX_CHANGE_OF_CUT = 0.1
# Wanted pairs with residuals below this share of the tolerance are locked: no longer filtered.
_LOCK_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Spectrum:
    """Smallest eigenpairs of a Laplacian."""

    values: NDArray[np.float64]  # (m,) ascending, >= 0; exactly 0 once per connected component
    vectors: NDArray[np.float64]  # (n, m) orthonormal, oriented
    residual: float  # largest ||L v - theta v||, absolute
    converged: bool  # residual of the pairs that must be accurate is within the tolerance


def bottom_eigenpairs(
    laplacian: csr_array[Any],
    n_pairs: int,
    *,
    warm_start: NDArray[Any] | None = None,
    components: tuple[int, NDArray[np.int64]] | None = None,
    n_accurate: int | None = None,
    relative_tolerance: float = 1e-8,
    rng: np.random.Generator,
) -> Spectrum:
    """Solve min tr(V^T L V) over V^T V = I with m columns (Ky Fan): the m smallest eigenpairs of L.

    The null space of L (n, n) must be spanned by the indicators of its connected components; these
    are exact members of the answer. Beyond them: a dense eigensolver for small graphs, else rounds
    of a Chebyshev filter and Rayleigh-Ritz, with guard vectors and a degree from the gap between
    the wanted values and the cut. A `warm_start` (n, any) need be neither orthonormal nor
    independent. The first `n_accurate` pairs must have residual <= relative_tolerance *
    (Gershgorin bound of the largest eigenvalue).

    Y. Zhou, Y. Saad, M. L. Tiago, J. R. Chelikowsky, doi:10.1016/j.jcp.2006.03.017. K. Fan,
    doi:10.1073/pnas.35.11.652.
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
    target = relative_tolerance * bound
    null = _null_basis(scaled, *(components or connected_components(scaled)))
    n_null = min(null.shape[1], n_pairs)
    n_rest = n_pairs - n_null
    n_checked = n_rest if n_accurate is None else min(n_rest, max(1, n_accurate - n_null))
    null_vectors = null[:, :n_null].toarray()
    null_residuals = np.linalg.norm(apply_sparse(scaled, null_vectors), axis=0)
    block = _RitzBlock(np.zeros((n, 0)), np.zeros(0), np.zeros(0))
    if n_rest > 0 and n <= max(_DENSE_ROWS, 3 * n_pairs):
        block = _dense_block(scaled, null, n_rest, bound)
    elif n_rest > 0:
        # neighboring vertices next to each other in memory: its bandwidth limits products
        order = reverse_cuthill_mckee(scaled, symmetric_mode=True)
        scaled = csr_array(scaled[order][:, order])
        scaled.sort_indices()
        permuted = _filtered_block(
            scaled,
            csr_array(null[order]),
            None if warm_start is None else warm_start[order],
            n_rest,
            n_checked,
            bound=bound,
            target=target,
            rng=rng,
        )
        block = _RitzBlock(np.empty_like(permuted.vectors), permuted.values, permuted.residuals)
        block.vectors[order] = permuted.vectors
    vectors = orient_columns(np.hstack((null_vectors, block.vectors[:, :n_rest])))
    # beyond the null space eigenvalues are positive, even if rounding makes them negative
    positive = np.maximum(block.values[:n_rest], np.finfo(np.float64).tiny)
    values = np.concatenate((np.zeros(n_null), positive))
    residual = float(block.residuals[:n_checked].max(initial=null_residuals.max(initial=0.0)))
    return Spectrum(
        values=np.ldexp(values, exponent),
        vectors=vectors,
        residual=float(np.ldexp(residual, exponent)),
        converged=residual <= target,
    )


def _null_basis(laplacian: csr_array[Any], count: int, labels: NDArray[np.int64]) -> csr_array[Any]:
    """Orthonormal null vectors, one per component, as a sparse (n, count) matrix."""
    n = laplacian.shape[0]
    norms = np.sqrt(np.bincount(labels, minlength=count))
    index_dtype = laplacian.indices.dtype
    positions = labels.astype(index_dtype), np.arange(n + 1, dtype=index_dtype)
    return csr_array((1.0 / norms[labels], *positions), shape=(n, count))


def _dense_block(
    laplacian: csr_array[Any], null: csr_array[Any], n_rest: int, bound: float
) -> _RitzBlock:
    """Smallest n_rest eigenpairs beyond the null space, by a dense eigensolver."""
    # deflation: the eigenvalues of the null space are moved above the rest of the spectrum
    deflated = (laplacian + (2.0 * bound) * (null @ null.T)).toarray()
    try:
        values, vectors = scipy.linalg.eigh(deflated, subset_by_index=[0, n_rest - 1])
    except scipy.linalg.LinAlgError:  # it fails for some eigenvalues of high multiplicity
        vectors = scipy.linalg.eigh(deflated, driver="evd")[1][:, :n_rest]
    vectors = vectors - apply_sparse(null, apply_sparse(null.T, vectors))
    vectors = np.asarray(scipy.linalg.qr(vectors, mode="economic")[0])
    products = apply_sparse(laplacian, vectors)
    values = np.einsum("ij,ij->j", vectors, products)
    if np.any(np.diff(values) < 0):  # by rounding, where they are equal or below the precision of L
        order = np.argsort(values, kind="stable")
        values, vectors, products = values[order], vectors[:, order], products[:, order]
    residuals = np.linalg.norm(products - vectors * values, axis=0)
    return _RitzBlock(vectors, values, residuals)


@dataclass(frozen=True, slots=True)
class _RitzBlock:
    """Ritz pairs in the complement of the null space."""

    vectors: NDArray[np.float64]  # (n, p) orthonormal
    values: NDArray[np.float64]  # (p,) ascending
    residuals: NDArray[np.float64]  # (p,) ||L v - theta v||


def _filtered_block(  # noqa: PLR0913 - one problem and how well it is to be solved
    laplacian: csr_array[Any],
    null: csr_array[Any],
    warm_start: NDArray[Any] | None,
    n_rest: int,
    n_checked: int,
    *,
    bound: float,
    target: float,
    rng: np.random.Generator,
) -> _RitzBlock:
    """Smallest n_rest eigenpairs beyond the null space; residuals of the first meet `target`.

    At most n_rest columns of the block are from the warm start; the others are guards, which find
    directions that it lacks. A warm start that meets the target is returned at once if not all
    wanted pairs must meet it, although its guards are random.
    """
    n = laplacian.shape[0]
    n_block = min(n_rest + max(5, n_rest // 2), n - null.shape[1])
    # in a list, so that no other reference keeps columns alive while they are overwritten
    columns = [rng.standard_normal((n, n_block))]
    if warm_start is not None:
        lowest = _ritz_vectors_within(laplacian, null, warm_start)[:, :n_rest]
        columns[0][:, : lowest.shape[1]] = lowest
        del lowest  # as large as the block
    block = _rayleigh_ritz(laplacian, _orthonormal(null, columns.pop()))
    accept_start = warm_start is not None and n_checked < n_rest
    previous_cut = 0.0 if accept_start else np.inf
    for _ in range(_MAX_ROUNDS):
        cut = float(block.values[-1])
        settled = previous_cut - cut <= _MAX_CHANGE_OF_CUT * cut
        if settled and block.residuals[:n_checked].max() <= target:
            break
        previous_cut = cut
        done = np.zeros(len(block.values), dtype=bool)
        done[:n_checked] = block.residuals[:n_checked] <= _LOCK_SHARE * target
        degree, cut = choose_filter(
            block.values,
            block.residuals,
            n_checked,
            ~done,
            bound=bound,
            target=target,
            dtype=np.dtype(np.float64),
        )
        filtered = _chebyshev_filter(
            laplacian, block.vectors[:, ~done], degree, cut=cut, bound=bound
        )
        filtered /= np.linalg.norm(filtered, axis=0)
        columns.append(np.hstack((block.vectors[:, done], filtered)))
        del block, filtered  # as large as each of what follows
        block = _rayleigh_ritz(laplacian, _orthonormal(null, columns.pop()))
    return block


def _ritz_vectors_within(
    laplacian: csr_array[Any], null: csr_array[Any], given: NDArray[Any]
) -> NDArray[Any]:
    """Ritz vectors, lowest first, in the span of some columns outside the null space."""
    size = np.linalg.norm(given)
    outside = given - apply_sparse(null, apply_sparse(null.T, given))
    left, sizes, _ = scipy.linalg.svd(outside, full_matrices=False, overwrite_a=True)
    # null vectors among the columns vanish in the complement, up to rounding
    span: NDArray[Any] = left[:, sizes > _MIN_NORM_OUTSIDE_NULL * size]
    if not span.shape[1]:
        return span
    return _rayleigh_ritz(laplacian, _orthonormal(null, span)).vectors


def choose_filter(
    values: NDArray[np.float64],
    residuals: NDArray[np.floating[Any]],
    n_rest: int,
    active: NDArray[np.bool_],
    *,
    bound: float,
    target: float,
    dtype: np.dtype[Any],
) -> tuple[int, float]:
    """Degree of the filter, and where the damped interval [cut, bound] begins."""
    edge = float(values[n_rest - 1])
    rate_at_zero = max(_gain_rate(0.0, edge, bound), 1e-3) if edge > 0 else 1e-3
    gain = _LARGEST_GAIN[dtype]
    gain_at_zero = _LARGEST_GAIN_AT_ZERO[dtype]
    largest_degree = min(_LARGEST_DEGREE, np.log(2.0 * gain_at_zero) / rate_at_zero)
    # A cut at the last wanted value would not separate anything (an eigenvalue of higher
    # multiplicity than the block): keep it where the largest degree still gains tenfold.
    reach = (np.arccosh(10.0) / (2 * largest_degree)) ** 2
    cut = max(float(values[-1]), edge + reach * (bound - edge))
    cut = min(cut, 0.5 * (bound + edge))
    missing = max(float(residuals[:n_rest].max()) / target, 10.0)
    degree = min(
        np.log(4.0 * missing) / _gain_rate(edge, cut, bound),
        np.log(2.0 * gain) / _gain_rate(float(values[active][0]), cut, bound),
        np.log(2.0 * gain_at_zero) / _gain_rate(0.0, cut, bound),
        _LARGEST_DEGREE,
    )
    return max(2, int(np.ceil(degree))), cut


def _gain_rate(value: float, cut: float, bound: float) -> float:
    """Logarithm of the gain per degree of the Chebyshev filter at `value` < cut."""
    return float(np.arccosh((bound + cut - 2.0 * value) / (bound - cut)))


def _chebyshev_filter(
    laplacian: csr_array[Any],
    vectors: NDArray[Any],
    degree: int,
    *,
    cut: float,
    bound: float,
) -> NDArray[Any]:
    """T_degree(t(L)) vectors, with t mapping [cut, bound] to [-1, 1] and values below to t > 1."""
    half_width = 0.5 * (bound - cut)
    identity = eye_array(laplacian.shape[0], format="csr")
    doubled = (identity * (0.5 * (bound + cut)) - laplacian) * (2.0 / half_width)
    previous = vectors
    current = apply_sparse(doubled, vectors)
    current *= 0.5
    for _ in range(degree - 1):
        following = apply_sparse(doubled, current)
        following -= previous
        previous, current = current, following
    return current


def _rayleigh_ritz(laplacian: csr_array[Any], basis: NDArray[Any]) -> _RitzBlock:
    """Ritz pairs of L with residual norms in the span of orthonormal columns; overwrites them."""
    products = apply_sparse(laplacian, basis)
    projected = basis.T @ products
    values, rotation = scipy.linalg.eigh(0.5 * (projected + projected.T))
    vectors = basis @ rotation
    products = products @ rotation
    products -= np.multiply(vectors, values, out=basis)
    return _RitzBlock(vectors, values, np.linalg.norm(products, axis=0))


def _orthonormal(null: csr_array[Any], columns: NDArray[Any]) -> NDArray[Any]:
    """Orthonormal basis of the part of columns outside the null space; overwrites them."""
    columns -= apply_sparse(null, apply_sparse(null.T, columns))
    basis = np.asarray(
        scipy.linalg.qr(columns, mode="economic", overwrite_a=True, check_finite=False)[0]
    )
    del columns
    # second pass: a column nearly in the null space is mostly rounding after the first
    basis -= apply_sparse(null, apply_sparse(null.T, basis))
    return np.ascontiguousarray(
        scipy.linalg.qr(basis, mode="economic", overwrite_a=True, check_finite=False)[0]
    )


def apply_sparse(matrix: Any, columns: NDArray[Any]) -> NDArray[Any]:
    """Dense product of a sparse matrix and columns."""
    return np.asarray(matrix @ columns)
