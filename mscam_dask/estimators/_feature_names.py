"""Comparison of the feature names of new samples with those of the fit, as in scikit-learn."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from mscam_dask.data.views.as_multi_view import RowSource
from mscam_dask.data.views.sources import (
    feature_names_of,
    first_difference,
    is_numbering,
    listed,
)
from mscam_dask.errors import DataError

__all__ = ["check_feature_names"]

_Names = tuple[str, ...]


def check_feature_names(
    pairs: Iterable[tuple[RowSource, RowSource]], *, estimator: str, stacklevel: int
) -> None:
    """Raise if the columns of a view have other names than in the fit, or another order.

    Parameters
    ----------
    pairs : iterable of (RowSource, RowSource)
        A view of the fit and the same view of new samples, with as many columns.
    estimator : str
        Name of its class, for warnings.
    stacklevel : int
        Stack level of warnings, relative to the caller of this function.

    Raises
    ------
    DataError
        The names or their order differ; the message names view and columns.

    Warns
    -----
    UserWarning
        Only one of the two has names: columns are then matched by their order.

    Notes
    -----
    The default numbering 0, 1, ... of a frame counts as names only if the other view has the same
    numbers in another order.
    """
    nameless: list[str] = []
    named_anew: list[str] = []
    for fitted, new in pairs:
        expected, got = feature_names_of(fitted), feature_names_of(new)
        if expected is not None and got is not None and set(expected) == set(got):
            if expected != got:
                raise DataError(_in_another_order(new.name, expected, got))
            continue
        expected, got = _given(expected), _given(got)
        if expected is not None and got is not None:
            raise DataError(_other_names(new.name, expected, got))
        if expected is not None:
            nameless.append(new.name)
        elif got is not None:
            named_anew.append(new.name)
    if nameless:
        warnings.warn(
            f"View(s) {nameless} have no feature names, but {estimator} was fitted with feature "
            "names; columns are taken in their order.",
            UserWarning,
            stacklevel=stacklevel + 1,
        )
    if named_anew:
        warnings.warn(
            f"View(s) {named_anew} have feature names, but {estimator} was fitted without feature "
            "names; columns are taken in their order.",
            UserWarning,
            stacklevel=stacklevel + 1,
        )


def _given(names: _Names | None) -> _Names | None:
    """Feature names, or None for the default numbering of a frame."""
    return None if names is None or is_numbering(names) else names


def _in_another_order(view: str, expected: _Names, got: _Names) -> str:
    column = first_difference(expected, got)
    return (
        f"View {view!r}: feature names must be in the same order as they were in fit; column {column} "
        f"is {got[column]!r} and was {expected[column]!r}. Put the columns in that order (frames: "
        "new[old.columns])."
    )


def _other_names(view: str, expected: _Names, got: _Names) -> str:
    known, found = set(expected), set(got)
    unseen = [name for name in got if name not in known]
    missing = [name for name in expected if name not in found]
    parts = [
        f"{len(names)} {what} ({listed(names)})"
        for what, names in (
            ("unseen at fit time", unseen),
            ("seen in fit and now missing", missing),
        )
        if names
    ]
    return (
        f"View {view!r}: feature names should match those that were passed during fit; "
        f"{' and '.join(parts)}. Give the features of the fit, by the same names."
    )
