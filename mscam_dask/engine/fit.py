"""A whole fit: set-up, the path of outer iterations, the graph that is returned."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views import MultiViewData
from mscam_dask.engine.agreement import Agreement, agree, agreement_behind, with_preparations
from mscam_dask.engine.checkpointing import Checkpointer, Journal, PathRecord
from mscam_dask.engine.cluster_count import choose_count, with_count
from mscam_dask.engine.ending import closed, collect, ended
from mscam_dask.engine.executor import Executor
from mscam_dask.engine.foundation import Foundation, lay_foundation
from mscam_dask.engine.learned_distances import learned_partition
from mscam_dask.engine.path import Course, PathState, outer_iteration
from mscam_dask.engine.selection import choose_setting
from mscam_dask.engine.setup import prepare
from mscam_dask.engine.starts import among_minima
from mscam_dask.engine.warm import warm_start
from mscam_dask.errors import ConfigurationError, redacted
from mscam_dask.model.candidates import Choices
from mscam_dask.model.parameters import Parameters
from mscam_dask.model.records import FitEnded, FitEvent, FitFailed, FitStarted
from mscam_dask.model.solution import Solution
from mscam_dask.model.status import Status
from mscam_dask.solvers.rank_control import Decision, RankControl

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
    checkpointer: Checkpointer | None = None,
    known: NDArray[np.int64] | None = None,
) -> Solution:
    """Cluster the samples of `data`.

    Parameters
    ----------
    data : MultiViewData
        Validated views.
    candidates : Parameters or sequence of Parameters
        With several, which differ in scale, alpha and n_neighbors only, the best is chosen
        without labels; see `mscam_dask.engine.selection`.
    executor : Executor
        Entered and left here; the result does not depend on which one it is.
    choices : Choices
        What is chosen beside the candidates, whatever they say: with two preparations or more,
        and two views or more, scaling and α of each view by itself, and which views are left out
        (see `mscam_dask.engine.agreement`); k and the first graph (see
        `mscam_dask.engine.selection`), and with it whether distances are learned from the best
        partition (see `mscam_dask.engine.learned_distances`); the number of clusters, from 2 to
        that of the candidates (see `mscam_dask.engine.cluster_count`; a checkpoint has the number
        that was chosen).
    observers : sequence of callable
        Called with `FitStarted`, `ClusterCountEnded` where the number of clusters was chosen,
        `SelectionEnded`, one `OuterRecord` per outer iteration, `LearningEnded` where distances
        were learned from the best partition, and `FitEnded` or `FitFailed`; after a restart with
        those of earlier iterations once more.
    checkpointer : Checkpointer, optional
        Gets the state after the selection and after each outer iteration. What it holds at the
        start is gone on from, to the same solution, bit for bit, that an undisturbed fit gives
        with the same versions, linear algebra library and processor.
    known : (n,) int64, optional
        Clusters of an earlier fit to start from, −1 for samples that it did not see; with one
        candidate. See `mscam_dask.engine.warm`.

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
    journal = Journal(checkpointer if trivial is None else None, data, candidates, choices, known)
    started = time.perf_counter()
    with _failure_told(observers, started), contextlib.ExitStack() as stack:
        stack.enter_context(executor)
        saved = journal.load()
        agreed: tuple[Agreement, ...] = ()
        asked = candidates if saved is None else (saved.parameters,)
        if (
            saved is None
            and trivial is None
            and len(choices.preparations) > 1
            and len(data.views) > 1
        ):
            agreed = agree(data, choices.preparations, candidates[0].seed, executor)
            asked = with_preparations(candidates, agreed, leave_out=choices.leave_out)
        scales = [candidate.scales(len(data.views)) for candidate in asked]
        foundation = lay_foundation(
            data, scales, executor, exact_samples=candidates[0].exact_samples
        )
        if saved is not None:
            foundation = dataclasses.replace(foundation, records=saved.prepared)
        counted = None if saved is None else saved.counted
        if saved is None and choices.n_clusters:
            counted = choose_count(foundation, _usable(asked, foundation)[0], executor)
            asked = with_count(asked, counted)
        _notify(
            observers,
            FitStarted(
                n_samples=data.n_samples,
                n_clusters=asked[0].n_clusters,
                max_outer_iter=candidates[0].max_outer_iter,
                views=foundation.records,
                executor=executor.description,
            ),
        )
        if counted is not None:
            _notify(observers, counted)
        if trivial is not None:
            course = _alone(foundation, asked, executor)
            ending = closed(*trivial, course, executor)
        else:
            if saved is None:
                course, state = _begin(foundation, asked, agreed, executor, known, choices)
                course = dataclasses.replace(course, counted=counted)
                decision = Decision.ACCEPT
                journal.save(state, decision, course, executor)
                assert course.selection is not None
                _notify(observers, course.selection)
            else:
                course = _continue(foundation, saved, executor, observers)
                state, decision = journal.restore(saved, executor), Decision[saved.decision]
            state, decision = _walk(state, decision, course, executor, observers, journal)
            if choices.first_graph:
                state, course = _learn(
                    state, course, executor, observers, handed_down=known is not None
                )
            ending = ended(state, decision, course, executor)
        solution = collect(ending, course, executor)
    _notify(
        observers,
        FitEnded(
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


def _alone(foundation: Foundation, candidates: Sequence[Parameters], executor: Executor) -> Course:
    """The course of a partition that needs no path."""
    parameters = _usable(candidates, foundation)[0]
    prepared = prepare(foundation, parameters, executor, key="trivial")
    n_neighbors = min(parameters.n_neighbors, foundation.n_samples - 1)
    return Course(parameters, prepared, foundation.records, n_neighbors, None, [])


def _usable(candidates: Sequence[Parameters], foundation: Foundation) -> list[Parameters]:
    """Candidates none of whose scalings makes all rows of a view equal."""
    n_views = len(foundation.names)
    return [one for one in candidates if one.scales(n_views) in foundation.factored]


def _begin(
    foundation: Foundation,
    candidates: Sequence[Parameters],
    agreed: tuple[Agreement, ...],
    executor: Executor,
    known: NDArray[np.int64] | None,
    choices: Choices,
) -> tuple[Course, PathState]:
    """Choose the setting, or take an earlier fit's: the state before the first outer iteration."""
    usable = _usable(candidates, foundation)
    if known is None:
        start, selection = choose_setting(foundation, usable, executor, choices)
        start = among_minima(start, executor)
    else:
        start, selection = warm_start(foundation, usable[0], known, executor)
    parameters, k = start.parameters, start.first.n_neighbors
    selection = dataclasses.replace(selection, preparations=agreement_behind(parameters, agreed))
    control = RankControl(
        parameters.n_clusters, parameters.graph_weight_growth, parameters.graph_weight
    )
    course = Course(parameters, start.prepared, foundation.records, k, selection, [])
    return course, PathState(0, start.first.graph, start.spectrum, control, start.best, k)


def _continue(
    foundation: Foundation, saved: PathRecord, executor: Executor, observers: Sequence[Observer]
) -> Course:
    """What an earlier process found, told again, with its views and candidates made again."""
    _notify(observers, saved.selection)
    for record in saved.history:
        _notify(observers, record)
    prepared = prepare(foundation, saved.parameters, executor, key="restored")
    return Course(
        saved.parameters,
        prepared,
        saved.prepared,
        saved.n_neighbors,
        saved.selection,
        list(saved.history),
        saved.counted,
    )


def _walk(
    state: PathState,
    decision: Decision,
    course: Course,
    executor: Executor,
    observers: Sequence[Observer],
    journal: Journal,
) -> tuple[PathState, Decision]:
    """Outer iterations until c components, a stall, or the end of the budget."""
    parameters, prepared = course.parameters, course.prepared
    while (
        state.spectrum is not None
        and decision is Decision.ACCEPT
        and state.iteration < parameters.max_outer_iter
        and state.iteration - state.best.iteration <= parameters.patience_for(prepared.n_samples)
    ):
        state, record, decision = outer_iteration(state, prepared, parameters, executor)
        course.history.append(record)
        journal.save(state, decision, course, executor)
        _notify(observers, record)
    return state, decision


def _learn(
    state: PathState,
    course: Course,
    executor: Executor,
    observers: Sequence[Observer],
    *,
    handed_down: bool,
) -> tuple[PathState, Course]:
    """The state with a partition by learned distances in the place of its best, if one is taken."""
    best, learned = learned_partition(
        state, course.prepared, course.parameters, executor, handed_down=handed_down
    )
    if learned is not None:
        _notify(observers, learned)
    return dataclasses.replace(state, best=best), dataclasses.replace(course, learned=learned)
