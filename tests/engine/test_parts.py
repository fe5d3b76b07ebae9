"""Steps of a fit in parts: cuts, candidates, sums and scores do not depend on the tasks."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.neighbors import kneighbors_graph

from mscam_dask.engine import neighbors
from mscam_dask.engine.blocks import Stage, View
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.engine.graph import extended_labels
from mscam_dask.engine.scores import partition_scores, score_partitions
from mscam_dask.engine.spectrum import started_minima
from mscam_dask.linalg.eigensolver import Spectrum, bottom_eigenpairs
from mscam_dask.linalg.laplacian import laplacian
from mscam_dask.solvers.graph_update import (
    CandidateEdges,
    GraphRows,
    candidate_neighbors,
    projected_distances,
)
from mscam_dask.solvers.known_labels import n_missed
from mscam_dask.solvers.partition_score import ReferenceGraphs
from mscam_dask.solvers.predict import extend_labels
from mscam_dask.solvers.ridge_view import joint_embedding
from mscam_dask.solvers.row_blocks import added
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
from mscam_dask.types.parameters import Parameters
from tests.solvers.whole_rows import prepared
from tests.synthetic import Array

SEED = 0
N_SAMPLES = 200


def spectrum(mixing: float) -> Spectrum:
    rng = np.random.default_rng(1)
    group = np.arange(N_SAMPLES) % 4
    near = np.where(group[:, None] == group, 0.3, mixing)
    affinity = np.triu(rng.random(near.shape) < near, 1) * rng.random(near.shape)
    return bottom_eigenpairs(laplacian(csr_array(affinity + affinity.T)), 20, rng=rng)


def cuts_of(
    given: Spectrum,
    *,
    edges: tuple[int, ...] = (0, N_SAMPLES),
    known: Any = None,
    all_minima: bool = False,
) -> list[Any]:
    """Cuts by blocks of rows, of samples in reverse order."""
    n, n_pairs = given.vectors.shape
    blocks = [given.vectors[a:b] for a, b in pairwise(edges)]
    samples = [
        sample_vectors(block, n_pairs, start, n, n)
        for block, start in zip(blocks, edges[:-1], strict=True)
    ]
    sample = cut_sample(samples, given.values, 4, n, n)
    order = np.arange(n, dtype=np.int32)[::-1]
    started = started_minima(sample, known, order)
    drawn = int(np.random.default_rng(SEED).integers(2**31))
    halves = (range(15), range(15, 30))
    minima = [random_minima(sample.embedding, drawn, starts) for starts in halves]
    cuts = choose_cuts(sample, started, minima, all_minima)
    labels = [extend_rows(block, sample, cuts) for block in blocks]
    return join_partitions(labels, sample, cuts, order)


@pytest.mark.parametrize("all_minima", [False, True])
def test_cuts_do_not_depend_on_the_blocks(all_minima: bool) -> None:
    given, known = spectrum(mixing=0.1), np.arange(N_SAMPLES) % 4
    whole, of_blocks = (
        cuts_of(given, edges=edges, known=known, all_minima=all_minima)
        for edges in ((0, N_SAMPLES), (0, 66, 100, N_SAMPLES))
    )
    assert len(whole) == len(of_blocks) >= 2
    for cut, expected in zip(of_blocks, whole, strict=True):
        assert_array_equal(cut, expected)


def test_the_cut_is_that_of_the_walk_embedding() -> None:
    given = spectrum(mixing=0.25)
    (cut,) = cuts_of(given)
    embedding = walk_embedding(given.values, given.vectors, 4)
    drawn = int(np.random.default_rng(SEED).integers(2**31))
    minima = [start_minima(embedding, None)[0], *random_minima(embedding, drawn)]
    expected, _ = min(minima, key=lambda minimum: minimum[1])
    assert_array_equal(cut, canonical_labels(expected[::-1]))


@pytest.mark.parametrize("n_views", [1, 20])
def test_bits_do_not_depend_on_the_tasks(n_views: int) -> None:
    n, rng = 700, np.random.default_rng(0)
    points = rng.standard_normal((n, 6)).round(1)  # some distances are tied
    points[1::7] = points[::7]
    others = [points + 0.1 * rng.standard_normal(points.shape) for _ in range(n_views - 1)]
    views = [prepared(rows, scale="none") for rows in (points, *others)]
    executor = SerialExecutor()
    stage = Stage(executor, "k")
    handles = [stage.submit(copy.copy, view) for view in views]
    of_one_block = [View((handle,), handle) for handle in handles]
    _, candidates = neighbors.ordered_candidates(
        stage, of_one_block, ((0, n),), Parameters(n_clusters=2, n_candidates=50)
    )
    assert candidates.links == ((0,),) * len(candidates.parts)
    found = executor.gather(candidates.parts)
    whole = candidate_neighbors(joint_embedding(views), 50, 0, n)
    assert_array_equal(np.concatenate([part.indices for part in found]), whole.indices)
    squared = np.concatenate([part.squared_distances for part in found])
    assert_array_equal(squared, whole.squared_distances)
    assert [part.row_start for part in found] == [start for start, _ in neighbors.row_parts(n)]


def level_by_level(terms: list[Array]) -> Array:
    """Level by level, the odd one carried to the next level."""
    while len(terms) > 1:
        pairs = [terms[i] + terms[i + 1] for i in range(0, len(terms) - 1, 2)]
        terms = pairs + terms[len(terms) - len(terms) % 2 :]
    return terms[0]


@pytest.mark.parametrize("n_terms", [1, 2, 3, 5, 6, 7, 16, 17, 40, 56, 257])
def test_groups_of_sixteen_are_subtrees_of_one_tree(n_terms: int) -> None:
    rng = np.random.default_rng(n_terms)
    terms = [rng.standard_normal(4) * 10.0 ** rng.integers(-8, 8) for _ in range(n_terms)]
    groups = [added(terms[i : i + 16]) for i in range(0, n_terms, 16)]
    while len(groups) > 1:
        groups = [added(groups[i : i + 16]) for i in range(0, len(groups), 16)]
    np.testing.assert_array_equal(added(terms), level_by_level(list(terms)))
    np.testing.assert_array_equal(groups[0], added(terms))


@pytest.mark.parametrize("n", [30, 150_000])  # all five at once, and at most three
def test_views_side_by_side_have_the_sum_of_their_distances(n: int) -> None:
    c, start = 4, 10
    rng = np.random.default_rng(5)
    embeddings = [rng.standard_normal((n, c)) for _ in range(5)]
    embeddings[3][::4] = np.nan  # absent samples
    factors = [1.0, 0.2, 1.0, 3.0, 1.0]
    indices = rng.integers(-1, n, (8, 6))
    part = CandidateEdges(start, indices, np.zeros(indices.shape))
    own = np.arange(start, start + 8)[:, None]
    by_view = [
        np.where(indices < 0, 0.0, factor * np.sum((one[own] - one[indices]) ** 2, axis=2))
        for one, factor in zip(embeddings, factors, strict=True)
    ]
    found = projected_distances([[one] for one in embeddings], factors, part, ((0, n),))
    expected = sum(np.nan_to_num(one) for one in by_view)
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    by_blocks = [[one[:14], one[14:]] for one in embeddings]
    of_blocks = projected_distances(by_blocks, factors, part, ((0, 14), (14, n)))
    np.testing.assert_allclose(of_blocks, expected, rtol=1e-13)


def random_view(n: int, rng: np.random.Generator) -> ReferenceGraphs:
    """A tenth of all edges, with any weights."""
    affinity = np.triu(rng.random((n, n)) < 0.1, 1) * rng.random((n, n))
    return ReferenceGraphs((csr_array(affinity + affinity.T),))


@pytest.mark.parametrize("rows", [None, np.arange(0, 120, 2)])
def test_equal_partitions_have_equal_scores_in_any_grouping(rows: NDArray[np.int64] | None) -> None:
    rng = np.random.default_rng(0)
    views = [random_view(120 if rows is None else len(rows), rng) for _ in range(2)]
    one, other = (rng.integers(0, 3, 120) for _ in range(2))
    cuts = [one, other, one.copy(), one]
    judged = score_partitions(views, cuts, rows)
    for of_view, view in zip(judged, views, strict=True):
        (first,), (second,) = (
            score_partitions([view], [labels], rows)[0] for labels in (one, other)
        )
        assert of_view == [first, second, first, first]
    scores = partition_scores([judged], cuts, None)
    assert scores == partition_scores([[judged[0]], [judged[1]]], cuts, None)
    known = np.where(np.arange(120) < 60, one, -1)
    counted = partition_scores([judged], cuts, known)
    assert [score.n_missed for score in counted] == [0, n_missed(other, known), 0, 0]


def test_labels_of_a_sample_are_extended_by_the_walks_from_all_around() -> None:
    rng = np.random.default_rng(0)
    true = np.arange(2000) % 2
    points = rng.normal(size=(2000, 20))
    points[:, 0] += 4.0 * true
    affinity = csr_array(kneighbors_graph(points, 20) / 20.0)
    # the best border of the two, known for a tenth
    best = (points[:, 0] > 2.0).astype(np.int64)
    known = np.where(rng.random(2000) < 0.1, best, -1)
    blocks = [GraphRows(0, affinity[:900]), GraphRows(900, affinity[900:])]
    found = extended_labels(blocks, np.arange(2000, dtype=np.int32), known, 2)
    assert_array_equal(found[known >= 0], known[known >= 0])
    by_rounds = extend_labels([affinity], known, 2)
    assert np.mean(found != best) < 0.7 * np.mean(by_rounds != best)
