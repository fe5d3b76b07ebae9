"""Selection of scale, α, k and the initial graph without labels, by scores of spectral cuts.

A setting costs a neighbor search, one eigenproblem and one spectral cut. The SVD of the views is
computed once per scaling, and the reference graphs once.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from mscam_dask.engine.executors.base import Executor
from mscam_dask.engine.initial_graph import prepare_views
from mscam_dask.engine.initialize import (
    Initialization,
    evaluate_graph,
    initialize,
    release,
    release_unshared,
)
from mscam_dask.engine.precompute import PrecomputedViews
from mscam_dask.engine.view_graphs import have_view_graphs, view_graphs, with_view_graphs
from mscam_dask.solvers.partition_score import is_better, is_nearly_perfect
from mscam_dask.types.events import CandidateSettings, SettingsSelected
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.search_space import Choices

__all__ = ["choose_settings", "setting_record"]

# Relative gain of score for which uninformative views are kept: docs/decisions/0072.
_LITTLE = 0.03


def choose_settings(
    precomputed: PrecomputedViews,
    candidates: Sequence[Parameters],
    executor: Executor,
    choices: Choices,
) -> tuple[Initialization, SettingsSelected]:
    """Return the initialization with the best score; within `tol` the earlier candidate is kept.

    Parameters
    ----------
    precomputed : PrecomputedViews
    candidates : sequence of Parameters
        At least one; they differ in scale, alpha and n_neighbors only.
    executor : Executor
    choices : Choices
        With `initial_graph`, the best candidate is also tried with the mixed initial graph, unless
        its score is nearly perfect.

    Returns
    -------
    Initialization, SettingsSelected

    Notes
    -----
    The settings of large data are compared on a sample.
    """
    began = time.perf_counter()
    candidates, lost = _with_or_without(precomputed, candidates, executor)
    if precomputed.sample is not None and len(candidates) > 1:
        leader, records, chosen = _best_on_sample(
            precomputed, precomputed.sample, candidates, executor
        )
    else:
        leader, records, chosen = _best_of(precomputed, candidates, executor)
    rival = _with_view_graphs(leader, executor) if choices.initial_graph else None
    if rival is not None:
        records.append(setting_record(rival, precomputed.names))
        if _is_better(rival, leader):
            leader, rival, chosen = rival, leader, len(records) - 1
        release_unshared(rival, leader, executor)
    selected = SettingsSelected(
        settings=(*records, *lost), chosen=chosen, seconds=time.perf_counter() - began
    )
    return leader, selected


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
        starts.append((start.best.partition_score, setting_record(start, precomputed.names)))
        release(start, executor)
    (score_without, record_without), (score_with_all, record_with_all) = starts
    clearly = dataclasses.replace(without[0], tol=max(without[0].tol, _LITTLE))
    if is_better(score_with_all, score_without, clearly):
        return everything, [record_without]
    return without, [record_with_all]


def _best_of(
    precomputed: PrecomputedViews, candidates: Sequence[Parameters], executor: Executor
) -> tuple[Initialization, list[CandidateSettings], int]:
    """Return the initialization with the best score, the records of all settings, and its position."""
    records: list[CandidateSettings] = []
    chosen, leader = 0, None
    for index, candidate in enumerate(candidates):
        key = f"setting-{precomputed.n_samples}-{index}"
        n_views = len(precomputed.names)
        later = [following.scales(n_views) for following in candidates[index + 1 :]]
        prepared = prepare_views(precomputed, candidate, executor, key=key, later=later)
        start = initialize(prepared, candidate, executor, key=key)
        records.append(setting_record(start, precomputed.names))
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
    records[chosen] = setting_record(start, precomputed.names)
    return start, records, chosen


def _is_better(later: Initialization, earlier: Initialization) -> bool:
    return is_better(later.best.partition_score, earlier.best.partition_score, later.parameters)


def setting_record(start: Initialization, names: Sequence[str]) -> CandidateSettings:
    """Record of a setting of views with these names, and of its initial graph."""
    parameters, first = start.parameters, start.first
    by_view = parameters.view_settings is not None
    view_settings = tuple(
        (name, chosen.scale, chosen.alpha)
        for name, chosen in zip(names, parameters.view_settings or (), strict=by_view)
    )
    return CandidateSettings(
        scale="by view" if by_view else parameters.scale,
        alpha=None if by_view else parameters.alpha,
        n_neighbors=first.n_neighbors,
        n_connected_components=first.n_components,
        score=start.best.score,
        initial_graph=first.kind,
        view_settings=view_settings,
        exclude_views=tuple(names[view] for view in parameters.exclude_views),
    )


def _with_view_graphs(leader: Initialization, executor: Executor) -> Initialization | None:
    """Return the initialization with the mixed initial graph, or None if it is not tried."""
    prepared, parameters = leader.prepared, leader.parameters
    if leader.spectrum is None or is_nearly_perfect(leader.best.score, parameters):
        return None
    if not have_view_graphs(len(prepared.names), prepared.n_samples):
        return None
    key = f"view-graphs-{prepared.n_samples}"
    own = view_graphs(prepared, parameters, executor, key=key)
    first = with_view_graphs(leader.first, own, executor, key=key)
    executor.release([own])
    return evaluate_graph(prepared, parameters, first, executor, key=key)
