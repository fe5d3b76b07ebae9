"""Offsets and scales of batches, from cells that are in several of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from mscam_dask.solvers.batch_corrections import (
    count_correction,
    group_sums,
    new_correction,
    total_correction,
    view_correction,
)
from mscam_dask.solvers.batch_effects import (
    OffsetPrices,
    batch_cells,
    batch_scales,
    counted_cells,
    fit_new_batch,
    group_means,
    same_batch_share,
    score_encoder,
    two_way,
    vary_as_counts,
)
from tests.synthetic import Array

N, D = 400, 12
PRICE = OffsetPrices.of_shapes([(D, D)])


def draw(
    seed: int, shares: list[list[float]], offset: float = 8.0, spread: float = 3.0
) -> tuple[NDArray[Any], ...]:
    """Rows (n, d) without effects, offsets (B, d), cells and batches; `shares` (K, B) of each cell."""
    rng = np.random.default_rng(seed)
    cells = np.arange(N) % len(shares)
    n_batches = len(shares[0])
    batches = np.array([rng.choice(n_batches, p=shares[cell]) for cell in cells])
    means = rng.normal(scale=spread, size=(len(shares), D))
    offsets = rng.normal(scale=offset / np.sqrt(D), size=(n_batches, D))
    return means[cells] + rng.normal(size=(N, D)), offsets, cells, batches


def correction_of(
    rows: Array,
    cells: NDArray[np.int64],
    batches: NDArray[np.int64],
    new: Array | None = None,
) -> Array:
    """Corrected rows, or new rows of the same batches."""
    means = group_means(rows, batches, int(batches.max()) + 1)
    sums = group_sums(rows, cells, batches, int(cells.max()) + 1, means)
    return view_correction(sums)[0].of_rows(rows if new is None else new, batches)


def test_scores_are_in_units_of_the_noise() -> None:
    cells, batches = np.arange(N) % 2, np.arange(N) // 2 % 2
    rows = 3.0 * cells[:, None] + np.random.default_rng(0).normal(size=(N, D))
    rows = 7.0 * (rows + 2.0 * batches[:, None])
    scores = score_encoder(rows, batches, group_means(rows, batches, 2), 2, "view")(rows)
    groups = 2 * cells + batches
    within = scores - group_means(scores, groups, 4)[groups]
    np.testing.assert_allclose(within.std(axis=0), 1.0, rtol=0.2)


def test_scores_do_not_change_with_the_size_of_a_sample_unless_all_that_varies_is_size() -> None:
    rng, batches = np.random.default_rng(0), np.arange(N) % 2
    size = np.linspace(0.5, 1.5, D)
    rows = rng.normal(size=(N, 3)) @ rng.normal(size=(3, D)) + 0.1 * rng.normal(size=(N, D))
    rows += rng.normal(scale=4.0, size=(N, 1)) * size
    given = rows, batches, group_means(rows, batches, 2), 3, "view"
    with_size, without = score_encoder(*given), score_encoder(*given, size)
    np.testing.assert_allclose(without(rows + size), without(rows), atol=1e-9)
    assert np.abs(with_size(rows + size) - with_size(rows)).max() > 0.1

    rows, size = rows[:, :1], size[:1]
    scores = score_encoder(rows, batches, group_means(rows, batches, 2), 3, "view", size)(rows)
    assert abs(np.corrcoef(scores[:, 0], rows[:, 0])[0, 1]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("gain", "noise", "expected"), [(1.0, 0.0, 1.0), (1.0, 1.5, 1.0), (2.0, 0.0, 2.0)]
)
def test_a_gain_is_a_scale_of_a_batch_but_more_noise_is_none(
    gain: float, noise: float, expected: float
) -> None:
    rows, _, _, batches = draw(2, [[0.5, 0.5]] * 4)
    more = noise * np.random.default_rng(0).normal(size=rows.shape)
    rows = np.where(batches[:, None] == 1, gain * (rows + more), rows)
    means = group_means(rows, batches, 2)
    encoder = score_encoder(rows, batches, means, 4, "view")
    scales = batch_scales(rows - means[batches], encoder, batches, 2)
    assert scales[1] / scales[0] == pytest.approx(expected, rel=0.1)


def test_two_way_solves_the_least_squares() -> None:
    rows, offsets, cells, batches = draw(0, [[0.7, 0.3], [0.2, 0.8], [1.0, 0.0]])
    rows = rows + offsets[batches]
    counts, sums = np.zeros((3, 2)), np.zeros((3, 2, D))
    np.add.at(counts, (cells, batches), 1.0)
    np.add.at(sums, (cells, batches), rows)
    means, found = two_way(counts, sums)
    design = np.hstack([np.eye(3)[cells], np.eye(2)[batches]])
    expected = design @ np.linalg.lstsq(design, rows)[0]
    np.testing.assert_allclose(means[cells] + found[batches], expected)
    np.testing.assert_allclose(counts.sum(axis=0) @ found, 0.0, atol=1e-9)


def test_batches_without_a_common_cell_stay_where_they_are() -> None:
    counts = np.diag([10.0, 20.0])
    sums = np.stack([np.diag([10.0, 0.0]), np.diag([0.0, 60.0])])
    np.testing.assert_allclose(two_way(counts, sums)[1], 0.0, atol=1e-12)


@pytest.mark.parametrize(
    "shares",
    [
        [[0.9, 0.1], [0.1, 0.9], [0.8, 0.2], [0.2, 0.8]],
        [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.5, 0.5]],
        [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.0, 0.5, 0.5]],
        [[0.5, 0.5]] * 2,
    ],
    ids=["confounded", "two-only", "three-batches", "two-cells"],
)
def test_cells_are_found_across_batches(shares: list[list[float]]) -> None:
    rows, offsets, cells, batches = draw(0, shares)
    given = rows + offsets[batches], batches, len(offsets)
    for fit in (batch_cells(*given, len(shares), PRICE), counted_cells(*given, 8, PRICE)):
        assert adjusted_rand_score(fit.cells, cells) == 1.0
        differences = fit.offsets - fit.offsets[0]
        np.testing.assert_allclose(differences, offsets - offsets[0], atol=1.0)


@pytest.mark.parametrize("seed", range(3))
def test_effects_that_differ_between_cells_make_no_cells(seed: int) -> None:
    rows, offsets, cells, batches = draw(seed, [[0.5, 0.5]] * 6, spread=6.0)
    effects = np.random.default_rng(seed).normal(size=(6, D))
    effects *= (
        np.array([5.0, 4.0, 4.0, 4.0, 4.0, 4.0])[:, None] / np.linalg.norm(effects, axis=1)[:, None]
    )
    rows += np.where(batches[:, None] == 1, effects[cells], 0.0)
    found = counted_cells(rows + offsets[batches], batches, 2, 8, PRICE)
    assert adjusted_rand_score(found.cells, cells) == 1.0


@pytest.mark.parametrize(("n", "seed"), [(60, 3), (N, 4)])
def test_samples_without_clusters_are_one_cell(n: int, seed: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(n, D))
    batches = np.arange(n) % 3
    rows[batches == 1] += 2.0
    found = counted_cells(rows, batches, 3, 8, PRICE)
    assert len(found.means) == 1
    assert np.linalg.norm(found.offsets[1] - found.offsets[0]) > 6.0


def test_a_batch_that_two_offsets_match_as_well_is_not_matched() -> None:
    cells, batches = np.arange(N) % 2, np.arange(N) // 2 % 2
    rows = np.repeat(np.random.default_rng(0).normal(size=(N // 4, D)), 4, axis=0)
    rows -= rows.mean(axis=0)
    rows[:, 0] += np.where(cells == 1, 4.0, -4.0)
    rows[batches == 1, :2] += 4.0, 20.0
    some = (batches == 0) | (
        cells == 0
    )  # the second batch is as far from both clusters of the first
    assert batch_cells(rows, batches, 2, 2, PRICE).matched
    assert not batch_cells(rows[some], batches[some], 2, 2, PRICE).matched


def test_factors_of_rare_columns_are_those_of_their_batch() -> None:
    rng = np.random.default_rng(6)
    cells, batches = rng.integers(2, size=(2, N))
    means = np.where(np.arange(300) < 280, 0.3, 40.0) * rng.gamma(4.0, 0.25, size=(2, 300))
    rows = rng.poisson(means[cells] * np.array([1.0, 0.4])[batches, None]).astype(np.float64)
    sums = group_sums(rows, cells, batches, 2, np.zeros((2, 300)))
    factors = count_correction(sums, np.ones(300)).factors
    np.testing.assert_array_equal(factors.max(axis=0), 1.0)
    np.testing.assert_allclose(factors[0, 280:] / factors[1, 280:], 0.4, rtol=0.1)
    raw = rows[batches == 1].mean(axis=0) / rows[batches == 0].mean(axis=0)
    assert np.abs(factors[0] / factors[1] - 0.4).mean() < 0.6 * np.abs(raw - 0.4).mean()


@pytest.mark.parametrize("exponent", [0, 150, 500, 900])
def test_the_unit_of_large_values_does_not_make_them_counts(exponent: int) -> None:
    rng, batches = np.random.default_rng(0), np.arange(N) % 2
    even, lognormal = rng.uniform(1.0, 1000.0, (N, D)), np.exp(7.0 + rng.normal(size=(N, D)))
    assert not vary_as_counts(np.ldexp(even, exponent), batches, 2)
    assert vary_as_counts(np.ldexp(lognormal, exponent), batches, 2)


def test_totals_of_batches_are_compared_within_cells() -> None:
    rng = np.random.default_rng(7)
    cells = np.arange(N) % 2
    batches = (rng.random(N) < np.where(cells == 1, 0.8, 0.2)).astype(np.int64)
    rows = rng.poisson(30.0, size=(N, 20)) * np.array([1.0, 3.0])[cells, None]
    rows[:5] = 0.0
    assert (total_correction(rows, cells, batches, 2, 2).factors == 1.0).all()
    scaled = rows * np.array([1.0, 2.0])[batches, None]
    found = np.log(total_correction(scaled, cells, batches, 2, 2).factors)
    np.testing.assert_allclose(found[0] - found[1], np.log(2.0), atol=0.02)


def test_correction_removes_offsets_and_a_gain() -> None:
    rows, offsets, cells, batches = draw(1, [[0.5, 0.5]] * 4)
    gains = np.array([1.0, 2.0])
    corrected = correction_of((rows + offsets[batches]) * gains[batches, None], cells, batches)
    within = [corrected[batches == batch] for batch in (0, 1)]
    ratio = np.std(within[1], axis=0) / np.std(within[0], axis=0)
    np.testing.assert_allclose(ratio, 1.0, atol=0.2)
    # the geometric mean of the scales stays
    change = np.std(within[0], axis=0).mean() / np.std(rows[batches == 0], axis=0).mean()
    assert change == pytest.approx(2.0 ** np.mean(batches), rel=0.1)
    expected = np.mean(batches == 0) ** 2 + np.mean(batches == 1) ** 2
    assert same_batch_share(corrected, batches) == pytest.approx(expected, abs=0.06)


def test_a_column_without_variance_in_a_batch_is_scaled_as_others() -> None:
    rows, _, cells, batches = draw(1, [[0.5, 0.5]] * 4, offset=0.0)
    rows[batches == 1] *= 2.0
    rows[batches == 1, 0] = 0.0
    moved = correction_of(rows, cells, batches, rows + 1.0) - correction_of(rows, cells, batches)
    ratio = moved[batches == 1].mean(axis=0) / moved[batches == 0].mean(axis=0)
    np.testing.assert_allclose(ratio[1:], 0.5, rtol=0.2)
    assert 0.3 < ratio[0] < 2.0


def test_offsets_of_a_small_batch_are_shrunk() -> None:
    rng = np.random.default_rng(3)
    rows, batches = rng.normal(size=(200, D)), np.zeros(200, dtype=np.int64)
    batches[:3] = 1
    corrected = correction_of(rows, np.zeros(200, dtype=np.int64), batches)
    moved = np.linalg.norm((corrected - rows)[0] - (corrected - rows)[3])
    assert moved < 0.8 * np.linalg.norm(rows[:3].mean(axis=0) - rows[3:].mean(axis=0))


@pytest.mark.parametrize("scale", [1.0, 0.4, 2.0])
def test_a_new_batch_is_put_on_the_cells_it_has(scale: float) -> None:
    rows, _, cells, _ = draw(4, [[1.0], [1.0], [1.0], [1.0]])
    means = np.stack([rows[cells == cell].mean(axis=0) for cell in range(4)])
    some = np.flatnonzero(cells < 3)[:60]
    new = scale * rows[some] + np.random.default_rng(5).normal(scale=4.0, size=D)
    found, scales = fit_new_batch(new, means, np.ones(1), PRICE)
    np.testing.assert_array_equal(found, cells[some])
    assert abs(np.log(scales[0] / scale)) < 0.1
    corrected = new_correction(new, means[found], scales[0]).of_rows(new, np.zeros_like(found))
    np.testing.assert_allclose(corrected, rows[some], atol=1.2)


def test_more_noise_of_a_new_batch_is_no_scale() -> None:
    rows, _, cells, _ = draw(4, [[1.0], [1.0], [1.0], [1.0]])
    means = np.stack([rows[cells == cell].mean(axis=0) for cell in range(4)])
    noise = np.random.default_rng(5).normal(size=rows.shape)
    for new in (rows + 1.5 * noise, means[cells] + 0.4 * noise):
        found, scales = fit_new_batch(new[:90], means, np.ones(1), PRICE)
        np.testing.assert_array_equal(found, cells[:90])
        assert scales[0] == 1.0
