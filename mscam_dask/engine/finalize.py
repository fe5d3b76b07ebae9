"""End of a fit: the returned graph, its labels, their assessment, and the solution with its arrays.

The labels are always the connected components of the returned graph. That graph is the last graph
of the outer iterations if it has c components and their score is not lower than the best; otherwise
it is rebuilt from the best partition (`mscam_dask.solvers.partition_graph`). It is rebuilt too if a candidate
has better borders, or if known labels or equal samples need another partition.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.results import StoredArrays, put_embedding, put_graph
from mscam_dask.data.store.arrays import new_group
from mscam_dask.engine.blocks import FAN_IN, Graph, RowOrder, Stage, exchanged, group_edges
from mscam_dask.engine.embed import embed_views
from mscam_dask.engine.executors.base import Handle
from mscam_dask.engine.graph import (
    component_labels,
    extended_labels,
    graph_pieces,
    labels_by_walks,
    partition_graph,
    row_pieces,
)
from mscam_dask.engine.prepare import unit_points
from mscam_dask.engine.scores import compared, compared_views
from mscam_dask.engine.select import cut_of, initial_graph
from mscam_dask.engine.session import FitContext, LoopState, Session
from mscam_dask.engine.spectrum import bottom_eigenpairs, null_spectrum
from mscam_dask.engine.views import encoder_of, principal_coordinates
from mscam_dask.linalg.halos import RowPieces, join_rows, split_rows
from mscam_dask.solvers import borders, choice, cluster_tree, graph_update
from mscam_dask.solvers.known_labels import n_missed, with_known
from mscam_dask.solvers.partition_score import (
    PartitionScore,
    agreement_with_clusters,
    is_nearly_perfect,
    is_worse,
    unit_graphs,
    views_agree,
)
from mscam_dask.solvers.row_blocks import added
from mscam_dask.solvers.spectral_cut import canonical_labels, joined_groups
from mscam_dask.types.result import (
    ArraysInMemory,
    Assessment,
    Borders,
    Solution,
    Status,
    shares_of_views,
)

# Tasks that test the borders of a partition.
_BORDER_TASKS = 4

RowsOfViews = dict[str, Sequence[Handle]]
"""Embeddings or coordinates: rows of each view by blocks."""


@dataclasses.dataclass(frozen=True)
class _FinalGraph:
    """Graph to return, with the labels of its components, the status and the partition score."""

    graph: Graph
    labels: Handle
    status: Status
    partition_score: PartitionScore


def finalize(
    state: LoopState, context: FitContext, session: Session, equal: NDArray[np.int64] | None
) -> Solution:
    """Return the solution: the last graph if it has c components and its partition stays, otherwise the partition graph.

    The partition graph is rebuilt from the best partition, or from a candidate: with enough known labels one that misses clearly
    fewer of them, otherwise one with better borders that does not miss more. With enough known labels, walks on the last graph move
    samples of the best partition. Known samples are in the cluster of their class. Samples of one group in `equal` (n,), −1 for those of none, get one label.
    """
    stage, prepared = session.stage("final"), context.prepared
    final = _reached(stage, state, context)
    embeddings: RowsOfViews = {}
    if final is None:
        labels, score = _best_labels(stage, state, context), state.best.partition_score
    else:
        labels, score = final.labels, final.partition_score
    tested = submit_tests(stage, labels, prepared.scorer.points(prepared.bordered), context)
    if final is not None:  # workers have time for the embeddings while the borders are tested
        embeddings = _embedded(stage, final.graph, state, context)
    other, tested = _better_partition(stage, state, labels, score, tested, context)
    if other is not None:
        other = _with_known(stage.sub("other"), other, context)
        final = _from_partition(stage, other, Status.PARTITION_GRAPH, context)
        tested = submit_tests(stage, final.labels, tested.points, context)
    elif final is None:
        is_merged = state.spectrum is None
        status = Status.MERGED_COMPONENTS if is_merged else Status.PARTITION_GRAPH
        final = _from_partition(stage, labels, status, context)
    if equal is not None:
        final, tested = _with_equal_joined(stage, final, tested, equal, context)
    assessment = submit_assessment(stage, final.labels, state.graph, tested, context)
    if final.graph is not state.graph:  # it is rebuilt
        embeddings = _embedded(stage, final.graph, state, context)
    return _solution(stage, final, assessment, embeddings, context, session, state)


def _best_labels(stage: Stage, state: LoopState, context: FitContext) -> Handle:
    """Submit the best partition; with enough known labels, walks on the last graph move its samples."""
    labels, prepared = _with_known(stage, state.best.labels, context), context.prepared
    if prepared.deciding is None:
        return labels
    rows, order = list(state.graph.rows), prepared.order.order
    n_clusters = context.parameters.n_clusters
    return stage.submit(labels_by_walks, rows, order, labels, prepared.deciding, n_clusters)


def _with_equal_joined(
    stage: Stage,
    final: _FinalGraph,
    tested: _Tested,
    equal: NDArray[np.int64],
    context: FitContext,
) -> tuple[_FinalGraph, _Tested]:
    """Return a final graph in which equal samples have one label, and its tests: the given one, or one that is rebuilt."""
    labels = stage.value(final.labels)
    joined = joined_groups(labels, equal, context.parameters.n_clusters)
    if np.array_equal(joined, labels):
        return final, tested
    stage = stage.sub("equal")
    status = Status.PARTITION_GRAPH if final.status is Status.CONVERGED else final.status
    rebuilt = _from_partition(stage, canonical_labels(joined), status, context)
    return rebuilt, submit_tests(stage, rebuilt.labels, tested.points, context)


def _with_known(stage: Stage, labels: Handle, context: FitContext) -> Handle:
    """Submit a partition in canonical order, with known samples in the cluster of their class."""
    known = context.prepared.known
    if known is not None:
        labels = stage.submit(with_known, labels, known, context.parameters.n_clusters)
    return stage.submit(canonical_labels, labels)


def trivial_solution(
    labels: NDArray[np.int64], status: Status, context: FitContext, session: Session
) -> Solution:
    """Return the solution of a partition that needs no outer iterations."""
    stage = session.stage("final")
    final = _from_partition(stage, labels, status, context)
    prepared, selection = context.prepared, context.n_clusters_selection
    names = compared_views(prepared.validation_views)
    tried: dict[str, Any] = {}
    if selection is not None:
        tried = {"n_tried": selection.counts[-1], "views_agree": selection.views_agree}
    assess = functools.partial(Assessment.trivial, context.parameters.n_clusters, names, **tried)
    agreement = prepared.scorer.view_agreement(names)
    assessment = stage.submit(assess, agreement, kind="assessment")
    return _solution(stage, final, assessment, {}, context, session)


def _reached(stage: Stage, state: LoopState, context: FitContext) -> _FinalGraph | None:
    """Return the graph if it has c components, unless an earlier partition scored higher or it misses known labels."""
    if state.decision is not graph_update.Decision.REACHED or state.spectrum is None:
        return None
    order, tie = context.prepared.order, context.parameters.constants.score_tie
    labels = stage.submit(component_labels, state.graph.components, order.positions)
    (score,) = stage.value(context.prepared.scores(stage, [labels]))
    if is_worse(score, state.best.partition_score, tie):
        return None
    known = context.prepared.known
    if known is not None and stage.value(stage.submit(n_missed, labels, known)):
        return None
    return _FinalGraph(state.graph, labels, Status.CONVERGED, score)


def _from_partition(stage: Stage, labels: Any, status: Status, context: FitContext) -> _FinalGraph:
    """Return the partition graph of a partition."""
    prepared = context.prepared
    stage = stage.sub("rebuilt")
    scores = prepared.scores(stage, [labels])
    graph = partition_graph(stage, prepared.views, prepared.candidates, labels, context.n_neighbors)
    components = stage.submit(component_labels, graph.components, prepared.order.positions)
    (score,) = stage.value(scores)
    return _FinalGraph(graph, components, status, score)


def _solution(
    stage: Stage,
    final: _FinalGraph,
    assessment: Handle,
    embeddings: RowsOfViews,
    context: FitContext,
    session: Session,
    state: LoopState | None = None,
) -> Solution:
    """Gather the solution; large arrays go to a directory if there is one. A trivial partition has no embeddings, nor a state."""
    prepared, order, directory = context.prepared, context.prepared.order, session.results_directory
    encoders = [
        stage.submit(encoder_of, *prepared.wide[name])
        if name in prepared.wide
        else stage.attribute(view.empty, "encoder")
        for name, view in zip(prepared.names, prepared.views, strict=True)
    ]
    coordinates: RowsOfViews = {
        name: stage.map(principal_coordinates, view.rows)
        for name, view in zip(prepared.names, prepared.views, strict=True)
    }
    graphs = {"consensus_graph": final.graph}
    if state is not None and state.graph is not final.graph:
        graphs["learned_graph"] = state.graph
    arrays = (
        gather_arrays(stage, graphs, embeddings, coordinates, order)
        if directory is None or order.is_whole
        else store_arrays(stage, directory, graphs, embeddings, coordinates, order)
    )
    (labels, found), maps = stage.gather([final.labels, assessment], encoders)
    shares = shares_of_views(prepared.names, final.partition_score.view_scores)
    return Solution(
        labels=labels,
        arrays=arrays,
        n_connected_components=final.graph.n_components,
        status=final.status,
        score=final.partition_score.score,
        n_neighbors=context.n_neighbors,
        parameters=context.parameters,
        n_clusters_selection=context.n_clusters_selection,
        refinement=None if state is None else state.refined,
        settings=context.selection.settings,
        selected_view_settings=context.selection.view_settings,
        chosen=context.selection.chosen,
        prepared=context.records,
        history=() if state is None else state.history,
        view_contributions={
            record.view: shares.get(record.view, 0.0) for record in context.records
        },
        encoders=dict(zip(prepared.names, maps, strict=True)),
        assessment=found,
    )


def _embedded(stage: Stage, graph: Graph, state: LoopState, context: FitContext) -> RowsOfViews:
    """Submit the embedding of each view given the graph to return."""
    prepared, weight = context.prepared, context.parameters.constants.graph_weight
    if state.history:
        weight = state.history[-1].graph_weight
    rows, _ = embed_views(stage, null_spectrum(stage, graph), weight, prepared)
    return dict(zip(prepared.names, rows, strict=True))


# assessment ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Tested:
    """Points in which the clusters of a partition are tested, its labels there, and the results."""

    points: Handle
    labels: Handle
    borders: Handle
    views_agree: Handle


def submit_tests(stage: Stage, labels: Handle, points: Handle, context: FitContext) -> _Tested:
    """Submit the tests of the clusters of a partition, in the compared samples."""
    prepared, n_clusters = context.prepared, context.parameters.n_clusters
    own = stage.submit(compared, labels, prepared.compared)
    rows = stage.attribute(points, "rows")
    nested = stage.submit(borders.nested_cells, rows, own)
    folds = stage.submit(borders.cell_folds, rows, stage.item(nested, 0))
    sums = [stage.submit(borders.fold_sums, rows, folds, fold) for fold in range(borders.N_FOLDS)]
    steps = stage.attribute(points, "step_covariance")
    functions = [
        stage.submit(borders.fold_functions, rows, folds, sums, fold, steps)
        for fold in range(borders.N_FOLDS + 1)
    ]
    joined = stage.submit(borders.joined_functions, folds, functions)
    clusters = stage.submit(
        borders.TestedClusters, points, own, stage.item(nested, 1), joined, kind="tested_clusters"
    )
    parts = [
        stage.submit(borders.tested_pairs, clusters, slice(first, None, _BORDER_TASKS))
        for first in range(_BORDER_TASKS)
    ]
    tested = stage.submit(borders.joined_borders, clusters, parts, n_clusters, kind="borders")
    graphs = prepared.scorer.graphs(compared_views(prepared.validation_views))
    return _Tested(points, own, tested, stage.submit(views_agree, graphs, points, own))


class _Candidates:
    """Candidate partitions of the compared samples in some points; each kind is submitted when it is first used."""

    def __init__(
        self, stage: Stage, points: Handle, graphs: Sequence[Handle], context: FitContext
    ) -> None:
        self.points, self.graphs = points, graphs
        self._stage, self._n_clusters = stage, context.parameters.n_clusters

    @functools.cached_property
    def of_graphs(self) -> tuple[Handle, Handle]:
        """Linkages of the reference graphs, and the partitions from them."""
        found = self._stage.submit(choice.graph_linkages, self.graphs, self._n_clusters)
        return found, self._partitions(found)

    @functools.cached_property
    def of_points(self) -> tuple[Handle, Handle]:
        """Linkages of the points, and the partitions from them."""
        found = self._stage.submit(choice.point_linkages, self.points)
        return found, self._partitions(found)

    def _partitions(self, linkages: Handle) -> Handle:
        return self._stage.submit(
            choice.candidate_partitions, self.points, linkages, self._n_clusters
        )


def _better_partition(
    stage: Stage,
    state: LoopState,
    labels: Handle,
    score: PartitionScore,
    own: _Tested,
    context: FitContext,
) -> tuple[Handle | None, _Tested]:
    """Return the candidate that takes the place of the partition of the fit, None without, and the tests of the fit in the points that are used."""
    prepared = context.prepared
    graphs = prepared.scorer.graphs(compared_views(prepared.validation_views))
    candidates = _Candidates(stage, own.points, graphs, context)
    if prepared.deciding is not None:
        found = _choose_by_known(stage, state.best.labels, candidates, context)
        if found is not None:
            return _of_all_samples(stage, state.graph, found, context), own
    found, tested = _choose_by_borders(stage, labels, score, own, candidates, context)
    if found is None:
        return None, tested
    found = _of_all_samples(stage, state.graph, found, context)
    if prepared.deciding is not None:
        missed = stage.submit(n_missed, found, prepared.deciding)
        if stage.value(missed) > score.n_missed:
            return None, own
    return found, tested


def _choose_by_known(
    stage: Stage, best: Handle, candidates: _Candidates, context: FitContext
) -> Handle | None:
    """Return a candidate that misses clearly fewer known samples than the best partition of the fit, None without."""
    known, rows = context.prepared.known, context.prepared.compared
    assert known is not None
    if rows is not None:
        known, best = known[rows], stage.item(best, rows)
    lists = [[best], candidates.of_graphs[1], candidates.of_points[1]]
    partitions = stage.submit(functools.reduce, operator.add, lists, kind="partitions")
    found = stage.value(stage.submit(choice.best_by_known, partitions, candidates.graphs, known))
    return stage.item(partitions, found) if found else None


def _choose_by_borders(
    stage: Stage,
    labels: Handle,
    score: PartitionScore,
    own: _Tested,
    candidates: _Candidates,
    context: FitContext,
) -> tuple[Handle | None, _Tested]:
    """Return a candidate whose borders support it better than the `own` ones support the partition of the fit, None without.

    If these support the fit, only candidates of the graphs are compared, and none if the fit is nearly perfect. If nothing is supported,
    points with rows of unit length are tried too. The tests of the fit come with it, in the points that are used.
    """
    is_supported = stage.value(own.borders).support
    if is_supported and is_nearly_perfect(score, context.parameters):
        return None, own
    cuts = [] if is_supported else _initial_cut(stage, context)
    found, search = _better_candidate(stage, own, candidates, cuts, context)
    unit = None if is_supported or found is not None else unit_points(stage, context.prepared)
    if unit is None:
        return found, own
    tested = submit_tests(stage, labels, unit, context)
    graphs = [stage.submit(unit_graphs, view) for view in candidates.graphs]
    of_unit = _Candidates(stage, unit, graphs, context)
    found, _ = _better_candidate(stage, tested, of_unit, cuts, context, [search])
    is_used = found is not None or stage.value(tested.borders).support
    return found, tested if is_used else own


def _of_all_samples(stage: Stage, graph: Graph, labels: Handle, context: FitContext) -> Handle:
    """Submit a partition of the compared samples in canonical order, extended to all samples."""
    labels, prepared = stage.submit(canonical_labels, labels), context.prepared
    if prepared.compared is None:
        return labels
    partial = np.full(prepared.n_samples, -1, dtype=np.int64)
    partial[prepared.compared] = stage.value(labels)
    rows, order = list(graph.rows), prepared.order.order
    return stage.submit(extended_labels, rows, order, partial, context.parameters.n_clusters)


def _better_candidate(
    stage: Stage,
    tested: _Tested,
    candidates: _Candidates,
    cuts: list[Handle],
    context: FitContext,
    earlier: Sequence[list[Any]] = (),
) -> tuple[Handle | None, list[Any]]:
    """Return the candidate of the compared samples that takes the place of a tested partition, None without, and the search.

    `cuts` are the spectral cuts among which the best partition is searched, if the number of clusters was given; `earlier`
    are the searches in other points that found none.
    """
    points, graphs, n_clusters = candidates.points, candidates.graphs, context.parameters.n_clusters
    linkages: Any
    linkages, of_graphs = candidates.of_graphs
    lists: list[Any] = [[tested.labels], of_graphs]
    if not stage.value(tested.borders).support:
        more, of_points = candidates.of_points
        linkages = stage.submit(operator.add, linkages, more, kind="linkages")
        count_labels: Any = context.count_labels
        if count_labels is None:  # as "auto" has it for this number
            best_of_count = stage.submit(choice.best_by_p_value, points, linkages, cuts, n_clusters)
            count_labels = stage.item(best_of_count, 1)
        lists += [of_points, [count_labels]]
    partitions = stage.submit(functools.reduce, operator.add, lists, kind="partitions")
    if context.n_clusters_selection is not None:
        linkages = []  # more clusters were tried
    own, earlier = tested.borders, list(earlier)
    best = stage.value(
        stage.submit(choice.best_by_borders, points, partitions, graphs, own, linkages, earlier)
    )
    search = [points, graphs, linkages]
    return stage.item(partitions, best) if best else None, search


def _initial_cut(stage: Stage, context: FitContext) -> list[Handle]:
    """Submit the spectral cut of the initial graph, for a given number of clusters.

    There is none if the graph has more components than clusters, or if only some of the samples are compared.
    """
    prepared, n_clusters = context.prepared, context.parameters.n_clusters
    if context.count_labels is not None or prepared.compared is not None:
        return []
    graph, _ = initial_graph(stage, prepared)
    if graph.n_components > n_clusters:
        return []
    spectrum = bottom_eigenpairs(stage, graph, prepared, all_accurate=True)
    return [stage.submit(cut_of, spectrum.values, spectrum.vectors[0], n_clusters)]


def submit_assessment(
    stage: Stage, labels: Handle, learned_graph: Graph, tested: _Tested, context: FitContext
) -> Handle:
    """Submit the assessment of a partition."""
    prepared, n_clusters = context.prepared, context.parameters.n_clusters
    names, selection = compared_views(prepared.validation_views), context.n_clusters_selection
    agreement, graphs = prepared.scorer.view_agreement(names), prepared.scorer.graphs(names)
    by_rows = stage.item(labels, prepared.order.order)
    weights = [
        stage.submit(graph_update.row_weights_between, block, by_rows, n_clusters)
        for block in learned_graph.rows
    ]
    return stage.submit(
        assessed,
        tested.borders,
        names,
        stage.submit(agreement_with_clusters, graphs, tested.labels, n_clusters),
        agreement,
        weights,
        tested.views_agree,
        # of known labels, the classes may give the number
        selection.counts[-1] if selection is not None and prepared.known is None else 0,
    )


def assessed(
    found: Borders,
    names: tuple[str, ...],
    by_cluster: tuple[NDArray[np.float64], NDArray[np.int64]],
    agreement: NDArray[np.float64],
    weights: list[NDArray[np.float64]],
    agree: bool,  # noqa: FBT001 - tasks take positions
    n_tried: int,
) -> Assessment:
    """Assessment of a partition, with the tree of its clusters by the weights between them in each block of rows."""
    return Assessment(
        borders=found,
        view_names=names,
        cluster_agreement=by_cluster[0],
        contradictions=by_cluster[1],
        view_agreement=agreement,
        cluster_tree=cluster_tree.cluster_tree(added(weights)),
        cluster_names=tuple(range(len(weights[0]))),
        n_tried=n_tried,
        views_agree=agree,
    )


# arrays ------------------------------------------------------------------------------------------


def gather_arrays(
    stage: Stage,
    graphs: dict[str, Graph],
    embeddings: RowsOfViews,
    coordinates: RowsOfViews,
    order: RowOrder,
) -> ArraysInMemory:
    """Gather graphs, embeddings and coordinates in the order of the data."""
    groups: list[Sequence[Handle]] = [[order.order], *(graph.rows for graph in graphs.values())]
    groups += [*embeddings.values(), *coordinates.values()]
    together = len(groups) if order.is_whole else 1
    gathered = itertools.chain.from_iterable(
        stage.gather(*groups[first : first + together]) for first in range(0, len(groups), together)
    )
    (of_samples,) = next(gathered)
    wholes = [graph_update.whole_graph(next(gathered), of_samples) for _ in graphs]
    of_views, projected = (
        {name: _of_samples(next(gathered), of_samples, dtype) for name in views}
        for views, dtype in ((embeddings, np.float64), (coordinates, np.float32))
    )
    return ArraysInMemory(wholes[0], wholes[-1], of_views, projected)


def _of_samples(
    blocks: list[NDArray[Any]], of_samples: NDArray[np.int32], dtype: Any
) -> NDArray[Any]:
    """Array (n, m) in the order of the data from its blocks of rows."""
    parts = np.concatenate(blocks)
    ordered = np.empty(parts.shape, dtype=dtype)
    ordered[of_samples] = parts
    return ordered


def store_arrays(
    stage: Stage,
    directory: Path,
    graphs: dict[str, Graph],
    embeddings: RowsOfViews,
    coordinates: RowsOfViews,
    order: RowOrder,
) -> StoredArrays:
    """Write graphs, embeddings and coordinates to a new directory, block by block in the order of the data."""
    group, ranges, edges = new_group(directory), order.ranges, group_edges(order.ranges)
    for key, graph in graphs.items():
        sent = [
            stage.submit(graph_update.split_graph, rows, order.order, edges) for rows in graph.rows
        ]
        rows = exchanged(stage, sent, graph_update.join_graph, (), ranges)
        put_graph(group, key, *graph_pieces(stage, rows, order.n_samples))
    arrays = [
        (kind, number, name, rows)
        for kind, views in (("view_embeddings", embeddings), ("view_coordinates", coordinates))
        for number, (name, rows) in enumerate(views.items())
    ]
    for first in range(0, len(arrays), FAN_IN):
        some = arrays[first : first + FAN_IN]
        sent = [
            stage.submit(split_block, [rows[block] for *_, rows in some], order.order, start, edges)
            for block, (start, _) in enumerate(ranges)
        ]
        joined = exchanged(stage, sent, join_rows, (), ranges)
        for position, (kind, number, name, _) in enumerate(some):
            rows = [stage.item(block, position) for block in joined]
            put_embedding(group, kind, number, name, row_pieces(stage, rows, order.n_samples))
    return StoredArrays(directory, is_partial=True)


def split_block(
    arrays: list[NDArray[Any]], order: NDArray[np.int32], start: int, edges: tuple[int, ...]
) -> list[RowPieces]:
    """Rows of a block of several arrays by the group of samples to which they belong."""
    return split_rows(arrays, order[start : start + len(arrays[0])], edges)
