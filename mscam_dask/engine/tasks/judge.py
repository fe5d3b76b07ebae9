"""Tasks that propose partitions and judge them without labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views import RowSource
from mscam_dask.engine.tasks.graph import GraphSpectrum
from mscam_dask.engine.tasks.views import view_shape
from mscam_dask.solvers.neutral import NeutralView, neutral_graphs, view_score
from mscam_dask.solvers.partition import cut_embedding

__all__ = ["first_cuts", "neutral_view", "next_cuts", "pick", "score_partitions", "single"]


def neutral_view(source: RowSource, n_neighbors: int) -> NeutralView:
    """Read one view and build its neutral graphs."""
    return neutral_graphs(source.read, view_shape(source), n_neighbors)


def first_cuts(spectrum: GraphSpectrum, n_clusters: int, seed: int) -> list[NDArray[np.int64]]:
    """Partitions cut from the bottom eigenvectors of a graph that nothing is known of yet."""
    rng = np.random.default_rng(seed)
    return cut_embedding(spectrum.spectrum.vectors[:, :n_clusters], rng=rng)


def next_cuts(
    spectrum: GraphSpectrum, n_clusters: int, best: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """Partitions cut from a graph's eigenvectors, also starting from the best so far."""
    return cut_embedding(spectrum.spectrum.vectors[:, :n_clusters], known=best)


def pick(partitions: list[NDArray[np.int64]], index: int) -> NDArray[np.int64]:
    """One of several partitions."""
    return partitions[index]


def score_partitions(view: NeutralView, partitions: list[NDArray[np.int64]]) -> list[float]:
    """Modularity of each partition on one view's neutral graphs."""
    return [view_score(view, labels) for labels in partitions]


def single(labels: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """A list of one partition."""
    return [labels]
