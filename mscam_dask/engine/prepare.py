"""Views of a fit: their SVDs for each scaling, and the ridge views and candidate neighbors of one setting."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.rows import sampled_view
from mscam_dask.data.views.sources import RowSource
from mscam_dask.engine import views as of_views
from mscam_dask.engine.blocks import Candidates, RowOrder, Stage, View, block_ranges
from mscam_dask.engine.executors.base import Handle
from mscam_dask.engine.neighbors import ordered_candidates
from mscam_dask.engine.preprocessing_selection import rows_compared
from mscam_dask.engine.scores import (
    Scorer,
    compared_views,
    has_lattice,
    partition_scores,
    score_partitions,
)
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.solvers.borders import JointPoints
from mscam_dask.solvers.known_labels import are_enough
from mscam_dask.solvers.preprocessing import is_few
from mscam_dask.solvers.spectral_cut import sampled_rows
from mscam_dask.types.events import ViewPrepared
from mscam_dask.types.parameters import Parameters, Scale
from mscam_dask.types.rules import SIZES

# Maximum number of tasks that score partitions; with more views, each task has several.
_MAX_TASKS = 16


@dataclasses.dataclass(frozen=True)
class PrecomputedViews:
    """Quantities that do not depend on α or k, kept during the whole fit."""

    names: tuple[str, ...]
    n_samples: int
    svds: of_views.SVDs  # with the scalings that do not make all rows equal
    scorer: Scorer
    records: tuple[ViewPrepared, ...]  # with the first usable scaling; for large data of the sample
    data: MultiViewData
    # Of large data, whose ridge views wait for the setting that is selected on the sample
    sample: PrecomputedViews | None = None
    known: NDArray[np.int64] | None = None  # (n,) known labels of some samples, −1 for the others
    compared: NDArray[np.int64] | None = None  # samples of the reference graphs; None for all

    def has(self, parameters: Parameters) -> bool:
        """Whether no view has equal rows with the scalings of a setting."""
        scales = parameters.scales(len(self.names))
        return self.svds.keys() >= {*zip(self.names, scales, strict=True)}


@dataclasses.dataclass(frozen=True)
class Prepared:
    """Ridge views and candidate neighbors of one setting of scale, α and k."""

    parameters: Parameters
    names: tuple[str, ...]  # views that are not excluded
    views: tuple[View, ...]  # one per name
    candidates: Candidates
    validation_views: tuple[str, ...]  # views whose reference graphs score partitions
    bordered: tuple[tuple[str, Scale], ...]  # views in which borders between clusters are tested
    scorer: Scorer
    compared: NDArray[np.int64] | None  # samples of the reference graphs; None for all
    known: NDArray[np.int64] | None  # (n,) known labels of some samples, −1 for the others
    deciding: Handle | None  # the known labels, if they are enough to decide between partitions
    # Views with more columns than rows, whose loadings are computed at the end, with their SVDs
    # and α; none of large data
    wide: dict[str, tuple[RowSource, Handle, float]]

    @property
    def order(self) -> RowOrder:
        """Order of the rows."""
        return self.candidates.order

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return self.order.n_samples

    def scores(self, stage: Stage, partitions: Handle) -> Handle:
        """Submit the score of each partition of a list, with the number of known samples that it misses."""
        graphs = self.scorer.graphs(self.validation_views)
        together = -(-len(graphs) // _MAX_TASKS)
        by_view = [
            stage.submit(
                score_partitions,
                graphs[first : first + together],
                partitions,
                self.compared,
                kind="score",
            )
            for first in range(0, len(graphs), together)
        ]
        return stage.submit(partition_scores, by_view, partitions, self.deciding)


def unit_points(stage: Stage, prepared: Prepared) -> Handle | None:
    """Return points like those in which borders are tested, but with rows of unit length; None if that is no option.

    The length of rows, such as a library size, may hide clusters.
    """
    own = prepared.scorer.points(prepared.bordered)
    unit = prepared.scorer.unit_points([name for name, _ in prepared.bordered])
    is_option = unit is not own and stage.value(stage.submit(differ_enough, own, unit))
    return unit if is_option else None


def differ_enough(own: JointPoints, unit: JointPoints) -> bool:
    """Whether rows of unit length give other points, which have more than a few columns."""
    n, p = unit.rows.shape
    return not is_few(p, n) and not np.array_equal(own.rows, unit.rows)


def precompute_views(
    stage: Stage,
    data: MultiViewData,
    scales: Sequence[tuple[Scale, ...]],
    svds: of_views.SVDs,
    *,
    exact_samples: int,
    known: NDArray[np.int64] | None,
    distinct: NDArray[np.int64] | None,
) -> PrecomputedViews:
    """Read every view and compute its SVD for each scaling; of large data, those of a sample.

    SVDs that are in `svds` are not computed again; the others are added to it. Only `distinct` samples are compared if they are given.
    """
    n = data.n_samples
    if n > exact_samples:
        rows = _compared_rows(n, SIZES.n_scored, distinct)
        rows = np.arange(n) if rows is None else rows
        views = tuple(sampled_view(view, rows) for view in data.views)
        drawn = MultiViewData(views, log_views=data.log_views)
        of_sample = None if known is None or known[rows].max() < 0 else known[rows]
        svds.clear()  # those of all samples
        sample = _precompute(stage, drawn, scales, svds, max_rank=SIZES.max_rank)
        sample = dataclasses.replace(sample, known=of_sample)
        return dataclasses.replace(
            sample, n_samples=n, data=data, sample=sample, known=known, compared=rows
        )
    is_sampled, max_rank = is_large_incomplete(data), None
    if is_sampled:
        max_rank = SIZES.max_rank
        svds.clear()  # those of all directions
    precomputed = _precompute(stage, data, scales, svds, max_rank=max_rank)
    are_all = len(data.views) <= SIZES.few_views and not is_sampled
    n_wanted = n if are_all else rows_compared(len(data.views), SIZES.n_scored)
    rows = _compared_rows(n, n_wanted, distinct)
    scorer = precomputed.scorer if rows is None else Scorer(stage, data, rows)
    return dataclasses.replace(precomputed, scorer=scorer, known=known, compared=rows)


def _compared_rows(
    n_samples: int, n_wanted: int, distinct: NDArray[np.int64] | None
) -> NDArray[np.int64] | None:
    """Samples that are compared: a random sample of the distinct ones, or all of these; None if these are all samples."""
    n_distinct = n_samples if distinct is None else len(distinct)
    if n_wanted >= n_distinct:
        return distinct
    rows = sampled_rows(n_distinct, n_wanted)
    return rows if distinct is None else distinct[rows]


def distinct_samples(
    stage: Stage, data: MultiViewData, equal: NDArray[np.int64] | None
) -> NDArray[np.int64] | None:
    """Samples without copies: the first of each group of `equal` (n,) ones, and all others; None if each sample counts.

    If all views have columns on a lattice, such as answers of a survey, equal samples need not be copies, and each counts.
    """
    if equal is None:
        return None
    (lattices,) = stage.gather([stage.submit(has_lattice, view) for view in data.views])
    if all(lattices):
        return None
    _, first = np.unique(equal, return_index=True)
    return np.union1d(first, np.flatnonzero(equal < 0))


def _precompute(
    stage: Stage,
    data: MultiViewData,
    scales: Sequence[tuple[Scale, ...]],
    svds: of_views.SVDs,
    *,
    max_rank: int | None,
) -> PrecomputedViews:
    names = data.view_names
    by_setting = [tuple(zip(names, of_setting, strict=True)) for of_setting in scales]
    wanted = {
        (view.name, scale): of_views.svd_once(stage, svds, view, scale, max_rank)
        for of_setting in scales
        for view, scale in zip(data.views, of_setting, strict=True)
    }
    (found,) = stage.gather(  # each the record of a view, or its error
        [stage.submit(getattr, one, "record", one, kind="record") for one in wanted.values()]
    )
    records = dict(zip(wanted, found, strict=True))
    errors = {view: one for view, one in records.items() if isinstance(one, DataError)}
    for unused in svds.keys() - (wanted.keys() - errors.keys()):
        del svds[unused]
    usable = [views for views in by_setting if errors.keys().isdisjoint(views)]
    if not usable:
        raise next(iter(errors.values()))
    first = tuple(records[view] for view in usable[0])
    scorer = Scorer(stage, data, svds=svds)
    return PrecomputedViews(names, data.n_samples, svds, scorer, first, data)


def prepare_views(
    stage: Stage, precomputed: PrecomputedViews, parameters: Parameters, *, all_score: bool = False
) -> Prepared:
    """Submit the ridge views and candidate neighbors of one setting, without its excluded views."""
    active = [i for i in range(len(precomputed.names)) if i not in parameters.exclude_views]
    names = tuple(precomputed.names[index] for index in active)
    validation_views = precomputed.names if all_score else names
    scales = dict(zip(precomputed.names, parameters.scales(len(precomputed.names)), strict=True))
    bordered = tuple((name, scales[name]) for name in compared_views(validation_views))
    chosen = [parameters.settings_of_view(index) for index in active]
    data, is_large = precomputed.data, precomputed.sample is not None
    ranges = block_ranges(precomputed.n_samples, is_large=is_large)
    wide: dict[str, tuple[RowSource, Handle, float]] = {}
    if not is_large:
        views = []
        for index, settings, name in zip(active, chosen, names, strict=True):
            source, svd = data.views[index], precomputed.svds[name, scales[name]]
            view = stage.submit(of_views.ridge_view_of, svd, settings.alpha, part=name)
            views.append(View((view,), view))
            if source.shape[1] > source.shape[0]:
                wide[name] = source, svd, settings.alpha
    else:
        # no partition is scored before the eigenvectors are there: until then workers have time for these
        precomputed.scorer.graphs(names)
        precomputed.scorer.points(bordered)
        precomputed.svds.clear()  # the settings are selected
        views = [
            of_views.by_blocks(stage.sub(name), data.views[index], settings, ranges, SIZES.max_rank)
            for index, settings, name in zip(active, chosen, names, strict=True)
        ]
    known, deciding = precomputed.known, None
    if known is not None and are_enough(known, parameters.n_clusters):
        deciding = stage.submit(np.asarray, known, kind="known_labels")
    ordered, candidates = ordered_candidates(stage, views, ranges, parameters)
    return Prepared(
        parameters=parameters,
        names=names,
        views=tuple(ordered),
        candidates=candidates,
        validation_views=validation_views,
        bordered=bordered,
        scorer=precomputed.scorer,
        compared=precomputed.compared,
        known=known,
        deciding=deciding,
        wide=wide,
    )


def exact_limit(data: MultiViewData) -> dict[str, int]:
    """Return `exact_samples` of incomplete data, all of whose neighbors are searched exhaustively."""
    most = min(data.n_samples, SIZES.max_incomplete_samples)
    return {"exact_samples": most} if data.is_incomplete and most > SIZES.exact_samples else {}


def is_large_incomplete(data: MultiViewData) -> bool:
    """Return whether incomplete data are so many that bases and scores are those of large data."""
    return data.is_incomplete and data.n_samples > SIZES.exact_samples


def check_incomplete(data: MultiViewData, candidates: Sequence[Parameters]) -> None:
    """Refuse incomplete views that a fit cannot use, and settings that exclude all views of a sample."""
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
