"""Driver of a fit: precompute, select, initialize, outer iterations, refine, finalize."""

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
from mscam_dask.engine.incomplete import check_incomplete
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
"""Callback that the driver calls with each event of a fit, in order."""


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
    """Run a fit on `data`.

    Parameters
    ----------
    data : MultiViewData
        Validated views.
    candidates : Parameters or sequence of Parameters
        If there are several, which differ in scale, alpha and n_neighbors only, the best is selected
        without labels; see `mscam_dask.engine.select`.
    executor : Executor
        Entered and left here; the result is the same for every executor.
    choices : Choices
        Selections other than the candidates: scale and α of each view and the excluded views, if
        there are two views and two view settings or more
        (`mscam_dask.engine.preprocessing_selection`); the initial graph
        (`mscam_dask.engine.select`) and with it the refinement (`mscam_dask.engine.refine`); the
        number of clusters, from 2 to that of the candidates (`mscam_dask.engine.n_clusters`; a
        checkpoint has the selected number).
    observers : sequence of callable
        Called with `FitStarted`, `NClustersSelected` if the number of clusters is selected,
        `SettingsSelected`, one `IterationFinished` per outer iteration, `RefinementFinished` if
        there was a refinement, and `FitFinished` or `FitFailed`. After a restart the events of
        earlier iterations are sent again.
    checkpoint_store : CheckpointStore, optional
        Receives the state after the selection and after each outer iteration. A checkpoint in it
        at the start is resumed, with a solution that is bit-identical to that of an uninterrupted
        fit with the same versions, linear algebra library and processor.
    known : (n,) int64, optional
        Initial labels from an earlier fit, −1 for samples that it did not have; needs one
        candidate. See `mscam_dask.engine.warm_start`.

    Returns
    -------
    Solution

    Raises
    ------
    ClusterError
        If the executor cannot run the tasks.
    ConfigurationError
        If the checkpoint is from another fit, or the range of the number of clusters is not
        valid.
    DataError
        If a view or a checkpoint cannot be used.
    """
    candidates = (candidates,) if isinstance(candidates, Parameters) else tuple(candidates)
    check_incomplete(data, candidates)
    trivial = _trivial(data.n_samples, candidates[0].n_clusters)
    if choices.n_clusters and not 2 <= candidates[0].n_clusters < data.n_samples:
        raise ConfigurationError(
            f"the largest number of clusters is {candidates[0].n_clusters}; allowed are 2 to "
            f"{data.n_samples - 1}, one less than the number of samples."
        )
    checkpoints = CheckpointManager(
        checkpoint_store if trivial is None else None, data, candidates, choices, known
    )
    started = time.perf_counter()
    with _report_failure(observers, started), contextlib.ExitStack() as stack:
        stack.enter_context(executor)
        saved = checkpoints.load()
        agreed: tuple[ViewSettingsChoice, ...] = ()
        settings = candidates if saved is None else (saved.parameters,)
        if (
            saved is None
            and trivial is None
            and len(choices.view_settings) > 1
            and len(data.views) > 1
        ):
            agreed = select_view_settings(data, choices.view_settings, candidates[0].seed, executor)
            settings = with_view_settings(
                candidates, agreed, may_exclude_views=choices.may_exclude_views
            )
        scales = [candidate.scales(len(data.views)) for candidate in settings]
        precomputed = precompute_views(
            data, scales, executor, exact_samples=candidates[0].exact_samples
        )
        if saved is not None:
            precomputed = dataclasses.replace(precomputed, records=saved.prepared)
        counted = None if saved is None else saved.counted
        if saved is None and choices.n_clusters:
            counted = choose_count(precomputed, _usable(settings, precomputed)[0], executor)
            settings = with_count(settings, counted)
        _notify(
            observers,
            FitStarted(
                n_samples=data.n_samples,
                n_clusters=settings[0].n_clusters,
                max_iter=candidates[0].max_iter,
                views=precomputed.records,
                executor=executor.description,
            ),
        )
        if counted is not None:
            _notify(observers, counted)
        if trivial is not None:
            context = _trivial_context(precomputed, settings, executor)
            final = graph_from_partition(*trivial, context, executor)
        else:
            if saved is None:
                context, state = _initialize(
                    precomputed, settings, agreed, executor, known, choices
                )
                context = dataclasses.replace(context, counted=counted)
                decision = Decision.ACCEPT
                checkpoints.save(state, decision, context, executor)
                assert context.selection is not None
                _notify(observers, context.selection)
            else:
                context = _resume(precomputed, saved, executor, observers)
                state, decision = checkpoints.restore(saved, executor), Decision[saved.decision]
            if state.refinement is None:
                state, decision = _run_outer_iterations(
                    state, decision, context, executor, observers, checkpoints
                )
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
def _report_failure(observers: Sequence[Observer], started: float) -> Iterator[None]:
    """Notify observers if a fit ends with an error, including Ctrl-C."""
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
    """Partition that needs no outer iterations: one cluster, or as many clusters as samples."""
    if n_clusters == 1:
        return np.zeros(n_samples, dtype=np.int64), Status.SINGLE_CLUSTER
    if n_clusters == n_samples:
        return np.arange(n_samples, dtype=np.int64), Status.SINGLETONS
    return None


def _trivial_context(
    precomputed: PrecomputedViews, candidates: Sequence[Parameters], executor: Executor
) -> FitContext:
    """Context of a fit that needs no outer iterations."""
    parameters = _usable(candidates, precomputed)[0]
    prepared = prepare_views(precomputed, parameters, executor, key="trivial")
    n_neighbors = min(parameters.n_neighbors, precomputed.n_samples - 1)
    return FitContext(parameters, prepared, precomputed.records, n_neighbors, None, [])


def _usable(candidates: Sequence[Parameters], precomputed: PrecomputedViews) -> list[Parameters]:
    """Candidates without scalings that make all rows of a view equal."""
    n_views = len(precomputed.names)
    return [
        candidate for candidate in candidates if candidate.scales(n_views) in precomputed.factored
    ]


def _initialize(
    precomputed: PrecomputedViews,
    candidates: Sequence[Parameters],
    agreed: tuple[ViewSettingsChoice, ...],
    executor: Executor,
    known: NDArray[np.int64] | None,
    choices: Choices,
) -> tuple[FitContext, LoopState]:
    """Select the settings, or take those of an earlier fit, and return the initial state."""
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


def _resume(
    precomputed: PrecomputedViews,
    saved: CheckpointMetadata,
    executor: Executor,
    observers: Sequence[Observer],
) -> FitContext:
    """Rebuild the context of a fit from a checkpoint and send its events to the observers again."""
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


def _run_outer_iterations(
    state: LoopState,
    decision: Decision,
    context: FitContext,
    executor: Executor,
    observers: Sequence[Observer],
    checkpoints: CheckpointManager,
) -> tuple[LoopState, Decision]:
    """Run outer iterations by ADMM until the graph has c components, they stall, or the limit."""
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
