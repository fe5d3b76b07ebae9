"""Choosing the number of clusters without labels: every number's cut of the first graph, judged.

One graph of the data distances, its bottom spectrum and those of two halves of it serve all
numbers; large data are looked at on their sample. See docs/decisions/0015 and 0071.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from mscam_dask.engine.executor import Executor, Handle
from mscam_dask.engine.foundation import Foundation
from mscam_dask.engine.judging import verdicts_of
from mscam_dask.engine.setup import Prepared, first_graph, prepare
from mscam_dask.engine.tasks import count as count_tasks
from mscam_dask.engine.tasks import cuts as cut_tasks
from mscam_dask.engine.tasks import graph as graph_tasks
from mscam_dask.model.parameters import Parameters
from mscam_dask.model.records import ClusterCountEnded
from mscam_dask.solvers.cluster_count import (
    relative_gaps,
    reliable_modularity,
    widest_gap_near_peak,
)
from mscam_dask.solvers.verdict import Verdict, mean_score

__all__ = ["choose_count", "with_count"]

_HALVES = 2


def choose_count(
    foundation: Foundation, parameters: Parameters, executor: Executor
) -> ClusterCountEnded:
    """The number of clusters from 2 to `parameters.n_clusters`, with the curves it follows from.

    Parameters
    ----------
    foundation : Foundation
        Of more than `parameters.n_clusters` samples.
    parameters : Parameters
        The setting in which it is looked for.
    executor : Executor
        Entered.

    Returns
    -------
    ClusterCountEnded
    """
    began = time.perf_counter()
    if foundation.sample is not None:
        foundation = foundation.sample
    most = min(parameters.n_clusters, foundation.n_samples - 1)
    counts = range(2, most + 1)
    prepared = prepare(foundation, parameters, executor, key="count", later=foundation.factored)
    first = first_graph(prepared, parameters, executor, key="count")
    halves = executor.submit(
        count_tasks.halves_of, first.graph, parameters.seed, key="edge_halves/count"
    )
    graphs = [first.graph]
    graphs += [
        executor.submit(cut_tasks.pick, halves, index, key=f"edge_half/{index}")
        for index in range(_HALVES)
    ]
    spectra = [
        executor.submit(
            graph_tasks.graph_spectrum,
            graph,
            None,
            most + 1,
            parameters.seed,
            key=f"graph_spectrum/count/{index}",
        )
        for index, graph in enumerate(graphs)
    ]
    cuts = _best_informed(spectra[0], counts, prepared, executor)
    agreements = [
        executor.submit(count_tasks.agreement_of_halves, *spectra[1:], c, key=f"stability/{c}")
        for c in counts
    ]
    values = executor.submit(count_tasks.values_of, spectra[0], key="values/count")
    eigenvalues, *stability = executor.gather([values, *agreements])
    gaps = relative_gaps(eigenvalues)
    reliable = tuple(reliable_modularity(cut.modularity, cut.verdict.reliability) for cut in cuts)
    executor.release(
        [*prepared.views, *prepared.blocks, halves, *graphs, *spectra, *agreements, values]
    )
    return ClusterCountEnded(
        counts=tuple(counts),
        eigengap=gaps,
        modularity=tuple(cut.modularity for cut in cuts),
        reliable_modularity=reliable,
        information=tuple(cut.verdict.score for cut in cuts),
        stability=tuple(stability),
        n_clusters=widest_gap_near_peak(tuple(counts), reliable, gaps),
        seconds=time.perf_counter() - began,
    )


def with_count(
    candidates: Sequence[Parameters], counted: ClusterCountEnded
) -> tuple[Parameters, ...]:
    """The candidates with the number of clusters that was chosen."""
    return tuple(dataclasses.replace(one, n_clusters=counted.n_clusters) for one in candidates)


@dataclasses.dataclass(frozen=True)
class _JudgedCut:
    """What is found on a cut: modularity is the mean over views."""

    verdict: Verdict
    modularity: float


def _best_informed(
    spectrum: Handle, counts: Sequence[int], prepared: Prepared, executor: Executor
) -> list[_JudgedCut]:
    """Of each number of clusters the cut that the views' neutral graphs tell most about."""
    cuts = [executor.submit(count_tasks.cuts_of, spectrum, c, key=f"cuts/{c}") for c in counts]
    told = [
        verdicts_of(prepared, cuts_of_one, executor, key=f"count/{c}")
        for c, cuts_of_one in zip(counts, cuts, strict=True)
    ]
    by_view = [
        executor.submit(count_tasks.modularities, neutral, cuts, key=f"modularities/{name}")
        for neutral, name in zip(
            prepared.neutral.handles(executor, prepared.judges), prepared.judges, strict=True
        )
    ]
    verdicts = executor.gather(told)
    modularities = zip(*executor.gather(by_view), strict=True)
    executor.release([*cuts, *told, *by_view])
    return [
        max(
            (
                _JudgedCut(Verdict(*verdict), mean_score(of_cut))
                for verdict, of_cut in zip(of_one, zip(*of_views, strict=True), strict=True)
            ),
            key=lambda cut: (cut.verdict.score, cut.modularity),
        )
        for of_one, of_views in zip(verdicts, modularities, strict=True)
    ]
