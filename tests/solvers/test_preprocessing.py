from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from mscam_dask.linalg.neighbor_information import neighbor_votes
from mscam_dask.linalg.neighbors import nearest_neighbors
from mscam_dask.solvers.preprocessing import Choice, choose_view_settings, uninformative_views
from mscam_dask.types.parameters import ViewSettings

SETTINGS = [ViewSettings("unit", 1.0), ViewSettings("standard", 1.0)]


def lists_of(rows: NDArray[np.float64]) -> NDArray[np.int64]:
    return nearest_neighbors(rows, 6)[0]


def choices_of(lists: list[list[NDArray[np.int64]]], usual: list[int]) -> list[Choice]:
    """First round: a view against the mean over all settings of the others."""
    by_setting = [dict(zip(SETTINGS, view, strict=False)) for view in lists]
    votes = neighbor_votes(lists, len(lists[0][0]))
    every, kept = [list(view) for view in by_setting], [SETTINGS[one] for one in usual]
    return choose_view_settings(by_setting, every, kept, votes, votes.mean(axis=0), len(lists))


def views_with_one_spoilt() -> tuple[list[list[NDArray[np.int64]]], list[int]]:
    """Three views of the same points; of each, lists of its neighbours and of spoilt ones."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((300, 2))
    good = [lists_of(points + 0.05 * rng.standard_normal((300, 2))) for _ in range(3)]
    bad = [lists_of(rng.standard_normal((300, 2))) for _ in range(3)]
    return [[bad[0], good[0]], [good[1], bad[1]], [bad[2], good[2]]], [1, 0, 1]


def test_neighbors_that_the_other_views_confirm_are_taken() -> None:
    lists, expected = views_with_one_spoilt()
    for usual in ([0, 0, 0], [1, 1, 1]):
        choices = choices_of(lists, usual)
        assert [choice.settings for choice in choices] == [SETTINGS[one] for one in expected]
        for choice, kept in zip(choices, usual, strict=True):
            assert (choice.margin == 0.0) == (choice.settings == SETTINGS[kept])
            assert 0.3 < choice.agreement < 1.0


@pytest.mark.parametrize("voters", [[[0], [0], [0]], [[1], [0], [1]], [[0, 1], [0, 1], [1]]])
def test_overlaps_are_those_with_the_settings_that_voted(voters: list[list[int]]) -> None:
    lists, _ = views_with_one_spoilt()
    n, k = lists[0][0].shape
    voted = [[view[at] for at in own] for view, own in zip(lists, voters, strict=True)]
    by_setting = [dict(zip(SETTINGS, view, strict=True)) for view in lists]
    voting = [[SETTINGS[at] for at in own] for own in voters]
    votes = neighbor_votes(voted, n)
    usual = SETTINGS[:1] * 3
    choices = choose_view_settings(by_setting, voting, usual, votes, votes.mean(axis=0), 3)
    graphs = np.zeros((3, n, n))
    for view, of_view in enumerate(voted):
        for neighbors in of_view:
            one = np.zeros((n, n))
            np.put_along_axis(one, neighbors, 1.0, axis=1)
            graphs[view] += one / len(of_view)
    for index, choice in enumerate(choices):
        others = np.delete(graphs, index, axis=0).mean(axis=0)
        own = by_setting[index][choice.settings]
        shared = np.take_along_axis(others - others.mean(axis=0), own, axis=1).sum(axis=1) / k
        assert choice.agreement == pytest.approx(shared.mean(), abs=1e-6)
        assert choice.error == pytest.approx(shared.std() / np.sqrt(n), abs=1e-6)
        assert choice.standardized == pytest.approx(choice.agreement * n * np.sqrt(2))


@pytest.mark.parametrize("usual", [0, 1])
def test_within_noise_the_usual_preparation_stays(usual: int) -> None:
    rng = np.random.default_rng(1)
    random = [[lists_of(rng.standard_normal((200, 3))) for _ in range(2)] for _ in range(3)]
    choices = choices_of(random, [usual] * 3)
    assert [choice.settings for choice in choices] == [SETTINGS[usual]] * 3
    assert [choice.margin for choice in choices] == [0.0] * 3


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
    choices = choices_of(lists, [0] * len(lists))
    assert uninformative_views(choices) == expected


def test_the_error_of_an_agreement_is_that_of_random_neighbors() -> None:
    """In units of it, agreements of views that share nothing have a variance near one."""
    rng = np.random.default_rng(5)
    ratios = []
    for _ in range(60):
        lists = [[lists_of(rng.standard_normal((150, 4)))] for _ in range(3)]
        ratios += [one.agreement / one.error for one in choices_of(lists, [0, 0, 0])]
    assert abs(np.mean(ratios)) < 0.3
    assert 0.6 < np.std(ratios) < 1.5
    assert max(ratios) < 4.0


def test_samples_that_a_view_lacks_count_in_the_error_of_independent_views() -> None:
    lists = lists_of_each(120, 3, 0)
    has = np.arange(0, 120, 2)
    shorter = np.full_like(lists[0][0], -1)
    shorter[has] = lists[0][0][has]
    lists[0][0] = shorter
    choice, complete, _ = choices_of(lists, [0, 0, 0])
    assert choice.standardized == pytest.approx(choice.agreement * np.sqrt(60 * 120 * 2))
    assert complete.standardized == pytest.approx(complete.agreement * np.sqrt(120 * 120 * 2))


def test_one_informative_view_alone_leaves_no_view_out() -> None:
    noise = Choice(SETTINGS[0], 0.0, 0.0, 0.01, 0.0)
    clear = Choice(SETTINGS[0], 0.5, 0.0, 0.01, 50.0)
    assert uninformative_views([clear, noise, noise]) == ()
    assert uninformative_views([clear, clear, noise]) == (2,)


def test_complete_neighborhoods_leave_the_usual_preparation() -> None:
    everyone = np.array([[1, 2], [0, 2], [0, 1]])
    choices = choices_of([[everyone, everyone], [everyone]], [1, 0])
    assert [choice.settings for choice in choices] == [SETTINGS[1], SETTINGS[0]]
