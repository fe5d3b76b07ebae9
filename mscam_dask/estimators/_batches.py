"""Batches of the samples of a fit: their effects on the views, which are removed from these and from new samples."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.rows import corrected_view
from mscam_dask.data.views.sources import listed
from mscam_dask.engine.batches import (
    SMALLEST_NEW_BATCH,
    BatchEffects,
    batch_effects,
    corrections_of_new_batch,
)
from mscam_dask.engine.executors.base import Executor
from mscam_dask.errors import DataError, DataWarning
from mscam_dask.estimators._sample_values import validated_batches
from mscam_dask.linalg.scaling import BatchCorrection

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
    X: Any, data: MultiViewData, batches: Any, n_cells: int | None, executor: Executor
) -> FittedBatches:
    """Estimate the effects of the batches of a fit on its views."""
    codes, names = validated_batches(batches, X, data)
    if not any(view.view_type == "features" for view in data.views):
        raise DataError(
            "batches were given, but all views are distances or kernels, from which batch effects cannot "
            "be removed. Give a view of features, or leave batches out."
        )
    return FittedBatches(names, codes, batch_effects(data, codes, n_cells or _N_CELLS, executor))


def _corrected(
    data: MultiViewData, codes: NDArray[np.int64], corrections: Mapping[str, BatchCorrection]
) -> MultiViewData:
    views = tuple(
        corrected_view(view, codes, corrections[view.name]) if view.name in corrections else view
        for view in data.views
    )
    return dataclasses.replace(data, views=views)
