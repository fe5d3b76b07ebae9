"""Smallest eigenpairs of a graph Laplacian, and largest ones of a symmetric matrix.

A Laplacian in one block is solved by ARPACK outside of its null space. One whose rows are in several blocks is solved
from coarse to fine: the samples are aggregated, the small Laplacian of the aggregates is solved, and its eigenvectors
are prolonged to all samples. Rounds of a Chebyshev filter and Rayleigh-Ritz make them accurate. Each of these functions
is the work of one block, or of the small matrices (p, p) that are sums over blocks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from mscam_dask.errors import DataError
from mscam_dask.linalg.halos import Halo
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


# rows in blocks ----------------------------------------------------------------------------------


# Number of aggregates of the coarse problem, which is dense.
_MOST_AGGREGATES = 1024

# Residual relative to the largest eigenvalue; the spectral cut of a large graph needs no more: see
# docs/decisions/0075.
_TOLERANCE = 1e-4

# Relative change of the largest Ritz value of the block below which its columns have settled.
_MAX_CHANGE_OF_LAST = 0.1

_MAX_ROUNDS = 30

# Largest amplification of a direction by one filter, and of null vectors: the upper directions lose
# digits to rounding, which the next round restores.
_LARGEST_GAIN, _LARGEST_GAIN_AT_ZERO = 1e5, 1e9
_LARGEST_DEGREE = 300

# Eigenvalue of the Gram matrix of unit columns below which a direction is rounding.
_MIN_INDEPENDENT = 1e-5


@dataclasses.dataclass(frozen=True, slots=True)
class LaplacianRows:
    """Rows of a Laplacian L = D − (A + Aᵀ)/2."""

    matrix: csr_array[Any]  # (m, h), columns are the rows of the halo
    halo: Halo
    own: NDArray[np.int32]  # (m,) positions of the rows themselves in the halo
    largest_degree: float

    def apply(self, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Rows of L V (m, p) from the blocks of V that the halo names."""
        return np.asarray(self.matrix @ self.halo.gather(parts))


def aggregate_rows(
    points: NDArray[np.float32], components: NDArray[Any], n_samples: int
) -> NDArray[np.int32]:
    """Aggregate of each point (m, r) of a block, numbered from 0: near rows of one component (m,).

    An aggregate has samples of one component, so null vectors are exact. The number of aggregates
    is in proportion to `n_samples` of all blocks.
    """
    m = len(points)
    wanted = -(-m * min(_MOST_AGGREGATES, n_samples) // n_samples)
    if wanted >= m:
        return np.arange(m, dtype=np.int32)
    seeds = points[np.linspace(0, m - 1, wanted).astype(np.int64)]
    norms = np.einsum("ij,ij->i", seeds, seeds)
    nearest = np.argmin(norms - 2.0 * (points @ seeds.T), axis=1)
    _, aggregates = np.unique(np.stack([nearest, components], axis=1), axis=0, return_inverse=True)
    return aggregates.ravel().astype(np.int32)


def coarse_block(
    rows: LaplacianRows, own: NDArray[np.int32], others: Sequence[NDArray[np.int32]]
) -> csr_array[np.float64]:
    """Sum of the entries of L by aggregates: of the block's rows (m,), and of those of its halo."""
    columns = rows.halo.gather(others)
    n_own, n_columns = int(own.max()) + 1, int(columns.max()) + 1
    left = csr_array((np.ones(len(own)), (own, np.arange(len(own)))), shape=(n_own, len(own)))
    right = csr_array(
        (np.ones(len(columns)), (np.arange(len(columns)), columns)), shape=(len(columns), n_columns)
    )
    return csr_array(left @ (rows.matrix.astype(np.float64) @ right))


def coarse_vectors(
    blocks: Sequence[csr_array[np.float64]], aggregates: NDArray[np.int32], n_vectors: int
) -> NDArray[np.float32]:
    """Bottom eigenvectors of the Laplacian of the aggregates (n,), as values of their samples, (g, p), in single precision."""
    roots = np.sqrt(np.bincount(aggregates)).astype(np.float32)
    g = len(roots)
    total = np.zeros((g, g), dtype=np.float32)
    for block in blocks:
        entries = block.tocoo()
        total[entries.row, entries.col] += entries.data
    scaled = total / roots[:, None] / roots
    last = min(n_vectors, g) - 1
    _, vectors = scipy.linalg.eigh(0.5 * (scaled + scaled.T), subset_by_index=[0, last])
    return np.asarray(vectors / roots[:, None])


@dataclasses.dataclass(frozen=True, slots=True)
class RitzSums:
    """Sums over the rows of a block of columns V: VᵀV, VᵀLV, (LV)ᵀLV, and the largest degree."""

    products: NDArray[np.float64]
    largest_degree: float


def ritz_sums(rows: LaplacianRows, own: NDArray[Any], image: NDArray[Any]) -> RitzSums:
    """Sums of a block of rows of V (m, p) and LV (m, p)."""
    v, lv = own.astype(np.float64), image.astype(np.float64)
    return RitzSums(np.stack([v.T @ v, v.T @ lv, lv.T @ lv]), rows.largest_degree)


@dataclasses.dataclass(frozen=True, slots=True)
class RitzPairs:
    """Ritz pairs in the span of columns V."""

    rotation: NDArray[np.float64]  # (p, q): V times it are the orthonormal Ritz vectors
    values: NDArray[np.float64]  # (q,) ascending, ≥ 0
    residuals: NDArray[np.float64]  # (q,) ‖L v − θ v‖
    bound: float  # upper bound of the eigenvalues of L

    def converged(self, n_accurate: int) -> bool:
        """Whether the first pairs are accurate."""
        return bool(np.all(self.residuals[:n_accurate] <= _TOLERANCE * self.bound))

    def settled(self, before: RitzPairs | None) -> bool:
        """Whether the last Ritz value changed little, so that the columns miss no eigenvector."""
        return before is not None and bool(
            before.values[-1] - self.values[-1] <= _MAX_CHANGE_OF_LAST * self.values[-1]
        )


def ritz_pairs(sums: Sequence[RitzSums]) -> RitzPairs:
    """Solve the Rayleigh-Ritz problem from sums over blocks; dependent columns are dropped."""
    gram, energy, squares = sum((one.products for one in sums[1:]), sums[0].products)
    lengths = np.sqrt(np.maximum(np.diag(gram), np.finfo(np.float64).tiny))
    unit = gram / lengths[:, None] / lengths
    if not np.isfinite(unit).all():
        raise DataError(
            "the eigenvectors of the graph are not finite: check the weights of the graph."
        )
    sizes, span = scipy.linalg.eigh(0.5 * (unit + unit.T))
    kept = sizes > _MIN_INDEPENDENT
    basis = span[:, kept] / np.sqrt(sizes[kept]) / lengths[:, None]
    projected = basis.T @ energy @ basis
    values, rotation = scipy.linalg.eigh(0.5 * (projected + projected.T))
    rotation = basis @ rotation
    squared = np.einsum("ij,ik,kj->j", rotation, squares, rotation) - values**2
    bound = 2.0 * max(one.largest_degree for one in sums)
    return RitzPairs(rotation, np.maximum(values, 0.0), np.sqrt(np.maximum(squared, 0.0)), bound)


@dataclasses.dataclass(frozen=True, slots=True)
class Filter:
    """Chebyshev filter that damps the eigenvalues of an interval."""

    degree: int
    center: float  # of the interval
    factor: float  # two over half its length


def next_filter(
    found: RitzPairs,
    before: RitzPairs | None,
    n_accurate: int,
    n_rounds: int,
    *,
    n_null: int,
    warm: bool,
) -> Filter | None:
    """Filter of the next round; None if the pairs are accurate, or after the last round.

    A `warm` start that is accurate needs no round. After a coarse start the columns must have
    settled, unless all accurate pairs are null vectors, which a coarse start has exactly: then one
    round does.
    """
    known = n_null >= n_accurate and n_rounds > 0
    done = found.converged(n_accurate) and (warm or known or found.settled(before))
    if done or n_rounds >= _MAX_ROUNDS or found.bound == 0:
        return None
    return _filter(found, n_accurate)


def _filter(found: RitzPairs, n_accurate: int) -> Filter:
    """Filter that damps eigenvalues above those of the block, with a degree from the gap below them."""
    values, bound = found.values, found.bound
    edge = float(values[n_accurate - 1])
    gain, gain_at_zero = np.log(2.0 * _LARGEST_GAIN), np.log(2.0 * _LARGEST_GAIN_AT_ZERO)
    rate_at_zero = max(_gain_rate(0.0, edge, bound), 1e-3) if edge > 0 else 1e-3
    largest_degree = min(_LARGEST_DEGREE, gain_at_zero / rate_at_zero)
    # A cut at the last wanted value would not separate anything (an eigenvalue of higher
    # multiplicity than the block): keep it where the largest degree still gains tenfold.
    reach = (np.arccosh(10.0) / (2 * largest_degree)) ** 2
    cut = max(float(values[-1]), edge + reach * (bound - edge))
    cut = min(cut, 0.5 * (bound + edge))
    missing = max(float(found.residuals[:n_accurate].max()) / (_TOLERANCE * bound), 10.0)
    degree = min(
        np.log(4.0 * missing) / _gain_rate(edge, cut, bound),
        gain / _gain_rate(float(values[0]), cut, bound),
        gain_at_zero / _gain_rate(0.0, cut, bound),
        _LARGEST_DEGREE,
    )
    return Filter(max(2, int(np.ceil(degree))), 0.5 * (bound + cut), 4.0 / (bound - cut))


def _gain_rate(value: float, cut: float, bound: float) -> float:
    """Logarithm of the gain per degree of the Chebyshev filter at `value` < cut."""
    return float(np.arccosh((bound + cut - 2.0 * value) / (bound - cut)))


def filter_first(
    own: NDArray[np.float32], image: NDArray[np.float32], found: RitzPairs, polynomial: Filter
) -> NDArray[np.float32]:
    """First step of the filter on the Ritz vectors of a block, from V and LV: no product with L."""
    rotation = found.rotation.astype(np.float32)
    scale = np.float32(0.5 * polynomial.factor)
    return np.asarray((np.float32(polynomial.center) * own - image) @ (rotation * scale))


def filter_next(
    rows: LaplacianRows,
    previous: NDArray[np.float32],
    current: Sequence[NDArray[np.float32]],
    polynomial: Filter,
) -> NDArray[np.float32]:
    """Next step of the filter on a block, from its last but one step and the halo of the last."""
    gathered = rows.halo.gather(current)
    following = np.asarray(rows.matrix @ gathered)
    following *= np.float32(-polynomial.factor)
    following += np.float32(polynomial.factor * polynomial.center) * gathered[rows.own]
    following -= previous
    return following
