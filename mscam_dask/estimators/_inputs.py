"""Input of `fit` and `predict` as views: one table, several arrays, or a store; feature names."""

from __future__ import annotations

import copy
import dataclasses
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from mscam_dask.data.sparse import checked_sparse, is_sparse
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.conversion import is_instance_of
from mscam_dask.data.views.missing_cells import fill_view
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.rows import PresentRows, restrict_to_present
from mscam_dask.data.views.sources import (
    RowSource,
    first_difference,
    is_numbering,
    listed,
)
from mscam_dask.data.views.validation import check_values
from mscam_dask.errors import DataError, DataTypeError, MscamError
from mscam_dask.estimators._fitted import FittedAttributes

_OF_TABLE = ("n_features_in_", "feature_names_in_")


class MultiViewInputMixin(FittedAttributes):
    """Mixin for estimators that converts input to views, and matches new samples to the fit."""

    view_type: str | Mapping[str, str] | Sequence[str]

    def _views_to_fit(self, X: Any) -> tuple[MultiViewData, dict[str, Any]]:
        """Views of `X`, and the attributes scikit-learn sets for a table, for `_keep` after the fit."""
        asked = copy.copy(self)
        asked._keep({})
        data = asked._views(X, reset=True)
        return data, {name: found for name, found in vars(asked).items() if name in _OF_TABLE}

    def _keep(self, of_table: Mapping[str, Any]) -> None:
        """Replace the attributes that scikit-learn sets for a table."""
        for name in _OF_TABLE:
            vars(self).pop(name, None)
        vars(self).update(of_table)

    def _views(self, X: Any, *, reset: bool) -> MultiViewData:
        """Views of `X`; a plain table is first validated by scikit-learn."""
        may_lack_views = not isinstance(X, list | tuple) and not _is_plain_table(X)
        if _is_plain_table(X):
            data = as_multi_view(self._table(X, reset=reset), view_type=self.view_type)
        else:
            given = X
            if not reset and isinstance(X, list | tuple) and any(item is None for item in X):
                given = self._by_name(X)
                may_lack_views = True
            view_type = self.view_type if reset else self._view_types_of(given)
            data = as_multi_view(given, view_type=view_type)
        if reset:
            return data
        return self._as_fitted(data, may_lack_views=may_lack_views)

    def _by_name(self, X: Sequence[Any]) -> dict[str, Any]:
        """Views of a sequence that are not None, by the names of the fit."""
        if len(X) != len(self.view_names_) or all(item is None for item in X):
            raise DataError(
                f"got {len(X)} views, {sum(item is None for item in X)} of them None; allowed are the "
                f"{len(self.view_names_)} views of the fit {list(self.view_names_)} in order, with None "
                "for some, but not all, of them."
            )
        return {
            name: item for name, item in zip(self.view_names_, X, strict=True) if item is not None
        }

    def _table(self, X: Any, *, reset: bool) -> Any:
        """Table validated by scikit-learn, whose errors are raised as errors of this package."""
        if is_sparse(X):
            checked_sparse(X, "The table")
        try:
            return validate_data(
                self,
                X,
                reset=reset,
                accept_sparse="csr",
                ensure_all_finite=False,  # `validate` reports the rows, as for every view
                ensure_min_samples=2 if reset else 1,
            )
        except MscamError:
            raise
        except TypeError as error:
            raise DataTypeError(str(error)) from error
        except ValueError as error:
            of_views = "Give each view as an array: [np.asarray(view) for view in views]."
            remedy = f" {of_views}" if isinstance(X, Sequence) else ""
            raise DataError(f"{error}{remedy}") from error

    def _view_types_of(self, X: Any) -> str | Mapping[str, str]:
        """View types of the fit, without excluded views that are missing from the new samples."""
        if isinstance(self.view_type, str):
            return self.view_type
        metrics = (
            self.view_type
            if isinstance(self.view_type, Mapping)
            else dict(zip(self.view_names_, self.view_type, strict=True))
        )
        by_name = isinstance(X, Mapping | MultiViewData)
        there = set(X.view_names if isinstance(X, MultiViewData) else X if by_name else ())
        return {
            name: kind
            for name, kind in metrics.items()
            if name in there or not (by_name or name in self.excluded_views_)
        }

    def _as_fitted(self, data: MultiViewData, *, may_lack_views: bool) -> MultiViewData:
        """Validated views of new samples in the order of the fit, without excluded views."""
        by_name = {source.name: source for source in data.views}
        may_lack_views &= any(name not in self.excluded_views_ for name in by_name)
        expected = {
            source.name: source.n_samples if source.view_type != "features" else source.shape[1]
            for source in self._training.views
            if source.name in by_name or source.name not in self.excluded_views_
        }
        asked = [
            source
            for source in self._training.views
            if source.name in by_name or (source.name in expected and not may_lack_views)
        ]
        data = dataclasses.replace(data, views=tuple(map(_all_columns, data.views)))
        by_name = {source.name: source for source in data.views}
        got = {source.name: source.shape[1] for source in data.views}
        if got != {source.name: expected[source.name] for source in asked}:
            raise DataError(
                f"The views of the fit have these numbers of columns: {expected}; got {got}. "
                "Give the same views, by the same names, with the same features; views that the new "
                "samples do not have may be missing from a mapping, or None in a sequence."
            )
        check_feature_names(
            ((source, by_name[source.name]) for source in asked),
            estimator=type(self).__name__,
            stacklevel=5,
        )
        sources = [
            _columns_of(source, by_name[source.name])
            for source in asked
            if source.name not in self.excluded_views_
        ]
        imputers = self._imputers
        sources = [
            fill_view(source, imputers[source.name]) if source.name in imputers else source
            for source in sources
        ]
        for source in sources:
            check_values(source)
        return dataclasses.replace(data, views=tuple(sources))


def _all_columns(view: RowSource) -> RowSource:
    """Return a view of new samples with all columns, also of a pairwise view."""
    if isinstance(view, PresentRows) and view.view_type != "features":
        return dataclasses.replace(view, columns=np.arange(view.source.shape[1]))
    return view


def _columns_of(fitted: RowSource, new: RowSource) -> RowSource:
    """Return a pairwise view of new samples with the columns of the samples that the fit had of it."""
    present = fitted.present
    if present is None or fitted.view_type == "features":
        return new
    return restrict_to_present(new.whole, columns=present.samples)


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
        return len(X) > 0 and not any(
            hasattr(item, "shape") or isinstance(item, str | os.PathLike) for item in X
        )
    return hasattr(X, "__array__") or hasattr(X, "__array_interface__")


def check_feature_names(
    pairs: Iterable[tuple[RowSource, RowSource]], *, estimator: str, stacklevel: int
) -> None:
    """Raise if the columns of a view, of the fit and of new samples, have other names or another order.

    Warn if only one of the two has names. The numbering 0, 1, ... of a frame counts as names only if the other
    view has the same numbers in another order.
    """
    unmatched: dict[tuple[str, str], list[str]] = {}
    for fitted, new in pairs:
        expected, got = fitted.feature_names, new.feature_names
        if expected is not None and got is not None and set(expected) == set(got):
            if expected != got:
                column = first_difference(expected, got)
                raise DataError(
                    f"View {new.name!r}: feature names must be in the same order as they were in fit; column "
                    f"{column} is {got[column]!r} and was {expected[column]!r}. Put the columns in that "
                    "order (frames: new[old.columns])."
                )
            continue
        # the default numbering of a frame is no name
        expected, got = (
            None if names is None or is_numbering(names) else names for names in (expected, got)
        )
        if expected is not None and got is not None:
            known, seen = set(expected), set(got)
            parts = {
                "unseen at fit time": [name for name in got if name not in known],
                "seen in fit and now missing": [name for name in expected if name not in seen],
            }
            found = [
                f"{len(names)} {kind} ({listed(names)})" for kind, names in parts.items() if names
            ]
            raise DataError(
                f"View {new.name!r}: feature names should match those that were passed during fit; "
                f"{' and '.join(found)}. Give the features of the fit, by the same names."
            )
        if expected is not None:
            unmatched.setdefault(("no ", ""), []).append(new.name)
        elif got is not None:
            unmatched.setdefault(("", "out"), []).append(new.name)
    for (no, out), names in unmatched.items():
        warnings.warn(
            f"View(s) {names} have {no}feature names, but {estimator} was fitted with{out} feature "
            "names; columns are taken in their order.",
            UserWarning,
            stacklevel=stacklevel + 1,
        )
