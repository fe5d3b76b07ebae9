"""Selection of the number of clusters without labels, by scores of spectral cuts.

All numbers of clusters use the same initial graph, its bottom eigenvectors and those of two halves of
its edges. For large data these are of the sample. See docs/decisions/0015 and 0071.
"""

from __future__ import annotations

import dataclasses
import operator
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.initial_graph import PreparedHandles, initial_graph, prepare_views
from mscam_dask.engine.iteration_steps import score_partitions_by_views
from mscam_dask.engine.precompute import PrecomputedViews
from mscam_dask.engine.tasks import iteration as iteration_tasks
from mscam_dask.engine.tasks.iteration import GraphSpectrum
from mscam_dask.linalg.laplacian import connected_components, edge_split
from mscam_dask.solvers.graph_update import Graph
from mscam_dask.solvers.n_clusters import (
    adjusted_modularity,
    preferred,
    relative_gaps,
    widest_gap_near_peak,
)
from mscam_dask.solvers.partition_score import (
    PartitionScore,
    ReferenceGraphs,
    mean_score,
    view_modularity,
)
from mscam_dask.solvers.spectral_cut import (
    extend_cut,
    sampled_rows,
    spectral_cut,
    spread_rows,
    walk_embedding,
)
from mscam_dask.types.events import NClustersSelected
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.rules import SIZES

__all__ = [
    "choose_count",
    "cuts_of",
    "halves_of",
    "modularities",
    "split_half_ari",
    "split_half_ari_of",
    "with_count",
]


_N_HALVES = 2


def choose_count(
    precomputed: PrecomputedViews, parameters: Parameters, executor: Executor
) -> NClustersSelected:
    """Select the number of clusters from 2 to `parameters.n_clusters`.

    Parameters
    ----------
    precomputed : PrecomputedViews
        Views of more than `parameters.n_clusters` samples.
    parameters : Parameters
        Setting of the initial graph.
    executor : Executor
        Entered.

    Returns
    -------
    NClustersSelected
    """
    began = time.perf_counter()
    if precomputed.sample is not None:
        precomputed = precomputed.sample
    most = min(parameters.n_clusters, precomputed.n_samples - 1)
    counts = range(2, most + 1)
    prepared = prepare_views(
        precomputed, parameters, executor, key="count", later=precomputed.factored
    )
    first = initial_graph(prepared, parameters, executor, key="count")
    halves = executor.submit(halves_of, first.graph, parameters.seed, key="edge_split/count")
    graphs = [first.graph]
    graphs += [
        executor.submit(operator.getitem, halves, index, key=f"edge_half/{index}")
        for index in range(_N_HALVES)
    ]
    spectra = [
        executor.submit(
            iteration_tasks.graph_spectrum,
            graph,
            None,
            most + 1,
            0,  # all eigenvalues are compared
            parameters.seed,
            key=f"graph_spectrum/count/{index}",
        )
        for index, graph in enumerate(graphs)
    ]
    cuts = _best_informed(spectra[0], counts, prepared, executor)
    agreements = [
        executor.submit(split_half_ari, *spectra[1:], c, key=f"stability/{c}") for c in counts
    ]
    values = executor.submit(operator.attrgetter("spectrum.values"), spectra[0], key="values/count")
    eigenvalues, *stability = executor.gather([values, *agreements])
    gaps = relative_gaps(eigenvalues)
    adjusted = tuple(
        adjusted_modularity(cut.modularity, cut.partition_score.reliability) for cut in cuts
    )
    executor.release(
        [*prepared.views, *prepared.blocks, halves, *graphs, *spectra, *agreements, values]
    )
    return NClustersSelected(
        counts=tuple(counts),
        eigengap=gaps,
        modularity=tuple(cut.modularity for cut in cuts),
        adjusted_modularity=adjusted,
        information=tuple(cut.partition_score.score for cut in cuts),
        stability=tuple(stability),
        n_clusters=widest_gap_near_peak(tuple(counts), adjusted, gaps),
        seconds=time.perf_counter() - began,
    )


def split_half_ari_of(selection: NClustersSelected | None) -> float | None:
    """Split-half agreement of the number of clusters that the curves prefer."""
    if selection is None:
        return None
    return selection.stability[selection.counts.index(preferred(selection))]


def with_count(
    candidates: Sequence[Parameters], selection: NClustersSelected
) -> tuple[Parameters, ...]:
    """Return the candidates with the selected number of clusters."""
    return tuple(
        dataclasses.replace(candidate, n_clusters=selection.n_clusters) for candidate in candidates
    )


@dataclasses.dataclass(frozen=True)
class _ScoredCut:
    """Spectral cut with its partition score and its modularity, averaged over views."""

    partition_score: PartitionScore
    modularity: float


def _best_informed(
    spectrum: Handle, counts: Sequence[int], prepared: PreparedHandles, executor: Executor
) -> list[_ScoredCut]:
    """For each number of clusters, the spectral cut with the highest cross-view information."""
    cuts = [executor.submit(cuts_of, spectrum, c, key=f"cuts/{c}") for c in counts]
    by_count = [
        score_partitions_by_views(prepared, cuts_of_one, executor, key=f"count/{c}")
        for c, cuts_of_one in zip(counts, cuts, strict=True)
    ]
    by_view = [
        executor.submit(
            modularities,
            reference_graphs,
            cuts,
            prepared.n_validation_samples,
            key=f"modularities/{name}",
        )
        for reference_graphs, name in zip(
            prepared.reference_graphs.handles(executor, prepared.validation_views),
            prepared.validation_views,
            strict=True,
        )
    ]
    partition_scores = executor.gather(by_count)
    by_count_and_view = zip(*executor.gather(by_view), strict=True)
    executor.release([*cuts, *by_count, *by_view])
    return [
        max(
            (
                _ScoredCut(partition_score, mean_score(of_cut))
                for partition_score, of_cut in zip(of_one, zip(*of_views, strict=True), strict=True)
            ),
            key=lambda cut: (cut.partition_score.score, cut.modularity),
        )
        for of_one, of_views in zip(partition_scores, by_count_and_view, strict=True)
    ]


# Minimum number of samples per cluster for k-means.
_PER_CLUSTER = 4


def cuts_of(spectrum: GraphSpectrum, n_clusters: int) -> list[NDArray[np.int64]]:
    """Deterministic spectral cuts into c clusters."""
    embedding = walk_embedding(spectrum.spectrum.values, spectrum.vectors, n_clusters)
    n, enough = len(embedding.rows), max(SIZES.n_cut_by_number, _PER_CLUSTER * n_clusters)
    if n <= enough:
        return spectral_cut(embedding)
    samples = spread_rows(n, enough)
    return [
        extend_cut(embedding, samples, labels) for labels in spectral_cut(embedding.of(samples))
    ]


def halves_of(graph: Graph, seed: int) -> list[Graph]:
    """Two graphs with a random half of the edges each."""
    halves = edge_split(graph.affinity, np.random.default_rng(seed))
    return [Graph(half, *connected_components(half)) for half in halves]


def split_half_ari(first: GraphSpectrum, second: GraphSpectrum, n_clusters: int) -> float:
    """Adjusted Rand index between the spectral cuts of two graphs, the higher of both kinds of cut."""
    pairs = zip(cuts_of(first, n_clusters), cuts_of(second, n_clusters), strict=True)
    return max(float(adjusted_rand_score(*pair)) for pair in pairs)


def modularities(
    view: ReferenceGraphs, cuts: list[list[NDArray[np.int64]]], n_validation_samples: int
) -> list[list[float]]:
    """Modularity of each cut by the reference graphs of one view, by number of clusters.

    With `n_validation_samples` these graphs are of a sample of that size.
    """
    n = len(cuts[0][0])
    rows = sampled_rows(n, n_validation_samples) if n_validation_samples else slice(None)
    return [[view_modularity(view, labels[rows]) for labels in same_count] for same_count in cuts]
