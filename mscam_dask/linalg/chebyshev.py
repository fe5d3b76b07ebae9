"""Chebyshev-filtered subspace iteration for the bottom of a Laplacian's spectrum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array

__all__ = ["RitzBlock", "apply_sparse", "filtered_subspace_iteration", "start_block"]

# By the type of L. One filter amplifies no direction by more than this: what the block then
# loses of its upper directions to rounding is gained back in the next round.
_LARGEST_GAIN = {np.dtype(np.float64): 1e10, np.dtype(np.float32): 1e5}
# Null vectors and finished pairs are orthogonal to what is filtered only to rounding, and
# are amplified most: not beyond what one more orthogonalisation removes.
_LARGEST_GAIN_AT_ZERO = {np.dtype(np.float64): 1e20, np.dtype(np.float32): 1e9}
# By the type of L: a direction of a warm start that is shorter than this has vanished.
_VANISHED = {np.dtype(np.float64): 1e-6, np.dtype(np.float32): 1e-4}
_LARGEST_DEGREE = 300
# Random guard vectors must have settled (to this relative change of the cut) before
# convergence is believed: they are what finds an eigenvector a warm start had missed.
_SETTLED = 0.1
# Wanted pairs this far below the tolerance are no longer filtered, only kept.
_LOCK_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class RitzBlock:
    """Ritz pairs in the complement of the null space.

    Attributes
    ----------
    vectors : array of shape (n, p)
        Orthonormal, of the type of L.
    values : array of shape (p,)
        Ascending.
    residuals : array of shape (p,)
        ||L v - theta v|| of each pair.
    n_matvecs : int
        Products of L with one vector that were spent on it.
    """

    vectors: NDArray[Any]
    values: NDArray[np.float64]
    residuals: NDArray[np.floating[Any]]
    n_matvecs: int


def start_block(
    laplacian: csr_array[Any],
    null: csr_array[Any],
    warm_start: NDArray[Any] | None,
    *,
    n_rest: int,
    n_block: int,
    rng: np.random.Generator,
) -> RitzBlock:
    """First block: the lowest part of what the warm start spans, then random vectors.

    Parameters
    ----------
    laplacian : csr_array of shape (n, n)
    null : csr_array of shape (n, count)
        Orthonormal null vectors; the block is orthogonal to them.
    warm_start : array of shape (n, q) or None
        At most n_rest directions of its span are taken: the other n_block - n_rest
        columns stay random, to find what it lacks.
    n_rest, n_block : int
        Wanted pairs, and columns of the block, n_rest <= n_block <= n - count.
    rng : numpy.random.Generator
    """
    start = rng.standard_normal((laplacian.shape[0], n_block), dtype=laplacian.dtype.type)
    n_matvecs = n_block
    if warm_start is not None:
        lowest = _ritz_vectors_within(laplacian, null, warm_start)
        n_matvecs += lowest.shape[1]
        n_given = min(n_rest, lowest.shape[1])
        start[:, :n_given] = lowest[:, :n_given]
        del lowest  # as large as the block
    block = _rayleigh_ritz(laplacian, _orthonormal(null, start))
    return RitzBlock(block.vectors, block.values, block.residuals, n_matvecs)


def _ritz_vectors_within(
    laplacian: csr_array[Any], null: csr_array[Any], given: NDArray[Any]
) -> NDArray[Any]:
    """Ritz vectors, lowest first, in the span of some columns outside the null space."""
    given = given.astype(laplacian.dtype, copy=False)
    size = np.linalg.norm(given)
    outside = given - apply_sparse(null, apply_sparse(null.T, given))
    left, sizes, _ = scipy.linalg.svd(outside, full_matrices=False, overwrite_a=True)
    # null vectors among the columns vanish in the complement, up to rounding
    span: NDArray[Any] = left[:, sizes > _VANISHED[laplacian.dtype] * size]
    if not span.shape[1]:
        return span
    return _rayleigh_ritz(laplacian, _orthonormal(null, span)).vectors


def filtered_subspace_iteration(  # noqa: PLR0913 - one problem and how well it is to be solved
    laplacian: csr_array[Any],
    null: csr_array[Any],
    start: RitzBlock,
    n_rest: int,
    *,
    bound: float,
    target: float,
    max_rounds: int,
    trusted: bool = False,
) -> RitzBlock:
    """Filter and Rayleigh-Ritz until the `n_rest` lowest residuals meet `target`.

    Parameters
    ----------
    laplacian : csr_array of shape (n, n)
    null : csr_array of shape (n, count)
        Orthonormal null vectors, kept out of the block.
    start : RitzBlock
        From `start_block`.
    n_rest : int
        Wanted pairs; the remaining columns are guards.
    bound : float
        Not below the largest eigenvalue of L.
    target : float
        Residual norm asked for.
    max_rounds : int
        The best block so far is returned after this many rounds.
    trusted : bool
        A start that meets the target already is the answer, though its guards are random.
    """
    block, n_matvecs = start, start.n_matvecs
    del start
    previous_cut = 0.0 if trusted else np.inf
    for _ in range(max_rounds):
        cut = float(block.values[-1])
        settled = previous_cut - cut <= _SETTLED * cut
        if settled and block.residuals[:n_rest].max() <= target:
            break
        previous_cut = cut
        done = np.zeros(len(block.values), dtype=bool)
        done[:n_rest] = block.residuals[:n_rest] <= _LOCK_SHARE * target
        degree, cut = _choose_filter(block, n_rest, ~done, bound=bound, target=target)
        # in a list, so that nothing else holds them where they are overwritten and lost
        columns = [_filtered(laplacian, block.vectors, done, degree, cut=cut, bound=bound)]
        del block  # as large as each of what follows
        block = _rayleigh_ritz(laplacian, _orthonormal(null, columns.pop()))
        n_matvecs += degree * int(np.count_nonzero(~done)) + len(done)
    return RitzBlock(block.vectors, block.values, block.residuals, n_matvecs)


def _filtered(
    laplacian: csr_array[Any],
    vectors: NDArray[Any],
    done: NDArray[np.bool_],
    degree: int,
    *,
    cut: float,
    bound: float,
) -> NDArray[Any]:
    """The columns that are done, then the others filtered and brought to unit length."""
    filtered = _chebyshev_filter(laplacian, vectors[:, ~done], degree, cut=cut, bound=bound)
    filtered /= np.linalg.norm(filtered, axis=0)
    return np.hstack((vectors[:, done], filtered))


def _choose_filter(
    block: RitzBlock, n_rest: int, active: NDArray[np.bool_], *, bound: float, target: float
) -> tuple[int, float]:
    """Degree of the filter, and where the damped interval [cut, bound] begins."""
    values, residuals = block.values, block.residuals
    edge = float(values[n_rest - 1])
    rate_at_zero = max(_gain_rate(0.0, edge, bound), 1e-3) if edge > 0 else 1e-3
    gain = _LARGEST_GAIN[block.vectors.dtype]
    gain_at_zero = _LARGEST_GAIN_AT_ZERO[block.vectors.dtype]
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
    doubled = _shifted(laplacian, 0.5 * (bound + cut), 2.0 / half_width)
    previous = vectors
    current = apply_sparse(doubled, vectors)
    current *= 0.5
    for _ in range(degree - 1):
        following = apply_sparse(doubled, current)
        following -= previous
        previous, current = current, following
    return current


def _shifted(laplacian: csr_array[Any], center: float, factor: float) -> csr_array[Any]:
    """factor (center I − L), with the indices of L where every diagonal entry is stored."""
    n = laplacian.shape[0]
    rows = np.repeat(np.arange(n, dtype=laplacian.indices.dtype), np.diff(laplacian.indptr))
    diagonal = np.flatnonzero(laplacian.indices == rows)
    if len(diagonal) < n:  # an isolated vertex has none
        identity = eye_array(n, format="csr", dtype=laplacian.dtype)
        return csr_array((identity * center - laplacian) * factor)
    data = -laplacian.data
    data[diagonal] += center
    data *= factor
    return csr_array((data, laplacian.indices, laplacian.indptr), shape=laplacian.shape)


def _rayleigh_ritz(laplacian: csr_array[Any], basis: NDArray[Any]) -> RitzBlock:
    """Ritz pairs of L in the span of orthonormal columns, which are lost, with residual norms."""
    products = apply_sparse(laplacian, basis)
    projected = np.asarray(basis.T @ products, dtype=np.float64)
    values, rotation = scipy.linalg.eigh(0.5 * (projected + projected.T))
    rotation = rotation.astype(basis.dtype, copy=False)
    vectors = basis @ rotation
    products = products @ rotation
    products -= np.multiply(vectors, values.astype(basis.dtype, copy=False), out=basis)
    return RitzBlock(vectors, values, np.linalg.norm(products, axis=0), 0)


def _orthonormal(null: csr_array[Any], columns: NDArray[Any]) -> NDArray[Any]:
    """Orthonormal basis of the columns' part orthogonal to the null vectors; columns are lost."""
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
    """The dense product of a sparse matrix with columns."""
    return np.asarray(matrix @ columns)
