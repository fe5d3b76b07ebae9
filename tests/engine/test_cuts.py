"""Cuts of a graph's spectrum, by 2c eigenpairs and by all, of all samples or of some; their scores."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array

from mscam_dask.engine.tasks import judge
from mscam_dask.engine.tasks.cuts import first_cuts, minima, next_cuts
from mscam_dask.engine.tasks.graph import GraphSpectrum
from mscam_dask.engine.tasks.judge import score_partitions, verdicts
from mscam_dask.kernels.laplacian import laplacian
from mscam_dask.kernels.spectrum import bottom_eigenpairs
from mscam_dask.solvers.embedding import walk_embedding
from mscam_dask.solvers.neutral import NeutralView, view_evidence
from mscam_dask.solvers.partition import canonical_labels, cut_embedding

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


@pytest.mark.parametrize("n_cut", [0, 80])
def test_cut_by_twice_the_clusters_and_by_all(n_cut: int) -> None:
    given = spectrum(20, mixing=0.25)
    few, many = first_cuts(given, 4, SEED, n_cut)
    (of_few,) = first_cuts(by(given, 8), 4, SEED, n_cut)
    assert_array_equal(few, of_few)
    assert not np.array_equal(few, many)
    for cut in (few, many):
        assert_array_equal(np.unique(cut), np.arange(4))


@pytest.mark.parametrize("n_clusters", [10, 60])
def test_more_clusters_than_samples_to_cut(n_clusters: int) -> None:
    """Four samples are cut for each cluster, of all samples where these are fewer."""
    for cut in first_cuts(spectrum(2 * n_clusters), n_clusters, SEED, 8):
        assert_array_equal(np.unique(cut), np.arange(n_clusters))


def test_the_second_cut_is_that_of_all_pairs() -> None:
    given = spectrum(20, mixing=0.25)
    _, many = first_cuts(given, 4, SEED)
    rng = np.random.default_rng(SEED)
    rng.integers(2**31)  # the first cut's
    embedding = walk_embedding(given.spectrum.values, given.vectors, 4)
    assert_array_equal(many, cut_embedding(embedding, rng=rng)[0])


@pytest.mark.parametrize("n_pairs", [3, 5, 8])
def test_no_more_than_twice_the_clusters_are_cut_once(n_pairs: int) -> None:
    assert len(first_cuts(spectrum(n_pairs), 4 if n_pairs > 4 else 2, SEED)) == 1


@pytest.mark.parametrize("n_cut", [0, 80])
def test_clear_clusters_are_found_by_any(n_cut: int) -> None:
    given, group = spectrum(20), np.arange(200) % 4
    cuts = [*first_cuts(given, 4, SEED, n_cut), *minima(given, 4, SEED, n_cut)]
    cuts += next_cuts(given, 4, canonical_labels(group), n_cut)
    assert len(cuts) >= 6
    for cut in cuts:
        assert_array_equal(cut, group)


def random_view(n: int, rng: np.random.Generator) -> NeutralView:
    """A tenth of all edges, with any weights."""
    affinity = np.triu(rng.random((n, n)) < 0.1, 1) * rng.random((n, n))
    return NeutralView((csr_array(affinity + affinity.T),))


@pytest.mark.parametrize("n_judged", [0, 50])
def test_equal_partitions_are_scored_once(n_judged: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    views = [random_view(n_judged or 120, rng) for _ in range(2)]
    one, other = (rng.integers(0, 3, 120) for _ in range(2))
    asked: list[int] = []

    def counted(view: NeutralView, partitions: list[np.ndarray], rows: slice) -> Any:
        asked.append(len(partitions))
        return view_evidence(view, partitions, rows)

    monkeypatch.setattr(judge, "view_evidence", counted)
    cuts = [one, other, one.copy(), one]
    judged = score_partitions(views, cuts, n_judged)
    assert asked == [2, 2]
    for of_view, view in zip(judged.scores, views, strict=True):
        (first,), (second,) = (
            score_partitions([view], [labels], n_judged).scores[0] for labels in (one, other)
        )
        assert of_view == [first, second, first, first]
    told = verdicts(cuts, [judged], n_judged)
    assert told[0] == told[2] == told[3] != told[1]


@pytest.mark.parametrize("most_told", [2**20, 160])
@pytest.mark.parametrize("n_judged", [0, 50])
def test_what_all_views_tell_is_the_same_however_they_are_grouped(
    n_judged: int, most_told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "MOST_TOLD", most_told)
    rng = np.random.default_rng(1)
    n = n_judged or 120
    views = [random_view(n, rng) for _ in range(5)]
    cuts = [rng.integers(0, 4, 120) for _ in range(3)]
    (whole, in_twos, backwards) = (
        verdicts(cuts, [score_partitions(some, cuts, n_judged) for some in groups], n_judged)
        for groups in ([views], [views[:2], views[2:4], views[4:]], [views[::-1]])
    )
    told = score_partitions(views, cuts, n_judged).evidence
    assert {one.shape for one in told} == {(min(n, most_told // 4), 4)}
    for one, other, third in zip(whole, in_twos, backwards, strict=True):
        assert one[0] == other[0] == third[0][::-1]
        assert one[1] == other[1] == third[1]
        assert one[2] == pytest.approx(other[2], abs=1e-6) == pytest.approx(third[2], abs=1e-6)
