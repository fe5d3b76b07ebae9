"""Pictures of fits and of experiments, drawn with matplotlib.

Each function draws on the axes `ax` or on those of a new figure, and returns the axes. New figures are not
registered with pyplot: ``plot.graph(model).figure.savefig("graph.svg")``.
"""

from __future__ import annotations

from mscam_dask.plot._experiment import ranks, robustness
from mscam_dask.plot._fit import (
    confidence,
    confusion,
    contributions,
    embedding,
    features,
    graph,
    history,
    n_clusters_curves,
    presence,
)

__all__ = [
    "confidence",
    "confusion",
    "contributions",
    "embedding",
    "features",
    "graph",
    "history",
    "n_clusters_curves",
    "presence",
    "ranks",
    "robustness",
]
