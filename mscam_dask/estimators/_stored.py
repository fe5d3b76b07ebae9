"""Conversion of fitted estimators to numbers and text and back.

Keys of the arrays of a `StoredModel`::

    membership                  (sample, cluster), clusters in ascending order of their labels
    view_votes                  (sample, view), positions of clusters in that order
    coordinates/0               (sample, direction), ridge coordinates of the first encoded view,
                                for at most `SIZES.exact_samples` samples
    presence                    (sample, view) bool, if views do not have all samples
    encoders/0/loadings, ...    arrays of its `mscam_dask.solvers.ridge_view.Encoder`
    batches/...                 of a fit with batches: the batch of each sample, and their effects
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.results import StoredModel, StoredResult
from mscam_dask.data.views.missing_cells import Imputer, impute_methods_of
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.engine.batches import BatchEffects
from mscam_dask.estimators._sample_values import FittedBatches
from mscam_dask.linalg.scaling import BatchCorrection, RowTransform
from mscam_dask.solvers.ridge_view import Encoder
from mscam_dask.types import events
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.result import BatchShares, FitResult, Solution, Status
from mscam_dask.types.rules import SIZES

if TYPE_CHECKING:
    from mscam_dask.estimators.mscam import MSCAM

# Records of a fit that are stored as JSON, by their names in a Solution.
_RECORDS: dict[str, Any] = {
    "parameters": Parameters,
    "settings": tuple[events.CandidateSettings, ...],
    "prepared": tuple[events.ViewPrepared, ...],
    "history": tuple[events.IterationFinished, ...],
    "n_clusters_selection": events.NClustersSelected | None,
    "selected_view_settings": tuple[events.ViewSettingsSelected, ...],
    "refinement": events.RefinementFinished | None,
    "chosen": int,
}


def stored_model(estimator: MSCAM) -> StoredModel:
    """Parts of a fitted estimator from which `restore_fit` makes another that predicts the same."""
    solution = estimator.solution_
    names = estimator._voting_views()
    records: dict[str, Any] = {
        **{name: msgspec.to_builtins(getattr(solution, name)) for name in _RECORDS},
        "encoders": {},
        "feature_names": {view.name: view.feature_names for view in estimator._training.views},
        "impute": impute_methods_of(estimator._training),
    }
    arrays: dict[str, NDArray[Any]] = {}
    arrays["membership"], arrays["view_votes"] = estimator._votes()
    if estimator._training.is_incomplete:
        arrays["presence"] = estimator.view_presence_
    n_samples = len(solution.labels)
    if n_samples <= SIZES.exact_samples:
        parts = estimator._training_coordinates(np.arange(n_samples))
        arrays |= {f"coordinates/{index}": part for index, part in enumerate(parts)}
    for index, name in enumerate(names):
        records["encoders"][name] = _add_flat(arrays, f"encoders/{index}/", solution.encoders[name])
    if estimator._batches is not None:
        records["batches"] = _add_batches(arrays, estimator._batches)
    return StoredModel(records, arrays)


def _add_batches(arrays: dict[str, NDArray[Any]], batches: FittedBatches) -> dict[str, Any]:
    """Add the arrays of the batches of a fit, and return their other values."""
    effects = batches.effects
    arrays["batches/codes"] = batches.codes
    arrays["batches/score_means"] = effects.score_means
    arrays["batches/score_variances"] = effects.score_variances
    encoders = {}
    for index, (name, encoder) in enumerate(effects.encoders.items()):
        prefix = f"batches/{index}/"
        encoders[name] = _add_flat(arrays, f"{prefix}encoder/", encoder)
        arrays[f"{prefix}row_means"] = effects.row_means[name]
        if name in effects.corrections:
            _add_flat(arrays, prefix, effects.corrections[name])
    return {
        "names": list(batches.names),
        "encoders": encoders,
        "shares": {name: msgspec.to_builtins(shares) for name, shares in effects.shares.items()},
    }


def _batches(model: StoredModel) -> FittedBatches | None:
    """Batches of a stored fit; None if it had none."""
    records = model.records.get("batches")
    if records is None:
        return None
    arrays, corrections, encoders, row_means = _group(model.arrays, "batches/"), {}, {}, {}
    for index, (name, values) in enumerate(records["encoders"].items()):
        own = _group(arrays, f"{index}/")
        encoders[name] = _encoder(values, _group(own, "encoder/"))
        row_means[name] = own["row_means"]
        if "offsets" in own:
            corrections[name] = BatchCorrection(own["offsets"], own["factors"])
    shares = msgspec.convert(records["shares"], dict[str, BatchShares])
    scores = arrays["score_means"], arrays["score_variances"]
    effects = BatchEffects(corrections, encoders, *scores, row_means, shares)
    return FittedBatches(tuple(records["names"]), arrays["codes"], effects)


def restore_fit(
    estimator: MSCAM,
    result: StoredResult,
    model: StoredModel,
    training: MultiViewData,
) -> None:
    """Set the fitted attributes of an estimator with the parameters of a stored fit; ValueError, KeyError or TypeError for other versions."""
    records = {name: msgspec.convert(model.records[name], kind) for name, kind in _RECORDS.items()}
    encoders: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
        name: _encoder(values, _group(model.arrays, f"encoders/{index}/"))
        for index, (name, values) in enumerate(model.records["encoders"].items())
    }
    solution = Solution(
        **{field.name: getattr(result, field.name) for field in dataclasses.fields(FitResult)},
        status=Status[result.status],
        encoders=encoders,
        assessment=result.assessment,
        **records,
    )
    batches = _batches(model)
    estimator._keep_fit(
        solution,
        training if batches is None else batches.correct(training),
        batches=batches,
        membership=(model.arrays["membership"], model.arrays["view_votes"]),
        coordinates=list(_group(model.arrays, "coordinates/").values()) or None,
    )
    methods = model.records.get("impute", {})  # of the store
    estimator._imputers = {
        view.name: Imputer(view, methods[view.name])
        for view in training.views
        if view.name in methods
    }


def _add_flat(arrays: dict[str, NDArray[Any]], prefix: str, value: Any) -> dict[str, Any]:
    """Add the arrays of a dataclass, and return its other fields; those of its scaling begin with "transform."."""
    others: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if dataclasses.is_dataclass(item):
            inner = _add_flat(arrays, f"{prefix}{field.name}.", item)
            others |= {f"{field.name}.{key}": one for key, one in inner.items()}
        elif isinstance(item, np.ndarray):
            arrays[prefix + field.name] = item
        else:
            others[field.name] = item.item() if isinstance(item, np.generic) else item
    return others


def _encoder(values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Encoder:
    fields = {**values, **arrays}
    own = {key: item for key, item in fields.items() if "." not in key}
    scaling = _group(fields, "transform.")
    return Encoder(**{**own, "transform": RowTransform(**scaling) if scaling else None})


def _group(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {
        key.removeprefix(prefix): item for key, item in values.items() if key.startswith(prefix)
    }
