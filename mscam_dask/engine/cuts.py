"""Spectral cuts of a graph, by k-means on a sample of the rows of its spectral embedding.

The sample of one block of rows is all of them. The other rows follow by the nearest mean.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mscam_dask.engine.blocks import RowOrder, Spectrum, Stage
from mscam_dask.engine.executors.base import Handle
from mscam_dask.solvers.row_graph import (
    CutSample,
    choose_cuts,
    cut_sample,
    extend_rows,
    join_known,
    join_partitions,
    known_rows,
    sample_vectors,
)
from mscam_dask.solvers.spectral_cut import Minimum, random_minima, start_minima
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.rules import SIZES

# Minimum number of samples per cluster for k-means.
_PER_CLUSTER = 4

# Samples up to which one task has all random starts of k-means, since they take little time, and starts in one task
# of more samples.
_FEW_SAMPLES, _STARTS_TOGETHER = 2000, 2


def spectral_cuts(
    stage: Stage,
    spectrum: Spectrum,
    order: RowOrder,
    parameters: Parameters,
    *,
    init_labels: Handle | None = None,
    random: bool = False,
    all_minima: bool = False,
) -> Handle:
    """Submit the partitions of a spectral embedding, in the order of the data."""
    n, c = order.n_samples, parameters.n_clusters
    n_wanted = n if order.is_whole else min(n, max(SIZES.n_cut, _PER_CLUSTER * c))
    n_pairs = parameters.n_pairs(n)
    samples = [
        stage.submit(sample_vectors, vectors, n_pairs, start, n, n_wanted)
        for vectors, (start, _) in zip(spectrum.vectors, order.ranges, strict=True)
    ]
    sample = stage.submit(cut_sample, samples, spectrum.values, c, n, n_wanted)
    together = SIZES.n_random_starts if n <= _FEW_SAMPLES else _STARTS_TOGETHER
    minima = []
    if random:
        embedding = stage.attribute(sample, "embedding")
        drawn = int(np.random.default_rng(parameters.seed).integers(2**31))
        starts = range(SIZES.n_random_starts)
        minima = [
            stage.submit(random_minima, embedding, drawn, starts[first : first + together])
            for first in range(0, len(starts), together)
        ]
    started = None
    if init_labels is not None or not all_minima:
        started = stage.submit(started_minima, sample, init_labels, order.order)
    known = None
    if order.known is not None:
        blocks = [
            stage.submit(known_rows, vectors, n_pairs, start, order.order, order.known)
            for vectors, (start, _) in zip(spectrum.vectors, order.ranges, strict=True)
        ]
        known = stage.submit(join_known, blocks)
    cuts = stage.submit(
        choose_cuts, sample, started, minima, all_minima, known, kind="spectral_cut"
    )
    labels = [stage.submit(extend_rows, vectors, sample, cuts) for vectors in spectrum.vectors]
    return stage.submit(join_partitions, labels, sample, cuts, order.order, known)


def started_minima(
    sample: CutSample, init_labels: NDArray[np.int64] | None, order: NDArray[np.int32]
) -> tuple[Minimum, Minimum | None]:
    """Local minima of k-means from the eigenvectors and from an earlier partition."""
    of_sample = (
        None if init_labels is None else init_labels[order[sample.positions]].astype(np.int64)
    )
    return start_minima(sample.embedding, of_sample)
