"""Quantities that do not depend on α or k: the SVD of every view and its reference graphs."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.data.views.sampling import sampled_view
from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.incomplete import uses_sample
from mscam_dask.engine.iteration_steps import LazyReferenceGraphs
from mscam_dask.engine.preprocessing_selection import rows_compared
from mscam_dask.engine.tasks import iteration as iteration_tasks
from mscam_dask.errors import DataError, StoreCorruptError
from mscam_dask.solvers.spectral_cut import sampled_rows
from mscam_dask.types.events import ViewPrepared
from mscam_dask.types.parameters import Scale
from mscam_dask.types.rules import SIZES

__all__ = [
    "PrecomputedViews",
    "precompute_views",
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
