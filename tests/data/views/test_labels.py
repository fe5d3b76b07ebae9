"""Labels as they come, to one int64 per sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mscam_dask.data.views.conversion import encode_labels, labeled_samples
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.errors import DataError
from tests.messages import quotes


@given(labels=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1))
def test_whole_numbers_stay_as_they_are(labels: list[int]) -> None:
    for values in (
        np.array(labels),
        np.array(labels, dtype=">i4"),
        np.array(labels, dtype=np.float64)[:, None],
        np.array(labels, dtype=np.float64)[None, :],
    ):
        codes, names = encode_labels(values)
        assert codes.dtype == np.int64
        assert codes.tolist() == labels
        assert names is None


@given(labels=st.lists(st.text("abc é", min_size=1), min_size=1))
def test_text_becomes_positions_in_its_sorted_names(labels: list[str]) -> None:
    encoded = [label.encode() for label in labels]
    for values in (
        *(np.array(labels), np.array(labels, dtype=object)),
        *(np.array(encoded), np.array(encoded, dtype=object)),
    ):
        codes, names = encode_labels(values)
        assert names == tuple(sorted(set(labels)))
        assert [names[code] for code in codes] == labels


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
    [
        {"sample_ids": ("a",)},
        {"labels": np.zeros(2, dtype=np.int64)},
        {"labels": np.array([0, 2, 1]), "label_names": ("a", "b")},
        {"labels": np.array([0, -2, 1]), "label_names": ("a", "b")},
    ],
    ids=["few ids", "few labels", "no name", "negative"],
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
