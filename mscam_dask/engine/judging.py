"""Spectra, and partitions with their label-free scores."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

from mscam_dask.engine.executor import Executor, Handle
from mscam_dask.engine.setup import Prepared
from mscam_dask.engine.tasks import graph as graph_tasks
from mscam_dask.engine.tasks import judge as judge_tasks
from mscam_dask.model.parameters import Parameters

__all__ = [
    "Best",
    "is_ahead",
    "is_behind",
    "is_clear",
    "judge",
    "mean_score",
    "n_cut",
    "spectrum_of",
]

# Enough rows of an embedding with c columns to place c centres.
_CUT_SAMPLES = 20_000

# A partition with this share of the information that c equal clusters have at most is clear.
_CLEAR = 0.9

# Hundreds of views are judged several by a task.
_MOST_SCORE_TASKS = 16


@dataclasses.dataclass(frozen=True)
class Best:
    """The best partition seen.

    Attributes
    ----------
    labels : handle
    score : float
        Its cross-view information, in nats.
    view_scores : tuple of float
        The same per view.
    iteration : int
        Outer iteration that found it.
    """

    labels: Handle
    score: float
    view_scores: tuple[float, ...]
    iteration: int


def is_ahead(later: float, earlier: float, parameters: Parameters) -> bool:
    """Whether a score is higher by more than `tol`: within noise the earlier partition stays."""
    return later > earlier + parameters.tol * abs(earlier)


def is_behind(later: float, earlier: float, share: float) -> bool:
    """Whether a score is lower by more than a share of the earlier one."""
    return later < earlier - share * abs(earlier)


def is_clear(score: float, parameters: Parameters) -> bool:
    """Whether a partition has nearly the information that c equal clusters have at most."""
    return score >= _CLEAR * math.log(parameters.n_clusters)


def judge(
    prepared: Prepared, partitions: Handle, executor: Executor, *, key: str
) -> list[tuple[float, ...]]:
    """Scores of each partition of a list, one per view, computed where the graphs are."""
    neutral = prepared.neutral.handles(executor)
    together = -(-len(neutral) // _MOST_SCORE_TASKS)
    handles = [
        executor.submit(
            judge_tasks.score_partitions,
            list(neutral[first : first + together]),
            partitions,
            prepared.n_judged,
            key=f"score/{key}/{prepared.names[first]}",
        )
        for first in range(0, len(neutral), together)
    ]
    by_view = itertools.chain.from_iterable(executor.gather(handles))
    executor.release(handles)
    return list(zip(*by_view, strict=True))


def n_cut(prepared: Prepared, parameters: Parameters) -> int:
    """Samples of large data on which an embedding is cut; 0 for all."""
    return _CUT_SAMPLES if parameters.is_large(prepared.n_samples) else 0


def mean_score(view_scores: Sequence[float]) -> float:
    """Cross-view information: the exactly rounded mean over views, whatever their order."""
    return math.fsum(view_scores) / len(view_scores)


def spectrum_of(
    graph: Handle,
    previous: Handle | None,
    prepared: Prepared,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
    closed: bool = False,
) -> Handle:
    """Bottom eigenpairs of a graph; the c null vectors of one with c components (`closed`)."""
    n_pairs = parameters.n_clusters if closed else parameters.n_pairs(prepared.n_samples)
    return executor.submit(
        graph_tasks.graph_spectrum,
        graph,
        previous,
        n_pairs,
        parameters.seed,
        parameters.n_clusters if parameters.is_large(prepared.n_samples) else None,
        key=f"graph_spectrum/{key}",
    )
