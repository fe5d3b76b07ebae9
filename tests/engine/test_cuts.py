"""Cuts of a graph's spectrum, by 2c eigenpairs and by all, of all samples or of some."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array

from mscam_dask.engine.tasks.graph import GraphSpectrum
from mscam_dask.engine.tasks.spectral_cut import first_cuts, minima, next_cuts
from mscam_dask.linalg.eigensolver import bottom_eigenpairs
from mscam_dask.linalg.laplacian import laplacian
from mscam_dask.solvers.spectral_cut import canonical_labels, spectral_cut
from mscam_dask.solvers.spectral_embedding import walk_embedding

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


@pytest.mark.parametrize("n_samples_cut", [0, 80])
def test_the_cut_uses_all_pairs(n_samples_cut: int) -> None:
    given = spectrum(20, mixing=0.25)
    (cut,) = first_cuts(given, 4, SEED, n_samples_cut)
    (of_few,) = first_cuts(by(given, 8), 4, SEED, n_samples_cut)
    assert not np.array_equal(cut, of_few)
    assert_array_equal(np.unique(cut), np.arange(4))


@pytest.mark.parametrize("n_clusters", [10, 60])
def test_more_clusters_than_samples_to_cut(n_clusters: int) -> None:
    """Four samples are cut for each cluster, of all samples where these are fewer."""
    for cut in first_cuts(spectrum(2 * n_clusters), n_clusters, SEED, 8):
        assert_array_equal(np.unique(cut), np.arange(n_clusters))


def test_the_cut_is_that_of_the_walk_embedding() -> None:
    given = spectrum(20, mixing=0.25)
    (cut,) = first_cuts(given, 4, SEED)
    embedding = walk_embedding(given.spectrum.values, given.vectors, 4)
    rng = np.random.default_rng(SEED)
    assert_array_equal(cut, spectral_cut(embedding, rng=rng)[0])


@pytest.mark.parametrize("n_samples_cut", [0, 80])
def test_clear_clusters_are_found_by_any(n_samples_cut: int) -> None:
    given, group = spectrum(20), np.arange(200) % 4
    cuts = [*first_cuts(given, 4, SEED, n_samples_cut), *minima(given, 4, SEED, n_samples_cut)]
    cuts += next_cuts(given, 4, canonical_labels(group), n_samples_cut)
    assert len(cuts) >= 3
    for cut in cuts:
        assert_array_equal(cut, group)
