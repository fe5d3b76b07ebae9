"""Driver of a fit, whose steps `run_fit` calls in this order.

1. `select_preprocessing` selects scale and α of each view.
2. `precompute_views` computes SVDs; reference graphs and points follow when they are needed.
3. `select_n_clusters` selects the number of clusters, if it is "auto".
4. `_initialize` selects the other settings and the initial graph with its best spectral cut.
5. `outer_loop` runs iterations with metrics by ADMM.
6. `refine` runs iterations with metrics from the best partition.
7. `finalize` returns the graph, labels and their assessment.

A checkpoint is saved after step 4 and after each iteration. A fit that resumes has the selections from it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.engine.executors.base import Executor
from mscam_dask.engine.finalize import finalize, trivial_solution
from mscam_dask.engine.graph import mean_of_view_graphs
from mscam_dask.engine.outer_loop import outer_loop, refine
from mscam_dask.engine.prepare import (
    PrecomputedViews,
    check_incomplete,
    distinct_samples,
    precompute_views,
    prepare_views,
)
from mscam_dask.engine.select import (
    Search,
    can_be_refined,
    select,
    select_n_clusters,
    select_preprocessing,
)
from mscam_dask.engine.session import (
    CheckpointManager,
    CheckpointMetadata,
    CheckpointStore,
    FitContext,
    LoopState,
    Observer,
    SelectedFit,
    Session,
    fields_of,
)
from mscam_dask.engine.views import SVDs
from mscam_dask.solvers.graph_update import Decision, RankControl
from mscam_dask.types.events import FitFinished, FitStarted, SettingsSelected
from mscam_dask.types.parameters import Choices, Parameters
from mscam_dask.types.result import Solution, Status

_NO_CHOICES = Choices()


def run_fit(  # noqa: PLR0913 - data, settings and targets of a fit
    data: MultiViewData,
    candidates: Parameters | Sequence[Parameters],
    executor: Executor,
    *,
    choices: Choices = _NO_CHOICES,
    observers: Sequence[Observer] = (),
    checkpoint_store: CheckpointStore | None = None,
    init_labels: NDArray[np.int64] | None = None,
    results_directory: Path | None = None,
    equal: NDArray[np.int64] | None = None,
    known: NDArray[np.int64] | None = None,
    batches_matched: bool = True,
) -> Solution:
    """Run a fit on validated views; the solution is the same on every executor, which is entered here.

    Several candidates differ in scale, alpha and n_neighbors only. Observers are called with the events of
    `mscam_dask.types.events` in order, again after a restart. A checkpoint in the store is resumed, with a
    solution that is bit-identical to that of an uninterrupted fit. Initial labels (n,) are of an earlier fit,
    −1 for samples that it did not have, and need one candidate. Samples of one group in `equal` (n,) get one
    label, and are compared once (`distinct_samples`). Labels 0 … q − 1 of some samples are `known` (n,), −1 for the others. With batches, the
    assessment says whether their clusters are matched (`solvers.batch_effects`). The arrays of large data are written
    to the `results_directory`.
    """
    candidates = (candidates,) if isinstance(candidates, Parameters) else tuple(candidates)
    check_incomplete(data, candidates)
    n_samples, n_clusters = data.n_samples, candidates[0].n_clusters
    is_trivial = n_clusters in (1, n_samples)
    checkpoints = CheckpointManager(
        None if is_trivial else checkpoint_store, data, candidates, choices, init_labels, known
    )
    session = Session(executor, tuple(observers), checkpoints, results_directory)
    search, svds = Search(candidates, choices, init_labels), SVDs()
    with session.open():
        saved = checkpoints.load()
        if saved is not None:  # everything is selected
            search = Search(
                (saved.parameters,),
                Choices(),
                init_labels,
                n_clusters_selection=saved.n_clusters_selection,
            )
        if not is_trivial:
            search = select_preprocessing(data, search, session, svds)
        scales = [candidate.scales(len(data.views)) for candidate in search.candidates]
        exact_samples = search.candidates[0].exact_samples
        stage = session.stage("views")
        precomputed = precompute_views(
            stage,
            data,
            scales,
            svds,
            exact_samples=exact_samples,
            known=known,
            distinct=distinct_samples(stage, data, equal),
        )
        usable = tuple(candidate for candidate in search.candidates if precomputed.has(candidate))
        search = dataclasses.replace(search, candidates=usable)
        if saved is not None:  # the events are those of the interrupted fit
            precomputed = dataclasses.replace(precomputed, records=saved.prepared)
        search = select_n_clusters(precomputed, search, session)
        n_clusters = search.candidates[0].n_clusters
        started = FitStarted(
            n_samples=n_samples,
            n_clusters=n_clusters,
            views=precomputed.records,
            executor=executor.description,
        )
        session.notify(started, search.n_clusters_selection)
        if is_trivial or n_clusters == 1:
            solution = _fit_trivial(precomputed, search, session)
        else:
            if saved is None:
                state, context = _initialize(precomputed, search, session)
            else:
                state, context = _resume(precomputed, saved, search, session)
            state = outer_loop(state, context, session)
            state = refine(state, context, session)
            solution = finalize(state, context, session, equal)
    assessment = dataclasses.replace(solution.assessment, batches_matched=batches_matched)
    solution = dataclasses.replace(solution, assessment=assessment)
    session.notify(
        FitFinished(
            status=solution.status.name,
            n_connected_components=solution.n_connected_components,
            n_iterations=len(solution.history),
            seconds=session.seconds,
            score=solution.score,
            view_contributions=solution.view_contributions,
            structure=solution.assessment.structure.name,
            assessment=solution.assessment.message,
        )
    )
    return solution


def _initialize(
    precomputed: PrecomputedViews, search: Search, session: Session
) -> tuple[LoopState, FitContext]:
    """Select the settings, and return and save the state before the first outer iteration."""
    began = time.perf_counter()
    start, settings, chosen = select(precomputed, search, session)
    seconds, parameters = time.perf_counter() - began, start.prepared.parameters
    # one view is refined only if known labels teach its metric
    is_taught = start.prepared.deciding is not None and len(start.prepared.names) == 1
    refines = search.choices.initial_graph and (
        can_be_refined(start) or (is_taught and start.spectrum is not None)
    )
    iteration_limit = parameters.refined_limit() if refines else parameters.max_iter
    context = FitContext(
        parameters=parameters,
        prepared=start.prepared,
        records=precomputed.records,
        n_neighbors=start.n_neighbors,
        selection=SettingsSelected(
            settings=tuple(settings),
            chosen=chosen,
            max_iter=0 if start.spectrum is None else iteration_limit,
            seconds=seconds,
            view_settings=search.view_records(parameters),
        ),
        n_clusters_selection=search.n_clusters_selection,
        count_labels=search.count_labels,
        refines=refines,
        view_graphs=start.view_graphs if refines else None,
        from_previous_fit=search.init_labels is not None,
    )
    constants = parameters.constants
    control = RankControl(
        parameters.n_clusters, constants.graph_weight_growth, constants.graph_weight
    )
    state = LoopState(
        control=control,
        decision=Decision.ACCEPT,
        history=(),
        refined_from=None,
        decision_before=None,
        graph=start.graph,
        spectrum=start.spectrum,
        best=start.best,
    )
    session.checkpoints.save(session.stage("checkpoint-0"), state, context)
    session.notify(context.selection)
    return state, context


def _resume(
    precomputed: PrecomputedViews, saved: CheckpointMetadata, search: Search, session: Session
) -> tuple[LoopState, FitContext]:
    """Rebuild state and context from a checkpoint, and send its events to the observers again."""
    selection, parameters = saved.selection, saved.parameters
    session.notify(selection, *saved.history)
    prepared = prepare_views(session.stage("restored"), precomputed, parameters)
    precomputed.svds.clear()
    view_graphs = None
    if saved.refines and selection.settings[selection.chosen].initial_graph == "mixed":
        stage = session.stage("refinement")
        view_graphs = mean_of_view_graphs(stage, prepared)
    context = FitContext(
        **fields_of(SelectedFit, saved),
        prepared=prepared,
        records=saved.prepared,
        count_labels=session.checkpoints.count_labels,
        view_graphs=view_graphs,
        from_previous_fit=search.init_labels is not None,
    )
    return session.checkpoints.restore(session.stage("saved"), saved), context


def _fit_trivial(precomputed: PrecomputedViews, search: Search, session: Session) -> Solution:
    """Return the solution with one cluster, or with as many clusters as samples."""
    parameters = search.candidates[0]
    prepared = prepare_views(session.stage("trivial"), precomputed, parameters)
    context = FitContext(
        parameters=parameters,
        prepared=prepared,
        records=precomputed.records,
        n_neighbors=min(parameters.n_neighbors, precomputed.n_samples - 1),
        selection=SettingsSelected(view_settings=search.view_records(parameters)),
        n_clusters_selection=search.n_clusters_selection,
        refines=False,
    )
    n_samples, status = precomputed.n_samples, Status.SINGLE_CLUSTER
    if search.n_clusters_selection is not None:
        status = Status.NO_STRUCTURE
    labels = np.zeros(n_samples, dtype=np.int64)
    if parameters.n_clusters == n_samples:
        labels, status = np.arange(n_samples, dtype=np.int64), Status.SINGLETONS
    return trivial_solution(labels, status, context, session)
