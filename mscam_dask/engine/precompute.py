"""Quantities that do not depend on α or k: the SVD of every view and its reference graphs.

Fits of incomplete views, and their limits, are checked here.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sampling import sampled_view
from mscam_dask.engine import tasks as iteration_tasks
from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.iteration_steps import LazyReferenceGraphs
from mscam_dask.engine.preprocessing_selection import rows_compared
from mscam_dask.errors import ConfigurationError, DataError, StoreCorruptError
from mscam_dask.solvers.spectral_cut import sampled_rows
from mscam_dask.types.events import ViewPrepared
from mscam_dask.types.parameters import Parameters, Scale
from mscam_dask.types.rules import SIZES

__all__ = [
    "PrecomputedViews",
    "check_incomplete",
    "exact_limit",
    "precompute_views",
    "uses_sample",
]


@dataclasses.dataclass(frozen=True)
class PrecomputedViews:
    """Handles of quantities that do not depend on α or k, kept during the whole fit.

    Attributes
    ----------
    names : tuple of str
    n_samples : int
    factored : dict of tuple of str to tuple of handles
        SVDs of the views by the scalings of the views; usable scalings only.
    reference_graphs : LazyReferenceGraphs
    records : tuple of ViewPrepared
        Records of the views with the first usable scaling; for large data of the sample.
    data : MultiViewData or None
        Large data, whose SVDs are computed by `prepare_views` once the setting is selected.
    sample : PrecomputedViews or None
        Sample of large data on which the settings are selected.
    n_validation_samples : int
        Number of samples of the reference graphs if these are not all, otherwise 0.
    """

    names: tuple[str, ...]
    n_samples: int
    factored: dict[tuple[Scale, ...], tuple[Handle, ...]]
    reference_graphs: LazyReferenceGraphs
    records: tuple[ViewPrepared, ...]
    data: MultiViewData | None = None
    sample: PrecomputedViews | None = None
    n_validation_samples: int = 0


def precompute_views(
    data: MultiViewData,
    scales: Sequence[tuple[Scale, ...]],
    executor: Executor,
    *,
    exact_samples: int | None = None,
) -> PrecomputedViews:
    """Read every view and compute its SVD for each scaling.

    `scales` has the scalings of all views for each setting. Scalings that make all rows of a view
    equal, such as unit length for one positive column, are skipped unless they are the only ones.
    With more than `exact_samples` samples, a seeded sample of them is used. With many views or
    samples, the reference graphs are those of a sample.
    """
    if exact_samples is not None and data.n_samples > exact_samples:
        rows = sampled_rows(data.n_samples, SIZES.n_scored)
        drawn = MultiViewData(tuple(sampled_view(view, rows) for view in data.views))
        sample = _precompute(drawn, scales, executor, max_rank=SIZES.max_rank)
        return dataclasses.replace(
            sample,
            n_samples=data.n_samples,
            data=data,
            sample=sample,
            n_validation_samples=sample.n_samples,
        )
    of_sample = uses_sample(data)
    precomputed = _precompute(
        data, scales, executor, max_rank=SIZES.max_rank if of_sample else None
    )
    n_scored = rows_compared(len(data.views), SIZES.n_scored)
    if (n_scored == SIZES.n_scored and not of_sample) or n_scored >= data.n_samples:
        return precomputed
    return dataclasses.replace(
        precomputed,
        reference_graphs=LazyReferenceGraphs(data, sampled_rows(data.n_samples, n_scored)),
        n_validation_samples=n_scored,
    )


def _precompute(
    data: MultiViewData,
    scales: Sequence[tuple[Scale, ...]],
    executor: Executor,
    *,
    max_rank: int | None = None,
) -> PrecomputedViews:
    names = data.view_names
    single: dict[tuple[int, Scale], Handle] = {}
    factored: dict[tuple[Scale, ...], tuple[Handle, ...]] = {}
    refusals: list[DataError] = []
    for by_view in dict.fromkeys(scales):
        with _collected(refusals):  # an executor may raise here or when gathering
            for view in enumerate(by_view):
                if view not in single:
                    index, scale = view
                    source = data.views[index]
                    single[view] = executor.submit(
                        iteration_tasks.svd_view,
                        source,
                        scale,
                        max_rank,
                        key=f"factor/{scale}/{source.name}",
                    )
            factored[by_view] = tuple(single[view] for view in enumerate(by_view))
    records: dict[tuple[Scale, ...], tuple[ViewPrepared, ...]] = {}
    for setting, (by_view, views) in enumerate(factored.items()):
        handles = [
            executor.submit(
                iteration_tasks.view_prepared,
                view,
                source.name,
                source.shape[1],
                key=f"view_prepared/{setting}/{source.name}",
            )
            for view, source in zip(views, data.views, strict=True)
        ]
        with _collected(refusals):
            records[by_view] = tuple(executor.gather(handles))
    if not records:
        raise refusals[0]
    usable = {by_view: views for by_view, views in factored.items() if by_view in records}
    return PrecomputedViews(
        names, data.n_samples, usable, LazyReferenceGraphs(data), records[next(iter(records))]
    )


@contextlib.contextmanager
def _collected(refusals: list[DataError]) -> Iterator[None]:
    try:
        yield
    except StoreCorruptError:
        raise
    except DataError as error:
        refusals.append(error)


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
