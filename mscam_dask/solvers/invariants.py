"""Invariants of a result: the promises that hold for every fit, checked by definition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from mscam_dask.solvers.spectral_cut import canonical_labels

__all__ = ["violations"]

# Rounding of sums of weights: rows of A and view contributions.
_TOLERANCE = 1e-9


def violations(
    labels: NDArray[np.int64],
    consensus_graph: csr_array[Any],
    view_contributions: dict[str, float],
    *,
    n_connected_components: int,
    reached: bool = True,
) -> tuple[str, ...]:
    """Return the invariants that a result violates, as sentences; empty for a valid result.

    Parameters
    ----------
    labels : (n,) int64
    consensus_graph : (n, n) CSR
    view_contributions : dict of str to float
    n_connected_components : int
        Recorded number of components of the graph.
    reached : bool
        Whether the graph has exactly the requested number of components: then these are the
        clusters.
    """
    return (
        *_of_labels(labels),
        *_of_graph(labels, consensus_graph, n_connected_components, reached=reached),
        *_of_contributions(view_contributions),
    )


def _of_labels(labels: NDArray[np.int64]) -> Iterator[str]:
    if labels.ndim != 1 or labels.dtype.kind != "i":
        yield f"Labels have shape {labels.shape} and dtype {labels.dtype}, not one integer per sample."
        return
    if not np.array_equal(labels, canonical_labels(labels)):
        yield "Labels are not numbered from 0 in the order of first appearance."


def _of_graph(
    labels: NDArray[np.int64],
    graph: csr_array[Any],
    n_connected_components: int,
    *,
    reached: bool,
) -> Iterator[str]:
    n = len(labels)
    if graph.shape != (n, n):
        yield f"The graph has shape {graph.shape} for {n} samples."
        return
    if not (np.isfinite(graph.data).all() and (graph.data >= 0).all()):
        yield "The graph has weights that are negative or not finite."
        return
    if graph.diagonal().any():
        yield "The graph has edges from a sample to itself."
    rows = np.asarray(graph.sum(axis=1)).ravel()
    count, components = connected_components(graph, directed=False)
    alone = np.bincount(components)[components] == 1
    wrong = np.flatnonzero(np.abs(rows - ~alone) > _TOLERANCE)
    if len(wrong):
        yield (
            f"Rows of the graph do not sum to one in {len(wrong)} of {n} samples, "
            f"sample {wrong[0]} first ({rows[wrong[0]]:.6g})."
        )
    if count != n_connected_components:
        yield f"The graph has {count} connected components; {n_connected_components} are recorded."
    if reached:
        pairs = len(np.unique(np.stack([labels, components]), axis=1).T)
        if not pairs == count == len(np.unique(labels)):
            yield f"The {count} connected components of the graph are not the {len(np.unique(labels))} clusters."


def _of_contributions(shares: dict[str, float]) -> Iterator[str]:
    values = np.array(list(shares.values()), dtype=np.float64)
    if not ((values >= 0).all() and abs(values.sum() - 1.0) <= _TOLERANCE):
        yield f"View contributions are not shares that sum to one, but to {values.sum():.6g}."
