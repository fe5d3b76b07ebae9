"""Tasks by which partitions are judged and spectra found."""

from __future__ import annotations

import dataclasses

from mscam_dask.engine.executor import Executor, Handle
from mscam_dask.engine.setup import Prepared
from mscam_dask.engine.tasks import graph as graph_tasks
from mscam_dask.engine.tasks import judge as judge_tasks
from mscam_dask.model.parameters import Parameters
from mscam_dask.solvers.verdict import Verdict

__all__ = [
    "MOST_SCORE_TASKS",
    "Best",
    "judge",
    "n_cut",
    "spectrum_of",
    "verdicts_of",
]

# Enough rows of an embedding with c columns to place c centres.
_CUT_SAMPLES = 20_000

MOST_SCORE_TASKS = 16
"""Hundreds of views are judged several by a task."""


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


def judge(prepared: Prepared, partitions: Handle, executor: Executor, *, key: str) -> list[Verdict]:
    """What there is to say of each partition of a list, computed where the graphs are."""
    told = verdicts_of(prepared, partitions, executor, key=key)
    (found,) = executor.gather([told])
    executor.release([told])
    return [Verdict(*one) for one in found]


def verdicts_of(prepared: Prepared, partitions: Handle, executor: Executor, *, key: str) -> Handle:
    """The same before it is gathered: of each partition the fields of its `Verdict`."""
    neutral = prepared.neutral.handles(executor, prepared.judges)
    together = -(-len(neutral) // MOST_SCORE_TASKS)
    handles = [
        executor.submit(
            judge_tasks.score_partitions,
            list(neutral[first : first + together]),
            partitions,
            prepared.n_judged,
            key=f"score/{key}/{prepared.judges[first]}",
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
