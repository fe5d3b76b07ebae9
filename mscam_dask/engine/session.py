"""Session, context and loop state of a fit, which its steps pass on, and checkpoints of this state.

A checkpoint is saved after each outer iteration. The engine uses the protocol `CheckpointStore` only, which keeps a
`Checkpoint`; its place and format are up to the layer that opens stores. `LoopState` is the whole state of the outer
iterations; views and candidate neighbors are computed again from the data, with identical bits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.checkpoints import Checkpoint
from mscam_dask.data.sparse import sparse_from_parts
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.engine.blocks import Graph, GraphSpectrum, Stage, block_ranges
from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.graph import graph_pieces, restore_graph, row_pieces
from mscam_dask.engine.prepare import Prepared
from mscam_dask.engine.scores import BestPartition
from mscam_dask.errors import ConfigurationError, DataError, StoreCorruptError, redacted
from mscam_dask.solvers.graph_update import Decision, RankControl
from mscam_dask.solvers.partition_score import PartitionScore
from mscam_dask.types.events import (
    FitEvent,
    FitFailed,
    IterationFinished,
    NClustersSelected,
    RefinementFinished,
    SettingsSelected,
    ViewPrepared,
)
from mscam_dask.types.parameters import Choices, Parameters

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectedFit:
    """Selections of a fit, with which it runs its outer iterations."""

    parameters: Parameters  # of the selected setting
    selection: SettingsSelected  # without candidates for trivial partitions
    n_neighbors: int  # k in the graph
    n_clusters_selection: NClustersSelected | None  # None if the user set the number
    refines: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitContext(SelectedFit):
    """Constants of the outer iterations."""

    prepared: Prepared
    records: tuple[ViewPrepared, ...]
    # partition of the compared samples whose borders gave the number of clusters
    count_labels: NDArray[np.int64] | None = None
    view_graphs: list[Handle] | None = None  # rows of their mean, if the graph is mixed with it
    from_previous_fit: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """Progress of the outer iterations, in numbers."""

    control: RankControl
    decision: Decision  # after the last iteration
    history: tuple[IterationFinished, ...]
    refined_from: int | None  # number of the first iteration of the refinement; None before it
    decision_before: Decision | None  # after the last iteration before the refinement


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoopState(Progress):
    """State from which the next outer iteration starts."""

    graph: Graph
    # Spectrum of the initial graph; later, eigenvectors of the previous graph, from which the eigensolver
    # starts: they change the last bits of its result. None if the initial graph has more components than
    # clusters: no outer iterations.
    spectrum: GraphSpectrum | None
    best: BestPartition
    refined: RefinementFinished | None = None  # None before the last iteration of the refinement

    @property
    def iteration(self) -> int:
        """Number of the next outer iteration."""
        return len(self.history)


# checkpoints -------------------------------------------------------------------------------------


_GRAPH = ("data", "indices", "indptr")
_VECTORS = "spectrum_vectors"
# Before the names of arrays whose rows are in the order of the cells: the number changes with that order.
_BY_CELLS = "ordered_2_"
_LABELS, _COUNT_LABELS = "best_labels", "counted_labels"


class CheckpointStore(Protocol):
    """Store of the last checkpoint of one fit."""

    def load(self) -> Checkpoint | None:
        """Return the checkpoint that was saved last, or None."""
        ...

    def save(self, snapshot: Checkpoint) -> None:
        """Save a checkpoint, which survives the process once this returns."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointMetadata(SelectedFit, Progress):
    """Record of a checkpoint, without its arrays."""

    data: str  # `MultiViewData.digest`
    candidates: tuple[Parameters, ...]
    choices: Choices
    init_labels_digest: str  # SHA-256 (hexadecimal), "" if there were none
    known_digest: str = ""  # the same of the known labels
    prepared: tuple[ViewPrepared, ...]
    iteration: int  # number of finished outer iterations
    best_view_scores: tuple[float, ...]
    best_iteration: int
    best_n_missed: int = 0  # known samples that the best partition misses


def fields_of(kind: type[SelectedFit | Progress], value: Any) -> dict[str, Any]:
    """Fields that a value has from one of its base classes, for another class with this base."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(kind)}


# Fields of a checkpoint that tell another fit, and words for them.
_OF_A_FIT = {
    "data": "the data (their digest is not the recorded one)",
    "candidates": "the settings (recorded: {})",
    "choices": "which ones are selected (recorded: {})",
    "init_labels_digest": "the initial labels (init_labels)",
    "known_digest": "the known labels (partial_labels)",
}


class CheckpointManager:
    """Manager of the checkpoints of one fit; without a store it does nothing."""

    def __init__(
        self,
        checkpoint_store: CheckpointStore | None,
        data: MultiViewData,
        candidates: Sequence[Parameters],
        choices: Choices,
        init_labels: NDArray[np.int64] | None = None,
        known: NDArray[np.int64] | None = None,
    ) -> None:
        self._store = checkpoint_store
        self._data = data
        self._settings = {"candidates": tuple(candidates), "choices": choices}
        self._labels = {"init_labels_digest": init_labels, "known_digest": known}
        self._arrays: dict[str, Any] = {}

    @functools.cached_property
    def _of_fit(self) -> dict[str, Any]:
        """Values of `_OF_A_FIT`, for which all data may have to be read."""
        digests = {
            name: "" if labels is None else hashlib.sha256(labels.tobytes()).hexdigest()
            for name, labels in self._labels.items()
        }
        return {"data": self._data.digest(), **self._settings, **digests}

    def load(self) -> CheckpointMetadata | None:
        """Return the record that was saved last, of this fit; its arrays are kept for `restore`."""
        snapshot = None if self._store is None else self._store.load()
        if snapshot is None:
            return None
        try:
            record = msgspec.convert(dict(snapshot.record), CheckpointMetadata)
        except msgspec.ValidationError as error:
            raise StoreCorruptError(
                f"the checkpoint is not valid ({error}): it was written by another version of "
                "mscam_dask. Continue with that version, or start the run again."
            ) from error
        differs = [
            text.format(getattr(record, name))
            for name, text in _OF_A_FIT.items()
            if getattr(record, name) != self._of_fit[name]
        ]
        if differs:
            raise ConfigurationError(
                f"the checkpoint is from another fit: {' and '.join(differs)} changed. Use the "
                "data and settings of the first run, or start without its checkpoints."
            )
        self._arrays = dict(snapshot.arrays)
        return record

    @property
    def count_labels(self) -> NDArray[np.int64] | None:
        """Partition of the compared samples whose borders gave the number of clusters, if one did."""
        return self._arrays.get(_COUNT_LABELS)

    def restore(self, stage: Stage, record: CheckpointMetadata) -> LoopState:
        """Return the state of a checkpoint, with its arrays as results of tasks."""
        arrays, self._arrays = self._arrays, {}
        try:
            n_samples = len(arrays[_LABELS])
            is_large = record.parameters.is_large(n_samples)
            prefix = _BY_CELLS if is_large else ""
            ranges = block_ranges(n_samples, is_large=is_large)
            parts = {name: arrays[f"{prefix}graph_{name}"] for name in _GRAPH}
            affinity = sparse_from_parts("csr", parts, (n_samples, n_samples), "the graph")
            graph = restore_graph(stage, affinity, ranges)
            spectrum, vectors = None, arrays.get(prefix + _VECTORS)
            if vectors is not None:
                blocks = stage.map(np.asarray, [vectors[slice(*one)] for one in ranges])
                spectrum = GraphSpectrum((), blocks, (), None, converged=True)
            labels = stage.submit(np.asarray, arrays[_LABELS], kind="restored_labels")
        except KeyError as error:
            raise StoreCorruptError(
                f"the checkpoint has no array {error}: it was written by another version of mscam_dask. "
                "Continue with that version, or start the run without its checkpoints."
            ) from error
        except DataError as error:
            fault = str(error).partition(". ")[0]
            raise StoreCorruptError(
                f"the checkpoint is damaged: {fault}. Start the run without its checkpoints."
            ) from error
        score = PartitionScore(record.best_view_scores, record.best_n_missed)
        best = BestPartition(labels, score, record.best_iteration)
        return LoopState(**fields_of(Progress, record), graph=graph, spectrum=spectrum, best=best)

    def save(self, stage: Stage, state: LoopState, context: FitContext) -> None:
        """Save the state after an outer iteration, or before the first one."""
        if self._store is None:
            return
        order = context.prepared.order
        prefix = "" if order.is_whole else _BY_CELLS
        pieces = graph_pieces(stage, state.graph.rows, order.n_samples)
        arrays: dict[str, Any] = {
            f"{prefix}graph_{name}": array for name, array in zip(_GRAPH, pieces, strict=True)
        }
        if state.spectrum is not None:
            arrays[prefix + _VECTORS] = row_pieces(stage, state.spectrum.vectors, order.n_samples)
        arrays[_LABELS] = stage.value(state.best.labels)
        if context.count_labels is not None:
            arrays[_COUNT_LABELS] = context.count_labels
        record = CheckpointMetadata(
            **self._of_fit,
            **fields_of(SelectedFit, context),
            **fields_of(Progress, state),
            prepared=context.records,
            iteration=state.iteration,
            best_view_scores=state.best.partition_score.view_scores,
            best_iteration=state.best.iteration,
            best_n_missed=state.best.partition_score.n_missed,
        )
        self._store.save(Checkpoint(arrays, msgspec.to_builtins(record)))
