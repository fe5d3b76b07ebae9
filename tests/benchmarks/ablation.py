"""Accuracy without each part of the method in turn: ``python -m tests.benchmarks.ablation [--rules] [NAME ...]``.

Prints a Markdown table with accuracy and adjusted Rand index, one column for each variant. With ``--rules`` the
variants switch off the label-free rules of `mscam_dask.types.rules`, one at a time. Labels are used for the scores
only. The selection of the best partition by its label-free score cannot be switched off.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import numpy as np

from mscam_dask import MSCAM, MSCAN, Constants
from mscam_dask.engine import fit
from mscam_dask.errors import ConvergenceWarning
from mscam_dask.metrics import PartitionScores, score_partition
from mscam_dask.types.rules import CONSTANTS, RULES
from tests.benchmark_sets import NAMES, BenchmarkData, read_set
from tests.benchmarks.tables import write_head, write_row
from tests.blocks import other_values

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
        "floor 0.01": {"constants": Constants(identity_weight=0.01)},
        "nothing chosen": {"constants": Constants.paper()},
    }
)
"""Parameters of each variant; `learns` is not a parameter of the estimator, so it is patched."""


WITHOUT_RULE: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "defaults": {},
        "max_iterations 0": {"rules": {"max_iterations": 0}},
        "near_optimal 1": {"rules": {"near_optimal": 1.0}},
        "clear_overlap 0": {"rules": {"clear_overlap": 0.0}},
        "depth 1": {"rules": {"depth": 1.0}},
        "min_pairs 0": {"rules": {"min_pairs": 0}},
        "graph_weights 1, 1": {"rules": {"graph_weights": (1.0, 1.0)}},
        "stopping_share 1": {"rules": {"stopping_share": 1.0}},
    }
)
"""Thresholds with which a rule has no effect; rules are constants, so they are replaced in their object."""


def scores_of(data: BenchmarkData, settings: Mapping[str, Any]) -> PartitionScores:
    """Scores of one fit on one thread."""
    parameters = dict(settings)
    estimator = parameters.pop("model", MSCAM)
    learns = parameters.pop("learns", True)
    rules = parameters.pop("rules", {})
    n_neighbors = min(parameters.pop("n_neighbors", 0), len(data.labels) - 1) or None
    model = estimator(
        data.n_clusters, view_type=data.kinds, n_neighbors=n_neighbors, n_jobs=1, **parameters
    )
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        for name, value in rules.items():
            owner = RULES if hasattr(RULES, name) else CONSTANTS
            stack.enter_context(other_values(owner, **{name: value}))
        if not learns:
            stack.enter_context(patch.object(fit, "refine", lambda state, *_: state))
        warnings.simplefilter("ignore", ConvergenceWarning)  # one iteration is not enough
        model.fit(data.views)
    return score_partition(data.labels, model.labels_)


def _columns(row: Iterable[tuple[float, float]]) -> list[str]:
    return [f"{accuracy:.3f}, {ari:.3f}" for accuracy, ari in row]


def main(names: Sequence[str], variants: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the table line by line."""
    write_head("data set", *variants)
    rows = []
    for name in names:
        data = read_set(name)
        scores = [scores_of(data, settings) for settings in variants.values()]
        rows.append([(score.accuracy, score.adjusted_rand_index) for score in scores])
        write_row(name, *_columns(rows[-1]))
    write_row("mean", *_columns(np.mean(rows, axis=0)))


if __name__ == "__main__":
    asked = [name for name in sys.argv[1:] if name != "--rules"]
    main(asked or NAMES, WITHOUT_RULE if "--rules" in sys.argv else VARIANTS)
