from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from mscam_dask.linalg.neighbors import nearest_neighbors
from mscam_dask.solvers.preprocessing import (
    choose_view_settings,
    default_settings,
    embedding_neighbors,
    uninformative_views,
)
from mscam_dask.solvers.ridge_view import ridge_view
from mscam_dask.solvers.row_blocks import ViewShape
from mscam_dask.solvers.view_svd import view_svd
from mscam_dask.types.parameters import ViewSettings

OPTIONS = [
    ViewSettings(scale, alpha) for scale in ("unit", "standard") for alpha in (10.0, 1.0, 0.1)
]


def lists_of(rows: NDArray[np.float64], k: int = 6) -> NDArray[np.int64]:
    return nearest_neighbors(rows, k)[0]


def views_with_one_spoilt(n: int = 300) -> tuple[list[list[NDArray[np.int64]]], list[int]]:
    """Three views of the same points; of each, lists of its neighbours and of spoilt ones."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((n, 2))
    good = [lists_of(points + 0.05 * rng.standard_normal((n, 2))) for _ in range(3)]
    bad = [lists_of(rng.standard_normal((n, 2))) for _ in range(3)]
    return [[bad[0], good[0]], [good[1], bad[1]], [bad[2], good[2]]], [1, 0, 1]


def test_neighbors_that_the_other_views_confirm_are_taken() -> None:
    lists, expected = views_with_one_spoilt()
    for usual in ([0, 0, 0], [1, 1, 1]):
        choices = choose_view_settings(lists, usual)
        assert [choice.index for choice in choices] == expected
        for choice, kept in zip(choices, usual, strict=True):
            assert (choice.ahead == 0.0) == (choice.index == kept)
            assert 0.3 < choice.agreement < 1.0


def test_the_choice_does_not_depend_on_the_order_of_the_views() -> None:
    lists, expected = views_with_one_spoilt()
    order = [2, 0, 1]
    choices = choose_view_settings([lists[i] for i in order], [0, 0, 0])
    assert [choice.index for choice in choices] == [expected[i] for i in order]


@pytest.mark.parametrize("usual", [0, 1])
def test_within_noise_the_usual_preparation_stays(usual: int) -> None:
    rng = np.random.default_rng(1)
    random = [[lists_of(rng.standard_normal((200, 3))) for _ in range(2)] for _ in range(3)]
    choices = choose_view_settings(random, [usual] * 3)
    assert [choice.index for choice in choices] == [usual] * 3
    assert [choice.ahead for choice in choices] == [0.0] * 3


def lists_of_each(n: int, n_alike: int, n_others: int) -> list[list[NDArray[np.int64]]]:
    """Neighbours of the same points in some views, of others in each of the rest."""
    rng = np.random.default_rng(3)
    points = rng.standard_normal((n, 2))
    alike = [points + 0.3 * rng.standard_normal((n, 2)) for _ in range(n_alike)]
    others = [rng.standard_normal((n, 2)) for _ in range(n_others)]
    return [[lists_of(rows)] for rows in (*alike, *others)]


@pytest.mark.parametrize(
    ("n_alike", "n_others", "expected"),
    [
        (3, 0, ()),
        (2, 1, (2,)),
        (3, 4, (3, 4, 5, 6)),
        (0, 4, ()),  # nobody is confirmed, and one alone would be left
        (1, 3, ()),
        (1, 1, ()),
    ],
)
def test_views_whose_neighbors_nobody_has(
    n_alike: int, n_others: int, expected: tuple[int, ...]
) -> None:
    lists = lists_of_each(300, n_alike, n_others)
    choices = choose_view_settings(lists, [0] * len(lists))
    assert uninformative_views(choices) == expected


def test_the_error_of_an_agreement_is_that_of_random_neighbors() -> None:
    """In units of it, agreements of views that share nothing have a variance near one."""
    rng = np.random.default_rng(5)
    ratios = []
    for _ in range(60):
        lists = [[lists_of(rng.standard_normal((150, 4)))] for _ in range(3)]
        ratios += [one.agreement / one.error for one in choose_view_settings(lists, [0, 0, 0])]
    assert abs(np.mean(ratios)) < 0.3
    assert 0.6 < np.std(ratios) < 1.5
    assert max(ratios) < 4.0


def test_few_samples_leave_no_view_out() -> None:
    """An agreement that is there may be within its error."""
    lists = lists_of_each(9, 2, 1)
    assert uninformative_views(choose_view_settings(lists, [0, 0, 0])) == ()


def test_complete_neighborhoods_leave_the_usual_preparation() -> None:
    everyone = np.array([[1, 2], [0, 2], [0, 1]])
    choices = choose_view_settings([[everyone, everyone], [everyone]], [1, 0])
    assert [choice.index for choice in choices] == [1, 0]


@pytest.mark.parametrize(
    ("n_features", "expected"), [(2, "standard"), (9, "standard"), (10, "unit"), (500, "unit")]
)
def test_usual_scaling_by_number_of_columns(n_features: int, expected: str) -> None:
    shape = ViewShape(100, n_features, "features")
    assert OPTIONS[default_settings(shape, OPTIONS)] == ViewSettings(expected, 10.0)  # type: ignore[arg-type]


def test_usual_scaling_where_the_preferred_one_is_not_to_be_had() -> None:
    shape = ViewShape(100, 2, "features")
    only_unit = [ViewSettings("unit", 1.0), ViewSettings("unit", 10.0)]
    assert default_settings(shape, only_unit) == 1


def test_usual_alpha_is_the_largest_of_that_scaling() -> None:
    shape = ViewShape(100, 2, "features")
    uneven = [
        ViewSettings("unit", 10.0),
        ViewSettings("standard", 0.1),
        ViewSettings("standard", 1.0),
    ]
    assert default_settings(shape, uneven) == 2


def test_anchor_neighbors_are_those_of_the_anchor_space() -> None:
    rows = np.random.default_rng(2).standard_normal((40, 7))
    shape = ViewShape(40, 7, "features")
    view = view_svd(lambda start, stop: rows[start:stop], shape, scale="standard", name="v")
    anchors = ridge_view(view, alpha=1.0).anchors()
    squared = np.sum((anchors[:, None].astype(float) - anchors[None].astype(float)) ** 2, axis=2)
    np.fill_diagonal(squared, np.inf)
    expected = np.sort(np.argsort(squared, axis=1)[:, :5], axis=1)
    np.testing.assert_array_equal(np.sort(embedding_neighbors(view, 1.0, 5), axis=1), expected)
