"""After the path: partitions by distances learned from the best one so far.

A partition says in which directions of each view its clusters are far apart: Fisher's
discriminants. The graph of the data distances and of those in the discriminants, half each, is cut
and judged like a first graph. The judge's own graphs are of the data distances, so a partition
by learned ones is taken, and learned from in turn, unless it is clearly behind: docs/decisions/0059
and 0064.
"""

from __future__ import annotations

import dataclasses
import time

from mscam_dask.engine.candidate_neighbors import candidate_blocks
from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.initial_graph import InitialGraph, PreparedHandles, build_graph
from mscam_dask.engine.initialize import evaluate_graph
from mscam_dask.engine.outer_loop import LoopState
from mscam_dask.engine.scoring import BestPartition
from mscam_dask.engine.view_graphs import have_view_graphs, view_graphs, with_view_graphs
from mscam_dask.solvers.lda import linear_discriminants
from mscam_dask.solvers.partition_score import is_better, is_nearly_perfect, is_worse
from mscam_dask.types.events import RefinementFinished
from mscam_dask.types.parameters import Parameters

__all__ = ["learned_partition"]

# Where views tell little, learning from what was learned runs away: docs/decisions/0064.
_MOST_ROUNDS = 3

# By how much of its score a partition may be behind the one it is learned from: docs/decisions/0064.
_MOST_BEHIND = 0.015


def learned_partition(
    state: LoopState,
    prepared: PreparedHandles,
    parameters: Parameters,
    executor: Executor,
    *,
    from_previous_fit: bool = False,
) -> tuple[BestPartition, RefinementFinished | None]:
    """The last partition taken of those learned from the best of a path and from one another.

    Parameters
    ----------
    state : LoopState
        Where the path ended. The labels of its best partition are given up where another one is
        returned.
    prepared : Prepared
    parameters : Parameters
    executor : Executor
    from_previous_fit : bool
        The path began with the partition of an earlier fit, which was learned already: another is
        taken only where it is ahead by more than `tol`.

    Returns
    -------
    Best
        That of the path where no partition was taken.
    RefinementFinished or None
        None where nothing was tried: no path was walked, a partition is clear, or views have no
        graphs of their own (see `mscam_dask.engine.view_graphs`).
    """
    started, best = time.perf_counter(), state.best
    if state.spectrum is None or is_nearly_perfect(best.score, parameters):
        return best, None
    if not have_view_graphs(len(prepared.names), prepared.n_samples):
        return best, None
    # found once more instead of held, as large as all graphs together, for the whole of the path
    own = view_graphs(prepared, parameters, executor, key=f"learned-{prepared.n_samples}")
    scores: list[float] = []
    taken = 0
    while taken == len(scores) < _MOST_ROUNDS and not is_nearly_perfect(best.score, parameters):
        rival = _learned(state, best, own, prepared, parameters, executor, key=f"learned-{taken}")
        scores.append(rival.score)
        is_taken = (
            is_better(rival.partition_score, best.partition_score, parameters)
            if from_previous_fit
            else not is_worse(rival.partition_score, best.partition_score, _MOST_BEHIND)
        )
        if (
            is_taken and rival.partition_score != best.partition_score
        ):  # else the same partition again
            best, rival, taken = rival, best, taken + 1
        executor.release([rival.labels])
    executor.release([own])
    finalize = RefinementFinished(
        scores=tuple(scores), taken=taken, seconds=time.perf_counter() - started
    )
    return best, finalize


def _learned(
    state: LoopState,
    best: BestPartition,
    own: Handle,
    prepared: PreparedHandles,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
) -> BestPartition:
    """The best cut of the graph by the distances that a partition teaches."""
    learned = [
        executor.submit(linear_discriminants, view, best.labels, key=f"discriminants/{key}/{name}")
        for view, name in zip(prepared.views, prepared.names, strict=True)
    ]
    both = [*prepared.views, *learned]
    # no path from here: candidates beside the neighbours would not be looked at
    n_candidates = max(state.n_neighbors, parameters.n_neighbors) + 1
    searched = dataclasses.replace(parameters, n_candidates=n_candidates)
    blocks = candidate_blocks(both, prepared.n_samples, searched, executor, key=key)
    graph, n_components = build_graph(
        executor,
        blocks,
        None,
        n_neighbors=state.n_neighbors,
        data_weight=1.0,
        projected_weight=0.0,
        key=key,
    )
    executor.release([*learned, *blocks])
    by_distances = InitialGraph(graph, n_components, state.n_neighbors)
    first = with_view_graphs(by_distances, own, executor, key=key)
    start = evaluate_graph(prepared, parameters, first, executor, key=key, known=best.labels)
    executor.release([graph, first.graph])
    if start.spectrum is not None:
        executor.release([start.spectrum])
    return start.best
