"""A whole fit: set-up, the path of outer iterations, the graph that is returned."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.engine.checkpoint import CheckpointManager, CheckpointMetadata, CheckpointStore
from mscam_dask.engine.executors.base import Executor
from mscam_dask.engine.finalize import build_solution, finalize, graph_from_partition
from mscam_dask.engine.initial_graph import prepare_views
from mscam_dask.engine.initialize import improve_by_restarts
from mscam_dask.engine.n_clusters import choose_count, with_count
from mscam_dask.engine.outer_loop import FitContext, LoopState, Refinement, outer_iteration
from mscam_dask.engine.precompute import PrecomputedViews, precompute_views
from mscam_dask.engine.preprocessing_selection import (
    ViewSettingsChoice,
    choice_for,
    select_view_settings,
    with_view_settings,
)
from mscam_dask.engine.refine import (
    MAX_ADMM_ITERATIONS,
    MAX_ITERATIONS,
    can_refine,
    refine_iteration,
)
from mscam_dask.engine.select import choose_settings
from mscam_dask.engine.view_graphs import view_graphs
from mscam_dask.engine.warm_start import warm_start
from mscam_dask.errors import ConfigurationError, redacted
from mscam_dask.solvers.partition_score import is_nearly_perfect
from mscam_dask.solvers.rank_control import Decision, RankControl
from mscam_dask.types.events import (
    FitEvent,
    FitFailed,
    FitFinished,
    FitStarted,
    RefinementFinished,
)
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.result import Solution, Status
from mscam_dask.types.search_space import Choices

__all__ = ["Observer", "run_fit"]

Observer = Callable[[FitEvent], None]
"""Called by the driver, in order, with each event of the fit."""


_NOTHING = Choices()


def run_fit(
    data: MultiViewData,
    candidates: Parameters | Sequence[Parameters],
    executor: Executor,
    *,
    choices: Choices = _NOTHING,
    observers: Sequence[Observer] = (),
    checkpoint_store: CheckpointStore | None = None,
    known: NDArray[np.int64] | None = None,
) -> Solution:
    """Cluster the samples of `data`.

    Parameters
    ----------
    data : MultiViewData
        Validated views.
    candidates : Parameters or sequence of Parameters
        With several, which differ in scale, alpha and n_neighbors only, the best is chosen
        without labels; see `mscam_dask.engine.select`.
    executor : Executor
        Entered and left here; the result does not depend on which one it is.
    choices : Choices
        What is chosen beside the candidates, whatever they say: with two preparations or more,
        and two views or more, scaling and α of each view by itself, and which views are left out
        (see `mscam_dask.engine.preprocessing_selection`); k and the first graph (see
        `mscam_dask.engine.select`), and with it whether distances are learned from the best
        partition (see `mscam_dask.engine.refine`); the number of clusters, from 2 to
        that of the candidates (see `mscam_dask.engine.n_clusters`; a checkpoint has the number
        that was chosen).
    observers : sequence of callable
        Called with `FitStarted`, `NClustersSelected` where the number of clusters was chosen,
        `SettingsSelected`, one `IterationFinished` per outer iteration, `RefinementFinished` where distances
        were learned from the best partition, and `FitFinished` or `FitFailed`; after a restart with
        those of earlier iterations once more.
    checkpoint_store : CheckpointStore, optional
        Gets the state after the selection and after each outer iteration. What it holds at the
        start is gone on from, to the same solution, bit for bit, that an undisturbed fit gives
        with the same versions, linear algebra library and processor.
    known : (n,) int64, optional
        Clusters of an earlier fit to start from, −1 for samples that it did not see; with one
        candidate. See `mscam_dask.engine.warm_start`.

    Returns
    -------
    Solution

    Raises
    ------
    ClusterError
        When the executor cannot carry the work.
    ConfigurationError
        When the checkpointer holds the state of another fit, or there is no number of clusters
        to choose.
    DataError
        When a view turns out to be unusable, or a checkpoint.
    """
    candidates = (candidates,) if isinstance(candidates, Parameters) else tuple(candidates)
    trivial = _trivial(data.n_samples, candidates[0].n_clusters)
    if choices.n_clusters and not 2 <= candidates[0].n_clusters < data.n_samples:
        raise ConfigurationError(
            f"the most clusters to choose from are {candidates[0].n_clusters}; allowed are 2 to "
            f"{data.n_samples - 1}, one less than samples."
        )
    checkpoints = CheckpointManager(
        checkpoint_store if trivial is None else None, data, candidates, choices, known
    )
    started = time.perf_counter()
    with _failure_told(observers, started), contextlib.ExitStack() as stack:
        stack.enter_context(executor)
        saved = checkpoints.load()
        agreed: tuple[ViewSettingsChoice, ...] = ()
        asked = candidates if saved is None else (saved.parameters,)
        if (
            saved is None
            and trivial is None
            and len(choices.view_settings) > 1
            and len(data.views) > 1
        ):
            agreed = select_view_settings(data, choices.view_settings, candidates[0].seed, executor)
            asked = with_view_settings(
                candidates, agreed, may_exclude_views=choices.may_exclude_views
            )
        scales = [candidate.scales(len(data.views)) for candidate in asked]
        precomputed = precompute_views(
            data, scales, executor, exact_samples=candidates[0].exact_samples
        )
        if saved is not None:
            precomputed = dataclasses.replace(precomputed, records=saved.prepared)
        counted = None if saved is None else saved.counted
        if saved is None and choices.n_clusters:
            counted = choose_count(precomputed, _usable(asked, precomputed)[0], executor)
            asked = with_count(asked, counted)
        _notify(
            observers,
            FitStarted(
                n_samples=data.n_samples,
                n_clusters=asked[0].n_clusters,
                max_iter=candidates[0].max_iter,
                views=precomputed.records,
                executor=executor.description,
            ),
        )
        if counted is not None:
            _notify(observers, counted)
        if trivial is not None:
            context = _alone(precomputed, asked, executor)
            final = graph_from_partition(*trivial, context, executor)
        else:
            if saved is None:
                context, state = _begin(precomputed, asked, agreed, executor, known, choices)
                context = dataclasses.replace(context, counted=counted)
                decision = Decision.ACCEPT
                checkpoints.save(state, decision, context, executor)
                assert context.selection is not None
                _notify(observers, context.selection)
            else:
                context = _continue(precomputed, saved, executor, observers)
                state, decision = checkpoints.restore(saved, executor), Decision[saved.decision]
            if state.refinement is None:
                state, decision = _walk(state, decision, context, executor, observers, checkpoints)
            if context.refines:
                state, decision, context = _refine(
                    state,
                    decision,
                    context,
                    executor,
                    observers,
                    checkpoints,
                    from_previous_fit=known is not None,
                )
            final = finalize(state, decision, context, executor)
        solution = build_solution(final, context, executor)
    _notify(
        observers,
        FitFinished(
            status=solution.status.name,
            n_connected_components=solution.n_connected_components,
            n_iterations=len(solution.history),
            seconds=time.perf_counter() - started,
            score=solution.score,
            view_contributions=solution.view_contributions,
        ),
    )
    return solution


@contextlib.contextmanager
def _failure_told(observers: Sequence[Observer], started: float) -> Iterator[None]:
    """Let observers know that a fit ends with an error, Ctrl-C among them."""
    try:
        yield
    except BaseException as error:
        seconds = time.perf_counter() - started
        _notify(
            observers,
            FitFailed(error=type(error).__name__, message=redacted(str(error)), seconds=seconds),
        )
        raise


def _notify(observers: Sequence[Observer], event: FitEvent) -> None:
    for observer in observers:
        observer(event)


def _trivial(n_samples: int, n_clusters: int) -> tuple[Any, Status] | None:
    """Partitions that need no path: one cluster, or as many as samples."""
    if n_clusters == 1:
        return np.zeros(n_samples, dtype=np.int64), Status.SINGLE_CLUSTER
    if n_clusters == n_samples:
        return np.arange(n_samples, dtype=np.int64), Status.SINGLETONS
    return None


def _alone(
    precomputed: PrecomputedViews, candidates: Sequence[Parameters], executor: Executor
) -> FitContext:
    """The course of a partition that needs no path."""
    parameters = _usable(candidates, precomputed)[0]
    prepared = prepare_views(precomputed, parameters, executor, key="trivial")
    n_neighbors = min(parameters.n_neighbors, precomputed.n_samples - 1)
    return FitContext(parameters, prepared, precomputed.records, n_neighbors, None, [])


def _usable(candidates: Sequence[Parameters], precomputed: PrecomputedViews) -> list[Parameters]:
    """Candidates none of whose scalings makes all rows of a view equal."""
    n_views = len(precomputed.names)
    return [one for one in candidates if one.scales(n_views) in precomputed.factored]


def _begin(
    precomputed: PrecomputedViews,
    candidates: Sequence[Parameters],
    agreed: tuple[ViewSettingsChoice, ...],
    executor: Executor,
    known: NDArray[np.int64] | None,
    choices: Choices,
) -> tuple[FitContext, LoopState]:
    """Choose the setting, or take an earlier fit's: the state before the first outer iteration."""
    usable = _usable(candidates, precomputed)
    if known is None:
        start, selection = choose_settings(precomputed, usable, executor, choices)
        start = improve_by_restarts(start, executor)
    else:
        start, selection = warm_start(precomputed, usable[0], known, executor)
    parameters, k = start.parameters, start.first.n_neighbors
    selection = dataclasses.replace(selection, view_settings=choice_for(parameters, agreed))
    control = RankControl(
        parameters.n_clusters, parameters.graph_weight_growth, parameters.graph_weight
    )
    state = LoopState(0, start.first.graph, start.spectrum, control, start.best, k)
    context = FitContext(
        parameters,
        start.prepared,
        precomputed.records,
        k,
        selection,
        [],
        refines=choices.initial_graph and can_refine(state, start.prepared, parameters),
    )
    return context, state


def _continue(
    precomputed: PrecomputedViews,
    saved: CheckpointMetadata,
    executor: Executor,
    observers: Sequence[Observer],
) -> FitContext:
    """What an earlier process found, told again, with its views and candidates made again."""
    _notify(observers, saved.selection)
    for record in saved.history:
        _notify(observers, record)
    prepared = prepare_views(precomputed, saved.parameters, executor, key="restored")
    return FitContext(
        saved.parameters,
        prepared,
        saved.prepared,
        saved.n_neighbors,
        saved.selection,
        list(saved.history),
        saved.counted,
        refines=saved.refines,
    )


def _walk(
    state: LoopState,
    decision: Decision,
    context: FitContext,
    executor: Executor,
    observers: Sequence[Observer],
    checkpoints: CheckpointManager,
) -> tuple[LoopState, Decision]:
    """Run iterations with metrics by ADMM until c components, a stall, or the limit."""
    parameters, prepared = context.parameters, context.prepared
    limit = min(MAX_ADMM_ITERATIONS if context.refines else math.inf, parameters.max_iter)
    while (
        state.spectrum is not None
        and decision is Decision.ACCEPT
        and state.iteration < limit
        and state.iteration - state.best.iteration <= parameters.patience_for(prepared.n_samples)
    ):
        state, record, decision = outer_iteration(state, prepared, parameters, executor)
        context.history.append(record)
        checkpoints.save(state, decision, context, executor)
        _notify(observers, record)
    return state, decision


def _refine(
    state: LoopState,
    decision: Decision,
    context: FitContext,
    executor: Executor,
    observers: Sequence[Observer],
    checkpoints: CheckpointManager,
    *,
    from_previous_fit: bool,
) -> tuple[LoopState, Decision, FitContext]:
    """Run iterations with metrics learned from the best partition, until one is not accepted."""
    started, prepared, parameters = time.perf_counter(), context.prepared, context.parameters
    refinement = state.refinement
    if refinement is None:
        refinement = Refinement(state.iteration, decision)
        state = dataclasses.replace(state, refinement=refinement)
        is_perfect = is_nearly_perfect(state.best.score, parameters)
        decision = Decision.STOPPED if is_perfect else Decision.ACCEPT
    limit = refinement.first + MAX_ITERATIONS
    own = view_graphs(prepared, parameters, executor, key="refinement")
    while decision is Decision.ACCEPT and state.iteration < limit:
        state, record, decision = refine_iteration(
            state, own, prepared, parameters, executor, from_previous_fit=from_previous_fit
        )
        context.history.append(record)
        checkpoints.save(state, decision, context, executor)
        _notify(observers, record)
    executor.release([own])
    rounds = context.history[refinement.first :]
    n_accepted = sum(record.accepted for record in rounds)
    learned = RefinementFinished(
        scores=tuple(record.score for record in rounds),
        taken=n_accepted,
        seconds=time.perf_counter() - started,
    )
    _notify(observers, learned)
    last = decision if n_accepted else refinement.decision
    return state, last, dataclasses.replace(context, learned=learned)
