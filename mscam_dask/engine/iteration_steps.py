"""Steps of an outer iteration that other stages share: eigenvectors, spectral cuts, scores, the A-step."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sampling import sampled_view
from mscam_dask.engine import candidate_neighbors
from mscam_dask.engine import tasks as iteration_tasks
from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.row_blocks import embedding as block_embedding
from mscam_dask.engine.row_blocks import graph as block_graph
from mscam_dask.engine.row_blocks.candidates import (
    BlockedCandidates,
    BlockedGraph,
    BlockedSpectrum,
    RowOrder,
)
from mscam_dask.engine.tasks import eigengap
from mscam_dask.solvers import assessment
from mscam_dask.solvers.graph_update import assemble_graph, graph_rows
from mscam_dask.solvers.partition_score import PartitionScore
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.rules import CONSTANTS, SIZES

if TYPE_CHECKING:
    from mscam_dask.engine.initial_graph import PreparedHandles

__all__ = [
    "BestPartition",
    "LazyReferenceGraphs",
    "all_minima",
    "build_graph",
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

# Maximum number of tasks that score partitions; with more views, each task has several.
_MAX_SCORE_TASKS = 16

# Random starts of k-means in one task, and the fewest samples with which they are split.
_STARTS = 5
_MIN_SPLIT = 2000


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
    return list(scores)


def score_partitions_by_views(
    prepared: PreparedHandles, partitions: Handle, executor: Executor, *, key: str
) -> Handle:
    """Submit the score of each partition of a list."""
    reference_graphs = prepared.reference_graphs.handles(executor, prepared.validation_views)
    together = -(-len(reference_graphs) // _MAX_SCORE_TASKS)
    handles = [
        executor.submit(
            iteration_tasks.score_partitions,
            list(reference_graphs[first : first + together]),
            partitions,
            prepared.n_validation_samples,
            key=f"score/{key}/{prepared.validation_views[first]}",
        )
        for first in range(0, len(reference_graphs), together)
    ]
    scores = executor.submit(
        iteration_tasks.partition_scores,
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
    """Submit the spectral cuts of a graph without an earlier partition."""
    if isinstance(spectrum, BlockedSpectrum):
        order = _order(prepared)
        return block_embedding.submit_cuts(
            spectrum, order, parameters, executor, key=key, random=True
        )
    is_split = prepared.n_samples >= max(_MIN_SPLIT, 2 * parameters.n_clusters)
    together = _STARTS if is_split else SIZES.n_random_starts
    drawn = [
        executor.submit(
            iteration_tasks.drawn_starts,
            spectrum,
            parameters.n_clusters,
            parameters.seed,
            range(first, min(first + together, SIZES.n_random_starts)),
            key=f"random_starts/{key}/{first}",
        )
        for first in range(0, SIZES.n_random_starts, together)
    ]
    cuts = executor.submit(
        iteration_tasks.first_cuts,
        spectrum,
        parameters.n_clusters,
        drawn,
        key=f"spectral_cut/{key}",
    )
    executor.release(drawn)
    return cuts


def all_minima(
    spectrum: Handle,
    prepared: PreparedHandles,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
    init_labels: Handle | None = None,
) -> Handle:
    """Submit the spectral cuts at all good minima of k-means, and from an earlier partition if given."""
    if isinstance(spectrum, BlockedSpectrum):
        return block_embedding.submit_cuts(
            spectrum,
            _order(prepared),
            parameters,
            executor,
            key=key,
            init_labels=init_labels,
            with_starts=init_labels is not None,
            random=True,
            all_minima=True,
        )
    arguments = (spectrum, parameters.n_clusters, parameters.seed)
    if init_labels is None:
        return executor.submit(iteration_tasks.minima, *arguments, key=f"spectral_cut/{key}")
    return executor.submit(
        iteration_tasks.all_cuts, *arguments, init_labels, key=f"spectral_cut/{key}"
    )


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
        return block_embedding.submit_cuts(
            spectrum, order, parameters, executor, key=key, init_labels=best
        )
    return executor.submit(
        iteration_tasks.next_cuts, spectrum, parameters.n_clusters, best, key=f"spectral_cut/{key}"
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
        candidate_neighbors.merged_components,
        list(prepared.views),
        components,
        n_clusters,
        key=f"merge_components/{key}",
    )


def spectrum_facts(spectrum: Handle, n_clusters: int, executor: Executor, *, key: str) -> Handle:
    """Submit the gap λ_{c+1} − λ_c of a Laplacian, and whether its eigenpairs converged."""
    if isinstance(spectrum, BlockedSpectrum):
        facts = eigengap(spectrum.values, n_clusters), spectrum.converged
        return executor.submit(tuple, list(facts), key=f"spectrum_facts/{key}")
    return executor.submit(
        iteration_tasks.spectrum_facts, spectrum, n_clusters, key=f"spectrum_facts/{key}"
    )


def start_vectors(spectrum: Handle, executor: Executor, *, key: str) -> Handle:
    """Return the eigenvectors from which the next eigensolver starts; the spectrum is released."""
    if isinstance(spectrum, BlockedSpectrum):
        return block_embedding.start_vectors(spectrum, executor)
    vectors = executor.submit(iteration_tasks.warm_start, spectrum, key=f"warm_start/{key}")
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
            return block_embedding.null_spectrum(graph, executor, key=key)
        return block_embedding.spectrum_of(
            graph, previous, prepared.views, parameters, executor, key=key
        )
    n_pairs = (
        parameters.n_clusters if graph_from_partition else parameters.n_pairs(prepared.n_samples)
    )
    return executor.submit(
        iteration_tasks.graph_spectrum,
        graph,
        previous,
        n_pairs,
        parameters.n_clusters,
        parameters.seed,
        key=f"graph_spectrum/{key}",
    )


def build_graph(
    executor: Executor,
    blocks: tuple[Handle, ...] | BlockedCandidates,
    summed: list[Handle] | None,
    *,
    n_neighbors: int,
    data_weight: float,
    projected_weight: float,
    key: str,
) -> tuple[Handle, int]:
    """Graph from the A-step over all blocks of rows, and its number of connected components."""
    if isinstance(blocks, BlockedCandidates):
        blocked = block_graph.build_graph(
            executor,
            blocks,
            summed,
            n_neighbors=n_neighbors,
            data_weight=data_weight,
            projected_weight=projected_weight,
            key=key,
        )
        return blocked, blocked.n_components
    rows = [
        executor.submit(
            graph_rows,
            block,
            None if summed is None else summed[index],
            n_neighbors,
            data_weight,
            projected_weight,
            key=f"graph_rows/{key}/{index}",
        )
        for index, block in enumerate(blocks)
    ]
    graph = executor.submit(assemble_graph, rows, key=f"assemble_graph/{key}")
    count = executor.submit(
        operator.attrgetter("n_components"), graph, key=f"component_count/{key}"
    )
    (n_components,) = executor.gather([count])
    executor.release([*rows, count])
    return graph, int(n_components)


class LazyReferenceGraphs:
    """Reference graphs of the views, and what a fit computes from them alone, submitted when first needed.

    Parameters
    ----------
    data : MultiViewData
        Views, or the sample of the views of large data.
    rows : (m,) int64, optional
        Ascending rows that the graphs have; all by default.

    Notes
    -----
    They depend on the views only and are not needed before the first partition is scored. By then the
    eigensolver of the initial graph runs, which is one task: the other workers would be idle.
    """

    def __init__(self, data: MultiViewData, rows: NDArray[np.int64] | None = None) -> None:
        self._views = {source.name: source for source in data.views}
        self._rows = rows
        self._n_neighbors = min(CONSTANTS.validation_neighbors, data.n_samples - 1)
        n_present = [source.shape[0] for source in data.views]
        mean = sum(n_present) / len(n_present)
        self._weights = {view.name: view.shape[0] / mean for view in data.views}
        self._handles: dict[str, Handle] = {}
        self._perturbed: dict[tuple[tuple[str, ...], int, int], Handle] = {}
        self._agreement: dict[tuple[str, ...], Handle] = {}

    def handles(self, executor: Executor, names: Sequence[str]) -> tuple[Handle, ...]:
        """Return one handle for each of these views, the same ones in each call."""
        for name in names:
            if name not in self._handles:
                source = self._views.pop(name)  # a sample of a view in memory is a copy
                if self._rows is not None:
                    source = sampled_view(source, self._rows)
                self._handles[name] = executor.submit(
                    iteration_tasks.reference_graphs_of_view,
                    source,
                    self._n_neighbors,
                    self._weights[name],
                    key=f"reference_graphs/{name}",
                )
        return tuple(self._handles[name] for name in names)

    def perturbed_cuts(
        self, executor: Executor, names: tuple[str, ...], n_clusters: int, n_pairs: int
    ) -> Handle:
        """Return the cuts of graphs of two halves of these views, the same handle in each call."""
        key = (names, n_clusters, n_pairs)
        if key not in self._perturbed:
            self._perturbed[key] = executor.submit(
                assessment.cuts_of_perturbed_graphs,
                list(self.handles(executor, names)),
                None,
                n_clusters,
                n_pairs,
                key="perturbed_cuts",
            )
        return self._perturbed[key]

    def view_agreement(self, executor: Executor, names: tuple[str, ...]) -> Handle:
        """Return the agreement of each pair of these views, the same handle in each call."""
        if names not in self._agreement:
            self._agreement[names] = executor.submit(
                assessment.view_agreement,
                list(self.handles(executor, names)),
                key="view_agreement",
            )
        return self._agreement[names]
