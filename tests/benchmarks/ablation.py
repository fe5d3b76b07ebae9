"""Accuracy without each part of the method in turn: ``python -m tests.benchmarks.ablation [NAME ...]``.

Prints a Markdown table with accuracy and adjusted Rand index, one column for each variant. Labels are used for
the scores only. The selection of the best partition by its label-free score cannot be switched off.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from mscam_dask import MSCAM, MSCAN
from mscam_dask.engine import fit
from mscam_dask.errors import ConvergenceWarning
from mscam_dask.metrics import PartitionScores, score_partition
from tests.benchmark_sets import NAMES, BenchmarkData, read_set

VARIANTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "defaults": {},
        "no learned distances": {"learns": False},
        "no learned metric": {"model": MSCAN},
        "one iteration": {"max_iter": 1},
        "all views unit, alpha 10": {"scale": "unit", "alpha": 10.0},
        "all views standard, alpha 1": {"scale": "standard", "alpha": 1.0},
        "k 9": {"n_neighbors": 9},
        "k 40": {"n_neighbors": 40},
        "floor 0.01": {"identity_weight": 0.01},
        "nothing chosen": {"auto_settings": False},
    }
)
"""Parameters of each variant; `learns` is not a parameter of the estimator, so it is patched."""


def scores_of(data: BenchmarkData, settings: Mapping[str, Any]) -> PartitionScores:
    """Scores of one fit on one thread."""
    parameters = dict(settings)
    estimator = parameters.pop("model", MSCAM)
    learns = parameters.pop("learns", True)
    n_neighbors = min(parameters.pop("n_neighbors", 0), len(data.labels) - 1) or None
    model = estimator(
        data.n_clusters, view_type=data.kinds, n_neighbors=n_neighbors, n_jobs=1, **parameters
    )
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        if not learns:
            stack.enter_context(patch.object(fit, "refine", lambda state, *_: state))
        warnings.simplefilter("ignore", ConvergenceWarning)  # one iteration is not enough
        model.fit(data.views)
    return score_partition(data.labels, model.labels_)


def _columns(row: NDArray[np.float64]) -> str:
    return " | ".join(f"{accuracy:.3f}, {ari:.3f}" for accuracy, ari in row)


def main(names: Sequence[str] = NAMES) -> dict[str, NDArray[np.float64]]:
    """Print the table line by line, and return the scores (variants, 2) of each set."""
    sys.stdout.write(f"| data set | {' | '.join(VARIANTS)} |\n{'|---' * (len(VARIANTS) + 1)}|\n")
    rows: dict[str, NDArray[np.float64]] = {}
    for name in names:
        data = read_set(name)
        scores = [scores_of(data, settings) for settings in VARIANTS.values()]
        rows[name] = np.array([(score.accuracy, score.adjusted_rand_index) for score in scores])
        sys.stdout.write(f"| {name} | {_columns(rows[name])} |\n")
        sys.stdout.flush()
    sys.stdout.write(f"| mean | {_columns(np.mean(list(rows.values()), axis=0))} |\n")
    return rows


if __name__ == "__main__":
    main(sys.argv[1:] or NAMES)
