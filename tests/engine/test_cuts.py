"""Cuts of a graph's spectrum, by 2c eigenpairs and by all; of some samples where rows are in blocks."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array

from mscam_dask.engine.spectrum import started_minima
from mscam_dask.linalg.eigensolver import Spectrum, bottom_eigenpairs
from mscam_dask.linalg.laplacian import laplacian
from mscam_dask.solvers.spectral_cut import (
    canonical_labels,
    choose_cuts,
    cut_sample,
    extend_rows,
    join_partitions,
    random_minima,
    sample_vectors,
    start_minima,
    walk_embedding,
)

SEED = 0


def spectrum(n_pairs: int, *, n: int = 200, c: int = 4, mixing: float = 0.02) -> Spectrum:
    rng = np.random.default_rng(1)
    group = np.arange(n) % c
    near = np.where(group[:, None] == group, 0.3, mixing)
    affinity = np.triu(rng.random((n, n)) < near, 1) * rng.random((n, n))
    matrix = laplacian(csr_array(affinity + affinity.T))
    return bottom_eigenpairs(matrix, n_pairs, rng=rng)


def cuts_of(
    given: Spectrum,
    n_clusters: int,
    *,
    n_wanted: int | None = None,
    n_pairs: int | None = None,
    edges: tuple[int, ...] = (),
    known: Any = None,
    random: bool = False,
    all_minima: bool = False,
) -> list[Any]:
    """Cuts by blocks of rows, of samples in reverse order."""
    n = len(given.vectors)
    n_wanted, n_pairs = n_wanted or n, n_pairs or given.vectors.shape[1]
    edges = edges or (0, n)
    blocks = [given.vectors[a:b] for a, b in pairwise(edges)]
    samples = [
        sample_vectors(block, n_pairs, start, n, n_wanted)
        for block, start in zip(blocks, edges[:-1], strict=True)
    ]
    sample = cut_sample(samples, given.values, n_clusters, n, n_wanted)
    order = np.arange(n, dtype=np.int32)[::-1]
    started = started_minima(sample, known, order)
    drawn = int(np.random.default_rng(SEED).integers(2**31))
    halves = (range(15), range(15, 30)) if random else ()
    minima = [random_minima(sample.embedding, drawn, starts) for starts in halves]
    cuts = choose_cuts(sample, started, minima, all_minima)
    labels = [extend_rows(block, sample, cuts) for block in blocks]
    return join_partitions(labels, sample, cuts, order)


BLOCKS = (0, 66, 100, 200)


@pytest.mark.parametrize("all_minima", [False, True])
def test_cuts_do_not_depend_on_the_blocks(all_minima: bool) -> None:
    given, known = spectrum(20, mixing=0.1), np.arange(200) % 4
    whole, of_blocks = (
        cuts_of(given, 4, edges=edges, known=known, random=True, all_minima=all_minima)
        for edges in ((), BLOCKS)
    )
    assert len(whole) == len(of_blocks) >= 2
    for cut, expected in zip(of_blocks, whole, strict=True):
        assert_array_equal(cut, expected)


def test_the_cut_is_that_of_the_walk_embedding() -> None:
    given = spectrum(20, mixing=0.25)
    (cut,) = cuts_of(given, 4, random=True)
    embedding = walk_embedding(given.values, given.vectors, 4)
    drawn = int(np.random.default_rng(SEED).integers(2**31))
    minima = [start_minima(embedding, None)[0], *random_minima(embedding, drawn)]
    expected, _ = min(minima, key=lambda minimum: minimum[1])
    assert_array_equal(cut, canonical_labels(expected[::-1]))
