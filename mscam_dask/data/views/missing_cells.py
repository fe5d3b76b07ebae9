"""Missing cells of views: NaN in rows that are not all NaN."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.multi_view import MultiViewData, option_by_view
from mscam_dask.data.views.rows import PresentRows
from mscam_dask.data.views.sources import ArrayRows, RowSource, row_ranges
from mscam_dask.errors import DataError
from mscam_dask.types.parameters import IMPUTE_METHODS, ImputeMethod

_SHOWN = 5

# A view with a larger share of missing cells would consist of imputed values mainly.
_LARGEST_SHARE = 0.5

# Memory of the distances between rows with missing cells and the rows of a fit.
_IMPUTED_MIB = 16


# Sums and differences of numbers up to this are numbers.
LARGEST = 1e304


def missing_cells(view: RowSource, sample_ids: Sequence[str] | None = None) -> tuple[str, int]:
    """Read a view once; describe its cells that are NaN, infinite or beyond `LARGEST` ("" for none), and count NaN."""
    n_missing = n_too_large = 0
    largest = 0.0
    bad_rows: list[int] = []
    bad_columns = np.zeros(view.shape[1], dtype=np.bool_)
    for start, stop in row_ranges(view):
        magnitudes = np.abs(view.read(start, stop))
        bad = ~(magnitudes <= LARGEST)  # NaN is not either
        if bad.any():
            gone = np.isnan(magnitudes)
            n_missing += int(gone.sum())
            n_too_large += int((bad & ~gone).sum())
            largest = max(largest, float(np.max(magnitudes, where=~gone, initial=0.0)))
            bad_rows.extend((np.flatnonzero(bad.any(axis=1)) + start).tolist())
            bad_columns |= bad.any(axis=0)
    if not bad_rows:
        return "", 0
    present, names = view.present, view.feature_names
    first, columns = bad_rows[:_SHOWN], np.flatnonzero(bad_columns).tolist()
    rows = first if present is None else present.samples[first].tolist()
    shown = [row if sample_ids is None else sample_ids[row] for row in rows]
    named = [column if names is None else names[column] for column in columns[:_SHOWN]]
    held = f"{n_missing} NaN ({n_missing / (view.shape[0] * view.shape[1]):.2%} of its cells)"
    if n_too_large:
        held += f" and {n_too_large} infinite or above {LARGEST:g} (up to {largest:.3g})"
    found = (
        f"View {view.name!r} has {held}, in {len(bad_rows)} of {view.shape[0]} rows (first "
        f"{'rows' if sample_ids is None else 'ids'}: {shown}) and {len(columns)} of {view.shape[1]} "
        f"columns (first: {named})"
    )
    return found, n_missing


def refuse_missing_cells(found: Iterable[tuple[str, int]]) -> None:
    """Refuse what `missing_cells` found in views, with one `DataError` for all of them."""
    known = [(text, n_missing) for text, n_missing in found if text]
    if not known:
        return
    remedy = "Drop these samples or columns, or correct the values."
    if any(n_missing for _, n_missing in known):
        remedy = "Set impute='mean', 'median' or 'knn' (--impute) for feature views, or drop these samples or columns."
    raise DataError(
        f"{'; '.join(text for text, _ in known)}. Allowed are finite numbers, and rows that are all NaN for "
        f"samples that a view does not have. {remedy}"
    )


@contextmanager
def naming_missing_cells(data: MultiViewData) -> Iterator[None]:
    """Replace a data error by one that names the missing cells of all views, if there are any."""
    try:
        yield
    except DataError:
        found = [missing_cells(view, data.sample_ids) for view in data.views]
        if any(n_missing for _, n_missing in found):
            refuse_missing_cells(found)
        raise


def impute_methods(impute: Any, names: Sequence[str]) -> dict[str, ImputeMethod]:
    """Return the method of each view that has one, from a value of the option `impute`."""
    by_view = option_by_view("impute", impute, names, (None, *IMPUTE_METHODS))
    return {name: by_view[name] for name in names if by_view.get(name) is not None}


def impute_methods_of(data: MultiViewData) -> dict[str, ImputeMethod]:
    """Return the method of each view of a store whose missing cells were to be filled."""
    found = {view.name: view.impute for view in data.views}
    return {name: method for name, method in found.items() if method is not None}


class Imputer:
    """Fills cells that are NaN by a method, from the samples of a view, which are read at the first use."""

    def __init__(self, view: RowSource, method: ImputeMethod) -> None:
        self._view: RowSource | None = view
        self._method = method
        self._estimator: Any = None

    def fit(self, rows: NDArray[np.float64]) -> Imputer:
        """Fit it to rows (m, d) of which each column has a value, and return it; MLflow's autologger leaves imputers out."""
        from sklearn.impute import KNNImputer, SimpleImputer  # slow to import

        self._estimator = KNNImputer(keep_empty_features=True)
        if self._method != "knn":
            self._estimator = SimpleImputer(strategy=self._method, keep_empty_features=True)
        with _settings():
            self._estimator.fit(rows)
        self._view = None
        return self

    def __call__(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a copy of rows (m, d) with a value in each cell that is NaN."""
        if self._view is not None:
            self.fit(self._view.read(0, self._view.shape[0]))
        with _settings(), np.errstate(invalid="ignore"):
            return np.asarray(self._estimator.transform(rows))


def _settings() -> Any:
    """Settings of scikit-learn: the fit refuses infinite values later, with their places."""
    from sklearn import config_context

    return config_context(working_memory=_IMPUTED_MIB, assume_finite=True)


def impute_views(
    data: MultiViewData, methods: Mapping[str, ImputeMethod]
) -> tuple[MultiViewData, dict[str, Imputer], dict[str, NDArray[np.float64]]]:
    """Impute the missing cells of some feature views in memory; more than half of a view, or a column, is refused.

    Also the imputers, and the shares (n,) of the imputed cells of each sample, by view.
    """
    views, imputers, shares = [], {}, {}
    for view in data.views:
        method = methods.get(view.name)
        if method is None or view.view_type != "features" or 0 in view.shape:
            views.append(view)
            continue
        rows = view.read(0, view.shape[0])
        missing = np.isnan(rows)
        _check_enough(view, missing)
        imputers[view.name] = Imputer(view, method).fit(rows)
        if not missing.any():
            views.append(view)
            continue
        present, share = view.present, missing.mean(axis=1)
        shares[view.name] = share if present is None else present.spread(share, 0.0)
        views.append(with_rows(view, imputers[view.name](rows)))
    return replace(data, views=tuple(views)), imputers, shares


def with_rows(view: RowSource, rows: NDArray[np.float64]) -> RowSource:
    """Return a feature view with other values, in memory."""
    present, names = view.present, view.feature_names
    if present is None:
        return ArrayRows(rows, view.name, view.view_type, names)
    whole = ArrayRows(present.spread(rows), view.name, view.view_type, names)
    return PresentRows(whole, present.samples)


def _check_enough(view: RowSource, missing: NDArray[np.bool_]) -> None:
    if missing.mean() > _LARGEST_SHARE:
        raise DataError(
            f"View {view.name!r}: {missing.mean():.0%} of the cells are missing; at most "
            f"{_LARGEST_SHARE:.0%} can be imputed. Drop the view, or the columns and samples that are mostly missing."
        )
    empty = np.flatnonzero(missing.all(axis=0))
    if empty.size:
        names = view.feature_names
        shown = [column if names is None else names[column] for column in empty[:_SHOWN].tolist()]
        raise DataError(
            f"View {view.name!r}: {empty.size} column(s) have no values to impute from (first: {shown}). "
            "Drop them."
        )
