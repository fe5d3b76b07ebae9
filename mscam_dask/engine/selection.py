"""Choosing scaling, α and k without labels: every setting's first cut, judged the same way.

A setting costs a neighbour search, one spectrum and one cut; the views are read and factored
once per scaling, and the judge's neutral graphs once.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from mscam_dask.engine.executor import Executor, Handle
from mscam_dask.engine.judging import Best, judge, mean_score, spectrum_of
from mscam_dask.engine.setup import (
    FirstGraph,
    Foundation,
    Prepared,
    anchor_space,
    first_graph,
    prepare,
)
from mscam_dask.engine.tasks import graph as graph_tasks
from mscam_dask.engine.tasks import judge as judge_tasks
from mscam_dask.model.parameters import Parameters
from mscam_dask.model.records import SelectionEnded, SettingRecord
from mscam_dask.solvers.partition import merge_components

__all__ = ["Start", "choose_setting"]


@dataclasses.dataclass(frozen=True)
class Start:
    """A setting with the graph and the partition it starts from.

    Attributes
    ----------
    parameters : Parameters
    prepared : Prepared
    first : FirstGraph
    spectrum : handle or None
        Of the first graph; None when that has more components than clusters.
    best : Best
    """

    parameters: Parameters
    prepared: Prepared
    first: FirstGraph
    spectrum: Handle | None
    best: Best


def choose_setting(
    foundation: Foundation, candidates: Sequence[Parameters], executor: Executor
) -> tuple[Start, SelectionEnded]:
    """The start that scores best; within `tol` the earlier candidate stays.

    Parameters
    ----------
    foundation : Foundation
    candidates : sequence of Parameters
        Differing in scale, alpha and n_neighbors only; at least one.
    executor : Executor

    Returns
    -------
    Start, SelectionEnded
    """
    began = time.perf_counter()
    records: list[SettingRecord] = []
    chosen, leader = 0, None
    for index, candidate in enumerate(candidates):
        key = f"setting-{index}"
        last = all(later.scale != candidate.scale for later in candidates[index + 1 :])
        prepared = prepare(foundation, candidate, executor, key=key, last=last)
        start = _start(prepared, candidate, executor, key=key)
        records.append(
            SettingRecord(
                scale=candidate.scale,
                alpha=candidate.alpha,
                n_neighbors=start.first.n_neighbors,
                n_connected_components=start.first.n_components,
                score=start.best.score,
            )
        )
        # one setting beside the best is held at a time: anchors of all views are large
        if leader is None:
            leader = start
        elif start.best.score > leader.best.score + candidate.tol * abs(leader.best.score):
            _forget(leader, executor)
            chosen, leader = index, start
        else:
            _forget(start, executor)
    assert leader is not None, "there is at least one candidate"
    ended = SelectionEnded(
        settings=tuple(records), chosen=chosen, seconds=time.perf_counter() - began
    )
    return leader, ended


def _start(prepared: Prepared, parameters: Parameters, executor: Executor, *, key: str) -> Start:
    first = first_graph(prepared, parameters, executor, key=key)
    spectrum: Handle | None = None
    if first.n_components > parameters.n_clusters:
        components = executor.submit(
            graph_tasks.components_of, first.graph, key=f"components/{key}"
        )
        anchors = anchor_space(prepared.views, parameters, executor, key=f"{key}/merge")
        labels = executor.submit(
            merge_components,
            anchors,
            components,
            parameters.n_clusters,
            key=f"merge_components/{key}",
        )
        partitions = executor.submit(judge_tasks.single, labels, key=f"partitions/{key}")
        executor.release([anchors])
    else:
        spectrum = spectrum_of(first.graph, None, prepared, parameters, executor, key=key)
        partitions = executor.submit(
            judge_tasks.first_cuts,
            spectrum,
            parameters.n_clusters,
            parameters.seed,
            key=f"cut_embedding/{key}",
        )
    scores = judge(prepared, partitions, executor, key=key)
    index = max(range(len(scores)), key=lambda i: mean_score(scores[i]))
    best = Best(
        executor.submit(judge_tasks.pick, partitions, index, key=f"best_cut/{key}"),
        mean_score(scores[index]),
        scores[index],
        iteration=0,
    )
    return Start(parameters, prepared, first, spectrum, best)


def _forget(start: Start, executor: Executor) -> None:
    prepared = start.prepared
    handles = [*prepared.views, *prepared.blocks, start.first.graph]
    handles.append(start.best.labels)
    if start.spectrum is not None:
        handles.append(start.spectrum)
    executor.release(handles)
