"""Consensus graph by blocks of rows: A-step, connected components, means of graphs, partition graph."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from mscam_dask.data.store.arrays import ArrayPieces
from mscam_dask.engine.blocks import Candidates, Graph, RowOrder, Stage, View
from mscam_dask.engine.executors.base import Handle
from mscam_dask.engine.neighbors import candidates_in_order, function_of_points
from mscam_dask.engine.prepare import Prepared
from mscam_dask.linalg.distances import squared_distances
from mscam_dask.linalg.halos import Ranges
from mscam_dask.linalg.incomplete import IncompleteBlocks
from mscam_dask.solvers import partition_graph as partition
from mscam_dask.solvers.cluster_tree import merge_incomplete, ward_merge
from mscam_dask.solvers.graph_update import (
    Components,
    GraphRows,
    components_of_forests,
    graph_block,
    linked_blocks,
    mean_rows,
    neighbor_graph,
    spanning_forest,
    spread_affinity,
)
from mscam_dask.solvers.known_labels import ends_of_walks, without_cannot_links
from mscam_dask.solvers.predict import extend_labels
from mscam_dask.solvers.ridge_view import RidgeView, joint_embedding
from mscam_dask.solvers.row_blocks import added
from mscam_dask.solvers.spectral_cut import canonical_labels
from mscam_dask.types.rules import CONSTANTS


def a_step(
    stage: Stage,
    candidates: Candidates,
    summed: Sequence[Handle] | None = None,
    *,
    known: Handle | None,
    n_neighbors: int,
    data_weight: float = 1.0,
    projected_weight: float = 0.0,
) -> Graph:
    """Submit the A-step, and gather the number of connected components of the graph, which follows `known` labels (n,)."""
    order = candidates.order
    parts = _graph_rows(
        stage, candidates, known, n_neighbors, summed, data_weight, projected_weight
    )
    forests = stage.map(spanning_forest, parts)
    rows = parts
    if order.is_whole and len(parts) > 1:
        rows = [stage.submit(joined_rows, parts)]
    return connected(stage, rows, order.ranges, forests)


def _graph_rows(
    stage: Stage,
    candidates: Candidates,
    known: Handle | None,
    n_neighbors: int,
    summed: Sequence[Handle] | None = None,
    data_weight: float = 1.0,
    projected_weight: float = 0.0,
) -> list[Handle]:
    order = candidates.order
    known = None if known is None else stage.item(known, order.order)
    return [
        stage.submit(
            graph_block,
            part,
            None if summed is None else summed[number],
            n_neighbors,
            data_weight,
            projected_weight,
            order.n_samples,
            known,
        )
        for number, part in enumerate(candidates.parts)
    ]


def connected(
    stage: Stage,
    rows: Sequence[Handle],
    ranges: Ranges,
    forests: Sequence[Handle] | None = None,
) -> Graph:
    """Return the graph of blocks of rows, with its connected components, from forests of any parts of the rows."""
    if forests is None:
        forests = stage.map(spanning_forest, rows)
    n_samples = ranges[-1][1]
    components = stage.submit(components_of_forests, [*forests], n_samples, kind="components")
    links = [stage.submit(linked_blocks, block, ranges) for block in rows]
    (count,), found = stage.gather([stage.attribute(components, "count")], links)
    return Graph(ranges, tuple(rows), tuple(found), components, int(count))


def joined_rows(parts: list[GraphRows]) -> GraphRows:
    """Consecutive rows as one block."""
    stacked = csr_array(vstack([part.affinity for part in parts], format="csr"))
    stacked.has_sorted_indices = True
    return GraphRows(parts[0].start, stacked)


def mixed_graph(stage: Stage, graph: Graph, own: Sequence[Handle]) -> Graph:
    """Return two thirds of a graph and one third of the mean of the view graphs, from the rows of this mean."""
    stage = stage.sub("mixed")
    blocks = zip(graph.rows, own, strict=True)
    rows = [stage.submit(mean_rows, list(block), CONSTANTS.graph_weights) for block in blocks]
    return connected(stage, rows, graph.ranges)


def mean_of_view_graphs(stage: Stage, prepared: Prepared) -> list[Handle]:
    """Submit the rows of the mean of the adaptive-neighbor graphs of the single views."""
    order, known, graphs = prepared.order, prepared.deciding, []
    k = min(prepared.parameters.n_neighbors, order.n_samples - 1)
    for number, view in enumerate(prepared.views):
        one = stage.sub(number)
        if order.is_whole:
            graphs.append([one.submit(view_graph, view.rows[0], k, known)])
            continue
        found = candidates_in_order(one, [view], order, prepared.parameters)
        graphs.append(_graph_rows(one, found, known, k))
    weights = (1.0,) * len(graphs)
    return [stage.submit(mean_rows, list(blocks), weights) for blocks in zip(*graphs, strict=True)]


def view_graph(
    view: RidgeView, n_neighbors: int, known: NDArray[np.int64] | None = None
) -> GraphRows:
    """Adaptive-neighbor graph of a single view; samples that it does not have have no neighbors."""
    if view.present is None:
        graph = neighbor_graph(joint_embedding([view]), n_neighbors)
    else:
        whole = dataclasses.replace(view, present=None)
        own = neighbor_graph(joint_embedding([whole]), min(n_neighbors, len(view.present) - 1))
        graph = csr_array(spread_affinity(own, view.present).tocsr())
    return GraphRows(0, graph if known is None else without_cannot_links(graph, known))


# components and labels -------------------------------------------------------------------------


def component_labels(components: Components, positions: NDArray[np.int32]) -> NDArray[np.int64]:
    """Connected component of each sample in the order of the data, by first appearance."""
    return canonical_labels(components.labels[positions].astype(np.int64))


def merged_components(
    stage: Stage, views: Sequence[View], graph: Graph, order: RowOrder, n_clusters: int
) -> Handle:
    """Submit the connected components merged to c clusters, by Ward's criterion."""
    sums = [
        stage.submit(component_sums, [view.rows[number] for view in views], graph.components, start)
        for number, (start, _) in enumerate(graph.ranges)
    ]
    return stage.submit(merge_components, sums, graph.components, order.positions, n_clusters)


def component_sums(
    views: list[RidgeView], components: Components, start: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | IncompleteBlocks:
    """Number of rows of a block in each component, and the sum of their points; all points of incomplete views."""
    points = joint_embedding(views)
    if isinstance(points, IncompleteBlocks):
        return points
    own = components.labels[start : start + len(points)].astype(np.int64)
    sizes = np.bincount(own, minlength=components.count).astype(np.float64)
    return sizes, points.means(own, np.ones(components.count))


def merge_components(
    sums: list[Any],
    components: Components,
    positions: NDArray[np.int32],
    n_clusters: int,
) -> NDArray[np.int64]:
    """Connected components, merged to c clusters, in the order of the data, from `component_sums`."""
    if isinstance(sums[0], IncompleteBlocks):
        return merge_incomplete(sums[0], components.labels.astype(np.int64), n_clusters)
    sizes = added(size for size, _ in sums)
    means = added(total for _, total in sums) / sizes[:, None]
    merged, _ = ward_merge(squared_distances(means, means), sizes, n_clusters)
    return canonical_labels(merged[components.labels[positions]])


def extended_labels(
    blocks: list[GraphRows],
    order: NDArray[np.int32],
    partial: NDArray[np.int64],
    n_clusters: int,
) -> NDArray[np.int64]:
    """Labels of some samples, −1 for the others, extended to these on the graph."""
    graph, found, known = [block.affinity for block in blocks], partial.copy(), partial[order]
    labels = extend_labels(graph, known, n_clusters)
    found[order] = ends_of_walks(graph, labels, known, n_clusters)
    return found


def labels_by_walks(
    blocks: list[GraphRows],
    order: NDArray[np.int32],
    labels: NDArray[np.int64],
    known: NDArray[np.int64],
    n_clusters: int,
) -> NDArray[np.int64]:
    """Clusters in which random walks on the graph end, in canonical order; see `ends_of_walks`."""
    graph, found = [block.affinity for block in blocks], np.empty_like(labels)
    found[order] = ends_of_walks(graph, labels[order], known[order], n_clusters)
    return canonical_labels(found)


# partition graph -------------------------------------------------------------------------------


def partition_graph(
    stage: Stage, views: Sequence[View], candidates: Candidates, labels: Any, n_neighbors: int
) -> Graph:
    """Submit the graph whose connected components are exactly the clusters of a partition."""
    order = candidates.order
    ranges = order.ranges
    by_rows = stage.item(labels, order.order)
    of_blocks = [[view.rows[number] for view in views] for number in range(len(ranges))]

    def of_points(block: int, function: Callable[..., Any], *args: Any, kind: str) -> Handle:
        return stage.submit(function_of_points, of_blocks[block], function, *args, kind=kind)

    if order.is_whole:
        rows = [of_points(0, partition.cluster_rows, by_rows, n_neighbors, kind="partition_rows")]
    else:
        members = of_points(0, partition.pool_members, by_rows, n_neighbors, kind="pool")
        pool = [
            of_points(number, partition.points_at, start, members, kind="pool_points")
            for number, (start, _) in enumerate(ranges)
        ]
        pooled = stage.submit(np.concatenate, pool, kind="pooled")
        rows = [
            of_points(
                number,
                partition.cluster_rows,
                by_rows,
                n_neighbors,
                members,
                pooled,
                found,
                kind="partition_rows",
            )
            for number, found in enumerate(candidates.parts)
        ]
    graph = connected(stage, rows, ranges)
    ends = stage.submit(partition.bridge_ends, graph.components, by_rows)
    if stage.value(ends).size:
        points = [
            of_points(number, partition.points_at, start, ends, kind="bridge_points")
            for number, (start, _) in enumerate(ranges)
        ]
        edges = stage.submit(partition.bridges, ends, points, graph.components, by_rows)
        joined = [
            stage.submit(partition.with_bridges, block, edges, by_rows, n_neighbors)
            for block in graph.rows
        ]
        graph = connected(stage.sub("bridged"), joined, ranges)
    return graph


# checkpoints and results -----------------------------------------------------------------------


def graph_pieces(
    stage: Stage, rows: Sequence[Handle], n_samples: int
) -> tuple[ArrayPieces, ArrayPieces, ArrayPieces]:
    """Return data, indices and indptr of a graph from its blocks of rows, each gathered when it is needed."""

    def part(name: str) -> Iterator[Any]:
        of_matrix = operator.attrgetter(f"affinity.{name}")
        for block in rows:
            yield stage.value(stage.submit(of_matrix, block, kind="part_of_graph"))

    def pointers() -> Iterator[NDArray[np.int64]]:
        yield np.zeros(1, dtype=np.int64)
        end = 0
        for own in part("indptr"):
            yield end + own[1:].astype(np.int64)
            end += int(own[-1])

    n_entries = sum(part("nnz"))
    return (
        ArrayPieces((n_entries,), np.dtype(np.float64), lambda: part("data")),
        ArrayPieces((n_entries,), np.dtype(np.int32), lambda: part("indices")),
        ArrayPieces((n_samples + 1,), np.dtype(np.int64), pointers),
    )


def row_pieces(stage: Stage, rows: Sequence[Handle], n_samples: int) -> ArrayPieces:
    """Return an array with a row for each sample from its blocks of rows, each gathered when it is needed."""
    none = stage.value(stage.item(rows[0], slice(0)))
    return ArrayPieces((n_samples, none.shape[1]), none.dtype, lambda: map(stage.value, rows))


def restore_graph(stage: Stage, affinity: csr_array[np.float64], ranges: Ranges) -> Graph:
    """Submit a graph from the matrix (n, n) of a checkpoint."""
    rows = []
    for start, stop in ranges:
        own = affinity[start:stop]
        places = own.indices.astype(np.int32), own.indptr.astype(np.int32)
        block = csr_array((own.data, *places), shape=own.shape)
        rows.append(stage.submit(GraphRows, start, block, kind="restored_rows"))
    return connected(stage, rows, ranges)
