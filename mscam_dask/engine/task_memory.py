"""Peak memory of every kind of task and of the results held beside it, from shapes only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.data.views.chunk_cache import KEPT_CHUNK_BYTES
from mscam_dask.data.views.sources import BLOCK_BYTES, ArrayRows
from mscam_dask.engine.candidate_neighbors import row_ranges
from mscam_dask.engine.executors._sizeof import n_bytes
from mscam_dask.engine.scoring import MAX_SCORE_TASKS
from mscam_dask.engine.tasks.partition_scores import MAX_EVIDENCE_ENTRIES
from mscam_dask.engine.view_graphs import have_view_graphs
from mscam_dask.solvers.truncated_svd import N_OVERSAMPLES, RANK_SAMPLE
from mscam_dask.solvers.view_svd import MAX_EXACT_GRAM
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.rules import SIZES

__all__ = ["Held", "TaskMemory", "encoders", "graph_tasks", "held_during", "view_tasks"]

# Rows are streamed in blocks of 8 MiB (see solvers.view_rows): as read, scaled, centered, projected;
# beside them the chunk they come from.
_STREAM_BYTES = 4 * 8 * 2**20

# Products of a block of rows with all samples or some of them, their order, and differences.
_SEARCH_BYTES = 32 * 2**20

# Number of partitions that are scored together: ten minima and two more cuts by each of two
# embeddings.
_CUTS = 24


@dataclasses.dataclass(frozen=True, slots=True)
class TaskMemory:
    """Peak memory of one kind of task.

    Attributes
    ----------
    task : str
        Name of the task, with the view if it has one.
    peak_bytes : int
        Arguments, result and intermediates together.
    beside_bytes : int
        Results on all workers during the task, beside the bases of all views.
    """

    task: str
    peak_bytes: int
    beside_bytes: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Held:
    """Bytes of results on all workers.

    Attributes
    ----------
    blocks : int
        Candidate edges of all rows.
    graph, laplacian, vectors : int
        Consensus graph, its Laplacian and its eigenvectors. The Laplacian has twice the entries of
        the graph if no two samples are neighbors of each other. Single precision for large data.
    sums : int
        Projected distances on the candidate edges.
    embeddings : int
    always : int
        Reference graphs, partitions, encoders, and views that are sent inside tasks.
    other : int
        Best initialization so far, or the last graph, while another graph is computed.
    joined : bool
        Whether the initial graph may be mixed with the graphs of the single views.
    """

    blocks: int
    graph: int
    laplacian: int
    vectors: int
    sums: int
    embeddings: int
    always: int
    other: int
    joined: bool

    @property
    def start(self) -> int:
        """Bytes of a graph with its Laplacian and eigenvectors."""
        return self.graph + self.laplacian + self.vectors

    @property
    def choosing(self) -> int:
        """Bytes held while an initialization is computed, including the best one so far."""
        return self.always + self.blocks + self.other

    @property
    def walking(self) -> int:
        """Bytes held during an outer iteration, beside the Laplacian and the eigenvectors."""
        return self.always + self.blocks + self.graph + self.embeddings


def encoders(data: MultiViewData, ranks: Mapping[str, int]) -> int:
    """Bytes of the encoders of all views: a row for each column, a column for each direction."""
    return sum(8 * view.shape[1] * ranks[view.name] for view in data.views)


def held_during(
    data: MultiViewData,
    ranks: Mapping[str, int],
    parameters: Parameters,
    *,
    view_graphs: bool,
    carried: bool,
) -> Held:
    """Bytes of the results of a fit; arguments as for `mscam_dask.engine.memory.plan_memory`."""
    n, c, k = data.n_samples, parameters.n_clusters, parameters.n_neighbors
    large = parameters.is_large(n)
    value = 4 if large else 8
    joined = view_graphs and have_view_graphs(len(data.views), n)
    # the graph of the mean distance and the graphs of the views in one
    graphs = 1 + (len(data.views) if joined else 0)
    both_ways = 2 * k + 1
    # neighbors at tied distances in a view are kept, except for large data
    kept = both_ways if joined and not large else k
    graph = 12 * n * kept * graphs
    laplacian = (4 + value) * n * both_ways * graphs
    vectors = value * n * parameters.n_pairs(n)
    edges = n * parameters.candidates(n)
    always = len(data.views) * 320 * (SIZES.n_scored if large else n) + 20 * 8 * n
    always += 2 * encoders(data, ranks)  # in the SVD and in the ridge view
    if carried:
        # read for two scalings and the reference graphs; large data are read whole only once
        in_memory = sum(n_bytes(view) for view in data.views if isinstance(view, ArrayRows))
        always += (1 if large else 3) * in_memory
    blocks = (12 if large else 16) * edges
    other = 0
    if joined:  # the last graph, and the graphs of the views once more
        other = graph + vectors + graph * (graphs - 1) // graphs
    if not large:  # the best initialization of another setting
        other = max(other, blocks // 2 + graph + laplacian + vectors)
    return Held(
        blocks=blocks,
        graph=graph,
        laplacian=laplacian,
        vectors=vectors,
        sums=8 * edges,
        embeddings=len(data.views) * 4 * n * c,
        always=always,
        other=other,
        joined=joined,
    )


def graph_tasks(
    data: MultiViewData, ranks: Mapping[str, int], parameters: Parameters, held: Held
) -> list[TaskMemory]:
    """Peak memory of the tasks on graphs: candidate neighbors, graph, eigenvectors, spectral cuts."""
    n, c, k = data.n_samples, parameters.n_clusters, parameters.n_neighbors
    rank = sum(ranks.values())
    large = parameters.is_large(n)
    n_candidates = parameters.candidates(n)
    rows = max(stop - start for start, stop in row_ranges(n))
    search = _SEARCH_BYTES + 60 * rows * n_candidates
    of_column = 0
    if large:  # results of all cells, their centers, and a part of the points
        search += 12 * n * n_candidates
        of_column = 4 * 8000 + n // 4
    # the Laplacian, a reordered copy and its filter, and five blocks of 3c columns
    spectrum = held.graph + held.vectors + 5 * held.laplacian // 2 + 15 * held.vectors // 2
    # neighbors of every row, those of a large cluster during assembly, and the transpose of the graph
    limit = held.blocks + 48 * n * k + (0 if large else 4 * n * rank) + _SEARCH_BYTES
    final_beside = held.always + held.graph + held.vectors
    # log-likelihoods of each cut by groups of views, and one sum
    evidence = 4 * min(c * (SIZES.n_scored if large else n), MAX_EVIDENCE_ENTRIES)
    scoring = (_CUTS * min(len(data.views), MAX_SCORE_TASKS) + 3) * evidence
    of_view = []
    if held.joined and large:  # its candidate neighbors, beside the graphs of earlier views
        beside = held.choosing + held.blocks
        peak = search + of_column * max(ranks.values())
        of_view = [TaskMemory("candidates of one view", peak, beside)]
    elif held.joined:
        ties = min(SIZES.max_ties * k, n - 1)
        whole = (4 + 8) * n * max(ranks.values())  # ties are searched again in double precision
        peak = whole + _SEARCH_BYTES + 60 * n * ties
        of_view = [TaskMemory("graph of one view", peak, held.choosing + held.start)]
    if held.joined:  # only the neighbors; every worker has the discriminants of all views
        columns = sum(min(c - 1, own) for own in ranks.values())
        neighbors = held.blocks * (k + 1) // n_candidates
        peak = _SEARCH_BYTES + 60 * rows * (k + 1) + 4 * n * columns
        if large:
            peak += 12 * n * (k + 1) + of_column * (rank + columns)
        of_view.append(TaskMemory("neighbors by learned metrics", peak, held.choosing + neighbors))
    return [
        *of_view,
        TaskMemory("candidates", search + of_column * rank, held.choosing),
        TaskMemory("graph spectrum", spectrum, held.choosing),
        TaskMemory(
            "graph", 40 * n * k + 32 * n, held.walking + held.laplacian + held.vectors + held.sums
        ),
        TaskMemory("partition graph", limit, final_beside),
        TaskMemory("scoring cuts", scoring, held.choosing + held.start),
        TaskMemory("cuts", 3 * held.vectors + 8 * n * (2 * c + 28), held.choosing + held.start),
    ]


def view_tasks(
    shape: tuple[int, int], view_type: str, rank: int, parameters: Parameters, held: Held
) -> list[TaskMemory]:
    """Peak memory of the tasks on one view: SVD, reference graphs, ADMM."""
    n, d = shape
    c = parameters.n_clusters
    n_scored = SIZES.n_scored if parameters.is_large(n) else n
    stream = min(_STREAM_BYTES, 4 * 8 * n * d) + min(KEPT_CHUNK_BYTES, 8 * n * d)
    basis = 4 * n * rank
    # for large data, SVD and reference graphs of the sample each begin with drawing it
    drawn = (
        8 * n_scored * (d if view_type == "features" else n_scored) if parameters.is_large(n) else 0
    )
    factor = max(basis, drawn) + stream
    if view_type == "features" and parameters.is_large(n) and min(shape) > MAX_EXACT_GRAM:
        factor += 4 * 8 * d * (rank + N_OVERSAMPLES)
    elif view_type == "features" and d <= n:
        factor += 4 * 8 * d * d
    elif view_type != "features" and parameters.is_large(n) and n > MAX_EXACT_GRAM:
        directions = max(5 * 8 * n * rank, 3 * 8 * RANK_SAMPLE**2)
        factor = 8 * n * n + max(basis + directions, drawn) + stream
    else:
        factor += 3 * 8 * n * n + 8 * n * min(shape)
        if view_type == "features":
            # loadings, once more times gains; of the above the Gram matrix and its vectors remain
            factor += 2 * 8 * n * (d - n)
    rows = 4 * n_scored * d if view_type == "features" else 3 * 8 * n_scored * n_scored
    reference_graphs = drawn + rows + 600 * n_scored + stream + _SEARCH_BYTES
    subspace = 4 * n * (rank + 2 * c)
    solve = subspace + 2 * 4 * n * 64 + 3 * 8 * n * 2 * c + 6 * 8 * (rank + 2 * c) ** 2
    blocks = 2 if view_type == "features" else 4  # as read and as checked; another one, transposed
    return [
        TaskMemory("validate {view}", blocks * min(BLOCK_BYTES, 8 * n * d)),
        TaskMemory("prepare {view}", factor, held.always),
        TaskMemory("comparing settings of {view}", _comparison(shape, view_type), held.always),
        TaskMemory("reference graphs of {view}", reference_graphs, held.choosing + held.start),
        TaskMemory("ADMM of view {view}", held.laplacian + held.vectors + solve, held.walking),
    ]


def _comparison(shape: tuple[int, int], view_type: str) -> int:
    """Peak memory of comparing view settings on a sample: rows, basis, and its SVD or a search."""
    m = min(shape[0], SIZES.n_compared)
    d = shape[1] if view_type == "features" else m
    rank = min(m, d)
    rows = 8 * m * d * (1 if view_type == "features" else 2)
    basis = 8 * rank * (m + d)
    decomposed = 5 * 8 * rank * rank
    search = 12 * m * rank + _SEARCH_BYTES
    return rows + basis + max(decomposed, search)
