"""Limits of fits of incomplete views."""

from __future__ import annotations

from collections.abc import Sequence

from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.rules import SIZES

__all__ = ["check_incomplete", "exact_limit", "refuse_incomplete", "uses_sample"]


def exact_limit(data: MultiViewData) -> dict[str, int]:
    """Return `exact_samples` of incomplete data, all of whose neighbors are searched exhaustively."""
    most = min(data.n_samples, SIZES.max_incomplete_samples)
    return {"exact_samples": most} if data.is_incomplete and most > SIZES.exact_samples else {}


def uses_sample(data: MultiViewData) -> bool:
    """Return whether incomplete data are so many that bases and scores are those of large data."""
    return data.is_incomplete and data.n_samples > SIZES.exact_samples


def check_incomplete(data: MultiViewData, candidates: Sequence[Parameters]) -> None:
    """Refuse incomplete views that a fit cannot use.

    Raises
    ------
    DataError
        There are more samples than are searched exactly, or a view has no more samples than clusters.
    ConfigurationError
        Samples are only in views that the settings exclude.
    """
    if not data.is_incomplete:
        return
    first = candidates[0]
    if first.is_large(data.n_samples):
        raise DataError(
            f"{data.n_samples} samples are too many for incomplete views; allowed are at most "
            f"{first.exact_samples} if samples are absent from views. Fit a random sample of that size, "
            "and assign the other samples with predict."
        )
    small = {view.name: view.shape[0] for view in data.views if view.shape[0] <= first.n_clusters}
    if small:
        raise DataError(
            f"Views {small} have fewer samples than n_clusters + 1 = {first.n_clusters + 1}; allowed are "
            "incomplete views with more samples than clusters. Drop these views, or lower n_clusters."
        )
    for candidate in candidates:
        if not data.covers_samples_without(candidate.exclude_views):
            names = [data.view_names[view] for view in candidate.exclude_views]
            raise ConfigurationError(
                f"exclude_views={names}, but some samples are only in these views. Keep the views, or "
                "drop these samples."
            )


def refuse_incomplete(data: MultiViewData) -> None:
    """Refuse incomplete views, for the reference algorithm.

    Raises
    ------
    DataError
        Naming the incomplete views.
    """
    names = [view.name for view in data.views if view.shape[0] < data.n_samples]
    if names:
        raise DataError(
            f"Views {names} do not have all samples, but solver='reference' needs every sample in every "
            "view. Use solver='reduced', or drop the samples that are absent from a view."
        )
