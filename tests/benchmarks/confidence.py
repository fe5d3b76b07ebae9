"""Confidence of samples on the benchmark sets: ``python -m tests.benchmarks.confidence [NAME ...]``.

Prints a Markdown table: accuracy; the AUC with which 1 − confidence tells wrongly assigned samples
(after the best matching of clusters and classes); the mean confidence; and the reliability curve,
the share of right samples among those of a confidence. Labels are used for the evaluation only.
`measure` is what the tests call.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys

import numpy as np
from sklearn.metrics import roc_auc_score

from mscam_dask.metrics import matched_labels
from tests.benchmark_sets import NAMES, default_fit, read_set
from tests.benchmarks.tables import write_head, write_row

BARS = {
    "handwritten": 0.95,
    "msrcv1": 0.85,
    "bbc": 0.70,
    "reuters1200": 0.65,
    "prokaryotic": 0.58,
}
"""Least AUC that was asked for."""

_EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclasses.dataclass(frozen=True)
class Measured:
    """Confidence of one fit beside the ground truth."""

    accuracy: float  # share of right samples
    auc: float  # of 1 − confidence for the wrong samples
    confidence: float  # mean
    # Mean confidence and share of right samples, by fifth of the confidence; NaN where it has none
    reliability: tuple[tuple[float, float], ...]


def measure(name: str) -> Measured:
    """Fit a set with the defaults and compare confidence and ground truth."""
    data = read_set(name)
    model = default_fit(name, data)
    confidence = model.confidence_
    wrong = matched_labels(data.labels, model.labels_) != data.labels
    fifth = np.minimum(np.digitize(confidence, _EDGES) - 1, len(_EDGES) - 2)
    inside = [fifth == index for index in range(len(_EDGES) - 1)]
    curve = [
        (float(confidence[here].mean()), float(1.0 - wrong[here].mean()))
        if here.any()
        else (float("nan"), float("nan"))
        for here in inside
    ]
    return Measured(
        float(1.0 - wrong.mean()),
        float(roc_auc_score(wrong, 1.0 - confidence)),
        float(confidence.mean()),
        tuple(curve),
    )


def main(arguments: list[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    heads = [f"{low:.1f} to {high:.1f}" for low, high in itertools.pairwise(_EDGES)]
    write_head("set", "accuracy", "AUC", "asked", "mean confidence", *heads)
    for name in parser.parse_args(arguments).names:
        found = measure(name)
        right = ["-" if np.isnan(mean) else f"{share:.2f}" for mean, share in found.reliability]
        asked = BARS.get(name, "-")
        write_row(name, found.accuracy, found.auc, asked, found.confidence, *right)


if __name__ == "__main__":
    main(sys.argv[1:])
