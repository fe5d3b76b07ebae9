"""Input of `fit` and `predict`: views, and values of each sample.

Views are one table, several arrays, or a store. Values of each sample are its batch, its known or initial label, and
the group of samples that equal it.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from mscam_dask.data.sparse import is_sparse
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.conversion import (
    as_text,
    is_frame,
    is_instance_of,
    is_omics,
    rows_of,
    sample_ids_of,
    with_index,
)
from mscam_dask.data.views.missing_cells import fill_view
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.rows import (
    LiftedRows,
    PresentRows,
    blocks_of_rows,
    corrected_view,
    restrict_to_present,
)
from mscam_dask.data.views.sample_ids import places_of
from mscam_dask.data.views.sources import (
    RowSource,
    first_difference,
    is_numbering,
    listed,
)
from mscam_dask.data.views.validation import check_values
from mscam_dask.engine.batches import (
    SMALLEST_NEW_BATCH,
    BatchEffects,
    corrections_of_new_batch,
    estimate_effects,
)
from mscam_dask.engine.executors.base import Executor
from mscam_dask.errors import (
    ConfigurationError,
    DataError,
    DataTypeError,
    DataWarning,
    MscamError,
)
from mscam_dask.estimators._resources import map_views
from mscam_dask.linalg.scaling import BatchCorrection
from mscam_dask.solvers.known_labels import UNKNOWN
from mscam_dask.solvers.row_blocks import row_blocks

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
        given, may_lack_views = _validated_table(estimator, X, reset=False), False
        is_compared = hasattr(estimator, OF_TABLE[0])
    elif not isinstance(X, list | tuple | Mapping):  # a store or MuData, which have names
        given = as_multi_view(X)
    data = as_multi_view(given, view_type=_view_types_of(estimator, given))
    return _as_fitted(estimator, data, may_lack_views=may_lack_views, is_compared=is_compared)


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

    A table that is neither rows nor a plain array of numbers is read as a view in a list.
    """
    table = with_index(X)
    is_read = not isinstance(table, Sequence) and (
        type(table) is not np.ndarray
        or (table.dtype.kind == "O" and any(isinstance(one, str | bytes) for one in table.flat))
    )
    view = rows_of(table, name="view_0") if is_read else None
    try:
        validated = validate_data(
            estimator,
            table,
            reset=reset,
            skip_check_array=is_read,
            ensure_all_finite=False,  # `validate` reports the rows, as for every view
            ensure_min_samples=2 if reset else 1,
        )
        return validated if view is None else view
    except MscamError:
        raise
    except TypeError as error:
        raise DataTypeError(str(error)) from error
    except ValueError as error:
        of_views = "Give each view as an array: [np.asarray(view) for view in views]."
        remedy = f" {of_views}" if isinstance(X, Sequence) else ""
        raise DataError(f"{error}{remedy}") from error


def _view_types_of(estimator: MSCAM, X: Any) -> dict[str, str]:
    """View types of the fit that are not "features", of views that new samples have."""
    if isinstance(X, MultiViewData | Mapping):
        names = {*map(str, X.view_names if isinstance(X, MultiViewData) else X)}
    else:
        n_views = len(X) if isinstance(X, list | tuple) else 1
        names = {f"view_{index}" for index in range(n_views)}
    views = [view for view in estimator._training.views if view.view_type != "features"]
    return {view.name: view.view_type for view in views if view.name in names}


def _as_fitted(
    estimator: MSCAM, data: MultiViewData, *, may_lack_views: bool, is_compared: bool
) -> MultiViewData:
    """Views in the order of the fit; scikit-learn has already compared the feature names if `is_compared`."""
    ids = estimator._training.sample_ids
    given = {view.name: _all_columns(view, ids) for view in data.views}
    excluded = estimator.excluded_views_
    may_lack_views &= any(name not in excluded for name in given)
    known = {
        view.name: view
        for view in estimator._training.views
        if view.name in given or view.name not in excluded
    }
    expected = {
        name: view.shape[1] if view.view_type == "features" else view.n_samples
        for name, view in known.items()
    }
    asked = [name for name in known if name in given or not may_lack_views]
    got = {name: view.shape[1] for name, view in given.items()}
    if got != {name: expected[name] for name in asked}:
        raise DataError(
            f"The views of the fit have these numbers of columns: {expected}; got {got}. "
            "Give the same views, by the same names, with the same features; views that the new "
            "samples do not have may be missing from a mapping, or None in a sequence."
        )
    pairs = [(known[name], given[name]) for name in asked]
    if not is_compared:
        _check_feature_names(pairs, ids, type(estimator).__name__)
    views = []
    for fitted, new in pairs:
        if new.name not in excluded:
            view = _columns_of(fitted, new)
            if view.name in estimator._imputers:
                view = fill_view(view, estimator._imputers[view.name])
            check_values(view)
            views.append(view)
    return dataclasses.replace(data, views=tuple(views))


def _all_columns(view: RowSource, ids: Sequence[str] | None) -> RowSource:
    """Return a view of new samples with all columns; those of a pairwise view that `ids` of the fit name, in their order."""
    if view.view_type == "features":
        return view
    whole = view.whole
    if ids and whole.feature_names != ids:
        rows = (
            whole if isinstance(whole, LiftedRows) else LiftedRows(whole, np.arange(view.n_samples))
        )
        names = rows.source.feature_names or ()
        if not is_numbering(names) and sorted(names) == sorted(ids):
            whole = dataclasses.replace(rows, columns=places_of(names, ids))
    if isinstance(view, PresentRows):
        return dataclasses.replace(view, source=whole, columns=np.arange(whole.shape[1]))
    return whole


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
        return len(X) > 0 and all(
            isinstance(item, Sequence | Number) and not isinstance(item, str) for item in X
        )
    return hasattr(X, "__array__") or hasattr(X, "__array_interface__")


def _check_feature_names(
    pairs: Iterable[tuple[RowSource, RowSource]], ids: Sequence[str] | None, estimator: str
) -> None:
    """Raise if the columns of a view, of the fit and of new samples, have other names or another order.

    Warn if only one of the two has names. Columns of a pairwise view may have the `ids` of the fit as names. The numbering 0, 1, ... of a frame counts as names only if the other
    view has the same numbers in another order.
    """
    unmatched: dict[tuple[str, str], list[str]] = {}
    for fitted, new in pairs:
        expected, got = fitted.whole.feature_names, new.feature_names
        if fitted.view_type != "features" and got == ids:
            continue
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
            stacklevel=6,
        )


# values of each sample ---------------------------------------------------------------------------


def sample_values(values: Any, name: str, X: Any, data: MultiViewData) -> NDArray[Any]:
    """One value (n,) for each sample: from an array, a Series (matched by ids if it has them), or the name of a column of obs."""
    tables = X.values() if isinstance(X, Mapping) else X if isinstance(X, list | tuple) else [X]
    if isinstance(values, str):
        columns = [table.obs for table in tables if is_omics(table)]
        if not columns:
            raise DataError(
                f"{name}={values!r} is the name of a column, but the data are no AnnData or MuData, which have "
                f"columns of samples. Give one value for each sample, such as data.obs[{values!r}]."
            )
        obs = next((one for one in columns if values in one), columns[0])
        if values not in obs:
            modalities = [one for one, own in getattr(X, "mod", {}).items() if values in own.obs]
            where = f" Copy it to obs from {modalities}, whose obs has it." if modalities else ""
            raise DataError(
                f"{name}={values!r} is not a column of obs, which has {list(map(str, obs.columns))}.{where}"
            )
        values = obs[values]
    ids = next(filter(None, (data.sample_ids, *map(sample_ids_of, tables))), None)
    if name == "partial_labels" and ids and is_instance_of(values, "pandas", "Series"):
        of_known = values.rename(index=as_text)
        if of_known.index.is_unique and {*of_known.index} < {*ids}:
            values = of_known.reindex(list(ids))
    if is_instance_of(values, "dask", "Series"):
        values = values.compute()
    if np.ma.is_masked(values):
        values = np.where(np.ma.getmaskarray(values), None, values.data)
    array = np.asarray(values)
    if array.shape != (data.n_samples,):
        raise DataError(
            f"{name} has shape {array.shape}; allowed is one value for each of the {data.n_samples} samples."
        )
    return _in_order(array, values, name, ids or (), tables)


def _in_order(
    array: NDArray[Any], values: Any, name: str, ids: tuple[str, ...], tables: Iterable[Any]
) -> NDArray[Any]:
    """Values (n,), with an index if they have one, in the order of the samples with these `ids`, or of frames without any."""
    rows = sample_ids_of(values, default_index=True)
    numbers = (sample_ids_of(one, default_index=True) for one in tables)
    order = ids or next(filter(None, numbers), ())
    if rows is None or not order or rows == order:
        return array
    if {*rows} == {*order}:
        if not ids or sample_ids_of(values) is None or len({*rows}) < len(rows):
            raise DataError(
                f"{name} has the index {list(rows[:3])}, ..., and the data {list(order[:3])}, ...; one is the default 0, 1, ... "
                f"or has an id twice, so the values may be in either order. Give {name}.loc[frame.index] if the index has the "
                f"rows of the frame, else {name}.to_numpy()."
            )
        return array[places_of(rows, order)]
    if not ids or is_numbering(tuple(dict.fromkeys(rows))):
        return array
    missing = [one for one, place in zip(ids, places_of(rows, ids), strict=True) if place < 0]
    raise DataError(
        f"{name} has an index with {len(ids) - len(missing)} of the {len(ids)} sample ids of the data, but not "
        f"{listed(missing)}; allowed is an index with every sample id once. Complete the index, or give an array "
        "in the order of the samples."
    )


def validated_batches(
    batches: Any, X: Any, data: MultiViewData
) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
    """Batch (n,) of each sample as a position in the ascending names of the batches."""
    values = sample_values(batches, "batches", X, data)
    missing = np.flatnonzero(_is_missing(values))
    if missing.size:
        raise DataError(
            f"batches has no value for {missing.size} sample(s), the first {_shown(missing[:5], data)}; allowed is a "
            "batch for each sample. Give these samples a batch of their own, or drop them."
        )
    names, _, codes = _distinct(values, "batches")
    if 2 < len(names) == len(values):
        raise DataError(
            f"batches has another value for each of the {len(values)} samples; allowed are batches of several "
            "samples. Give the column that says which samples were measured together."
        )
    return codes.astype(np.int64), tuple(names.tolist())


# Texts that Python's packages write for a missing value, and those of no label.
_MISSING_TEXTS = frozenset({"", "nan", "None", "NaT", "<NA>"})
_UNKNOWN_TEXTS = frozenset({"-1", "-1.0"})


def validated_partial_labels(
    partial_labels: Any,
    X: Any,
    data: MultiViewData,
    n_clusters: int | None,
    equal: NDArray[np.int64] | None,
) -> NDArray[np.int64]:
    """Class (n,) of each sample with a known label, from 0 by first appearance, `UNKNOWN` for the others.

    The label of one of `equal` samples is that of all. `n_clusters` is None if it is selected.
    """
    values = sample_values(partial_labels, "partial_labels", X, data)
    has = has_label(values)
    if not has.any():
        raise DataError(
            f"partial_labels has no known label among {len(values)} samples; allowed are labels of some samples, "
            "and -1, None, NaN or empty text for the others. Leave it out if no label is known."
        )
    known = np.full(len(values), UNKNOWN, dtype=np.int64)
    names, first, codes = _distinct(values[has], "partial_labels")
    known[has] = np.argsort(np.argsort(first))[codes]
    if equal is not None:
        known = _shared_by_equal(known, equal, names[np.argsort(first)], data)
    n_classes, n_unknown = len(names), int(np.count_nonzero(known < 0))
    if n_clusters is not None and not n_classes <= n_clusters <= n_classes + n_unknown:
        raise ConfigurationError(
            f"n_clusters is {n_clusters}, but partial_labels has {n_classes} different labels "
            f"({listed([*map(str, names)])}) and {n_unknown} samples without one; allowed are {n_classes}"
            f"{f' to {n_classes + n_unknown}' * (n_unknown > 0)} clusters. Set n_clusters to such a number, merge labels, or give -1, "
            "None, NaN or empty text where a label is not known."
        )
    return known


def has_label(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each value (n,) is a label; -1, None, NaN and empty text are none."""
    has = ~_is_missing(values)
    has[has] = [as_text(value) not in _UNKNOWN_TEXTS for value in values[has]]
    return has


def validated_init_labels(
    init_labels: Any, X: Any, data: MultiViewData, n_clusters: int
) -> NDArray[np.int64]:
    """Initial cluster (n,) of each sample, `UNKNOWN` for some."""
    labels = sample_values(init_labels, "init_labels", X, data)
    if labels.dtype.kind not in "iu":
        raise DataError(
            f"init_labels has dtype {labels.dtype}; allowed is a whole number for each of the {data.n_samples} samples. "
            "Convert them, with -1 where a sample has none."
        )
    if labels.min() < UNKNOWN or labels.max() >= n_clusters or labels.max() == UNKNOWN:
        raise DataError(
            f"init_labels range from {labels.min()} to {labels.max()}; allowed are 0 to "
            f"{n_clusters - 1}, and {UNKNOWN} for some, but not all, samples."
        )
    return labels.astype(np.int64)


def _shared_by_equal(
    known: NDArray[np.int64], equal: NDArray[np.int64], names: NDArray[Any], data: MultiViewData
) -> NDArray[np.int64]:
    """Known labels of samples that are equal in every view, for all of them."""
    rows = np.flatnonzero((equal >= 0) & (known >= 0))
    of_group = np.full(int(equal.max()) + 1, UNKNOWN, dtype=np.int64)
    of_group[equal[rows[::-1]]] = known[rows[::-1]]  # the first
    differ = rows[of_group[equal[rows]] != known[rows]]
    if differ.size:
        one = differ[0]
        other = rows[(equal[rows] == equal[one])][0]
        raise DataError(
            f"partial_labels differs for samples {_shown([other, one], data)}, which are equal in every view: "
            f"{names[known[other]]} and {names[known[one]]}. Give equal samples the same label, or -1."
        )
    return np.where((equal >= 0) & (known < 0), of_group[equal], known)


def _is_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each value (n,) is None, NaN, or text of these or empty."""
    from pandas import isna

    texts = (isinstance(one, str | bytes) and as_text(one).strip() for one in values.tolist())
    return np.asarray(isna(values) | np.array([text in _MISSING_TEXTS for text in texts]))


def _distinct(
    values: NDArray[Any], name: str
) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
    """Different values, ascending, the first place of each, and the position (n,) of each value among them."""
    try:
        return np.unique(values, return_index=True, return_inverse=True)
    except TypeError as error:
        raise DataTypeError(
            f"{name} has values of several types ({error}); allowed are text or numbers, not both. "
            "Convert all to text."
        ) from error


def _shown(rows: Any, data: MultiViewData) -> list[Any]:
    """Ids of samples for a message, or their rows."""
    return [int(row) if data.sample_ids is None else data.sample_ids[row] for row in rows]


# batches -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class FittedBatches:
    """Batches of a fit: their names in ascending order, the batch (n,) of each sample, and their effects."""

    names: tuple[Any, ...]
    codes: NDArray[np.int64]
    effects: BatchEffects

    def correct(self, data: MultiViewData) -> MultiViewData:
        """Training samples without batch effects."""
        return _corrected(data, self.codes, self.effects.corrections)

    def correct_new(self, X: Any, new: MultiViewData, batches: Any) -> MultiViewData:
        """New samples `X`, as views `new`, without batch effects."""
        fitted = self.effects.corrections
        if batches is None:
            if not fitted:
                return new
            raise DataError(
                "The fit had batches, but the new samples have none; their values cannot be compared with "
                f"those of the fit. Give batches, one of {listed(self.names)} or a new one for each sample."
            )
        codes, names = validated_batches(batches, X, new)
        if not fitted:
            return new
        parts = [
            self._of_batch(new, np.flatnonzero(codes == i), name) for i, name in enumerate(names)
        ]
        corrections = {
            view.name: BatchCorrection(
                np.vstack([part[view.name].offsets for part in parts]),
                np.vstack([part[view.name].factors for part in parts]),
            )
            for view in new.views
            if view.name in fitted
        }
        return _corrected(new, codes, corrections)

    def _of_batch(
        self, new: MultiViewData, samples: NDArray[np.int64], name: Any
    ) -> dict[str, BatchCorrection]:
        """Correction of each view for one batch of new samples."""
        corrections = self.effects.corrections.items()
        if name in self.names:
            row = [self.names.index(name)]
            return {
                view: BatchCorrection(one.offsets[row], one.factors[row])
                for view, one in corrections
            }
        if len(samples) >= SMALLEST_NEW_BATCH:
            return corrections_of_new_batch(new, samples, self.effects)
        warnings.warn(
            f"Batch {name!r} is not in the fit and has {len(samples)} sample(s); its effects are not "
            f"removed. They can be estimated from {SMALLEST_NEW_BATCH} samples.",
            DataWarning,
            stacklevel=5,
        )
        return {
            view: BatchCorrection(np.zeros_like(one.offsets[:1]), np.ones_like(one.factors[:1]))
            for view, one in corrections
        }


def fit_batches(
    X: Any, data: MultiViewData, batches: Any, n_clusters: int | None, executor: Executor
) -> FittedBatches:
    """Estimate the effects of the batches of a fit on its views."""
    codes, names = validated_batches(batches, X, data)
    if not any(view.view_type == "features" for view in data.views):
        raise DataError(
            "batches were given, but all views are distances or kernels, from which batch effects cannot "
            "be removed. Give a view of features, or leave batches out."
        )
    return FittedBatches(names, codes, estimate_effects(data, codes, n_clusters, executor))


def _corrected(
    data: MultiViewData, codes: NDArray[np.int64], corrections: Mapping[str, BatchCorrection]
) -> MultiViewData:
    views = tuple(
        corrected_view(view, codes, corrections[view.name]) if view.name in corrections else view
        for view in data.views
    )
    return dataclasses.replace(data, views=views)


# equal samples -----------------------------------------------------------------------------------


# Odd, so that groups stay apart when they are added to fingerprints modulo 2**64.
_ODD = np.uint64(0x9E3779B97F4A7C15)


def equal_samples(views: Sequence[RowSource], executor: Executor) -> NDArray[np.int64] | None:
    """Group (n,) of the samples that are equal in every view, −1 for the others; None, without reading wider views, if all differ."""
    n_samples = views[0].n_samples
    rows, groups = np.arange(n_samples), np.zeros(n_samples, dtype=np.int64)
    for view in sorted(views, key=lambda one: one.shape[1]):
        blocks = map_views(row_fingerprints, blocks_of_rows(view), executor, stage="fingerprints")
        keys, present = np.concatenate(blocks), view.present
        if present is not None:  # absent samples are alike in the view
            keys = present.spread(keys, 0)
        keys = groups.astype(np.uint64) * _ODD + keys[rows]
        different, counts = np.unique(keys, return_counts=True)
        repeated = different[counts > 1]
        if not repeated.size:
            return None
        groups = np.minimum(np.searchsorted(repeated, keys), repeated.size - 1)
        equal = np.flatnonzero(repeated[groups] == keys)
        rows, groups = rows[equal], groups[equal]
    found = np.full(n_samples, -1, dtype=np.int64)
    found[rows] = groups
    return found


def row_fingerprints(view: RowSource) -> NDArray[np.uint64]:
    """Fingerprint (n,) of the bits of each row: equal for equal rows, and for others only by rare collisions."""
    rng = np.random.default_rng(0)
    weights = rng.integers(2**63, size=view.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    numbers = []
    for start, stop in row_blocks(*view.shape):
        values = np.ascontiguousarray(view.read(start, stop), dtype=np.float64) + 0.0  # no -0.0
        bits = values.view(np.uint64)
        mixed = (bits ^ (bits >> np.uint64(32))) * _ODD
        mixed ^= mixed >> np.uint64(29)
        numbers.append((mixed * weights).sum(axis=1, dtype=np.uint64))
    return np.concatenate(numbers)
