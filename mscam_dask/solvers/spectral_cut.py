"""Spectral cuts of a graph: spectral embedding, by random walks with restart, and k-means on it.

Of rows in blocks, a sample is cut, and the other rows follow by the nearest mean. A cut by the classes of known samples
has their mean rows as centers.

k-means is the computation of scikit-learn's `KMeans.fit` without the estimator, each run of which an autologger
(MLflow) would log as a model of its own.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.cluster.hierarchy
import scipy.linalg
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

from mscam_dask.linalg.distances import sums_by_group
from mscam_dask.solvers.known_labels import clusters_of_classes
from mscam_dask.types.rules import CONSTANTS, RULES, SIZES

_SQUARES = operator.itemgetter(1)


def canonical_labels(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Labels renumbered 0, 1, … by first appearance."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return np.asarray(rank[inverse.ravel()], dtype=np.int64)


def joined_groups(
    labels: NDArray[np.int64], groups: NDArray[np.int64], n_clusters: int
) -> NDArray[np.int64]:
    """Labels with the most frequent cluster for each group (−1: none); as they are if a cluster would be left empty.

    A cluster that would lose all its samples first gets the group with most of them.
    """
    rows = np.flatnonzero(groups >= 0)
    counts = np.zeros((int(groups.max()) + 1, n_clusters), dtype=np.int64)
    np.add.at(counts, (groups[rows], labels[rows]), 1)
    of_group = counts.argmax(axis=1)
    joined = labels.copy()
    for _ in range(n_clusters):
        joined[rows] = of_group[groups[rows]]
        empty = np.flatnonzero(np.bincount(joined, minlength=n_clusters) == 0)
        if not empty.size:
            return joined
        of_group[counts[:, empty[0]].argmax()] = empty[0]
    return labels


Minimum = tuple[NDArray[np.int64], float]
"""Partition at a local minimum of k-means, and its sum of squares."""


def random_minima(
    embedding: SpectralEmbedding, seed: int, starts: range = range(SIZES.n_random_starts)
) -> list[Minimum]:
    """Local minima of k-means from some of the thirty random starts of a seed; from Ward's merges where n < 2c."""
    vectors, rows = _in_double(embedding)
    c = vectors.shape[1]
    # by leverage, which is invariant under rotations: the order of the samples does not matter
    order = np.argsort(np.linalg.norm(vectors, axis=1), kind="stable")
    ordered = rows[order]
    if len(rows) < 2 * c:
        return [_in_data_order(order, ordered, *_merged(ordered, c), c)]
    seeds = np.random.RandomState(seed).randint(2**31 - 1, size=SIZES.n_random_starts)
    return [
        _in_data_order(order, ordered, *k_means_starts(ordered, c, seeds[start], 1)[0], c)
        for start in starts
    ]


def near_optimal_partitions(minima: list[Minimum]) -> list[NDArray[np.int64]]:
    """Distinct partitions with at most `RULES.near_optimal` times the least squares, best first, `SIZES.max_cuts` at most."""
    found: dict[bytes, Minimum] = {}
    for minimum in minima:
        found.setdefault(minimum[0].tobytes(), minimum)
    best = sorted(found.values(), key=_SQUARES)[: SIZES.max_cuts]
    return [labels for labels, squares in best if squares <= RULES.near_optimal * best[0][1]]


def start_minima(
    embedding: SpectralEmbedding, init_labels: NDArray[np.int64] | None
) -> tuple[Minimum, Minimum | None]:
    """Local minima of k-means from the pivoted-QR assignment, and from an earlier partition (n,) if any.

    Pivoted QR of Vᵀ selects c mutually most independent samples as prototypes, in any basis of span(V). The rows of V
    are not scaled to unit length, which would tie all of them for the first pivot. No cluster is empty.

    A. Damle, V. Minden, L. Ying, doi:10.1093/imaiai/iay008.
    """
    vectors, rows = _in_double(embedding)
    c = vectors.shape[1]
    from_labels = None if init_labels is None else _lloyd(rows, init_labels, c)
    return _lloyd(rows, _qr_assignment(vectors), c), from_labels


def cluster_means(embedding: SpectralEmbedding, labels: NDArray[np.int64]) -> NDArray[Any]:
    """Mean row (c, m) of each cluster, in the precision of the embedding."""
    rows, c = embedding.rows, embedding.vectors.shape[1]
    sums = sums_by_group(rows, labels, c)
    return np.asarray((sums / np.bincount(labels, minlength=c)[:, None]).astype(rows.dtype))


def nearest_mean(rows: NDArray[Any], means: NDArray[Any]) -> NDArray[np.int64]:
    """Cluster with the nearest mean for each row."""
    nearest = np.argmin(np.sum(means**2, axis=1) - 2.0 * (rows @ means.T), axis=1)
    return np.asarray(nearest, dtype=np.int64)


def sampled_rows(n_samples: int, n_wanted: int) -> NDArray[np.int64]:
    """Ascending rows of a random sample without replacement, which depends on these numbers."""
    rng = np.random.default_rng((n_samples, n_wanted))
    return np.sort(rng.choice(n_samples, min(n_wanted, n_samples), replace=False)).astype(np.int64)


def extend_cut(
    embedding: SpectralEmbedding, samples: NDArray[np.int64], labels: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Extend a cut (m,) of some rows of an embedding to all (n,), by the nearest cluster mean."""
    rows, c = embedding.rows, embedding.vectors.shape[1]
    nearest = nearest_mean(rows, cluster_means(embedding.of(samples), labels))
    return canonical_labels(_fill_empty(rows, nearest, c))


def _in_double(embedding: SpectralEmbedding) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.asarray(embedding.vectors, np.float64), np.asarray(embedding.rows, np.float64)


def _in_data_order(
    order: NDArray[np.intp],
    ordered: NDArray[np.float64],
    found: NDArray[np.int64],
    squares: float,
    n_clusters: int,
) -> Minimum:
    """Minimum of ordered rows in the order of the data, without empty clusters."""
    labels = np.empty(len(ordered), dtype=np.int64)
    labels[order] = canonical_labels(_fill_empty(ordered, found, n_clusters))
    return canonical_labels(labels), squares


def _merged(ordered: NDArray[np.float64], n_clusters: int) -> Minimum:
    """Partition, and its sum of squares, that Lloyd's iterations reach from Ward's merges."""
    start = np.arange(len(ordered))
    if len(ordered) > n_clusters:
        tree = scipy.cluster.hierarchy.linkage(pdist(ordered), method="ward")
        start = scipy.cluster.hierarchy.cut_tree(tree, [n_clusters])[:, 0].astype(np.int64)
    return _lloyd(ordered, start, n_clusters)


def _qr_assignment(rows: NDArray[np.float64]) -> NDArray[np.int64]:
    c = rows.shape[1]
    _, _, pivots = scipy.linalg.qr(rows.T, mode="economic", pivoting=True)
    prototypes = rows[pivots[:c]]
    left, _, right = scipy.linalg.svd(prototypes.T, full_matrices=False)
    return np.asarray(np.argmax(np.abs(rows @ (left @ right)), axis=1), dtype=np.int64)


def _lloyd(rows: NDArray[np.float64], start: NDArray[np.int64], n_clusters: int) -> Minimum:
    """Partition that Lloyd's iterations reach from an assignment, and its sum of squares."""
    start = _fill_empty(rows, start, n_clusters)
    centers = np.stack([rows[start == cluster].mean(axis=0) for cluster in range(n_clusters)])
    mean = rows.mean(axis=0)
    labels, squares = _iterate(np.ascontiguousarray(rows - mean), centers - mean)
    return canonical_labels(_fill_empty(rows, labels, n_clusters)), squares


def _fill_empty(
    rows: NDArray[np.float64], labels: NDArray[np.int64], n_clusters: int
) -> NDArray[np.int64]:
    """Give each empty cluster the sample farthest from its own centroid, largest cluster first."""
    labels = labels.copy()
    for empty in np.flatnonzero(np.bincount(labels, minlength=n_clusters) == 0):
        largest = np.argmax(np.bincount(labels, minlength=n_clusters))
        members = np.flatnonzero(labels == largest)
        offsets = rows[members] - rows[members].mean(axis=0)
        labels[members[np.argmax(np.sum(offsets**2, axis=1))]] = empty
    return labels


@dataclasses.dataclass(frozen=True, slots=True)
class SpectralEmbedding:
    """Samples as points for k-means."""

    vectors: NDArray[Any]  # (n, c) orthonormal bottom eigenvectors
    rows: NDArray[Any]  # (n, m) points of unit length, or zero

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
    """Spectral embedding from bottom eigenpairs (m,), (n, m) of L: unit rows of τ (L + τI)⁻¹ = τ V (Λ + τI)⁻¹ Vᵀ.

    Row i has the probabilities of where a random walk from i, which stops at rate τ, ends: two samples of a cluster
    have nearly equal rows. They are expressed in the basis V, centered (by the `mean` of all rows, if `vectors` has
    some), and scaled to unit length. With τ = λ_{c+1} / 2 a walk seldom stops before it has mixed within its cluster,
    and seldom leaves it.

    L. Yen, F. Fouss, C. Decaestecker, P. Francq, M. Saerens, doi:10.1016/j.datak.2008.10.006.
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


# cuts by a sample of the rows --------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class CutSample:
    """Sample of a spectral embedding for k-means."""

    embedding: SpectralEmbedding
    positions: NDArray[np.int64]  # (m,) of its rows
    values: NDArray[np.float64]  # (q,) eigenvalues
    mean: NDArray[Any]  # (q,) mean row of all eigenvectors

    def rows(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """Spectral embedding of any rows of the eigenvectors."""
        n_clusters = self.embedding.vectors.shape[1]
        vectors = vectors[:, : len(self.values)]
        return walk_embedding(self.values, vectors, n_clusters, mean=self.mean).rows


@dataclasses.dataclass(frozen=True, slots=True)
class KnownRows:
    """Rows (l, q) of the eigenvectors with a known label, these labels, and the samples of the rows."""

    vectors: NDArray[Any]
    labels: NDArray[np.int64]
    samples: NDArray[np.int64]


def known_rows(
    vectors: NDArray[Any],
    n_pairs: int,
    start: int,
    order: NDArray[np.int32],
    known: NDArray[np.int64],
) -> KnownRows:
    """Rows with a known label in a block of the first eigenvectors."""
    samples = order[start : start + len(vectors)].astype(np.int64)
    mine = np.flatnonzero(known[samples] >= 0)
    return KnownRows(vectors[mine, :n_pairs], known[samples[mine]], samples[mine])


def join_known(blocks: Sequence[KnownRows]) -> KnownRows:
    """Rows with a known label in all blocks."""
    return KnownRows(
        np.concatenate([block.vectors for block in blocks]),
        np.concatenate([block.labels for block in blocks]),
        np.concatenate([block.samples for block in blocks]),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Cuts:
    """Partitions of a sample (m,) and the means (c, q) of their clusters."""

    labels: list[NDArray[np.int64]]
    means: list[NDArray[Any]]
    # Samples (l,) with a known label, and their clusters in the last cut
    held_out: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def with_classes(self, sample: CutSample, known: KnownRows) -> Cuts:
        """Cuts, and one by the mean rows of the known classes, in the place of those of the first cut."""
        found = cut_by_classes(
            sample.embedding.rows, self.means[0], sample.rows(known.vectors), known.labels
        )
        if found is None:
            return self
        labels, clusters, means = found
        means = means.astype(sample.embedding.rows.dtype)
        return Cuts([*self.labels, labels], [*self.means, means], (known.samples, clusters))


def sample_vectors(
    vectors: NDArray[Any], n_pairs: int, start: int, n_samples: int, n_wanted: int
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Sampled rows (m, q) of the first eigenvectors in a block, and the sum (q,) of all its rows."""
    positions = sampled_rows(n_samples, n_wanted) - start
    mine = positions[(positions >= 0) & (positions < len(vectors))]
    used = vectors[:, :n_pairs]
    return used[mine], used.sum(axis=0, dtype=np.float64)


def cut_sample(
    samples: Sequence[tuple[NDArray[Any], NDArray[np.float64]]],
    values: NDArray[np.float64],
    n_clusters: int,
    n_samples: int,
    n_wanted: int,
) -> CutSample:
    """Sample of the spectral embedding from the samples of all blocks."""
    vectors = np.concatenate([rows for rows, _ in samples])
    mean = (np.sum([total for _, total in samples], axis=0) / n_samples).astype(vectors.dtype)
    values = values[: vectors.shape[1]]
    embedding = walk_embedding(values, vectors, n_clusters, mean=mean)
    return CutSample(embedding, sampled_rows(n_samples, n_wanted), values, mean)


def choose_cuts(
    sample: CutSample,
    started: tuple[Minimum, Minimum | None] | None,
    random: Sequence[list[Minimum]],
    all_minima: bool,  # noqa: FBT001 - tasks take positions
    known: KnownRows | None = None,
) -> Cuts:
    """Partitions among the local minima of k-means on a sample.

    With `all_minima` the good minima of the random starts; then the one from the earlier partition, and the least of
    all (with `all_minima`, of the pivoted-QR assignment), if `started` has them; and the one by the classes of known rows.
    """
    drawn = [minimum for group in random for minimum in group]
    chosen = near_optimal_partitions(drawn) if all_minima else []
    if started is not None:
        least, from_earlier = started
        if not all_minima:
            least = min([least, *drawn], key=lambda minimum: minimum[1])
        chosen += [least[0]] if from_earlier is None else [from_earlier[0], least[0]]
    cuts = Cuts(chosen, [cluster_means(sample.embedding, labels) for labels in chosen])
    return cuts if known is None else cuts.with_classes(sample, known)


def extend_rows(vectors: NDArray[Any], sample: CutSample, cuts: Cuts) -> NDArray[np.int32]:
    """Each partition (p, m) on a block of rows, by the nearest mean."""
    rows = sample.rows(vectors)
    return np.stack([nearest_mean(rows, means) for means in cuts.means]).astype(np.int32)


def join_partitions(
    blocks: Sequence[NDArray[np.int32]], sample: CutSample, cuts: Cuts, order: NDArray[np.int32]
) -> list[NDArray[np.int32]]:
    """Partitions (n,) in the order of the samples from blocks of rows; rows of the sample keep their cluster, so none is empty."""
    partitions = []
    for number, labels in enumerate(cuts.labels):
        joined = np.concatenate([block[number] for block in blocks])
        joined[sample.positions] = labels
        own = np.empty_like(joined)
        own[order] = joined
        partitions.append(own)
    if cuts.held_out is not None:
        samples, clusters = cuts.held_out
        partitions[-1][samples] = clusters
    return [canonical_labels(own).astype(np.int32) for own in partitions]


def cut_by_classes(
    rows: NDArray[np.float64],
    means: NDArray[np.float64],
    known_rows: NDArray[np.float64],
    known: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]] | None:
    """Nearest class mean: labels of rows (m, p) and of known rows (l, p), and unit means (c, p).

    The mean of the known rows of a class takes the place of that of the cluster that is matched with it. A known row is
    compared with the mean of the others of its class, so that known samples in other clusters estimate the error. None
    if a cluster is left empty.
    """
    n_clusters, n_classes = len(means), int(known.max()) + 1
    nearest = nearest_mean(known_rows, means)
    clusters = clusters_of_classes(nearest, known, n_clusters)
    sums = sums_by_group(known_rows, known, n_classes)
    means = _unit(means)
    means[clusters] = _unit(sums)
    labels = nearest_mean(rows, means)
    scores = known_rows @ means.T
    others = _unit(sums[known] - known_rows)  # zero for the only one of its class
    scores[np.arange(len(known)), clusters[known]] = np.einsum("ij,ij->i", known_rows, others)
    held_out = np.asarray(scores.argmax(axis=1), dtype=np.int64)
    empty = np.bincount(np.concatenate([labels, held_out]), minlength=n_clusters) == 0
    kept = empty[clusters[known]]
    held_out[kept] = clusters[known[kept]]
    if len(np.unique(np.concatenate([labels, held_out]))) < n_clusters:
        return None
    return labels, held_out, means


def _unit(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Rows scaled to unit length, or zero."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0.0, lengths, 1.0), dtype=np.float64)


# k-means -----------------------------------------------------------------------------------------


_MAX_ITERATIONS = 100


def k_means_starts(
    rows: NDArray[np.float64], n_clusters: int, seed: int, n_starts: int
) -> list[Minimum]:
    """Local minima of k-means, and sums of squares, from k-means++ starts; clusters may be empty where rows are equal.

    Those of ``KMeans(n_clusters, n_init=n_starts, max_iter=100, tol=0.0, random_state=seed)``.
    """
    from sklearn.cluster import kmeans_plusplus  # 0.2 s of the import of the package

    rng = np.random.RandomState(seed)
    centered = np.ascontiguousarray(rows - rows.mean(axis=0))
    norms = np.einsum("ij,ij->i", centered, centered)
    found = []
    for _ in range(n_starts):
        start = kmeans_plusplus(centered, n_clusters, x_squared_norms=norms, random_state=rng)[0]
        found.append(_iterate(centered, start))
    return found


def k_means(rows: NDArray[np.float64], n_clusters: int, n_starts: int) -> NDArray[np.int64]:
    """Labels of k-means; the order of the rows does not matter."""
    order = np.lexsort((rows[:, 0], np.einsum("ij,ij->i", rows, rows)))
    labels = np.empty(len(rows), dtype=np.int64)
    labels[order] = min(k_means_starts(rows[order], n_clusters, 0, n_starts), key=_SQUARES)[0]
    return labels


def _iterate(rows: NDArray[np.float64], centers: NDArray[np.float64]) -> Minimum:
    """Partition (n,) of centered rows that Lloyd's iterations reach from centers (c, d), and its sum of squares."""
    from sklearn.cluster._kmeans import _kmeans_single_lloyd
    from sklearn.utils._openmp_helpers import _openmp_effective_n_threads

    labels, squares, _, _ = _kmeans_single_lloyd(
        rows,
        np.ones(len(rows)),
        np.ascontiguousarray(centers),
        max_iter=_MAX_ITERATIONS,
        tol=0.0,
        n_threads=_openmp_effective_n_threads(),
    )
    return labels.astype(np.int64), float(squares)
