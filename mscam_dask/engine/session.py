"""Session, context and loop state of a fit: the values that its steps pass on."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mscam_dask.engine.blocks import Graph, Spectrum, Stage
from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.prepare import Prepared
from mscam_dask.engine.scores import BestPartition
from mscam_dask.errors import redacted
from mscam_dask.solvers.graph_update import Decision, RankControl
from mscam_dask.types.events import (
    FitEvent,
    FitFailed,
    IterationFinished,
    NClustersSelected,
    RefinementFinished,
    SettingsSelected,
    ViewPrepared,
)
from mscam_dask.types.parameters import Parameters

if TYPE_CHECKING:
    from mscam_dask.engine.checkpoint import CheckpointManager

Observer = Callable[[FitEvent], None]
"""Callback that the driver calls with each event of a fit, in order."""


@dataclasses.dataclass(frozen=True)
class Session:
    """Executor, observers, checkpoints and target of one fit."""

    executor: Executor
    observers: tuple[Observer, ...]
    checkpoints: CheckpointManager
    results_directory: Path | None = None  # for graphs and embeddings of large data
    started: float = dataclasses.field(default_factory=time.perf_counter)

    def stage(self, name: object) -> Stage:
        """Return a stage of the fit; those of outer iterations are numbered."""
        return Stage(self.executor, str(name))

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Enter the executor; notify the observers if the fit ends with an error, including Ctrl-C."""
        try:
            with self.executor:
                yield
        except BaseException as error:
            message = redacted(str(error))
            self.notify(
                FitFailed(error=type(error).__name__, message=message, seconds=self.seconds)
            )
            raise

    @property
    def seconds(self) -> float:
        """Seconds since the start of the fit."""
        return time.perf_counter() - self.started

    def notify(self, *events: FitEvent | None) -> None:
        """Send events to every observer; None is skipped."""
        for event in events:
            if event is not None:
                for observer in self.observers:
                    observer(event)

    def finish_iteration(self, state: LoopState, context: FitContext) -> None:
        """Save the state after an outer iteration, then send the record of this iteration."""
        self.checkpoints.save(self.stage(f"checkpoint-{state.iteration}"), state, context)
        self.notify(state.history[-1])


@dataclasses.dataclass(frozen=True)
class FitContext:
    """Constants of the outer iterations."""

    parameters: Parameters  # of the selected setting
    prepared: Prepared
    records: tuple[ViewPrepared, ...]
    n_neighbors: int  # k in the graph
    selection: SettingsSelected  # without candidates for trivial partitions
    n_clusters_selection: NClustersSelected | None = None  # None if the user set the number
    refines: bool = False
    view_graphs: list[Handle] | None = None  # rows of their mean, if the graph is mixed with it
    from_previous_fit: bool = False


@dataclasses.dataclass(frozen=True)
class LoopState:
    """State from which the next outer iteration starts."""

    graph: Graph
    # Spectrum of the initial graph; later, eigenvectors of the previous graph, from which the eigensolver
    # starts: they change the last bits of its result. None if the initial graph has more components than
    # clusters: no outer iterations.
    spectrum: Spectrum | None
    control: RankControl
    best: BestPartition
    decision: Decision = Decision.ACCEPT  # after the last iteration
    history: tuple[IterationFinished, ...] = ()
    refined_from: int | None = None  # number of the first iteration of the refinement
    decision_before: Decision | None = None  # after the last iteration before the refinement
    refined: RefinementFinished | None = None  # None before the last iteration of the refinement

    @property
    def iteration(self) -> int:
        """Number of the next outer iteration."""
        return len(self.history)
