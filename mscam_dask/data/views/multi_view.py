"""Several views of the same samples, and their missing cells: NaN in rows that are not all NaN."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.rows import PresentRows
from mscam_dask.data.views.sample_ids import check_printable, check_sample_ids
from mscam_dask.data.views.sources import ArrayRows, RowSource, row_ranges, view_digest
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.types.parameters import IMPUTE_METHODS, ImputeMethod


@dataclass(frozen=True, eq=False)
class MultiViewData:
    """The same n samples in one or more views: row i of each is sample i.

    An incomplete view is a `PresentRows`; every sample is in at least one view. `labels` (n,) are the ground truth, −1
    for unlabeled samples, for evaluation only, and `label_names` the names of label 0, 1, ....
    """

    views: tuple[RowSource, ...]
    sample_ids: tuple[str, ...] | None = None
    labels: NDArray[np.int64] | None = None
    label_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not self.views:
            raise DataError(
                "No views were given; allowed is one or more (n_samples, n_features) arrays. "
                "Pass a list or dict of arrays, an xarray.Dataset or a store path."
            )
        repeated = [name for name, count in Counter(self.view_names).items() if count > 1]
        if repeated:
            raise DataError(
                f"View names {repeated} are used more than once in {list(self.view_names)}; "
                "names must be unique. Rename all but one of them."
            )
        self._check_counts()
        check_printable(self.view_names, "view name")
        check_printable(self.label_names or (), "label")
        for what, values in (("sample ids", self.sample_ids), ("labels", self.labels)):
            if values is not None and len(values) != self.n_samples:
                raise DataError(
                    f"Got {len(values)} {what} for {self.n_samples} samples (rows of the views "
                    f"{list(self.view_names)}); there must be one per sample, or none at all."
                )
        if self.sample_ids is not None:
            check_sample_ids(self.sample_ids, where="the data")
        nowhere = np.flatnonzero(~self.presence.any(axis=1)).tolist() if self.is_incomplete else []
        if nowhere:
            ids = self.sample_ids
            shown = nowhere[:5] if ids is None else [ids[row] for row in nowhere[:5]]
            raise DataError(
                f"{len(nowhere)} sample(s) are absent from every view: all their values are NaN (first "
                f"{'rows' if ids is None else 'ids'}: {shown}). Drop these samples; every sample must be in at "
                "least one view."
            )

    def _check_counts(self) -> None:
        counts = {view.name: view.n_samples for view in self.views}
        if len(set(counts.values())) == 1:
            return
        remedy = (
            "Keep the samples that all views share, in the same order, or give rows of NaN for those that a view "
            "does not have (frame.reindex(ids)); if columns are the samples, transpose the views (files: "
            "samples_in='columns', --samples-in columns)."
        )
        for count in counts.values():
            if all(count in view.shape for view in self.views):
                turned = [view.name for view in self.views if view.shape[0] != count]
                remedy = (
                    f"View(s) {turned} look like (features, samples): transpose these, or, if all views of their "
                    "file are so, read it with samples_in='columns' (--samples-in columns)."
                )
                break
        listing = ", ".join(f"{name!r}: {count}" for name, count in counts.items())
        raise DataError(
            f"The views have different numbers of samples ({listing}); every view must have "
            f"one row per sample. {remedy}"
        )

    @property
    def n_samples(self) -> int:
        """Number of samples n."""
        return self.views[0].n_samples

    @property
    def is_incomplete(self) -> bool:
        """Whether a view does not have all samples."""
        return any(view.present is not None for view in self.views)

    @property
    def presence(self) -> NDArray[np.bool_]:
        """Whether each view (columns) has each sample (rows)."""
        return presence_table(self.views)

    def covers_samples_without(self, excluded: Collection[int]) -> bool:
        """Whether every sample is in a view that is not at one of these positions."""
        kept = [view for index, view in enumerate(self.views) if index not in excluded]
        return not self.is_incomplete or bool(presence_table(kept).any(axis=1).all())

    @property
    def view_names(self) -> tuple[str, ...]:
        """Names of the views, in order."""
        return tuple(view.name for view in self.views)

    @property
    def nbytes(self) -> int:
        """Bytes of all views as dense float64, the form in which they are computed on."""
        return sum(8 * view.shape[0] * view.shape[1] for view in self.views)

    def digest(self) -> str:
        """SHA-256 (hexadecimal) of the names, view types, shapes and values of all views; a store has recorded it."""
        total = hashlib.sha256()
        for view in self.views:
            values = view.recorded_digest or view_digest(view)
            if view.present is not None:  # number of samples, and ranges "first-last"
                samples = view.present.samples
                runs = np.split(samples, np.flatnonzero(np.diff(samples) != 1) + 1)
                values += f"{view.n_samples}:" + ",".join(f"{run[0]}-{run[-1]}" for run in runs)
            total.update(f"{len(view.name)}:{view.name};{view.view_type};{values};".encode())
        return total.hexdigest()


def option_by_view(
    option: str, value: Any, names: Sequence[str], allowed: Sequence[Any]
) -> dict[str, Any]:
    """Values of an option by view, from one for all views, one for each in order, or a mapping by name of some."""
    if hasattr(value, "items"):
        found = {str(name): one for name, one in value.items()}
    elif isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        if len(value) != len(names):
            raise ConfigurationError(
                f"{option} has {len(value)} entries for {len(names)} views {list(names)}; give one per "
                "view, or a mapping by name."
            )
        found = dict(zip(names, value, strict=True))
    else:
        found = dict.fromkeys(names, value)
    unknown = sorted(set(found) - set(names))
    if unknown:
        raise ConfigurationError(
            f"{option} names view(s) {unknown} that do not exist; the views are {list(names)}."
        )
    for name, one in found.items():
        if one not in allowed:
            raise ConfigurationError(
                f"{option}={one!r} for view {name!r}; allowed are {list(allowed)}, for all views or as a mapping "
                "by view name."
            )
    return found


def presence_table(views: Sequence[RowSource]) -> NDArray[np.bool_]:
    """Return whether each view (columns) has each sample (rows)."""
    table = np.ones((views[0].n_samples, len(views)), dtype=np.bool_)
    for column, view in enumerate(views):
        if view.present is not None:
            table[:, column] = view.present.positions >= 0
    return table


# missing cells -----------------------------------------------------------------------------------


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
        if method is None or view.view_type != "features":
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
