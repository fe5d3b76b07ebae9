"""The path of a fit as a labelled array, for analysis and for storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mscam_dask.types.events import IterationFinished, NClustersSelected

if TYPE_CHECKING:
    import xarray

__all__ = ["count_dataset", "history_dataset"]

_PER_ITERATION = {
    "graph_weight": "weight λ of the accepted graph step",
    "n_connected_components": "connected components of the consensus graph after the iteration",
    "score": "cross-view information (nats) of the cut of the graph the iteration started from",
    "eigengap": "difference of the Laplacian's eigenvalues c+1 and c at the start",
    "spectrum_converged": "1 where that Laplacian's eigenvectors reached their tolerance, else 0",
    "seconds": "wall time of the iteration (s)",
}

_PER_VIEW = {
    "primal_residual": "norm of W - F over √c when the inner solver stopped",
    "dual_residual": "norm of the change of F over √c when the inner solver stopped",
    "inner_iterations": "iterations of the inner solver",
    "objective": "the view's terms of the objective",
}


_PER_COUNT = {
    "eigengap": "difference of the Laplacian's eigenvalues c+1 and c over the former",
    "modularity": "modularity of the cut into c clusters on neutral graphs, mean over views",
    "adjusted_modularity": "the same times the share of that cut's entropy that neighbours in all views tell",
    "information": "cross-view information (nats) of that cut",
    "stability": "adjusted Rand index of the cuts of two halves of the graph",
}


def count_dataset(counted: NClustersSelected) -> xarray.Dataset:
    """Curves from which the number of clusters was chosen, over n_clusters.

    Parameters
    ----------
    counted : NClustersSelected

    Returns
    -------
    xarray.Dataset
        Each variable's ``long_name`` says what it is; the attribute ``chosen`` is the number.
    """
    import xarray

    curves = {
        name: ("n_clusters", _numbers(list(getattr(counted, name))), _said(prose))
        for name, prose in _PER_COUNT.items()
    }
    return xarray.Dataset(
        curves, coords={"n_clusters": list(counted.counts)}, attrs={"chosen": counted.n_clusters}
    )


def history_dataset(
    history: Sequence[IterationFinished], view_names: Sequence[str]
) -> xarray.Dataset:
    """Outer iterations as a Dataset over (outer_iteration, view).

    Parameters
    ----------
    history : sequence of IterationFinished
        Empty when no iteration was needed.
    view_names : sequence of str

    Returns
    -------
    xarray.Dataset
        Not a number for views that were left out. Each variable's ``long_name`` says what it is.
    """
    import xarray

    per_iteration = {
        name: ("outer_iteration", _numbers([getattr(r, name) for r in history]), _said(prose))
        for name, prose in _PER_ITERATION.items()
    }
    shape = (len(history), len(view_names))
    place = {name: position for position, name in enumerate(view_names)}
    where = [[place[view.view] for view in record.views] for record in history]
    per_view = {
        name: (
            ("outer_iteration", "view"),
            _by_view([[getattr(v, name) for v in r.views] for r in history], where, shape),
            _said(prose),
        )
        for name, prose in _PER_VIEW.items()
    }
    per_view["view_score"] = (
        ("outer_iteration", "view"),
        _by_view([r.view_scores for r in history], where, shape),
        _said("information (nats) on that cut from the view's own neutral graphs"),
    )
    return xarray.Dataset(
        {**per_iteration, **per_view},
        coords={
            "outer_iteration": np.array([r.iteration for r in history], dtype=np.int64),
            "view": list(view_names),
        },
    )


def _numbers(values: Sequence[float | bool]) -> NDArray[np.float64] | NDArray[np.int64]:
    """Numbers as they are, truth values as 0 and 1."""
    numbers = np.array(values)
    return numbers.astype(np.int64) if numbers.dtype == np.bool_ else numbers


def _by_view(
    values: Sequence[Sequence[float]], where: Sequence[Sequence[int]], shape: tuple[int, int]
) -> NDArray[np.float64]:
    """(iteration, view) numbers; NaN for a view left out, and where a solver keeps none by view."""
    table = np.full(shape, np.nan)
    for row, numbers, columns in zip(table, values, where, strict=True):
        if numbers:
            row[list(columns)] = numbers
    return table


def _said(prose: str) -> dict[str, str]:
    return {"long_name": prose}
