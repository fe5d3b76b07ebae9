"""Conversion of fitted estimators to numbers and text, and back.

Keys of the arrays of a `StoredModel`::

    membership                  (sample, cluster), clusters in ascending order of their labels
    view_votes                  (sample, view), positions of clusters in that order
    coordinates/0               (sample, direction), ridge coordinates of the first encoded view,
                                for at most `SIZES.exact_samples` samples
    presence                    (sample, view) bool, if views do not have all samples
    encoders/0/loadings, ...    arrays of its `mscam_dask.solvers.ridge_view.Encoder`

A solver without encoders has none of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.results import StoredModel, StoredResult
from mscam_dask.data.views.missing_cells import impute_methods_of
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import feature_names_of
from mscam_dask.linalg.impute import ImputeMethod
from mscam_dask.linalg.scaling import RowTransform
from mscam_dask.solvers.ridge_view import Encoder
from mscam_dask.types.events import (
    CandidateSettings,
    IterationFinished,
    NClustersSelected,
    RefinementFinished,
    ViewPrepared,
    ViewSettingsSelected,
)
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.result import Solution, Status
from mscam_dask.types.rules import SIZES

if TYPE_CHECKING:
    from mscam_dask.estimators._base import BaseMultiViewClustering

__all__ = ["restore_fit", "stored_feature_names", "stored_impute_methods", "stored_model"]

# Records of a fit that are stored as JSON, by their names in a Solution.
_RECORDS: dict[str, Any] = {
    "parameters": Parameters,
    "settings": tuple[CandidateSettings, ...],
    "prepared": tuple[ViewPrepared, ...],
    "history": tuple[IterationFinished, ...],
    "n_clusters_selection": NClustersSelected | None,
    "selected_view_settings": tuple[ViewSettingsSelected, ...],
    "refinement": RefinementFinished | None,
    "chosen": int,
}


def stored_model(estimator: BaseMultiViewClustering) -> StoredModel:
    """Parts of a fitted estimator from which `restore_fit` makes another that predicts the same.

    Notes
    -----
    Reads the training samples once, and a second time above `SIZES.exact_samples`.
    """
    solution = estimator.solution_
    names = estimator._voting_views()
    records: dict[str, Any] = {
        **{name: msgspec.to_builtins(getattr(solution, name)) for name in _RECORDS},
        "encoders": {},
        "feature_names": {view.name: feature_names_of(view) for view in estimator._training.views},
        "impute": impute_methods_of(estimator._training),
    }
    if not names:
        return StoredModel(records)
    arrays: dict[str, NDArray[Any]] = {}
    arrays["membership"], arrays["view_votes"] = estimator._votes()
    if estimator._training.is_incomplete:
        arrays["presence"] = estimator.view_presence_
    n_samples = len(solution.labels)
    if n_samples <= SIZES.exact_samples:
        parts = estimator._training_coordinates(np.arange(n_samples))
        arrays |= {f"coordinates/{index}": part for index, part in enumerate(parts)}
    for index, name in enumerate(names):
        values = dict(_flat(solution.encoders[name]))
        records["encoders"][name] = {
            key: value for key, value in values.items() if not isinstance(value, np.ndarray)
        }
        arrays |= {
            f"encoders/{index}/{key}": value
            for key, value in values.items()
            if isinstance(value, np.ndarray)
        }
    return StoredModel(records, arrays)


def stored_feature_names(model: StoredModel, view: str) -> tuple[str, ...] | None:
    """Names of the columns of a view of the fit, None where it has none."""
    names = model.records["feature_names"][view]
    return None if names is None else tuple(names)


def stored_impute_methods(model: StoredModel) -> dict[str, ImputeMethod]:
    """Methods by which the store of the fit fills missing cells, by view."""
    return dict(model.records.get("impute", {}))


def restore_fit(
    estimator: BaseMultiViewClustering,
    result: StoredResult,
    model: StoredModel,
    training: MultiViewData,
) -> None:
    """Set the fitted attributes of an estimator from a stored fit.

    Parameters
    ----------
    estimator
        With the parameters of the fit.
    result, model
    training
        Views of the fit in its order, with names, types and shapes; their rows are read only for
        what is not stored.

    Raises
    ------
    ValueError, KeyError, TypeError
        The records are not those of this version.
    """
    records = {name: msgspec.convert(model.records[name], kind) for name, kind in _RECORDS.items()}
    encoders: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
        name: _encoder(values, _group(model.arrays, f"encoders/{index}/"))
        for index, (name, values) in enumerate(model.records["encoders"].items())
    }
    solution = Solution(
        labels=result.labels,
        arrays=result.arrays,
        n_connected_components=result.n_connected_components,
        status=Status[result.status],
        score=result.score,
        n_neighbors=result.n_neighbors,
        view_contributions=result.view_contributions,
        encoders=encoders,
        assessment=result.assessment,
        **records,
    )
    estimator._keep_fit(solution, training)
    if encoders:
        estimator._membership = (model.arrays["membership"], model.arrays["view_votes"])
        stored = _group(model.arrays, "coordinates/")
        estimator._coordinates_loaded = list(stored.values()) or None


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Fields of an encoder; those of its scaling have the prefix "transform."."""
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if dataclasses.is_dataclass(item):
            yield from _flat(item, f"{field.name}.")
        else:
            yield prefix + field.name, item.item() if isinstance(item, np.generic) else item


def _encoder(values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Encoder:
    fields = {**values, **arrays}
    own = {key: item for key, item in fields.items() if "." not in key}
    scaling = _group(fields, "transform.")
    return Encoder(**{**own, "transform": RowTransform(**scaling) if scaling else None})


def _group(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {
        key.removeprefix(prefix): item for key, item in values.items() if key.startswith(prefix)
    }
