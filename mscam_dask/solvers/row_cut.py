"""Spectral cuts of a graph whose eigenvectors are in blocks of rows: k-means on a sample, then by block."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.solvers.spectral_cut import (
    Minimum,
    SpectralEmbedding,
    as_good_minima,
    canonical_labels,
    cluster_means,
    nearest_mean,
    spread_rows,
    walk_embedding,
)

__all__ = [
    "CutSample",
    "Cuts",
    "VectorSample",
    "choose_cuts",
    "cut_sample",
    "extend_rows",
    "join_partitions",
    "sample_vectors",
]


@dataclasses.dataclass(frozen=True, slots=True)
class VectorSample:
    """Some rows (m, q) of the eigenvectors in a block, and the sum (q,) of all its rows."""

    rows: NDArray[Any]
    total: NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True)
class CutSample:
    """Sample of a spectral embedding for k-means.

    Attributes
    ----------
    embedding : SpectralEmbedding
    positions : (m,)
        Positions of its rows.
    values, mean : (q,)
        Eigenvalues, and mean row of all eigenvectors.
    """

    embedding: SpectralEmbedding
    positions: NDArray[np.int64]
    values: NDArray[np.float64]
    mean: NDArray[Any]

    def rows(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """Spectral embedding of any rows of the eigenvectors."""
        n_clusters = self.embedding.vectors.shape[1]
        vectors = vectors[:, : len(self.values)]
        return walk_embedding(self.values, vectors, n_clusters, mean=self.mean).rows


@dataclasses.dataclass(frozen=True, slots=True)
class Cuts:
    """Partitions of a sample (m,) and the means (c, q) of their clusters."""

    labels: list[NDArray[np.int64]]
    means: list[NDArray[Any]]


def sample_vectors(
    vectors: NDArray[Any], n_pairs: int, start: int, n_samples: int, n_wanted: int
) -> VectorSample:
    """Evenly spaced rows of the first eigenvectors in a block."""
    positions = spread_rows(n_samples, n_wanted) - start
    mine = positions[(positions >= 0) & (positions < len(vectors))]
    used = vectors[:, :n_pairs]
    return VectorSample(used[mine], used.sum(axis=0, dtype=np.float64))


def cut_sample(
    samples: Sequence[VectorSample],
    values: NDArray[np.float64],
    n_clusters: int,
    n_samples: int,
    n_wanted: int,
) -> CutSample:
    """Sample of the spectral embedding from the samples of all blocks."""
    vectors = np.concatenate([one.rows for one in samples])
    total = sum((one.total for one in samples[1:]), samples[0].total)
    mean = (total / n_samples).astype(vectors.dtype)
    values = values[: vectors.shape[1]]
    embedding = walk_embedding(values, vectors, n_clusters, mean=mean)
    return CutSample(embedding, spread_rows(n_samples, n_wanted), values, mean)


def choose_cuts(
    sample: CutSample,
    started: tuple[Minimum, Minimum | None] | None,
    random: Sequence[list[Minimum]],
    *,
    all_minima: bool,
) -> Cuts:
    """Partitions of the sample among the local minima of k-means.

    Parameters
    ----------
    sample : CutSample
    started : (Minimum, Minimum or None) or None
        From the pivoted-QR assignment, and from an earlier partition.
    random : sequence of list of Minimum
        From random starts.
    all_minima : bool
        All good minima of the random starts, instead of the least of these and the pivoted-QR one.

    Returns
    -------
    Cuts
        The good minima, the one from the earlier partition, and the least.
    """
    drawn = [minimum for group in random for minimum in group]
    chosen = as_good_minima(drawn) if all_minima else []
    if started is not None:
        least, from_known = started
        if not all_minima:
            least = min([least, *drawn], key=lambda minimum: minimum[1])
        chosen += [least[0]] if from_known is None else [from_known[0], least[0]]
    return Cuts(chosen, [cluster_means(sample.embedding, labels) for labels in chosen])


def extend_rows(vectors: NDArray[Any], sample: CutSample, cuts: Cuts) -> NDArray[np.int32]:
    """Each partition (p, m) on a block of rows, by the nearest mean."""
    rows = sample.rows(vectors)
    return np.stack([nearest_mean(rows, means) for means in cuts.means]).astype(np.int32)


def join_partitions(
    blocks: Sequence[NDArray[np.int32]], sample: CutSample, cuts: Cuts, order: NDArray[np.int32]
) -> list[NDArray[np.int32]]:
    """Partitions of all samples in their own order (n,), from blocks of rows in another order.

    Rows of the sample keep their cluster, so no cluster is empty.
    """
    partitions = []
    for number, labels in enumerate(cuts.labels):
        joined = np.concatenate([block[number] for block in blocks])
        joined[sample.positions] = labels
        own = np.empty_like(joined)
        own[order] = joined
        partitions.append(canonical_labels(own).astype(np.int32))
    return partitions
