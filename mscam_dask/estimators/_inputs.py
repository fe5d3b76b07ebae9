"""Views that `fit` and `predict` take: one table, several arrays, or a store."""

from __future__ import annotations

import copy
import dataclasses
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import validate_data

from mscam_dask.data.sparse import is_sparse
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.conversion import is_frame, is_instance_of, rows_of, with_index
from mscam_dask.data.views.missing_cells import with_rows
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.rows import LiftedRows, PresentRows, restrict_to_present
from mscam_dask.data.views.sample_ids import places_of
from mscam_dask.data.views.sources import RowSource, changed_names, is_numbering
from mscam_dask.data.views.validation import check_values
from mscam_dask.errors import DataError, DataTypeError

if TYPE_CHECKING:
    from mscam_dask.estimators.mscam import MSCAM

OF_TABLE = ("n_features_in_", "feature_names_in_")
"""Attributes that scikit-learn sets in a fit of one table."""


def views_to_fit(estimator: MSCAM, X: Any) -> tuple[MultiViewData, dict[str, Any]]:
    """Views of `X`, and the values of `OF_TABLE` for the estimator after the fit."""
    asked = copy.copy(estimator)  # the estimator stays as it is if the fit fails
    for name in OF_TABLE:
        asked.__dict__.pop(name, None)
    given = _validated_table(asked, X, reset=True) if _is_plain_table(X) else X
    if is_frame(X) and estimator.view_type != "features":
        given = X  # with its ids, which may name the columns
    data = as_multi_view(given, view_type=estimator.view_type)
    return data, {name: vars(asked)[name] for name in OF_TABLE if name in vars(asked)}


def views_to_predict(estimator: MSCAM, X: Any) -> MultiViewData:
    """Validated views of new samples in the order of the fit, without excluded views."""
    given, may_lack_views, is_compared = X, not isinstance(X, list | tuple), False
    if isinstance(X, list | tuple) and any(item is None for item in X):
        given, may_lack_views = _by_name(X, estimator.view_names_), True
    elif _is_plain_table(X):
        is_compared, may_lack_views = hasattr(estimator, OF_TABLE[0]), False
        if is_compared or not is_frame(X):
            given = _validated_table(estimator, X, reset=False)
    training = estimator._training
    types = {view.name: view.view_type for view in training.views if view.view_type != "features"}
    data = as_multi_view(given, view_type=types, is_new=True)
    ids, excluded = training.sample_ids, estimator.excluded_views_
    new = {view.name: _in_order(view, ids) for view in data.views}
    may_lack_views &= any(name not in excluded for name in new)
    fitted = {
        view.name: view for view in training.views if view.name in new or view.name not in excluded
    }
    expected = {
        name: view.shape[1] if view.view_type == "features" else view.n_samples
        for name, view in fitted.items()
    }
    asked = [name for name in fitted if name in new or not may_lack_views]
    got = {name: view.shape[1] for name, view in new.items()}
    if got != {name: expected[name] for name in asked}:
        raise DataError(
            f"The views of the fit have these numbers of columns: {expected}; got {got}. "
            "Give the same views, by the same names, with the same features; views that the new "
            "samples do not have may be missing from a mapping, or None in a sequence."
        )
    pairs = [(fitted[name], new[name]) for name in asked]
    if not is_compared:
        _check_feature_names(pairs, ids, type(estimator).__name__)
    views = [_checked(estimator, *pair) for pair in pairs if pair[1].name not in excluded]
    return dataclasses.replace(data, views=tuple(views))


def _by_name(X: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """Views of a sequence that are not None, by the names of the fit."""
    n_missing = sum(item is None for item in X)
    if len(X) != len(names) or n_missing == len(X):
        raise DataError(
            f"got {len(X)} views, {n_missing} of them None; allowed are the {len(names)} views of the fit "
            f"{list(names)} in order, with None for some, but not all, of them."
        )
    return {name: item for name, item in zip(names, X, strict=True) if item is not None}


def _validated_table(estimator: MSCAM, X: Any, *, reset: bool) -> Any:
    """Table validated by scikit-learn, whose errors are raised as errors of this package.

    A table is read as a view in a list unless it is a list of rows or a NumPy array of numbers.
    """
    table = with_index(X)
    is_read_as_view = not isinstance(table, Sequence) and (
        type(table) is not np.ndarray
        or (table.dtype.kind == "O" and any(isinstance(one, str | bytes) for one in table.flat))
    )
    view = rows_of(table, name="view_0") if is_read_as_view else None
    try:
        validated = validate_data(
            estimator,
            table,
            reset=reset,
            skip_check_array=is_read_as_view,
            ensure_all_finite=False,  # `validate` reports the rows, as for every view
            ensure_min_samples=2 if reset else 1,
        )
        return validated if view is None else view
    except TypeError as error:
        raise DataTypeError(str(error)) from error
    except ValueError as error:
        of_views = "Give each view as an array: [np.asarray(view) for view in views]."
        remedy = f" {of_views}" if isinstance(X, Sequence) else ""
        raise DataError(f"{error}{remedy}") from error


def _checked(estimator: MSCAM, fitted: RowSource, new: RowSource) -> RowSource:
    """View of new samples with the columns of the fit, imputed and checked."""
    if new.view_type != "features" and fitted.present is not None:
        new = restrict_to_present(new.whole, columns=fitted.present.samples)
    if new.name in estimator._imputers:
        rows = new.read(0, new.shape[0])
        if np.isnan(rows).any():
            new = with_rows(new, estimator._imputers[new.name](rows))
    check_values(new)
    if new.view_type == "features" or new.shape != fitted.shape:
        return new
    # a pairwise view whose columns are the new samples, too, is symmetric, and not that of the fit
    n = min(64, new.shape[0])
    corner, of_fit = (view.read(0, n)[:, :n] for view in (new, fitted))
    own = corner.diagonal()
    has_diagonal = own.min() > 0 if new.view_type == "kernel" else own.max() <= 1e-6 * corner.max()
    is_of_fit = np.allclose(corner, of_fit, atol=1e-3 * np.abs(corner).max())
    if has_diagonal and np.allclose(corner, corner.T, atol=0) and not is_of_fit:
        raise DataError(
            f"View {new.name!r} is symmetric, as if its columns were the new samples; allowed is a column for each sample of "
            "the fit. Give the values between the new samples and those of the fit."
        )
    return new


def _in_order(view: RowSource, ids: Sequence[str] | None) -> RowSource:
    """Return a view of new samples with its columns in the order of the fit if they are samples that its `ids` name."""
    whole = view.whole
    if view.view_type == "features" or not ids or whole.feature_names == ids:
        return view
    rows = whole if isinstance(whole, LiftedRows) else LiftedRows(whole, np.arange(view.n_samples))
    names = rows.source.feature_names or ()
    if is_numbering(names) or sorted(names) != sorted(ids):
        return view
    whole = dataclasses.replace(rows, columns=places_of(names, ids))
    return dataclasses.replace(view, source=whole) if isinstance(view, PresentRows) else whole


def _is_plain_table(X: Any) -> bool:
    """Whether X is one table in the sense of scikit-learn, and not a collection of views."""
    if is_sparse(X):  # a dok_array is also a mapping
        return True
    if isinstance(X, MultiViewData | str | os.PathLike | Mapping):
        return False
    package = type(X).__module__.partition(".")[0]
    if package in ("xarray", "anndata", "mudata") or is_instance_of(X, "dask", "DataFrame"):
        return False
    if isinstance(X, Sequence):
        return len(X) > 0 and all(
            isinstance(item, Sequence | Number) and not isinstance(item, str) for item in X
        )
    return hasattr(X, "__array__") or hasattr(X, "__array_interface__")


def _check_feature_names(
    pairs: Iterable[tuple[RowSource, RowSource]], ids: Sequence[str] | None, estimator: str
) -> None:
    """Raise if the columns of a view, of the fit and of new samples, have other names or another order.

    Warn if only one of the two has names. Columns of a pairwise view may have the `ids` of the fit as names. The numbering
    0, 1, ... of a frame counts as names only if the other view has the same numbers in another order.
    """
    unnamed: dict[str, list[str]] = {"have": [], "have no": []}
    for fitted, new in pairs:
        expected, got = fitted.whole.feature_names, new.feature_names
        if fitted.view_type != "features" and got == ids:
            continue
        if differ := changed_names(expected, got):
            raise DataError(
                f"View {new.name!r}: feature names must be those of the fit, in their order; {differ}. Give frames as "
                "new[old.columns]."
            )
        has, has_now = (bool(names and not is_numbering(names)) for names in (expected, got))
        if has != has_now:
            unnamed["have no" if has else "have"].append(new.name)
    for have, views in unnamed.items():
        if views:
            fitted_with = "without" if have == "have" else "with"
            warnings.warn(
                f"View(s) {views} {have} feature names, but {estimator} was fitted {fitted_with} "
                "feature names; columns are taken in their order.",
                UserWarning,
                stacklevel=5,
            )
