"""Spectra, and partitions with their label-free scores."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from mscam_dask.engine.executor import Executor, Handle
from mscam_dask.engine.setup import Prepared
from mscam_dask.engine.tasks import graph as graph_tasks
from mscam_dask.engine.tasks import judge as judge_tasks
from mscam_dask.kernels.label_information import reliability, reliable_information
from mscam_dask.model.parameters import Parameters

__all__ = [
    "MOST_SCORE_TASKS",
    "Best",
    "Verdict",
    "best_of",
    "is_ahead",
    "is_behind",
    "is_clear",
    "judge",
    "judged",
    "mean_score",
    "n_cut",
    "spectrum_of",
]

# Enough rows of an embedding with c columns to place c centres.
_CUT_SAMPLES = 20_000

# A partition with this share of the information that c equal clusters have at most is clear.
_CLEAR = 0.9

# By how much of it reliable information has to differ to count instead of information.
_CLEARLY = 0.08

MOST_SCORE_TASKS = 16
"""Hundreds of views are judged several by a task."""


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What is found on a partition.

    Attributes
    ----------
    view_scores : tuple of float
        Information of each view's neutral graphs, in nats.
    entropy : float
        The most that there could be.
    joint : float
        Information of the same graphs together.
    """

    view_scores: tuple[float, ...]
    entropy: float
    joint: float

    @property
    def score(self) -> float:
        """Cross-view information, in nats."""
        return mean_score(self.view_scores)

    @property
    def reliability(self) -> float:
        """Share of the entropy that neighbours in all views tell, 0 … 1."""
        return reliability(self.joint, self.entropy)

    @property
    def reliable(self) -> float:
        """The same, of which half counts as far as neighbours in all views tell the whole cluster."""
        return reliable_information(self.score, self.joint, self.entropy)


@dataclasses.dataclass(frozen=True)
class Best:
    """The best partition seen.

    Attributes
    ----------
    labels : handle
    verdict : Verdict
    iteration : int
        Outer iteration that found it.
    """

    labels: Handle
    verdict: Verdict
    iteration: int

    @property
    def score(self) -> float:
        """Its cross-view information, in nats."""
        return self.verdict.score


def is_ahead(later: Verdict, earlier: Verdict, parameters: Parameters) -> bool:
    """Whether a partition is better by more than `tol`: within noise the earlier one stays."""
    now, before = _compared(later, earlier)
    return now > before + parameters.tol * abs(before)


def is_behind(later: Verdict, earlier: Verdict, share: float) -> bool:
    """Whether a partition is worse by more than a share of what the earlier one has."""
    now, before = _compared(later, earlier)
    return now < before - share * abs(before)


def best_of(verdicts: Sequence[Verdict]) -> int:
    """Which has the most information or, if that puts another clearly ahead, the most reliable."""
    told = max(range(len(verdicts)), key=lambda i: verdicts[i].score)
    reliable = max(range(len(verdicts)), key=lambda i: verdicts[i].reliable)
    now, before = _compared(verdicts[reliable], verdicts[told])
    return reliable if now > before else told


def _compared(later: Verdict, earlier: Verdict) -> tuple[float, float]:
    """Reliable information of both, where it tells them clearly apart, else information: docs/decisions/0069."""
    lower, higher = sorted((later.reliable, earlier.reliable))
    if higher > (1.0 + _CLEARLY) * lower:
        return later.reliable, earlier.reliable
    return later.score, earlier.score


def is_clear(score: float, parameters: Parameters) -> bool:
    """Whether a partition has nearly the information that c equal clusters have at most."""
    return score >= _CLEAR * math.log(parameters.n_clusters)


def judge(prepared: Prepared, partitions: Handle, executor: Executor, *, key: str) -> list[Verdict]:
    """What there is to say of each partition of a list, computed where the graphs are."""
    told = judged(prepared, partitions, executor, key=key)
    (found,) = executor.gather([told])
    executor.release([told])
    return [Verdict(*one) for one in found]


def judged(prepared: Prepared, partitions: Handle, executor: Executor, *, key: str) -> Handle:
    """The same before it is gathered: of each partition the fields of its `Verdict`."""
    neutral = prepared.neutral.handles(executor)
    together = -(-len(neutral) // MOST_SCORE_TASKS)
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
    told = executor.submit(
        judge_tasks.verdicts, partitions, handles, prepared.n_judged, key=f"verdicts/{key}"
    )
    executor.release(handles)
    return told


def n_cut(prepared: Prepared, parameters: Parameters) -> int:
    """Samples of large data on which an embedding is cut; 0 for all."""
    return _CUT_SAMPLES if parameters.is_large(prepared.n_samples) else 0


def mean_score(view_scores: Sequence[float]) -> float:
    """The exactly rounded mean over views, whatever their order."""
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
