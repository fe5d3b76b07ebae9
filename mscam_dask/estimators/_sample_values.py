"""Values of each sample that `fit` and `predict` take: its batch, its known or initial label, and its group of equal samples."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.conversion import as_text, is_instance_of, is_omics, sample_ids_of
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.rows import blocks_of_rows, corrected_view
from mscam_dask.data.views.sample_ids import MISSING, places_of
from mscam_dask.data.views.sources import RowSource, is_numbering, listed
from mscam_dask.engine.batches import (
    SMALLEST_NEW_BATCH,
    BatchEffects,
    corrections_of_new_batch,
    estimate_effects,
)
from mscam_dask.engine.executors.base import Executor
from mscam_dask.errors import ConfigurationError, DataError, DataTypeError, DataWarning
from mscam_dask.estimators._resources import map_views
from mscam_dask.linalg.scaling import BatchCorrection
from mscam_dask.solvers.known_labels import UNKNOWN
from mscam_dask.solvers.row_blocks import row_blocks


def sample_values(values: Any, name: str, X: Any, data: MultiViewData) -> NDArray[Any]:
    """One value (n,) for each sample: from an array, a Series (matched by ids if it has them), or the name of a column of obs."""
    tables = X.values() if isinstance(X, Mapping) else X if isinstance(X, list | tuple) else [X]
    if isinstance(values, str):
        columns = [table.obs for table in tables if is_omics(table)]
        obs = next((one for one in columns if values in one), None)
        if obs is None:
            modalities = [one for one, own in getattr(X, "mod", {}).items() if values in own.obs]
            where = f", or copy it to obs from {modalities}, whose obs has it" if modalities else ""
            raise DataError(
                f"{name}={values!r} is not a column of obs of an AnnData or MuData; allowed are the columns "
                f"{[list(map(str, one.columns)) for one in columns]}. Give one value for each sample{where}."
            )
        values = obs[values]
    ids = next(filter(None, (data.sample_ids, *map(sample_ids_of, tables))), None)
    if name == "partial_labels" and ids and is_instance_of(values, "pandas", "Series"):
        of_known = values.rename(index=as_text)
        if of_known.index.is_unique and {*of_known.index} < {*ids}:
            values = of_known.reindex(list(ids))
    if is_instance_of(values, "dask", "Series"):
        values = values.compute()
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        values = np.where(np.ma.getmaskarray(values), np.array(None), values.data)
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError(f"{name} is no array with one value for each sample: {error}") from error
    if array.dtype.kind in "SUTO":
        texts = [as_text(i).strip() if isinstance(i, str | bytes) else i for i in array.flat]
        array = np.array([*texts, None], dtype=object)[:-1].reshape(array.shape)
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
                f"{name} has the index {list(rows[:3])}, ..., and the data {list(order[:3])}, ...; one of them is the default "
                f"0, 1, ... or repeats an id, so the order of the values is not certain. Give {name}.loc[frame.index] if the "
                f"index names rows of the frame, else {name}.to_numpy()."
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
    return codes.astype(np.int64), tuple(names.tolist())


# Texts in lower case of a missing value, of which "none" may be a class, and of no label.
_MISSING_TEXTS = frozenset(MISSING - {"none"})
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
    has[has] = [str(value) not in _UNKNOWN_TEXTS for value in values[has]]
    return has


def validated_init_labels(
    init_labels: Any, X: Any, data: MultiViewData, n_clusters: int
) -> NDArray[np.int64]:
    """Initial cluster (n,) of each sample, `UNKNOWN` for some."""
    labels = sample_values(init_labels, "init_labels", X, data)
    if labels.dtype.kind not in "iu" or not (
        labels.min() >= UNKNOWN and UNKNOWN < labels.max() < n_clusters
    ):
        values = listed(np.unique(labels.astype(str)).tolist())
        raise DataError(
            f"init_labels has dtype {labels.dtype} and values such as {values}; allowed are whole numbers from 0 to "
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

    is_missing_text = [
        isinstance(one, str) and (one == "None" or one.lower() in _MISSING_TEXTS)
        for one in values.tolist()
    ]
    return np.asarray(isna(values) | np.array(is_missing_text, dtype=np.bool_))


def _distinct(
    values: NDArray[Any], name: str
) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
    """Different values, ascending, the first place of each, and the position (n,) of each value among them."""
    try:
        return np.unique(values, return_index=True, return_inverse=True)
    except (TypeError, ValueError) as error:
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
                f"those of the fit. Give the batch of each sample, one of {listed(self.names)} or a new one."
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
        corrections = self.effects.corrections
        for row, known in enumerate(self.names):
            if known == name or str(known) == str(name):  # a number may be text now
                return {
                    view: BatchCorrection(one.offsets[[row]], one.factors[[row]])
                    for view, one in corrections.items()
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
            for view, one in corrections.items()
        }


def fit_batches(
    X: Any, data: MultiViewData, batches: Any, n_clusters: int | None, executor: Executor
) -> FittedBatches:
    """Estimate the effects of the batches of a fit on its views."""
    codes, names = validated_batches(batches, X, data)
    if 2 < len(names) == len(codes):
        raise DataError(
            f"batches has another value for each of the {len(codes)} samples; allowed are batches of several "
            "samples. Give the column that says which samples were measured together."
        )
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


def equal_samples(
    views: Sequence[RowSource], executor: Executor, *, zeros: bool
) -> NDArray[np.int64] | None:
    """Group (n,) of the samples that are equal in every view, −1 for the others; None, without reading wider views, if all differ.

    Samples with nothing but `zeros` in every view, such as empty texts, are a group only if that is asked for.
    """
    n_samples = views[0].n_samples
    rows, groups = np.arange(n_samples), np.zeros(n_samples, dtype=np.int64)
    are_zero = np.full(n_samples, fill_value=True)
    for view in sorted(views, key=lambda one: one.shape[1]):
        blocks = map_views(row_fingerprints, blocks_of_rows(view), executor, stage="fingerprints")
        keys, present = np.concatenate(blocks), view.present
        if present is not None:  # absent samples are alike in the view
            keys = present.spread(keys, 0)
        are_zero &= keys == 0
        keys = groups.astype(np.uint64) * _ODD + keys[rows]
        different, counts = np.unique(keys, return_counts=True)
        repeated = different[counts > 1]
        if not repeated.size:
            return None
        # the nearest repeated key of each, which is the same only if the key is repeated
        groups = np.minimum(np.searchsorted(repeated, keys), repeated.size - 1)
        equal = np.flatnonzero(repeated[groups] == keys)
        rows, groups = rows[equal], groups[equal]
    found = np.full(n_samples, -1, dtype=np.int64)
    found[rows] = groups
    if not zeros:
        found[are_zero] = -1
    return found if found.max() >= 0 else None


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
