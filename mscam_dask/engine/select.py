"""Selection of scale, α, k, the initial graph and the number of clusters without labels, by scores of spectral cuts.

A setting costs a neighbor search, one eigenproblem and one spectral cut. The SVD of the views is
computed once per scaling, and the reference graphs once. All numbers of clusters use the same initial
graph, its bottom eigenvectors and those of two halves of its edges; for large data these are of the
sample. See docs/decisions/0015 and 0071.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.engine.blocks import Spectrum
from mscam_dask.engine.graph import connected
from mscam_dask.engine.initialize import (
    Initialization,
    can_use_view_graphs,
    evaluate_graph,
    have_view_graphs,
    improve_by_restarts,
    initial_graph,
    initialize,
    view_graphs,
    warm_start,
    with_view_graphs,
)
from mscam_dask.engine.prepare import PrecomputedViews, Prepared, prepare_views
from mscam_dask.engine.preprocessing_selection import (
    ViewSettingsChoice,
    choice_for,
    select_view_settings,
    with_view_settings,
)
from mscam_dask.engine.session import Session
from mscam_dask.engine.spectrum import bottom_eigenpairs
from mscam_dask.engine.stage import Stage
from mscam_dask.linalg.laplacian import edge_split
from mscam_dask.solvers.n_clusters import (
    adjusted_modularity,
    relative_gaps,
    split_half_ari_of,
    widest_gap_near_peak,
)
from mscam_dask.solvers.partition_score import (
    PartitionScore,
    ReferenceGraphs,
    is_better,
    mean_score,
    view_modularity,
)
from mscam_dask.solvers.row_graph import GraphRows
from mscam_dask.solvers.spectral_cut import (
    extend_cut,
    sampled_rows,
    spectral_cut,
    spread_rows,
    walk_embedding,
)
from mscam_dask.types.events import CandidateSettings, NClustersSelected
from mscam_dask.types.parameters import Choices, Parameters
from mscam_dask.types.result import agrees_by_chance
from mscam_dask.types.rules import RULES, SIZES


@dataclasses.dataclass(frozen=True)
class Search:
    """Settings from which a fit selects.

    Attributes
    ----------
    candidates : tuple of Parameters
        At least one.
    choices : Choices
    init_labels : (n,) int64 or None
        Initial labels from an earlier fit, whose settings are kept; see
        `mscam_dask.engine.initialize`.
    overlaps : tuple of ViewSettingsChoice
        Selections of scale and α of each view that gave the candidates.
    n_clusters_selection : NClustersSelected or None
        Selection of the number of clusters of the candidates.
    """

    candidates: tuple[Parameters, ...]
    choices: Choices
    init_labels: NDArray[np.int64] | None = None
    overlaps: tuple[ViewSettingsChoice, ...] = ()
    n_clusters_selection: NClustersSelected | None = None

    def resumed(
        self, parameters: Parameters, n_clusters_selection: NClustersSelected | None
    ) -> Search:
        """Search without a choice: the selection of a checkpoint."""
        return Search(
            (parameters,), Choices(), self.init_labels, n_clusters_selection=n_clusters_selection
        )

    def usable(self, precomputed: PrecomputedViews) -> list[Parameters]:
        """Candidates without scalings that make all rows of a view equal."""
        n_views = len(precomputed.names)
        return [
            candidate
            for candidate in self.candidates
            if candidate.scales(n_views) in precomputed.factored
        ]


@dataclasses.dataclass(frozen=True)
class Selected:
    """Initialization of the selected setting.

    Attributes
    ----------
    start : Initialization
    settings : tuple of CandidateSettings
        Settings in the order in which they were tried.
    chosen : int
        Position of the selected setting.
    seconds : float
    """

    start: Initialization
    settings: tuple[CandidateSettings, ...]
    chosen: int
    seconds: float


def select_preprocessing(data: MultiViewData, search: Search, session: Session) -> Search:
    """Select scale and α of each view by neighbor overlap, if there is a choice and two views or more."""
    choices = search.choices
    if len(choices.view_settings) < 2 or len(data.views) < 2:
        return search
    seed = search.candidates[0].seed
    overlaps = select_view_settings(session.stage("views"), data, choices.view_settings, seed)
    candidates = with_view_settings(
        search.candidates, overlaps, may_exclude_views=choices.may_exclude_views
    )
    return dataclasses.replace(search, candidates=candidates, overlaps=overlaps)


def select_n_clusters(precomputed: PrecomputedViews, search: Search, session: Session) -> Search:
    """Select the number of clusters, if there is a choice: 1 where views or halves agree by chance."""
    if not search.choices.n_clusters:
        return search
    first = search.usable(precomputed)[0]
    selection = choose_count(session.stage("count"), precomputed, first)
    overlap = {record.view: record.overlap for record in choice_for(first, search.overlaps)}
    if agrees_by_chance(overlap, split_half_ari_of(selection)):
        selection = dataclasses.replace(selection, n_clusters=1)
    return dataclasses.replace(
        search, candidates=with_count(search.candidates, selection), n_clusters_selection=selection
    )


def select(precomputed: PrecomputedViews, search: Search, session: Session) -> Selected:
    """Return the initialization with the best score; in a tie the earlier candidate is kept.

    With `Choices.initial_graph`, the best candidate is also tried with the mixed initial graph, unless
    its score is nearly perfect. The settings of large data are compared on a sample. With initial
    labels there is no selection.
    """
    began = time.perf_counter()
    candidates = search.usable(precomputed)
    if search.init_labels is not None:
        start = warm_start(session.stage("warm"), precomputed, candidates[0], search.init_labels)
        settings, chosen = [start.record(precomputed.names)], 0
    else:
        start, settings, chosen = _best_setting(precomputed, candidates, search.choices, session)
        start = improve_by_restarts(session.stage("minima"), start)
    precomputed.factored.clear()
    return Selected(start, tuple(settings), chosen, time.perf_counter() - began)


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
        parameters, stage = candidates[chosen], session.stage("all")
        prepared = prepare_views(stage, precomputed, parameters)
        leader = initialize(stage, prepared, parameters)
        records[chosen] = leader.record(precomputed.names)
    else:
        n_views = len(candidates[0].active_views(len(precomputed.names)))
        may_mix = choices.initial_graph and have_view_graphs(n_views, precomputed.n_samples)
        is_only = len(candidates) == 1 and not may_mix
        leader, records, chosen = _best_of(precomputed, candidates, session, is_only=is_only)
    if choices.initial_graph and can_use_view_graphs(leader):
        other = _with_view_graphs(session.stage("view-graphs"), leader)
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
        start = initialize(stage, prepared, candidate)
        starts.append((start.best.partition_score, start.record(precomputed.names)))
        del prepared, start
    (score_without, record_without), (score_with_all, record_with_all) = starts
    constants = without[0].constants
    tie = max(constants.score_tie, RULES.score_margin)
    clearly = dataclasses.replace(
        without[0], constants=dataclasses.replace(constants, score_tie=tie)
    )
    if is_better(score_with_all, score_without, clearly):
        return everything, [record_without]
    return without, [record_with_all]


def _best_of(
    precomputed: PrecomputedViews,
    candidates: Sequence[Parameters],
    session: Session,
    *,
    is_only: bool = False,
) -> tuple[Initialization, list[CandidateSettings], int]:
    """Return the initialization with the best score, the records of all settings, and its position."""
    records: list[CandidateSettings] = []
    chosen, leader, start = 0, None, None
    for index, candidate in enumerate(candidates):
        # only one setting beside the best is held at a time: candidate neighbors are large
        start = None
        stage = session.stage(f"setting-{precomputed.n_samples}-{index}")
        prepared = prepare_views(stage, precomputed, candidate)
        start = initialize(stage, prepared, candidate, is_only=is_only)
        del prepared
        records.append(start.record(precomputed.names))
        if leader is None or _is_better(start, leader):
            chosen, leader = index, start
    assert leader is not None, "there is at least one candidate"
    return leader, records, chosen


def _is_better(later: Initialization, earlier: Initialization) -> bool:
    return is_better(later.best.partition_score, earlier.best.partition_score, later.parameters)


def _with_view_graphs(stage: Stage, leader: Initialization) -> Initialization:
    """Return the initialization with the mixed initial graph."""
    prepared, parameters = leader.prepared, leader.parameters
    own = view_graphs(stage, prepared, parameters)
    first = with_view_graphs(stage, leader.first, own)
    mixed = evaluate_graph(stage, prepared, parameters, first)
    return dataclasses.replace(mixed, view_graphs=own)


def choose_count(
    stage: Stage, precomputed: PrecomputedViews, parameters: Parameters
) -> NClustersSelected:
    """Select the number of clusters from 2 to `parameters.n_clusters`.

    Parameters
    ----------
    stage : Stage
    precomputed : PrecomputedViews
        Views of more than `parameters.n_clusters` samples.
    parameters : Parameters
        Setting of the initial graph.
    """
    began = time.perf_counter()
    if precomputed.sample is not None:
        precomputed = precomputed.sample
    most = min(parameters.n_clusters, precomputed.n_samples - 1)
    counts = range(2, most + 1)
    prepared = prepare_views(stage, precomputed, parameters)
    graph = initial_graph(stage, prepared, parameters).graph
    halves = stage.submit(halves_of, graph.rows[0], parameters.seed)
    graphs = [graph]
    graphs += [
        connected(stage.sub(f"half-{index}"), [stage.item(halves, index)], graph.ranges)
        for index in range(2)
    ]
    spectra = [
        bottom_eigenpairs(
            stage.sub(f"graph-{index}"),
            one,
            None,
            prepared.views,
            parameters,
            n_pairs=most + 1,
            all_accurate=True,  # all eigenvalues are compared
        )
        for index, one in enumerate(graphs)
    ]
    cuts = _best_informed(stage, spectra[0], counts, prepared)
    pairs = [item for one in spectra[1:] for item in (one.values, one.vectors[0])]
    agreements = [stage.submit(split_half_ari, *pairs, c) for c in counts]
    eigenvalues, *stability = stage.executor.gather([spectra[0].values, *agreements])
    gaps = relative_gaps(eigenvalues)
    adjusted = tuple(
        adjusted_modularity(cut.modularity, cut.partition_score.reliability) for cut in cuts
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
    stage: Stage, spectrum: Spectrum, counts: Sequence[int], prepared: Prepared
) -> list[_ScoredCut]:
    """For each number of clusters, the spectral cut with the highest cross-view information."""
    cuts = [stage.submit(cuts_of, spectrum.values, spectrum.vectors[0], c) for c in counts]
    by_count = [
        prepared.scores(stage.sub(c), cuts_of_one)
        for c, cuts_of_one in zip(counts, cuts, strict=True)
    ]
    by_view = [
        stage.submit(modularities, graphs, cuts, prepared.n_validation_samples)
        for graphs in prepared.scorer.graphs(prepared.validation_views)
    ]
    scores, of_views = stage.gather(by_count, by_view)
    return [
        max(
            (
                _ScoredCut(score, mean_score(of_cut))
                for score, of_cut in zip(of_one, zip(*of_count, strict=True), strict=True)
            ),
            key=lambda cut: (cut.partition_score.score, cut.modularity),
        )
        for of_one, of_count in zip(scores, zip(*of_views, strict=True), strict=True)
    ]


# Minimum number of samples per cluster for k-means.
_PER_CLUSTER = 4


def cuts_of(
    values: NDArray[np.float64], vectors: NDArray[np.float64], n_clusters: int
) -> list[NDArray[np.int64]]:
    """Deterministic spectral cuts into c clusters."""
    embedding = walk_embedding(values, vectors, n_clusters)
    n, enough = len(embedding.rows), max(SIZES.n_cut_by_number, _PER_CLUSTER * n_clusters)
    if n <= enough:
        return spectral_cut(embedding)
    samples = spread_rows(n, enough)
    return [
        extend_cut(embedding, samples, labels) for labels in spectral_cut(embedding.of(samples))
    ]


def halves_of(graph: GraphRows, seed: int) -> list[GraphRows]:
    """Two graphs with a random half of the edges each."""
    return [GraphRows(0, half) for half in edge_split(graph.affinity, np.random.default_rng(seed))]


def split_half_ari(
    first_values: NDArray[np.float64],
    first: NDArray[np.float64],
    second_values: NDArray[np.float64],
    second: NDArray[np.float64],
    n_clusters: int,
) -> float:
    """Adjusted Rand index between the spectral cuts of two graphs, the higher of both kinds of cut."""
    pairs = zip(
        cuts_of(first_values, first, n_clusters),
        cuts_of(second_values, second, n_clusters),
        strict=True,
    )
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
