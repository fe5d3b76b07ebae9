"""Choosing the number of clusters without labels: every number's cut of the first graph, judged.

One graph of the data distances, its bottom spectrum and those of two halves of it serve all
numbers; large data are looked at on their sample. See docs/decisions/0015.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from mscam_dask.engine.executor import Executor, Handle
from mscam_dask.engine.foundation import Foundation
from mscam_dask.engine.judging import mean_score
from mscam_dask.engine.setup import Prepared, first_graph, prepare
from mscam_dask.engine.tasks import count as count_tasks
from mscam_dask.engine.tasks import graph as graph_tasks
from mscam_dask.engine.tasks import judge as judge_tasks
from mscam_dask.model.parameters import Parameters
from mscam_dask.model.records import ClusterCountEnded
from mscam_dask.solvers.cluster_count import relative_gaps, widest_gap_near_peak

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
        executor.submit(judge_tasks.pick, halves, index, key=f"edge_half/{index}")
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
    information, modularity = _judged(spectra[0], counts, prepared, executor)
    agreements = [
        executor.submit(count_tasks.agreement_of_halves, *spectra[1:], c, key=f"stability/{c}")
        for c in counts
    ]
    values = executor.submit(count_tasks.values_of, spectra[0], key="values/count")
    eigenvalues, *stability = executor.gather([values, *agreements])
    gaps = relative_gaps(eigenvalues)
    executor.release(
        [*prepared.views, *prepared.blocks, halves, *graphs, *spectra, *agreements, values]
    )
    return ClusterCountEnded(
        counts=tuple(counts),
        eigengap=gaps,
        modularity=modularity,
        information=information,
        stability=tuple(stability),
        n_clusters=widest_gap_near_peak(tuple(counts), modularity, gaps),
        seconds=time.perf_counter() - began,
    )


def with_count(
    candidates: Sequence[Parameters], counted: ClusterCountEnded
) -> tuple[Parameters, ...]:
    """The candidates with the number of clusters that was chosen."""
    return tuple(dataclasses.replace(one, n_clusters=counted.n_clusters) for one in candidates)


def _judged(
    spectrum: Handle, counts: Sequence[int], prepared: Prepared, executor: Executor
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Information and modularity of the best informed cut of each number of clusters."""
    cuts = [executor.submit(count_tasks.cuts_of, spectrum, c, key=f"cuts/{c}") for c in counts]
    handles = [
        executor.submit(count_tasks.judged_counts, neutral, cuts, key=f"judged_counts/{name}")
        for neutral, name in zip(prepared.neutral.handles(executor), prepared.names, strict=True)
    ]
    by_view = executor.gather(handles)
    executor.release([*cuts, *handles])
    information, modularity = [], []
    for of_views in zip(*by_view, strict=True):  # of one number of clusters
        marks = [
            tuple(mean_score(values) for values in zip(*of_cut, strict=True))
            for of_cut in zip(*of_views, strict=True)
        ]
        best = max(marks)
        information.append(best[0])
        modularity.append(best[1])
    return tuple(information), tuple(modularity)
