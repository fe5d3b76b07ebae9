"""Partitions: exact recovery, no empty cluster, no dependence on rotation or order; Ward merges; k-means as in scikit-learn; the embedding of walks."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans

from mscam_dask.linalg.orthonormal import polar_factor
from mscam_dask.solvers.cluster_tree import ward_merge
from mscam_dask.solvers.spectral_cut import (
    SpectralEmbedding,
    canonical_labels,
    extend_cut,
    k_means_starts,
    near_optimal_partitions,
    random_minima,
    sampled_rows,
    start_minima,
    walk_embedding,
)
from mscam_dask.types.rules import RULES, SIZES
from tests import oracle
from tests.synthetic import Array, Labels


def embedded(vectors: Array) -> SpectralEmbedding:
    """Of equal eigenvalues, among whose vectors no basis is told from another."""
    return walk_embedding(np.zeros(vectors.shape[1]), vectors, vectors.shape[1])


def cuts(vectors: Array) -> list[Labels]:
    """From pivoted QR, and the least from random starts."""
    embedding = embedded(vectors)
    (from_pivots, _), _ = start_minima(embedding, None)
    return [from_pivots, near_optimal_partitions(random_minima(embedding, 0))[0]]


def assert_same_partition(left: Labels, right: Labels) -> None:
    assert_array_equal(canonical_labels(left), canonical_labels(right))


@given(hnp.arrays(np.int64, st.integers(1, 30), elements=st.integers(0, 9)))
def test_canonical_labels_number_by_first_appearance(labels: Labels) -> None:
    canonical = canonical_labels(labels)
    assert canonical.dtype == np.int64
    seen: list[int] = []
    for old, new in zip(labels.tolist(), canonical.tolist(), strict=True):
        if old not in seen:
            seen.append(old)
        assert new == seen.index(old)


@given(
    st.integers(0, 2**16),
    st.integers(1, 25).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))),
)
@settings(max_examples=30)
def test_no_cluster_is_empty(seed: int, shape: tuple[int, int]) -> None:
    n, c = shape
    rng = np.random.default_rng(seed)
    V = rng.standard_normal((n, c))
    V[: n // 2] = V[0]  # duplicates
    for cut in cuts(V):
        assert cut.dtype == np.int64
        assert_array_equal(np.unique(cut), np.arange(c))
        assert_array_equal(cut, canonical_labels(cut))


def noisy_laplacian(seed: int, *, n: int, c: int, mixing: float) -> Array:
    """Laplacian of a noisy block graph: nothing exact, nothing tied."""
    rng = np.random.default_rng(seed)
    group = np.arange(n) % c
    affinity = rng.random((n, n)) * np.where(group[:, None] == group, 1.0, mixing)
    return np.asarray(oracle.dense_laplacian(affinity))


def clustered_embedding(seed: int, *, n: int = 90, c: int = 4, mixing: float = 0.15) -> Array:
    """Bottom eigenvectors of the Laplacian."""
    return np.asarray(scipy.linalg.eigh(noisy_laplacian(seed, n=n, c=c, mixing=mixing))[1][:, :c])


@given(st.integers(0, 2**16), st.sampled_from([0.15, 0.7, 1.0]))
@settings(max_examples=10)
def test_rounding_of_the_embedding_does_not_matter(seed: int, mixing: float) -> None:
    V = clustered_embedding(seed, mixing=mixing)
    noise = 1e-13 * np.random.default_rng(seed).standard_normal(V.shape)
    for cut, moved in zip(cuts(V), cuts(V + noise), strict=True):
        assert_array_equal(moved, cut)


def minima(vectors: Array) -> list[Labels]:
    return near_optimal_partitions(random_minima(embedded(vectors), 0))


def squares(rows: Array, labels: Labels) -> float:
    means = np.stack([rows[labels == cluster].mean(axis=0) for cluster in range(labels.max() + 1)])
    return float(np.sum((rows - means[labels]) ** 2))


@given(st.integers(0, 2**16), st.sampled_from([1, 2, 3]))
@settings(max_examples=10)
def test_with_nearly_as_many_clusters_as_samples_the_nearest_are_merged(
    seed: int, n_merged: int
) -> None:
    """The best partition into n - 1 clusters joins the two nearest samples; so for n - 2 pairs."""
    rng = np.random.default_rng(seed)
    rows = 9.0 * np.eye(12)
    for pair in range(n_merged):
        rows[2 * pair + 1] = rows[2 * pair]
    rows += 0.1 * rng.standard_normal(rows.shape)
    c = 12 - n_merged
    V, _ = np.linalg.qr(rng.standard_normal((12, c)))
    expected = np.arange(12)
    expected[1 : 2 * n_merged : 2] -= 1
    embedding = SpectralEmbedding(V, rows)
    for cut in near_optimal_partitions(random_minima(embedding, 0)):
        assert_same_partition(cut, expected)


@given(st.integers(0, 2**16))
@settings(max_examples=10)
def test_minima_are_different_good_and_local(seed: int) -> None:
    V = clustered_embedding(seed, n=150, c=6, mixing=0.8)
    found = minima(V)
    assert 2 <= len(found) <= SIZES.max_cuts
    assert len({cut.tobytes() for cut in found}) == len(found)
    rows = embedded(V).rows
    marks = [squares(rows, cut) for cut in found]
    assert marks == sorted(marks)
    assert marks[-1] <= RULES.near_optimal * marks[0]
    for cut in found:
        assert_array_equal(np.unique(cut), np.arange(6))
        assert_array_equal(cut, canonical_labels(cut))
        means = np.stack([rows[cut == cluster].mean(axis=0) for cluster in range(6)])
        nearest = np.argmin(np.sum((rows[:, None] - means) ** 2, axis=2), axis=1)
        assert_array_equal(nearest, cut)


@given(st.integers(0, 2**16), st.sampled_from([0.15, 0.7]))
@settings(max_examples=10)
def test_a_cut_of_some_is_extended_by_the_nearest_mean(seed: int, mixing: float) -> None:
    embedding = embedded(clustered_embedding(seed, n=150, c=6, mixing=mixing))
    samples = np.arange(0, 150, 2)
    (some, _), _ = start_minima(embedding.of(samples), None)
    whole = extend_cut(embedding, samples, some)
    rows = embedding.rows
    means = np.stack([rows[samples][some == cluster].mean(axis=0) for cluster in range(6)])
    nearest = np.argmin(np.sum((rows[:, None] - means) ** 2, axis=2), axis=1)
    assert_array_equal(whole, canonical_labels(nearest))
    assert_same_partition(whole[samples], some)


@given(st.integers(0, 2**16))
@settings(max_examples=5)
def test_minima_do_not_depend_on_order_or_rotation(seed: int) -> None:
    V = clustered_embedding(seed, mixing=0.7)
    rng = np.random.default_rng(seed)
    order, rotation = rng.permutation(len(V)), polar_factor(rng.standard_normal((4, 4)))
    for cut, moved in zip(minima(V), minima(V[order] @ rotation), strict=True):
        assert_same_partition(moved, cut[order])


@given(st.integers(0, 2**16), st.integers(2, 10), st.data())
@settings(max_examples=30)
def test_merges_are_of_whole_components_and_the_cheapest_at_each_step(
    seed: int, n_components: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    n = 40
    components = canonical_labels(rng.integers(0, n_components, n))
    points = rng.standard_normal((n, 2)) + 3 * rng.standard_normal((n_components, 2))[components]
    c = data.draw(st.integers(1, int(components.max()) + 1))

    def within(labels: Labels) -> float:
        return sum(
            float(np.sum((points[labels == g] - points[labels == g].mean(axis=0)) ** 2))
            for g in np.unique(labels)
        )

    groups = components.copy()
    while len(np.unique(groups)) > c:
        names = np.unique(groups)
        options = [
            np.where(groups == b, a, groups) for i, a in enumerate(names) for b in names[i + 1 :]
        ]
        groups = min(options, key=within)
    sizes = np.bincount(components).astype(float)
    means = np.eye(len(sizes))[components].T @ points / sizes[:, None]
    merged = ward_merge(oracle.pair_distances(means), sizes, c)[0][components]
    assert_same_partition(merged, groups)
    assert len(np.unique(merged)) == c


@given(st.integers(0, 2**16))
@settings(max_examples=10)
def test_random_starts_have_the_sum_of_squares_of_their_partition(seed: int) -> None:
    V = clustered_embedding(seed, n=60, mixing=0.7)
    embedding = embedded(V)
    minima_of_some = random_minima(embedding, seed, range(2, 5))
    for (labels, found), (same, _) in zip(
        minima_of_some, random_minima(embedding, seed)[2:5], strict=True
    ):
        assert found == pytest.approx(squares(embedding.rows, labels))
        assert_array_equal(labels, same)
    _, from_labels = start_minima(embedding, minima_of_some[0][0])
    assert_array_equal(from_labels[0], minima_of_some[0][0])


@given(st.integers(1, 200), st.integers(1, 60))
def test_rows_of_a_sample(n: int, wanted: int) -> None:
    sampled = sampled_rows(n, wanted)
    assert len(sampled) == min(n, wanted)
    assert np.all(np.diff(sampled) > 0)
    assert sampled[0] >= 0
    assert sampled[-1] < n
    assert_array_equal(sampled_rows(n, wanted), sampled)


@pytest.mark.parametrize("period", [2, 3, 5, 10, 96])
def test_groups_in_turns_have_their_shares_of_a_sample(period: int) -> None:
    counts = np.bincount(sampled_rows(6000, 3000) % period, minlength=period)
    assert np.all(np.abs(counts - 3000 / period) < 5.0 * np.sqrt(3000 / period))


def test_an_empty_cluster_gets_the_sample_farthest_from_the_mean_of_the_largest() -> None:
    rows = np.array([[0.0, 0.0], [0.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [30.0, 0.0]])
    embedding = SpectralEmbedding(np.zeros((6, 3)), rows)
    # the means of the first two clusters are equal: the lower number is the nearest of all
    found = extend_cut(embedding, np.array([0, 1, 5]), np.array([0, 1, 2]))
    assert_array_equal(found, [0, 0, 0, 0, 1, 2])


@given(st.lists(st.tuples(st.integers(0, 20), st.floats(1.0, 1.3)), min_size=1, max_size=30))
def test_near_optimal_partitions_are_distinct_and_by_their_squares(
    drawn: list[tuple[int, float]],
) -> None:
    squares_of: dict[int, float] = {}
    for name, value in drawn:
        squares_of.setdefault(name, value)
    found = near_optimal_partitions([(np.array([0, name]), squares_of[name]) for name, _ in drawn])
    best = min(squares_of.values())
    limit = RULES.near_optimal * best
    expected = sorted(value for value in squares_of.values() if value <= limit)[: SIZES.max_cuts]
    names = [int(labels[1]) for labels in found]
    assert len(set(names)) == len(names)
    assert [squares_of[name] for name in names] == expected


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", ["overlapping", "separate", "repeated rows"])
@pytest.mark.parametrize("n_init", [1, 30])
def test_the_partition_is_that_of_the_estimator(kind: str, n_init: int) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 7))
    if kind == "separate":
        rows += 20 * np.eye(7)[rng.integers(7, size=400)]
    if kind == "repeated rows":
        rows = rows[rng.integers(5, size=400)]
    for seed in range(2):
        model = KMeans(7, n_init=n_init, max_iter=100, tol=0.0, random_state=seed).fit(rows)
        found = k_means_starts(rows, 7, seed, n_init)
        labels, squares = min(found, key=lambda minimum: minimum[1])
        np.testing.assert_array_equal(canonical_labels(labels), canonical_labels(model.labels_))
        assert squares == pytest.approx(model.inertia_, rel=1e-12)


def cosines(rows: Array) -> Array:
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(unit @ unit.T)


@given(st.integers(0, 2**16), st.integers(2, 6))
@settings(max_examples=20)
def test_all_pairs_give_where_the_walks_end(seed: int, c: int) -> None:
    L = noisy_laplacian(seed, n=60, c=c, mixing=0.3)
    values, vectors = np.linalg.eigh(L)
    stopping = values[c] / 2
    ends = stopping * np.linalg.inv(L + stopping * np.eye(len(L)))
    assert_allclose(ends.sum(axis=1), 1.0)
    assert ends.min() > 0  # probabilities
    rows = walk_embedding(values, vectors, c).rows
    assert_allclose(rows @ rows.T, cosines(ends - ends.mean(axis=0)), atol=1e-8)


@given(st.lists(st.integers(4, 20), min_size=2, max_size=6), st.integers(0, 2**16))
@example([6, 5, 5, 5, 6, 4], 821)
@settings(max_examples=20)
def test_the_limit_of_c_components(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    c = len(sizes)
    group = np.repeat(np.arange(c), sizes)
    affinity = np.where(group[:, None] == group, rng.uniform(0.5, 1.0, (len(group),) * 2), 0.0)
    values, vectors = scipy.linalg.eigh(oracle.dense_laplacian(affinity))
    for m in (c, min(2 * c, len(group))):
        embedding = walk_embedding(values[:m], vectors[:, :m], c)
        start = start_minima(embedding, None)[0]
        assert_array_equal(start[0], canonical_labels(group))
        # a random start may end in another minimum, which has more squares
        best = near_optimal_partitions([*random_minima(embedding, 0, range(2)), start])[0]
        assert_array_equal(best, canonical_labels(group))


def test_eigenvalues_below_the_precision_of_the_vectors_are_rounding() -> None:
    # six groups that hang together by threads of 1e-9, in single precision
    values = np.array([0.0, 4e-308, 4e-308, 4e-308, 7e-9, 2e-8])
    vectors = polar_factor(np.random.default_rng(0).standard_normal((9, 6))).astype(np.float32)
    rows = walk_embedding(values, vectors, 3).rows
    assert rows.dtype == np.float32
    rest = vectors - vectors.mean(axis=0)
    assert_allclose(rows, rest / np.linalg.norm(rest, axis=1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize(
    ("values", "c", "stopping"),
    [
        ([0.0, 0.1, 0.4, 0.9], 2, 0.2),
        ([0.0, 0.1], 2, 0.05),  # there is none beyond
        ([0.0, 0.0, 0.0, 0.6], 2, 0.3),  # in more pieces than clusters
        ([0.0, 0.0, 1e-17, 0.6], 2, 0.3),
        ([0.0, 0.0, 0.0], 2, 0.5),  # without edges
        ([0.0, 0.0, 1e-10, 1e7], 2, 5e6),  # rounding is relative to the largest
        ([0.0, 0.0, 1e-300, 2e-300], 2, 0.5),  # nothing but rounding
        ([-1e-17, 0.1, 0.4], 2, 0.2),
    ],
)
def test_walks_stop_at_half_the_first_eigenvalue_beyond(
    values: list[float], c: int, stopping: float
) -> None:
    m = len(values)
    vectors = polar_factor(np.random.default_rng(0).standard_normal((9, m)))
    rows = (vectors - vectors.mean(axis=0)) / (np.maximum(values, 0.0) + stopping)
    expected = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert_allclose(walk_embedding(np.array(values), vectors, c).rows, expected, atol=1e-12)
