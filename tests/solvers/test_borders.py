"""Borders between clusters: the test for a valley, its level in samples of one cluster, and its power."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import factorial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from mscam_dask.solvers.borders import (
    N_FOLDS,
    JointPoints,
    borders,
    cell_folds,
    column_steps,
    fold_functions,
    fold_sums,
    largest_p_value,
    nested_cells,
    reassigned,
    valley_p_value,
)
from mscam_dask.types.rules import RULES
from tests.synthetic import Array, Labels


def normals(seed: int, sizes: tuple[int, ...], separation: float, p: int) -> tuple[Array, Labels]:
    """Normal clusters along one axis, each at this distance from the next, in random order."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    points = rng.normal(size=(len(labels), p))
    points[:, 0] += separation * labels
    return points, labels


def as_points(rows: Array) -> JointPoints:
    """Columns of one view as points, with their steps."""
    steps = column_steps(rows)
    return JointPoints(rows, (rows.shape[1],), (np.diag(steps)[steps > 0.0],))


@pytest.mark.parametrize("depth", [0.8, 1.0, 2.0])
def test_the_p_value_is_that_of_an_enumeration(depth: float) -> None:
    for left, center, right in itertools.product(range(6), repeat=3):
        n, s = left + center + right, center + 2 * right
        weights = {
            c: factorial(n) / (factorial(n - c - r) * factorial(c) * factorial(r)) * depth**c
            for c in range(n + 1)
            for r in range(n + 1 - c)
            if c + 2 * r == s
        }
        below = sum(weight for c, weight in weights.items() if c < center)
        expected = (below + 0.5 * weights[center]) / sum(weights.values())
        assert valley_p_value(left, center, right, depth) == pytest.approx(expected)
        assert valley_p_value(right, center, left, depth) == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["normal", "uniform", "exponential", "standard_cauchy"])
def test_one_cluster_cut_anywhere_has_no_border(kind: str) -> None:
    held = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        n, p = int(rng.integers(20, 400)), int(rng.integers(1, 6))
        points = getattr(rng, kind)(size=(n, p))
        along = points @ rng.normal(size=p)
        labels = (along > np.quantile(along, rng.uniform(0.05, 0.95))).astype(np.int64)
        held += largest_p_value(as_points(points), labels) <= 0.05
    assert held <= 9  # 5 % and two standard errors


@pytest.mark.parametrize(
    ("sizes", "separation", "p"),
    [((300, 300), 6, 3), ((300, 300), 6, 30), ((900, 60), 6, 10), ((995, 5), 8, 10)],
)
def test_separate_normals_have_a_border(sizes: tuple[int, ...], separation: float, p: int) -> None:
    for seed in range(3):
        points, labels = normals(seed, sizes, separation, p)
        found = borders(as_points(points), labels, 2)
        assert found.p_values[0, 1] <= 0.05
        assert found.stand.all()
        assert found.sizes.tolist() == list(sizes)
        left, center, right = found.counts[0, 1]
        assert (
            center < min(left, right) + 1
            or valley_p_value(left, center, right, RULES.depth) <= 0.05
        )


@pytest.mark.parametrize(("n_turns", "noise", "seed"), [(3, 0.2, 1), (3, 0.2, 2), (2, 0.4, 4)])
def test_halves_of_a_helix_have_no_border_though_its_turns_lie_apart(
    n_turns: int, noise: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(300, 900))
    t = rng.random(n)
    angle = 2 * np.pi * n_turns * t
    helix = np.stack([np.cos(angle), np.sin(angle), 1.4 * n_turns * t], axis=1)
    rows = helix @ rng.normal(size=(3, 12)) + noise * rng.normal(size=(n, 12))
    assert largest_p_value(as_points(rows), (t > 0.5).astype(np.int64)) > 0.05


def rings(seed: int, n: int) -> tuple[Array, Labels]:
    """A ring around another one, in the plane."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=n)
    angle = rng.uniform(0.0, 2.0 * np.pi, n)
    rows = (1.0 + 1.2 * labels)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return rows, labels


def moons(seed: int, n: int) -> tuple[Array, Labels]:
    """Two half circles, each with an end inside of the other, in the plane."""
    rng = np.random.default_rng(seed)
    labels, angle = rng.integers(2, size=n), rng.uniform(0.0, np.pi, n)
    side = 1.0 - 2.0 * labels
    rows = np.stack([labels + side * np.cos(angle), 0.5 * labels + side * np.sin(angle)], axis=1)
    return rows, labels


@pytest.mark.parametrize("shape", [rings, moons])
def test_curved_clusters_around_each_other_have_a_border(
    shape: Callable[[int, int], tuple[Array, Labels]],
) -> None:
    held = corrected = held_by_chance = 0
    for seed in range(10):
        rows, labels = shape(seed, 600)
        rng = np.random.default_rng(seed)
        points = as_points(rows @ rng.normal(size=(2, 8)) + 0.1 * rng.normal(size=(600, 8)))
        held += largest_p_value(points, labels) <= 0.05
        held_by_chance += largest_p_value(points, rng.permutation(labels)) <= 0.05
        found = borders(points, labels, 2)
        left, center, right = found.counts[0, 1].tolist()
        p_value = valley_p_value(left, center, right, RULES.depth)
        corrected += found.p_values[0, 1] == pytest.approx(64 * p_value)  # of 8 x 8 parts
    assert held >= 8
    assert corrected >= 8
    assert held_by_chance == 0


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_the_inside_and_the_outside_of_a_disk_have_no_border(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(600, 2))
    rows *= (np.sqrt(rng.random(600)) / np.linalg.norm(rows, axis=1))[:, None]
    labels = (np.linalg.norm(rows, axis=1) > np.sqrt(0.5)).astype(np.int64)
    rows = 3.0 * rows @ rng.normal(size=(2, 8)) + 0.1 * rng.normal(size=(600, 8))
    assert largest_p_value(as_points(rows), labels) > 0.05


def test_borders_are_symmetric_and_those_of_the_sides() -> None:
    points, labels = normals(0, (200, 150, 100, 50), 3.0, 4)
    found = borders(as_points(points), labels, 4)
    assert_array_equal(found.p_values, found.p_values.T)
    assert_array_equal(found.counts, found.counts.transpose(1, 0, 2)[:, :, ::-1])
    for i, j in itertools.combinations(range(4), 2):
        if found.counts[i, j].any() and found.p_values[i, j] < 1.0:
            left, center, right = found.counts[i, j].tolist()
            assert found.p_values[i, j] == valley_p_value(left, center, right, RULES.depth)
    assert_array_equal(np.diag(found.p_values), 0.0)
    largest = largest_p_value(as_points(points), labels)
    assert (largest > 0.05) == (found.p_values.max() > 0.05)


def test_clusters_with_another_between_them_have_no_common_border() -> None:
    points, labels = normals(0, (200, 200, 200), 8.0, 2)
    found = borders(as_points(points), labels, 3)
    assert found.p_values[0, 2] == 0.0
    assert not found.counts[0, 2].any()


def test_the_order_of_samples_and_clusters_does_not_matter() -> None:
    points, labels = normals(1, (150, 100, 60), 4.0, 5)
    found = borders(as_points(points), labels, 3)
    order = np.random.default_rng(0).permutation(len(points))
    other = borders(as_points(points[order]), labels[order], 3)
    assert_allclose(other.p_values, found.p_values)
    assert_array_equal(other.counts, found.counts)
    names = np.array([2, 0, 1])
    renamed = borders(as_points(points), names[labels], 3).in_order(names)
    assert_allclose(renamed.p_values, found.p_values)
    assert_array_equal(renamed.counts, found.counts)


@pytest.mark.parametrize(("size", "is_large_enough"), [(4, False), (5, True)])
def test_fewer_than_five_samples_have_no_border(size: int, *, is_large_enough: bool) -> None:
    points, labels = normals(0, (300, size), 20.0, 3)
    found = borders(as_points(points), labels, 2)
    assert found.stand.all() == is_large_enough
    assert is_large_enough or (found.p_values[0, 1] == 1.0 and not found.counts[0, 1].any())


def test_the_step_of_a_column_is_the_distance_of_neighboring_values() -> None:
    rng = np.random.default_rng(0)
    grades = rng.permutation(np.repeat([1.0, 2.0, 3.0, 5.0], [40, 30, 20, 10]))
    columns = np.stack([grades, 0.1 * (grades > 2), 7.0 * (grades < 2), rng.normal(size=100)])
    assert_allclose(column_steps(columns.T), [1.0, 0.1, 7.0, 0.0])
    assert_array_equal(column_steps(np.ones((5, 2))), 0.0)


def categories(rng: np.random.Generator, n: int) -> Array:
    """One-hot columns of three independent categories."""
    return np.hstack([np.eye(4)[rng.integers(4, size=n)] for _ in range(3)])


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, n: rng.integers(2, size=(n, 4)).astype(np.float64),
        lambda rng, n: rng.binomial(1, 0.1, size=(n, 12)).astype(np.float64),
        lambda rng, n: np.hstack([rng.normal(size=(n, 3)), rng.integers(2, size=(n, 1))]),
        categories,
    ],
    ids=["bits", "rare bits", "one bit among numbers", "categories"],
)
def test_a_value_of_one_column_has_no_border(draw: Callable[..., Array]) -> None:
    for seed in range(20):
        rows = draw(np.random.default_rng(seed), 300)
        labels = (rows[:, -1] > 0).astype(np.int64)
        assert largest_p_value(as_points(rows), labels) > 0.05


def test_values_of_several_columns_have_a_border_that_one_column_does_not_hide() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=300)
    bits = (rng.random((300, 20)) < np.where(labels[:, None] == 1, 0.9, 0.1)).astype(np.float64)
    assert largest_p_value(as_points(bits), labels) <= 0.05
    numbers = rng.normal(size=(300, 3)) + 7.0 * labels[:, None]
    assert largest_p_value(as_points(np.column_stack([labels, numbers])), labels) <= 0.05


@pytest.mark.parametrize("n_distinct", [1, 2, 3])
def test_equal_points_do_not_fail_and_have_no_border(n_distinct: int) -> None:
    points = np.repeat(np.random.default_rng(0).normal(size=(n_distinct, 4)), 30, axis=0)
    labels = np.arange(len(points)) % 2
    assert_array_equal(borders(as_points(points), labels, 2).p_values, 1.0 - np.eye(2))
    uneven = (np.arange(len(points)) % 30 < 5).astype(np.int64)
    assert_array_equal(borders(as_points(points), uneven, 2).p_values, 1.0 - np.eye(2))
    kinds = np.repeat(np.arange(n_distinct), 30)
    assert np.isfinite(borders(as_points(points), kinds, n_distinct).p_values).all()
    assert_array_equal(reassigned(points, kinds, 3), kinds)


def test_cells_are_halves_of_halves_of_clusters() -> None:
    points, labels = normals(0, (200, 30, 9), 4.0, 3)
    cells, parts = nested_cells(points, labels)
    assert_array_equal(parts[0][cells], labels)
    for coarse, fine in itertools.pairwise(parts):
        assert all(len(np.unique(coarse[fine == part])) == 1 for part in np.unique(fine))
    n_parts = [[len(np.unique(scale[parts[0] == k])) for k in range(3)] for scale in parts]
    assert n_parts[0] == [1, 1, 1]
    assert n_parts[-1][0] == 8
    assert all(of[2] == 1 for of in n_parts)  # too few samples to halve


def test_a_cell_without_samples_in_the_other_folds_has_the_mean_of_all() -> None:
    rng = np.random.default_rng(0)
    points, cells = 5.0 + rng.normal(size=(31, 3)), np.repeat([0, 1, 2], [20, 10, 1])
    folds = cell_folds(points, cells)
    sums = [fold_sums(points, folds, fold) for fold in range(N_FOLDS)]
    loadings = fold_functions(points, folds, sums, int(folds.folds[-1]), None).loadings
    sizes = np.bincount(cells[folds.folds != folds.folds[-1]], minlength=3)
    assert_allclose(loadings[:, 2], loadings @ sizes / sizes.sum())


def test_samples_are_reassigned_to_the_cluster_they_belong_to() -> None:
    points, labels = normals(0, (300, 40), 8.0, 3)
    wrong = labels.copy()
    wrong[np.flatnonzero(labels == 0)[:30]] = 1
    assert_array_equal(reassigned(points, wrong, 0), wrong)
    assert_array_equal(reassigned(points, wrong, 3), labels)
