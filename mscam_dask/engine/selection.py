"""Choosing scaling, α, k and the first graph without labels: every first cut, judged the same way.

A setting costs a neighbour search, one spectrum and one cut; the views are read and factored
once per scaling, and the judge's neutral graphs once.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from mscam_dask.engine.executor import Executor
from mscam_dask.engine.foundation import Foundation
from mscam_dask.engine.setup import prepare
from mscam_dask.engine.starts import Start, begin, forget, forget_beside, judged
from mscam_dask.engine.view_graphs import have_view_graphs, view_graphs, with_view_graphs
from mscam_dask.model.candidates import Choices
from mscam_dask.model.parameters import Parameters
from mscam_dask.model.records import SelectionEnded, SettingRecord
from mscam_dask.solvers.verdict import is_ahead, is_clear

__all__ = ["choose_setting", "setting_record"]

# What views have to add to the score that have no neighbours in common with the others: docs/decisions/0072.
_LITTLE = 0.03


def choose_setting(
    foundation: Foundation,
    candidates: Sequence[Parameters],
    executor: Executor,
    choices: Choices,
) -> tuple[Start, SelectionEnded]:
    """The start that scores best; within `tol` the earlier candidate stays.

    Parameters
    ----------
    foundation : Foundation
    candidates : sequence of Parameters
        Differing in scale, alpha and n_neighbors only; at least one.
    executor : Executor
    choices : Choices
        `first_graph`: the best candidate is tried with the views' own graphs in the first graph,
        where that leaves more than a little to find.

    Returns
    -------
    Start, SelectionEnded

    Notes
    -----
    Of large data the settings are compared on a sample.
    """
    began = time.perf_counter()
    candidates, lost = _with_or_without(foundation, candidates, executor)
    if foundation.sample is not None and len(candidates) > 1:
        leader, records, chosen = _best_on_sample(
            foundation, foundation.sample, candidates, executor
        )
    else:
        leader, records, chosen = _best_of(foundation, candidates, executor)
    rival = _with_view_graphs(leader, executor) if choices.first_graph else None
    if rival is not None:
        records.append(setting_record(rival, foundation.names))
        if _is_ahead(rival, leader):
            leader, rival, chosen = rival, leader, len(records) - 1
        forget_beside(rival, leader, executor)
    ended = SelectionEnded(
        settings=(*records, *lost), chosen=chosen, seconds=time.perf_counter() - began
    )
    return leader, ended


def _with_or_without(
    foundation: Foundation, candidates: Sequence[Parameters], executor: Executor
) -> tuple[Sequence[Parameters], list[SettingRecord]]:
    """The candidates that leave views out, or those that do not, and what is told of the others.

    All views judge the first of each. Then those that are left out have no say in anything, as if they
    were not there.
    """
    without = [one for one in candidates if one.left_out]
    everything = [one for one in candidates if not one.left_out]
    if not without or not everything:
        return candidates, []
    judged_on = foundation.sample or foundation
    n_views = len(foundation.names)
    later = [one.scales(n_views) for one in candidates]
    starts = []
    for name, one in (("without", without[0]), ("everything", everything[0])):
        key = f"{name}-{judged_on.n_samples}"
        prepared = prepare(judged_on, one, executor, key=key, later=later, all_judge=True)
        start = begin(prepared, one, executor, key=key)
        starts.append((start.best.verdict, setting_record(start, foundation.names)))
        forget(start, executor)
    (alone, record), (together, other) = starts
    clearly = dataclasses.replace(without[0], tol=max(without[0].tol, _LITTLE))
    if is_ahead(together, alone, clearly):
        return everything, [record]
    return without, [other]


def _best_of(
    foundation: Foundation, candidates: Sequence[Parameters], executor: Executor
) -> tuple[Start, list[SettingRecord], int]:
    """The start that scores best, what is told of each, and which it is."""
    records: list[SettingRecord] = []
    chosen, leader = 0, None
    for index, candidate in enumerate(candidates):
        key = f"setting-{foundation.n_samples}-{index}"
        n_views = len(foundation.names)
        later = [one.scales(n_views) for one in candidates[index + 1 :]]
        prepared = prepare(foundation, candidate, executor, key=key, later=later)
        start = begin(prepared, candidate, executor, key=key)
        records.append(setting_record(start, foundation.names))
        # one setting beside the best is held at a time: anchors of all views are large
        if leader is None:
            leader = start
        elif _is_ahead(start, leader):
            forget(leader, executor)
            chosen, leader = index, start
        else:
            forget(start, executor)
    assert leader is not None, "there is at least one candidate"
    return leader, records, chosen


def _best_on_sample(
    foundation: Foundation,
    sample: Foundation,
    candidates: Sequence[Parameters],
    executor: Executor,
) -> tuple[Start, list[SettingRecord], int]:
    """The setting of large data that scores best on the sample, begun with all of them.

    What is told of the others is of the sample.
    """
    on_sample, records, chosen = _best_of(sample, candidates, executor)
    forget(on_sample, executor)
    parameters = candidates[chosen]
    prepared = prepare(foundation, parameters, executor, key="all")
    start = begin(prepared, parameters, executor, key="all")
    records[chosen] = setting_record(start, foundation.names)
    return start, records, chosen


def _is_ahead(later: Start, earlier: Start) -> bool:
    return is_ahead(later.best.verdict, earlier.best.verdict, later.parameters)


def setting_record(start: Start, names: Sequence[str]) -> SettingRecord:
    """What is told of a setting of views with these names, and of its first graph."""
    parameters, first = start.parameters, start.first
    by_view = parameters.preparations is not None
    preparations = tuple(
        (name, chosen.scale, chosen.alpha)
        for name, chosen in zip(names, parameters.preparations or (), strict=by_view)
    )
    return SettingRecord(
        scale="by view" if by_view else parameters.scale,
        alpha=None if by_view else parameters.alpha,
        n_neighbors=first.n_neighbors,
        n_connected_components=first.n_components,
        score=start.best.score,
        first_graph=first.kind,
        preparations=preparations,
        left_out=tuple(names[view] for view in parameters.left_out),
    )


def _with_view_graphs(leader: Start, executor: Executor) -> Start | None:
    """The same setting begun with the views' own graphs too; None where these do not serve."""
    prepared, parameters = leader.prepared, leader.parameters
    if leader.spectrum is None or is_clear(leader.best.score, parameters):
        return None
    if not have_view_graphs(len(prepared.names), prepared.n_samples):
        return None
    key = f"view-graphs-{prepared.n_samples}"
    own = view_graphs(prepared, parameters, executor, key=key)
    first = with_view_graphs(leader.first, own, executor, key=key)
    executor.release([own])
    return judged(prepared, parameters, first, executor, key=key)
