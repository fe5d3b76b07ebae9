"""Rank correlation of label-free indices with the adjusted Rand index: ``python -m tests.benchmarks.indices [NAME ...]``.

The partitions of a set are those of MSCAM with the same scale in every view (two scales, three α and
two k, after one outer iteration), and of four baselines with their defaults. Prints Spearman's rank
correlation of each index with the adjusted Rand index over the partitions, and the ARI of the partition
with the highest index, relative to the best ARI.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.metrics import calinski_harabasz_score, davies_bouldin_score, silhouette_score
from sklearn.preprocessing import StandardScaler

from mscam_dask import MSCAM
from mscam_dask.benchmark.methods import method
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.engine.scores import reference_graphs_of_view
from mscam_dask.errors import ConvergenceWarning
from mscam_dask.metrics import adjusted_rand_index
from mscam_dask.solvers.partition_score import view_modularity, view_scores
from mscam_dask.types.parameters import Scale
from mscam_dask.types.rules import CONSTANTS
from tests.benchmark_sets import NAMES, BenchmarkData, read_set
from tests.benchmarks.tables import write_head, write_row

Labels = NDArray[np.int64]
Index = Callable[[Labels], float]

OTHERS = ("sc-concat", "knn-sc", "lmvsc", "smvsc")

SCALES: tuple[Scale, ...] = ("unit", "standard")
GRID = tuple(itertools.product(SCALES, (0.1, 1.0, 10.0), (9, 20)))
"""Scaling, alpha, k."""


def pool_of(data: BenchmarkData) -> tuple[list[Labels], list[float]]:
    """Partitions to rank, and the eigengaps of MSCAM's graphs, NaN for other methods."""
    partitions: list[Labels] = []
    eigengaps: list[float] = []
    for scale, alpha, n_neighbors in GRID:
        model = MSCAM(
            data.n_clusters,
            view_type=data.kinds,
            scale=scale,
            alpha=alpha,
            n_neighbors=min(n_neighbors, len(data.labels) - 1),
            max_iter=1,
            n_jobs=1,
        ).fit(data.views)
        partitions.append(model.labels_)
        eigengaps.append(float(model.history_["eigengap"].values[-1]))
    for name in OTHERS:
        baseline = method(name).make(data.n_clusters, 0, {"view_type": data.kinds})
        partitions.append(baseline.fit_predict(data.views))
        eigengaps.append(float("nan"))
    return partitions, eigengaps


def indices_of(data: BenchmarkData) -> dict[str, Index]:
    """Indices of a partition alone; higher is better."""
    k = min(CONSTANTS.validation_neighbors, len(data.labels) - 1)
    sources = as_multi_view(data.views, view_type=data.kinds).views
    reference_graphs = [reference_graphs_of_view(source, k) for source in sources]
    rows = np.hstack([StandardScaler().fit_transform(view) for view in data.views])
    return {
        "cross-view information": lambda y: float(
            np.mean([view_scores(v, [y])[0] for v in reference_graphs])
        ),
        "cross-view modularity": lambda y: float(
            np.mean([view_modularity(v, y) for v in reference_graphs])
        ),
        "silhouette": lambda y: float(silhouette_score(rows, y)),
        "Calinski-Harabasz": lambda y: float(calinski_harabasz_score(rows, y)),
        "Davies-Bouldin": lambda y: -float(davies_bouldin_score(rows, y)),
    }


def ranked(values: Sequence[float], truth: Sequence[float]) -> tuple[float, float]:
    """Rank correlation with the true scores, and the true score of the highest value over the best one."""
    known = np.isfinite(values)
    index, ari = np.asarray(values)[known], np.asarray(truth)[known]
    return float(spearmanr(index, ari).statistic), float(ari[np.argmax(index)] / max(truth))


def row_of(data: BenchmarkData) -> dict[str, tuple[float, float]]:
    """Rank correlation and relative ARI of each index on one set."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        partitions, eigengaps = pool_of(data)
    truth = [adjusted_rand_index(data.labels, labels) for labels in partitions]
    row = {
        name: ranked([index(labels) for labels in partitions], truth)
        for name, index in indices_of(data).items()
    }
    return {**row, "eigengap": ranked(eigengaps, truth)}


def main(names: Sequence[str] = NAMES) -> None:
    """Print the table line by line."""
    rows: dict[str, dict[str, tuple[float, float]]] = {}
    for name in names:
        rows[name] = row_of(read_set(name))
        if len(rows) == 1:
            write_head("data set", *rows[name])
        write_row(name, *(f"{rho:.2f}, {share:.2f}" for rho, share in rows[name].values()))
    means = np.mean([list(row.values()) for row in rows.values()], axis=0)
    write_row("mean", *(f"{rho:.2f}, {share:.2f}" for rho, share in means))


if __name__ == "__main__":
    main(sys.argv[1:] or NAMES)
