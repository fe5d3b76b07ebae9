"""Batches of the samples of a fit: their effects on the views, and their samples in each cluster."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.rows import corrected_view
from mscam_dask.engine.batches import (
    SMALLEST_NEW_BATCH,
    BatchEffects,
    batch_effects,
    corrections_of_new_batch,
)
from mscam_dask.engine.executors.base import Executor
from mscam_dask.errors import DataError, DataTypeError, DataWarning
from mscam_dask.estimators._fitted import FittedAttributes
from mscam_dask.linalg.scaling import BatchCorrection

if TYPE_CHECKING:
    import pandas as pd

# Cells with which batch effects are estimated if the number of clusters is selected.
_N_CELLS = 8


@dataclasses.dataclass(frozen=True)
class FittedBatches:
    """Batches of a fit: their names in ascending order, the batch (n,) of each sample, and their effects."""

    names: tuple[Any, ...]
    codes: NDArray[np.int64]
    effects: BatchEffects

    def correct(self, data: MultiViewData) -> MultiViewData:
        """Training samples without batch effects."""
        corrections = self.effects.corrections
        views = tuple(
            corrected_view(view, self.codes, corrections[view.name])
            if view.name in corrections
            else view
            for view in data.views
        )
        return dataclasses.replace(data, views=views)


class BatchMixin(FittedAttributes):
    """Mixin for estimators that remove batch effects, and count the batches of each cluster."""

    def cluster_batches(self, batches: ArrayLike) -> pd.DataFrame:
        """Count the samples of each batch in each cluster.

        Parameters
        ----------
        batches : (n_samples,) array or Series
            Batch of each training sample, or any other column, such as the site or day of a measurement; it
            need not have been given to `fit`.

        Returns
        -------
        counts : DataFrame (n_clusters, n_batches)
            The index has the clusters, the columns have the batches.

        Raises
        ------
        DataError
            The number of values is not that of the samples.
        """
        import pandas as pd

        check_is_fitted(self)
        values = sample_values(batches, "batches", None, self._training)
        counts = pd.crosstab(
            pd.Series(self.labels_, name="cluster"), pd.Series(values, name="batch")
        )
        return counts.reindex(self.cluster_names_, fill_value=0)

    def _without_batches(
        self, X: Any, data: MultiViewData, batches: Any, n_cells: int | None, executor: Executor
    ) -> tuple[MultiViewData, FittedBatches]:
        """Views without the effects of the batches, which are estimated."""
        codes, names = validated_batches(batches, X, data)
        if not any(view.view_type == "features" for view in data.views):
            raise DataError(
                "batches were given, but all views are distances or kernels, from which batch effects cannot "
                "be removed. Give a view of features, or leave batches out."
            )
        effects = batch_effects(data, codes, n_cells or _N_CELLS, executor)
        fitted = FittedBatches(names, codes, effects)
        return fitted.correct(data), fitted

    def _corrected(self, X: Any, new: MultiViewData, batches: Any) -> MultiViewData:
        """New samples without the effects of their batches."""
        fitted = self._batches
        if fitted is None or batches is None:
            if fitted is not None and fitted.effects.corrections:
                raise DataError(
                    "The fit had batches, but the new samples have none; their values cannot be compared with "
                    f"those of the fit. Give batches, one of {_listed(fitted.names)} or a new one for each sample."
                )
            if batches is not None:
                raise DataError(
                    "batches were given, but the fit had none. Fit with batches, or leave them out."
                )
            return new
        codes, names = validated_batches(batches, X, new)
        if not fitted.effects.corrections:
            return new
        parts = [self._of_batch(new, codes, code, name) for code, name in enumerate(names)]
        corrections = {
            view.name: BatchCorrection(
                np.vstack([part[view.name].offsets for part in parts]),
                np.vstack([part[view.name].factors for part in parts]),
            )
            for view in new.views
            if view.name in fitted.effects.corrections
        }
        effects = dataclasses.replace(fitted.effects, corrections=corrections)
        return FittedBatches(names, codes, effects).correct(new)

    def _of_batch(
        self, new: MultiViewData, codes: NDArray[np.int64], code: int, name: Any
    ) -> dict[str, BatchCorrection]:
        """Correction of each view for one batch."""
        fitted = self._batches
        assert fitted is not None
        corrections = fitted.effects.corrections.items()
        if name in fitted.names:
            row = [fitted.names.index(name)]
            return {
                view: BatchCorrection(one.offsets[row], one.factors[row])
                for view, one in corrections
            }
        samples = np.flatnonzero(codes == code)
        if len(samples) >= SMALLEST_NEW_BATCH:
            return corrections_of_new_batch(new, samples, fitted.effects)
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


def validated_batches(
    batches: Any, X: Any, data: MultiViewData
) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
    """Batch (n,) of each sample as a position in the ascending names of the batches."""
    values = sample_values(batches, "batches", X, data)
    missing = np.flatnonzero(is_missing(values))
    if missing.size:
        ids = data.sample_ids
        shown = missing[:5].tolist() if ids is None else [ids[row] for row in missing[:5]]
        raise DataError(
            f"batches has no value for {missing.size} sample(s), the first {shown}; allowed is a batch for "
            "each sample. Give these samples a batch of their own, or drop them."
        )
    names, _, codes = distinct_values(values, "batches")
    if 2 < len(names) == len(values):
        raise DataError(
            f"batches has another value for each of the {len(values)} samples; allowed are batches of several "
            "samples. Give the column that says which samples were measured together."
        )
    return codes.astype(np.int64), tuple(names.tolist())


def distinct_values(
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


def sample_values(values: Any, name: str, X: Any, data: MultiViewData) -> NDArray[Any]:
    """One value (n,) for each sample: from an array, a Series (matched by ids), or the name of a column of obs."""
    if isinstance(values, str):
        obs = getattr(X, "obs", None)
        if obs is None:
            raise DataError(
                f"{name}={values!r} is the name of a column, but the data are no AnnData or MuData, which have "
                "columns of samples. Give one value for each sample."
            )
        if values not in obs:
            raise DataError(
                f"{name}={values!r} is not a column of obs, which has {list(map(str, obs.columns))}."
            )
        values = obs[values]
    index = getattr(values, "index", None)
    array = np.asarray(values)
    if array.shape != (data.n_samples,):
        raise DataError(
            f"{name} has shape {array.shape}; allowed is one value for each of the {data.n_samples} samples."
        )
    ids = data.sample_ids
    if ids is None or index is None or callable(index):
        return array
    places = {str(value): place for place, value in enumerate(index)}
    if len(places) != len(ids) or not places.keys() >= set(ids):
        return array
    return np.asarray(array[[places[one] for one in ids]])


def is_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each value (n,) is None, NaN or empty text."""
    from pandas import isna

    missing = np.asarray(isna(values))
    if values.dtype.kind in "OUT":
        missing |= np.array([isinstance(value, str) and not value.strip() for value in values])
    return missing


def _listed(names: Sequence[Any]) -> str:
    return ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")
