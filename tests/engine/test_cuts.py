"""Cuts of a graph's spectrum, by 2c eigenpairs and by all; of some samples where rows are in blocks."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array

from mscam_dask.engine.row_blocks.tasks import drawn_minima, started_minima
from mscam_dask.engine.tasks import (
    GraphSpectrum,
    drawn_starts,
    first_cuts,
    minima,
    next_cuts,
)
from mscam_dask.linalg.eigensolver import bottom_eigenpairs
from mscam_dask.linalg.laplacian import laplacian
from mscam_dask.solvers.row_graph import (
    choose_cuts,
    cut_sample,
    extend_rows,
    join_partitions,
    sample_vectors,
)
from mscam_dask.solvers.spectral_cut import canonical_labels, spectral_cut, walk_embedding

SEED = 0


def spectrum(n_pairs: int, *, n: int = 200, c: int = 4, mixing: float = 0.02) -> GraphSpectrum:
    rng = np.random.default_rng(1)
    group = np.arange(n) % c
    near = np.where(group[:, None] == group, 0.3, mixing)
    affinity = np.triu(rng.random((n, n)) < near, 1) * rng.random((n, n))
    matrix = laplacian(csr_array(affinity + affinity.T))
    return GraphSpectrum(matrix, bottom_eigenpairs(matrix, n_pairs, rng=rng))


def by(given: GraphSpectrum, m: int) -> GraphSpectrum:
    pairs = given.spectrum
    fewer = dataclasses.replace(pairs, values=pairs.values[:m], vectors=pairs.vectors[:, :m])
    return GraphSpectrum(given.laplacian, fewer)


def blocked_cuts(
    given: GraphSpectrum, n_clusters: int, n_wanted: int, known: Any = None, *, random: bool = False
) -> list[Any]:
    """Cuts by three blocks of rows, of samples in reverse order."""
    vectors, n = given.vectors, len(given.vectors)
    edges = (0, n // 3, n // 2, n)
    n_pairs = vectors.shape[1]
    blocks = [vectors[a:b] for a, b in pairwise(edges)]
    samples = [
        sample_vectors(block, n_pairs, start, n, n_wanted)
        for block, start in zip(blocks, edges[:-1], strict=True)
    ]
    sample = cut_sample(samples, given.spectrum.values, n_clusters, n, n_wanted)
    order = np.arange(n, dtype=np.int32)[::-1]
    started = started_minima(sample, known, order)
    minima = [drawn_minima(sample, SEED, range(a, a + 5)) for a in (0, 5)] if random else []
    cuts = choose_cuts(sample, started, minima, all_minima=random)
    labels = [extend_rows(block, sample, cuts) for block in blocks]
    return join_partitions(labels, sample, cuts, order)


def first_cut(given: GraphSpectrum) -> Any:
    starts = [drawn_starts(given, 4, SEED, some) for some in (range(11), range(11, 30))]
    (cut,) = first_cuts(given, 4, starts)
    return cut


def test_the_cut_uses_all_pairs() -> None:
    given = spectrum(20, mixing=0.25)
    cut, of_few = first_cut(given), first_cut(by(given, 8))
    assert not np.array_equal(cut, of_few)
    assert_array_equal(np.unique(cut), np.arange(4))


@pytest.mark.parametrize("n_wanted", [40, 200])
@pytest.mark.parametrize("n_clusters", [4, 10])
def test_cuts_by_blocks_have_all_clusters(n_clusters: int, n_wanted: int) -> None:
    for cut in blocked_cuts(spectrum(2 * n_clusters, mixing=0.25), n_clusters, n_wanted):
        assert_array_equal(np.unique(cut), np.arange(n_clusters))


def test_cuts_by_blocks_of_all_samples_are_those_of_the_whole() -> None:
    given, known = spectrum(20, mixing=0.1), np.arange(200) % 4
    expected = next_cuts(given, 4, known)
    found = blocked_cuts(given, 4, 200, known[::-1])
    for cut, labels in zip(found, expected, strict=True):
        assert_array_equal(cut, canonical_labels(labels[::-1]))


def test_the_cut_is_that_of_the_walk_embedding() -> None:
    given = spectrum(20, mixing=0.25)
    cut = first_cut(given)
    embedding = walk_embedding(given.spectrum.values, given.vectors, 4)
    rng = np.random.default_rng(SEED)
    assert_array_equal(cut, spectral_cut(embedding, rng=rng)[0])


@pytest.mark.parametrize("n_wanted", [80, 200])
def test_clear_clusters_are_found_by_any(n_wanted: int) -> None:
    given, group = spectrum(20), np.arange(200) % 4
    cuts = [first_cut(given), *minima(given, 4, SEED)]
    cuts += next_cuts(given, 4, canonical_labels(group))
    of_blocks = blocked_cuts(given, 4, n_wanted, group[::-1], random=True)
    assert len(cuts) >= 3
    assert len(of_blocks) >= 3
    for cut in cuts:
        assert_array_equal(cut, group)
    for cut in of_blocks:
        assert_array_equal(cut, canonical_labels(group[::-1]))
