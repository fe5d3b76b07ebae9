"""The limit step: exactly the given clusters as components, whatever they look like."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from mscam_dask.linalg.distances import WeightedBlocks, as_weighted_blocks
from mscam_dask.linalg.incomplete import as_incomplete_blocks, with_finite_distances
from mscam_dask.solvers import partition_graph as module
from mscam_dask.solvers.graph_update import (
    CandidateEdges,
    Components,
    GraphRows,
    candidate_neighbors,
    components_of_forests,
    spanning_forest,
    whole_graph,
)
from mscam_dask.solvers.partition_graph import (
    bridge_ends,
    bridges,
    cluster_rows,
    points_at,
    pool_members,
    with_bridges,
)
from mscam_dask.solvers.spectral_cut import canonical_labels, sampled_rows
from tests import oracle
from tests.synthetic import Array, Labels


def bridged(
    rows: list[GraphRows], parts: list[Any], ranges: list[tuple[int, int]], labels: Labels, k: int
) -> tuple[csr_array[np.float64], Labels, Components]:
    """Connect the components of each cluster, as the engine does: graph, ends and components."""
    n = len(labels)
    components = components_of_forests([spanning_forest(block) for block in rows], n)
    ends = bridge_ends(components, labels)
    if ends.size:
        found = [points_at(part, a, ends) for part, (a, _) in zip(parts, ranges, strict=True)]
        edges = bridges(ends, found, components, labels)
        rows = [with_bridges(block, edges, labels, k) for block in rows]
        components = components_of_forests([spanning_forest(block) for block in rows], n)
    return whole_graph(rows, np.arange(n, dtype=np.int32)), ends, components


def partition_graph(points: Any, labels: Labels, k: int) -> csr_array[np.float64]:
    """Partition graph of one block."""
    if isinstance(points, np.ndarray):
        points = as_weighted_blocks(points)
    rows = cluster_rows(points, labels, k)
    return bridged([rows], [points], [(0, len(labels))], labels, k)[0]


def assert_closed_around(graph: csr_array[np.float64], labels: Labels) -> None:
    """Components are the clusters; rows are on the simplex, empty for a sample alone."""
    A = graph.toarray()
    count, components = connected_components(A > 0, directed=True, connection="weak")
    assert count == len(np.unique(labels))
    assert_array_equal(canonical_labels(components.astype(np.int64)), canonical_labels(labels))
    assert np.all(A >= 0)
    assert_array_equal(np.diag(A), 0.0)
    alone = np.bincount(labels)[labels] == 1
    assert_allclose(A.sum(axis=1), np.where(alone, 0.0, 1.0), atol=1e-12)
    assert graph.has_sorted_indices


@st.composite
def clusterings(draw: st.DrawFn) -> tuple[Array, Labels, int]:
    """Points with duplicates and huge gaps, and labels that have nothing to do with them."""
    n = draw(st.integers(1, 25))
    values = st.sampled_from([0.0, 0.5, 1.0, 1.0 + 1e-12, -3.0, 1e6, 1e-9])
    embedding = draw(hnp.arrays(np.float64, (n, draw(st.integers(1, 3))), elements=values))
    labels = draw(hnp.arrays(np.int64, n, elements=st.integers(0, n - 1)))
    return embedding, canonical_labels(labels), draw(st.integers(1, 12))


@given(clusterings())
@settings(max_examples=80)
def test_components_are_exactly_the_clusters(problem: tuple[Array, Labels, int]) -> None:
    embedding, labels, k = problem
    assert_closed_around(partition_graph(embedding, labels, k), labels)


def far_groups(seed: int, n: int) -> tuple[Array, Labels]:
    """Points in distant groups of unequal sizes, exact in single precision, and the groups."""
    rng = np.random.default_rng(seed)
    groups = np.sort(rng.integers(0, 4, n) * rng.integers(0, 2, n))
    points = rng.standard_normal((n, 2)) + rng.permutation(50)[groups][:, None] * [20.0, 0.0]
    order = rng.permutation(n)
    return points[order].astype(np.float32).astype(np.float64), groups[order]


@given(st.integers(0, 2**16), st.integers(1, 12))
@settings(max_examples=30)
def test_rows_of_incomplete_views_are_those_of_the_shared_views(seed: int, k: int) -> None:
    n = 30
    views = [far_groups(seed + number, n)[0] for number in range(2)]
    rng = np.random.default_rng(seed)
    for view, other in (views, views[::-1]):
        view[(rng.random(n) < 0.3) & ~np.isnan(other[:, 0])] = np.nan
    points = as_incomplete_blocks(views)
    everyone = np.arange(n)
    labels = canonical_labels(rng.integers(0, 2, n))
    distances = points.distances(everyone, everyone)
    for cluster in (0, 1):
        own = np.ix_(labels == cluster, labels == cluster)
        sizes = np.count_nonzero(np.isfinite(distances[own]), axis=1) - 1
        assume(np.all(sizes > k))  # of samples without a common view, any may be chosen
    finite = with_finite_distances(distances)
    rows = oracle.partition_graph(finite, labels, k, np.isfinite(distances))
    graph = partition_graph(points, labels, k)
    assert_closed_around(graph, labels)
    expected = oracle.bridged(distances, rows, labels, k)
    assume(not np.diag(expected).any())  # components without a common view may be joined anywhere
    assert_allclose(graph.toarray(), expected, atol=1e-8)


# -- Rows in blocks ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Blocked:
    """Partition graph of blocks of rows, and the steps that lead to it."""

    pool: Labels
    pool_points: Array
    rows: Array
    ends: Labels
    affinity: Array
    components: Components


def some_candidates(points: Array, n_candidates: int, seed: int = 0) -> Labels:
    """Candidates of every row at random, some absent: a search that is limited may miss the nearest."""
    rng = np.random.default_rng(seed)
    n = len(points)
    shifts = [rng.permutation(n - 1)[:n_candidates] + 1 for _ in range(n)]
    found = np.asarray((np.arange(n)[:, None] + shifts) % n)
    return np.where(rng.random(found.shape) < 0.1, -1, found)


def blocked(points: Array, labels: Labels, k: int, candidates: Labels, n_rows: int) -> Blocked:
    """Every step by blocks of `n_rows`, as the engine takes it."""
    n = len(points)
    ranges = [(start, min(start + n_rows, n)) for start in range(0, n, n_rows)]
    parts = [
        WeightedBlocks((0.5 * points[a:b],), (np.full(points.shape[1], 4.0),)) for a, b in ranges
    ]
    pool = pool_members(parts[0], labels, k)
    pooled = np.concatenate(
        [points_at(part, a, pool) for part, (a, _) in zip(parts, ranges, strict=True)]
    )
    distances = np.take_along_axis(oracle.pair_distances(points), candidates, axis=1)
    rows = [
        cluster_rows(
            part, labels, k, pool, pooled, CandidateEdges(a, candidates[a:b], distances[a:b])
        )
        for part, (a, b) in zip(parts, ranges, strict=True)
    ]
    before = whole_graph(rows, np.arange(n, dtype=np.int32)).toarray()
    graph, ends, components = bridged(rows, parts, ranges, labels, k)
    return Blocked(pool, pooled, before, ends, graph.toarray(), components)


@given(
    st.tuples(st.integers(0, 2**16), st.integers(2, 60), st.integers(1, 9), st.integers(1, 5)),
    st.integers(5, 40),
    st.sampled_from([(4, 2**24), (8, 2**24), (16, 2**24), (4096, 2**24), (4096, 40)]),
    st.sampled_from([3, 20, 59]),
)
@settings(max_examples=40)
def test_blocks_of_rows_select_from_candidates_and_the_pool(
    problem: tuple[int, int, int, int], n_rows: int, bounds: tuple[int, int], n_candidates: int
) -> None:
    seed, n, k, n_clusters = problem
    points, groups = far_groups(seed, n)
    rng = np.random.default_rng(seed)
    labels = canonical_labels(groups % n_clusters if seed % 2 else rng.integers(0, n_clusters, n))
    candidates = some_candidates(points, min(n_candidates, n - 1), seed)
    most_pooled = min(bounds[0], bounds[1] // (2 * len(np.unique(labels))))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "_MAX_POOLED", bounds[0])
        patched.setattr(module, "_POOL_ENTRIES", bounds[1])
        found = blocked(points, labels, k, candidates, n_rows)
    distances = oracle.pair_distances(points)

    is_pooled = np.isin(np.arange(n), found.pool)
    assert_array_equal(found.pool, np.flatnonzero(is_pooled))
    assert_allclose(found.pool_points, points[is_pooled], rtol=1e-6)
    allowed = np.zeros((n, n), dtype=np.bool_)
    starts, columns = np.nonzero(candidates >= 0)
    allowed[starts, candidates[starts, columns]] = True
    allowed &= labels[:, None] == labels
    for cluster, size in enumerate(np.bincount(labels)):
        at = np.flatnonzero(is_pooled[labels == cluster])
        assert_array_equal(at, sampled_rows(size, max(most_pooled, 2 * (k + 2))))
        enough = (np.count_nonzero(allowed, axis=1) > k) & (len(at) < size)
        allowed[(labels == cluster) & ~enough] |= is_pooled
    rows = oracle.partition_graph(distances, labels, k, allowed)
    assert_allclose(found.rows, rows, atol=1e-6)

    _, pieces = connected_components(rows, directed=False)
    several = np.array([len(set(pieces[labels == own].tolist())) > 1 for own in labels])
    assert_array_equal(found.ends, np.flatnonzero(several))
    assert found.components.count == len(np.unique(labels))
    assert_array_equal(found.components.labels, labels)
    n_neighbors = np.clip(np.bincount(labels) - 1, 1, k)[labels][:, None]
    expected = oracle.bridged(distances, rows, labels, n_neighbors)
    assert_allclose(found.affinity, expected, atol=1e-6)


@pytest.mark.parametrize("most_ends", [1, 5])
def test_bridges_are_shortest_between_sampled_members_of_components(
    monkeypatch: pytest.MonkeyPatch, most_ends: int
) -> None:
    monkeypatch.setattr(module, "_BRIDGE_SAMPLES", most_ends)
    monkeypatch.setattr(module, "_ALL_BRIDGE_SAMPLES", 0)
    points = np.concatenate([np.arange(size) + far for size, far in ((30, 0), (12, 90), (9, 400))])
    points = np.append(points, [-50.0])[:, None]
    labels = np.repeat([0, 1], [51, 1])  # a single sample needs no bridge
    found = blocked(points, labels, 2, candidate_neighbors(points, 4, 0, 52).indices, 20)
    _, pieces = connected_components(found.rows, directed=False)
    assert found.ends.max() < 51
    for piece in range(3):
        at = found.ends[pieces[found.ends] == piece]
        members = np.flatnonzero(pieces == piece)
        assert_array_equal(at, members[sampled_rows(len(members), most_ends)])
    is_end = np.isin(np.arange(52), found.ends)
    distances = np.where(is_end & is_end[:, None], oracle.pair_distances(points), np.inf)
    assert_allclose(found.affinity, oracle.bridged(distances, found.rows, labels, 2), atol=1e-6)
