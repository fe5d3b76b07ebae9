"""Peak memory of every kind of task, and what is held beside it; arithmetic on shapes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.data.views.chunk_cache import KEPT_CHUNK_BYTES
from mscam_dask.data.views.sources import BLOCK_BYTES, ArrayRows
from mscam_dask.engine.candidate_neighbors import row_ranges
from mscam_dask.engine.executors._sizeof import n_bytes
from mscam_dask.engine.precompute import SAMPLE
from mscam_dask.engine.preprocessing_selection import COMPARED
from mscam_dask.engine.scoring import MAX_SCORE_TASKS
from mscam_dask.engine.tasks.partition_scores import MAX_EVIDENCE_ENTRIES
from mscam_dask.engine.view_graphs import have_view_graphs
from mscam_dask.solvers.graph_update import MAX_TIES
from mscam_dask.solvers.truncated_svd import N_OVERSAMPLES, RANK_SAMPLE
from mscam_dask.solvers.view_svd import MAX_EXACT_GRAM
from mscam_dask.types.parameters import Parameters

__all__ = ["Held", "TaskMemory", "encoders", "graph_tasks", "held_during", "view_tasks"]

# Rows are streamed in blocks of 8 MiB (see solvers.view_rows): as read, scaled, centered, projected;
# beside them the chunk they come from.
_STREAM_BYTES = 4 * 8 * 2**20

# Products of a block of rows with all samples or a pool, their order, and differences.
_SEARCH_BYTES = 32 * 2**20

# Partitions that are judged together: ten minima and two more cuts by each of two embeddings.
_CUTS = 24


@dataclasses.dataclass(frozen=True, slots=True)
class TaskMemory:
    """Peak memory of one kind of task.

    Attributes
    ----------
    task : str
        What it is, with the view where there is one.
    peak_bytes : int
        Arguments, result and intermediates together.
    beside_bytes : int
        Results that the workers hold together meanwhile, beside the bases of all views.
    """

    task: str
    peak_bytes: int
    beside_bytes: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Held:
    """Bytes of results, over all workers.

    Attributes
    ----------
    blocks : int
        Candidate edges of all rows.
    graph, laplacian, vectors : int
        Of the consensus graph, with twice the entries of its rows where no two samples are each
        other's neighbors; single precision on large data.
    sums : int
        Projected distances on the candidate edges.
    embeddings : int
    always : int
        Neutral graphs, partitions, encoders, and views that travel inside tasks.
    other : int
        The best start so far, or the end of the path, while another graph is made.
    joined : bool
        Whether the views' own graphs may be in the graph.
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
        """A graph with its spectrum."""
        return self.graph + self.laplacian + self.vectors

    @property
    def choosing(self) -> int:
        """Beside a start that is being made: the best so far."""
        return self.always + self.blocks + self.other

    @property
    def walking(self) -> int:
        """In the course of an iteration, beside the graph's spectrum."""
        return self.always + self.blocks + self.graph + self.embeddings


def encoders(data: MultiViewData, ranks: Mapping[str, int]) -> int:
    """Loadings of all views: as many rows as a view has columns, as many columns as its basis."""
    return sum(8 * view.shape[1] * ranks[view.name] for view in data.views)


def held_during(
    data: MultiViewData,
    ranks: Mapping[str, int],
    parameters: Parameters,
    *,
    view_graphs: bool,
    carried: bool,
) -> Held:
    """What a fit holds; arguments as for `mscam_dask.engine.memory.plan_memory`."""
    n, c, k = data.n_samples, parameters.n_clusters, parameters.n_neighbors
    large = parameters.is_large(n)
    value = 4 if large else 8
    joined = view_graphs and have_view_graphs(len(data.views), n)
    # that of the mean distance and those of the views in one
    graphs = 1 + (len(data.views) if joined else 0)
    both_ways = 2 * k + 1
    # neighbors that tie in a view are kept, but of large data
    kept = both_ways if joined and not large else k
    graph = 12 * n * kept * graphs
    laplacian = (4 + value) * n * both_ways * graphs
    vectors = value * n * parameters.n_pairs(n)
    edges = n * parameters.candidates(n)
    always = len(data.views) * 320 * (SAMPLE if large else n) + 20 * 8 * n
    always += 2 * encoders(data, ranks)  # as factored, and as prepared
    if carried:
        # read for two scalings and for the judge; of large data once whole, the rest is a sample
        in_memory = sum(n_bytes(view) for view in data.views if isinstance(view, ArrayRows))
        always += (1 if large else 3) * in_memory
    blocks = (12 if large else 16) * edges
    other = 0
    if joined:  # the last graph of the path, and the views' once more
        other = graph + vectors + graph * (graphs - 1) // graphs
    if not large:  # the best start of another setting
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
    """From the candidate edges to a graph, its spectrum and its cuts."""
    n, c, k = data.n_samples, parameters.n_clusters, parameters.n_neighbors
    rank = sum(ranks.values())
    large = parameters.is_large(n)
    n_candidates = parameters.candidates(n)
    rows = max(stop - start for start, stop in row_ranges(n))
    search = _SEARCH_BYTES + 60 * rows * n_candidates
    of_column = 0
    if large:  # what was found in all cells, their centers, and a share of the points
        search += 12 * n * n_candidates
        of_column = 4 * 8000 + n // 4
    # the Laplacian, the same in another order and its filter, and five blocks of 3c columns
    spectrum = held.graph + held.vectors + 5 * held.laplacian // 2 + 15 * held.vectors // 2
    # every row's neighbors, those of a large cluster on their way into a graph, and its transpose
    limit = held.blocks + 48 * n * k + (0 if large else 4 * n * rank) + _SEARCH_BYTES
    finalize = held.always + held.graph + held.vectors
    # what groups of views tell of each cut, and one sum
    told = 4 * min(c * (SAMPLE if large else n), MAX_EVIDENCE_ENTRIES)
    judging = (_CUTS * min(len(data.views), MAX_SCORE_TASKS) + 3) * told
    of_view = []
    if held.joined and large:  # its candidates, beside the graphs of the views before it
        beside = held.choosing + held.blocks
        peak = search + of_column * max(ranks.values())
        of_view = [TaskMemory("candidates of one view", peak, beside)]
    elif held.joined:
        ties = min(MAX_TIES * k, n - 1)
        whole = (4 + 8) * n * max(ranks.values())  # ties are searched again in double precision
        peak = whole + _SEARCH_BYTES + 60 * n * ties
        of_view = [TaskMemory("graph of one view", peak, held.choosing + held.start)]
    if held.joined:  # neighbors alone, and every worker has the discriminants of all views
        columns = sum(min(c - 1, own) for own in ranks.values())
        found = held.blocks * (k + 1) // n_candidates
        peak = _SEARCH_BYTES + 60 * rows * (k + 1) + 4 * n * columns
        if large:
            peak += 12 * n * (k + 1) + of_column * (rank + columns)
        of_view.append(TaskMemory("neighbors by learned distances", peak, held.choosing + found))
    return [
        *of_view,
        TaskMemory("candidates", search + of_column * rank, held.choosing),
        TaskMemory("graph spectrum", spectrum, held.choosing),
        TaskMemory(
            "graph", 40 * n * k + 32 * n, held.walking + held.laplacian + held.vectors + held.sums
        ),
        TaskMemory("limit step", limit, finalize),
        TaskMemory("judging cuts", judging, held.choosing + held.start),
        TaskMemory("cuts", 3 * held.vectors + 8 * n * (2 * c + 28), held.choosing + held.start),
    ]


def view_tasks(
    shape: tuple[int, int], view_type: str, rank: int, parameters: Parameters, held: Held
) -> list[TaskMemory]:
    """Factoring, judging and solving one view."""
    n, d = shape
    c = parameters.n_clusters
    judged = SAMPLE if parameters.is_large(n) else n
    stream = min(_STREAM_BYTES, 4 * 8 * n * d) + min(KEPT_CHUNK_BYTES, 8 * n * d)
    basis = 4 * n * rank
    # on large data the sample of the rows is factored and judged as well, each begins with drawing it
    drawn = 8 * judged * (d if view_type == "features" else judged) if parameters.is_large(n) else 0
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
            # loadings, once more times gains; the Gram matrix and its vectors are left of the above
            factor += 2 * 8 * n * (d - n)
    rows = 4 * judged * d if view_type == "features" else 3 * 8 * judged * judged
    reference_graphs = drawn + rows + 600 * judged + stream + _SEARCH_BYTES
    subspace = 4 * n * (rank + 2 * c)
    solve = subspace + 2 * 4 * n * 64 + 3 * 8 * n * 2 * c + 6 * 8 * (rank + 2 * c) ** 2
    blocks = 2 if view_type == "features" else 4  # as read and looked at; another one, transposed
    return [
        TaskMemory("validate {view}", blocks * min(BLOCK_BYTES, 8 * n * d)),
        TaskMemory("prepare {view}", factor, held.always),
        TaskMemory("comparing preparations of {view}", _comparison(shape, view_type), held.always),
        TaskMemory("neutral graphs of {view}", reference_graphs, held.choosing + held.start),
        TaskMemory("sub-solve {view}", held.laplacian + held.vectors + solve, held.walking),
    ]


def _comparison(shape: tuple[int, int], view_type: str) -> int:
    """Trying preparations on some rows: these, a whole basis, its making or a search in it."""
    m = min(shape[0], COMPARED)
    d = shape[1] if view_type == "features" else m
    rank = min(m, d)
    rows = 8 * m * d * (1 if view_type == "features" else 2)
    basis = 8 * rank * (m + d)
    decomposed = 5 * 8 * rank * rank
    search = 12 * m * rank + _SEARCH_BYTES
    return rows + basis + max(decomposed, search)
