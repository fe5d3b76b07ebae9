"""Each ingredient of the defaults taken away in turn: ``python -m tests.benchmarks.ablation [NAME ...]``.

Prints two Markdown tables, accuracy and adjusted Rand index, a column for each variant. Labels are
used for the scores only. What is kept of the path, the best partition by the label-free judge, has no
switch and is not taken away.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from mscam_dask import MSCAM, MSCAN
from mscam_dask.errors import ConvergenceWarning
from mscam_dask.metrics import PartitionScores, score_partition
from tests.benchmark_sets import NAMES, BenchmarkData, read_set

VARIANTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "defaults": {},
        "no learned metric": {"model": MSCAN},
        "one iteration": {"max_outer_iter": 1},
        "all views unit, alpha 10": {"scale": "unit", "alpha": 10.0},
        "all views standard, alpha 1": {"scale": "standard", "alpha": 1.0},
        "k 9": {"n_neighbors": 9},
        "k 40": {"n_neighbors": 40},
        "floor 0.01": {"metric_floor": 0.01},
        "nothing chosen": {"selection": None},
    }
)
"""What each variant sets beside the number of clusters."""


def scores_of(data: BenchmarkData, settings: Mapping[str, Any]) -> PartitionScores:
    """Scores of one fit, with one thread."""
    given = dict(settings)
    estimator = given.pop("model", MSCAM)
    n_neighbors = min(given.pop("n_neighbors", 0), len(data.labels) - 1) or None
    model = estimator(
        data.n_clusters, metric=data.kinds, n_neighbors=n_neighbors, n_jobs=1, **given
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # one iteration is not enough
        model.fit(data.views)
    return score_partition(data.labels, model.labels_)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


def main(names: Sequence[str] = NAMES) -> dict[str, list[PartitionScores]]:
    """Print both tables, and return the scores of each set in the order of the variants."""
    found: dict[str, list[PartitionScores]] = {}
    for name in names:
        data = read_set(name)
        found[name] = [scores_of(data, settings) for settings in VARIANTS.values()]
        sys.stderr.write(f"{name}\n")
    for title, field in (("ACC", "accuracy"), ("ARI", "adjusted_rand_index")):
        values = np.array([[getattr(one, field) for one in row] for row in found.values()])
        sys.stdout.write(f"\n{title}\n\n" + _line(["data set", *VARIANTS]))
        sys.stdout.write("|---" * (len(VARIANTS) + 1) + "|\n")
        for name, row in zip([*found, "mean"], [*values, values.mean(axis=0)], strict=True):
            sys.stdout.write(_line([name, *(f"{value:.3f}" for value in row)]))
    return found


if __name__ == "__main__":
    main(sys.argv[1:] or NAMES)
