"""Selection of scale, α, k and the initial graph without labels, by scores of spectral cuts.

A setting costs a neighbor search, one eigenproblem and one spectral cut. The SVD of the views is
computed once per scaling, and the reference graphs once.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.engine.executors.base import Executor
from mscam_dask.engine.initial_graph import prepare_views
from mscam_dask.engine.initialize import (
    Initialization,
    can_use_view_graphs,
    evaluate_graph,
    have_view_graphs,
    improve_by_restarts,
    initialize,
    release,
    release_unshared,
    view_graphs,
    warm_start,
    with_view_graphs,
)
from mscam_dask.engine.n_clusters import choose_count, split_half_ari_of, with_count
from mscam_dask.engine.precompute import PrecomputedViews
from mscam_dask.engine.preprocessing_selection import (
    ViewSettingsChoice,
    choice_for,
    select_view_settings,
    with_view_settings,
)
from mscam_dask.solvers.partition_score import is_better
from mscam_dask.types.events import CandidateSettings, NClustersSelected
from mscam_dask.types.parameters import Choices, Parameters
from mscam_dask.types.result import agrees_by_chance
from mscam_dask.types.rules import RULES

__all__ = ["Search", "Selected", "select", "select_n_clusters", "select_preprocessing"]


@dataclasses.dataclass(frozen=True)
class Search:
    """Settings from which a fit selects.

    Attributes
    ----------
    candidates : tuple of Parameters
        At least one.
    choices : Choices
    init_labels : (n,) int64 or None
        Initial labels from an earlier fit, whose settings are kept; see
        `mscam_dask.engine.initialize`.
    overlaps : tuple of ViewSettingsChoice
        Selections of scale and α of each view that gave the candidates.
    n_clusters_selection : NClustersSelected or None
        Selection of the number of clusters of the candidates.
    """

    candidates: tuple[Parameters, ...]
    choices: Choices
    init_labels: NDArray[np.int64] | None = None
    overlaps: tuple[ViewSettingsChoice, ...] = ()
    n_clusters_selection: NClustersSelected | None = None

    def resumed(
        self, parameters: Parameters, n_clusters_selection: NClustersSelected | None
    ) -> Search:
        """Search without a choice: the selection of a checkpoint."""
        return Search(
            (parameters,), Choices(), self.init_labels, n_clusters_selection=n_clusters_selection
        )

    def usable(self, precomputed: PrecomputedViews) -> list[Parameters]:
        """Candidates without scalings that make all rows of a view equal."""
        n_views = len(precomputed.names)
        return [
            candidate
            for candidate in self.candidates
            if candidate.scales(n_views) in precomputed.factored
        ]


@dataclasses.dataclass(frozen=True)
class Selected:
    """Initialization of the selected setting.

    Attributes
    ----------
    start : Initialization
    settings : tuple of CandidateSettings
        Settings in the order in which they were tried.
    chosen : int
        Position of the selected setting.
    seconds : float
    """

    start: Initialization
    settings: tuple[CandidateSettings, ...]
    chosen: int
    seconds: float


def select_preprocessing(data: MultiViewData, search: Search, executor: Executor) -> Search:
    """Select scale and α of each view by neighbor overlap, if there is a choice and two views or more."""
    choices = search.choices
    if len(choices.view_settings) < 2 or len(data.views) < 2:
        return search
    overlaps = select_view_settings(
        data, choices.view_settings, search.candidates[0].seed, executor
    )
    candidates = with_view_settings(
        search.candidates, overlaps, may_exclude_views=choices.may_exclude_views
    )
    return dataclasses.replace(search, candidates=candidates, overlaps=overlaps)


def select_n_clusters(precomputed: PrecomputedViews, search: Search, executor: Executor) -> Search:
    """Select the number of clusters, if there is a choice: 1 where views or halves agree by chance."""
    if not search.choices.n_clusters:
        return search
    first = search.usable(precomputed)[0]
    selection = choose_count(precomputed, first, executor)
    overlap = {record.view: record.overlap for record in choice_for(first, search.overlaps)}
    if agrees_by_chance(overlap, split_half_ari_of(selection)):
        selection = dataclasses.replace(selection, n_clusters=1)
    return dataclasses.replace(
        search, candidates=with_count(search.candidates, selection), n_clusters_selection=selection
    )


def select(precomputed: PrecomputedViews, search: Search, executor: Executor) -> Selected:
    """Return the initialization with the best score; within `tol` the earlier candidate is kept.

    With `Choices.initial_graph`, the best candidate is also tried with the mixed initial graph, unless
    its score is nearly perfect. The settings of large data are compared on a sample. With initial
    labels there is no selection.
    """
    began = time.perf_counter()
    candidates = search.usable(precomputed)
    if search.init_labels is not None:
        start = warm_start(precomputed, candidates[0], search.init_labels, executor)
        settings, chosen = [start.record(precomputed.names)], 0
    else:
        start, settings, chosen = _best_setting(precomputed, candidates, search.choices, executor)
        start = improve_by_restarts(start, executor)
    return Selected(start, tuple(settings), chosen, time.perf_counter() - began)


def _best_setting(
    precomputed: PrecomputedViews,
    candidates: Sequence[Parameters],
    choices: Choices,
    executor: Executor,
) -> tuple[Initialization, list[CandidateSettings], int]:
    """Return the initialization with the best score, the records of all settings, and its position."""
    candidates, lost = _with_or_without(precomputed, candidates, executor)
    if precomputed.sample is not None and len(candidates) > 1:
        leader, records, chosen = _best_on_sample(
            precomputed, precomputed.sample, candidates, executor
        )
    else:
        may_mix = choices.initial_graph and _may_mix(precomputed, candidates[0])
        is_only = len(candidates) == 1 and not may_mix
        leader, records, chosen = _best_of(precomputed, candidates, executor, is_only=is_only)
    other = _with_view_graphs(leader, executor) if choices.initial_graph else None
    if other is not None:
        records.append(other.record(precomputed.names))
        if _is_better(other, leader):
            leader, other, chosen = other, leader, len(records) - 1
        release_unshared(other, leader, executor)
        if other.view_graphs is not None:  # the mean graph is the better one
            executor.release([other.view_graphs])
    return leader, [*records, *lost], chosen


def _with_or_without(
    precomputed: PrecomputedViews, candidates: Sequence[Parameters], executor: Executor
) -> tuple[Sequence[Parameters], list[CandidateSettings]]:
    """Return the candidates that exclude views, or those that do not, and a record of the others.

    The first candidate of each kind is scored by all views. After that, excluded views have no effect.
    """
    without = [candidate for candidate in candidates if candidate.exclude_views]
    everything = [candidate for candidate in candidates if not candidate.exclude_views]
    if not without or not everything:
        return candidates, []
    scored_on = precomputed.sample or precomputed
    n_views = len(precomputed.names)
    later = [candidate.scales(n_views) for candidate in candidates]
    starts = []
    for name, candidate in (("without", without[0]), ("everything", everything[0])):
        key = f"{name}-{scored_on.n_samples}"
        prepared = prepare_views(
            scored_on, candidate, executor, key=key, later=later, all_score=True
        )
        start = initialize(prepared, candidate, executor, key=key)
        starts.append((start.best.partition_score, start.record(precomputed.names)))
        release(start, executor)
    (score_without, record_without), (score_with_all, record_with_all) = starts
    clearly = dataclasses.replace(without[0], tol=max(without[0].tol, RULES.min_gain_of_all_views))
    if is_better(score_with_all, score_without, clearly):
        return everything, [record_without]
    return without, [record_with_all]


def _may_mix(precomputed: PrecomputedViews, parameters: Parameters) -> bool:
    """Return whether the mixed initial graph is tried for some scores."""
    n_views = len(parameters.active_views(len(precomputed.names)))
    return have_view_graphs(n_views, precomputed.n_samples)


def _best_of(
    precomputed: PrecomputedViews,
    candidates: Sequence[Parameters],
    executor: Executor,
    *,
    is_only: bool = False,
) -> tuple[Initialization, list[CandidateSettings], int]:
    """Return the initialization with the best score, the records of all settings, and its position."""
    records: list[CandidateSettings] = []
    chosen, leader = 0, None
    for index, candidate in enumerate(candidates):
        key = f"setting-{precomputed.n_samples}-{index}"
        n_views = len(precomputed.names)
        later = [following.scales(n_views) for following in candidates[index + 1 :]]
        prepared = prepare_views(precomputed, candidate, executor, key=key, later=later)
        start = initialize(prepared, candidate, executor, key=key, is_only=is_only)
        records.append(start.record(precomputed.names))
        # only one setting beside the best is held at a time: candidate neighbors are large
        if leader is None:
            leader = start
        elif _is_better(start, leader):
            release(leader, executor)
            chosen, leader = index, start
        else:
            release(start, executor)
    assert leader is not None, "there is at least one candidate"
    return leader, records, chosen


def _best_on_sample(
    precomputed: PrecomputedViews,
    sample: PrecomputedViews,
    candidates: Sequence[Parameters],
    executor: Executor,
) -> tuple[Initialization, list[CandidateSettings], int]:
    """Return the initialization of all samples for the setting with the best score on the sample.

    The records of the other settings are those of the sample.
    """
    on_sample, records, chosen = _best_of(sample, candidates, executor)
    release(on_sample, executor)
    parameters = candidates[chosen]
    prepared = prepare_views(precomputed, parameters, executor, key="all")
    start = initialize(prepared, parameters, executor, key="all")
    records[chosen] = start.record(precomputed.names)
    return start, records, chosen


def _is_better(later: Initialization, earlier: Initialization) -> bool:
    return is_better(later.best.partition_score, earlier.best.partition_score, later.parameters)


def _with_view_graphs(leader: Initialization, executor: Executor) -> Initialization | None:
    """Return the initialization with the mixed initial graph, or None if it is not tried."""
    prepared, parameters = leader.prepared, leader.parameters
    if not can_use_view_graphs(leader):
        return None
    key = f"view-graphs-{prepared.n_samples}"
    own = view_graphs(prepared, parameters, executor, key=key)
    first = with_view_graphs(leader.first, own, executor, key=key)
    mixed = evaluate_graph(prepared, parameters, first, executor, key=key)
    return dataclasses.replace(mixed, view_graphs=own)
