"""Choosing scaling, α, k and the first graph without labels: every first cut, judged the same way.

A setting costs a neighbor search, one spectrum and one cut; the views are read and factored
once per scaling, and the judge's neutral graphs once.
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

# What views have to add to the score that have no neighbors in common with the others: docs/decisions/0072.
_LITTLE = 0.03


def choose_settings(
    precomputed: PrecomputedViews,
    candidates: Sequence[Parameters],
    executor: Executor,
    choices: Choices,
) -> tuple[Initialization, SettingsSelected]:
    """The start that scores best; within `tol` the earlier candidate stays.

    Parameters
    ----------
    precomputed : PrecomputedViews
    candidates : sequence of Parameters
        Differing in scale, alpha and n_neighbors only; at least one.
    executor : Executor
    choices : Choices
        `initial_graph`: the best candidate is tried with the views' own graphs in the first graph,
        where that leaves more than a little to find.

    Returns
    -------
    Start, SettingsSelected

    Notes
    -----
    Of large data the settings are compared on a sample.
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
    finalize = SettingsSelected(
        settings=(*records, *lost), chosen=chosen, seconds=time.perf_counter() - began
    )
    return leader, finalize


def _with_or_without(
    precomputed: PrecomputedViews, candidates: Sequence[Parameters], executor: Executor
) -> tuple[Sequence[Parameters], list[CandidateSettings]]:
    """The candidates that leave views out, or those that do not, and what is told of the others.

    All views judge the first of each. Then those that are left out have no say in anything, as if they
    were not there.
    """
    without = [one for one in candidates if one.exclude_views]
    everything = [one for one in candidates if not one.exclude_views]
    if not without or not everything:
        return candidates, []
    judged_on = precomputed.sample or precomputed
    n_views = len(precomputed.names)
    later = [one.scales(n_views) for one in candidates]
    starts = []
    for name, one in (("without", without[0]), ("everything", everything[0])):
        key = f"{name}-{judged_on.n_samples}"
        prepared = prepare_views(judged_on, one, executor, key=key, later=later, all_judge=True)
        start = initialize(prepared, one, executor, key=key)
        starts.append((start.best.partition_score, setting_record(start, precomputed.names)))
        release(start, executor)
    (alone, record), (together, other) = starts
    clearly = dataclasses.replace(without[0], tol=max(without[0].tol, _LITTLE))
    if is_better(together, alone, clearly):
        return everything, [record]
    return without, [other]


def _best_of(
    precomputed: PrecomputedViews, candidates: Sequence[Parameters], executor: Executor
) -> tuple[Initialization, list[CandidateSettings], int]:
    """The start that scores best, what is told of each, and which it is."""
    records: list[CandidateSettings] = []
    chosen, leader = 0, None
    for index, candidate in enumerate(candidates):
        key = f"setting-{precomputed.n_samples}-{index}"
        n_views = len(precomputed.names)
        later = [one.scales(n_views) for one in candidates[index + 1 :]]
        prepared = prepare_views(precomputed, candidate, executor, key=key, later=later)
        start = initialize(prepared, candidate, executor, key=key)
        records.append(setting_record(start, precomputed.names))
        # one setting beside the best is held at a time: anchors of all views are large
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
    """The setting of large data that scores best on the sample, begun with all of them.

    What is told of the others is of the sample.
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
    """What is told of a setting of views with these names, and of its first graph."""
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
    """The same setting begun with the views' own graphs too; None where these do not serve."""
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
