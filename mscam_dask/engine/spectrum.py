"""Bottom eigenpairs of the Laplacian of a graph, and its spectral cuts.

One task finds those of a graph in one block. Several blocks go from coarse to fine: the aggregated
graph, then rounds of a Chebyshev filter and Rayleigh-Ritz.
Cuts are by k-means on a sample of the rows of the spectral embedding, which is all of them in one
block; the other rows follow by the nearest mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.engine.blocks import Graph, GraphSpectrum, Stage, View, taken
from mscam_dask.engine.executors.base import Handle
from mscam_dask.engine.prepare import Prepared
from mscam_dask.linalg import eigensolver
from mscam_dask.linalg.eigensolver import LaplacianRows, RitzPairs
from mscam_dask.linalg.halos import Ranges
from mscam_dask.solvers import spectral_cut
from mscam_dask.solvers.graph_update import Components, laplacian_rows
from mscam_dask.solvers.ridge_view import RidgeView, complete_embedding
from mscam_dask.types.rules import SIZES

# Residual of the eigenpairs relative to the largest eigenvalue: far below any relevant eigengap.
_TOLERANCE = 1e-6

# The same where a component for each cluster leaves the eigengap alone to be found.
_GAP_TOLERANCE = 1e-3

PER_CLUSTER = 4
"""Minimum number of samples per cluster for k-means."""

# Samples up to which one task has all random starts of k-means, since they take little time, and starts in one task
# of more samples.
_FEW_SAMPLES, _STARTS_TOGETHER = 2000, 2


def bottom_eigenpairs(
    stage: Stage,
    graph: Graph,
    prepared: Prepared,
    *,
    previous: GraphSpectrum | None = None,
    n_pairs: int | None = None,
    all_accurate: bool = False,
) -> GraphSpectrum:
    """Submit the bottom eigenpairs of a graph, from the previous eigenvectors if there are any."""
    parameters = prepared.parameters
    wanted = parameters.n_pairs(graph.ranges[-1][1]) if n_pairs is None else n_pairs
    laplacian = _laplacian(stage, graph)
    if len(graph.ranges) == 1:
        found = stage.submit(
            graph_spectrum,
            laplacian[0],
            graph.components,
            None if previous is None else previous.vectors[0],
            wanted,
            0 if all_accurate else parameters.n_clusters,
            parameters.seed,
        )
        values, vectors, converged = (
            stage.attribute(found, name) for name in ("values", "vectors", "converged")
        )
        return GraphSpectrum(laplacian, (vectors,), graph.halos, values, converged)
    return _from_coarse_to_fine(stage, graph, laplacian, previous, prepared, wanted)


def null_spectrum(stage: Stage, graph: Graph) -> GraphSpectrum:
    """Submit the null vectors of a graph: scaled indicators of its components."""
    vectors = tuple(
        stage.submit(indicators, graph.components, start, stop, kind="null_vectors")
        for start, stop in graph.ranges
    )
    values = np.zeros(graph.n_components)
    return GraphSpectrum(_laplacian(stage, graph), vectors, graph.halos, values, converged=True)


def gap_and_convergence(
    values: NDArray[np.float64],
    converged: bool,  # noqa: FBT001 - tasks take positions
    n_clusters: int,
) -> tuple[float, bool]:
    """Gap λ_{c+1} − λ_c of ascending eigenvalues (NaN if there are only c), and `converged`."""
    if len(values) <= n_clusters:
        return float("nan"), bool(converged)
    return float(values[n_clusters] - values[n_clusters - 1]), bool(converged)


def _laplacian(stage: Stage, graph: Graph) -> tuple[Handle, ...]:
    precision = np.float64 if len(graph.ranges) == 1 else np.float32
    return tuple(
        stage.submit(
            laplacian_rows, graph.rows[number], taken(graph.rows, sources), graph.ranges, precision
        )
        for number, sources in enumerate(graph.sources)
    )


def graph_spectrum(
    rows: LaplacianRows,
    components: Components,
    start: NDArray[Any] | None,
    n_pairs: int,
    n_clusters: int,
    seed: int,
) -> eigensolver.Spectrum:
    """Bottom eigenpairs of a Laplacian in one block, from the previous eigenvectors as a start.

    A coarser tolerance is enough if there is a component for each cluster: the null vectors are exact, and of
    the others only the eigengap is wanted, whose error is quadratic in the residual.
    """
    return eigensolver.bottom_eigenpairs(
        rows.matrix,
        n_pairs,
        warm_start=start,
        components=(components.count, components.labels.astype(np.int64)),
        relative_tolerance=_GAP_TOLERANCE if components.count == n_clusters else _TOLERANCE,
        rng=np.random.default_rng(seed),
    )


def indicators(components: Components, start: int, stop: int) -> NDArray[np.float32]:
    """Rows of the null vectors of the Laplacian: scaled indicators of the components."""
    roots = np.sqrt(np.bincount(components.labels))
    own = components.labels[start:stop]
    rows = np.zeros((stop - start, components.count), dtype=np.float32)
    rows[np.arange(stop - start), own] = 1.0 / roots[own]
    return rows


# from coarse to fine ---------------------------------------------------------------------------


def _from_coarse_to_fine(
    stage: Stage,
    graph: Graph,
    laplacian: tuple[Handle, ...],
    previous: GraphSpectrum | None,
    prepared: Prepared,
    n_pairs: int,
) -> GraphSpectrum:
    halos, n_blocks, c = graph.halos, range(len(graph.ranges)), prepared.parameters.n_clusters
    vectors: Sequence[Handle] = (
        _coarse_vectors(stage, graph, laplacian, prepared.views, n_pairs + max(5, n_pairs // 2))
        if previous is None
        else previous.vectors
    )
    before: RitzPairs | None = None
    n_rounds = 0
    while True:
        one = stage.sub(n_rounds)
        image = [
            one.submit(
                LaplacianRows.apply, laplacian[b], taken(vectors, halos[b]), kind="apply_laplacian"
            )
            for b in n_blocks
        ]
        sums = one.map(eigensolver.ritz_sums, laplacian, vectors, image)
        ritz = one.submit(eigensolver.ritz_pairs, list(sums), kind="graph_spectrum")
        found = one.value(ritz)
        polynomial = eigensolver.next_filter(
            found,
            before,
            c,
            n_rounds,
            n_null=graph.n_components,
            warm=previous is not None,
        )
        start = [one.submit(ritz_vectors, vectors[b], ritz) for b in n_blocks]
        if polynomial is None:
            converged = found.converged(c)
            return GraphSpectrum(laplacian, tuple(start), halos, found.values, converged)
        # a Chebyshev filter on the Ritz vectors
        current = [
            one.submit(eigensolver.filter_first, vectors[b], image[b], ritz, polynomial)
            for b in n_blocks
        ]
        del image, sums
        for _ in range(2, polynomial.degree + 1):
            start, current = (
                current,
                [
                    one.submit(
                        eigensolver.filter_next,
                        laplacian[b],
                        start[b],
                        taken(current, halos[b]),
                        polynomial,
                    )
                    for b in n_blocks
                ],
            )
        vectors, before, n_rounds = current, found, n_rounds + 1


def _coarse_vectors(
    stage: Stage, graph: Graph, laplacian: Sequence[Handle], views: Sequence[View], n_vectors: int
) -> list[Handle]:
    """Submit eigenvectors of the aggregated graph, prolonged to all samples."""
    ranges = graph.ranges
    parts = [
        stage.submit(
            aggregates_of,
            [view.rows[number] for view in views],
            graph.components,
            start,
            ranges[-1][1],
        )
        for number, (start, _) in enumerate(ranges)
    ]
    joined = stage.submit(join_aggregates, parts)
    coarse = [
        stage.submit(coarse_rows, rows, joined, number, ranges)
        for number, rows in enumerate(laplacian)
    ]
    vectors = stage.submit(
        eigensolver.coarse_vectors, coarse, joined, n_vectors, kind="coarse_eigenvectors"
    )
    return [stage.submit(prolonged, vectors, joined, start, stop) for start, stop in ranges]


def aggregates_of(
    views: list[RidgeView], components: Components, start: int, n_samples: int
) -> NDArray[np.int32]:
    """Aggregate of each row of a block."""
    points = complete_embedding(views).stacked(slice(None), np.float32)
    own = components.labels[start : start + len(points)]
    return eigensolver.aggregate_rows(points, own, n_samples)


def join_aggregates(parts: list[NDArray[np.int32]]) -> NDArray[np.int32]:
    """Aggregate of each sample, numbered one block after the other."""
    counts = [int(part.max()) + 1 for part in parts]
    firsts = np.cumsum([0, *counts[:-1]])
    return np.concatenate(
        [part + np.int32(first) for part, first in zip(parts, firsts, strict=True)]
    )


def coarse_rows(
    rows: LaplacianRows, aggregates: NDArray[np.int32], number: int, ranges: Ranges
) -> csr_array[Any]:
    """Entries of a block of rows of the Laplacian, summed by aggregates."""
    own, *others = (aggregates[slice(*ranges[block])] for block in (number, *rows.halo.blocks))
    return eigensolver.coarse_block(rows, own, others)


def prolonged(
    vectors: NDArray[np.float32], aggregates: NDArray[np.int32], start: int, stop: int
) -> NDArray[np.float32]:
    """Rows of coarse eigenvectors for the samples of a block."""
    return vectors[aggregates[start:stop]]


def ritz_vectors(vectors: NDArray[np.float32], found: RitzPairs) -> NDArray[np.float32]:
    """Rows of the Ritz vectors."""
    return np.asarray(vectors @ found.rotation.astype(np.float32))


# spectral cuts ---------------------------------------------------------------------------------


def random_minima(stage: Stage, spectrum: GraphSpectrum, prepared: Prepared) -> list[Handle]:
    """Submit local minima of k-means on a spectral embedding, from random starts."""
    embedding = stage.attribute(_cut_sample(stage, spectrum, prepared), "embedding")
    together = SIZES.n_random_starts
    if prepared.order.n_samples > _FEW_SAMPLES:
        together = _STARTS_TOGETHER
    drawn = int(np.random.default_rng(prepared.parameters.seed).integers(2**31))
    starts = range(SIZES.n_random_starts)
    return [
        stage.submit(spectral_cut.random_minima, embedding, drawn, starts[first : first + together])
        for first in range(0, len(starts), together)
    ]


def _cut_sample(stage: Stage, spectrum: GraphSpectrum, prepared: Prepared) -> Handle:
    order, parameters = prepared.order, prepared.parameters
    n, c = order.n_samples, parameters.n_clusters
    n_wanted = n if order.is_whole else min(n, max(SIZES.n_cut, PER_CLUSTER * c))
    n_pairs = parameters.n_pairs(n)
    samples = [
        stage.submit(spectral_cut.sample_vectors, vectors, n_pairs, start, n, n_wanted)
        for vectors, (start, _) in zip(spectrum.vectors, order.ranges, strict=True)
    ]
    return stage.submit(spectral_cut.cut_sample, samples, spectrum.values, c, n, n_wanted)


def spectral_cuts(
    stage: Stage,
    spectrum: GraphSpectrum,
    prepared: Prepared,
    *,
    init_labels: Handle | None = None,
    minima: Sequence[Handle] = (),
    all_minima: bool = False,
) -> Handle:
    """Submit the partitions of a spectral embedding, in the order of the data, with the `random_minima` of it."""
    order = prepared.order
    n_pairs = prepared.parameters.n_pairs(order.n_samples)
    sample = _cut_sample(stage, spectrum, prepared)
    started = None
    if init_labels is not None or not all_minima:
        started = stage.submit(started_minima, sample, init_labels, order.order)
    known = None
    if prepared.deciding is not None:
        blocks = [
            stage.submit(
                spectral_cut.known_rows, vectors, n_pairs, start, order.order, prepared.deciding
            )
            for vectors, (start, _) in zip(spectrum.vectors, order.ranges, strict=True)
        ]
        known = stage.submit(spectral_cut.join_known, blocks)
    cuts = stage.submit(
        spectral_cut.choose_cuts,
        sample,
        started,
        list(minima),
        all_minima,
        known,
        kind="spectral_cut",
    )
    labels = [
        stage.submit(spectral_cut.extend_rows, vectors, sample, cuts)
        for vectors in spectrum.vectors
    ]
    return stage.submit(spectral_cut.join_partitions, labels, sample, cuts, order.order)


def started_minima(
    sample: spectral_cut.CutSample, init_labels: NDArray[np.int64] | None, order: NDArray[np.int32]
) -> tuple[spectral_cut.Minimum, spectral_cut.Minimum | None]:
    """Local minima of k-means from the eigenvectors and from an earlier partition."""
    of_sample = (
        None if init_labels is None else init_labels[order[sample.positions]].astype(np.int64)
    )
    return spectral_cut.start_minima(sample.embedding, of_sample)
