"""The model of a run: parts of a fitted estimator from which another predicts the same."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.missing_cells import Imputer, impute_methods_of
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.estimators._sample_values import FittedBatches
from mscam_dask.solvers.ridge_view import Encoder
from mscam_dask.types.parameters import ImputeMethod
from mscam_dask.types.result import Solution
from mscam_dask.types.rules import SIZES

if TYPE_CHECKING:
    from mscam_dask.estimators.mscam import MSCAM


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FittedModel:
    """What a run stores beside its result to predict."""

    encoders: dict[str, Encoder]
    membership: NDArray[np.float64]  # (n, c), clusters in ascending order of their labels
    view_votes: NDArray[np.int64]  # (n, V), positions of clusters in that order
    # (n, r) ridge coordinates in each encoded view; None for more than `SIZES.exact_samples` samples
    coordinates: tuple[NDArray[np.float64], ...] | None
    presence: NDArray[np.bool_] | None  # (n, V); None if views have all samples
    feature_names: dict[str, tuple[str, ...] | None]
    impute: dict[str, ImputeMethod]  # methods of the store
    batches: FittedBatches | None


def fitted_model(estimator: MSCAM) -> FittedModel:
    """Parts of a fitted estimator from which `restore_fit` makes another that predicts the same."""
    solution, training = estimator.solution_, estimator._training
    membership, view_votes = estimator._votes()
    n_samples, coordinates = len(solution.labels), None
    if n_samples <= SIZES.exact_samples:
        coordinates = tuple(estimator._training_coordinates(np.arange(n_samples)))
    return FittedModel(
        encoders=dict(solution.encoders),
        membership=membership,
        view_votes=view_votes,
        coordinates=coordinates,
        presence=training.presence if training.is_incomplete else None,
        feature_names={view.name: view.feature_names for view in training.views},
        impute=impute_methods_of(training),
        batches=estimator._batches,
    )


def restore_fit(
    estimator: MSCAM, result: Solution, model: FittedModel, training: MultiViewData
) -> None:
    """Set the fitted attributes of an estimator with the parameters of a stored fit."""
    batches = model.batches
    estimator._keep_fit(
        dataclasses.replace(result, encoders=model.encoders),
        training if batches is None else batches.correct(training),
        batches=batches,
        membership=(model.membership, model.view_votes),
        coordinates=model.coordinates,
    )
    estimator._imputers = {
        view.name: Imputer(view, model.impute[view.name])
        for view in training.views
        if view.name in model.impute
    }
