"""Selection of scale, α, k, the initial graph and the number of clusters without labels, by scores of spectral cuts.

A setting costs a neighbor search, one eigenproblem and one spectral cut. The SVD of the views is
computed once per scaling, and the reference graphs once. All numbers of clusters use the same initial
graph, its bottom eigenvectors and those of two halves of its edges; for large data these are of the
sample. See docs/decisions/0015 and 0071.
"""

from __future__ import annotations

import dataclasses
import operator
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.engine import tasks as iteration_tasks
from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.initial_graph import PreparedHandles, initial_graph, prepare_views
from mscam_dask.engine.initialize import (
    Initialization,
    can_use_view_graphs,
    evaluate_graph,
    have_view_graphs,
    improve_by_restarts,
    initialize,
    release,
    release_unshared,
    view_graphs,
    warm_start,
    with_view_graphs,
)
from mscam_dask.engine.iteration_steps import score_partitions_by_views
from mscam_dask.engine.precompute import PrecomputedViews
from mscam_dask.engine.preprocessing_selection import (
    ViewSettingsChoice,
    choice_for,
    select_view_settings,
    with_view_settings,
)
from mscam_dask.engine.tasks import GraphSpectrum
from mscam_dask.linalg.laplacian import connected_components, edge_split
from mscam_dask.solvers.graph_update import Graph
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

__all__ = [
    "Search",
    "Selected",
    "choose_count",
    "cuts_of",
    "halves_of",
    "modularities",
    "select",
    "select_n_clusters",
    "select_preprocessing",
    "split_half_ari",
    "with_count",
]


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


def select_preprocessing(data: MultiViewData, search: Search, executor: Executor) -> Search:
    """Select scale and α of each view by neighbor overlap, if there is a choice and two views or more."""
    choices = search.choices
    if len(choices.view_settings) < 2 or len(data.views) < 2:
        return search
    overlaps = select_view_settings(
        data, choices.view_settings, search.candidates[0].seed, executor
    )
    candidates = with_view_settings(
        search.candidates, overlaps, may_exclude_views=choices.may_exclude_views
    )
    return dataclasses.replace(search, candidates=candidates, overlaps=overlaps)


def select_n_clusters(precomputed: PrecomputedViews, search: Search, executor: Executor) -> Search:
    """Select the number of clusters, if there is a choice: 1 where views or halves agree by chance."""
    if not search.choices.n_clusters:
        return search
    first = search.usable(precomputed)[0]
    selection = choose_count(precomputed, first, executor)
    overlap = {record.view: record.overlap for record in choice_for(first, search.overlaps)}
    if agrees_by_chance(overlap, split_half_ari_of(selection)):
        selection = dataclasses.replace(selection, n_clusters=1)
    return dataclasses.replace(
        search, candidates=with_count(search.candidates, selection), n_clusters_selection=selection
    )


def select(precomputed: PrecomputedViews, search: Search, executor: Executor) -> Selected:
    """Return the initialization with the best score; within `tol` the earlier candidate is kept.

    With `Choices.initial_graph`, the best candidate is also tried with the mixed initial graph, unless
    its score is nearly perfect. The settings of large data are compared on a sample. With initial
    labels there is no selection.
    """
    began = time.perf_counter()
    candidates = search.usable(precomputed)
    if search.init_labels is not None:
        start = warm_start(precomputed, candidates[0], search.init_labels, executor)
        settings, chosen = [start.record(precomputed.names)], 0
    else:
        start, settings, chosen = _best_setting(precomputed, candidates, search.choices, executor)
        start = improve_by_restarts(start, executor)
    return Selected(start, tuple(settings), chosen, time.perf_counter() - began)


def _best_setting(
    precomputed: PrecomputedViews,
    candidates: Sequence[Parameters],
    choices: Choices,
    executor: Executor,
) -> tuple[Initialization, list[CandidateSettings], int]:
    """Return the initialization with the best score, the records of all settings, and its position."""
    candidates, lost = _with_or_without(precomputed, candidates, executor)
    if precomputed.sample is not None and len(candidates) > 1:
        leader, records, chosen = _best_on_sample(
            precomputed, precomputed.sample, candidates, executor
        )
    else:
        may_mix = choices.initial_graph and _may_mix(precomputed, candidates[0])
        is_only = len(candidates) == 1 and not may_mix
        leader, records, chosen = _best_of(precomputed, candidates, executor, is_only=is_only)
    other = _with_view_graphs(leader, executor) if choices.initial_graph else None
    if other is not None:
        records.append(other.record(precomputed.names))
        if _is_better(other, leader):
            leader, other, chosen = other, leader, len(records) - 1
        release_unshared(other, leader, executor)
        if other.view_graphs is not None:  # the mean graph is the better one
            executor.release([other.view_graphs])
    return leader, [*records, *lost], chosen


def _with_or_without(
    precomputed: PrecomputedViews, candidates: Sequence[Parameters], executor: Executor
) -> tuple[Sequence[Parameters], list[CandidateSettings]]:
    """Return the candidates that exclude views, or those that do not, and a record of the others.

    The first candidate of each kind is scored by all views. After that, excluded views have no effect.
    """
    without = [candidate for candidate in candidates if candidate.exclude_views]
    everything = [candidate for candidate in candidates if not candidate.exclude_views]
    if not without or not everything:
        return candidates, []
    scored_on = precomputed.sample or precomputed
    n_views = len(precomputed.names)
    later = [candidate.scales(n_views) for candidate in candidates]
    starts = []
    for name, candidate in (("without", without[0]), ("everything", everything[0])):
        key = f"{name}-{scored_on.n_samples}"
        prepared = prepare_views(
            scored_on, candidate, executor, key=key, later=later, all_score=True
        )
        start = initialize(prepared, candidate, executor, key=key)
        starts.append((start.best.partition_score, start.record(precomputed.names)))
        release(start, executor)
    (score_without, record_without), (score_with_all, record_with_all) = starts
    clearly = dataclasses.replace(without[0], tol=max(without[0].tol, RULES.score_margin))
    if is_better(score_with_all, score_without, clearly):
        return everything, [record_without]
    return without, [record_with_all]


def _may_mix(precomputed: PrecomputedViews, parameters: Parameters) -> bool:
    """Return whether the mixed initial graph is tried for some scores."""
    n_views = len(parameters.active_views(len(precomputed.names)))
    return have_view_graphs(n_views, precomputed.n_samples)


def _best_of(
    precomputed: PrecomputedViews,
    candidates: Sequence[Parameters],
    executor: Executor,
    *,
    is_only: bool = False,
) -> tuple[Initialization, list[CandidateSettings], int]:
    """Return the initialization with the best score, the records of all settings, and its position."""
    records: list[CandidateSettings] = []
    chosen, leader = 0, None
    for index, candidate in enumerate(candidates):
        key = f"setting-{precomputed.n_samples}-{index}"
        n_views = len(precomputed.names)
        later = [following.scales(n_views) for following in candidates[index + 1 :]]
        prepared = prepare_views(precomputed, candidate, executor, key=key, later=later)
        start = initialize(prepared, candidate, executor, key=key, is_only=is_only)
        records.append(start.record(precomputed.names))
        # only one setting beside the best is held at a time: candidate neighbors are large
        if leader is None:
            leader = start
        elif _is_better(start, leader):
            release(leader, executor)
            chosen, leader = index, start
        else:
            release(start, executor)
    assert leader is not None, "there is at least one candidate"
    return leader, records, chosen


def _best_on_sample(
    precomputed: PrecomputedViews,
    sample: PrecomputedViews,
    candidates: Sequence[Parameters],
    executor: Executor,
) -> tuple[Initialization, list[CandidateSettings], int]:
    """Return the initialization of all samples for the setting with the best score on the sample.

    The records of the other settings are those of the sample.
    """
    on_sample, records, chosen = _best_of(sample, candidates, executor)
    release(on_sample, executor)
    parameters = candidates[chosen]
    prepared = prepare_views(precomputed, parameters, executor, key="all")
    start = initialize(prepared, parameters, executor, key="all")
    records[chosen] = start.record(precomputed.names)
    return start, records, chosen


def _is_better(later: Initialization, earlier: Initialization) -> bool:
    return is_better(later.best.partition_score, earlier.best.partition_score, later.parameters)


def _with_view_graphs(leader: Initialization, executor: Executor) -> Initialization | None:
    """Return the initialization with the mixed initial graph, or None if it is not tried."""
    prepared, parameters = leader.prepared, leader.parameters
    if not can_use_view_graphs(leader):
        return None
    key = f"view-graphs-{prepared.n_samples}"
    own = view_graphs(prepared, parameters, executor, key=key)
    first = with_view_graphs(leader.first, own, executor, key=key)
    mixed = evaluate_graph(prepared, parameters, first, executor, key=key)
    return dataclasses.replace(mixed, view_graphs=own)


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
