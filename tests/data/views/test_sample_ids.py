"""Samples matched by id: joins against a dictionary, spellings, linked views, and their labels."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.conversion import encode_labels, labeled_samples
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sample_ids import Join, check_printable, join_samples, linked_groups
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.data.views.validation import validate
from mscam_dask.errors import ConfigurationError, DataError
from tests.messages import quotes, raises

NUMBERS = range(1, 41)
PADDED = [f"{number:04d}" for number in NUMBERS]


@st.composite
def holders(draw: st.DrawFn) -> dict[str, list[str]]:
    """Ids of two to four holders: subsets of a few samples in any order."""
    samples = [f"s{i}x{i * i}" for i in range(draw(st.integers(1, 12)))]
    subset = st.lists(st.sampled_from(samples), min_size=1, unique=True)
    return {f"h{i}": draw(subset) for i in range(draw(st.integers(2, 4)))}


def _is_linked(ids: Sequence[Sequence[str]]) -> bool:
    reached, left = set(ids[0]), [set(one) for one in ids[1:]]
    while any(reached & one for one in left):
        reached |= set.union(*(one for one in left if reached & one))
        left = [one for one in left if not reached >= one or not reached & one]
    return not left


@given(ids=holders(), join=st.sampled_from([None, "inner", "outer"]))
def test_the_rows_of_a_join_are_those_of_its_ids(
    ids: dict[str, list[str]], join: Join | None
) -> None:
    """Against the definition with sets and list.index."""
    sets = [set(own) for own in ids.values()]
    runs = {
        None: all(one == sets[0] for one in sets),
        "inner": bool(set.intersection(*sets)),
        "outer": _is_linked(list(ids.values())),
    }[join]
    if not runs:
        with pytest.raises(DataError):
            join_samples(ids, join)
        return
    joined, places = join_samples(ids, join)
    assert joined is not None
    wanted = set.intersection(*sets) if join == "inner" else set.union(*sets)
    in_order = [name for own in ids.values() for name in own if name in wanted]
    assert joined == tuple(dict.fromkeys(in_order))
    for name, own in ids.items():
        expected = [own.index(one) if one in own else -1 for one in joined]
        assert_array_equal(places[name], expected)


def test_holders_without_ids() -> None:
    assert join_samples({"a": None, "b": None}, None) == (None, {})
    ids, places = join_samples({"a": None, "b": ["x", "y"], "c": ["x", "y"]}, None)
    assert (ids, list(places)) == (("x", "y"), ["b", "c"])
    with pytest.raises(DataError):
        join_samples({"a": None, "b": ["x", "y"], "c": ["y", "x"]}, None)
    with pytest.raises(DataError):
        join_samples({"a": None, "b": ["x", "y"]}, "outer")
    with pytest.raises(ConfigurationError):
        join_samples({"a": ["x"]}, "left")  # type: ignore[arg-type]


SPELLINGS = {
    "zero padding": [str(number) for number in NUMBERS],
    "surrounding blanks": [f"{name} " for name in PADDED],
    "quotes": [f'"{name}"' for name in PADDED],
    "the X that R": [f"X{name}" for name in PADDED],
    "suffixes": [f"{name}-01A" for name in PADDED],
    "prefixes": [f"ov_{name}" for name in PADDED],
    "prefixes, suffixes": [f"patient{name}.CEL" for name in PADDED],
    "several of": [f" {number}.0 " for number in NUMBERS],
}
PAIRS = [(PADDED, ids, what) for what, ids in SPELLINGS.items()] + [
    ([f"{n}.0" for n in NUMBERS], [f"{n}" for n in NUMBERS], "decimals"),
    ([f"{n}.5E+07" for n in NUMBERS], [f"{n}5000000" for n in NUMBERS], "powers of ten"),
    ([f"{n}.05E+07" for n in NUMBERS], [f"{n}0500000" for n in NUMBERS], "powers of ten"),
    ([f"A{n}" for n in NUMBERS], [f"a{n}" for n in NUMBERS], "upper and lower case"),
    ([f"TCGA.06.{n}" for n in PADDED], [f"TCGA-06-{n}" for n in PADDED], "punctuation"),
    ([f"caf\u00e9{n}" for n in NUMBERS], [f"cafe\u0301{n}" for n in NUMBERS], "Unicode form"),
    ([f"p{n}" for n in PADDED], [f"{n}" for n in NUMBERS], "prefixes"),
]


@pytest.mark.parametrize("join", [None, "outer"])
@pytest.mark.parametrize(("own", "others", "what"), PAIRS)
def test_ids_written_in_two_ways_are_refused(
    own: list[str], others: list[str], what: str, join: Join | None
) -> None:
    for first, second in ((own, others), (others, own)):
        with pytest.raises(DataError, match=f"written in two ways.*but for .*{what}") as error:
            join_samples({"a.csv": first, "b.csv": second[::-1]}, join)
        for side in (first, second):
            assert sum(f"{name!r}" in str(error.value) for name in side) >= 3


def test_other_samples_are_no_other_spelling() -> None:
    """Repeats such as "s1-2" beside "s1", and few shared samples."""
    once = [f"s{number}" for number in NUMBERS]
    others = [*once[:30], "s31-2", "t1", "t2"]
    assert len(join_samples({"a": once, "b": others}, "outer")[0] or ()) == 43
    assert len(join_samples({"a": once[:25], "b": once[20:]}, "outer")[0] or ()) == 40
    assert len(join_samples({"a": once[:25], "b": once[20:]}, "inner")[0] or ()) == 5


@pytest.mark.parametrize("code", [0x0, 0x1B, 0x85, 0xAD, 0x200B, 0x202E, 0x2028, 0xFEFF, 0xE0041])
def test_texts_that_look_like_others_or_act_on_a_terminal_are_refused(code: int) -> None:
    with pytest.raises(DataError, match=rf"of 'a\.csv'.*in row 1 has the character U\+{code:04X}"):
        join_samples({"a.csv": ["ok", f"{chr(code)}a"]}, None)


def test_texts_of_any_language_are_printable() -> None:
    check_printable(["Größe", "試料 1", "\u0645\u06cc\u200c\u062e", "a\u0301"], "view name")


def test_views_are_linked_by_chains_and_by_groups() -> None:
    def groups(*views: Collection[int], n: int = 1) -> tuple[list[list[int]], int]:
        has = np.zeros((12, len(views)), dtype=bool)
        for column, rows in enumerate(views):
            has[list(rows), column] = True
        found, n_shared = linked_groups(has, n)
        return sorted(map(sorted, found)), n_shared

    assert groups(range(6), range(6, 12)) == ([[0], [1]], 0)
    assert groups(range(5), range(8, 12), range(4, 9)) == ([[0, 1, 2]], 0)
    assert groups(range(6), range(4, 12), n=2) == ([[0, 1]], 0)
    assert groups(range(6), range(4, 12), n=3) == ([[0], [1]], 2)
    assert groups(range(4), range(1, 12), n=9) == ([[0, 1]], 0)  # most samples of the smaller view
    assert groups(range(5), range(3, 8), range(7, 12), n=3) == ([[0], [1], [2]], 2)
    # two samples link each of two linked views: together they share four with the third
    assert groups(range(6), range(2, 8), (0, 1, 6, 7, 9), n=4) == ([[0, 1, 2]], 0)


@pytest.mark.parametrize(
    "values",
    [
        *([0.0, 1.5], [0.0, np.nan, np.inf], [1e300], np.eye(3), np.array(3)),
        *(np.array([1, "a"], dtype=object), pd.Series(["a", None, "b"]), np.array([1j])),
    ],
)
def test_anything_else_is_refused(values: Any) -> None:
    with pytest.raises(DataError):
        encode_labels(values)


@pytest.mark.parametrize(
    "changes",
    [{"sample_ids": ("a",)}, {"labels": np.zeros(2, dtype=np.int64)}],
    ids=["few ids", "few labels"],
)
def test_ids_and_labels_that_do_not_fit_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        MultiViewData((ArrayRows(np.ones((3, 1)), "a"),), **changes)


@pytest.mark.parametrize("text", ["a\x1b[2J", "\ud800"])
@pytest.mark.parametrize("place", ["view name", "sample id", "label"])
def test_control_characters_are_refused_and_quoted_escaped(text: str, place: str) -> None:
    changed: dict[str, dict[str, Any]] = {
        "view name": {"views": (ArrayRows(np.ones((2, 1)), text),)},
        "sample id": {"sample_ids": ("a", text)},
        "label": {"labels": np.array([0, 1]), "label_names": ("a", text)},
    }
    arguments = {"views": (ArrayRows(np.ones((2, 1)), "a"),), **changed[place]}
    with pytest.raises(DataError, match=quotes(place, ascii(text))) as caught:
        MultiViewData(**arguments)
    assert text not in str(caught.value)


def test_booleans_are_labels_and_minus_one_is_none_beside_two_classes() -> None:
    assert encode_labels(np.array([True, False]))[0].tolist() == [1, 0]
    assert labeled_samples(np.array([0, 1, -1, 0])).tolist() == [True, True, False, True]
    assert labeled_samples(np.array([-1, 1, -1])).all()
    assert labeled_samples(np.array([-2, -1, 0])).all()
    assert labeled_samples(np.array([3, 4])).all()


N = 120


def tables(n_shared: int) -> dict[str, NDArray[np.float64]]:
    """Two views of N samples; each has the shared ones and half of the others, and NaN for the rest."""
    views = np.random.default_rng(0).standard_normal((2, N, 6))
    half = (N - n_shared) // 2
    views[0, half + n_shared :], views[1, :half] = np.nan, np.nan
    return {"rna": views[0], "prot": views[1]}


@pytest.mark.parametrize(("n_clusters", "n_shared"), [(1, 0), (2, 0), (3, 2), (8, 6)])
def test_each_cluster_needs_a_shared_sample(n_clusters: int, n_shared: int) -> None:
    with raises(DataError, f"share at most {n_shared} of"):
        validate(as_multi_view(tables(n_shared)), n_clusters=n_clusters, n_neighbors=3)
    validate(as_multi_view(tables(12)), n_clusters=n_clusters, n_neighbors=3)
