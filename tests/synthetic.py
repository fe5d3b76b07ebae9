"""Small data sets with a known structure, and their arrays in other forms."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from mscam_dask.data.datasets import subspace_mixture
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.pipeline.doctor import violations
from mscam_dask.solvers.spectral_cut import canonical_labels
from mscam_dask.types.result import Solution

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


def gaussian_views(
    seed: int,
    *,
    n_samples: int = 150,
    n_clusters: int = 3,
    spread: float = 1.0,
    dims: Sequence[int] = (5, 12, 30),
) -> tuple[list[Array], Labels]:
    """Views of isotropic clusters of unit variance whose centres have variance `spread`²."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n_samples) % n_clusters)
    views = [
        rng.standard_normal((n_samples, d)) + spread * rng.standard_normal((n_clusters, d))[labels]
        for d in dims
    ]
    return views, labels


def three_subspaces(n_samples: int = 60, *, seed: int = 0) -> MultiViewData:
    """Three well separated clusters in two views of 5 and 8 columns, with labels."""
    return subspace_mixture(n_samples, 3, (5, 8), rng=np.random.default_rng(seed))


def two_subspaces() -> MultiViewData:
    """40 samples of two well separated clusters in two views of 4 and 5 columns, with labels."""
    return subspace_mixture(40, 2, (4, 5), rng=np.random.default_rng(0))


def values_of(data: MultiViewData) -> dict[str, Array]:
    """Every view whole, by name."""
    return {view.name: view.read(0, data.n_samples) for view in data.views}


def save_npz(file: Path, data: MultiViewData) -> None:
    """The views by name, and the labels, as the reader of .npz files takes them."""
    np.savez(file, allow_pickle=False, labels=np.asarray(data.labels), **values_of(data))


def distances_between(rows: Array) -> Array:
    """Euclidean distances of rows, (n, n), by differences: symmetric, exactly zero diagonal."""
    return np.asarray(np.sqrt(np.sum((rows[:, None] - rows[None]) ** 2, axis=2)))


def assert_partition_and_graph_agree(solution: Solution, *, n_clusters: int) -> None:
    """What every solution of the reduced solver promises, by definition."""
    A = solution.consensus_graph
    n = A.shape[0]
    labels = solution.labels
    assert labels.shape == (n,)
    assert labels.dtype == np.int64
    np.testing.assert_array_equal(labels, canonical_labels(labels))
    np.testing.assert_array_equal(np.unique(labels), np.arange(n_clusters))
    promised = violations(solution)
    assert not promised, promised
    edges = A.copy()
    edges.eliminate_zeros()
    pieces = connected_components(edges, directed=False)[1].astype(np.int64)
    np.testing.assert_array_equal(canonical_labels(pieces), labels)
    assert solution.n_connected_components == n_clusters
    # rows on the simplex, a sample alone in its cluster excepted
    assert A.shape == (n, n)
    assert np.all(A.data >= 0)
    np.testing.assert_array_equal(A.diagonal(), 0.0)
    alone = np.bincount(labels)[labels] == 1
    np.testing.assert_allclose(A.sum(axis=1), np.where(alone, 0.0, 1.0), atol=1e-12)
    # the rest of the record
    assert np.isfinite(solution.score)
    np.testing.assert_allclose(sum(solution.view_contributions.values()), 1.0)
    assert all(share >= 0 for share in solution.view_contributions.values())
    assert [record.iteration for record in solution.history] == list(range(len(solution.history)))
    for embedding in solution.view_embeddings.values():
        assert embedding.shape[0] == n
        absent = np.isnan(embedding).all(axis=1)  # from the view
        assert np.isfinite(embedding[~absent]).all()
