"""Submission of the tasks that score partitions and compute eigenvectors."""

from __future__ import annotations

import dataclasses
import operator

from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.initial_graph import PreparedHandles
from mscam_dask.engine.row_blocks import graph as block_graph
from mscam_dask.engine.row_blocks import spectrum as block_spectrum
from mscam_dask.engine.row_blocks.handles import (
    BlockedCandidates,
    BlockedGraph,
    BlockedSpectrum,
    RowOrder,
)
from mscam_dask.engine.tasks import graph as graph_tasks
from mscam_dask.engine.tasks import neighbors as neighbor_tasks
from mscam_dask.engine.tasks import partition_scores as score_tasks
from mscam_dask.engine.tasks import spectral_cut as cut_tasks
from mscam_dask.engine.tasks.graph import eigengap
from mscam_dask.solvers.partition_score import PartitionScore
from mscam_dask.types.parameters import Parameters

__all__ = [
    "MAX_SCORE_TASKS",
    "BestPartition",
    "all_minima",
    "components_of",
    "first_cuts",
    "merged_components",
    "next_cuts",
    "score_cuts",
    "score_partitions_by_views",
    "spectrum_facts",
    "spectrum_of",
    "start_vectors",
]

MAX_SCORE_TASKS = 16
"""Maximum number of tasks that score partitions; with more views, each task has several."""


@dataclasses.dataclass(frozen=True)
class BestPartition:
    """Best partition so far.

    Attributes
    ----------
    labels : handle
    partition_score : PartitionScore
    iteration : int
        Outer iteration that found it.
    """

    labels: Handle
    partition_score: PartitionScore
    iteration: int

    @property
    def score(self) -> float:
        """Cross-view information of the partition, in nats."""
        return self.partition_score.score


def score_cuts(
    prepared: PreparedHandles, partitions: Handle, executor: Executor, *, key: str
) -> list[PartitionScore]:
    """Gather the score of each partition of a list."""
    handle = score_partitions_by_views(prepared, partitions, executor, key=key)
    (scores,) = executor.gather([handle])
    executor.release([handle])
    return [PartitionScore(*fields) for fields in scores]


def score_partitions_by_views(
    prepared: PreparedHandles, partitions: Handle, executor: Executor, *, key: str
) -> Handle:
    """Submit the scores of each partition of a list, as fields of `PartitionScore`."""
    reference_graphs = prepared.reference_graphs.handles(executor, prepared.validation_views)
    together = -(-len(reference_graphs) // MAX_SCORE_TASKS)
    handles = [
        executor.submit(
            score_tasks.score_partitions,
            list(reference_graphs[first : first + together]),
            partitions,
            prepared.n_validation_samples,
            key=f"score/{key}/{prepared.validation_views[first]}",
        )
        for first in range(0, len(reference_graphs), together)
    ]
    scores = executor.submit(
        score_tasks.partition_scores,
        partitions,
        handles,
        prepared.n_validation_samples,
        key=f"partition_scores/{key}",
    )
    executor.release(handles)
    return scores


def first_cuts(
    spectrum: Handle,
    prepared: PreparedHandles,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
) -> Handle:
    """Submit the spectral cuts of a graph without a known partition."""
    if isinstance(spectrum, BlockedSpectrum):
        order = _order(prepared)
        return block_spectrum.submit_cuts(
            spectrum, order, parameters, executor, key=key, random=True
        )
    return executor.submit(
        cut_tasks.first_cuts,
        spectrum,
        parameters.n_clusters,
        parameters.seed,
        key=f"spectral_cut/{key}",
    )


def all_minima(
    spectrum: Handle,
    prepared: PreparedHandles,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
    known: Handle | None = None,
) -> Handle:
    """Submit the spectral cuts at all good minima of k-means, and from a known partition if given."""
    if isinstance(spectrum, BlockedSpectrum):
        return block_spectrum.submit_cuts(
            spectrum,
            _order(prepared),
            parameters,
            executor,
            key=key,
            known=known,
            with_starts=known is not None,
            random=True,
            all_minima=True,
        )
    arguments = (spectrum, parameters.n_clusters, parameters.seed)
    if known is None:
        return executor.submit(cut_tasks.minima, *arguments, key=f"spectral_cut/{key}")
    return executor.submit(cut_tasks.all_cuts, *arguments, known, key=f"spectral_cut/{key}")


def next_cuts(
    spectrum: Handle,
    best: Handle,
    prepared: PreparedHandles,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
) -> Handle:
    """Submit the spectral cuts of a graph, also with k-means started from the best partition so far."""
    if isinstance(spectrum, BlockedSpectrum):
        order = _order(prepared)
        return block_spectrum.submit_cuts(
            spectrum, order, parameters, executor, key=key, known=best
        )
    return executor.submit(
        cut_tasks.next_cuts, spectrum, parameters.n_clusters, best, key=f"spectral_cut/{key}"
    )


def components_of(
    graph: Handle, prepared: PreparedHandles, executor: Executor, *, key: str
) -> Handle:
    """Submit the connected component of each sample."""
    if isinstance(graph, BlockedGraph):
        return block_graph.components_of(graph, _order(prepared), executor, key=key)
    return executor.submit(operator.attrgetter("components"), graph, key=f"components/{key}")


def merged_components(
    graph: Handle,
    prepared: PreparedHandles,
    n_clusters: int,
    executor: Executor,
    *,
    key: str,
) -> Handle:
    """Submit the connected components of a graph, merged to c clusters."""
    if isinstance(graph, BlockedGraph):
        return block_graph.merged_components(
            prepared.views, graph, _order(prepared), n_clusters, executor, key=key
        )
    components = components_of(graph, prepared, executor, key=key)
    return executor.submit(
        neighbor_tasks.merged_components,
        list(prepared.views),
        components,
        n_clusters,
        key=f"merge_components/{key}",
    )


def spectrum_facts(
    spectrum: Handle, n_clusters: int, executor: Executor, *, key: str
) -> tuple[float, bool]:
    """Gather the gap λ_{c+1} − λ_c of a Laplacian, and whether its eigenpairs converged."""
    if isinstance(spectrum, BlockedSpectrum):
        return eigengap(spectrum.values, n_clusters), spectrum.converged
    handle = executor.submit(
        graph_tasks.spectrum_facts, spectrum, n_clusters, key=f"spectrum_facts/{key}"
    )
    ((gap, converged),) = executor.gather([handle])
    executor.release([handle])
    return gap, bool(converged)


def start_vectors(spectrum: Handle, executor: Executor, *, key: str) -> Handle:
    """Return the eigenvectors from which the next eigensolver starts; the spectrum is released."""
    if isinstance(spectrum, BlockedSpectrum):
        return block_spectrum.start_vectors(spectrum, executor)
    vectors = executor.submit(graph_tasks.warm_start, spectrum, key=f"warm_start/{key}")
    executor.release([spectrum])
    return vectors


def _order(prepared: PreparedHandles) -> RowOrder:
    """Order of the rows of large data."""
    assert isinstance(prepared.blocks, BlockedCandidates), "large data has blocks"
    return prepared.blocks.order


def spectrum_of(
    graph: Handle,
    previous: Handle | None,
    prepared: PreparedHandles,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
    graph_from_partition: bool = False,
) -> Handle:
    """Submit the bottom eigenpairs of a graph; with `graph_from_partition` only its c null vectors."""
    if isinstance(graph, BlockedGraph):
        if graph_from_partition:
            return block_spectrum.null_spectrum(graph, executor, key=key)
        return block_spectrum.spectrum_of(
            graph, previous, prepared.views, parameters, executor, key=key
        )
    n_pairs = (
        parameters.n_clusters if graph_from_partition else parameters.n_pairs(prepared.n_samples)
    )
    return executor.submit(
        graph_tasks.graph_spectrum,
        graph,
        previous,
        n_pairs,
        parameters.seed,
        key=f"graph_spectrum/{key}",
    )
