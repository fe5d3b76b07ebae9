"""Selection of scale, α, k, the initial graph and the number of clusters without labels, by scores of spectral cuts.

The initial graph is by the mean distance over views, or the mean of it and the graphs of the single
views; partition scores decide between the two (docs/decisions/0057).
"""

from __future__ import annotations

import dataclasses
import operator
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.engine.blocks import Graph, GraphSpectrum, Stage
from mscam_dask.engine.executors.base import Handle
from mscam_dask.engine.graph import (
    a_step,
    extended_labels,
    mean_of_view_graphs,
    merged_components,
    mixed_graph,
)
from mscam_dask.engine.prepare import PrecomputedViews, Prepared, prepare_views, unit_points
from mscam_dask.engine.preprocessing_selection import (
    ViewSelections,
    select_view_settings,
    with_view_settings,
)
from mscam_dask.engine.scores import BestPartition, best_partition, compared_views
from mscam_dask.engine.session import Session
from mscam_dask.engine.spectrum import PER_CLUSTER, bottom_eigenpairs, random_minima, spectral_cuts
from mscam_dask.engine.views import SVDs
from mscam_dask.solvers import choice, spectral_cut
from mscam_dask.solvers.borders import JointPoints
from mscam_dask.solvers.known_labels import UNKNOWN
from mscam_dask.solvers.partition_score import argbest, is_better, is_nearly_perfect, views_agree
from mscam_dask.types.events import CandidateSettings, NClustersSelected, ViewSettingsSelected
from mscam_dask.types.parameters import Choices, Parameters
from mscam_dask.types.rules import RULES, SIZES

_Item = TypeVar("_Item")


@dataclasses.dataclass(frozen=True)
class Search:
    """Settings from which a fit selects."""

    candidates: tuple[Parameters, ...]  # at least one
    choices: Choices
    init_labels: NDArray[np.int64] | None = None  # (n,) of an earlier fit, whose settings are kept
    # that gave the candidates their view settings
    view_selections: ViewSelections = dataclasses.field(default_factory=dict)
    n_clusters_selection: NClustersSelected | None = None  # that gave the candidates their number
    # partition of the compared samples whose borders gave this number
    count_labels: NDArray[np.int64] | None = None

    def view_records(self, parameters: Parameters) -> tuple[ViewSettingsSelected, ...]:
        """Records of the view settings of a candidate, if they were selected."""
        return self.view_selections.get(parameters.view_settings or (), ())


def select_preprocessing(
    data: MultiViewData, search: Search, session: Session, svds: SVDs
) -> Search:
    """Select scale and α of each view by neighbor overlap, if there is a choice and two views or more."""
    choices = search.choices
    if len(data.views) == 1 and data.log_views:
        candidates = tuple(
            dataclasses.replace(one, scale="log") if one.scale == "unit" else one
            for one in search.candidates
        )
        return dataclasses.replace(search, candidates=candidates)
    if len(choices.view_settings) < 2 or len(data.views) < 2:
        return search
    first, stage = search.candidates[0], session.stage("views")
    n_clusters = 2 if choices.n_clusters else first.n_clusters  # the fewest, while none is selected
    selections = select_view_settings(
        stage, data, choices.view_settings, first.seed, svds, n_clusters=n_clusters
    )
    candidates = with_view_settings(
        search.candidates, selections, may_exclude_views=choices.may_exclude_views
    )
    return dataclasses.replace(search, candidates=candidates, view_selections=selections)


def select_n_clusters(precomputed: PrecomputedViews, search: Search, session: Session) -> Search:
    """Select the number of clusters, if there is a choice."""
    if not search.choices.n_clusters:
        return search
    selection, count_labels = choose_count(
        session.stage("count"), precomputed, search.candidates[0]
    )
    if precomputed.known is not None:
        selection = with_classes(selection, precomputed.known)
    candidates = tuple(
        dataclasses.replace(candidate, n_clusters=selection.n_clusters)
        for candidate in search.candidates
    )
    return dataclasses.replace(
        search, candidates=candidates, n_clusters_selection=selection, count_labels=count_labels
    )


def select(
    precomputed: PrecomputedViews, search: Search, session: Session
) -> tuple[Initialization, list[CandidateSettings], int]:
    """Return the initialization with the best score, the records of all settings, and its position."""
    candidates = search.candidates
    if search.init_labels is not None:
        start = warm_start(session.stage("warm"), precomputed, candidates[0], search.init_labels)
        settings, chosen = [start.record(precomputed.names)], 0
    else:
        start, settings, chosen = _best_setting(precomputed, candidates, search.choices, session)
        start = improve_by_restarts(session.stage("minima"), start)
    precomputed.svds.clear()
    return start, settings, chosen


def _best_setting(
    precomputed: PrecomputedViews,
    candidates: Sequence[Parameters],
    choices: Choices,
    session: Session,
) -> tuple[Initialization, list[CandidateSettings], int]:
    """Return the initialization with the best score, the records of all settings, and its position."""
    candidates, lost = _with_or_without(precomputed, candidates, session)
    if precomputed.sample is not None and len(candidates) > 1:
        # the records of the settings that lose are those of the sample
        _, records, chosen = _best_of(precomputed.sample, candidates, session)
        stage = session.stage("all")
        prepared = prepare_views(stage, precomputed, candidates[chosen])
        leader = submit_initial_partitions(stage, prepared).result()
        records[chosen] = leader.record(precomputed.names)
    else:
        leader, records, chosen = _best_of(precomputed, candidates, session)
    if choices.initial_graph and can_be_refined(leader):
        stage, prepared = session.stage("view-graphs"), leader.prepared
        own = mean_of_view_graphs(stage, prepared)
        graph, k = mixed_graph(stage, leader.graph, own), leader.n_neighbors
        mixed = submit_partitions(stage, prepared, graph, k).result()
        other = dataclasses.replace(mixed, view_graphs=own)
        records.append(other.record(precomputed.names))
        if _is_better(other, leader):
            leader, chosen = other, len(records) - 1
    return leader, [*records, *lost], chosen


def _with_or_without(
    precomputed: PrecomputedViews, candidates: Sequence[Parameters], session: Session
) -> tuple[Sequence[Parameters], list[CandidateSettings]]:
    """Return the candidates that exclude views, or those that do not, and a record of the others.

    The first candidate of each kind is scored by all views. After that, excluded views have no effect.
    """
    without = [candidate for candidate in candidates if candidate.exclude_views]
    everything = [candidate for candidate in candidates if not candidate.exclude_views]
    if not without or not everything:
        return candidates, []
    scored_on = precomputed.sample or precomputed
    starts = []
    for name, candidate in (("without", without[0]), ("everything", everything[0])):
        stage = session.stage(name)
        prepared = prepare_views(stage, scored_on, candidate, all_score=True)
        start = submit_initial_partitions(stage, prepared).result()
        starts.append((start.best.partition_score, start.record(precomputed.names)))
        del prepared, start
    (score_without, record_without), (score_with_all, record_with_all) = starts
    clearly = max(without[0].constants.score_tie, RULES.level)
    if is_better(score_with_all, score_without, clearly):
        return everything, [record_without]
    return without, [record_with_all]


def _best_of(
    precomputed: PrecomputedViews,
    candidates: Sequence[Parameters],
    session: Session,
) -> tuple[Initialization, list[CandidateSettings], int]:
    """Return the initialization with the best score, the records of all settings, and its position.

    While the driver waits for a graph or for its partitions, workers have the tasks of the next setting.
    """
    stages = [
        session.stage(f"setting-{precomputed.n_samples}-{index}")
        for index in range(len(candidates))
    ]
    prepared = _one_ahead(
        prepare_views(stage, precomputed, candidate)
        for stage, candidate in zip(stages, candidates, strict=True)
    )
    submitted = _one_ahead(
        submit_initial_partitions(stage, views)
        for stage, views in zip(stages, prepared, strict=True)
    )
    records: list[CandidateSettings] = []
    chosen, leader = 0, None
    for setting in submitted:
        start = setting.result()
        records.append(start.record(precomputed.names))
        if leader is None or _is_better(start, leader):
            chosen, leader = len(records) - 1, start
        del setting, start  # candidate neighbors are large: those of a setting that lost are freed
    assert leader is not None, "there is at least one candidate"
    return leader, records, chosen


def _one_ahead(items: Iterable[_Item]) -> Iterator[_Item]:
    """Yield each item once the next one is made."""
    iterator = iter(items)
    current = next(iterator)
    for following in iterator:
        yield current
        current = following
    yield current


def _is_better(later: Initialization, earlier: Initialization) -> bool:
    tie = later.prepared.parameters.constants.score_tie
    return is_better(later.best.partition_score, earlier.best.partition_score, tie)


# initial graph and partition of one setting ----------------------------------------------------


# Outer iterations without a better partition before an incremental fit stops: it starts near its end.
_PATIENCE = 1

# Iteration of the initial labels: the fit stops after the first iteration without a better one.
_INITIAL_LABELS = -1


@dataclasses.dataclass(frozen=True)
class Initialization:
    """Initial graph and partition of one setting."""

    prepared: Prepared
    graph: Graph
    n_neighbors: int  # k of each sample in it
    spectrum: GraphSpectrum | None  # None if the initial graph has more components than clusters
    best: BestPartition
    minima: Sequence[Handle] = ()  # of random starts
    view_graphs: list[Handle] | None = None  # rows of their mean, if the graph is mixed with it

    def record(self, names: Sequence[str]) -> CandidateSettings:
        """Record of the setting of views with these names, and of its initial graph."""
        parameters = self.prepared.parameters
        by_view = parameters.view_settings is not None
        view_settings = tuple(
            (name, chosen.scale, chosen.alpha)
            for name, chosen in zip(names, parameters.view_settings or (), strict=by_view)
        )
        return CandidateSettings(
            scale="by view" if by_view else parameters.scale,
            alpha=None if by_view else parameters.alpha,
            n_neighbors=self.n_neighbors,
            n_connected_components=self.graph.n_components,
            score=self.best.score,
            initial_graph="mean" if self.view_graphs is None else "mixed",
            view_settings=view_settings,
            exclude_views=tuple(names[view] for view in parameters.exclude_views),
        )


def initial_graph(stage: Stage, prepared: Prepared) -> tuple[Graph, int]:
    """Graph of the mean distances over views, and its k, which grows until it has at most c connected components.

    With k neighbors it may have more than c components, which no graph weight can join. Then k is
    doubled, at most to one less than the number of candidates.
    """
    parameters = prepared.parameters
    most = parameters.candidates(prepared.n_samples) - 1
    n_neighbors = min(parameters.n_neighbors, prepared.n_samples - 1)
    while True:
        graph = a_step(
            stage.sub(n_neighbors),
            prepared.candidates,
            known=prepared.deciding,
            n_neighbors=n_neighbors,
            data_weight=parameters.constants.identity_weight,
        )
        if graph.n_components <= parameters.n_clusters or n_neighbors >= most:
            return graph, n_neighbors
        n_neighbors = min(2 * n_neighbors, most)


@dataclasses.dataclass(frozen=True)
class SubmittedPartitions:
    """Graph of one setting, and its partitions, for whose scores the driver has not waited."""

    stage: Stage
    prepared: Prepared
    graph: Graph
    n_neighbors: int
    spectrum: GraphSpectrum | None
    partitions: Handle
    minima: Sequence[Handle] = ()

    def result(self) -> Initialization:
        """Return the initialization with the best partition."""
        prepared = self.prepared
        # only now: workers have time for the reference graphs until the last spectrum is there
        scores = prepared.scores(self.stage, self.partitions)
        if self.spectrum is not None and prepared.validation_views == prepared.names:
            # used at the end of the fit; not if the fit may exclude some of the views
            prepared.scorer.view_agreement(compared_views(prepared.validation_views))
            prepared.scorer.points(prepared.bordered)
        best = best_partition(self.stage, self.partitions, scores)
        return Initialization(
            prepared, self.graph, self.n_neighbors, self.spectrum, best, self.minima
        )


def submit_initial_partitions(stage: Stage, prepared: Prepared) -> SubmittedPartitions:
    """Submit the partitions of the graph of the mean distances."""
    graph, k = initial_graph(stage, prepared)
    return submit_partitions(stage, prepared, graph, k)


def submit_partitions(
    stage: Stage,
    prepared: Prepared,
    graph: Graph,
    n_neighbors: int,
    init_labels: Handle | None = None,
) -> SubmittedPartitions:
    """Submit the partitions of a graph with k neighbors: its spectral cuts, or its merged components."""
    n_clusters = prepared.parameters.n_clusters
    if graph.n_components > n_clusters:
        labels = merged_components(stage, prepared.views, graph, prepared.order, n_clusters)
        partitions = stage.submit(list, [labels], kind="partitions")
        return SubmittedPartitions(stage, prepared, graph, n_neighbors, None, partitions)
    spectrum = bottom_eigenpairs(stage, graph, prepared)
    minima = random_minima(stage, spectrum, prepared)
    partitions = spectral_cuts(
        stage,
        spectrum,
        prepared,
        init_labels=init_labels,
        minima=minima,
        all_minima=init_labels is not None,
    )
    return SubmittedPartitions(stage, prepared, graph, n_neighbors, spectrum, partitions, minima)


def improve_by_restarts(stage: Stage, start: Initialization) -> Initialization:
    """Return the initialization with the best of all good spectral cuts of its graph.

    Settings are compared by few cuts each, since more cuts favor settings whose graph is similar to
    the reference graphs. For one graph, many cuts can be compared (docs/decisions/0057).
    """
    prepared, parameters = start.prepared, start.prepared.parameters
    if start.spectrum is None or is_nearly_perfect(start.best.partition_score, parameters):
        return start
    partitions = spectral_cuts(
        stage, start.spectrum, prepared, minima=start.minima, all_minima=True
    )
    best = best_partition(stage, partitions, prepared.scores(stage, partitions))
    improved = dataclasses.replace(start, best=best)
    return improved if _is_better(improved, start) else start


def have_view_graphs(n_views: int, n_samples: int) -> bool:
    """Return whether the mixed initial graph is possible: two views or more, and not too large."""
    n_lists = (n_views + 1) * n_samples
    return 1 < n_views <= SIZES.max_view_graphs and n_lists <= SIZES.max_view_lists


def can_be_refined(start: Initialization) -> bool:
    """Return whether a better graph is searched: the mixed initial graph, and refinements after the fit."""
    return (
        start.spectrum is not None
        and not is_nearly_perfect(start.best.partition_score, start.prepared.parameters)
        and have_view_graphs(len(start.prepared.names), start.prepared.n_samples)
    )


def warm_start(
    stage: Stage,
    precomputed: PrecomputedViews,
    parameters: Parameters,
    init_labels: NDArray[np.int64],
) -> Initialization:
    """Return the initialization from the labels (n,) of an earlier fit, `UNKNOWN` for a new sample.

    If they have all clusters, they stay the best partition, extended to all samples, unless another one scores higher.
    """
    constants = parameters.constants
    constants = dataclasses.replace(constants, patience=min(constants.patience, _PATIENCE))
    parameters = dataclasses.replace(parameters, constants=constants)
    prepared = prepare_views(stage, precomputed, parameters)
    graph, k = initial_graph(stage, prepared)
    order, c = prepared.order, parameters.n_clusters
    has_all_clusters = len(np.unique(init_labels[init_labels != UNKNOWN])) == c
    if not has_all_clusters and graph.n_components > c:
        return submit_partitions(stage, prepared, graph, k).result()
    extended = stage.submit(extended_labels, list(graph.rows), order.order, init_labels, c)
    spectrum = None
    if graph.n_components > c:
        partitions = stage.submit(list, [extended], kind="partitions")
    else:
        spectrum = bottom_eigenpairs(stage, graph, prepared)
        partitions = spectral_cuts(stage, spectrum, prepared, init_labels=extended)
        if has_all_clusters:
            partitions = stage.submit(operator.add, [extended], partitions, kind="partitions")
    scores = stage.value(prepared.scores(stage, partitions))
    index = argbest(scores)
    if not is_better(scores[index], scores[0], constants.score_tie):
        index = 0
    best = BestPartition(stage.item(partitions, index), scores[index], iteration=_INITIAL_LABELS)
    return Initialization(prepared, graph, k, spectrum, best)


# number of clusters ----------------------------------------------------------------------------


def choose_count(
    stage: Stage, precomputed: PrecomputedViews, parameters: Parameters
) -> tuple[NClustersSelected, NDArray[np.int64] | None]:
    """Select the number of clusters from 2 to `parameters.n_clusters`: the largest whose borders all hold.

    1 if there is none. The partition of the compared samples with this number comes with it; None for 1, or if these are of
    a sample of large data. The partitions of each number are the spectral cuts of the initial graph, and cuts of
    linkages. There are more than `parameters.n_clusters` samples.
    """
    began, is_sample = time.perf_counter(), precomputed.sample is not None
    precomputed = precomputed.sample or precomputed
    most = min(parameters.n_clusters, precomputed.n_samples - 1)
    counts = tuple(range(2, most + 1))
    prepared = prepare_views(stage, precomputed, parameters)
    graph, _ = initial_graph(stage, prepared)
    spectrum = bottom_eigenpairs(stage, graph, prepared, n_pairs=most + 1, all_accurate=True)
    unit = unit_points(stage, prepared)
    points = [prepared.scorer.points(prepared.bordered), *([] if unit is None else [unit])]
    graphs = prepared.scorer.graphs([name for name, _ in prepared.bordered])
    of_graphs = stage.submit(choice.graph_linkages, graphs, most)
    linkages = [
        stage.submit(
            operator.add, of_graphs, stage.submit(choice.point_linkages, some), kind="linkages"
        )
        for some in points
    ]
    of_counts = [
        stage.submit(
            best_of_count,
            points,
            linkages,
            spectrum.values,
            spectrum.vectors[0],
            prepared.compared,
            c,
            kind="partition",
        )
        for c in counts
    ]
    p_values = stage.executor.gather([stage.attribute(best, "p_value") for best in of_counts])
    held = [index for index, value in enumerate(p_values) if value <= RULES.level]
    n_clusters, agree, count_labels = 1, True, None
    if held:
        largest = held[-1]
        labels = stage.attribute(of_counts[largest], "labels")
        tested_in = points[stage.value(stage.attribute(of_counts[largest], "points"))]
        agree = stage.value(stage.submit(views_agree, graphs, tested_in, labels))
        n_clusters = counts[largest] if agree else 1
        count_labels = stage.value(labels) if agree and not is_sample else None
    selection = NClustersSelected(
        counts=counts,
        p_values=tuple(p_values),
        n_clusters=n_clusters,
        views_agree=agree,
        seconds=time.perf_counter() - began,
    )
    return selection, count_labels


def with_classes(selection: NClustersSelected, known: NDArray[np.int64]) -> NClustersSelected:
    """Selection of at least one cluster for each class of known labels, and of no more than can have a sample."""
    fewest = int(known.max()) + 1
    most = fewest + int(np.count_nonzero(known < 0))
    held = [
        count
        for count, p_value in zip(selection.counts, selection.p_values, strict=True)
        if p_value <= RULES.level and selection.views_agree and fewest <= count <= most
    ]
    return dataclasses.replace(selection, n_clusters=max([fewest, *held]))


def cut_of(
    values: NDArray[np.float64], vectors: NDArray[np.float64], n_clusters: int
) -> NDArray[np.int64]:
    """Deterministic spectral cut into c clusters."""
    embedding = spectral_cut.walk_embedding(values, vectors, n_clusters)
    n, enough = len(embedding.rows), max(SIZES.n_cut_by_number, PER_CLUSTER * n_clusters)
    if n <= enough:
        return spectral_cut.start_minima(embedding, None)[0][0]
    samples = spectral_cut.sampled_rows(n, enough)
    (labels, _), _ = spectral_cut.start_minima(embedding.of(samples), None)
    return spectral_cut.extend_cut(embedding, samples, labels)


@dataclasses.dataclass(frozen=True, slots=True)
class CountPartition:
    """Partition of the compared samples into a number of clusters, with the clearest borders."""

    p_value: float  # the largest of its borders
    labels: NDArray[np.int64]
    points: int  # position of the points in which it was tested


def best_of_count(
    points: Sequence[JointPoints],
    linkages: Sequence[Sequence[choice.Linkage]],
    values: NDArray[np.float64],
    vectors: NDArray[np.float64],
    rows: NDArray[np.int64] | None,
    n_clusters: int,
) -> CountPartition:
    """Return the partition into c clusters with the least largest p-value, in any of some points."""
    cut = cut_of(values, vectors, n_clusters)
    cuts = [cut]
    if rows is not None:
        cut = np.unique(cut[rows], return_inverse=True)[1]
        cuts = [cut] if cut.max() + 1 == n_clusters else []
    found = [
        CountPartition(*choice.best_by_p_value(some, linked, cuts, n_clusters), index)
        for index, (some, linked) in enumerate(zip(points, linkages, strict=True))
    ]
    return min(found, key=operator.attrgetter("p_value"))
